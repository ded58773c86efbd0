"""What networks represent: similarities, tangent kernels, richness, decoupling."""
