"""Balanced two-layer networks: exact flow, and bounds for unbalanced layers."""
