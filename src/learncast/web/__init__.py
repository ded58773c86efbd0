"""The explorer: a page on this machine where the theory moves with the hand."""
