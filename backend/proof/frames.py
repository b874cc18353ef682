"""A program in some of its runs: values by the conditions that hold there, and joined where runs meet."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from ziggurat.backend.proof.elements import TRUE, Bit, Element
from ziggurat.backend.proof.solver import z3
from ziggurat.backend.proof.tensors import FEW, Index, Tensor, forced, key_of, objects, origins_of
from ziggurat.backend.proof.terms import Terms
from ziggurat.backend.proof.universe import Universe
from ziggurat.backend.reference.values import Array, Frame, is_array, is_tuple, over
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import ScalarType, TensorType, Type, element_of, find_scalar, i1, scalar_element

Literal = tuple[Array, bool]  # A condition, and whether it holds.


def is_known(value: Any) -> bool:
    """Whether all numbers of a value are known."""
    if is_tuple(value):
        return all(map(is_known, value))
    return not isinstance(value, Tensor) and (not is_array(value) or value.dtype != object)


def settled(array: Array, type_: Type) -> Array:
    """An array of elements; one of NumPy if all of them are known."""
    scalar = element_of(type_)
    if not isinstance(scalar, ScalarType) or any(z3.is_ast(e) or e.known is None for e in array.flat):
        return array
    plain: Any = np.frompyfunc(lambda element: element.known, 1, 1)(array)
    numbers = np.asarray(plain, object)
    return numbers.astype(np.bool_) if scalar.bits == 1 else numbers.astype(f"u{scalar.bytes}").view(scalar.dtype)


def lifted(function: Callable[..., Element], type_: Type, *arrays: Array) -> Array:
    """A function of elements, for each element of arrays of objects that broadcast. `type_` is that of the result."""
    result: Any = np.frompyfunc(function, len(arrays), 1)(*arrays)
    return settled(np.asarray(result, object), type_)


class SymbolicFrame(Frame):
    """The program, in those of its runs in which the literals of `path` hold, and the premise of all its runs."""

    __slots__ = ("_condition", "_where", "path", "premise", "universe")

    def __init__(
        self, universe: Universe, premise: Bit, path: tuple[Literal, ...], keys: Array, programs: Array,
        parent: Frame | None = None, index: Array | None = None,
    ) -> None:  # fmt: skip
        super().__init__(keys, programs, parent, index)
        self.universe = universe
        self.premise = premise
        self.path = path
        self._condition: Array | None = None
        self._where: Bit | None = None

    def within(self, path: tuple[Literal, ...]) -> SymbolicFrame:
        """The runs in which the literals of another path hold."""
        return SymbolicFrame(self.universe, self.premise, path, self.keys, self.programs, self)

    def lookup(self, value: Value) -> Any:
        return self.resolved(super().lookup(value))

    def fresh(self) -> Frame:
        return SymbolicFrame(self.universe, self.premise, self.path, self.keys, self.programs)

    def child(self) -> Frame:
        return self.within(self.path)

    def part(self, places: Array) -> Frame:
        return self.within(self.path)

    def elements(self, count: int) -> Frame:
        keys, index = np.arange(count), np.zeros(count, np.int64)
        return SymbolicFrame(self.universe, self.premise, self.path, keys, self.programs[index], self, index)

    @property
    def sides(self) -> dict[Hashable, bool]:
        """Whether each of the conditions holds in these runs, by its key."""
        return {key_of(condition): holds for condition, holds in self.path}

    def settled(self, condition: Array) -> Array:
        """A condition as it is in these runs, if it is a scalar."""
        if condition.size > 1:
            return condition
        result = np.empty(condition.shape, object)
        result[...] = self.universe.settled(condition.flat[0], self.where)
        return result

    @property
    def where(self) -> Bit:
        """The i1 that holds in these runs alone: the premise, and the literals."""
        where = self._where = self._where if self._where is not None else self.premise & self.condition[0]
        return where

    def decided(self, condition: Bit) -> Bit:
        """The condition as it is in these runs: known, if the premise and the literals tell."""
        where = self.where
        return condition if where.known else self.universe.decided(condition, where)

    def resolved(self, value: Any) -> Any:
        """A value as it is in these runs."""
        while isinstance(value, Tensor) and value.choice is not None and self.path:
            condition, then, otherwise = value.choice
            holds = self.sides.get(key_of(condition))
            if holds is None:
                break
            value = then if holds else otherwise
        return value

    @property
    def condition(self) -> Array:
        """The i1 that holds in these runs, for each row."""
        if self._condition is None:
            self._condition = condition_of(self.path)
        return self._condition

    def split(self, condition: Any) -> list[tuple[bool, Frame]]:
        elements = self.settled(self.universe.scalar(condition, i1))
        sides = {element.known for element in elements.flat}
        if sides in ({0}, {1}):
            return [(sides == {1}, self)]
        return [(side, self.within((*self.path, (elements, side)))) for side in (True, False)]

    def keep(self, value: Value, programs: Frame) -> None:
        content = programs.lookup(value)
        if value in self._values and isinstance(programs, SymbolicFrame) and programs.path != self.path:
            content = joined(self.universe, programs.condition, content, self._values[value])
        self.bind(value, content)

    def merge(self, parts: Sequence[tuple[Frame, Any]]) -> tuple[Frame, Any]:
        remaining = [(frame, value) for frame, value in parts if isinstance(frame, SymbolicFrame)]
        while len(remaining) > 1:
            # Two that differ in the last literal are all the runs without it.
            remaining.sort(key=lambda part: len(part[0].path))
            frame, value = remaining.pop()
            sibling = next((part for part in remaining if frame.complements(part[0])), None)
            if sibling is None:
                other, other_value = remaining.pop()
                value = joined(self.universe, frame.condition, value, other_value)
                either = frame.condition | other.condition
                remaining.append((self.within(((either, True),)), value))
            else:
                remaining.remove(sibling)
                condition, holds = frame.path[-1]
                sides = (value, sibling[1]) if holds else (sibling[1], value)
                remaining.append((self.within(frame.path[:-1]), joined(self.universe, condition, *sides)))
        frame, value = remaining[0]
        return self.within(frame.path), value

    def complements(self, other: SymbolicFrame) -> bool:
        """Whether the last literals are a condition and its opposite, and the others are the same."""
        if len(self.path) != len(other.path) or not self.path:
            return False
        pairs = list(zip(self.path, other.path, strict=True))
        alike = all(a is b and holds == also for (a, holds), (b, also) in pairs[:-1])
        (a, holds), (b, also) = pairs[-1]
        return alike and a is b and holds != also

    def excludes(self, path: tuple[Literal, ...]) -> bool:
        """Whether other literals contradict these."""
        sides = self.sides
        return any(sides.get(key_of(condition), holds) != holds for condition, holds in path)

    def implies(self, path: tuple[Literal, ...]) -> bool:
        """Whether other literals hold where these do."""
        sides = self.sides
        return all(sides.get(key_of(condition)) == holds for condition, holds in path)


def condition_of(path: tuple[Literal, ...]) -> Array:
    """The i1 that holds where all literals do."""
    result = np.full(1, TRUE, object)
    for condition, holds in path:
        result = result & (condition if holds else ~condition)
    return result


def joined(universe: Universe, condition: Array, then: Any, otherwise: Any) -> Any:
    """A value where a condition holds, and another one of the same type where it does not."""
    if is_tuple(then):
        return tuple(joined(universe, condition, a, b) for a, b in zip(then, otherwise, strict=True))
    keys = key_of(then), key_of(otherwise)
    if keys[0] == keys[1] or not (is_array(then) or isinstance(then, Tensor)):
        return then

    def make() -> Array:
        return _joined(universe.domain, condition, forced(then), forced(otherwise))

    sizes = [side.size for side in (then, otherwise) if not isinstance(side, Tensor)]
    if len(sizes) == 2 and max(sizes) <= FEW:
        return make()
    origins = origins_of(then) | origins_of(otherwise)
    type_ = next((side.type for side in (then, otherwise) if isinstance(side, Tensor)), None)

    def at(index: Index) -> Element:
        assert type_ is not None
        sides = [universe.element(side, type_, index) for side in (then, otherwise)]
        return universe.domain.choose(universe.element(condition, i1, ()), *sides)

    key = "joined", key_of(condition), *keys
    tensor = universe.tensor(key, make, origins, type_=type_, at=at if type_ and condition.size == 1 else None)
    tensor.choice = condition, then, otherwise
    return tensor


def _joined(domain: Terms, condition: Array, then: Array, otherwise: Array) -> Array:
    dtype = next((array.dtype for array in (then, otherwise) if array.dtype != object), None)
    scalar = None if dtype is None else find_scalar(dtype)
    if scalar is not None:
        then, otherwise = objects(then, scalar), objects(otherwise, scalar)
    result: Any = np.frompyfunc(domain.choose, 3, 1)(over(condition, then.ndim - 1), then, otherwise)
    return result if scalar is None else settled(result, scalar)


def replaced(universe: Universe, old: Any, new: Any, places: Array, type_: TensorType) -> Any:
    """The tensor of a type that has the elements of another one at some places, by their numbers."""
    scalar, shape = scalar_element(type_), (1, *type_.shape)
    base, parts = old, [(new, places)]
    if isinstance(old, Tensor) and old.parts is not None:
        others = [(value, at) for value, at in old.parts[1] if not np.isin(at, places).all()]
        if not any(np.isin(at, places).any() for _, at in others):
            base, parts = old.parts[0], sorted([*others, *parts], key=lambda part: int(part[1][0]))
    if sum(at.size for _, at in parts) == math.prod(shape):
        base = None
        if len({key_of(value) for value, _ in parts}) == 1:
            return new

    def make() -> Array:
        result = np.empty(shape, object)
        if base is not None:
            result[...] = objects(forced(base), scalar)
        for value, at in parts:
            result.flat[at] = np.broadcast_to(objects(forced(value), scalar), shape).flat[at]
        return settled(result, scalar)

    key = "parts", str(type_.without_layout()), key_of(base), *((key_of(value), at.tobytes()) for value, at in parts)
    tensor = universe.tensor(key, make, type_=type_)
    tensor.parts = base, parts
    return tensor
