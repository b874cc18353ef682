"""The values that one program of a launch has, at any tier, from the reference interpreter; in a form for a page."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ziggurat.backend.reference.argument_memory import Memory, real_addresses
from ziggurat.backend.reference.marks import undefined_elements
from ziggurat.backend.reference.run import watch
from ziggurat.backend.reference.values import Array, expand, is_array, plain
from ziggurat.codemodel.errors import ZigguratError
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import PtrType, ScalarType, TensorType, Type, element_of, shape_of

EXECUTIONS = 16  # Of an op in a loop, from the first: the others have no values on the page.
_ROWS, _COLUMNS = 16, 8  # The elements of a tensor that a page shows.

Entry = dict[str, Any]


class ValueTable:
    """The different values of a page: each stands there once, however many ops and passes have it."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._numbers: dict[tuple[str, bytes], int] = {}

    def number(self, type_: Type, content: Any, memory: Memory) -> int | None:
        """The number of a value of a type; None for one without elements, such as a buffer."""
        undefined = undefined_elements(content, shape_of(type_))
        content, element = plain(content), element_of(type_)
        if not is_array(content) or not isinstance(element, ScalarType | PtrType):
            return None
        array: Array = expand(content[:1], shape_of(type_))[0]
        packed = np.ascontiguousarray(content[0])
        # The layout of a tensor is none of its value.
        kind = f"{element}{list(shape_of(type_))}"
        marks = b"" if undefined is None else undefined.tobytes()
        key = (
            kind,
            hashlib.blake2b(packed.tobytes() + marks, digest_size=8).digest() + bytes(map(_is_one, packed.shape)),
        )
        if key not in self._numbers:
            self._numbers[key] = len(self.entries)
            self.entries.append(_entry(element, array, memory))
            if undefined is not None:
                _mark(self.entries[-1], undefined)
        return self._numbers[key]


def _is_one(size: int) -> bool:
    return size == 1


def _mark(entry: Entry, undefined: Array) -> None:
    """Mark the undefined elements among those that a page shows."""
    entry["undefined"] = int(undefined.sum())
    marks = _part(undefined)
    entry["rows"] = [
        [f"{text}?" if mark else text for text, mark in zip(*row, strict=True)]
        for row in zip(entry["rows"], marks, strict=True)
    ]


def _part(array: Array) -> Array:
    """The elements of an array that a page shows, in rows. A vector stands in lines, as text."""
    width = array.shape[-1] if array.ndim > 1 and array.shape[-1] > 1 else min(array.size, _COLUMNS)
    return array.reshape(-1, width)[:_ROWS, :_COLUMNS]


def _entry(element: ScalarType | PtrType, array: Array, memory: Memory) -> Entry:
    """What a page shows of a value: its shape, some elements, and the extent of all."""
    part = _part(array)
    entry: Entry = {"element": str(element), "shape": list(array.shape)}
    if isinstance(element, PtrType):
        size = element.pointee.bytes
        return entry | {"rows": [[_pointer(int(p), size, memory) for p in row] for row in part]}
    numbers = array.astype(np.float64) if element.is_float else array
    finite = numbers[np.isfinite(numbers)] if element.is_float else numbers
    if finite.size:
        entry["least"], entry["most"] = _number(finite.min()), _number(finite.max())
        if element.bits > 1:
            entry["mean"] = f"{float(finite.mean(dtype=np.float64)):.6g}"
    if element.is_float:
        counts = {"nan": int(np.isnan(numbers).sum()), "inf": int(np.isinf(numbers).sum())}
        entry |= {name: count for name, count in counts.items() if count}
    elif element.bits == 1:
        entry["true"] = int(numbers.sum())
    return entry | {"rows": [[_number(number) for number in row] for row in part]}


def _number(number: Any) -> str:
    value = number.item()
    return f"{value:.6g}" if isinstance(value, float) else str(int(value))


def _pointer(pointer: int, size: int, memory: Memory) -> str:
    """A pointer as an element of an argument's memory, counted from its first."""
    argument = memory.argument_of(pointer)
    if argument is None:
        return hex(pointer)
    offset = int(real_addresses(np.asarray(pointer))) - argument.address
    return f"{argument.name} + {offset // size}" if offset % size == 0 else f"{argument.name} + {offset} bytes"


def values_of(
    model: Op, grid: tuple[int, ...], arguments: Sequence[Any], names: Sequence[str], program: int, table: ValueTable,
    *, tolerant: bool, seconds: float = math.inf, undefined: bool = False,
) -> tuple[dict[Value, list[int]], str]:  # fmt: skip
    """The numbers of the values that a program of a launch gives to each value of a model, in its order; and what has
    stopped it, "" if nothing.

    The program runs alone, on the arrays as they are. Of two CTAs of a program, the values are the first one's. With
    `undefined`, for a Triton model, undefined elements are marked.
    """
    numbers: dict[Value, list[int]] = {}

    def see(memory: Memory, value: Value, content: Any) -> None:
        if isinstance(value.type, TensorType | ScalarType | PtrType):
            ids = numbers.setdefault(value, [])
            number = table.number(value.type, content, memory) if len(ids) < EXECUTIONS else None
            if number is not None:
                ids.append(number)

    try:
        watch(
            model, grid, arguments, program, see, names=names, tolerant=tolerant, seconds=seconds, undefined=undefined
        )
    except TimeoutError:
        return numbers, f"the program was stopped after {seconds:.0f} s"
    except ZigguratError as error:
        return numbers, error.summary
    return numbers, ""
