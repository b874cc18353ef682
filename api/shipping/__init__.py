"""Kernels in folders that need no compiler: docs/guides/shipping.md."""
