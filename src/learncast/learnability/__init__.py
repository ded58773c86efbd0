"""How far back a trained recurrent model can learn, from N sequences, with its optimiser."""
