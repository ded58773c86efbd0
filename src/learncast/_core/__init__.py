"""Errors, validation, files and progress: what every package uses."""
