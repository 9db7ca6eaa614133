"""Every number of every experiment, one file per setting."""
