"""Balanced two-layer networks: exact flow."""
