"""`Function`, the result of `@zg.function` and `@zg.kernel`, and the changes of globals that it sees."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import attrs

from ziggurat.codemodel.errors import KernelSyntaxError, LaunchError, ZigguratError, shown, warn
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Op, same_model
from ziggurat.codemodel.types import ScalarType, Type
from ziggurat.frontends.language.constants import as_constant
from ziggurat.frontends.language.languages import EXPLICIT, Language
from ziggurat.frontends.language.signature import Call, active_recorder, bind

if TYPE_CHECKING:
    # To a type checker the parameter has the type of the value that it is used as.
    constexpr: TypeAlias = Any
else:

    class constexpr:
        """The annotation of a parameter that takes a value known at compile time: `BLOCK: zg.constexpr`.

        `zg.constexpr(16)` is 16. Triton's programs write that for values of a module that kernels use.
        """

        def __new__(cls, value: Any) -> Any:
            return value


T = TypeVar("T")


@attrs.define(eq=False)
class Use:
    """A value that a model has from outside its function: a global, an enclosing function's variable, a module's name.

    `look_up(key)` gives the value that the name has now; it raises `KeyError` or `ValueError` when the name is gone.
    """

    name: str
    value: Any
    look_up: Callable[[Any], Any]
    key: Any
    location: Location
    # Whether the value is that of a `tl.constexpr`.
    wrapped: bool = False

    def said(self, value: Any) -> str:
        """A value of the name for messages."""
        text = "nothing" if value is GONE else shown(value)
        return f"constexpr[{text}]" if self.wrapped else text

    def now(self) -> Any:
        """The value that the name has now, or `GONE`."""
        try:
            return self.look_up(self.key)
        except (KeyError, ValueError):
            return GONE


@attrs.frozen
class Default:
    """The default value of a parameter, for a call that leaves it out."""

    parameter: str
    value: Any


def written_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function whose source is read: the one in a helper function, or in the wrapper that a decorator made."""
    try:
        target = inspect.unwrap(fn, stop=lambda layer: isinstance(layer, Call | Function))
    except ValueError:
        raise KernelSyntaxError(f"the decorators of {fn!r} wrap one another in a circle") from None
    return written_function(target.fn) if isinstance(target, Function) else target


