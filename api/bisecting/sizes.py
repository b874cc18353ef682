"""Smaller sizes that still show a fault: of the grid, of the blocks, of the numbers and of the arrays of a launch."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np

from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.bisecting.steps import Launch
from ziggurat.codemodel.errors import ZigguratError
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.text.writer import to_text
from ziggurat.codemodel.types import TensorType, shape_of
from ziggurat.codemodel.verify import verify

Candidate = tuple[Op, Launch]


def shrunk(model: Op, launch: Launch, fails: Callable[[Op, Launch], bool], seconds: float) -> Candidate:
    """A Triton model and its launch of smaller sizes that fail as well. `fails` takes a valid model; it is false for a
    launch that goes wrong by itself. The first halves of arrays are kept, and the first programs."""
    until = time.monotonic() + seconds
    best, previous = (model, launch), None
    while best is not previous:
        previous = best
        for change in _changes(*best):
            # A change that has gone well is tried again: sizes are halved until the fault is gone.
            while time.monotonic() < until and (candidate := change(*best)) is not None and fails(*candidate):
                best = candidate
    return best


def _changes(model: Op, launch: Launch) -> Iterator[Callable[[Op, Launch], Candidate | None]]:
    """The ways to make a launch smaller, the most drastic ones first."""
    for axis in range(3):
        yield lambda m, n, axis=axis: _with_grid(m, n, axis, 1)
        yield lambda m, n, axis=axis: _with_grid(m, n, axis, n.grid[axis] // 2)
    types = (value.type for op in model.walk() for value in (op.result,))
    sizes = {size for type_ in types if isinstance(type_, TensorType) for size in shape_of(type_)}
    for size in sorted(sizes, reverse=True):
        yield _halving(size)
    for number, value in enumerate(launch.arguments):
        if isinstance(value, np.ndarray | TensorDescriptor):
            yield lambda m, n, at=number: _with_array(m, n, at)
        elif type(value) is int:
            yield lambda m, n, at=number: _with_number(m, n, at)


def _with_grid(model: Op, launch: Launch, axis: int, size: int) -> Candidate | None:
    if not 0 < size < launch.grid[axis]:
        return None
    x, y, z = (size if number == axis else old for number, old in enumerate(launch.grid))
    return model, attrs.evolve(launch, grid=(x, y, z))


def _halving(size: int) -> Callable[[Op, Launch], Candidate | None]:
    """Blocks of half the size along each axis of this size, by the text: in types, in ranges, and in numbers."""

    def change(model: Op, launch: Launch) -> Candidate | None:
        nonlocal size
        if size < 2:
            return None
        new = size // 2
        text = to_text(model)
        text = re.sub(rf"\bx{size}\b(?=[,>])", f"x{new}", text)
        text = re.sub(rf"(@end=|arith\.constant @){size}(?=[ ;])", rf"\g<1>{new}", text)
        text = re.sub(r"@shape=\[[^\]]*\]", lambda m: re.sub(rf"\b{size}\b", str(new), m[0]), text)
        size = new
        try:
            smaller = parse(text)
            verify(smaller)
        except ZigguratError:
            return None
        return smaller, launch

    return change


def _with_number(model: Op, launch: Launch, at: int) -> Candidate | None:
    half = launch.arguments[at] // 2
    return (model, _with_argument(launch, at, half)) if launch.arguments[at] > 1 else None


def _with_array(model: Op, launch: Launch, at: int) -> Candidate | None:
    value = launch.arguments[at]
    array: Any = value.host if isinstance(value, TensorDescriptor) else value
    if array.ndim == 0 or len(array) < 2:
        return None
    half = array[: len(array) // 2]
    return model, _with_argument(launch, at, TensorDescriptor(half, value.block) if array is not value else half)


def _with_argument(launch: Launch, at: int, value: Any) -> Launch:
    arguments = [value if number == at else old for number, old in enumerate(launch.arguments)]
    return attrs.evolve(launch, arguments=arguments)
