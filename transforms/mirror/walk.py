"""The walk over one attributed function: where ops are appended, and what stands for each value and variable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.op import Op, Value
from ziggurat.transforms.attribution.attribution import Attribution, Scope
from ziggurat.transforms.calls.emit import Built, Emitter, Operand

if TYPE_CHECKING:
    from ziggurat.transforms.mirror.mirror import ModuleMirror

Handler = Callable[[Any, Any], Built]
T = TypeVar("T")

# Handlers by op class. A handler gives what was built for the result.
HANDLERS = OpTable[Handler]("builder")
handles = HANDLERS.of


class FunctionMirror:
    """The building of one function: the context that its handlers work in."""

    def __init__(self, module: ModuleMirror, instance: Attribution, builder: Builder) -> None:
        self.module = module
        self.instance = instance
        self.scope = instance.scope
        self.emit = Emitter(builder, self)
        self.variables: dict[Value, Operand] = {}
        self.values: dict[Value, Built] = {}
        self.op: Op = instance.func

    def callee(self) -> Attribution:
        """The function that the current op calls, or that it combines elements with; added to the module."""
        found = self.found(lambda scope: scope.callees, self.op)
        self.module.function(found)
        return found

    def finding(self, table: Callable[[Scope], dict[Value, T]], op: Op) -> T | None:
        """The entry of an op in a table of the innermost scope that has one."""
        scope: Scope | None = self.scope
        while scope is not None:
            found = table(scope).get(op.result)
            if found is not None:
                return found
            scope = scope.parent
        return None

    def found(self, table: Callable[[Scope], dict[Value, T]], op: Op) -> T:
        """The entry of an op that attribution always makes."""
        found = self.finding(table, op)
        assert found is not None
        return found

    def operand(self, value: Value) -> Operand:
        """The attributed type of a value, and what was built for it."""
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
        built = HANDLERS[op](self, op)
        if built is not None:
            self.values[op.result] = built
        else:
            # In an earlier iteration of an unrolled loop this constant may have been a run-time value.
            self.values.pop(op.result, None)
