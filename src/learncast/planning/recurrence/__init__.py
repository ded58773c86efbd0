"""Questions about a recurrence that learns: order, stability, trade-offs, features."""
