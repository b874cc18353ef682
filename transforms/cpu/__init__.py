"""From a Triton model to a CPU model: affine accesses, and loop nests over memory of the thread."""
