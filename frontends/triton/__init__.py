"""Triton's Python: its names for the calls of the language, its dtypes and its constants.

Functions under `@triton.jit` are reflected as those of the explicit calls are, in the language `TRITON`.
`triton_library.py`, which is written in Triton's Python, is the last of the modules: it imports reflection.
"""
