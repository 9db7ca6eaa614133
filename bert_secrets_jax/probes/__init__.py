"""Probes: dependency heads from the attention maps of a frozen model (Clark et al. 2019)."""
