"""From an attributed Python model to the Triton model.

The driver walks the Python model as attribution did, and keeps the value that was last assigned to each variable. Where
control flow joins, attribution has found the variables that are joined, and their types; they become the results of an
`scf.if`, or the loop-carried values of an `scf.for` or `scf.while`, in the order of the first store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core, tt
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.errors import BuildError, InternalError
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import TupleType, Type
from ziggurat.transforms.attribution.attribution import Attribution, Component, Finding, Packed
from ziggurat.transforms.calls.emit import Built, Emitter, Operand, flatten_types, packed_type, split_operand

Handler = Callable[[Any, Any], Built]
T = TypeVar("T")

# Handlers by op class. A handler gives what was built for the result.
HANDLERS = OpTable[Handler]("builder")
handles = HANDLERS.of


class FunctionMirror:
    """The building of one function: the context that its handlers work in."""

    def __init__(self, module: ModuleMirror, instance: Attribution, builder: Builder) -> None:
        self.module = module
        self.helper = module.helper
        self.instance = instance
        self.scope = instance.scope
        self.emit = Emitter(builder, self, instance.language)
        self.variables: dict[Value, Operand] = {}
        self.values: dict[Value, Built] = {}
        self.op: Op = instance.func

    def callee(self) -> Attribution:
        """The function that the current op calls, or that it combines elements with; added to the module."""
        callee = self.finding(self.op).callee
        assert callee is not None
        self.module.function(callee)
        return callee

    def finding(self, op: Op) -> Finding:
        """The facts about an op that attribution has noted."""
        return self.scope.finding(op)

    def operand(self, value: Value) -> Operand:
        """The attributed type of a value, and what was built for it."""
        if isinstance(value, Component):
            index: int = value.parts[1]
            return split_operand(self.operand(value.parts[0]))[index]
        if isinstance(value, Packed):
            return Operand(self.scope.type_of(value), tuple(self.operand(part).value for part in value.parts))
        return Operand(self.scope.type_of(value), self.values.get(value))

    def suite(self, ops: Sequence[Op]) -> None:
        """Run ops of which none returns."""
        for op in ops:
            if not isinstance(op, core.Yield):
                self.step(op)

    def step(self, op: Op) -> None:
        """Run one op."""
        self.op = op
        self.emit.builder.location = op.location
        result = HANDLERS[op](self, op)
        if result is not None:
            self.values[op.result] = result
        else:
            # In an earlier iteration of an unrolled loop this constant may have been a run-time value.
            self.values.pop(op.result, None)


def mirror(
    kernel: Attribution, divisibility: Sequence[int] = (), small: Sequence[int] = (), checks_overflow: bool = False
) -> core.Module:
    """The Triton model of an attributed kernel and the functions it reaches, callees first.

    `divisibility` has a known divisor of each run-time parameter of the kernel, and `small` the numbers of those that
    are small integers; see `tt.func`. With `checks_overflow`, operators of Triton's Python on integers get assertions;
    see `overflow.py`.
    """
    module = ModuleMirror(kernel.symbols, checks_overflow)
    module.function(kernel, tuple(divisibility), tuple(small))
    module.builder.add(core.Unreachable())
    return core.Module(module.builder.finish())


class ModuleMirror:
    """The building of a module. `reserved` are the symbols of the kernel and the functions that it calls."""

    def __init__(self, reserved: Collection[str], checks_overflow: bool) -> None:
        self.builder = Builder.root()
        self.checks_overflow = checks_overflow
        self.symbols: set[str] = set()
        # The source of each helper by symbol; None for the kernel's own functions, which keep their names.
        self.helpers: dict[str, str | None] = dict.fromkeys(reserved)

    def function(self, instance: Attribution, divisibility: tuple[int, ...] = (), small: tuple[int, ...] = ()) -> str:
        """Add a function, after those that it calls, unless it is there; its symbol."""
        symbol = instance.symbol
        if symbol in self.symbols:
            return symbol
        self.symbols.add(symbol)
        types = flatten_types(TupleType(instance.parameter_types))
        builder = Builder.root(types, packed_type(instance.result))
        try:
            FunctionMirror(self, instance, builder).step(instance.func)
        except BuildError as error:
            raise InternalError(f"building '{symbol}': {error.summary}", str(instance)) from error
        if all(number == 1 for number in divisibility):
            divisibility = ()
        func = tt.Func(symbol, builder.finish(), divisibility=divisibility, small=small, noinline=instance.noinline)
        self.builder.add(func, instance.func.location)
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
