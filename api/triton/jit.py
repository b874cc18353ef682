"""`@triton.jit`: kernels and helper functions in Triton's Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ziggurat.frontends.language.policy import TRITON
from ziggurat.kernels.kernel import Kernel


class JITFunction(Kernel):
    """A function of a Triton program: a kernel that is launched over a grid, or a helper that kernels call."""

    policy = TRITON


def jit(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Decorator of a kernel or a helper function in Triton's Python."""

    def made(fn: Callable[..., Any]) -> JITFunction:
        return JITFunction(fn)

    return made if fn is None else made(fn)
