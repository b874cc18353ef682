"""The core dialect: modules, functions, variables, tuples, and control flow between blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ziggurat.codemodel import traits
from ziggurat.codemodel.errors import BuildError
from ziggurat.codemodel.fields import attribute, body, operand, operands, result_type, successor
from ziggurat.codemodel.op import Body, Op, Successor, Value, expect, require
from ziggurat.codemodel.types import TupleType, Type, VarType, constexpr_type, i1, pyobject


class Unreachable(Op, traits.BodyTerminator, name="unreachable"):
    """The end of a body that is never reached."""


class Return(Op, traits.Returns, name="return"):
    """Leave the function with at most one value."""

    values: Sequence[Value] = operands()

    def check(self) -> None:
        require(len(self.values) <= 1, "return takes at most one value; several make a tuple")


class Yield(Op, traits.BodyTerminator, name="yield"):
    """Hand at most one value to the op that owns this body."""

    values: Sequence[Value] = operands()

    def check(self) -> None:
        require(len(self.values) <= 1, "yield takes at most one value; several make a tuple")


class Module(Op, traits.Isolated, traits.SymbolTable, name="module"):
    """Functions that call each other by their symbols. Its block ends in `unreachable`: a module is not run."""

    body: Body = body(ends=Unreachable)


class Func(Op, traits.Isolated, traits.Symbol, name="func"):
    """A function. The parameters of its body are its parameters, the body's yield type is what it returns.

    A Python function that is no plain one has its `parameters` as they are written, with `-> …` for the result; its
    `kind`, as in `function`; and the names that are `free`: those of variables of the functions around it.
    """

    sym_name: str = attribute(str, unnamed=True)
    body: Body = body(ends=Return)
    parameters: tuple[str, ...] = attribute([str], default=())
    kind: str = attribute(str, default="def")
    free: tuple[str, ...] = attribute([str], default=())


class FuncCall(Op, traits.PythonTier, traits.SymbolUser, name="func.call"):
    """Call a function of the same module by its symbol. `keywords` names the last operands."""

    arguments: Sequence[Value] = operands()
    callee: str = attribute(str, unnamed=True)
    type: Type = result_type()
    keywords: tuple[str, ...] = attribute([str], default=())


class FuncRef(Op, traits.PythonTier, traits.SymbolUser, traits.Pure, name="func.ref"):
    """A function of the same module as a value, to hand to an op that applies it."""

    callee: str = attribute(str, unnamed=True)
    type: Type = result_type()


class ConstantOp(Op, traits.PythonTier, traits.Pure, traits.Constant, name="constant"):
    """A Python constant: a number, a string, None, a type, a member of an enum, or a tuple of these."""

    value: Any = attribute(object, unnamed=True)
    type: Type = result_type()


class Var(Op, name="var"):
    """Declare a variable. Without an operand it has no value until the first `var.store`."""

    initial: Value | None = operand(default=None)
    type: Type = result_type(kw_only=True)
    name: str = attribute(str, default="", unnamed=True)

    def derive_type(self) -> Type:
        if self.initial is None or self.type in (VarType(pyobject), VarType(constexpr_type)):
            return self.type
        return VarType(self.initial.type)

    def check(self) -> None:
        type_ = self.type
        if not isinstance(type_, VarType):
            raise BuildError(f"var gives a Var type; got {type_}")
        if self.initial is not None and type_.value not in (pyobject, constexpr_type, self.initial.type):
            raise BuildError(f"var of {type_.value} is initialised with {self.initial.type}")


class VarLoad(Op, name="var.load"):
    """The value that a variable holds now."""

    var: Value = operand()

    def infer_type(self) -> Type:
        type_ = self.var.type
        if not isinstance(type_, VarType):
            raise BuildError(f"var.load reads a Var; got {type_}")
        return type_.value


class VarStore(Op, name="var.store"):
    """Give a variable another value of its type."""

    var: Value = operand()
    value: Value = operand()

    def check(self) -> None:
        variable, type_ = self.var.type, self.value.type
        if not isinstance(variable, VarType):
            raise BuildError(f"var.store writes a Var; got {variable}")
        if variable.value not in (pyobject, constexpr_type, type_):
            raise BuildError(f"var.store of {type_} to a variable of {variable.value}")


class MakeTuple(Op, traits.Pure, name="tuple"):
    """The operands as one value."""

    components: Sequence[Value] = operands()

    def infer_type(self) -> Type:
        if self.components and all(value.type == pyobject for value in self.components):
            return TupleType(tuple(pyobject for _ in self.components))
        return TupleType(tuple(value.type for value in self.components))


def _component(op: str, type_: Type, index: int) -> Type:
    components = expect(type_, TupleType, f"{op}: the operand must be a Tuple; got {type_}").components
    require(0 <= index < len(components), f"{op} index {index} is outside {type_}")
    return components[index]


class TupleLoad(Op, traits.Pure, name="tuple.load"):
    """A component of a tuple."""

    tuple: Value = operand()
    index: int = attribute(int, unnamed=True)

    def infer_type(self) -> Type:
        return _component("tuple.load", self.tuple.type, self.index)


class TupleWith(Op, traits.Pure, name="tuple.with"):
    """The tuple with one component replaced."""

    tuple: Value = operand()
    value: Value = operand()
    index: int = attribute(int, unnamed=True)

    def infer_type(self) -> Type:
        expected = _component("tuple.with", self.tuple.type, self.index)
        require(expected == self.value.type, f"tuple.with puts {self.value.type} in the place of {expected}")
        return self.tuple.type


class Branch(Op, traits.PythonTier, traits.BlockTerminator, name="branch"):
    """Go to a block."""

    target: Successor = successor()


class CondBranch(Op, traits.PythonTier, traits.BlockTerminator, name="cbranch"):
    """Go to one block where the condition holds, to the other where not."""

    condition: Value = operand()
    then: Successor = successor()
    otherwise: Successor = successor()

    def check(self) -> None:
        type_ = self.condition.type
        require(type_ in (i1, pyobject, constexpr_type), f"cbranch: the condition must be an i1; got {type_}")
