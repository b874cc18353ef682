"""Meanings in terms of control flow, and of ops that combine elements: reductions, products of matrices, gathers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np

from ziggurat.backend.proof.elements import FALSE, TRUE, Element, NotDecided, Sum, Term, bits_of, identity_of
from ziggurat.backend.proof.frames import is_known, lifted, settled
from ziggurat.backend.proof.machine import SymbolicMachine, elementwise_meaning, meanings
from ziggurat.backend.proof.shared_ops import held, put
from ziggurat.backend.proof.solver import z3
from ziggurat.backend.proof.tensors import (
    PartialProduct,
    Reduction,
    Tensor,
    Winner,
    forced,
    key_of,
    objects,
    objects_of,
)
from ziggurat.backend.proof.terms import float_answer
from ziggurat.backend.proof.universe import Universe
from ziggurat.backend.reference.control import rejoin
from ziggurat.backend.reference.machine import triton
from ziggurat.backend.reference.reductions import single_op
from ziggurat.backend.reference.shared_memory import SharedBuffer, shared
from ziggurat.backend.reference.tensors import full
from ziggurat.backend.reference.values import Array
from ziggurat.codemodel import elementwise
from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.dialects.tt import InputPrecision
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import Body, Op, Value
from ziggurat.codemodel.structured import packed_values
from ziggurat.codemodel.traits import Commutative
from ziggurat.codemodel.types import (
    ScalarType,
    SharedType,
    TensorType,
    component_types,
    f32,
    i1,
    i32,
    scalar_element,
    shape_of,
)

Operands = tuple[Any, ...]
Tuple = tuple[Element, ...]


# Control flow.


@meanings.of(scf.For)
def _for(machine: SymbolicMachine, op: scf.For, operands: Operands) -> Any:
    start, stop, step = (machine.universe.scalar(v, of.type) for v, of in zip(operands[:3], op.operands, strict=False))
    variables, scalar = tuple(operands[3:]), scalar_element(op.operands[0].type)
    pace = step[0].known
    if pace == 0:
        raise NotDecided("a loop whose step is 0")
    relation, reverse = ("gt", "lt") if pace is not None and scalar.signed and pace >> scalar.bits - 1 else ("lt", "gt")
    units = (1, (1 << scalar.bits) - 1)  # With these, no index goes beyond its type.
    if pace is None:
        zero = machine.domain.constant(0, scalar)
        positive = machine.domain.compare("gt", step[0], zero, signed=scalar.signed)
        machine.presume(positive, "steps of loops that are not known are positive")
    active: Any = machine.frame
    goes = partial(machine.domain.compare, relation, signed=scalar.signed)
    index, visits, beyond = start, 0, FALSE
    while (
        active is not None
        and beyond.known != 1
        and machine.goes_on(active, objects(lifted(goes, i1, index, stop), i1), visits)
    ):
        active, variables = machine.run_in(op.body, (settled(index, scalar), *variables), active)
        if pace not in units:
            beyond = machine.domain.compare(reverse, index[0], (index + step)[0], signed=scalar.signed)
            if beyond.known is None:
                machine.presume(~beyond, "indices of loops do not go beyond their type")
        index, visits = index + step, visits + 1
    return rejoin(machine, [] if active is None else [(active, variables)])


@meanings.of(scf.While)
def _while(machine: SymbolicMachine, op: scf.While, operands: Operands) -> Any:
    active: Any = machine.frame
    variables, visits = tuple(operands), 0
    while active is not None:
        active, values = machine.run_in(op.before, variables, active)
        if active is None:
            break
        variables = values[1:]
        if not machine.goes_on(active, machine.universe.scalar(values[0], i1), visits):
            return rejoin(machine, [(active, variables)])
        active, variables = machine.run_in(op.after, variables, active)
        visits += 1
    return rejoin(machine, [])


@meanings.of(arith.Select)
def _select(machine: SymbolicMachine, op: arith.Select, operands: Operands) -> Any:
    if not isinstance(operands[0], Tensor) and is_known(operands[0]) and operands[0].size == 1:
        return operands[1 if operands[0].flat[0] else 2]
    return elementwise_meaning(machine, op, operands)


@meanings.of(tt.Join, tt.Cat)
def _together(machine: SymbolicMachine, op: Op, operands: Operands) -> Any:
    if all(map(is_known, operands)):
        return triton[op](machine, op, operands)
    return triton[op](machine, op, tuple(objects(a, v.type) for v, a in zip(op.operands, operands, strict=True)))


# Reductions and scans. The order in which a reduction combines is open, but for the order of the elements where the
# combining function does not commute: so what was combined before is taken apart again.


@attrs.frozen(eq=False)
class _Combining:
    """The combining function of an op, of tuples of elements. `key` is the same for equal functions."""

    key: tuple[Hashable, ...]
    commutes: bool
    function: Callable[[Tuple, Tuple], Tuple]


def _combining(machine: SymbolicMachine, op: tt.Combining) -> _Combining:
    single = single_op(machine, op.combine)
    if single is not None:
        rule = elementwise.MEANINGS[single]
        key = type(single), scalar_element(single.result.type)
        return _Combining(
            key, isinstance(single, Commutative), lambda a, b: (rule(machine.domain, single, a[0], b[0]),)
        )
    types = [scalar_element(value.type) for value in op.values]

    def run(a: Tuple, b: Tuple) -> Tuple:
        return _run_body(machine, op.combine, (*a, *b), (*types, *types), types)

    return _Combining((machine.function_of(op),), False, run)


def _run_body(
    machine: SymbolicMachine,
    body: Body,
    elements: Tuple,
    types: Sequence[ScalarType],
    targets: Sequence[ScalarType],
) -> Tuple:
    """The elements that a body gives for some elements."""
    arguments = [settled(objects_of(element), type_) for element, type_ in zip(elements, types, strict=True)]
    _, values = machine.run_in(body, arguments, machine.frame)
    return tuple(objects(forced(v), of).reshape(-1)[0] for v, of in zip(values, targets, strict=True))


def _combined(machine: SymbolicMachine, combining: _Combining, elements: Sequence[Tuple]) -> Tuple:
    """All elements combined, in the order of the elements or, if that does not matter, in one order."""
    if combining.key[:1] == (arith.AddI,):  # A `Sum` is written in one way.
        return functools.reduce(combining.function, elements)
    leaves: list[Tuple] = []
    for element in elements:
        key, parts, _ = machine.universe.combined.get((*map(identity_of, element),), (None, [], ()))
        leaves += parts if key == combining.key else [element]
    if combining.commutes:
        leaves.sort(key=lambda leaf: str(identity_of(leaf[0])))
    result = leaves[0]
    for leaf in leaves[1:]:
        result = combining.function(result, leaf)
    # A number that is known, or is one of them, may be so for another reason.
    distinct = all(element.known is None for element in result if not z3.is_ast(element))
    distinct = distinct and all(list(map(identity_of, leaf)) != list(map(identity_of, result)) for leaf in leaves)
    if len(leaves) > 1 and distinct:
        machine.universe.combined[(*map(identity_of, result),)] = combining.key, leaves, result
    return result


def _columns(op: tt.Combining, operands: Operands) -> list[Array]:
    arrays = [full(value, objects(array, value.type)) for value, array in zip(op.values, operands, strict=True)]
    return [np.moveaxis(array, op.axis + 1, -1) for array in arrays]


@meanings.of(tt.Reduce)
def _reduce(machine: SymbolicMachine, op: tt.Reduce, operands: Operands) -> Any:
    """Combine elements along an axis. Where the order does not matter, the result is known by the places, in the tensor
    that was reduced first, of the elements that each of its own combines: so no element is looked at."""
    combining = _combining(machine, op)
    source, *others = operands
    shape = shape_of(op.values[0].type)
    if machine.universe.chooses and len(shape) == 1:
        return _winner(machine, op, combining.function, operands)
    if not others and isinstance(source, Tensor) and shape[op.axis] == 1:
        return machine.universe.moved(source, shape, np.arange(math.prod(shape)), shape_of(op.result.type))
    if others or not combining.commutes or not isinstance(source, Tensor):
        return machine.made(op, _by_elements, operands)
    source, whole, places = source.origin(shape)
    lines = np.moveaxis(places.reshape(shape), op.axis, -1).reshape(-1, shape[op.axis])
    before = _reduction(machine.universe, source)
    if before is not None and before.combining == combining.key:
        source, whole, lines = before.source, before.shape, before.lines[lines].reshape(len(lines), -1)
    lines = np.sort(lines, axis=-1)
    scalar, target = scalar_element(op.values[0].type), shape_of(op.result.type)

    def make() -> Array:
        elements = objects(forced(source), scalar)
        flat = np.broadcast_to(elements, (1, *whole)).reshape(-1)
        results = np.empty(len(lines), object)
        for place, line in enumerate(lines):
            (results[place],) = _combined(machine, combining, [(flat[at],) for at in line])
        return settled(results.reshape(1, *target), scalar)

    key = "reduce", str(scalar), combining.key, source.number, lines.shape, lines.tobytes(), target
    tensor = machine.universe.tensor(key, make, type_=TensorType(target, scalar))
    machine.universe.reductions[tensor.number] = Reduction(combining.key, source, whole, lines)
    return tensor


_EFFORT = 20_000_000


def _winner(
    machine: SymbolicMachine, op: tt.Reduce, combine: Callable[[Tuple, Tuple], Tuple], operands: Operands
) -> Any:
    """The result of a reduction that chooses one of two elements, whatever the order: the elements at an unknown place,
    to which all others give way. Raises `NotDecided` for a reduction that is not found to choose."""
    universe, (size,) = machine.universe, shape_of(op.values[0].type)
    key = machine.signature(op), *map(key_of, operands)

    def elements(place: Sum) -> Tuple:
        return tuple(universe.element(x, v.type, (place,)) for x, v in zip(operands, op.values, strict=True))

    def equal(a: Tuple, b: Tuple) -> Term:
        return z3.And(*(machine.domain.equal(x, y, v) for x, y, v in zip(a, b, types, strict=True)))

    def wins(a: Tuple, b: Tuple) -> Term:
        return equal(combine(a, b), a)

    def unknown(place: Sum) -> Tuple:
        floats = (machine.domain.function(f"float {at} of {size}", [place.term], v) for at, v in enumerate(types))
        pairs = zip(elements(place), floats, types, strict=True)
        return tuple(machine.domain.loaded(x, v) if v.is_float else own for own, x, v in pairs)

    def laws(a: Tuple, b: Tuple, c: Tuple) -> Iterator[Term]:
        yield z3.Or(wins(a, b), equal(combine(a, b), b))
        yield equal(combine(a, b), combine(b, a))
        # So of any two one wins. If the winner of a winner wins as well, the order of combining does not matter.
        yield z3.Implies(z3.And(wins(a, b), wins(b, c)), wins(a, c))

    types = [scalar_element(value.type) for value in op.values]
    if key not in universe.winners:
        places = [machine.unknown(f"place {name} of {size}") for name in "abc"]
        inside = [z3.ULT(place.term, size) for place in places]
        # Of floats it is mostly enough that those at one place are one: then the laws of a function are proved once.
        if not any(all(_holds(universe, inside, law) for law in laws(*map(of, places))) for of in (unknown, elements)):
            raise NotDecided("a reduction that is not found to choose among elements")
        place = machine.unknown(f"place of winner {len(universe.winners)} of {size}")
        winner = elements(place)
        universe.add_winner(key, Winner(size, place, lambda at: wins(winner, elements(at))))
    results = elements(universe.winners[key].place)
    return packed_values(tuple(settled(objects_of(x), v) for x, v in zip(results, types, strict=True)))


def _holds(universe: Universe, assumed: Sequence[Term], law: Term) -> bool:
    """Whether a law of a combining function is found to hold."""
    formula = z3.Implies(z3.And(*assumed), law)
    if formula.get_id() not in universe.laws:
        answer, _ = float_answer([z3.Not(formula)], _EFFORT)
        universe.laws[formula.get_id()] = answer == z3.unsat, formula
    return universe.laws[formula.get_id()][0]


def _reduction(universe: Universe, tensor: Tensor) -> Reduction | None:
    """The reduction whose results a tensor holds: one, or one of the same tensor for each of its parts."""
    if tensor.parts is None or tensor.parts[0] is not None:
        return universe.reductions.get(tensor.number)
    reductions: list[Reduction] = []
    lines: dict[int, Array] = {}
    assert tensor.type is not None
    for value, numbers in tensor.parts[1]:
        source, _, places = value.origin(tensor.type.shape) if isinstance(value, Tensor) else (tensor, (), numbers)
        reduction = universe.reductions.get(source.number)
        if reduction is None:
            return None
        reductions.append(reduction)
        lines |= {number: reduction.lines[places[number]] for number in numbers}
    first = reductions[0]
    alike = all(each.combining == first.combining and each.source is first.source for each in reductions)
    sizes = {line.size for line in lines.values()}
    return attrs.evolve(first, lines=np.stack([lines[n] for n in sorted(lines)])) if alike and len(sizes) == 1 else None


def _by_elements(machine: SymbolicMachine, op: tt.Reduce, operands: Operands) -> Any:
    if all(map(is_known, operands)):
        return triton[op](machine, op, operands)
    columns, combining = _columns(op, operands), _combining(machine, op)
    results = [np.empty(column.shape[:-1], object) for column in columns]
    for place in np.ndindex(*results[0].shape):
        combined = _combined(machine, combining, list(zip(*(column[place] for column in columns), strict=True)))
        for result, element in zip(results, combined, strict=True):
            result[place] = element
    return packed_values(tuple(settled(r, scalar_element(v.type)) for r, v in zip(results, op.values, strict=True)))


@meanings.of(tt.Scan)
def _scan(machine: SymbolicMachine, op: tt.Scan, operands: Operands) -> Any:
    if all(map(is_known, operands)):
        return triton[op](machine, op, operands)
    columns, combining = _columns(op, operands), _combining(machine, op)
    columns = [column[..., ::-1] for column in columns] if op.reverse else columns
    results = [np.empty(column.shape, object) for column in columns]
    for place in np.ndindex(*results[0].shape[:-1]):
        elements = list(zip(*(column[place] for column in columns), strict=True))
        for count in range(len(elements)):
            combined = _prefix(machine, combining, elements, count, [result[place] for result in results])
            for result, element in zip(results, combined, strict=True):
                result[(*place, count)] = element
    results = [result[..., ::-1] for result in results] if op.reverse else results
    columns = [np.moveaxis(result, -1, op.axis + 1) for result in results]
    return packed_values(tuple(settled(r, scalar_element(v.type)) for r, v in zip(columns, op.values, strict=True)))


def _prefix(
    machine: SymbolicMachine, combining: _Combining, elements: Sequence[Tuple], count: int, results: Sequence[Array]
) -> Tuple:
    if count == 0:
        return elements[0]
    return _combined(machine, combining, [tuple(result[count - 1] for result in results), elements[count]])


# Products of matrices: a function of the row, the column and the sum up to there, of which the name is known.


@meanings.of(tt.Dot)
def _dot(machine: SymbolicMachine, op: tt.Dot, operands: Operands) -> Any:
    precision = op.input_precision.value if scalar_element(op.a.type).bits == 32 else ""
    return matrix_product(machine, (op.a, op.b, op.c), operands, precision)


def matrix_product(
    machine: SymbolicMachine, values: Sequence[Value], operands: Operands, precision: str, within: Sequence[int] = ()
) -> Any:
    """c + a · b, of the operands that some values have."""
    shapes = [shared(value).shape if isinstance(value.type, SharedType) else shape_of(value.type) for value in values]
    source, other, target = (
        shared(value).element if isinstance(value.type, SharedType) else scalar_element(value.type) for value in values
    )
    if other != source:
        precision = f"{precision} by {other}"  # The bits of b mean other numbers.
    a, b, c = operands
    if precision == InputPrecision.TF32.value:
        a, b = (machine.universe.rounded.get(key_of(value), value) for value in (a, b))
    return product(machine, a, b, c, shapes, source, target, precision, within)


@attrs.frozen(eq=False)
class _Factors:
    """The operands of a product of matrices: of a and b the places of the elements in the tensors that they come from,
    and c. Of equal `kind` are products of the same tensors."""

    kind: Hashable
    rows: Array
    columns: Array
    c: Any

    @staticmethod
    def of(operands: Operands, shapes: Sequence[Sequence[int]], kind: tuple[Hashable, ...]) -> _Factors | None:
        """The factors of some operands of these shapes; None for what is no product of two tensors."""
        a, b, c = operands
        if len(shapes[0]) > 2 or not isinstance(a, Tensor) or not isinstance(b, Tensor):
            return None
        (x, _, rows), (y, _, columns) = (
            value.origin(tuple(shape)) for value, shape in zip((a, b), shapes, strict=False)
        )
        return _Factors((*kind, x.number, y.number), rows.reshape(shapes[0]), columns.reshape(shapes[1]).T, c)

    def part_of(self, other: _Factors, result: Tensor, universe: Universe) -> Tensor | None:
        """The product, if its factors are some rows and some columns of those of another product."""
        lines: list[Array] = []
        for own, whole in ((self.rows, other.rows), (self.columns, other.columns)):
            numbers = {line.tobytes(): number for number, line in enumerate(whole)}
            if not all(line.tobytes() in numbers for line in own):
                return None
            lines.append(np.array([numbers[line.tobytes()] for line in own]))
        shape, target = (len(other.rows), len(other.columns)), (len(self.rows), len(self.columns))
        places = (lines[0][:, None] * shape[1] + lines[1]).ravel()
        c = other.c
        if isinstance(c, Tensor):
            c = universe.moved(c, shape, places, target)
        elif c.size > 1:
            return None
        return universe.moved(result, shape, places, target) if key_of(c) == key_of(self.c) else None


def product(
    machine: SymbolicMachine, a: Any, b: Any, c: Any, shapes: Sequence[Sequence[int]], source: ScalarType,
    target: ScalarType, precision: str, within: Sequence[int] = (),
) -> Any:  # fmt: skip
    """c + a · b, of matrices of these shapes or of batches of them, or of the part of them along k `within`. One part
    after the other is the product of both."""
    factors = "dot", str(source), str(target), precision, key_of(a), key_of(b), *map(tuple, shapes)
    start, end = within or (0, shapes[0][-1])
    before = machine.universe.products.get(key_of(c))
    if before is not None and before.factors == factors and before.end == start:
        c, start = before.addend, before.start

    def make() -> Array:
        parts = zip((a, b, c), shapes, (source, source, target), strict=True)
        x, y, z = (np.broadcast_to(objects(forced(x), scalar), (1, *shape)) for x, shape, scalar in parts)
        x, y = x[..., start:end], y[..., start:end, :]
        return settled(machine.domain.products(x, y, z, source, target, precision), target)

    key = (*factors, key_of(c), start, end)
    universe, result = machine.universe, TensorType(tuple(shapes[2]), target)
    operands = _Factors.of((a, b, c), shapes, (str(source), str(target), precision, start, end))
    others = () if operands is None else universe.whole_products.setdefault(operands.kind, [])
    parts = (operands.part_of(whole, of, universe) for whole, of in others if universe.divided and operands)
    tensor = next(filter(None, parts), None)
    if tensor is None:
        tensor = universe.tensor(key, make, type_=result)
        if not universe.divided and operands is not None:
            universe.whole_products[operands.kind].append((operands, tensor))
    rest = shapes, source, target, precision, (start, end)
    operands_of = tuple((x, TensorType(tuple(shape), source)) for x, shape in zip((a, b), shapes, strict=False))
    product_of = PartialProduct(
        factors, c, start, end, lambda addend: product(machine, a, b, addend, *rest), (str(source), precision),
        operands_of, result,
    )  # fmt: skip
    machine.universe.products[tensor.number] = product_of
    return tensor


@meanings.of(gpu.Wgmma, gpu.Mma, gpu.DotFma)
def _matrix_unit(machine: SymbolicMachine, op: gpu.MatrixProduct, operands: Operands) -> Any:
    a, b, c = (held(machine, value) if isinstance(value, SharedBuffer) else value for value in operands)
    within: Sequence[int] = ()
    if isinstance(op, gpu.Wgmma):
        within = op.within
        if not op.accumulate:
            c = np.zeros((1,) * (len(shape_of(op.c.type)) + 1), scalar_element(op.c.type).dtype)
    precision = "" if shared(op.b).element.bits != 32 else "ieee" if isinstance(op, gpu.DotFma) else "tf32"
    return matrix_product(machine, (op.a, op.b, op.c), (a, b, c), precision, within)


@meanings.of(gpu.Rescale)
def _rescale(machine: SymbolicMachine, op: gpu.Rescale, operands: Operands) -> Any:
    return machine.made(arith.MulF(op.value, op.factor), elementwise_meaning, operands)


@meanings.of(gpu.RoundTf32)
def _round(machine: SymbolicMachine, op: gpu.RoundTf32, operands: Operands) -> Any:
    """Floats rounded to tf32, which a product that takes tf32 does itself: rounding twice is rounding once."""
    value = machine.made(op, _rounded, operands)
    machine.universe.rounded[key_of(value)] = operands[0]
    return value


def _rounded(machine: SymbolicMachine, op: Op, operands: Operands) -> Any:
    if all(map(is_known, operands)):
        return triton[op](machine, op, operands)

    def rounded(element: Element) -> Element:
        return machine.domain.function("round to tf32", [bits_of(element)], f32)

    return lifted(rounded, op.result.type, objects(operands[0], f32))


# Elements by number.

_MOST_CHOICES = 64


@meanings.of(tt.Gather)
def _gather(machine: SymbolicMachine, op: tt.Gather, operands: Operands) -> Array:
    return _gathered(machine, op, full(op.source, objects(operands[0], op.source.type)), operands[1])


@meanings.of(gpu.LocalGather)
def _local_gather(machine: SymbolicMachine, op: gpu.LocalGather, operands: Operands) -> Array:
    buffer = shared(op.buffer)
    machine.require_inside(op, operands[1])
    source = np.broadcast_to(objects(forced(held(machine, operands[0])), buffer.element), (1, *buffer.shape))
    return _gathered(machine, op, source, operands[1])


def _gathered(machine: SymbolicMachine, op: tt.Gather | gpu.LocalGather, source: Array, indices: Any) -> Array:
    """For each index, the element there along an axis."""
    index = full(op.index, forced(indices))
    if is_known(index):
        return settled(np.take_along_axis(source, index.astype(np.int64), op.axis + 1), op.result.type)
    if source.shape[op.axis + 1] > _MOST_CHOICES:
        raise NotDecided("a gather from many elements by indices that are not known")
    scalar = scalar_element(op.index.type)
    result = np.empty(index.shape, object)
    lines = np.moveaxis(source, op.axis + 1, -1)
    for place in np.ndindex(*index.shape):
        at = tuple(p for axis, p in enumerate(place) if axis != op.axis + 1)
        element_there = lines[at][0]
        for number, element in enumerate(lines[at]):
            here = machine.domain.compare("eq", index[place], machine.domain.constant(number, scalar), signed=False)
            element_there = machine.domain.choose(here, element, element_there)
        result[place] = element_there
    return settled(result, op.result.type)


@meanings.of(tt.Histogram)
def _histogram(machine: SymbolicMachine, op: tt.Histogram, operands: Operands) -> Any:
    return counted(machine, op.value, operands, np.zeros((1, 1), np.int32), (op.bins,))


@meanings.of(gpu.LocalAtomicAdd)
def _count(machine: SymbolicMachine, op: gpu.LocalAtomicAdd, operands: Operands) -> None:
    buffer, *others = operands
    put(machine, buffer, counted(machine, op.index, others, held(machine, buffer), shared(op.buffer).shape))


def counted(
    machine: SymbolicMachine, value: Value, operands: Sequence[Any], before: Any, shape: tuple[int, ...]
) -> Any:
    """The tensor `before` of a shape, each element with the number of times that its place is among the elements of
    `value` added to it: of the first operand, where the second holds if there is one."""
    scalar, domain = scalar_element(value.type), machine.domain

    def make() -> Array:
        values = full(value, objects(forced(operands[0]), scalar)).reshape(-1)
        masks = objects(forced(operands[1]), i1) if len(operands) > 1 else np.full(1, TRUE, object)
        masks = np.broadcast_to(masks, (1, *shape_of(value.type))).reshape(-1)
        counts = np.broadcast_to(objects(forced(before), i32), (1, *shape)).copy()
        unit, zero = Sum.number(1, 32), Sum.number(0, 32)
        largest = (1 << scalar.bits - scalar.signed) - 1
        for bin_ in (place for place in np.ndindex(*counts.shape) if place[-1] <= largest):
            number = domain.constant(bin_[-1], scalar)
            hits = (
                domain.compare("eq", element, number, signed=False) & m for element, m in np.broadcast(values, masks)
            )
            counts[bin_] = sum((domain.choose(hit, unit, zero) for hit in hits), start=counts[bin_])
        return settled(counts, i32)

    if all(map(is_known, (*operands, before))):
        return make()
    key = "counted", shape_of(value.type), str(scalar), *map(key_of, (*operands, before)), shape
    return machine.universe.tensor(key, make, type_=TensorType(shape, i32))


@meanings.of(tt.MapElementwise)
def _map(machine: SymbolicMachine, op: tt.MapElementwise, operands: Operands) -> Any:
    """The body runs for the elements in row-major order, `pack` at a time; the last one fills an incomplete group."""
    if all(map(is_known, operands)):
        return triton[op](machine, op, operands)
    arrays = [full(value, objects(a, value.type)).reshape(-1) for value, a in zip(op.values, operands, strict=True)]
    types = [scalar_element(value.type) for value in op.values for _ in range(op.pack)]
    targets = [scalar_element(type_) for type_ in component_types(op.result.type) for _ in range(op.pack)]
    size = arrays[0].size
    groups = np.minimum(np.arange(-(-size // op.pack) * op.pack), size - 1).reshape(-1, op.pack)
    rows = [
        _run_body(machine, op.apply, (*(a[at] for a in arrays for at in group),), types, targets) for group in groups
    ]
    columns: list[Array] = []
    for number, type_ in enumerate(component_types(op.result.type)):
        column = np.empty(size, object)
        for place in range(size):
            column[place] = rows[place // op.pack][number * op.pack + place % op.pack]
        columns.append(settled(column.reshape(1, *shape_of(type_)), type_))
    return packed_values(tuple(columns))
