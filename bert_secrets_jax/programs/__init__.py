"""The programs of the command line: from settings to inputs, kept results and files."""
