"""Marks on elements of values: elements that are undefined, and integers that have overflowed.

In strict mode an element that a load's mask leaves out is marked with the load, and the mark travels with the element
through all ops. `Machine.known` raises an error where the program depends on it: where it is stored, in an address, in
a condition. A selection drops the marks of what is not selected. After an access outside of an array, the failing
program runs again with marks on sums and products that overflow.

A rule says what an op does with marks: a function of the op's NumPy meaning, the machine, the op and the operands. An
op without a rule of its own works element by element: an element of the result has the mark of an operand's element.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ziggurat.backend.reference.values import Array, Marked, expand, is_array, is_tuple, marked, marks_of, over, plain
from ziggurat.codemodel.dialects import arith, cf, core, debug, scf, tt
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.errors import KernelRuntimeError, MemoryAccessError
from ziggurat.codemodel.interpret import Meaning
from ziggurat.codemodel.messages import Phrase, call_text, say
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import element_bytes, element_of

if TYPE_CHECKING:
    from ziggurat.backend.reference.machine import Machine

Operands = tuple[Any, ...]

marks = OpTable[Meaning]("rule for marks")

Rule = Callable[[Meaning, "Machine", Any, Operands, Any], Any]


def where_marked(*classes: type[Op]) -> Callable[[Rule], Rule]:
    """Register the rule of ops for operands with marks; it also gets the result without the marks, which is that of
    operands without marks."""

    def register(rule: Rule) -> Rule:
        @marks.of(*classes)
        def whole(meaning: Meaning, machine: Machine, op: Op, operands: Operands) -> Any:
            result = meaning(machine, op, tuple(map(plain, operands)))
            if not any(isinstance(value, Marked) for value in operands):
                return result
            return rule(meaning, machine, op, operands, result)

        return rule

    return register


_EXACT: dict[type[Op], tuple[np.ufunc, str]] = {
    arith.AddI: (np.add, "sum"), arith.SubI: (np.subtract, "difference"), arith.MulI: (np.multiply, "product"),
}  # fmt: skip


class Sources:
    """The sources of marks: ops, each with the reason as a clause about the op. A mark is the number of its source:
    positive if undefined, negative if overflowed."""

    def __init__(self) -> None:
        self._ops: dict[tuple[int, str], Op] = {}

    def number(self, op: Op, reason: str) -> int:
        """The number of a source, from 1."""
        self._ops.setdefault((id(op), reason), op)
        return list(self._ops).index((id(op), reason)) + 1

    def of(self, mark: int) -> tuple[Op, str]:
        """The op and the reason of a mark."""
        (_, reason), op = list(self._ops.items())[abs(mark) - 1]
        return op, reason


HINTS: dict[type[Op], str] = {
    tt.Load: say(
        "give the load an other= that leaves the result as it is (0 for a sum, -inf for a maximum), or choose "
        "with {} and the mask",
        call_text("where"),
    ),
    tt.AtomicRMW: say("choose with {} and the mask", call_text("where")),
    tt.Poison: "give the variable a value on every path",
}


WIDE_OFFSET = Phrase(
    zg="compute the offset in 64 bits: zg.cast(…, zg.i64) of an operand",
    tl="compute the offset in 64 bits: x.to(tl.int64) of an operand",
    c="compute the offset in 64 bits: (long)x of an operand",
)


def undefined_elements(value: Any, shape: Sequence[int]) -> Array | None:
    """The elements of one program's tensor of this shape that are undefined; None if none is."""
    if not isinstance(value, Marked) or not (value.marks > 0).any():
        return None
    return np.asarray(expand(value.marks[:1] > 0, shape)[0])


def undefined_error(program: str, use: str, source: Op, reason: str, op: Op) -> KernelRuntimeError:
    """The error of a program that depends on an undefined element."""
    error = KernelRuntimeError(
        f"{program} {use} an undefined element: {reason}", source.location, hint=HINTS[type(source)]
    )
    error.add("it is used here", op.location)
    return error


@contextlib.contextmanager
def explained(machine: Machine, pointers: Any, mask: Array | None) -> Generator[None]:
    """Name the overflow in an error of the access, if an address depends on one."""
    try:
        yield
    except MemoryAccessError as error:
        if isinstance(pointers, Marked):
            marks = pointers.marks if mask is None else np.where(mask, pointers.marks, 0)
            if (marks < 0).any():
                source, reason = machine.sources.of(int(marks[marks < 0][0]))
                error.summary += f": {reason}"
                if element_bytes(source.result.type) < 8:
                    error.hint = WIDE_OFFSET()
                error.add("it overflows here", source.location)
        raise


def joined(operands: Operands) -> Array | None:
    """For each element, the mark of one of the operands."""
    marks: Array | None = None
    for value in operands:
        if isinstance(value, Marked):
            marks = value.marks if marks is None else np.where(marks != 0, marks, value.marks)
    return marks


