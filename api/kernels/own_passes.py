"""Passes of the user's on the models of a kernel: `kernel.with_passes(f, at="triton")`."""

from __future__ import annotations

import functools
import hashlib
import types
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import BuildError, KernelTypeError, LaunchError, shown
from ziggurat.codemodel.op import Op, require_argument
from ziggurat.codemodel.passes import Pass, run_passes
from ziggurat.codemodel.types import Type, void
from ziggurat.transforms.parameters import kernel_of

if TYPE_CHECKING:
    from ziggurat.kernels.kernel import Kernel

PLACES: Final = ("python", "triton")
_ARGUMENT = "with_passes: a pass must be a function from model to model, or a pair of its name and it"


@attrs.frozen
class OwnPass:
    """A pass on a kernel's models of a tier, `at`: "python", before types are known, or "triton", before the way to a
    GPU and that to a CPU begin."""

    at: str
    name: str
    function: Pass = attrs.field(repr=False)

    @classmethod
    def of(cls, argument: Any, at: str) -> OwnPass:
        """The pass of an argument of `with_passes`. Raises `LaunchError` and `KernelTypeError` for another."""
        if at not in PLACES:
            raise LaunchError(
                f"with_passes: 'at' must be one of {', '.join(PLACES)}; got {shown(at)}",
                hint="later passes depend on the target: transform a model of compiled.passes, and compile it from its "
                "phase on: zg.compile(model, phase=…)",
            )
        name: Any = str(getattr(argument, "__name__", argument))
        function = argument
        if isinstance(argument, tuple) and len(cast("tuple[Any, ...]", argument)) == 2:
            name, function = cast("tuple[Any, Any]", argument)
        require_argument(argument, isinstance(name, str) and callable(function), _ARGUMENT)
        return cls(at, name, cast("Pass", function))

    def result(self, kernel: Kernel, model: Op) -> Op:
        """The model after the pass, verified.

        Raises `KernelTypeError` where the pass gives no model, or a kernel with other parameters, and `VerifyError`.
        """

        def checked(before: Op) -> Op:
            after = self.function(before)
            what = f"the pass '{self.name}' of '{kernel.name}' must give a model"
            require_argument(after, isinstance(after, type(before)), f"{what}, {_article(before)}")
            if isinstance(after, core.Module) and (types := _types(after)) != (were := _types(before)):
                raise KernelTypeError(
                    f"the pass '{self.name}' must leave the parameters of '{kernel.name}' as launches give them, "
                    f"({', '.join(map(str, were))}); got ({', '.join(map(str, types))})",
                    kernel.place,
                    "compile the model by itself, with its own parameters: zg.compile(f(kernel.triton(types…)))",
                )
            return after

        return run_passes(model, [(self.name, checked)], verify=True)

    @functools.cached_property
    def identity(self) -> str | None:
        """A text that is equal for equal passes of other processes; None for a function of which not all is known."""
        try:
            facts = "\n".join(_facts(self.function, _package(self.function), set()))
        except _UnknownError:
            return None
        return f"{self.at} {self.name} {hashlib.sha256(facts.encode()).hexdigest()}"


def _article(model: Op) -> str:
    return "the module that the kernel is in" if isinstance(model, core.Module) else "a func of Python"


def _types(model: Op) -> list[Type]:
    try:
        return [parameter.type for parameter in kernel_of(model).body.parameters]
    except BuildError:  # A model without a kernel.
        return [void]


class _UnknownError(Exception):
    """A value whose text in another process is not known."""


def _package(thing: Any) -> str:
    return str(getattr(thing, "__module__", "")).partition(".")[0]


def _facts(thing: Any, package: str, done: set[int]) -> Iterator[str]:
    """Texts that differ where what a function does may differ: its code, and the values from outside that it names.

    Functions and classes of other packages are known by their names. Raises `_UnknownError`.
    """
    if isinstance(thing, str | bytes | int | float | complex | Type | None):
        yield f"{type(thing).__name__} {thing!r}"
    elif isinstance(thing, tuple | list | Mapping):
        entries: list[Any] = [*cast("Any", thing.items() if isinstance(thing, Mapping) else thing)]
        yield f"{type(cast('Any', thing)).__name__} of {len(entries)}"
        for entry in entries:
            yield from _facts(entry, package, done)
    elif isinstance(thing, functools.partial):
        yield from _facts((thing.func, thing.args, thing.keywords), package, done)
    elif isinstance(thing, types.MethodType):
        yield from _facts((thing.__func__, thing.__self__), package, done)
    elif isinstance(thing, types.ModuleType):
        yield f"module {thing.__name__}"
    elif isinstance(thing, type | types.FunctionType | types.BuiltinFunctionType):
        yield f"{thing.__module__}.{thing.__qualname__}"
        if id(thing) in done or _package(thing) != package:
            return
        done.add(id(thing))
        if isinstance(thing, type):
            for member in vars(thing).values():
                if isinstance(member, types.FunctionType):
                    yield from _facts(member, package, done)
        elif isinstance(thing, types.FunctionType):
            yield from _facts_of_code(thing.__code__, thing.__globals__, package, done)
            cells = [cell.cell_contents for cell in thing.__closure__ or ()]
            yield from _facts((cells, thing.__defaults__, thing.__kwdefaults__), package, done)
    else:
        raise _UnknownError


def _facts_of_code(code: types.CodeType, outside: Mapping[str, Any], package: str, done: set[int]) -> Iterator[str]:
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
