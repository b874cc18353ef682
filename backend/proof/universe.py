"""Values of a run on unknown inputs, computed once and only where they are needed.

A value that has few elements, or of which all are known, is an array. Any other tensor is a `Tensor`: the op that makes
it, on which operands. Two tensors that are made alike are one object, in all runs of a universe: so most of two models
is found equal without a look at an element. The memory of an array is a chain of versions, likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any

import numpy as np

from ziggurat.backend.proof.cells import Cells
from ziggurat.backend.proof.solver import z3
from ziggurat.backend.proof.terms import FALSE, TRUE, Bit, NotDecided, Pointer, Term, Terms, identity_of
from ziggurat.backend.reference.values import is_array, is_tuple

_COMPARED = 12  # Conditions that a new one is compared with.
_EFFORT = 200_000  # Units of the solver's work on one of these comparisons: some milliseconds.
MOST = 100_000  # Elements that a universe computes one by one.
FEW = 16  # Elements of an array that are computed at once.


def coordinates() -> Iterable[Term]:
    """What holds of the coordinates of programs."""
    for axis in range(3):
        number, count = z3.BitVec(f"program {axis}", 32), z3.BitVec(f"programs {axis}", 32)
        yield z3.And(number >= 0, number < count)


class Tensor:
    """A value by the way it is made. `origins` are the arrays to which its elements point, if they are pointers. A
    `choice` is a scalar condition, and the values if it holds and if not. What is `moved` is made of the elements of
    another tensor: that, its shape, and the number there of each element."""

    __slots__ = ("_make", "_value", "choice", "moved", "number", "origins")

    def __init__(self, number: int, make: Callable[[], Any], origins: frozenset[int]) -> None:
        self.number = number
        self.origins = origins
        self.choice: tuple[Any, Any, Any] | None = None
        self.moved: tuple[Tensor, tuple[int, ...], Any] | None = None
        self._make = make  # It keeps the terms, whose numbers no other ones get.
        self._value: Any = None

    @property
    def value(self) -> Any:
        """The array, or the tuple of values."""
        if self._value is None:
            self._value = forced(self._make())
        return self._value


def forced(value: Any) -> Any:
    """A value with its tensors as arrays."""
    if isinstance(value, Tensor):
        return value.value
    return tuple(map(forced, value)) if is_tuple(value) else value


def key_of(value: Any) -> Hashable:
    """Values with equal keys are equal."""
    if isinstance(value, Tensor):
        return value.number
    if is_tuple(value):
        return tuple(map(key_of, value))
    if not is_array(value):
        return value
    if value.dtype == object:
        return value.shape, tuple(map(identity_of, value.flat))
    return value.dtype.str, value.shape, value.tobytes()


def origins_of(value: Any) -> frozenset[int]:
    """The arrays to which pointers point."""
    if isinstance(value, Tensor):
        return value.origins
    if is_tuple(value):
        return frozenset[int]().union(*map(origins_of, value))
    if not is_array(value) or value.dtype != object:
        return frozenset()
    return frozenset(element.origin for element in value.flat if isinstance(element, Pointer))


class Version:
    """The contents of an array after some writes."""

    def __init__(
        self, number: int, parent: Version | None, write: Callable[[Cells], Any], cells: Cells | None = None
    ) -> None:
        self.number = number
        self._parent = parent
        self._write = write
        self._cells = cells
        self.result: Any = None
        """What the last write gives: an atomic, what was there."""

    def cells(self) -> Cells:
        """The contents, element by element."""
        waiting: list[Version] = []
        version: Version | None = self
        while version is not None and version._cells is None:
            waiting.append(version)
            version = version._parent
        for version in reversed(waiting):
            assert version._parent is not None and version._parent._cells is not None
            version._cells = version._parent._cells.copy()
            version.result = version._write(version._cells)
        assert self._cells is not None
        return self._cells


class Universe:
    """All tensors and versions of some runs, by the way they are made, and the domain of their elements. If it
    `contracts`, a product that is added or subtracted may be rounded or not. If it looks at `places`, the elements of
    pointers and masks are computed at each access: which of them are equal is then found however they are made."""

    def __init__(self, domain: Terms | None = None, *, contracts: bool = False, places: bool = False) -> None:
        self.contracts = contracts
        self.places = places
        self._places: dict[Hashable, Tensor] = {}
        self.domain = Terms() if domain is None else domain
        self._tensors: dict[Hashable, Tensor] = {}
        self._versions: dict[Hashable, Version] = {}
        self.computed = 0  # Elements of tensors, one by one.
        self._conditions: list[Bit] = []
        self._settled: dict[Hashable, tuple[Bit, Term, Bit]] = {}
        # What a reduction has combined, by its result: the function, the elements, and the result.
        self.combined: dict[Hashable, tuple[Hashable, list[Any], Any]] = {}

    def tensor(self, key: Hashable, make: Callable[[], Any], origins: Iterable[int] = ()) -> Tensor:
        """The tensor with a key, which `make` makes."""
        tensor = self._tensors.get(key)
        if tensor is None:
            tensor = self._tensors[key] = Tensor(len(self._tensors), partial(self._counted, make), frozenset(origins))
        return tensor

    def _counted(self, make: Callable[[], Any]) -> Any:
        if self.computed > MOST:
            raise NotDecided(f"more than {MOST} elements would have to be compared")
        value = forced(make())
        self.computed += sum(array.size for array in (value if is_tuple(value) else (value,)))
        return value

    def place(self, value: Any) -> Any:
        """Pointers or a mask of an access. If the universe looks at `places`, ones with equal elements are one."""
        if not self.places or not isinstance(value, Tensor):
            return value
        return self._places.setdefault(key_of(value.value), value)

    def moved(self, source: Tensor, shape: tuple[int, ...], places: Any, target: tuple[int, ...]) -> Tensor:
        """The tensor of another shape whose elements are those of `source`, which is of a shape, at some places."""
        places = np.asarray(places, np.int64).ravel()
        if source.moved is not None:
            source, shape, before = source.moved
            places = np.take(before, places)
        if shape == target and np.array_equal(places, np.arange(places.size, dtype=np.int64)):
            return source

        def make() -> Any:
            return np.broadcast_to(source.value, (1, *shape)).reshape(1, -1)[:, places].reshape(1, *target)

        tensor = self.tensor(("moved", source.number, shape, places.tobytes(), target), make, source.origins)
        tensor.moved = source, shape, places
        return tensor

    def settled(self, condition: Bit, path: Term) -> Bit:
        """A condition as it is where `path` holds: known, or one that was asked for before and is equivalent there."""
        if condition.known is not None:
            return condition
        key = condition.identity, path.get_id()
        if key not in self._settled:
            self._settled[key] = self._as_before(condition, path), path, condition
        return self._settled[key][0]

    def _as_before(self, condition: Bit, path: Term) -> Bit:
        if any(condition.identity == before.identity for before in self._conditions):
            return condition
        # False first: it ends a loop in runs that there are none of.
        for known in (FALSE, TRUE, *reversed(self._conditions[-_COMPARED:])):
            if self._holds(z3.Implies(path, condition.term == known.term)):
                return known
        self._conditions.append(condition)
        return condition

    def _holds(self, formula: Term) -> bool:
        """Whether a formula of scalars is true, as far as a little work tells."""
        solver = z3.Solver()
        solver.set("rlimit", _EFFORT)
        solver.add(*coordinates(), z3.Not(formula))
        return solver.check() == z3.unsat

    def initial(self, origin: int, size: int) -> Version:
        """An array as it is at first, of elements of some bytes."""
        key = "initial", origin, size
        if key not in self._versions:
            cells = Cells(self.domain, f"array {origin}", size)
            self._versions[key] = Version(len(self._versions), None, lambda cells: None, cells)
        return self._versions[key]

    def written(self, parent: Version, key: Hashable, write: Callable[[Cells], Any]) -> Version:
        """An array after a write to it."""
        key = parent.number, key
        if key not in self._versions:
            self._versions[key] = Version(len(self._versions), parent, write)
        return self._versions[key]


def is_few(value: Any) -> bool:
    """Whether a value is to be computed at once: an array of few elements, or one that is known."""
    if is_tuple(value):
        return all(map(is_few, value))
    return not isinstance(value, Tensor) and (not is_array(value) or value.dtype != object or value.size <= FEW)
