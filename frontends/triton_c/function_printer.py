"""Triton-C text of one function of a Triton model: a declaration for each value.

The text of each kind of op is a function in the table `PRINTERS`, filled by `print_values`, `print_reductions` and
`print_control`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.op import Body, Op, OpResult, Value
from ziggurat.codemodel.types import PtrType, ScalarType, TensorType, TupleType, Type, element_of, shape_of, void
from ziggurat.frontends.triton_c.declared import SPELLINGS

if TYPE_CHECKING:
    from ziggurat.frontends.triton_c.printer import Module

# The text of an op: an expression of C, or None where the function wrote statements and named the result.
Prints = Callable[["Printer", Any], "str | None"]
PRINTERS = OpTable[Prints]("text in Triton-C")
prints = PRINTERS.of

SIGNS: Final[dict[type[Op], str]] = {
    arith.AddI: "+", arith.AddF: "+", arith.SubI: "-", arith.SubF: "-", arith.MulI: "*", arith.MulF: "*",
    arith.DivF: "/", arith.DivSI: "/", arith.DivUI: "/", arith.RemSI: "%", arith.RemUI: "%", arith.AndI: "&",
    arith.OrI: "|", arith.XOrI: "^", arith.ShlI: "<<", arith.ShrSI: ">>", arith.ShrUI: ">>", tt.AddPtr: "+",
}  # fmt: skip
BROADCASTS: Final = (arith.ConstantOp, tt.Splat, tt.Broadcast)
INFIX: Final = (*SIGNS, arith.CmpI, arith.CmpF)
_SHIFTS: Final = (arith.ShlI, arith.ShrSI, arith.ShrUI)


class Printer:
    """Writes one function. `values` has the name of each value, or the names of a Tuple's components."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.lines: list[str] = []
        self.values: dict[Value, str | list[str]] = {}
        self.count = 0
        self.indent = 1

    # Text.

    def line(self, text: str) -> None:
        self.lines.append(f"{'  ' * self.indent}{text}")

    def fresh(self, prefix: str = "v") -> str:
        name = f"{prefix}{self.count}"
        self.count += 1
        return name

    def __getitem__(self, value: Value) -> str:
        """The name of a value that is no Tuple."""
        name = self.values[value]
        assert isinstance(name, str)
        return name

    def is_inline(self, op: Op) -> bool:
        """Whether a constant, splat or broadcast is written in the one operator that uses it, which broadcasts too.

        A constant that does not stand just before its use keeps its place.
        """
        user = self._user(op.result)
        if isinstance(user, tt.Splat):
            return isinstance(op, arith.ConstantOp) and self.is_inline(user)
        if isinstance(user, scf.For):
            return isinstance(op, arith.ConstantOp) and op.result not in user.initial
        if user is None or type(user) not in INFIX:
            return False
        a, b = user.operands
        if type(user) in _SHIFTS and op.result is a:
            return False  # The left operand of a shift decides the type.
        shapes = [self._written_shape(a), self._written_shape(b)]
        if not all(isinstance(value, OpResult) and isinstance(value.op, arith.ConstantOp) for value in (a, b)):
            wide = max(map(len, shapes))
            if all(len(shape) in (0, wide) for shape in shapes):
                sizes = zip(*((1,) * (wide - len(shape)) + shape for shape in shapes), strict=True)
                return tuple(map(max, sizes)) == shape_of(user.result.type)
        return False

    def _user(self, value: Value) -> Op | None:
        """The op that uses a value, in its block, if that is the only use."""
        if self.module.counts[value] != 1 or value.block is None or not isinstance(value, OpResult):
            return None
        ops = value.block.ops
        for op in ops[ops.index(value.op) + 1 :]:
            if value in op.operands:
                return op
            if isinstance(value.op, arith.ConstantOp) and not isinstance(op, BROADCASTS):
                return None
        return None

    def _written_shape(self, value: Value) -> tuple[int, ...]:
        """The shape of an operand as it is written: that of the value that is splatted or broadcast."""
        op = value.op if isinstance(value, OpResult) else None
        if isinstance(op, tt.Splat | tt.Broadcast) and self._user(value) is not None:
            return shape_of(op.operands[0].type)
        return shape_of(value.type)

    def declared(self, type_: Type, name: str, op: Op) -> str:
        """A variable of a type as C declares it: `float *x[16, 8]`."""
        element, shape = element_of(type_), shape_of(type_)
        dims = f"[{', '.join(map(str, shape))}]" if shape else ""
        if isinstance(element, PtrType):
            return f"{SPELLINGS[element.pointee]} *{name}{dims}"
        if isinstance(element, ScalarType) and isinstance(type_, ScalarType | TensorType):
            return f"{SPELLINGS[element]} {name}{dims}"
        raise inexpressible(op, f"a value of the type {type_}")

    def declare(self, type_: Type, text: str, op: Op) -> str:
        """Declare a variable with an initial value. Returns its name."""
        name = self.fresh()
        self.line(f"{self.declared(type_, name, op)} = {text};")
        return name

    def arguments(self, *parts: str | Value) -> str:
        return ", ".join(part if isinstance(part, str) else self[part] for part in parts)

    # Functions.

    def function(
        self, op: Op, body: Body, name: str, divisibility: Sequence[int] = (), *, is_kernel: bool = False
    ) -> str:
        """The text of a function: of a `tt.func`, or of the body that combines two elements of a reduction."""
        parts: list[str] = []
        for parameter, by in zip(body.parameters, divisibility or (1,) * len(body.parameters), strict=True):
            self.values[parameter] = made = self.fresh("p")
            attribute = "__aligned" if isinstance(parameter.type, PtrType) else "__multipleof"
            parts.append(self.declared(parameter.type, made, op) + (f" {attribute}({by})" if by > 1 else ""))
        head, result = f"{name}({', '.join(parts)})", body.yield_type
        if result == void:
            head = f"__global__ void {head}" if is_kernel else f"void {head}"
        else:
            head = self.declared(element_of(result), head, op)
        for value in self.statements(body):
            self.line(f"return {self[value]};")
        return "\n".join([f"{head} {{", *self.lines, "}\n"])

    def statements(self, body: Body) -> Sequence[Value]:
        """Write the statements of a body; the operands of its terminator."""
        if len(body.blocks) > 1:
            raise inexpressible(body.entry.ops[0], "control flow between blocks")
        *ops, last = body.entry.ops
        for op in ops:
            self.op(op)
        return last.operands

    def op(self, op: Op) -> None:
        made = PRINTERS.get(type(op))
        if made is None:
            raise inexpressible(op)
        text = made(self, op)
        if text is None:
            return
        if isinstance(op, BROADCASTS) and self.is_inline(op):
            self.values[op.result] = text
            return
        if op.result.type == void:
            self.line(f"{text};")
        elif isinstance(op.result.type, TupleType):
            raise inexpressible(op, "several results")
        else:
            self.values[op.result] = self.declare(op.result.type, text, op)

    def block(self, head: str, fill: Callable[[], None], tail: str = "}") -> None:
        self.line(f"{head} {{")
        self.indent += 1
        fill()
        self.indent -= 1
        self.line(tail)

    def variables(self, types: Sequence[Type], initial: Sequence[Value] | None, op: Op) -> list[str]:
        """Variables that control flow gives values to."""
        names: list[str] = []
        for number, type_ in enumerate(types):
            name = self.fresh("c")
            start = f" = {self[initial[number]]}" if initial is not None else ""
            self.line(f"{self.declared(type_, name, op)}{start};")
            names.append(name)
        return names

    def assign(self, names: Sequence[str], values: Sequence[Value], op: Op) -> None:
        """Give variables new values, all at once: a value that is another of the variables is kept before."""
        texts = [self[value] for value in values]
        for number, value in enumerate(values):
            if texts[number] in names[:number]:
                texts[number] = self.declare(value.type, texts[number], op)
        for name, text in zip(names, texts, strict=True):
            if name != text:
                self.line(f"{name} = {text};")

    def give(self, result: Value, names: list[str]) -> None:
        """The variables that hold the results of control flow."""
        if result.type != void:
            self.values[result] = names if isinstance(result.type, TupleType) else names[0]


def inexpressible(op: Op, what: str | None = None, hint: str | None = None) -> TargetError:
    """The error for an op that Triton-C cannot express; `what` names the part of it that is the reason."""
    reason = f": {what}" if what else ""
    if op.NAME == tt.MakeTensorDescriptor.NAME or op.NAME.startswith("tt.descriptor_"):
        hint = "use pointers: zg.load and zg.store"
    return TargetError(f"Triton-C cannot express {op.NAME}{reason}", op.location, hint)


def number(value: Any) -> str:
    """A number as a literal of C."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
    return repr(value)


def string(text: str) -> str:
    """A string as a literal of C."""
    return '"' + "".join(c if c.isprintable() and c not in '"\\' else f"\\{ord(c):03o}" for c in text) + '"'


def braces(items: Iterable[Any]) -> str:
    return f"{{{', '.join(map(str, items))}}}"
