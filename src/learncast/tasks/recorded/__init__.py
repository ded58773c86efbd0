"""Tasks from recorded trials: arrays, files, tables, batches and environments, and what is kept of them."""
