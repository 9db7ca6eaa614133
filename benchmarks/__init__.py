"""Speed and memory against what a user would use instead, side by side in one run."""
