"""`triton.language.extra.libdevice`: CUDA's functions of numbers."""

from __future__ import annotations

from ziggurat.frontends.triton.libdevice import LIBDEVICE

globals().update(LIBDEVICE)
