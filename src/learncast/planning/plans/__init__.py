"""Plans: what to train first, when to stop, how sure that is, and a loop that carries it out."""
