"""Kernels built by programs: traced from a function, or call by call."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs

from ziggurat.boundary import public
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import BuildError
from ziggurat.codemodel.op import expect
from ziggurat.codemodel.types import Type
from ziggurat.compiler.pipeline import triton_model
from ziggurat.frontends.language import Function
from ziggurat.frontends.language.constants import as_constant
from ziggurat.kernels.arguments import Divisible
from ziggurat.transforms.attribution import constant


@public
def trace(fn: Callable[..., Any], *arguments: Any) -> core.Module:
    """The Triton code model of a kernel that is built by running `fn` on symbolic values.

    `arguments` are types, for which `fn` gets symbols, and constants, which it gets as they are. The calls it makes are
    appended to the kernel.
    """
    from ziggurat.frontends.tracing import trace_function

    return _triton(trace_function(fn, _plain(arguments)), arguments)


@attrs.define
class KernelBuilder:
    """A kernel under construction; see `build`. It has `arguments`, and when done `python` and `triton`, its models."""

    name: str
    arguments: tuple[Any, ...]
    _types: tuple[Any, ...]
    function: Function | None = None

    def _finished_function(self) -> Function:
        if self.function is None:
            raise BuildError(f"the kernel '{self.name}' is not finished", hint="read its models after the 'with' block")
        return self.function

    @property
    def python(self) -> core.Func:
        """The Python code model."""
        return expect(self._finished_function().model, core.Func)

    @property
    def triton(self) -> core.Module:
        """The Triton code model."""
        return _triton(self._finished_function(), self._types)


@contextmanager
def build(name: str, *arguments: Any) -> Generator[KernelBuilder]:
    """Build a kernel call by call: calls of the language in the `with` block are appended to it.

        with zg.build("double", zg.ptr(zg.f32), 64) as kernel:
            x, size = kernel.arguments
            at = zg.add(x, zg.arange(0, size))
            zg.store(at, zg.mul(zg.load(at), 2))
        print(kernel.triton)

    `arguments` are those of `zg.trace`.
    """
    from ziggurat.frontends.tracing import begin, finished, recording

    started, parameters = begin(_plain(arguments))
    kernel = KernelBuilder(name, parameters, arguments)
    with recording(started):
        yield kernel

    def stub() -> None:
        """A stand-in for the source, which a built kernel lacks."""

    kernel.function = finished(started, stub, name)


def _plain(arguments: Sequence[Any]) -> list[Any]:
    return [argument.type if isinstance(argument, Divisible) else argument for argument in arguments]


def _constant_type(argument: Any) -> Type:
    """The type of a constant argument. Only the traced function knows a value that no model can hold."""
    good, value = as_constant(argument)
    return constant(value if good else None)


def _triton(function: Function, arguments: Sequence[Any]) -> core.Module:
    divisibility = [a.by if isinstance(a, Divisible) else 1 for a in arguments if isinstance(a, Divisible | Type)]
    types = [argument if isinstance(argument, Type) else _constant_type(argument) for argument in _plain(arguments)]
    return triton_model(function, types, divisibility)
