"""Programs for developers and for those who label maps: of a clone, not of the wheel."""
