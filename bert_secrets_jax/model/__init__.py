"""One functional BERT: attention arithmetic, Linen modules, Hugging Face weights."""
