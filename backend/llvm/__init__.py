"""LLVM text that code for GPUs and for CPUs shares, and llvmlite's binding to LLVM.

The text has a typed writer (`routines`, and `functions` for code that works on memory), elementwise ops and accurate
functions.
"""
