"""Passes of the user's on the models of a kernel: `kernel.with_passes(f, at="triton")`."""

from __future__ import annotations

import functools
import hashlib
import types
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import attrs

from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import BuildError, KernelTypeError, LaunchError, shown
from ziggurat.codemodel.gpu.options import COMPILE_OPTIONS, CompileOptions
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Op, require_argument
from ziggurat.codemodel.passes import Pass, run_passes
from ziggurat.codemodel.types import Type, void
from ziggurat.transforms.parameters import kernel_of

_EARLY: Final = ("python", "triton")
_ARGUMENT = "with_passes: a pass must be a function from model to model, or a pair of its name and it"


@attrs.frozen
class OwnPass:
    """A pass on a kernel's models at a place: "python", before types are known; "triton", before the way to a GPU and
    that to a CPU begin; or on the way to a GPU, after a phase or one of its passes."""

    at: str
    name: str
    function: Pass = attrs.field(repr=False)

    @classmethod
    def of(cls, argument: Any, at: str) -> OwnPass:
        """The pass of an argument of `with_passes`. Raises `LaunchError` and `KernelTypeError` for another."""
        if at not in _EARLY:
            from ziggurat.transforms.gpu.gpu_passes import PHASES

            phases = [phase.name for phase in PHASES]
            steps = {f"{phase.name}.{name}": name for phase in PHASES for name, _ in phase.passes}
            if at not in (*phases, *steps):
                near = [step for step, name in steps.items() if name == at]
                raise LaunchError(
                    f"with_passes: 'at' must be one of {', '.join((*_EARLY, *phases))}; got {shown(at)}",
                    hint=f"did you mean '{near[0]}'?" if near else "after one pass of a phase: at='schedule.expand'",
                )
        function = argument
        plain = argument.func if isinstance(argument, functools.partial) else argument
        name: Any = str(getattr(plain, "__name__", type(plain).__name__))
        if isinstance(argument, tuple) and len(cast("tuple[Any, ...]", argument)) == 2:
            name, function = cast("tuple[Any, Any]", argument)
        require_argument(argument, isinstance(name, str) and callable(function), _ARGUMENT)
        return cls(at, name, cast("Pass", function))

    @property
    def is_later(self) -> bool:
        """Whether the pass is on the way to a GPU."""
        return self.at not in _EARLY

    def result(self, kernel: str, place: Location | None, model: Op) -> Op:
        """The model of a kernel of this name and place after the pass, verified.

        Raises `KernelTypeError` where the pass gives no model, or a kernel with other parameters, and `VerifyError`.
        """

        def checked(before: Op) -> Op:
            after = self.function(before)
            what = f"the pass '{self.name}' of '{kernel}' must give a model"
            require_argument(after, isinstance(after, type(before)), f"{what}, {_article(before)}")
            if not isinstance(after, core.Func) and (types := _types(after)) != (were := _types(before)):
                raise KernelTypeError(
                    f"the pass '{self.name}' must leave the parameters of '{kernel}' as launches give them, "
                    f"({', '.join(map(str, were))}); got ({', '.join(map(str, types))})",
                    place,
                    "compile the model by itself, with its own parameters: zg.compile(f(kernel.triton(types…)))",
                )
            return after

        return run_passes(model, [(self.name, checked)], verify=True)

    @functools.cached_property
    def identity(self) -> str | None:
        """A text that is equal for equal passes of other processes; None for one of which not all is known."""
        try:
            facts = "\n".join(_facts(self.function, _package(self.function), {}))
        except _UnknownError:
            return None
        return f"{self.at} {self.name} {hashlib.sha256(facts.encode()).hexdigest()}"


@attrs.frozen
class OwnOptions(CompileOptions):
    """Options with the passes of one's own on the way to a GPU, of a kernel of this name and place."""

    own: tuple[OwnPass, ...] = ()
    kernel: str = ""
    place: Location | None = None

    @property
    def key(self) -> tuple[tuple[str, Any], ...]:
        return (*super().key, ("passes", "; ".join(str(own.identity or own.function) for own in self.own)))

    @property
    def is_kept(self) -> bool:
        return all(own.identity is not None for own in self.own)

    @property
    def plain(self) -> CompileOptions:
        return CompileOptions(**{name: getattr(self, name) for name in COMPILE_OPTIONS})

    def after(self, *places: str) -> tuple[tuple[str, Pass], ...]:
        passes = [own for own in self.own if own.at in places]
        return tuple((own.name, functools.partial(own.result, self.kernel, self.place)) for own in passes)


