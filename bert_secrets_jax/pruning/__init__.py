"""Which heads can go, and what a model is without them (Michel et al. 2019, Voita et al. 2019)."""
