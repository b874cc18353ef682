"""Kernels and their arguments: `@zg.kernel`, argument types."""
