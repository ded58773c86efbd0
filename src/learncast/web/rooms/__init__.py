"""The rooms of the explorer's page, each a state and the views of it."""
