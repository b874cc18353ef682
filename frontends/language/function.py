"""Functions written in the language: what `@zg.function` and `@zg.kernel` make of a Python function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from ziggurat.codemodel.errors import KernelSyntaxError
from ziggurat.codemodel.op import Op
from ziggurat.frontends.language.signature import active_recorder

if TYPE_CHECKING:
    # The parameter is used as the number, dtype or function that it is.
    constexpr: TypeAlias = Any
else:

    class constexpr:
        """Annotation of a parameter that takes a value known at compile time: `BLOCK: zg.constexpr`."""


class Function:
    """A Python function as one of the language. Called from a kernel it becomes a function of the kernel's model.

    Called from Python it runs as Python. `name` is its name where that is not to be the Python function's.
    """

    __qualname__: str

    def __init__(self, fn: Callable[..., Any], name: str | None = None) -> None:
        if not callable(fn):
            raise KernelSyntaxError(f"a kernel is made of a function, got {fn!r}", hint="decorate a function with it")
        if name is not None:
            fn.__qualname__ = name
        self.fn = fn
        self.name: str = name or getattr(fn, "__name__", type(fn).__name__)
        # The functions that the model refers to, by symbol; filled in by reflection when `model` is made.
        self.callees: dict[str, Function] = {}
        functools.update_wrapper(self, fn)

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """The Python signature."""
        return inspect.signature(self.fn)

    @property
    def written(self) -> str:
        """The name and the parameters, as in `def`: `scale(x, BLOCK: zg.constexpr = 64)`."""
        parts: list[str] = []
        for parameter in self.signature.parameters.values():
            known = parameter.annotation is constexpr or str(parameter.annotation).endswith("constexpr")
            plain = parameter.replace(annotation=inspect.Parameter.empty)
            text = str(plain).partition("=")[0] + (": zg.constexpr" if known else "")
            if parameter.default is not inspect.Parameter.empty:
                text += f"{' = ' if known else '='}{parameter.default!r}"
            parts.append(text)
        return f"{self.name}({', '.join(parts)})"

    @functools.cached_property
    def model(self) -> Op:
        """The Python code model: a `func`. Made at the first request, with globals and closure as they are then."""
        from ziggurat.frontends.reflection import reflect

        return reflect(self)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        recorder = active_recorder.get()
        if recorder is not None:
            return recorder.call_function(self, arguments, keywords)
        return self.fn(*arguments, **keywords)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.written}>"


def function(fn: Callable[..., Any]) -> Function:
    """Decorator: a helper that kernels may call, with positional, keyword and default arguments.

    It is compiled for each combination of argument types that it is called with.
    """
    return Function(fn)
