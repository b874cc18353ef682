"""`triton.language.extra`: the calls that only one kind of target has."""

from ziggurat.triton.language.extra import cuda, libdevice

__all__ = ["cuda", "libdevice"]
