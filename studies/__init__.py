"""Research with the library, on its public names alone; outside the wheel."""
