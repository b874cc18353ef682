"""The arrays of a kernel with their gradients: parameters, pointers, and the accesses that have a gradient.

Each parameter that is an array of `of` or `wrt` is followed by its gradient, of the same type. Each pointer or
descriptor that is computed from such a parameter is computed a second time from the gradient:

    %5 : tensor<x64, ptr<f32>> = tt.splat %0;         %5 : tensor<x64, ptr<f32>> = tt.splat %0;
                                                      %6 : tensor<x64, ptr<f32>> = tt.splat %1;
    %6 : tensor<x64, ptr<f32>> = tt.addptr %5 %4;     %7 : tensor<x64, ptr<f32>> = tt.addptr %5 %4;
                                                      %8 : tensor<x64, ptr<f32>> = tt.addptr %6 %4;

Loops and branches carry both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import attrs

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core, scf, tt
from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.codemodel.op import BlockParameter, Body, Op, Value, constant_of
from ziggurat.codemodel.structured import packed
from ziggurat.codemodel.traits import MemoryRead, MemoryWrite, Pure
from ziggurat.codemodel.transform import Outcome, Rewriter
from ziggurat.codemodel.types import DescriptorType, PtrType, Type, component_types, element_of
from ziggurat.transforms.differentiate.adjoint import GradientAccess
from ziggurat.transforms.differentiate.scaling import Scaled
from ziggurat.transforms.kit.dataflow import origins


@attrs.frozen
class Arrays:
    """A kernel that has the gradients of its arrays among its parameters."""

    kernel: tt.Func
    of: dict[Op, GradientAccess]
    wrt: dict[Op, GradientAccess]
    fixed: dict[Value, tuple[Value, int]]
    """`Scaled.fixed`, in this kernel."""
    free: frozenset[Value]
    """`Scaled.free`, in this kernel."""


def is_array(type_: Type) -> bool:
    """Whether a parameter of this type is an array."""
    return isinstance(type_, PtrType | DescriptorType)


def _points(type_: Type) -> bool:
    return isinstance(element_of(type_), PtrType) or isinstance(type_, DescriptorType)


def arrays_of(op: Op) -> list[int]:
    """The numbers of the parameters that the pointer or descriptor of an access may be computed from."""
    return _array_numbers(op.operands[0])


def _array_numbers(pointer: Value) -> list[int]:
    pointers = origins(pointer, lambda inner: not isinstance(inner, MemoryRead))
    return [v.index for v in pointers if isinstance(v, BlockParameter) and is_array(v.type)]


def accesses(model: Op) -> list[Op]:
    """The ops that read or write memory, in order."""
    return [op for op in model.walk() if isinstance(op, MemoryRead | MemoryWrite)]


def with_gradients(scaled: Scaled, of: Sequence[int], wrt: Sequence[int]) -> Arrays:
    """The kernel with a gradient after each array of `of` and `wrt`, and the accesses of these arrays."""
    kernel = scaled.kernel
    pairing = _Pairing(frozenset(of), frozenset(wrt))
    outcomes = pairing.outcomes
    outcomes.update({value: value for value in (*scaled.fixed, *scaled.free)})
    outcomes.update({after: after for after, _ in scaled.fixed.values()})
    outside = Rewriter.over(Builder.root(), (pairing,))
    old = kernel.body
    names = {*of, *wrt}
    types: list[Type] = []
    for parameter in old.parameters:
        types += [parameter.type] * (2 if parameter.index in names else 1)
    inner = outside.inside(types, old.yield_type, isolated=True)
    inner.location = kernel.location
    parameters = iter(inner.parameters)
    divisibility: list[int] = []
    for parameter, divisor in zip(old.parameters, kernel.divisibility or (1,) * len(old.parameters), strict=True):
        inner.mapping.values[parameter] = new_parameter = next(parameters)
        divisibility.append(divisor)
        if parameter.index in names:
            pairing.gradients[new_parameter] = next(parameters), frozenset((parameter.index,))
            divisibility.append(divisor)
    inner.rewrite_blocks(old)
    func = tt.Func(f"d_{kernel.sym_name}", inner.finish(), divisibility=tuple(divisibility))
    outside.add(func, kernel.location)
    fixed = {outcomes[before]: (outcomes[after], place) for before, (after, place) in scaled.fixed.items()}
    return Arrays(func, pairing.of, pairing.wrt, fixed, frozenset(outcomes[value] for value in scaled.free))


Pair = tuple[Value, frozenset[int]]
"""A pointer to a gradient, and the arrays that it may be the gradient of."""


class _Pairing:
    """The transformer. `gradients` has, for pointers of the new kernel, those to the gradient, and the arrays."""

    def __init__(self, of: frozenset[int], wrt: frozenset[int]) -> None:
        self.numbers = {"of": of, "wrt": wrt}
        self.gradients: dict[Value, Pair] = {}
        self.of: dict[Op, GradientAccess] = {}
        self.wrt: dict[Op, GradientAccess] = {}
        self.outcomes: dict[Value, Value] = {}
        """The values of the new kernel for some of the old one, which are the keys before the transform."""

    def __call__(self, builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        outcome = self.outcome(builder, op, operands)
        if op.result in self.outcomes:
            outcome = self.outcomes[op.result] = builder.copy(op, operands) if outcome is None else outcome
        return outcome

    def outcome(self, builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Value | None:
        if isinstance(op, MemoryRead | MemoryWrite):
            return self.access(builder, op, operands)
        if isinstance(op, core.TupleLoad):
            packed = operands[0].op
            return packed.components[op.index] if isinstance(packed, core.MakeTuple) else None
        if isinstance(op, scf.For):
            return self.loop(builder, op, operands)
        if isinstance(op, scf.If):
            return self.branch(builder, op, operands)
        if isinstance(op, Pure) and not op.bodies and any(value in self.gradients for value in operands):
            return self.pointer(builder, op, operands)
        return None

    def access(self, builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Value | None:
        copy = builder.copy(op, operands)
        paired = self.gradients.get(operands[0])
        if paired is not None:
            gradient, arrays = paired
            if isinstance(op, MemoryWrite) and arrays <= self.numbers["of"]:
                self.of[copy.op] = GradientAccess(arrays, gradient)
            if isinstance(op, MemoryRead) and arrays <= self.numbers["wrt"]:
                self.wrt[copy.op] = GradientAccess(arrays, gradient)
        elif self.with_gradient(arrays_of(op)):
            raise KernelTypeError(
                f"{op.NAME} accesses an array that has a gradient through a pointer that is not followed",
                op.location,
                hint="compute the pointer from the parameter and offsets",
            )
        return copy

    def with_gradient(self, arrays: Collection[int]) -> frozenset[int]:
        """Those of some arrays that have a gradient."""
        return (self.numbers["of"] | self.numbers["wrt"]).intersection(arrays)

    def pair(self, op: Op, value: Value, hint: str) -> Pair:
        """The pointer to the gradient for one of several pointers from which an op chooses."""
        maker = value.op
        if isinstance(maker, tt.Poison) or (isinstance(maker, tt.IntToPtr) and constant_of(maker.value) == 0):
            return value, frozenset()  # A path on which the pointer is not used.
        paired = self.gradients.get(value)
        if paired is None:
            raise KernelTypeError(f"{op.NAME} chooses between arrays with and without a gradient", op.location, hint)
        return paired

    def joined(self, op: Op, pairs: Iterable[Pair], hint: str) -> frozenset[int]:
        """The arrays that a pointer may be into. All are of `of`, or all of `wrt`."""
        arrays = frozenset(number for pair in pairs for number in pair[1])
        if not any(arrays <= numbers for numbers in self.numbers.values()):
            raise KernelTypeError(f"{op.NAME} chooses between arrays of 'of' and of 'wrt'", op.location, hint)
        return arrays

    def pointer(self, builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Value | None:
        copy = builder.copy(op, operands)
        if not any(map(_points, component_types(op.result.type))):
            return copy
        hint = "choose between the loaded values: zg.where(condition, zg.load(…), zg.load(…))"
        pairs = {v: self.pair(op, v, hint) for v in operands if any(map(_points, component_types(v.type)))}
        arrays = self.joined(op, pairs.values(), hint)
        gradients = [pairs[value][0] if value in pairs else value for value in operands]
        self.gradients[copy] = builder.copy(op, gradients), arrays
        return copy

    def loop(self, builder: Rewriter, op: scf.For, operands: tuple[Value, ...]) -> Value | None:
        (end,) = op.terminators(op.body)
        numbers_by_place = self.chosen(zip(op.inits, end.handed, strict=True))
        if not numbers_by_place:
            return None
        hint = "carry an offset in place of the pointer"
        inits = operands[op.CONTROLS :]
        begun = {place: self.pair(op, inits[place], hint) for place in numbers_by_place}
        types = [value.type for value in (*inits, *(gradient for gradient, _ in begun.values()))]
        inner = builder.inside([op.body.parameters[0].type, *types], packed(types))
        parameters = inner.parameters
        inner.mapping.values.update(zip(op.body.parameters, parameters, strict=False))
        for (place, arrays), gradient in zip(numbers_by_place.items(), parameters[1 + len(inits) :], strict=True):
            self.gradients[parameters[1 + place]] = gradient, arrays
        inner.rewrite_ops(op.body.entry.ops[:-1])
        ends = [inner[value] for value in end.handed]
        ended = {place: self.pair(op, ends[place], hint) for place in numbers_by_place}
        for place in numbers_by_place:
            self.joined(op, (begun[place], ended[place]), hint)
        inner.add(scf.Yield([*ends, *(gradient for gradient, _ in ended.values())]))
        gradients = [gradient for gradient, _ in begun.values()]
        loop = builder.add(op.SPEC.copy(op, (*operands, *gradients), (), [inner.finish()], packed(types)))
        return self.unpacked(builder, loop, len(inits), numbers_by_place)

    def branch(self, builder: Rewriter, op: scf.If, operands: tuple[Value, ...]) -> Value | None:
        if not any(map(_points, op.value_types)):
            return None
        numbers_by_place = self.chosen(zip(*(end.handed for end in op.terminators()), strict=True))
        types = [*op.value_types, *(op.value_types[place] for place in numbers_by_place)]
        bodies: list[Body] = []
        for body in op.bodies:
            inner = builder.inside((), packed(types))
            inner.rewrite_ops(body.entry.ops[:-1])
            ends = [inner[value] for value in body.entry.terminator.operands]
            paired = [self.pair(op, ends[place], "load in each branch") for place in numbers_by_place]
            inner.add(scf.Yield([*ends, *(gradient for gradient, _ in paired)]))
            bodies.append(inner.finish())
        for arrays in numbers_by_place.values():
            self.joined(op, [(operands[0], arrays)], "load in each branch")
        branch = builder.add(scf.If(operands[0], *bodies))
        return self.unpacked(builder, branch, len(op.value_types), numbers_by_place)

    def chosen(self, values: Iterable[tuple[Value, ...]]) -> dict[int, frozenset[int]]:
        """The arrays with a gradient that results of a loop or a branch point into, by the number of the result.

        `values` has, for each result, the values of the old kernel that it may be.
        """
        groups: dict[int, frozenset[int]] = {}
        for place, several in enumerate(values):
            if _points(several[0].type):
                arrays = self.with_gradient([number for value in several for number in _array_numbers(value)])
                if arrays:
                    groups[place] = arrays
        return groups

    def unpacked(
        self, builder: Rewriter, result: Value, count: int, numbers_by_place: Mapping[int, frozenset[int]]
    ) -> Value:
        """The first `count` results, packed as before; the others are the gradients of those that have one."""
        if not numbers_by_place:
            return result
        values = [builder.add(core.TupleLoad(result, index)) for index in range(count + len(numbers_by_place))]
        for (place, arrays), gradient in zip(numbers_by_place.items(), values[count:], strict=True):
            self.gradients[values[place]] = gradient, arrays
        return values[0] if count == 1 else builder.add(core.MakeTuple(values[:count]))
