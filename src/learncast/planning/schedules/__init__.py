"""Optimal schedules: the cheapest orders and stops, exact for one mode and certified for several."""
