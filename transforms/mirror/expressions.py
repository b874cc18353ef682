"""Building variables, operators, tuples and calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import ConstantType, Type, i1
from ziggurat.transforms.attribution.attribution import Attribution
from ziggurat.transforms.attribution.operators import COMPARISONS, OPERATORS
from ziggurat.transforms.attribution.promotion import NONE
from ziggurat.transforms.mirror.emit import Built, Operand, split_operand
from ziggurat.transforms.mirror.walk import Walk


class Expressions(Walk):
    """What computes a value without a choice."""

    def nothing(self, op: Op) -> Built:
        return None

    def var(self, op: Op) -> Built:
        assert isinstance(op, core.Var)
        if op.initial is not None:
            self.variables[op.result] = self.operand(op.initial)
        else:
            self.variables.pop(op.result, None)
        return None

    def var_load(self, op: Op) -> Built:
        return self.variables[op.operands[0]].value

    def var_store(self, op: Op) -> Built:
        self.variables[op.operands[0]] = self.operand(op.operands[1])
        return None

    def operator(self, op: Op) -> Built:
        result = self.scope.type_of(op.result)
        if isinstance(result, ConstantType):
            return None
        operands = [self.operand(value) for value in op.operands]
        if isinstance(op, py.Not):
            return self.calls.invert(i1, Operand(i1, self.emit.truth(operands[0])))
        if isinstance(op, py.Pos):
            return operands[0].value
        comparison = COMPARISONS.get(type(op))
        if comparison is not None:
            return self.calls.comparison(comparison, result, *operands)
        return getattr(self.calls, OPERATORS[type(op)])(result, *operands)

    def pack(self, op: Op) -> Built:
        if isinstance(self.scope.type_of(op.result), ConstantType):
            return None
        return tuple(self.values.get(value) for value in op.operands)

    def unpack(self, op: Op) -> Built:
        assert isinstance(op, py.Unpack)
        return split_operand(self.operand(op.value))[op.index].value

    def subscript(self, op: Op) -> Built:
        index = self.scope.type_of(op.operands[1])
        assert isinstance(index, ConstantType)
        place: int = index.value
        return split_operand(self.operand(op.operands[0]))[place].value

    def invoke(self, op: Op) -> Built:
        assert isinstance(op, py.Invoke)
        result = self.scope.type_of(op.result)
        if isinstance(result, ConstantType) and result != NONE:
            return None
        space, _, name = op.callee.rpartition(".")
        if space == "builtins":
            return self.builtin(op, name, result)
        if space != "zg":
            name = f"{name}_tensor_descriptor"
        method = getattr(self.calls, name, None)
        if method is None:
            # What the language itself is written in; or nothing, as zg.static_assert, which is done with.
            return self.library_call(op, self._callee(op)) if self._finding("callees", op) is not None else None
        return method(result, *self.arguments(op))

    def arguments(self, op: Op) -> Iterator[Any]:
        """The arguments of a call of the language, in the order of its signature."""
        for given in self._finding("bound", op).values():
            if isinstance(given, Value):
                yield self.operand(given)
            elif isinstance(given, tuple) and given and all(isinstance(item, Value) for item in given):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
                yield [self.operand(item) for item in given]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            else:
                yield given

    def builtin(self, op: py.Invoke, name: str, result: Type) -> Built:
        operands = [self.operand(value) for value in op.operands]
        if name in ("min", "max"):
            made = operands[0]
            rule = self.calls.minimum if name == "min" else self.calls.maximum
            for operand in operands[1:]:
                made = Operand(result, rule(result, made, operand))
            return made.value
        if name == "abs":
            return self.calls.abs(result, operands[0])
        if name in ("int", "float", "bool"):
            return self.emit.convert(operands[0], result)
        return None

    def library_call(self, op: Op, callee: Attribution) -> Built:
        given = list(self._finding("bound", op).values())
        operands = [self.operand(value) if isinstance(value, Value) else Operand(NONE, None) for value in given]
        return self.call(callee, operands)

    def call(self, callee: Attribution, operands: Sequence[Operand]) -> Built:
        """Call a function of the model with the run-time parts of the operands."""
        values: list[Value] = []
        for operand, type_ in zip(operands, callee.parameter_types, strict=True):
            values.extend(self.emit.repack(operand, type_))
        return self.emit.call(callee.symbol, values, callee.result)

    def function_call(self, op: Op) -> Built:
        return self.call(self._callee(op), [self.operand(value) for value in op.operands])

    def call_value(self, op: Op) -> Built:
        given = self._finding("bound", op).values()
        operands = [self.operand(item) if isinstance(item, Value) else Operand(item, None) for item in given]
        return self.call(self._callee(op), operands)
