"""Gradient descent: optimizers, and fast counting of steps."""
