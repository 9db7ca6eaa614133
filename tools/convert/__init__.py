"""Converters of old formats: each makes an ordinary folder of a model, once."""