def _article(model: Op) -> str:
    return "a func of Python" if isinstance(model, core.Func) else "the module that the kernel is in"


def _types(model: Op) -> list[Type]:
    try:
        return [parameter.type for parameter in kernel_of(model).body.parameters]
    except BuildError:  # A model without a kernel.
        return [void]


class _UnknownError(Exception):
    """A value whose text in another process is not known."""


def _package(thing: Any) -> str:
    return str(getattr(thing, "__module__", "")).partition(".")[0]


_OURS = _package(OwnPass)
_PYTHON_CLASS = 1 << 9  # Py_TPFLAGS_HEAPTYPE.


def _is_named(thing: Any, package: str) -> bool:
    """Whether a function or a class is of another package than a pass. The objects of ours hold what users write."""
    return _package(thing) == _OURS if package == _OURS else _package(thing) != package


def _facts(thing: Any, package: str, done: dict[int, Any]) -> Iterator[str]:
    """Texts that differ where what a pass does may differ: its code, and the values from outside that it names.

    Functions and classes of other packages are known by their names, objects by their classes and attributes. `done`
    has what is described already by its `id`. Raises `_UnknownError`.
    """
    if isinstance(thing, str | bytes | int | float | complex | Type | None):
        yield f"{type(thing).__name__} {thing!r}"
    elif isinstance(thing, tuple | list | Mapping):
        entries: list[Any] = [*cast("Any", thing.items() if isinstance(thing, Mapping) else thing)]
        yield f"{type(cast('Any', thing)).__name__} of {len(entries)}"
        for entry in entries:
            yield from _facts(entry, package, done)
    elif isinstance(thing, set | frozenset):
        yield from sorted(f"item {list(_facts(entry, package, done))}" for entry in cast("set[Any]", thing))
    elif isinstance(thing, functools.partial):
        yield from _facts((thing.func, thing.args, thing.keywords), package, done)
    elif isinstance(thing, types.MethodType):
        yield from _facts((thing.__func__, thing.__self__), package, done)
    elif isinstance(thing, types.ModuleType):
        yield f"module {thing.__name__}"
    elif isinstance(thing, type | types.FunctionType | types.BuiltinFunctionType):
        yield f"{thing.__module__}.{thing.__qualname__}"
        if id(thing) in done:
            return
        done[id(thing)] = thing
        if isinstance(thing, types.FunctionType):
            yield from _facts([cell.cell_contents for cell in thing.__closure__ or ()], package, done)
        if _is_named(thing, package):
            return
        if isinstance(thing, type):
            yield from _facts(thing.__bases__, package, done)
            for name, member in vars(thing).items():
                yield name
                yield from _facts_of_member(name, member, package, done)
        elif isinstance(thing, types.FunctionType):
            yield from _facts_of_code(thing.__code__, thing.__globals__, package, done)
            yield from _facts((thing.__defaults__, thing.__kwdefaults__), package, done)
    elif all(cls.__flags__ & _PYTHON_CLASS for cls in type(thing).__mro__[:-1]) and type(thing) is not object:
        if id(thing) not in done:
            done[id(thing)] = thing
            yield from _facts((type(thing), object.__reduce_ex__(thing, 2)[2]), package, done)
    else:
        raise _UnknownError


def _facts_of_member(name: str, member: Any, package: str, done: dict[int, Any]) -> Iterator[str]:
    """Those of a member of a class: a method of any kind, or a value."""
    if isinstance(member, staticmethod | classmethod):
        yield from _facts_of_member(name, cast("Any", member).__func__, package, done)
    elif isinstance(member, property):
        yield from _facts((member.fget, member.fset, member.fdel), package, done)
    elif isinstance(member, functools.cached_property):
        yield from _facts(member.func, package, done)
    elif isinstance(member, types.FunctionType) or not (
        name.startswith("__") or isinstance(member, types.MemberDescriptorType)  # Of `__slots__`.
    ):
        yield from _facts(member, package, done)


def _facts_of_code(
    code: types.CodeType, outside: Mapping[str, Any], package: str, done: dict[int, Any]
) -> Iterator[str]:
    yield f"{code.co_code.hex()} {code.co_names} {code.co_varnames}"
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _facts_of_code(constant, outside, package, done)
        else:
            yield repr(constant)
    for name in code.co_names:
        if name in outside:
            yield from _facts(outside[name], package, done)


def derived(plain: Any, passes: tuple[OwnPass, ...]) -> Any:
    """The kernel, or the tuned kernel, with these passes after its own: what a pickle calls."""
    for own in passes:
        plain = plain.with_passes((own.name, own.function), at=own.at)
    return plain
