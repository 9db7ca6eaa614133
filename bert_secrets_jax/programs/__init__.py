"""What the command line runs: settings to inputs, inputs to kept results, results to files."""
