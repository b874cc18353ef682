"""The runtime: kernels that are compiled are loaded, launched and kept, on cuda.bindings alone."""
