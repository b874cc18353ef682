"""The reference interpreter: Triton models run on NumPy arrays."""
