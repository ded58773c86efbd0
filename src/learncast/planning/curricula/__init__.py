"""Curricula: tasks learned one after another, by modes or over a terrain."""
