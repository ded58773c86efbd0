"""Methods: how a network learns a pool of tasks, with the weights that learn."""
