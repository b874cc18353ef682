"""`triton.set_allocator`: the function that gives memory to kernels that need some of their own.

Kernels of ziggurat need none: descriptors that a kernel makes are kept in its parameters. The function is kept for
programs that read it back.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

Allocator = Callable[[int, int, int | None], Any]


class NullAllocator:
    """The allocator until one is set: it raises."""

    def __call__(self, size: int, alignment: int, stream: int | None) -> Any:
        raise RuntimeError(
            "Kernel requires a runtime memory allocation, but no allocator was set. Use triton.set_allocator to "
            "specify an allocator."
        )


_allocator: ContextVar[Allocator] = ContextVar("_allocator", default=NullAllocator())  # noqa: B039


def set_allocator(allocator: Allocator) -> None:
    """Set the function that is called with a size and an alignment in bytes, and a stream."""
    _allocator.set(allocator)
