"""Grounds: how a pool of tasks is learned by a network when some of its weights learn."""