class Function:
    """A Python function of the language. A call from Python runs it; a call from a kernel compiles it with the kernel.

    `model` makes its Python code model when that is first needed: see `ziggurat.frontends.reflection.reader`. `name`
    replaces the Python function's name.
    """

    __qualname__: str
    # The rules of the language in which the function is written.
    language: Language = EXPLICIT
    # Whether Triton models keep calls of the function.
    noinline: bool = False
    # The class of the object that the function makes, where it is an `__init__`.
    initializes: type[Any] | None = None

    def __init__(self, fn: Callable[..., Any], model: Callable[[Function], Op], name: str | None = None) -> None:
        fn = written_function(fn)
        if name is not None:
            fn.__qualname__ = name
        self.fn = fn
        self.name: str = name or getattr(fn, "__name__", type(fn).__name__)
        # The functions that the model refers to, by symbol, and the values that it has from outside. Whoever makes the
        # model fills them in.
        self.callees: dict[str, Function] = {}
        # Other objects of Python that the model refers to, by name.
        self.objects: dict[str, Any] = {}
        self.uses: tuple[Use, ...] = ()
        # The parts in plain Python of a source that is in error as well.
        self.plain: tuple[Any, ...] = ()
        # The types that annotations of parameters declare, by name.
        self.declares: Mapping[str, Type] = {}
        self._make_model = model
        self._model: Op | None = None
        # The values from outside of this function and of those it reaches, as a launch compares them.
        self._watched: list[tuple[Callable[[Any], Any], Any, Any]] = []
        self._watched_uses: list[tuple[Use, Function]] = []
        functools.update_wrapper(self, fn)

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """The Python signature. Raises `KernelSyntaxError` for a callable without one."""
        try:
            return inspect.signature(self.fn)
        except (TypeError, ValueError):
            raise KernelSyntaxError(f"'{self.name}' is not a function defined by def") from None

    @functools.cached_property
    def is_variadic(self) -> bool:
        """Whether a parameter takes any number of arguments: `*args`."""
        return any(p.kind is p.VAR_POSITIONAL for p in self.signature.parameters.values())

    @property
    def written(self) -> str:
        """The name and the parameters as `def` has them: `scale(x, BLOCK: zg.constexpr = 64)`."""
        parts: list[str] = []
        for parameter in self.signature.parameters.values():
            is_constant = parameter.annotation is constexpr or str(parameter.annotation).endswith("constexpr")
            plain = parameter.replace(annotation=inspect.Parameter.empty)
            text = str(plain).partition("=")[0] + (": zg.constexpr" if is_constant else "")
            if parameter.default is not inspect.Parameter.empty:
                default = parameter.default
                shown_default = f"zg.{default}" if isinstance(default, ScalarType) else repr(default)
                text += f"{' = ' if is_constant else '='}{shown_default}"
            parts.append(text)
        return f"{self.name}({', '.join(parts)})"

    def bind(
        self, positional: Sequence[T], keywords: Mapping[str, T], place: Callable[[str | None], Location | None]
    ) -> dict[str, T | Default]:
        """The argument or the default of each parameter, in the order of the parameters; see `signature.bind`."""
        parameters = self.signature.parameters
        bound = bind(self.name, lambda: self.written, parameters, positional, keywords, place)
        return {name: bound[name] if name in bound else Default(name, p.default) for name, p in parameters.items()}

    @property
    def model(self) -> Op:
        """The Python code model: a `func`. Made at the first request, with globals and closure as they are then.

        It is made again, with a `ZigguratWarning`, when one of them has changed: see `check_globals`.
        """
        self.check_globals()
        if self._model is None:
            self._model = self._make_model(self)
            self.watch()
        return self._model

    def check_globals(self) -> None:
        """Forget the models of globals, closures and helper functions that have changed since, and warn.

        A `ZigguratWarning` names each of them, its old and its new value, and the place of its use. Equal constants and
        functions with equal models count as unchanged. Launches call this, so it compares identities first.
        """
        try:
            for look_up, key, value in self._watched:
                if look_up(key) is not value:
                    break
            else:
                return
        except (KeyError, ValueError):
            pass
        self._compare_globals()

    def watch(self) -> None:
        """Note the values from outside that the models of this function and of those it reaches have."""
        reached: list[Function] = [self]
        for function in reached:
            reached.extend(callee for callee in function.callees.values() if callee._model and callee not in reached)
        self._watched_uses = [(use, function) for function in reached for use in function.uses]
        self._watched = [(use.look_up, use.key, use.value) for use, _ in self._watched_uses]

    def forget(self) -> None:
        """Forget the model, and everything that was made from it."""
        self._model, self.callees, self.objects, self.uses, self.declares = None, {}, {}, (), {}
        self._watched, self._watched_uses = [], []

    def is_same(self, other: Function) -> bool:
        """Whether another function has an equal model, and so have the functions that both call."""
        try:
            same = same_model(self._model or self.model, other.model)
            return same and all(map(_same, self.callees.values(), other.callees.values()))
        except ZigguratError:
            return False  # The error is raised when the other function is used.

    def _compare_globals(self) -> None:
        """Compare the values from outside, where their identities differ; see `check_globals`."""
        uses = [(use, function, use.now()) for use, function in self._watched_uses]
        changed = [(use, function, now) for use, function, now in uses if not _same(use.value, now)]
        if not changed:
            for use, function, now in uses:
                function.callees = {s: now if callee is use.value else callee for s, callee in function.callees.items()}
                use.value = now
            self.watch()
            return
        for use, _, now in changed:
            if self.language.strict_globals and not isinstance(use.value, Function):
                raise changed_global(use, now)
        self.forget()
        for use, function, now in changed:
            if use in function.uses:
                function.forget()
            _warn(use, now, self)

    def __reduce__(self) -> str:
        """A copy is the function itself, and a pickle holds its qualified name, as for Python's functions."""
        return self.__qualname__

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        recorder = active_recorder.get()
        if recorder is not None:
            return recorder.call_function(self, arguments, keywords)
        return self.fn(*arguments, **keywords)

    __iter__ = None  # Otherwise `for` would launch the grids 0, 1, … by `__getitem__`.

    def __getitem__(self, grid: Any) -> Any:
        raise LaunchError(
            f"'{self.name}' is a function for kernels to call; only a kernel is launched over a grid",
            hint=f"decorate it with @zg.kernel, or call it: {self.name}(…)",
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.written}>"


class ChangedGlobalError(LaunchError, RuntimeError):
    """A global that a kernel was compiled with has changed."""


# The value of a name that is gone.
GONE: Final = object()


def _same(old: Any, new: Any) -> bool:
    """True of equal constants of one type, and of functions with equal models."""
    if old is new:
        return True
    if type(old) is not type(new):
        return False
    if isinstance(old, tuple):
        return len(old) == len(new) and all(map(_same, old, new))  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(old, Function):
        return old.is_same(new)
    return repr(old) == repr(new)


def changed_global(use: Use, now: Any) -> LaunchError:
    """The error of a language in which a kernel is not compiled again when a global changes."""
    return ChangedGlobalError(
        f"Global variable {use.name} has changed since we compiled this kernel, from {use.said(use.value)} to "
        f"{use.said(now)}",
        use.location,
        "pass values that change as constexpr parameters",
    )


def _warn(use: Use, value: Any, function: Function) -> None:
    name, place, kernel = use.name, use.location, function.name
    if isinstance(use.value, Function) and isinstance(value, Function):
        change = f"'{name}' was defined again after '{kernel}' was compiled"
    else:
        now = "is gone" if value is GONE else f"is {shown(value)}"
        change = f"'{name}' was {shown(use.value)} when '{kernel}' was compiled, and {now} now"
    lines = [f"{change}; '{kernel}' is compiled again", place.excerpt()]
    if not isinstance(use.value, Function):
        lines.append(
            f"  hint: take values that change as parameters: {name}: {function.language.words.call('constexpr')}"
        )
    warn("\n".join(lines), place)


def usable(value: Any) -> bool:
    """Whether a kernel can use an object from outside of it: a constant, a function, or a tuple of these."""
    if isinstance(value, tuple):
        return all(map(usable, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return isinstance(value, Function) or as_constant(value)[0]
