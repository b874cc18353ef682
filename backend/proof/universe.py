"""Values of a run on unknown inputs, computed once and only where they are needed.

A value that has few elements, or of which all are known, is an array. Any other tensor is a `Tensor`: the op that makes
it, on which operands. Two tensors that are made alike are one object, in all runs of a universe: so most of two models
is found equal without a look at an element. The memory of an array is a chain of versions, likewise.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any

import numpy as np

from ziggurat.backend.proof.cells import Cells
from ziggurat.backend.proof.elements import FALSE, TRUE, Bit, Element, NotDecided, Pointer, Sum, Term, identity_of
from ziggurat.backend.proof.solver import z3
from ziggurat.backend.proof.tensors import (
    Index,
    PartialProduct,
    Reduction,
    Tensor,
    Version,
    Winner,
    forced,
    key_of,
    objects,
    objects_of,
    origins_of,
)
from ziggurat.backend.proof.terms import Terms
from ziggurat.backend.reference.values import Array, is_tuple
from ziggurat.codemodel.interpret import Step
from ziggurat.codemodel.op import Block, Body, Op, expect
from ziggurat.codemodel.types import ScalarType, TensorType, Type, element_of, i32, i64, shape_of

_COMPARED = 12  # Conditions that a new one is compared with.
_EXAMPLES = 16  # Inputs for which a formula is computed before the solver is asked.
# Units of the solver's work on one of these comparisons: some milliseconds, and some tenths of a second.
_LITTLE, _EFFORT, MUCH = 50_000, 200_000, 1_000_000
MOST = 30_000  # Elements that are computed one by one for an answer.


@functools.cache
def coordinates() -> list[Term]:
    """What holds of the coordinates of programs."""
    pairs = ((z3.BitVec(f"program {axis}", 32), z3.BitVec(f"programs {axis}", 32)) for axis in range(3))
    return [z3.And(number >= 0, number < count) for number, count in pairs]


_HARD = {z3.Z3_OP_BSDIV, z3.Z3_OP_BUDIV, z3.Z3_OP_BSREM, z3.Z3_OP_BUREM, z3.Z3_OP_BMUL, z3.Z3_OP_UNINTERPRETED}


class Universe:
    """All tensors and versions of some runs, by the way they are made, and the domain of their elements. If it
    `contracts`, a product that is added or subtracted may be rounded or not. If it looks at `places`, the elements of
    pointers and masks are computed at each access: which of them are equal is then found however they are made. If it
    `chooses`, the result of a reduction that chooses among elements is the element at an unknown place."""

    def __init__(
        self, domain: Terms | None = None, *, contracts: bool = False, places: bool = False, chooses: bool = False
    ) -> None:  # fmt: skip
        self.domain = Terms() if domain is None else domain
        self.contracts = contracts
        # In a prover, of this universe alone.
        self.name = f"{type(self.domain).__name__} {places} {self.domain.wraps} {chooses}"
        self.chooses = chooses
        self.winners: dict[Hashable, Winner] = {}  # By the reduction and its operands.
        self.laws: dict[int, tuple[bool, Term]] = {}  # Of combining functions: whether they are found to hold.
        self.definitions: list[Term] = []  # What holds of the places of winners.
        self.places = places
        self._places: dict[int, Tensor] = {}
        self._compared: dict[Hashable, list[tuple[Tensor, Element]]] = {}
        self._indices: dict[tuple[int, ...], Index] = {}
        self._alike: dict[Hashable, Tensor] = {}
        self._doubles: list[Tensor] = []
        # Tensors of programs that are one CTA; the ways to divide them, by the type of a part; and their parts, by the
        # element at an unknown index. While a run is `divided`, tensors are those of the CTAs of a cluster.
        self.divided = False
        self._whole: list[Tensor] = []
        self._divisions: dict[TensorType, list[tuple[Tensor, int, int]]] = {}
        self._parts: dict[Hashable, tuple[Tensor, Array, Element]] = {}
        self._tensors: dict[Hashable, Tensor] = {}
        self._versions: dict[Hashable, Version] = {}
        self.computed = 0  # Elements of tensors, one by one, since the last answer.
        self._conditions: list[Bit] = []
        self._of_formula: dict[int, tuple[frozenset[int], Term]] = {}
        self._truths: dict[int, tuple[bool, Term]] = {}  # With the formula, whose number no other one gets.
        self._solver = z3.SimpleSolver()  # Small questions take it a fifth of the time that others need to begin.
        self._solver.set("rlimit", _LITTLE)
        self._solver.add(*coordinates())
        self._examples: list[Any] = []  # Models of the solver, of which all facts hold: so many.
        self._premises = 0
        # By the number of a term: the term, an unknown number if it is a product or a quotient, and its operands.
        self._terms: dict[int, tuple[Term, Term | None, list[Term]]] = {}
        # By the numbers of a condition and of a path, which are kept.
        self._settled: dict[Hashable, tuple[Bit, Bit, Bit]] = {}
        self._decided: dict[Hashable, tuple[Bit, Bit, Bit]] = {}
        self.plans: dict[Body, dict[Block, tuple[Step, ...]]] = {}  # Of the bodies that runs have come to.
        self.signatures: dict[Op, Hashable] = {}
        self.functions: list[Any] = []  # The results of combining functions, which are kept for their numbers.
        # Results that are few elements, by op and operands, whose terms are kept.
        self.small: dict[Hashable, tuple[Any, tuple[Any, ...]]] = {}
        self.rounded: dict[Hashable, Any] = {}  # By its key, the value of which one is a rounding to tf32.
        self.products: dict[Hashable, PartialProduct] = {}  # By the result's key.
        # By the number of an element that is of a product, or loaded: the product and the index, or the contents of
        # memory and the place.
        self.leaves: dict[int, tuple[Any, Any]] = {}
        self.agreements: dict[Hashable, bool] = {}  # See `agreement`.
        self.reductions: dict[int, Reduction] = {}  # By the number of the result.
        # Those of programs that are one CTA, by the tensors that are multiplied: the operands, and the result.
        self.whole_products: dict[Hashable, list[tuple[Any, Tensor]]] = {}
        # What a reduction has combined, by its result: the function, the elements, and the result.
        self.combined: dict[Hashable, tuple[Hashable, list[Any], Any]] = {}

    def tensor(
        self, key: Hashable, make: Callable[[], Any], origins: Iterable[int] = (), *, type_: Type | None = None,
        at: Callable[[Index], Element] | None = None,
    ) -> Tensor:  # fmt: skip
        """The tensor with a key, which `make` makes. Tensors of a type with the same element at an unknown index are
        one."""
        tensor = self._tensors.get(key)
        if tensor is not None:
            return tensor
        of = type_.without_layout() if isinstance(type_, TensorType) else None
        number = len(self._tensors) + len(self._doubles)
        count = 0 if of is None else math.prod(of.shape)
        tensor = Tensor(number, partial(self._counted, make, count), frozenset(origins), of, at)
        if of is not None and at is not None and self.domain.symbolic:
            element = self.element(tensor, of, self.index(of.shape))
            place = of, identity_of(element)
            if self.divided:
                self._divide_into(of)
            if place in self._parts and place not in self._alike:
                whole, places, _ = self._parts.pop(place)
                self.moved(whole, expect(whole.type, TensorType).shape, places, of.shape)  # It is alike.
            alike = self._alike.setdefault(place, tensor)
            if alike is not tensor:
                self._doubles.append(tensor)  # It keeps the terms of its key.
                tensor = alike
            elif not self.divided:
                self._whole.append(tensor)
        self._tensors[key] = tensor
        return tensor

    def add_winner(self, key: Hashable, winner: Winner) -> None:
        """Say of each of the winners among as many elements that it wins against those at the places of the others."""
        place, size = winner.place, winner.size
        self.definitions.append(z3.ULT(place.term, z3.BitVecVal(size, 32)))
        self.definitions += [winner.is_kept(Sum.number(number, 32)) for number in (0, size - 1)]
        for other in (each for each in self.winners.values() if each.size == size):
            self.definitions += [winner.is_kept(other.place), other.is_kept(place)]
        self.winners[key] = winner

    def divide(self, count: int) -> None:
        """Find parts of tensors from now on, as those that so many CTAs have of the tensors of a program before."""
        for tensor in self._whole:
            assert tensor.type is not None
            shape = tensor.type.shape
            for axis in (axis for axis, size in enumerate(shape) if size > 1 and size % count == 0):
                part = TensorType((*shape[:axis], shape[axis] // count, *shape[axis + 1 :]), tensor.type.element)
                self._divisions.setdefault(part, []).append((tensor, axis, count))
        self._whole = []

    def _divide_into(self, part: TensorType) -> None:
        """Find the parts of a type."""
        for tensor, axis, count in self._divisions.pop(part, ()):
            assert tensor.type is not None
            shape, size = tensor.type.shape, part.shape[axis]
            numbers = np.arange(math.prod(shape)).reshape(shape)
            for rank in range(count):
                index = list(self.index(part.shape))
                index[axis] = index[axis] + Sum.number(rank * size, 32)
                element = self.element(tensor, tensor.type, tuple(index))
                places = numbers.take(np.arange(rank * size, (rank + 1) * size), axis)
                self._parts.setdefault((part, identity_of(element)), (tensor, places.ravel(), element))

    def index(self, shape: tuple[int, ...]) -> Index:
        """The index of an unknown element of a tensor."""
        if shape not in self._indices:
            self._indices[shape] = tuple(self.along(axis, size) for axis, size in enumerate(shape))
        return self._indices[shape]

    def along(self, axis: int | str, size: int) -> Sum:
        """An unknown index of an axis, by its number or another name."""
        if size == 1:
            return Sum.number(0, 32)
        if size & size - 1:
            raise NotDecided("a tensor whose shape is no power of two")
        bits = size.bit_length() - 1
        place = Sum.of(z3.BitVec(f"index {axis} of {size}", bits))
        return self.domain.extended_to(place, 32, signed=False)

    def scalar(self, value: Any, type_: Type) -> Array:
        """The element of a scalar as an array. If the universe does not look at places, an element of a tensor of which
        it is made is not computed for it, but known by the tensor's number."""
        if isinstance(value, Tensor) and not self.places and self.domain.symbolic:
            return objects_of(self.element(value, type_, ()))
        return objects(forced(value), type_)

    def element(self, value: Any, type_: Type, index: Index) -> Element:
        """The element of a tensor, of a scalar, or of their arrays, at an index."""
        if not isinstance(value, Tensor):
            return self._of_array(value, type_, index)
        key = tuple(place.identity for place in index)
        if key not in value.elements:
            value.elements[key] = index, self._element(value, type_, index)
        return value.elements[key][1]

    def _element(self, tensor: Tensor, type_: Type, index: Index) -> Element:
        if tensor.at is not None:
            try:
                return tensor.at(index)
            except NotDecided:
                pass
        shape = shape_of(tensor.type or type_)
        places = [place.term for place, size in zip(index, shape, strict=True) if size > 1]
        element = self._named(tensor.number, element_of(type_), places, tensor.origins)
        if tensor.number in self.products and isinstance(element, Sum):
            self.leaves[element.term.get_id()] = self.products[tensor.number], index
        return element

    def _named(self, number: int, of: Type, places: list[Term], origins: Iterable[int] = ()) -> Element:
        """An element of which is known only of which tensor it is, and the place."""
        if isinstance(of, ScalarType):
            return self.domain.function(f"tensor {number} of {self.name}", places, of)
        (origin, *others) = origins
        if others:
            raise NotDecided("pointers to several arrays")
        return Pointer(origin, self.domain.function(f"tensor {number} of {self.name}", places, i64))

    def _of_array(self, array: Array, type_: Type, index: Index) -> Element:
        places = [(axis, place) for axis, place in enumerate(index) if array.ndim > 1 and array.shape[axis + 1] > 1]
        if not places:
            return objects(array, type_).flat[0]
        scalar = element_of(type_)
        if isinstance(scalar, ScalarType) and array.dtype != object and not scalar.is_float and scalar.bits > 1:
            first = array[(0,) * array.ndim]
            element = objects(array.flat[:1], type_)[0]
            whole: Array = np.full_like(array, first)
            for axis, place in places:
                step = array[tuple(int(axis + 1 == other) for other in range(array.ndim))] - first
                numbers: Array = np.arange(array.shape[axis + 1], dtype=array.dtype)
                whole += (numbers * step).reshape(-1, *(1,) * (array.ndim - axis - 2))
                wide = self.domain.exactly(place, scalar.bits) if scalar.bits > 32 else place
                wide = self.domain.resize(wide, i32, scalar, signed=False) if scalar.bits < 32 else wide
                element = element + wide.scaled(int(step))
            if np.array_equal(whole, array):
                return element
        number = self.tensor(("array", str(scalar), key_of(array)), lambda: array).number
        return self._named(number, scalar, [place.term for _, place in places], origins_of(array))

    def _counted(self, make: Callable[[], Any], count: int) -> Any:
        if self.computed + count > MOST:
            raise NotDecided(f"more than {MOST} elements would have to be compared")
        value = forced(make())
        self.computed += sum(array.size for array in (value if is_tuple(value) else (value,)))
        return value

    def place(self, value: Any) -> Any:
        """Pointers or a mask of an access. If the universe looks at `places`, ones with equal elements are one."""
        if not self.places or not isinstance(value, Tensor) or value.type is None:
            return value
        if value.number not in self._places:
            element = self.element(value, value.type, self.index(value.type.shape))
            element = self.domain.unwrapped(element) if isinstance(element, Bit) else element
            if isinstance(element, Bit) and self._holds(element.term):
                return np.ones((1,) * (len(value.type.shape) + 1), np.bool_)
            others = self._compared.setdefault(value.type, [])
            recent = reversed(others[-_COMPARED:]) if isinstance(element, Bit) else ()
            recent = (pair for pair in recent if self._symbols(pair[1].term) == self._symbols(element.term))
            alike = (other for other, also in recent if self._holds(element.term == also.term))
            self._places[value.number] = next(alike, value)
            if self._places[value.number] is value:
                others.append((value, element))
        return self._places[value.number]

    def moved(self, source: Tensor, shape: tuple[int, ...], places: Any, target: tuple[int, ...]) -> Tensor:
        """The tensor of another shape whose elements are those of `source`, which is of a shape, at some places."""
        source, shape, before = source.origin(shape)
        places = before[np.asarray(places, np.int64).ravel()]
        if shape == target and np.array_equal(places, np.arange(places.size, dtype=np.int64)):
            return source
        key = "moved", source.number, shape, places.tobytes(), target
        if key in self._tensors:
            return self._tensors[key]

        def make() -> Any:
            return np.broadcast_to(source.value, (1, *shape)).reshape(1, -1)[:, places].reshape(1, *target)

        def at(index: Index) -> Element:
            axes = _same_axes(places, shape, target)
            if axes is None or source.type is None:
                raise NotDecided("elements in another order")
            numbers = (Sum.number(first, 32) for first, _ in axes)
            place = tuple(
                number if axis is None else number + index[axis]
                for number, (_, axis) in zip(numbers, axes, strict=True)
            )
            return self.element(source, source.type, place)

        type_ = None if source.type is None else TensorType(target, source.type.element)
        tensor = self.tensor(key, make, source.origins, type_=type_, at=at)
        tensor.place_in(source, shape, places)
        rounding = self.rounded.get(source.number)
        if isinstance(rounding, Tensor):
            self.rounded[tensor.number] = self.moved(rounding, shape, places, target)
        if source.choice is not None:
            condition, *sides = source.choice
            then, otherwise = (
                self.moved(side, shape, places, target)
                if isinstance(side, Tensor)
                else np.broadcast_to(side, (1, *shape)).reshape(1, -1)[:, places].reshape(1, *target)
                for side in sides
            )
            tensor.choice = condition, then, otherwise
        return tensor

    def settled(self, condition: Bit, path: Bit) -> Bit:
        """A condition as it is where `path` holds: known, or one that was asked for before and is equivalent there."""
        if condition.known is not None:
            return condition
        key = condition.identity, path.identity
        if key not in self._settled:
            self._settled[key] = self._as_before(condition, path), path, condition
        return self._settled[key][0]

    def decided(self, condition: Bit, path: Bit) -> Bit:
        """A condition, or whether it holds, if it does or does not wherever `path` does."""
        key = condition.identity, path.identity
        if condition.known is None and key not in self._decided:
            related = path.term if self._symbols(path.term) & self._symbols(condition.term) else TRUE.term
            # False first: it ends a loop in runs that there are none of.
            sides = ((FALSE, ~condition), (TRUE, condition))
            stated = (answer for answer, side in sides if side.identity in path.parts)
            implied = (answer for answer, side in sides if self._holds(z3.Implies(related, side.term)))
            self._decided[key] = next(itertools.chain(stated, implied), condition), path, condition
        return condition if condition.known is not None else self._decided[key][0]

    def holds(self, path: Bit, condition: Bit, *, much: bool) -> bool:
        """Whether a condition is true where `path` is, as far as a little work tells, or much."""
        formula = z3.Implies(path.term, condition.term)
        if self._holds(formula) or not much:
            return self._holds(formula)
        solver = z3.Solver()
        solver.set("rlimit", MUCH)
        solver.add(*self._solver.assertions(), z3.Not(self._simpler(formula)))
        return solver.check() == z3.unsat

    def _symbols(self, formula: Term) -> frozenset[int]:
        """The unknown numbers and functions of a formula, by their numbers."""
        symbols, waiting = self._of_formula, [formula]
        while waiting:
            term = waiting[-1]
            children: list[Term] = [] if term.get_id() in symbols else term.children()
            first = [child for child in children if child.get_id() not in symbols]
            waiting += first
            if not first:
                waiting.pop()
                if term.get_id() not in symbols:
                    symbol = term.decl()
                    own = [symbol.get_id()] if symbol.kind() == z3.Z3_OP_UNINTERPRETED else []
                    symbols[term.get_id()] = frozenset(own).union(*(symbols[x.get_id()][0] for x in children)), term
        return symbols[formula.get_id()][0]

    def _as_before(self, condition: Bit, path: Bit) -> Bit:
        condition = self.decided(condition, path)
        if condition.known is not None or any(condition.identity == before.identity for before in self._conditions):
            return condition
        for before in reversed(self._conditions[-_COMPARED:]):
            if self._holds(z3.Implies(path.term, condition.term == before.term)):
                return before
        self._conditions.append(condition)
        return condition

    def _holds(self, formula: Term) -> bool:
        """Whether a formula is true whatever its products and quotients are, as far as a little work tells."""
        if formula.get_id() not in self._truths:
            self._truths[formula.get_id()] = self._proved(self._simpler(formula)), formula
        return self._truths[formula.get_id()][0]

    def _proved(self, formula: Term) -> bool:
        further = list(self.domain.facts.values())[self._premises :]
        if further:
            self._premises, self._examples = len(self.domain.facts), []
            self._solver.add(*map(self._simpler, further))
        for number, example in enumerate(self._examples):
            if z3.is_false(example.eval(formula, model_completion=True)):
                self._examples.insert(0, self._examples.pop(number))
                return False
        self._solver.push()
        self._solver.add(z3.Not(formula))
        solver = self._solver
        answer = solver.check()
        if answer == z3.unknown:  # It may be easy after the steps by which this one begins.
            solver = z3.Solver()
            solver.set("rlimit", _EFFORT)
            solver.add(*self._solver.assertions())
            answer = solver.check()
        if answer == z3.sat:
            self._examples = [solver.model(), *self._examples[: _EXAMPLES - 1]]
        self._solver.pop()
        return answer == z3.unsat

    def _simpler(self, formula: Term) -> Term:
        """A formula with unknown numbers instead of its products and quotients: true only if the formula is."""
        numbers: list[tuple[Term, Term]] = []
        visited: set[int] = set()
        waiting = [formula]
        while waiting:
            term = waiting.pop()
            number = term.get_id()
            if number in visited:
                continue
            visited.add(number)
            if number not in self._terms:
                hard = term.decl().kind() in _HARD and not any(map(z3.is_bv_value, term.children())) and term.num_args()
                self._terms[number] = term, z3.FreshConst(term.sort()) if hard else None, term.children()
            _, unknown, children = self._terms[number]
            if unknown is not None:
                numbers.append((term, unknown))
            else:
                waiting += children
        return z3.substitute(formula, *numbers)

    def initial(self, origin: int, size: int) -> Version:
        """An array as it is at first, of elements of some bytes."""
        key = "initial", origin, size
        if key not in self._versions:
            cells = Cells(self.domain, f"array {origin}", size)
            self._versions[key] = Version(len(self._versions), None, key, lambda cells: None, cells=cells)
        return self._versions[key]

    def written(self, parent: Version, key: Hashable, write: Callable[[Cells], Any], content: Any = None) -> Version:
        """An array after a write to it, of some content."""
        key = parent.number, key
        if key not in self._versions:
            self._versions[key] = Version(len(self._versions), parent, key[1], write, content)
        return self._versions[key]


def _same_axes(places: Any, shape: tuple[int, ...], target: tuple[int, ...]) -> list[tuple[int, int | None]] | None:
    """For each axis of a shape, the first coordinate, and the axis of `target` along which it rises, or None if it does
    not. None if elements are ordered in another way."""
    grid = list(np.indices(target).reshape(len(target), -1))
    unravel: Any = np.unravel_index  # Its stubs leave types unknown.
    coordinates: list[Array] = list(unravel(places, shape)) if shape else []
    axes: list[tuple[int, int | None]] = []
    for coordinate in coordinates:
        first = int(coordinate[0])
        along = coordinate - first
        alike: list[int | None] = [axis for axis, line in enumerate(grid) if np.array_equal(line, along)]
        if along.any() and not alike:
            return None
        axes.append((first, alike[0] if along.any() else None))
    return axes
