"""Launches of native kernels: objects that are loaded, the threads that run them, and arguments that are packed."""
