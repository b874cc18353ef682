"""Arguments on which two models are run, to find where they differ."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import attrs
import numpy as np

from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.backend.reference.run import kernel_of, run
from ziggurat.backend.reference.values import Array, is_array
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.errors import ZigguratError
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import DescriptorType, PtrType, ScalarType, Type, of_floats

_DRAWS = 6
_SPECIALS = (np.nan, -0.0, np.inf, -np.inf, 0.0, 1.0, -2.5)  # Rules of real numbers are not true of them.
_ELEMENTS = 1 << 14  # Of an array: small sizes and strides stay inside.
_NUMBERS = (1, 16, 5, 64, 33, 128, 0, 100)  # Sizes, strides and the like.
# The same where the elements of arrays of integers have any bits. A loop to a negative number ends at once.
_WIDE = ((-1, 3, -7, 1), (3, -7, 1, -1), (-65537, -70000, 3, 1))
# Numbers with the elements of arrays that have no more: an access that only one model does is then outside.
_SHORT = ((5, 5), (5, 25), (33, 33))
_LOOSE = 1e-2  # Of the largest element: by how much sums in another order may differ.


@attrs.frozen(eq=False)
class Counterexample:
    """Arguments of a launch on which two models give unlike results: `zg.run(model, grid, *arguments)`.

    The array that is argument number `argument` has at `place` the elements `values` after the first and the second
    model; or the second model raises `error`; or the models print these `lines`.
    """

    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    argument: int = 0
    place: tuple[int, ...] = ()
    values: tuple[Any, Any] = (None, None)
    error: str = ""
    lines: tuple[str, str] = ("", "")

    def __str__(self) -> str:
        arguments = "\n".join(f"  argument {at}: {_text(value)}" for at, value in enumerate(self.arguments))
        first, second = self.values
        result = f"argument {self.argument} at {list(self.place)}: {first} after the first, {second} after the second"
        result = f"the second model fails: {self.error}" if self.error else result
        if self.lines[0] != self.lines[1]:
            result = f"the first model prints {self.lines[0]!r}, and the second {self.lines[1]!r}"
        return f"with the grid {self.grid} and\n{arguments}\n  {result}"


def _text(value: Any) -> str:
    host = _host(value)
    if not host.size:
        return repr(value)
    numbers = ", ".join(map(str, host.ravel()[:8].tolist()))
    return f"an array of shape {host.shape} and dtype {host.dtype}: [{numbers}{', …' if host.size > 8 else ''}]"


def draws(model: Op) -> Iterator[tuple[tuple[int, ...], tuple[Any, ...]]]:
    """Grids and arguments for a Triton model, always the same; none for a model whose parameters are parts of
    arguments."""
    _, kernel = kernel_of(model)
    if isinstance(kernel, tt.Func) and kernel.parts:
        return
    types = [parameter.type for parameter in kernel.bodies[0].parameters]
    axes = [op.axis for op in kernel.walk() if isinstance(op, tt.GetProgramId | tt.GetNumPrograms)]
    grid = tuple(2 if axis in axes else 1 for axis in range(1 + max(axes, default=0)))
    special = 0 if combines(model) or not has_floats(model) else len(_SPECIALS)
    ways: list[tuple[Sequence[int], int]] = [(_NUMBERS[at:] + _NUMBERS[:at], _ELEMENTS) for at in range(_DRAWS)]
    ways += [((number,), size) for number, size in _SHORT]
    ways += [(numbers, _ELEMENTS) for numbers in _WIDE]
    ways += [(_NUMBERS, _ELEMENTS)] * special
    for draw, (numbers, size) in enumerate(ways):
        place = draw - (len(ways) - special)
        yield grid, tuple(map(_Draw(
            np.random.default_rng(draw), itertools.cycle(numbers), size, whole=draw % 2 == 0, wide=min(numbers) < 0,
            special=place if place >= 0 else None,
        ).argument, types))  # fmt: skip


@attrs.frozen
class _Draw:
    """How arguments are drawn: numbers in turn, and arrays of `size` elements. Floats are `whole` numbers, whose sums
    are exact, or not, or `special` from some place on. Integers have any bits if they are `wide`."""

    generator: np.random.Generator
    numbers: Iterator[int]
    size: int
    whole: bool
    wide: bool
    special: int | None

    def argument(self, type_: Type) -> Any:
        if isinstance(type_, DescriptorType):
            unit = 16 // type_.element.bytes
            shape = [2 * size + 3 for size in type_.block[:-1]] + [2 * type_.block[-1] + unit]
            return TensorDescriptor(self._array(tuple(shape), type_.element), type_.block)
        if isinstance(type_, PtrType):
            return self._array((self.size,), type_.pointee)
        assert isinstance(type_, ScalarType)
        number = next(self.numbers)
        if type_.is_float:
            return number / 4
        return number % 2 if type_.bits == 1 else number if type_.signed else abs(number)

    def _array(self, shape: tuple[int, ...], scalar: ScalarType) -> Array:
        if scalar.is_float and self.special is not None:
            places = self.special + np.arange(np.prod(shape)) * (1 + self.special % 3)
            return np.resize(np.take(_SPECIALS, places, mode="wrap"), shape).astype(scalar.dtype)
        if scalar.is_float and not self.whole:
            return self.generator.standard_normal(shape).astype(scalar.dtype)
        if self.wide and scalar.bits > 1 and not scalar.is_float:
            return self.generator.integers(0, 256, (*shape, scalar.bytes), np.uint8).view(scalar.dtype)[..., 0]
        low = -4 if scalar.signed and scalar.bits > 1 else 0
        return self.generator.integers(low, 5 if scalar.bits > 1 else 2, shape).astype(scalar.dtype)


def difference(model_a: Op, model_b: Op, grid: tuple[int, ...], arguments: Sequence[Any]) -> Counterexample | None:
    """How two models differ on some arguments; None where they do not, where the first one fails, or where a model
    reads the clock, which shows other times in each run."""
    if any(isinstance(op, tt.GlobalTimer) for model in (model_a, model_b) for op in model.walk()):
        return None
    results: list[list[Array]] = []
    lines = ["", ""]
    for number, model in enumerate((model_a, model_b)):
        copies = [_copy(value) for value in arguments]
        try:
            with redirect_stdout(StringIO()) as stream:
                run(model, None, grid, copies)
            lines[number] = stream.getvalue()
        except ZigguratError as error:
            if not results:
                return None
            return Counterexample(grid, tuple(arguments), error=error.summary)
        results.append([_host(value) for value in copies])
    loose = combines(model_a) or combines(model_b)
    if lines[0] != lines[1] and not loose:
        return Counterexample(grid, tuple(arguments), lines=(lines[0], lines[1]))
    for at, (first, second) in enumerate(zip(*results, strict=True)):
        wrong = _unlike(first, second, loose=loose)
        if wrong.any():
            place = tuple(int(index) for index in np.argwhere(wrong)[0])
            values = first[place].item(), second[place].item()
            return Counterexample(grid, tuple(arguments), at, place, values)
    return None


def has_floats(model: Op) -> bool:
    """Whether there are floats among the values of a model."""
    return any(of_floats(op.result.type) for op in model.walk())


def combines(model: Op) -> bool:
    """Whether a model combines floats in an order that is open."""
    return any(
        isinstance(op, tt.Reduce | tt.Scan | tt.Dot | tt.AtomicRMW | tt.DescriptorReduce | maths.Exp)
        for op in model.walk()
    )


def _host(value: Any) -> Array:
    host: Any = value.host if isinstance(value, TensorDescriptor) else value
    return host if is_array(host) else np.zeros(0)


def _copy(value: Any) -> Any:
    if isinstance(value, TensorDescriptor):
        return TensorDescriptor(_host(value).copy(), value.block, padding=value.padding)
    return value.copy() if is_array(value) else value


def _unlike(first: Array, second: Array, *, loose: bool) -> Array:
    if first.dtype.kind in "iub":
        return np.not_equal(first, second)
    with np.errstate(invalid="ignore"):  # NumPy warns of NaN that signal.
        a, b = first.astype(np.float64), second.astype(np.float64)
    both_nan = np.isnan(a) & np.isnan(b)
    if not loose:
        return ((a != b) | (np.signbit(a) != np.signbit(b))) & ~both_nan
    largest = float(np.abs(a[np.isfinite(a)]).max(initial=0))
    finite = np.isfinite(a) & np.isfinite(b)
    return np.where(finite, np.abs(np.where(finite, a - b, 0)) > _LOOSE * largest, ~((a == b) | both_nan))
