"""Marks beside values: elements that are undefined, integers that have overflowed, floats that became NaN or infinite.

A mark is an i32 beside each element, in a tensor of the value's shape: 0, or the number of its source. It is computed
by ops of its own, and is reported where the program depends on the element:

    %v : tensor<x4, f32> = tt.load %p %m;              %d : tensor<x4, i32> = arith.select %m %none %source;
    %w : tensor<x4, f32> = arith.addf %v %x;           // the marks of %w are those of %v: %d
    %s : f32 = tt.reduce %w …;                         %e : i32 = tt.reduce %d …;      // the largest

There are two `Stream`s of marks. Marks of undefined elements and of overflow follow every use of an element. Those of
NaN and infinities follow floats as long as the results are NaN or infinite. Only values that a mark may reach have
marks: `Stream.nodes`, by the flow of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ziggurat.codemodel.dialects import arith, core, math, tt
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.location import LIBRARY
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.traits import MemoryRead
from ziggurat.codemodel.types import (
    SCALARS,
    ScalarType,
    Type,
    component_types,
    element_of,
    i32,
    shape_of,
    shaped,
    void,
)
from ziggurat.frontends.library import sanitizing
from ziggurat.transforms.kit.dataflow import Node, flow, nodes
from ziggurat.transforms.sanitize.code import Code

# The exponents' bits of floats, all of which are set in NaN and infinities. Floats of 8 bits have others.
_EXPONENTS = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF0000000000000}
_OVERFLOWING: dict[type[Op], tuple[Any, str]] = {
    arith.AddI: (sanitizing.sanitize_sum, "sum"), arith.SubI: (sanitizing.sanitize_difference, "difference"),
    arith.MulI: (sanitizing.sanitize_product, "product"),
}  # fmt: skip
# Ops whose results are NaN or infinite only where an operand is.
_FINITE = (
    arith.NegF, arith.MaximumF, arith.MinimumF, arith.MaxNumF, arith.MinNumF, arith.ExtF, math.AbsF, math.Floor,
    math.Ceil, math.Trunc, math.RoundEven, math.Tanh, math.Erf,
)  # fmt: skip


class Stream:
    """Marks of one kind on the values of a kernel: those of new values, by the value and the number of a component."""

    def __init__(self, kernel: Op, sources: Iterable[Value], through: Callable[[Op], bool]) -> None:
        edges = flow(kernel, through)
        starts = [node for value in sources for node in nodes(value)]
        self.nodes: set[Node] = set(reached(starts, lambda node: edges.get(node, ())))
        self._marks: dict[Node, Value] = {}

    def reaches(self, value: Value) -> bool:
        """Whether a value of the old kernel, or a component, may have marks."""
        return any(node in self.nodes for node in nodes(value))

    def of(self, value: Value, component: int = 0) -> Value | None:
        """The marks of a new value; None where no element can have one."""
        return self._marks.get((value, component))

    def note(self, value: Value, marks: Value | None, component: int = 0) -> None:
        """Note the marks of a new value."""
        if marks is not None:
            self._marks[value, component] = marks


def element_word(element: Type) -> ScalarType | None:
    """The signed integer of the size of a number; i1 itself."""
    if not isinstance(element, ScalarType):
        return None
    return element if element.bits == 1 else SCALARS[f"i{8 * element.bytes}"]


def overflows(op: Op) -> bool:
    """Whether an op may overflow: one on signed integers. What the language's library does is meant to."""
    if type(op) not in _OVERFLOWING:
        return False
    element = element_of(op.result.type)
    in_library = op.location is not None and op.location.file.startswith(LIBRARY)
    return isinstance(element, ScalarType) and element.signed and element.bits > 1 and not in_library


def _is_float(type_: Type) -> bool:
    element = element_of(type_)
    return isinstance(element, ScalarType) and element.name in _EXPONENTS


def becomes_infinite(op: Op) -> bool:
    """Whether an op makes NaN or infinities of finite floats."""
    computes = isinstance(op, arith.Elementwise | arith.TruncF | tt.Dot | tt.Reduce | tt.Scan | tt.MapElementwise)
    computes = computes or (isinstance(op, tt.InlineAsm) and op.is_pure)
    return computes and not isinstance(op, _FINITE) and any(map(_is_float, component_types(op.result.type)))


def follows(op: Op) -> bool:
    """Whether marks go from the operands of an op to its result."""
    return not isinstance(op, MemoryRead) and op.result.type != void


def follows_float(op: Op) -> bool:
    """Whether marks of floats go from the operands of an op to its result."""
    return follows(op) and any(map(_is_float, component_types(op.result.type)))


# Rules: the marks of the components of a result, from those of the operands.

Rule = Callable[[Code, Op, tuple[Value, ...], Stream], "list[Value | None]"]
_moves = OpTable[Rule]("rule for marks in the model")


