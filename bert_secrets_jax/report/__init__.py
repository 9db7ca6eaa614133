"""The offline page with figures and tables. It computes nothing, and shows what it is given."""
