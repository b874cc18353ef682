"""Launches: of kernels and of compiled kernels on a GPU, and of models on this machine."""
