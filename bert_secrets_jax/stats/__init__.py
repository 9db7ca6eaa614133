"""Intervals, tests and corrections: how sure a number is, and how many of many are."""
