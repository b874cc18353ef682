"""Functions in Gluon, which can be defined and not compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ziggurat.codemodel.errors import KernelSyntaxError
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Op
from ziggurat.frontends.language.function import Function
from ziggurat.frontends.language.languages import Language
from ziggurat.frontends.triton.triton_errors import as_triton
from ziggurat.triton.experimental.gluon import language
from ziggurat.triton.runtime.jit import JITFunction
from ziggurat.triton.runtime.models import TritonModels


class GluonModels(TritonModels):
    """The models of a function in Gluon: there are none."""

    def __init__(self, fn: Callable[..., Any], language: Language) -> None: ...

    def python(self, kernel: Function) -> Op:
        """Raise `UnsupportedLanguageConstruct`."""
        code = kernel.fn.__code__
        names = [name for name in code.co_names if name in (*language.TYPES, *language.OPS)]
        error = KernelSyntaxError(
            f"'{kernel.name}' is a function in Gluon, whose layouts, shared memory and ops ziggurat does not have"
            + (f"; it uses {', '.join(names)}" if names else ""),
            Location(code.co_filename, code.co_firstlineno),
            "write it in Triton's Python, under @triton.jit; the compiler chooses layouts and shared memory",
        )
        raise as_triton(error)


class GluonJITFunction(JITFunction):
    """A function under `@gluon.jit`. A launch of it, a call from a kernel and a request for its models are errors."""

    make_models = GluonModels

    def is_gluon(self) -> bool:
        return True


def jit(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Decorator of a function in Gluon, with the options of `triton.jit`."""
    return functools.partial(GluonJITFunction, **options) if fn is None else GluonJITFunction(fn, **options)
