"""`triton.set_allocator`: the function that gives memory to kernels that make tensor maps."""

from __future__ import annotations

from ziggurat.backend.launch.allocation import ALLOCATOR as _allocator
from ziggurat.backend.launch.allocation import Allocator, NullAllocator


def set_allocator(allocator: Allocator) -> None:
    """Set the function that is called with a size and an alignment in bytes, and a stream. It returns an address, or an
    object with `data_ptr()`, such as a tensor of torch."""
    _allocator.set(allocator)


__all__ = ["NullAllocator", "set_allocator"]
