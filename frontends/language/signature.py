"""The declarations of the language: each call once, as a Python function without a body, in the files of this folder.

The signature table (`SIGNATURES`) serves reflection, tracing, the attributor and the builder mirror, the documents and
the messages of errors. A parameter whose annotation starts with `Const` takes a value known at compile time.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, Generic, ParamSpec, TypeVar

import attrs

from ziggurat.codemodel.errors import KernelTypeError, KernelValueError, shown
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.messages import call_text, say
from ziggurat.frontends.language.host import plain, run_body
from ziggurat.frontends.language.kinds import CONVERSIONS

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

REQUIRED: Final = inspect.Parameter.empty
VARIADIC: Final = inspect.Parameter.VAR_POSITIONAL


def nowhere(_keyword: str | None) -> Location | None:
    """The place of the arguments of a call from Python, which has none in a kernel."""


def bind(
    call: str,
    usage: Callable[[], str],
    parameters: Mapping[str, Parameter | inspect.Parameter],
    positional: Sequence[T],
    keywords: Mapping[str, T],
    place: Callable[[str | None], Location | None],
) -> dict[str, Any]:
    """Arguments by parameter name, without defaults; those of a `*` parameter are a tuple.

    Raises `KernelTypeError` when they do not fit. Its hint has `usage()`, the call with its parameters. Its location
    is `place(keyword)` for a keyword argument that is wrong, and `place(None)` otherwise.
    """

    def misfit(message: str, keyword: str | None = None) -> KernelTypeError:
        near = None if keyword is None or keyword in parameters else suggest(keyword, parameters)
        hint = say("{} {}", near, usage()) if near else usage()
        return KernelTypeError(say("{} {}", call, message), place(keyword), hint)

    bound: dict[str, Any] = {}
    rest = list(positional)
    for name, parameter in parameters.items():
        if parameter.kind is VARIADIC:
            bound[name] = tuple(rest)
            rest = []
        elif rest and parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            bound[name] = rest.pop(0)
    if rest:
        most = len(positional) - len(rest)
        noun = "argument" if most == 1 else "arguments"
        raise misfit(say("takes at most {} {positional}{}; got {}", most, noun, len(positional)))
    for keyword, value in keywords.items():
        if keyword not in parameters:
            raise misfit(f"has no parameter '{keyword}'", keyword)
        if parameters[keyword].kind in (VARIADIC, inspect.Parameter.POSITIONAL_ONLY):
            raise misfit(f"takes '{keyword}' by position", keyword)
        if keyword in bound:
            raise misfit(f"got '{keyword}' twice", keyword)
        bound[keyword] = value
    for name, parameter in parameters.items():
        if name not in bound and parameter.default is REQUIRED:
            raise misfit(f"needs its argument '{name}'")
    return bound


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The one of `names` that differs least from `name`, or None if each differs much."""
    from difflib import get_close_matches  # The import is slow, and only errors need it.

    return next(iter(get_close_matches(name, list(names), 1)), None)


def suggest(name: str, names: Iterable[str], prefix: str = "") -> str | None:
    """A hint with the one of `names` that is nearest to `name`, or None."""
    near = nearest(name, names)
    return f"did you mean {prefix}{near}?" if near else None


@attrs.frozen
class Parameter:
    """A parameter of a call. `kind` and `default` are as in `inspect.Parameter`.

    `takes` is the name of its annotation (see `kinds`), `optional` whether that has None besides.
    """

    name: str
    kind: Any
    default: Any
    takes: str
    optional: bool
    constexpr: bool
    variadic: bool

    @classmethod
    def of(cls, plain: inspect.Parameter) -> Parameter:
        """The parameter with this annotation and default."""
        takes, _, rest = str(plain.annotation).partition(" |")
        optional = plain.default is None or rest.endswith(" None")
        is_constant, variadic = takes.startswith("Const"), plain.kind is plain.VAR_POSITIONAL
        return cls(plain.name, plain.kind, plain.default, takes, optional, is_constant, variadic)

    def plain(self) -> inspect.Parameter:
        """The parameter without an annotation."""
        return inspect.Parameter(self.name, self.kind, default=self.default)

    def converted(self, value: Any) -> Any:
        """A constant converted to this kind of parameter: `np.float32` and "float32" become `zg.f32`."""
        convert = CONVERSIONS.get(self.takes)
        return value if convert is None else convert(value)


