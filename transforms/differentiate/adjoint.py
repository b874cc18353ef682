"""The reverse sweep over the ops of a body: the adjoints of values, and the context of the gradient rules.

The adjoint of a value is the derivative of the sum of d_out · out with respect to it. It has the shape of the value, in
f64 for f64 and in f32 for all narrower floats.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import attrs

from ziggurat.codemodel.dialects import arith, core, tt
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.codemodel.location import FRONTENDS, Location
from ziggurat.codemodel.op import Body, Op, OpResult, Value, expect
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.transform import Rewriter
from ziggurat.codemodel.types import (
    TensorType,
    TupleType,
    Type,
    component_types,
    element_of,
    f32,
    f64,
    of_floats,
    scalar_element,
    shape_of,
    with_element,
)
from ziggurat.frontends.library import LIBRARY as FUNCTIONS
from ziggurat.transforms.casts import cast
from ziggurat.transforms.differentiate.finite import may_be_infinite
from ziggurat.transforms.kit.dataflow import Node, nodes

PASS: Final = "differentiate"


class GradientRule(Protocol):
    """A gradient rule: adds to the adjoints of an op's operands, from the adjoint of its result.

    `adjoint` is None for an op without a result, and a list with an adjoint or None for each component of a Tuple.
    """

    def __call__(self, at: Reverse, op: Any, adjoint: Any) -> None: ...


gradients: OpTable[GradientRule] = OpTable("gradient")
_REGISTER: Final = "register one with @ziggurat.transforms.differentiate.adjoint.gradients.of, or lower the op before"


@attrs.frozen
class GradientAccess:
    """An access of an array that has a gradient: the pointer or descriptor of the same place in the gradient."""

    arrays: frozenset[int]
    """The numbers of the arrays that it may access, among the parameters of the forward kernel."""
    gradient: Value


@attrs.frozen
class GradientPlan:
    """The facts about a forward kernel that the rules need."""

    of: Mapping[Op, GradientAccess]
    """The ops that write an array whose adjoint is given."""
    wrt: Mapping[Op, GradientAccess]
    """The ops that read an array whose gradient is computed."""
    carrying: frozenset[Node]
    """The values that have an adjoint: computed from an array of `wrt`, and used for one of `of`."""
    plain: frozenset[Op]
    """The reads whose gradients are stored, not added: each element is read by one lane of one program."""
    redirected: Mapping[Node, Node | None]
    """The values whose adjoints are those of other values, or zero where this is None: see `scaling`."""

    def writes(self, op: Op) -> bool:
        """Whether an op, or one inside it, writes an array whose adjoint is given."""
        return any(inner in self.of for inner in op.walk())


def adjoint_type(type_: Type) -> Type:
    """The type of the adjoint of a value."""
    return with_element(type_, f64 if element_of(type_) == f64 else f32)


def no_gradient(op: Op, why: str, hint: str | None = None) -> KernelTypeError:
    """The error for an op that an adjoint reaches and that has no gradient. An op of the library is named by the call
    of it, as the kernel writes it."""
    location, name = op.location, op.NAME
    if location is not None and location.file.startswith(FRONTENDS):
        location = location.outside(FRONTENDS)
        text = (location.source_line() or "").encode()[location.column :].decode(errors="replace")
        match = re.match(r"[\w.]+(?=\()", text)
        name = match[0] if match and match[0].rpartition(".")[2] in FUNCTIONS else "the call"
    return KernelTypeError(f"{name} has no gradient: {why}", location, hint)


class Reverse:
    """The reverse sweep at one place: rules read values there, emit ops there, and add to adjoints.

    `builder` maps values of the forward kernel to those of the gradient kernel. Adjoints are found by node: a value of
    the forward kernel and the index of a component.
    """

    def __init__(self, builder: Rewriter, plan: GradientPlan) -> None:
        self.builder = builder
        self.plan = plan
        self.adjoints: dict[Node, Value] = {}
        self.finite: dict[Node, bool] = {}
        """The answers of `may_be_infinite` so far."""

    # The sweep.

    def sweep(self, ops: Sequence[Op]) -> None:
        """Apply the rules of ops of the forward kernel, the last first."""
        for op in reversed(ops):
            adjoints = [self.adjoints.pop(node, None) for node in nodes(op.result)]
            if op in self.plan.plain:
                adjoints = [adjoints[0] or self.zero(op.result.type)]  # Each element is stored, also a zero.
            elif all(adjoint is None for adjoint in adjoints) and not self.plan.writes(op):
                continue
            self.builder.location = _place(op.location)
            rule = gradients.get(type(op))
            if rule is None:
                raise no_gradient(op, "no rule is registered for it", _REGISTER)
            if isinstance(op, Structured):
                rule(self, op, adjoints[: len(op.value_types)])
            else:
                rule(self, op, adjoints if isinstance(op.result.type, TupleType) else adjoints[0])

    def inside(self, builder: Rewriter) -> Reverse:
        """The sweep of a body, whose builder is given."""
        builder.location = self.builder.location
        reverse = Reverse(builder, self.plan)
        reverse.finite = self.finite
        return reverse

    def wants(self, node: Node) -> bool:
        """Whether a component of a value has an adjoint."""
        return node in self.plan.carrying and of_floats(component_types(node[0].type)[node[1]])

    def wanted(self, values: Iterable[Value]) -> list[Node]:
        """The components of values that have adjoints."""
        targets = (self.plan.redirected.get(node, node) for value in values for node in nodes(value))
        return list(dict.fromkeys(node for node in targets if node is not None and self.wants(node)))

    def add(self, value: Value, adjoint: Value, component: int = 0) -> None:
        """Add to the adjoint of a value of the forward kernel. Does nothing for a value without an adjoint."""
        node = self.plan.redirected.get((value, component), (value, component))
        if node is None or not self.wants(node):
            return
        previous = self.adjoints.get(node)
        self.adjoints[node] = adjoint if previous is None else self.plus(previous, adjoint)

    def take(self, node: Node) -> Value:
        """The adjoint of a component, zero where nothing was added."""
        return self.adjoints.pop(node, None) or self.zero(component_types(node[0].type)[node[1]])

    # Values of the forward kernel.

    def value(self, value: Value) -> Value:
        """The value of the gradient kernel that a value of the forward kernel has become."""
        return self.builder[value]

    def wide(self, value: Value) -> Value:
        """The value of the gradient kernel for a value of the forward kernel, cast to the type of its adjoint."""
        return cast(self.builder, self.value(value), scalar_element(adjoint_type(value.type)))

    # Emission.

    def emit(self, op: Op) -> OpResult:
        """Append an op to the gradient kernel."""
        return self.builder.add(op)

    def constant(self, number: float, type_: Type) -> Value:
        """A float of the adjoint's type of a value of `type_`."""
        return self.emit(arith.ConstantOp(number, type=adjoint_type(type_)))

    def zero(self, type_: Type) -> Value:
        """The adjoint zero of a value of `type_`."""
        return self.constant(0.0, type_)

    def plus(self, lhs: Value, rhs: Value) -> Value:
        return self.emit(arith.AddF(lhs, rhs))

    def minus(self, lhs: Value, rhs: Value) -> Value:
        return self.emit(arith.SubF(lhs, rhs))

    def times(self, lhs: Value, rhs: Value | float) -> Value:
        return self.emit(arith.MulF(lhs, rhs if isinstance(rhs, Value) else self.constant(rhs, lhs.type)))

    def guarded(self, adjoint: Value, product: Value, *factors: Value) -> Value:
        """The product of an adjoint and factors, and zero where the adjoint is zero: there a factor may be infinite.

        The factors are values of the forward kernel. A product of factors that are finite stays as it is (`finite`).
        So does a product of an adjoint of zero and a finite factor: its derivative by the adjoint is the factor.
        """
        if not any(may_be_infinite(factor, 0, self.finite) for factor in factors):
            return product
        is_zero = self.compare(adjoint, self.zero(adjoint.type), arith.FloatPredicate.OEQ)
        is_infinite = self.compare(product, self.zero(product.type), arith.FloatPredicate.UNE)  # 0 · infinity is NaN.
        return self.where(self.both(is_zero, is_infinite), 0.0, product)

    def over(self, lhs: Value, rhs: Value) -> Value:
        return self.emit(arith.DivF(lhs, rhs))

    def negative(self, value: Value) -> Value:
        return self.emit(arith.NegF(value))

    def where(self, condition: Value, then: Value | float, otherwise: Value | float) -> Value:
        """`arith.select` between two adjoints, or an adjoint and a number."""
        adjoint = then if isinstance(then, Value) else otherwise
        assert isinstance(adjoint, Value)
        branches = [
            branch if isinstance(branch, Value) else self.constant(branch, adjoint.type) for branch in (then, otherwise)
        ]
        return self.emit(arith.Select(condition, *branches))

    def compare(self, lhs: Value, rhs: Value, predicate: arith.FloatPredicate) -> Value:
        return self.emit(arith.CmpF(lhs, rhs, predicate))

    def both(self, lhs: Value, rhs: Value) -> Value:
        return self.emit(arith.AndI(lhs, rhs))

    def opposite(self, condition: Value) -> Value:
        return self.emit(arith.XOrI(condition, self.emit(arith.ConstantOp(True, type=condition.type))))

    def as_type(self, value: Value, type_: Type) -> Value:
        """A value cast to the element type of `type_`."""
        return cast(self.builder, value, scalar_element(type_))

    def combining(
        self,
        element: Type,
        ends: type[tt.ReduceReturn | tt.ScanReturn],
        combiner: type[arith.BinaryElementwise] = arith.AddF,
    ) -> Body:
        """The body of a reduction or a scan that combines by one op."""
        inner = self.builder.nested([element, element], element)
        inner.add(ends([inner.add(combiner(*inner.parameters))]))
        return inner.finish()

    def total(self, value: Value, axis: int, combiner: type[arith.BinaryElementwise] = arith.AddF) -> Value:
        """The sum along an axis, or the elements combined by another op."""
        return self.emit(tt.Reduce([value], axis, self.combining(element_of(value.type), tt.ReduceReturn, combiner)))

    def total_of_all(self, value: Value) -> Value:
        """The sum of all elements, a scalar."""
        type_ = expect(value.type, TensorType)
        if type_.rank > 1:
            value = self.emit(tt.Reshape(value, TensorType((type_.numel,), type_.element), allow_reorder=True))
        return self.total(value, 0)

    def expand(self, value: Value, axis: int, type_: Type) -> Value:
        """A value that lacks an axis of `type_`, repeated along it; a scalar becomes a tensor of one axis."""
        full = TensorType(shape_of(type_), scalar_element(value.type))
        if not isinstance(value.type, TensorType):
            return self.emit(tt.Splat(value, full))
        value = self.emit(tt.ExpandDims(value, axis))
        return value if value.type == full else self.emit(tt.Broadcast(value, full))

    def components(self, packed: Value, count: int) -> list[Value]:
        """The values that an op with `count` results has given as one."""
        if count == 1:
            return [packed]
        return [self.emit(core.TupleLoad(packed, index)) for index in range(count)]


def _place(location: Location | None) -> Location | None:
    return location if location is None else location.made_by(PASS)
