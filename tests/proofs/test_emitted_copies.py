"""The PTX of TMA: each element of a block is copied once, between its places in the tensor and in the buffer.

The unit that copies is taken to do what the PTX ISA says: a box has its rows one after the other, with chunks of 16
bytes swizzled by bits of the address ("Tensors", "Swizzling Modes").
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import z3
from emitted_threads import prove_defined, run
from planted import Fault, edit, must_find
from proving import Refuted, prove

from ziggurat.backend.ptx import tma
from ziggurat.codemodel.gpu import fragments
from ziggurat.codemodel.layout import bits_of, combine, inverted
from ziggurat.codemodel.types import SCALARS, DescriptorType, SharedType, i1, i32
from ziggurat.transforms.layouts.tma_blocks import buffer_for, panels_of_block


def prove_boxes(name: str, block: tuple[int, ...], *, stores: bool) -> None:
    """Copies of a block at any coordinates."""
    type_, rank = DescriptorType(block, SCALARS[name]), len(block)
    size, rows = type_.element.bytes, type_.rows
    buffer = SharedType(rows, type_.element, tuple(1 << bit for bit in range(bits_of(math.prod(rows)))))
    if panels_of_block(type_) is not None:
        buffer, _ = buffer_for(type_)
    types: dict[str, Any] = {"%0": type_, "%1": buffer, **{f"%{2 + axis}": i32 for axis in range(rank)}}
    coordinates = " ".join(f"%{2 + axis}" for axis in range(rank))
    if stores:
        line = f"gpu.tma_store %0 %1 {coordinates};"
    else:
        types |= {f"%{2 + rank}": SharedType((1,), SCALARS["i64"], ()), f"%{3 + rank}": i1}
        line = f"gpu.tma_load %0 %1 %{2 + rank} %{3 + rank} {coordinates};"
    text = run(line, types)
    prove_defined(text.execution)
    ((assembly, operands),) = text.execution.copies
    ((place_of_buffer,), *starts) = text.parameters[1 : 2 + rank]
    box, swizzle = fragments.box_and_swizzle(type_)
    elements: set[tuple[int, ...]] = set()
    for copy in re.findall(r"@go (?:cp\S+bulk\.tensor\S+) (.*);", assembly):
        address, axes = re.search(r"\[\$(\d+)\+(\d+)\]", copy), re.search(r"\{([^}]*)\}", copy)
        assert address is not None and axes is not None
        prove(operands[int(address[1])] == place_of_buffer)
        own = [operands[int(axis)] for axis in re.findall(r"\$(\d+)", axes[1])][::-1]  # From the innermost one.
        offsets = [z3.simplify(place - start) for place, (start,) in zip(own, starts, strict=True)]
        if not all(map(z3.is_bv_value, offsets)):
            raise Refuted(f"a box is at {own}")
        corner = [offset.as_long() for offset in offsets]
        for number, within in enumerate(itertools.product(*map(range, box))):
            at = int(address[2]) + number * size
            target = at ^ (at >> 7 & swizzle // 16 - 1) << 4 if swizzle else at
            element = tuple(a + b for a, b in zip(corner, within, strict=True))
            flat = 0
            for side, index in zip(block, element, strict=True):
                flat = flat * side + index
            if element in elements or combine(inverted(buffer.offsets), flat) * size != target:
                raise Refuted(f"the element {element} of {block} is copied at byte {target}")
            elements.add(element)
    if len(elements) != math.prod(block):
        raise Refuted(f"{len(elements)} elements of {block} are copied")


BLOCKS = [
    ("f16", (64, 128)), ("f16", (16, 32)), ("f32", (8, 64)), ("i8", (512, 32)), ("f16", (64, 8)), ("f64", (32, 64)),
    ("f16", (4, 8, 64)),
]  # fmt: skip


@pytest.mark.parametrize("stores", [False, True])
@pytest.mark.parametrize(("name", "block"), BLOCKS)
def test_boxes(name: str, block: tuple[int, ...], stores: bool) -> None:
    prove_boxes(name, block, stores=stores)


FAULTS: list[tuple[Fault, Callable[[], object]]] = [
    (edit(tma._boxes, "(j * height + i) *", "(2 * j + i) *"), lambda: prove_boxes("i8", (1024, 256), stores=True)),
    (edit(tma._boxes, "number * step", "number * count"), lambda: prove_boxes("f16", (64, 128), stores=True)),
    (edit(tma._boxes, "for i in range(own[0])", "for i in range(1)"),
     lambda: prove_boxes("i8", (512, 32), stores=False)),
    (edit(tma._store, "[$1+{byte}]", "[$1+0]"), lambda: prove_boxes("f16", (64, 128), stores=True)),
    (edit(tma._load, "_boxes(emitter, op, 3)", "_boxes(emitter, op, 2)"),
     lambda: prove_boxes("f16", (64, 128), stores=False)),
    (edit(fragments.Panels.offsets, "self.width // 128) %", "self.width // 64) %"),
     lambda: prove_boxes("f16", (64, 128), stores=False)),
]  # fmt: skip

test_planted_faults = must_find(FAULTS)
