"""The rooms of the explorer."""
