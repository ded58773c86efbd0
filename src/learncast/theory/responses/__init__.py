"""Nonlinear units of fixed recurrence, seen through their measured responses."""
