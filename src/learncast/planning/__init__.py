"""Answers from solutions: learning times, curricula, plans and phase portraits."""
