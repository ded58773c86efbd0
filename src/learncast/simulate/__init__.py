"""How weights move when a network is really trained, in torch."""