def moved(code: Code, op: Op, operands: tuple[Value, ...], stream: Stream) -> list[Value | None] | None:
    """The marks of the result of an op that moves elements; None for an op that computes new ones."""
    rule = _moves.get(type(op))
    return None if rule is None else rule(code, op, operands, stream)


def _or_none(code: Code, value: Value, stream: Stream) -> Value:
    return stream.of(value) or code.no_marks(value.type)


@_moves.of(tt.Splat, tt.Broadcast, tt.ExpandDims, tt.Reshape, tt.Trans, tt.Join, tt.Split, tt.Cat)
def _shaped(code: Code, op: Op, operands: tuple[Value, ...], stream: Stream) -> list[Value | None]:
    marks = [_or_none(code, value, stream) for value in operands]
    if "type" in op.attributes or isinstance(op, tt.Splat | tt.Broadcast | tt.Reshape):
        shape = shape_of(op.result.type)
        result = code.add(op.SPEC.copy(op, tuple(marks), (), (), shaped(shape, i32)))
    else:
        copy = op.SPEC.copy(op, tuple(marks), (), (), op.result.type)
        op.SPEC.rederive(copy)
        result = code.add(copy)
    return list(code.parts(result, len(component_types(result.type))))


@_moves.of(tt.Gather)
def _gathered(code: Code, op: tt.Gather, operands: tuple[Value, ...], stream: Stream) -> list[Value | None]:
    source = code.add(tt.Gather(_or_none(code, operands[0], stream), operands[1], op.axis))
    return [code.joined(stream.of(operands[1]), source)]


@_moves.of(arith.Select)
def _selected(code: Code, op: Op, operands: tuple[Value, ...], stream: Stream) -> list[Value | None]:
    condition, then, otherwise = operands
    selection = None
    if stream.of(then) is not None or stream.of(otherwise) is not None:
        marks = [_or_none(code, value, stream) for value in (then, otherwise)]
        selection = code.add(arith.Select(condition, *marks))
    steering = stream.of(condition)
    if steering is not None:
        steering = code.fitted(steering, shape_of(op.result.type))
    return [code.joined(selection, steering)]


@_moves.of(core.MakeTuple)
def _packed(code: Code, op: Op, operands: tuple[Value, ...], stream: Stream) -> list[Value | None]:
    return [stream.of(value) for value in operands]


@_moves.of(core.TupleLoad)
def _component(code: Code, op: core.TupleLoad, operands: tuple[Value, ...], stream: Stream) -> list[Value | None]:
    return [stream.of(operands[0], op.index)]


@_moves.of(core.TupleWith)
def _replaced(code: Code, op: core.TupleWith, operands: tuple[Value, ...], stream: Stream) -> list[Value | None]:
    marks = [stream.of(operands[0], index) for index in range(len(component_types(op.result.type)))]
    marks[op.index] = stream.of(operands[1])
    return marks


# Dependence: undefined elements and overflow.


def dependent(code: Code, op: Op, operands: tuple[Value, ...], result: Value, stream: Stream) -> list[Value | None]:
    """The marks of the result of any op that computes new elements from its operands."""
    marks = [stream.of(value) for value in operands]
    count, shape = len(component_types(result.type)), shape_of(component_types(result.type)[0])
    if isinstance(op, tt.Reduce | tt.Scan):
        return [_combined(code, op, marks)] * count
    if isinstance(op, tt.Dot):
        return [_of_dot(code, *marks, shape=shape)]
    result_marks: Value | None = None
    for mark in marks:
        own = mark if mark is None or not isinstance(op, tt.MapElementwise) else _of_group(code, op, mark)
        result_marks = code.joined(result_marks, None if own is None else code.fitted(own, shape))
    if result_marks is not None and isinstance(op, arith.AndI | arith.OrI | arith.MulI):
        result_marks = _unless_absorbed(code, op, operands, result_marks, stream)
    return [result_marks] * count


def _of_group(code: Code, op: tt.MapElementwise, marks: Value) -> Value:
    """The marks of an operand of a map: elements of a group depend on each other."""
    return marks if op.pack == 1 else code.highest_of_all(marks)


def _combined(code: Code, op: tt.Reduce | tt.Scan, marks: list[Value | None]) -> Value | None:
    whole: Value | None = None
    for mark in marks:
        whole = code.joined(whole, mark)
    if whole is None or isinstance(op, tt.Reduce):
        return None if whole is None else code.highest(whole, op.axis)
    combine = code.builder.nested([i32, i32], i32)
    combine.add(tt.ScanReturn([combine.add(arith.MaxSI(*combine.parameters))]))
    return code.add(tt.Scan([whole], op.axis, combine.finish(), reverse=op.reverse))


