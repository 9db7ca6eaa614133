"""Programs, one per section of the paper, that only wire the package together."""
