"""Answers to a study's questions, ready to print, to parse and to file."""
