"""The replay of a recurrent layer: its gates and derivatives at every step, from one forward pass."""
