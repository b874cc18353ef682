"""From an attributed Python model to the Triton model.

The driver walks the Python model as attribution did, and keeps the value that was last assigned to each variable. Where
control flow joins, attribution has found the variables that are joined, and their types; they become the results of an
`scf.if`, or the loop-carried values of an `scf.for` or `scf.while`, in the order of the first store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core, tt
from ziggurat.codemodel.errors import BuildError, InternalError
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import ConstantType, TupleType, Type
from ziggurat.transforms.attribution.attribution import Attribution
from ziggurat.transforms.calls.emit import flatten_types, packed_type, rebuild
from ziggurat.transforms.calls.promotion import is_number
from ziggurat.transforms.mirror import expressions as expressions  # registers its handlers
from ziggurat.transforms.mirror.flow import run_function
from ziggurat.transforms.mirror.walk import FunctionMirror


def build(walk: FunctionMirror) -> None:
    """Build the function into the builder."""
    builder = walk.emit.builder
    builder.location = walk.instance.func.location
    given: list[Value] = list(builder.parameters)
    parameters = walk.instance.func.bodies[0].parameters
    for parameter, type_ in zip(parameters, walk.instance.parameter_types, strict=True):
        if isinstance(type_, ConstantType):
            # A constant parameter is a constant at the entry; an unused one is removed later.
            walk.values[parameter] = walk.emit.constant(type_.value, type_.type) if is_number(type_) else None
        else:
            walk.values[parameter] = rebuild(type_, given)
    walk.emit.add(tt.Return(run_function(walk, walk.instance.func.bodies[0])))


def mirror(kernel: Attribution, divisibility: Sequence[int] = ()) -> core.Module:
    """The Triton model of an attributed kernel and the functions it reaches, callees first.

    `divisibility` has a known divisor of each run-time parameter of the kernel; see `tt.func`.
    """
    made = ModuleMirror(kernel.symbols)
    made.function(kernel, tuple(divisibility))
    made.builder.add(core.Unreachable())
    return core.Module(made.builder.finish())


class ModuleMirror:
    """The building of a module. `reserved` are the symbols of the kernel and the functions that it calls."""

    def __init__(self, reserved: Collection[str]) -> None:
        self.builder = Builder.root()
        self.symbols: set[str] = set()
        # The source of each helper by symbol; None for the kernel's own functions, which keep their names.
        self.helpers: dict[str, str | None] = dict.fromkeys(reserved)

    def function(self, instance: Attribution, divisibility: tuple[int, ...] = ()) -> str:
        """Add a function, after those that it calls, unless it is there; its symbol."""
        symbol = instance.symbol
        if symbol in self.symbols:
            return symbol
        self.symbols.add(symbol)
        types = flatten_types(TupleType(instance.parameter_types))
        builder = Builder.root(types, packed_type(instance.result))
        try:
            build(FunctionMirror(self, instance, builder))
        except BuildError as error:
            raise InternalError(f"building '{symbol}': {error.summary}", str(instance)) from error
        if all(number == 1 for number in divisibility):
            divisibility = ()
        self.builder.add(tt.Func(symbol, builder.finish(), divisibility=divisibility), instance.func.location)
        return symbol

    def helper(
        self,
        symbol: str,
        source: str,
        types: Sequence[Type],
        result: Type,
        build: Callable[[Builder, Sequence[Value]], list[Value]],
    ) -> str:
        """Add a function with this body, unless it is there; its symbol, numbered where another has that name."""
        base, count = symbol, 0
        while self.helpers.get(symbol, source) != source:
            count += 1
            symbol = f"{base}_{count}"
        if symbol not in self.helpers:
            self.helpers[symbol] = source
            builder = Builder.root(types, packed_type(result))
            builder.add(tt.Return(build(builder, builder.parameters)))
            self.builder.add(tt.Func(symbol, builder.finish()))
        return symbol
