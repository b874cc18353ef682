"""Kernels in libraries that need no compiler: the launcher as machine code, archives and shared objects."""
