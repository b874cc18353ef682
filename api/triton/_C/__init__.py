"""The place of Triton's C++ compiler, of which programs call some parts (`libtriton`)."""

from ziggurat.triton._C import libtriton

__all__ = ["libtriton"]
