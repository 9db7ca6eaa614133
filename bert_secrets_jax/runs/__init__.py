"""The results of analyses, and the folder in which a run keeps them."""
