"""Backends: the reference interpreter, emission of PTX, the CUDA runtime, the simulator, and MLIR text."""
