"""What is measured on one example's maps, and the one streaming pass that measures it."""
