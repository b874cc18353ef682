"""The declarations of the language: each call once, as a Python function without a body, in the files of this folder.

The signature table (`SIGNATURES`) serves reflection, tracing, the attributor and the builder mirror, the documents and
the messages of errors. A parameter whose annotation starts with `Const` takes a value known at compile time.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, Generic, ParamSpec, TypeVar

import attrs

from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.frontends.language.host import run_body
from ziggurat.frontends.language.kinds import CONVERSIONS

P = ParamSpec("P")
R = TypeVar("R")

REQUIRED: Final = inspect.Parameter.empty


@attrs.frozen
class Parameter:
    """A parameter of a call. `default` is `REQUIRED` where there is none.

    `kind` is the name of its annotation (see `kinds`), `optional` whether that has None besides.
    """

    name: str
    constexpr: bool = False
    default: Any = REQUIRED
    variadic: bool = False
    keyword_only: bool = False
    kind: str = "Value"
    optional: bool = False

    def held(self, value: Any) -> Any:
        """A constant converted to this kind of parameter: `np.float32` and "float32" become `zg.f32`."""
        convert = CONVERSIONS.get(self.kind)
        return value if convert is None else convert(value)


@attrs.frozen
class Signature:
    """A call of the language: `zg.<name>`.

    `results` is the number of its results; or the parameter that decides: one that is true or a tuple gives a tuple.
    """

    name: str
    group: str
    parameters: tuple[Parameter, ...]
    doc: str
    results: int | str = 1

    def result_count(self, bound: Mapping[str, Any]) -> int | None:
        """The number of results that the call gives as a tuple for these arguments; None where it gives one value."""
        if not isinstance(self.results, str):
            return None if self.results == 1 else self.results
        given = bound[self.results]
        if isinstance(given, tuple | list):
            return len(given)  # pyright: ignore[reportUnknownArgumentType]
        return 2 if given is True else None

    def __str__(self) -> str:
        parts: list[str] = []
        starred = False
        for p in self.parameters:
            if p.keyword_only and not starred:
                parts.append("*")
                starred = True
            star = "*" if p.variadic else ""
            starred = starred or p.variadic
            parts.append(f"{star}{p.name}" if p.default is REQUIRED else f"{star}{p.name}={p.default!r}")
        return f"{self.name}({', '.join(parts)})"

    def bind(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by parameter name, defaults filled in; a variadic parameter gets a tuple.

        Raises `KernelTypeError` in words for the kernel's author when they do not fit.
        """
        bound: dict[str, Any] = {}
        rest = list(arguments)
        for p in self.parameters:
            if p.variadic:
                bound[p.name] = tuple(rest)
                rest = []
            elif p.keyword_only:
                continue
            elif rest:
                bound[p.name] = rest.pop(0)
        if rest:
            most = sum(1 for p in self.parameters if not p.keyword_only)
            noun = "argument" if most == 1 else "arguments"
            raise KernelTypeError(
                f"zg.{self.name} takes at most {most} positional {noun}; got {len(arguments)}", hint=f"zg.{self}"
            )
        parameters = {p.name: p for p in self.parameters}
        for name, value in keywords.items():
            if name not in parameters:
                raise KernelTypeError(f"zg.{self.name} has no parameter '{name}'", hint=f"zg.{self}")
            if parameters[name].variadic:
                raise KernelTypeError(f"zg.{self.name} takes '{name}' by position", hint=f"zg.{self}")
            if name in bound:
                raise KernelTypeError(f"zg.{self.name} got '{name}' twice", hint=f"zg.{self}")
            bound[name] = value
        for p in self.parameters:
            if p.name not in bound:
                if p.default is REQUIRED:
                    raise KernelTypeError(f"zg.{self.name} needs its argument '{p.name}'", hint=f"zg.{self}")
                bound[p.name] = p.default
        return {p.name: bound[p.name] for p in self.parameters}


# The recorder of the trace that is going on in this context, if any. For calls of the language and of a `@zg.function`
# it has `call` and `call_function`, which take a signature or a function, arguments and keywords.
active_recorder: ContextVar[Any] = ContextVar("active_recorder", default=None)

# The language: every signature by name, in the order of declaration.
SIGNATURES: dict[str, Signature] = {}

# The calls themselves, by the same names.
CALLS: dict[str, Call[..., Any]] = {}


class Call(Generic[P, R]):
    """A call of the language, as the user names it: `zg.load`.

    In a kernel it is read by reflection; while tracing it records. Elsewhere it computes when it has a meaning for
    plain Python numbers (`zg.cdiv`), and is an error otherwise.
    """

    def __init__(self, signature: Signature, stub: Callable[P, R], host: Callable[..., Any] | None) -> None:
        self.signature = signature
        self.host = host
        self.__name__ = signature.name
        self.__doc__ = stub.__doc__
        self.__wrapped__ = stub
        self.__module__ = "ziggurat"

    def __call__(self, *arguments: P.args, **keywords: P.kwargs) -> R:
        recorder = active_recorder.get()
        if recorder is not None:
            return recorder.call(self.signature, arguments, keywords)
        bound = self.signature.bind(arguments, keywords)
        if self.host is not None:
            result = self.host(**{p.name: p.held(bound[p.name]) for p in self.signature.parameters})
            if result is not NotImplemented:
                return result
        raise KernelTypeError(
            f"zg.{self.signature.name} was called outside of a kernel",
            hint="call it in a function decorated with @zg.kernel or @zg.function, or in one given to zg.trace",
        )

    def __repr__(self) -> str:
        return f"<zg.{self.signature}>"


def call(
    group: str, *, host: Callable[..., Any] | None = None, written: bool = False, results: int | str = 1
) -> Callable[[Callable[P, R]], Call[P, R]]:
    """Decorator that declares a call of the language in a group of the reference.

    `host` computes it for plain Python numbers, with all parameters by keyword; `NotImplemented` says that it can't.
    `written`: the declaration has a body, of other calls, which is the meaning of this one everywhere.
    `results`: see `Signature`; a call that is annotated with `-> None` has none.
    """

    def declare(stub: Callable[P, R]) -> Call[P, R]:
        parameters = tuple(
            Parameter(
                p.name,
                constexpr=str(p.annotation).startswith("Const"),
                default=p.default,
                variadic=p.kind is p.VAR_POSITIONAL,
                keyword_only=p.kind is p.KEYWORD_ONLY,
                kind=str(p.annotation).partition(" |")[0],
                optional=str(p.annotation).endswith("| None") or p.default is None,
            )
            for p in inspect.signature(stub).parameters.values()
        )
        count = 0 if stub.__annotations__.get("return") == "None" else results
        signature = Signature(stub.__name__, group, parameters, inspect.cleandoc(stub.__doc__ or ""), count)
        if signature.name in SIGNATURES:
            raise ValueError(f"the call '{signature.name}' is declared twice")
        SIGNATURES[signature.name] = signature
        made = Call(signature, stub, run_body(stub) if written else host)
        CALLS[signature.name] = made
        return made

    return declare
