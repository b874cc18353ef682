"""From an attributed Python model to the Triton model.

The driver walks the Python model as attribution did, and keeps for each variable what was last assigned to it. Where
control flow meets, attribution has said which variables take which type; they become the results of an `scf.if`, or
the loop-carried values of an `scf.for` or `scf.while`, in the order of the first store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core, py, tt
from ziggurat.codemodel.errors import BuildError, InternalError
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import ConstantType, TupleType, Type
from ziggurat.transforms.attribution.attribution import Attribution, Scope
from ziggurat.transforms.attribution.operators import COMPARISONS, OPERATORS
from ziggurat.transforms.attribution.promotion import is_number
from ziggurat.transforms.mirror.emit import flatten_types, packed_type, rebuild
from ziggurat.transforms.mirror.flow import Flow
from ziggurat.transforms.mirror.walk import Handler

HANDLERS: dict[type[Op], Handler] = {
    core.ConstantOp: Flow.nothing,
    core.FuncRef: Flow.nothing,
    core.FuncCall: Flow.function_call,
    core.Var: Flow.var,
    core.VarLoad: Flow.var_load,
    core.VarStore: Flow.var_store,
    py.Pack: Flow.pack,
    py.Unpack: Flow.unpack,
    py.Subscript: Flow.subscript,
    py.Attribute: Flow.nothing,
    py.Invoke: Flow.invoke,
    py.Call: Flow.call_value,
    py.If: Flow.if_,
    py.For: Flow.for_,
    py.While: Flow.while_,
    py.CondExpression: Flow.conditional,
    py.CondAnd: Flow.short_circuit,
    py.CondOr: Flow.short_circuit,
    py.Assert: Flow.assertion,
    **dict.fromkeys([*OPERATORS, *COMPARISONS, py.Is, py.IsNot, py.In, py.NotIn, py.Not, py.Pos], Flow.operator),
}


class FunctionMirror(Flow):
    """The whole of it: every op of the Python model."""

    HANDLERS = HANDLERS

    def build(self) -> None:
        """Build the function into the builder."""
        builder = self.emit.builder
        builder.location = self.instance.func.location
        given: list[Value] = list(builder.parameters)
        parameters = self.instance.func.bodies[0].parameters
        for parameter, type_ in zip(parameters, self.instance.parameter_types, strict=True):
            if isinstance(type_, ConstantType):
                # A constant parameter is a constant at the entry; an unused one vanishes later.
                self.values[parameter] = self.emit.constant(type_.value, type_.type) if is_number(type_) else None
            else:
                self.values[parameter] = rebuild(type_, given)
        values = self.run(self.instance.func.bodies[0].entry.ops, (), self.function_frame())
        self.emit.add(tt.Return(values))


def mirror(kernel: Attribution, divisibility: Sequence[int] = ()) -> core.Module:
    """The Triton model of an attributed kernel and the functions it reaches, callees first.

    `divisibility` is of the kernel's run-time parameters; see `tt.func`.
    """
    made = _ModuleMirror(_symbols(kernel))
    made.function(kernel, tuple(divisibility))
    return made.finish()


def _symbols(kernel: Attribution) -> frozenset[str]:
    """The symbols of a kernel and the functions it reaches."""
    found: set[str] = set()
    scopes: list[Scope] = []

    def reach(instance: Attribution) -> None:
        if instance.symbol not in found:
            found.add(instance.symbol)
            scopes.append(instance.scope)

    reach(kernel)
    while scopes:
        scope = scopes.pop()
        scopes.extend(inner for iterations in scope.unrolled.values() for _, inner in iterations)
        for callee in scope.callees.values():
            reach(callee)
    return frozenset(found)


class _ModuleMirror:
    def __init__(self, reserved: frozenset[str]) -> None:
        self.builder = Builder.root()
        self.symbols: set[str] = set()
        # By symbol: the function that the one of this name is made from. The kernel's own functions keep their names.
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
            FunctionMirror(self, instance, builder).build()
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

    def finish(self) -> core.Module:
        self.builder.add(core.Unreachable())
        return core.Module(self.builder.finish())
