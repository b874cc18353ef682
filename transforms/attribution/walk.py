"""The walk over one function: its state, its errors, and the order in which its ops are attributed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.errors import KernelErrors, KernelSyntaxError, KernelTypeError, ZigguratError
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Op, OpResult, Value
from ziggurat.codemodel.types import Type
from ziggurat.transforms.attribution.attribution import Attribution
from ziggurat.transforms.calls.constants import FunctionName, describe
from ziggurat.transforms.calls.lattice import ERROR, Unusable, join
from ziggurat.transforms.calls.promotion import NONE

if TYPE_CHECKING:
    from ziggurat.transforms.attribution.attribute import Attributor

State = dict[Value, Type]
Handler = Callable[[Any, Any], Type | None]

# Handlers by op class. A handler gives the type of the result, or None when control does not continue.
HANDLERS = OpTable[Handler]("type rule")
handles = HANDLERS.of


class FunctionAttributor:
    """The attribution of one function at one list of argument types: the context that its handlers work in."""

    def __init__(
        self, program: Attributor, function: FunctionName, types: tuple[Type, ...], caller: Location | None
    ) -> None:
        self.program = program
        self.function = function
        self.func = func = function.model
        self.caller = caller
        self.found = Attribution(func, types)
        self.scope = self.found.scope
        self.state: State = {}
        self.returns: list[tuple[Type, Op]] = []
        # The states at the `break`s and the `continue`s of each loop around the current op, outermost first.
        self.leaving: list[tuple[list[State], list[State]]] = []
        self.op: Op = func
        # The names of variables, for messages.
        self.names: dict[Value, str] = {}
        # The variables that are stored to inside an op, by its result; see `stored_variables`.
        self.stored: dict[Value, list[Value]] = {}

    def run(self) -> Attribution:
        body = self.func.bodies[0]
        self.scope.types.update(zip(body.parameters, self.found.parameter_types, strict=True))
        self.ops(body.entry.ops)
        result: Type | None = None
        for type_, op in self.returns:
            joined = type_ if result is None else join(result, type_)
            if isinstance(joined, Unusable):
                assert result is not None
                first, second = ("nothing" if one == NONE else describe(one) for one in (result, type_))
                self.report(
                    op,
                    KernelTypeError(
                        f"'{self.func.attributes['sym_name']}' returns {first} on one path and {second} here",
                        hint="return values of one type on every path",
                    ),
                )
                joined = ERROR
            result = joined
        self.found.result = NONE if result is None else result
        return self.found

    def report(self, op: Op, error: ZigguratError) -> None:
        """Note an error at an op, once."""
        if isinstance(error, KernelErrors):
            for one in error.errors:
                self.report(op, one)
            return
        if error.location is None:
            error.location = self.place(op)
        known = self.program.errors
        if not any(e.summary == error.summary and e.location == error.location for e in known):
            known.append(error)

    def place(self, op: Op | None = None) -> Location | None:
        """The location of an op, by default the current one, with the calls that led there."""
        location = self.op.location if op is None else op.location
        return location.called_from(self.caller) if location is not None and self.caller is not None else location

    def place_of(self, value: Value) -> Location | None:
        """The location of a value's op, with the calls that led there; for a parameter that of the current op."""
        return self.place(value.op if isinstance(value, OpResult) and value.op.location is not None else None)

    def ops(self, ops: Sequence[Op]) -> bool:
        """Run ops in the current state. False when control does not continue after them."""
        types = self.scope.types
        for op in ops:
            handler = HANDLERS.get(type(op))
            if handler is None:
                raise KernelSyntaxError(f"the op {op.NAME} is not of the Python model", op.location)
            self.op = op
            try:
                if any(types.get(operand) is ERROR for operand in op.operands):
                    outcome = self.in_error(op)
                else:
                    outcome = handler(self, op)
            except ZigguratError as error:
                self.report(op, error)
                outcome = self.in_error(op)
            if outcome is None:
                return False
            types[op.result] = outcome
        return True

    def in_error(self, op: Op) -> Type | None:
        """Record the effects of an op that is in error or depends on one: they are unknown."""
        if isinstance(op, core.Return):
            self.returned(op, ERROR)
            return None
        if isinstance(op, core.Var):
            self.names[op.result] = op.name
            self.state[op.result] = ERROR
            return op.result.type
        for inner in op.walk():
            if isinstance(inner, core.VarStore):
                self.state[inner.var] = ERROR
            elif isinstance(inner, core.Return):
                self.returned(inner, ERROR)
        if py.leaves_iteration(op):
            self.leaving[-1][0].append(dict(self.state))
        return ERROR

    def returned(self, op: Op, type_: Type) -> None:
        """Note what a `return` gives, in the place of what it gave at an earlier visit."""
        if not any(known is op for _, known in self.returns):
            self.returns.append((type_, op))
        else:
            self.returns = [(type_ if known is op else old, known) for old, known in self.returns]
