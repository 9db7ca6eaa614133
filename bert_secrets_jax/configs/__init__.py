"""Every number of every experiment."""
