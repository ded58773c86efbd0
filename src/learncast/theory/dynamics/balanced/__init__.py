"""Balanced two-layer networks: their exact flow, and the shallow network beside them."""
