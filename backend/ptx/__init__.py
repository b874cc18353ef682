"""Emission: a GPU model becomes LLVM text and PTX."""
