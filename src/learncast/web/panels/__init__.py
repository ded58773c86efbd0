"""The panels of the explorer."""
