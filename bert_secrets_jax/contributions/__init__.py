"""Contributions of tokens to each other and to a prediction, beyond the weights of attention."""
