"""Folders on disk for compiled kernels and for choices of tuning, and the keys of their entries."""
