"""Labelling maps by eye, and training and judging the classifier of patterns (section 4.1)."""
