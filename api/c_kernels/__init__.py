"""Kernels in Triton-C: `zg.triton_c`."""
