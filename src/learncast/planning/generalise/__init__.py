"""Held-out loss along training: when to stop, what to expect, how many trials are enough, what pretraining is worth."""
