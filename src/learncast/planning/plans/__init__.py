"""Plans: the search for stops and orders, and what is recommended."""
