"""How weights move: a task and a network give a solution."""
