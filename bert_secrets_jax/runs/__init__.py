"""What analyses return, and the folder in which a run keeps it."""
