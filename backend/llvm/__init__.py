"""LLVM text that code for GPUs and for CPUs shares: a typed writer, elementwise ops, accurate functions."""