@marks.of(Op)
def elementwise(meaning: Meaning, machine: Machine, op: Op, operands: Operands) -> Any:
    """The rule of elementwise ops."""
    result = meaning(machine, op, tuple(map(plain, operands)))
    if not is_array(result):
        return result
    marks = joined(operands)
    if machine.overflows and type(op) in _EXACT and result.dtype.kind in "iu":
        function, name = _EXACT[type(op)]
        wide = np.int64 if result.dtype.itemsize < 8 else object  # Python's integers.
        exact = function(*(plain(value).astype(wide) for value in operands))
        reason = f"the {name} in its offset overflows {element_of(op.result.type)}"
        here = np.where(exact != result, np.int32(-machine.sources.number(op, reason)), np.int32(0))
        marks = here if marks is None else np.where(marks != 0, marks, here)
    return marked(result, marks)


@marks.of(arith.AndI, arith.OrI, arith.MulI)
def _absorbing(meaning: Meaning, machine: Machine, op: Op, operands: Operands) -> Any:
    """A product or conjunction with a defined 0 is defined, and so is a disjunction with all ones."""
    result = elementwise(meaning, machine, op, operands)
    if not isinstance(result, Marked):
        return result
    element = result.array.dtype.type(0)
    if isinstance(op, arith.OrI):
        element = ~element
    absorbed = np.zeros((), np.bool_)
    for value in operands:
        absorbed = absorbed | ((plain(value) == element) & (marks_of(value) == 0))
    return marked(result.array, np.where(absorbed, 0, result.marks))


@where_marked(arith.Select)
def _select(meaning: Meaning, machine: Machine, op: Op, operands: Operands, result: Any) -> Any:
    condition, then, otherwise = operands
    marks = meaning(machine, op, (plain(condition), marks_of(then), marks_of(otherwise)))
    if isinstance(condition, Marked):
        wide = over(condition.marks, marks.ndim - 1) if condition.marks.ndim == 1 else condition.marks
        marks = np.where(marks != 0, marks, wide)
    return marked(result, marks)


@where_marked(tt.Splat, tt.Broadcast, tt.ExpandDims, tt.Reshape, tt.Trans, tt.Join, tt.Split, tt.Cat)
def _shaped(meaning: Meaning, machine: Machine, op: Op, operands: Operands, result: Any) -> Any:
    """Marks move with the elements."""
    marks = meaning(machine, op, tuple(map(marks_of, operands)))
    return tuple(map(marked, result, marks)) if is_tuple(result) else marked(result, marks)


@marks.of(
    core.MakeTuple, core.TupleLoad, core.TupleWith, core.Return, core.Yield, core.Branch, core.CondBranch,
    core.Unreachable, cf.Br, cf.CondBr, scf.If, scf.For, scf.While, scf.Yield, scf.Condition, tt.DescriptorPadding,
    tt.Call, tt.Return, tt.ReduceReturn, tt.ScanReturn, tt.MapElementwise, tt.MapReturn, tt.MakeTensorDescriptor,
    debug.Stop,
)  # fmt: skip
def _moved(meaning: Meaning, machine: Machine, op: Op, operands: Operands) -> Any:
    """The op passes values on with their marks. Its conditions go through `Machine.known`."""
    return meaning(machine, op, operands)


_USES: dict[type[Op], str] = {
    tt.DescriptorLoad: "reads at", tt.DescriptorGather: "reads at", tt.DescriptorSize: "asks",
    tt.DescriptorStride: "asks", tt.Assert: "asserts", cf.AssertOp: "asserts", tt.Assume: "assumes",
}  # fmt: skip


@marks.of(*_USES)
def _used(meaning: Meaning, machine: Machine, op: Op, operands: Operands) -> Any:
    """No operand may be undefined."""
    return meaning(machine, op, tuple(machine.known(op, value, _USES[type(op)]) for value in operands))


@marks.of(tt.MultipleOf, tt.MaxContiguous, tt.MaxConstancy)
def _hinted(meaning: Meaning, machine: Machine, op: Op, operands: Operands) -> Any:
    """Hints on undefined elements are not checked."""
    return operands[0] if isinstance(operands[0], Marked) else meaning(machine, op, operands)


@marks.of(tt.Poison)
def _poison(meaning: Meaning, machine: Machine, op: Op, operands: Operands) -> Any:
    value = meaning(machine, op, operands)
    if not machine.marks_undefined:
        return value
    return _all_marked(value, machine.sources.number(op, "the variable has no value on this path"))


def _all_marked(value: Any, mark: int) -> Any:
    if is_tuple(value):
        return tuple(_all_marked(part, mark) for part in value)
    return Marked(value, np.full((1,) * value.ndim, mark, np.int32))
