"""The function of the program that provides the memory for tensor maps, if it has set one."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

# Takes bytes, alignment and stream; gives an address, or an object with `data_ptr()`, such as a tensor of torch.
Allocator = Callable[[int, int, "int | None"], Any]


class NullAllocator:
    """The allocator until one is set, in whose place launches get the memory themselves. Triton refuses to launch."""

    def __call__(self, size: int, alignment: int, stream: int | None) -> Any:
        raise RuntimeError(
            "Kernel requires a runtime memory allocation, but no allocator was set. Use triton.set_allocator to "
            "specify an allocator."
        )


UNSET = NullAllocator()
ALLOCATOR: ContextVar[Allocator] = ContextVar("ALLOCATOR", default=UNSET)