@attrs.frozen
class Signature:
    """A call of the language: `zg.<name>`, or `tl.<name>`.

    `declare()` makes the parameters by name, at their first use: a program uses few of the calls. `text` is the
    docstring of the declaration. `results` is the number of its results; or the parameter that decides: one that is
    true or a tuple gives a tuple.
    """

    name: str
    group: str
    declare: Callable[[], Mapping[str, Parameter]]
    text: str
    results: int | str = 1
    # The language: "zg", or "tl" of Triton's.
    prefix: str = "zg"

    @functools.cached_property
    def by_name(self) -> Mapping[str, Parameter]:
        """The parameters by their names, in order."""
        return self.declare()

    @property
    def doc(self) -> str:
        """The documentation, without the indentation of its source."""
        return inspect.cleandoc(self.text)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters in their order."""
        return tuple(self.by_name.values())

    def result_count(self, bound: Mapping[str, Any]) -> int | None:
        """The number of results that the call gives as a tuple for these arguments; None where it gives one value."""
        if not isinstance(self.results, str):
            return None if self.results == 1 else self.results
        argument = bound[self.results]
        if isinstance(argument, tuple | list):
            return len(argument)  # pyright: ignore[reportUnknownArgumentType]
        return 2 if argument is True else None

    @property
    def called(self) -> str:
        """The call as messages name it: `zg.load`, `tl.load`, or `load` of C."""
        return call_text(self.name) if self.prefix == "zg" else f"{self.prefix}.{self.name}"

    @property
    def written(self) -> str:
        """The call as messages name it, with its parameters."""
        return say("{}{}", self.called, str(self).removeprefix(self.name))

    def __str__(self) -> str:
        return f"{self.name}{inspect.Signature([*map(Parameter.plain, self.parameters)])}"

    def bind(
        self,
        arguments: Sequence[Any],
        keywords: Mapping[str, Any],
        place: Callable[[str | None], Location | None] = nowhere,
    ) -> dict[str, Any]:
        """The argument or the default of each parameter, in the order of the parameters; see `bind`."""
        bound = bind(self.called, lambda: self.written, self.by_name, arguments, keywords, place)
        return {name: bound.get(name, p.default) for name, p in self.by_name.items()}

    def bind_method(self, method: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
        """As `bind`, of a call that is written as a method, `x.sum`, of its first argument."""
        prefix, _, name = method.rpartition(".")
        (receiver, _), *others = self.by_name.items()
        signature = attrs.evolve(self, name=name, prefix=prefix, declare=lambda: dict(others))
        return {receiver: arguments[0], **signature.bind(arguments[1:], keywords)}


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
        bound, problem = self.signature.bind(arguments, keywords), " was called outside of a kernel"
        if self.host is not None:
            try:
                result = self.host(**{p.name: p.converted(bound[p.name]) for p in self.signature.parameters})
            except OverflowError as error:
                raise KernelValueError(say("cannot compute {}: {}", self.signature.called, error)) from None
            if result is not NotImplemented:
                return result
            for p in reversed(self.signature.parameters):
                if not p.constexpr and plain(bound[p.name]) is None:
                    problem = f": '{p.name}' must be a number outside of a kernel; got {shown(bound[p.name])}"
        raise KernelTypeError(
            f"zg.{self.signature.name}{problem}",
            hint="call it in a function decorated with @zg.kernel or @zg.function, or in one given to zg.trace",
        )

    def __repr__(self) -> str:
        return f"<zg.{self.signature}>"


def call(
    group: str, *, host: Callable[..., Any] | None = None, in_language: bool = False, results: int | str = 1
) -> Callable[[Callable[P, R]], Call[P, R]]:
    """Decorator that declares a call of the language in a group of the reference.

    `host` computes it for plain Python numbers, with all parameters by keyword; `NotImplemented` says that it can't.
    `in_language`: the declaration has a body, of other calls, which is the meaning of this one everywhere.
    `results`: see `Signature`; a call that is annotated with `-> None` has none.
    """

    def declare(stub: Callable[P, R]) -> Call[P, R]:
        signature = signature_of(stub, group, results)
        if signature.name in SIGNATURES:
            raise ValueError(f"the call '{signature.name}' is declared twice")
        SIGNATURES[signature.name] = signature
        declaration = Call(signature, stub, run_body(stub) if in_language else host)
        CALLS[signature.name] = declaration
        return declaration

    return declare


def signature_of(stub: Callable[..., Any], group: str, results: int | str, prefix: str = "zg") -> Signature:
    """The signature that a declaration states; its annotations are text."""
    count = 0 if stub.__annotations__.get("return") == "None" else results
    return Signature(stub.__name__, group, functools.partial(_parameters, stub), stub.__doc__ or "", count, prefix)


def _parameters(stub: Callable[..., Any]) -> Mapping[str, Parameter]:
    return {name: Parameter.of(plain) for name, plain in inspect.signature(stub).parameters.items()}
