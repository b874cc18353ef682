"""`@triton.jit`: kernels and helper functions in Triton's Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ziggurat.frontends.language.policy import TRITON
from ziggurat.kernels.kernel import Kernel
from ziggurat.triton._utils import type_canonicalisation_dict
from ziggurat.triton.runtime.tensors import MockTensor, TensorWrapper, reinterpret


class KernelInterface:
    """An object that is launched over a grid: `kernel[grid](…)` is `kernel.run(…, grid=grid, warmup=False)`."""

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        raise NotImplementedError

    def warmup(self, *args: Any, grid: Any, **kwargs: Any) -> Any:
        """Compile for arguments without a launch. A dtype of PyTorch stands for a tensor of it."""
        return self.run(*map(MockTensor.wrap_dtype, args), grid=grid, warmup=True, **kwargs)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)


class JITCallable:
    """The base of functions that kernels call."""


class JITFunction(Kernel, JITCallable):
    """A function of a Triton program: a kernel that is launched over a grid, or a helper that kernels call."""

    policy = TRITON

    def __init__(
        self,
        fn: Callable[..., Any],
        version: Any = None,
        do_not_specialize: Sequence[int | str] | None = None,
        do_not_specialize_on_alignment: Sequence[int | str] | None = None,
        debug: bool | None = None,
        noinline: bool | None = None,
        repr: Callable[..., str] | None = None,
        launch_metadata: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(fn)
        names = [*self.signature.parameters]
        numbered = (names[one] if isinstance(one, int) else one for one in do_not_specialize or ())
        self.do_not_specialize = frozenset(one for one in numbered if one in names)
        self.version = version
        self.debug = debug
        self.noinline = noinline
        self.arg_names = names


def jit(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Decorator of a kernel or a helper function in Triton's Python."""

    def made(fn: Callable[..., Any]) -> JITFunction:
        return JITFunction(fn, **options)

    return made if fn is None else made(fn)


__all__ = [
    "JITCallable", "JITFunction", "KernelInterface", "MockTensor", "TensorWrapper", "jit", "reinterpret",
    "type_canonicalisation_dict",
]  # fmt: skip