def _of_dot(code: Code, a: Value | None, b: Value | None, c: Value | None, shape: tuple[int, ...]) -> Value | None:
    """An element of an operand reaches a row or a column of the result."""
    rank = len(shape)
    row, column = (
        None if value is None else code.spread(code.add(tt.ExpandDims(code.highest(value, axis), axis)), shape)
        for value, axis in ((a, rank - 1), (b, rank - 2))
    )
    if row is not None and row.type != shaped(shape, i32):
        row = code.fitted(row, shape)
    return code.joined(code.joined(row, column), c)


def _unless_absorbed(code: Code, op: Op, operands: tuple[Value, ...], marks: Value, stream: Stream) -> Value:
    """A product or conjunction with a defined 0 is defined, and so is a disjunction with all ones."""
    element = element_of(op.result.type)
    assert isinstance(element, ScalarType)
    ones = True if element.bits == 1 else -1 if element.signed else element.limits[1]
    absorbing = ones if isinstance(op, arith.OrI) else False if element.bits == 1 else 0
    absorbed: Value | None = None
    for value in operands:
        same = code.add(arith.CmpI(value, code.add(arith.ConstantOp(absorbing, value.type)), arith.IntPredicate.EQ))
        own = stream.of(value)
        if own is not None:
            clean = code.add(arith.CmpI(own, code.constant(0, own.type), arith.IntPredicate.EQ))
            same = code.add(arith.AndI(same, clean))
        absorbed = code.either(absorbed, same)
    assert absorbed is not None
    return code.add(arith.Select(absorbed, code.no_marks(op.result.type), marks))


def overflowed(code: Code, op: Op, operands: tuple[Value, ...], result: Value, source: int) -> Value:
    """The marks of the elements of a sum, difference or product that overflow."""
    element = element_of(result.type)
    function, _ = _OVERFLOWING[type(op)]
    if isinstance(op, arith.MulI) and isinstance(element, ScalarType) and element.bits == 64:
        function = sanitizing.sanitize_wide_product
    wrong = code.call_check(function, *operands, result)
    return code.call_check(sanitizing.sanitize_marks, wrong, code.constant(source, i32))


def overflow_reason(op: Op) -> str:
    """The reason of a mark of overflow, as a clause."""
    return f"the {_OVERFLOWING[type(op)][1]} overflows {element_of(op.result.type)}"


# NaN and infinities.


def not_finite(code: Code, value: Value) -> Value:
    """Whether each float is NaN or infinite."""
    element = element_of(value.type)
    assert isinstance(element, ScalarType)
    return code.call_check(sanitizing.sanitize_not_finite, value, element_word(element), _EXPONENTS[element.name])


def computed(
    code: Code, op: Op, operands: tuple[Value, ...], result: Value, stream: Stream, source: int | None
) -> list[Value | None]:
    """The marks of the NaN and infinities of the floats of a result: those of the operands, or else the source, if no
    operand is NaN and, for an infinity, none is infinite."""
    whole = dependent(code, op, operands, result, stream)
    floats = [value if _is_float(value.type) else None for value in operands]
    infinite = nan = None
    if source is not None:
        infinite = _any_of(code, op, [value and not_finite(code, value) for value in floats])
        nan = _any_of(code, op, [value and _not_a_number(code, value) for value in floats])
    marks: list[Value | None] = []
    for part, mark in zip(code.parts(result, len(whole)), whole, strict=True):
        if not _is_float(part.type) or (source is None and mark is None):
            marks.append(None)
            continue
        wrong = not_finite(code, part)
        if source is not None:
            own = wrong
            if infinite is not None and nan is not None:
                of_numbers = code.add(arith.AndI(_not_a_number(code, part), code.opposite(nan)))
                own = code.add(arith.AndI(wrong, code.add(arith.OrI(code.opposite(infinite), of_numbers))))
            mark = code.joined(mark, code.call_check(sanitizing.sanitize_marks, own, code.constant(source, i32)))
        assert mark is not None
        marks.append(code.add(arith.Select(wrong, mark, code.no_marks(part.type))))
    return marks


def _not_a_number(code: Code, value: Value) -> Value:
    return code.call_check(sanitizing.sanitize_not_a_number, value)


def _any_of(code: Code, op: Op, lanes: Sequence[Value | None]) -> Value | None:
    """Whether any operand's element that reaches an element of the result holds."""
    shape = shape_of(component_types(op.result.type)[0])
    if isinstance(op, tt.Dot | tt.Reduce | tt.Scan):
        marks = [None if lane is None else code.cast(lane, i32) for lane in lanes]
        whole = _of_dot(code, *marks, shape=shape) if isinstance(op, tt.Dot) else _combined(code, op, marks)
        return None if whole is None else code.marked(whole)
    whole = None
    for lane in lanes:
        whole = code.either(whole, None if lane is None else code.fitted(lane, shape))
    return whole
