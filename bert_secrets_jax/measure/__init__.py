"""Statistics of attention maps, and the one streaming pass that measures them over a corpus."""
