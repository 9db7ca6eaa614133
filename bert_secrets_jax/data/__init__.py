"""Texts: GLUE, a user's own tables, the embedded corpus; tokenisation and batches."""
