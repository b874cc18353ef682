"""`triton.set_allocator`: the function that gives memory to kernels that make tensor maps.

Without one, ziggurat gets the memory itself (`backend/cuda/scratch.py`); Triton refuses to launch such a kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

Allocator = Callable[[int, int, int | None], Any]


class NullAllocator:
    """The allocator until one is set. It raises, if a program sets it."""

    def __call__(self, size: int, alignment: int, stream: int | None) -> Any:
        raise RuntimeError(
            "Kernel requires a runtime memory allocation, but no allocator was set. Use triton.set_allocator to "
            "specify an allocator."
        )


_allocator: ContextVar[Allocator] = ContextVar("_allocator", default=NullAllocator())  # noqa: B039


def set_allocator(allocator: Allocator) -> None:
    """Set the function that is called with a size and an alignment in bytes, and a stream. It returns an address, or an
    object with `data_ptr()`, such as a tensor of torch."""
    from ziggurat.backend.cuda import scratch  # Programs without tensor maps start sooner without it.

    _allocator.set(allocator)
    scratch.ALLOCATOR.set(allocator)
