"""Functions written in the language: what `@zg.function` and `@zg.kernel` make of a Python function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import attrs

from ziggurat.codemodel.errors import KernelSyntaxError, KernelTypeError
from ziggurat.codemodel.op import Op
from ziggurat.frontends.language.constants import as_constant
from ziggurat.frontends.language.signature import active_recorder

if TYPE_CHECKING:
    # The parameter is used as the number, dtype or function that it is.
    constexpr: TypeAlias = Any
else:

    class constexpr:
        """Annotation of a parameter that takes a value known at compile time: `BLOCK: zg.constexpr`.

        `zg.constexpr(16)` is 16: Triton's programs mark so the values of a module that kernels use.
        """

        def __new__(cls, value: Any) -> Any:
            return value


T = TypeVar("T")


@attrs.frozen
class Default:
    """The default value of a parameter that a call leaves out."""

    parameter: str
    value: Any


class Function:
    """A Python function of the language. A call from Python runs it; a call from a kernel compiles it with the kernel.

    `model` makes its Python code model when that is first needed: see `ziggurat.frontends.reflection.reader`. `name`
    replaces the Python function's name.
    """

    __qualname__: str

    def __init__(self, fn: Callable[..., Any], model: Callable[[Function], Op], name: str | None = None) -> None:
        if name is not None:
            fn.__qualname__ = name
        self.fn = fn
        self.name: str = name or getattr(fn, "__name__", type(fn).__name__)
        # The functions that the model refers to, by symbol. Whoever makes the model fills them in.
        self.callees: dict[str, Function] = {}
        self._make_model = model
        self._model: Op | None = None
        functools.update_wrapper(self, fn)

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """The Python signature."""
        try:
            return inspect.signature(self.fn)
        except (TypeError, ValueError):
            raise KernelSyntaxError(f"'{self.name}' is not a function defined by def") from None

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

    def bind(
        self,
        positional: Sequence[T],
        keywords: Sequence[tuple[str, T]],
        misfit: Callable[[str, str | None, int | None], KernelTypeError],
    ) -> dict[str, T | Default]:
        """What each parameter gets, in the order of the parameters.

        Where the arguments do not fit, what `misfit` makes is raised: it gets the message, a hint, and which of the
        keyword arguments is wrong, if it is one.
        """
        parameters = self.signature.parameters.values()
        places = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        named = {p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
        name = self.name
        if len(positional) > len(places):
            count = f"{len(places)} positional argument{'s' if len(places) != 1 else ''}"
            raise misfit(f"{name} takes {count}, got {len(positional)}", self.written, None)
        bound: dict[str, T] = dict(zip(places, positional, strict=False))
        for index, (keyword, value) in enumerate(keywords):
            if keyword not in named:
                near = suggest(keyword, named)
                hint = f"{near} {self.written}" if near else self.written
                raise misfit(f"{name} has no parameter '{keyword}' to give by name", hint, index)
            if keyword in bound:
                raise misfit(f"{name} got '{keyword}' twice", self.written, index)
            bound[keyword] = value
        result: dict[str, T | Default] = {}
        for p in parameters:
            if p.name in bound:
                result[p.name] = bound[p.name]
            elif p.default is not inspect.Parameter.empty:
                result[p.name] = Default(p.name, p.default)
            elif p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                raise misfit(f"{name} needs its argument '{p.name}'", self.written, None)
        return result

    @property
    def model(self) -> Op:
        """The Python code model: a `func`. Made at the first request, with globals and closure as they are then."""
        if self._model is None:
            self._model = self._make_model(self)
        return self._model

    def __reduce__(self) -> str:
        """As Python's functions: a copy is the function itself, and what is pickled is where it is found."""
        return self.__qualname__

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        recorder = active_recorder.get()
        if recorder is not None:
            return recorder.call_function(self, arguments, keywords)
        return self.fn(*arguments, **keywords)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.written}>"


def usable(value: Any) -> bool:
    """True of what a kernel can use from outside of it: constants, functions, and tuples of these."""
    if isinstance(value, tuple):
        return all(map(usable, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return isinstance(value, Function) or as_constant(value)[0]


def suggest(name: str, known: Iterable[str], prefix: str = "") -> str | None:
    """A hint that names the nearest of the known names, or None."""
    from difflib import get_close_matches  # Only errors need it; the import is slow.

    near = get_close_matches(name, list(known), 1)
    return f"did you mean {prefix}{near[0]}?" if near else None
