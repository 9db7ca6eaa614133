"""Figures, tables and the one offline page. Computes nothing: it shows what it is given."""
