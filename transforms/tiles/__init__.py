"""Passes from Triton model to Triton model, on the ways to a GPU and to a CPU."""
