"""One functional BERT: arithmetic of attention, Linen modules, Hugging Face's checkpoints."""
