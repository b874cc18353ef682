"""The analysis of integers and pointers along each axis: runs of neighbours and of equal values, and divisors.

For a kernel whose pointer and whose number of elements are divisible by 16:

    %2 : tensor<x64, i32> = tt.make_range @start=0 @end=64;      runs of 64, which begin at 0
    %3 : tensor<x64, i32> = tt.splat %1;                         64 equal ones, divisible by 16
    %4 : tensor<x64, i32> = arith.addi %2 %3;                    runs of 64, which begin at a multiple of 16
    %5 : tensor<x64, i1> = arith.cmpi %4 %3 @slt;                16 equal ones each
    %6 : tensor<x64, ptr<f32>> = tt.addptr %0 %4;                runs of 64, which begin at a multiple of 16 bytes

The analysis begins with the parameters' divisibility, ranges, constants and hints, follows arithmetic by the rules of
`axis_rules`, and visits the ops of loops again until nothing changes.
"""

from __future__ import annotations

from collections.abc import Mapping

from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.dialects.arith import IntPredicate
from ziggurat.codemodel.op import Op, OpResult, Value
from ziggurat.codemodel.types import ScalarType, Type
from ziggurat.transforms.place.axis_rules import AxisInfo, infer, known, meet, power
from ziggurat.transforms.place.components import (
    Component,
    Group,
    component_of,
    component_types,
    components_of,
    groups_of,
    propagate,
)
from ziggurat.transforms.place.queries import constant_of

__all__ = ["AxisInfo", "analyse", "unknown_component"]


def unknown_component(component: Component) -> AxisInfo:
    """The facts about any value of the component's type."""
    return known(_type_of(component))


def analyse(func: tt.Func) -> dict[Component, AxisInfo]:
    """The facts about each component of a function; see `AxisInfo`.

    A `tt.assume` directly in the function's first block counts everywhere, if it is `x % c == 0` or `x >= c`.
    """
    analysis = _Analysis(func)
    ops = [op for op in func.walk() if op is not func]
    propagate([*dict.fromkeys(analysis.groups.values()), *ops], analysis.visit)
    return analysis.found


def _type_of(component: Component) -> Type:
    value, index = component
    return component_types(value.type)[index]


class _Analysis:
    def __init__(self, func: tt.Func) -> None:
        self.groups: Mapping[Component, Group] = groups_of(func)
        self.found: dict[Component, AxisInfo] = {}
        self.assumed: dict[Component, AxisInfo] = {}
        self.changed: list[Component] = []
        for op in func.body.entry.ops:
            if isinstance(op, tt.Assume) and isinstance(op.condition, OpResult):
                self._assume_condition(op.condition.op)
        parameters = func.body.parameters
        for parameter, divisor in zip(parameters, func.divisibility or (1,) * len(parameters), strict=True):
            self._set((parameter, 0), known(parameter.type, (), (power(divisor) if divisor else 1,)))

    def visit(self, item: Op | Group) -> list[Component]:
        """Find facts about a group or an op's results; the components about which facts changed."""
        self.changed = []
        if isinstance(item, Group):
            self._join(item)
        else:
            self._infer(item)
        return self.changed

    def _set(self, component: Component, info: AxisInfo) -> None:
        assumed = self.assumed.get(component)
        if assumed is not None:
            info = _both(_type_of(component), info, assumed)
        if self.found.get(component) != info:
            self.found[component] = info
            self.changed.append(component)

    def _join(self, group: Group) -> None:
        """Note the facts that hold for all sources known so far: fewer than before, or the same."""
        infos = [self.found[source] for _, source in group.sources if source in self.found]
        if not infos:
            return
        type_ = _type_of(group.members[0])
        before = self.found.get(group.members[0])
        made = infos[0] if before is None else before
        for info in infos:
            made = meet(type_, made, info)
        for member in group.members:
            self._set(member, made)

    def _infer(self, op: Op) -> None:
        if isinstance(op, scf.For):
            self._index(op)
        for body in op.bodies if isinstance(op, tt.Reduce | tt.Scan) else ():
            for parameter in body.parameters:
                self._set((parameter, 0), known(parameter.type))
        components = [component for component in components_of(op.result) if component not in self.groups]
        if len(components) != 1:
            for component in components:
                self._set(component, unknown_component(component))
            return
        infos = [self._info(value) for value in op.operands]
        known_infos = [info for info in infos if info is not None]
        if len(known_infos) == len(infos):
            self._set(components[0], infer(op, known_infos))

    def _info(self, value: Value) -> AxisInfo | None:
        """The facts about an operand; None before its op is visited. Nothing is known of a Tuple."""
        component = component_of(value) if len(component_types(value.type)) == 1 else None
        return known(value.type) if component is None else self.found.get(component)

    def _index(self, op: scf.For) -> None:
        """Note the facts about the index of a loop, which begins at the start and takes steps."""
        start, stop, step = (self._info(value) for value in (op.start, op.stop, op.step))
        if start is None or stop is None or step is None:
            return
        divisor = min(start.everywhere, step.everywhere)
        nonnegative = start.nonnegative and (step.nonnegative or stop.nonnegative)
        index = op.body.parameters[0]
        self._set((index, 0), known(index.type, (), (divisor,), nonnegative=nonnegative))

    def _assume_condition(self, op: Op) -> None:
        if isinstance(op, arith.AndI):
            for value in op.operands:
                if isinstance(value, OpResult):
                    self._assume_condition(value.op)
        if not isinstance(op, arith.CmpI) or not isinstance(op.lhs.type, ScalarType):
            return
        bound = constant_of(op.rhs)
        if not isinstance(bound, int):
            return
        if op.predicate in (IntPredicate.SGE, IntPredicate.SGT) and bound >= 0:
            self._assume_fact(op.lhs, known(op.lhs.type, nonnegative=True))
        elif op.predicate is IntPredicate.EQ and bound == 0 and isinstance(op.lhs, OpResult):
            rest = op.lhs.op
            number = constant_of(rest.operands[-1]) if rest.operands else None
            if isinstance(number, int) and isinstance(rest, arith.RemSI | arith.RemUI | arith.AndI) and number:
                divisor = number + isinstance(rest, arith.AndI)
                self._assume_fact(rest.lhs, known(rest.lhs.type, (), (power(divisor),)))

    def _assume_fact(self, value: Value, info: AxisInfo) -> None:
        component = component_of(value)
        self.assumed[component] = _both(value.type, self.assumed.get(component, info), info)


def _both(type_: Type, first: AxisInfo, second: AxisInfo) -> AxisInfo:
    """The facts about a scalar for which both hold."""
    divisor = max(first.everywhere, second.everywhere)
    nonnegative = first.nonnegative or second.nonnegative
    constant = first.constant if first.constant is not None else second.constant
    return known(type_, (), (divisor,), (), constant, nonnegative)
