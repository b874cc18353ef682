"""`triton.language.extra`: what one kind of target has."""

from ziggurat.triton.language.extra import cuda, libdevice

__all__ = ["cuda", "libdevice"]
