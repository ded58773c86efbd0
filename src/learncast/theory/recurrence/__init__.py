"""Questions about a learned recurrence: order, stability, trade-off, features."""
