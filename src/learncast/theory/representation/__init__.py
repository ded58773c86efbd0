"""What networks represent: similarities, alignment with a task, tangent kernels."""
