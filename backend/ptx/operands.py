"""The operands of mma.sync: from the registers of a tensor in fragments, or by ldmatrix from shared memory.

ldmatrix moves matrices of 8 rows of 16 bytes. One lane gives the address of each row, and every lane gets 32 bits of
the fragment. Elements may have any size where rows go along k, and 16 bits, with `.trans`, where they go across it (PTX
manual, "ldmatrix").
"""

from __future__ import annotations

from collections.abc import Sequence

from ziggurat.backend.ptx.emitter import READS, Emitter, spread
from ziggurat.backend.ptx.routines import llvm_type
from ziggurat.backend.ptx.tiles import Tiles, places_a, places_b, registers_of
from ziggurat.backend.ptx.words import SHARED, group
from ziggurat.codemodel.gpu.fragments import byte_of, panels_of
from ziggurat.codemodel.layout import bits_of
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import ScalarType, SharedType, TensorType
from ziggurat.transforms.place.queries import shared_of


class Packed:
    """The registers of an operand for the matrix units: `pack` elements in 32 bits, or one f64."""

    def __init__(self, emitter: Emitter, value: Value) -> None:
        assert isinstance(value.type, TensorType) and isinstance(value.type.element, ScalarType)
        self.emitter = emitter
        self.values = emitter.tensor(value)
        element = value.type.element
        self.element = llvm_type(element)
        self.pack = max(1, 32 // element.bits)
        self.kind = "double" if element.bits == 64 else "i32"
        self._made: dict[tuple[int, ...], str] = {}

    def registers(self, numbers: Sequence[int]) -> list[str]:
        """The values of an instruction's operand, given the register numbers of its elements."""
        return [self._one(tuple(numbers[at : at + self.pack])) for at in range(0, len(numbers), self.pack)]

    def _one(self, numbers: tuple[int, ...]) -> str:
        if numbers not in self._made:
            self._made[numbers] = self._make([self.values[number] for number in numbers])
        return self._made[numbers]

    def _make(self, elements: list[str]) -> str:
        if self.kind == "double":
            return elements[0]
        if len(elements) == 1:
            return self.emitter.emit(f"bitcast {self.element} {elements[0]} to i32")
        vector = f"<{len(elements)} x {self.element}>"
        result = "poison"
        for at, element in enumerate(elements):
            result = self.emitter.emit(f"insertelement {vector} {result}, {self.element} {element}, i32 {at}")
        return self.emitter.emit(f"bitcast {vector} {result} to i32")


class _InRegisters:
    """An operand in registers, in the layout of fragments."""

    def __init__(self, emitter: Emitter, value: Value, tiles: Tiles, *, first: bool) -> None:
        type_ = value.type
        assert isinstance(type_, TensorType) and type_.layout is not None
        self.packed = Packed(emitter, value)
        self.kind = self.packed.kind
        self.places = registers_of(type_.layout)
        columns = type_.shape[-1]
        self.along = (columns, 1) if first else (1, columns)  # Steps across and along k.
        self.matrix = type_.shape[-2] * columns
        unit = tiles.unit
        self.elements = places_a(unit) if first else [(column, k) for k, column in places_b(unit)]

    def part(self, line: int, k: int, batch: int = 0) -> list[str]:
        """The registers for the rows (or columns) from `line` on, at `k`, of a matrix of a batch."""
        step, step_k = self.along
        start = batch * self.matrix + line * step + k * step_k
        numbers = [self.places[start + across * step + depth * step_k] for across, depth in self.elements]
        return self.packed.registers(numbers)


class _InShared:
    """An operand in shared memory, four matrices of 8 rows at a time."""

    kind = "i32"

    def __init__(self, emitter: Emitter, value: Value, tiles: Tiles, *, first: bool) -> None:
        type_ = shared_of(value)
        panels = panels_of(type_, 1 if first else 0)
        assert panels is not None
        self.emitter = emitter
        self.type = type_
        self.first = first
        self.unit = unit = tiles.unit
        self.trans = "" if panels.k_major else ".trans"
        self.address = emitter.emit(f"ptrtoint {SHARED} {emitter.scalar(value)} to i32")
        self._starts: dict[int, str] = {}
        self._parts: dict[tuple[int, int, int], list[str]] = {}
        half = unit.k // 2
        # Two parts of b are loaded at once: the next columns if there are any, else the next along k.
        self.next = (0, 0)
        if not first:
            self.next = (unit.n, 0) if len(tiles.columns) > 1 else (0, unit.k) if len(tiles.depths) > 1 else (0, 0)
        # The moves by the bits of the lane's number: the row within a matrix, and the number of the matrix.
        rows = [(1 << bit, 0) if panels.k_major else (0, 1 << bit) for bit in range(3)]
        matrices = [(8, 0), (0, half)] if first else [(0, half), self.next]
        count = tiles.warps.rows if first else tiles.warps.columns
        step = unit.m if first else tiles.n // tiles.warps.columns
        own = [self._byte(step << bit, 0) for bit in range(bits_of(count))]
        shared = [0] * bits_of(tiles.warps.columns if first else tiles.warps.rows)
        batches = [self._byte(0, 0, 1 << bit) for bit in range(bits_of(tiles.warps.batches))]
        warps = [*own, *shared, *batches] if first else [*shared, *own, *batches]
        bases = [*(self._byte(*place) for place in (*rows, *matrices)), *warps]
        self.thread = emitter.linear(bases)
        self.spread = spread(bases)

    def _byte(self, line: int, k: int, batch: int = 0) -> int:
        return byte_of(self.type, line, k, batch) if self.first else byte_of(self.type, k, line, batch)

    def part(self, line: int, k: int, batch: int = 0) -> list[str]:
        """The registers for the rows (or columns) from `line` on, at `k`, of a matrix of a batch."""
        if (line, k, batch) not in self._parts:
            loaded = self._load(self._byte(line, k, batch), 2 if not self.first and self.next == (0, 0) else 4)
            if self.first:
                self._parts[line, k, batch] = loaded
            else:
                self._parts[line, k, batch] = loaded[:2]
                self._parts[line + self.next[0], k + self.next[1], batch] = loaded[2:] or loaded[:2]
        return self._parts[line, k, batch]

    def _load(self, place: int, count: int) -> list[str]:
        """Load `count` matrices; thread 0 starts at this place in the buffer."""
        varying = place & self.spread
        if varying not in self._starts:
            own = self.emitter.moved(self.thread, varying)
            self._starts[varying] = self.emitter.emit(f"add i32 {self.address}, {own}")
        name = f"ldmatrix.sync.aligned.m8n8.x{count}{self.trans}.shared.b16"
        text = f"{name} {group(0, count)}, [${count} + {place ^ varying}];"
        return self.emitter.asm(["i32"] * count, text, ("i32", self._starts[varying]), effect=READS)


Operand = _InRegisters | _InShared


def operand_of(emitter: Emitter, value: Value, tiles: Tiles, *, first: bool) -> Operand:
    """Operand a (`first`) or b of a dot, in registers or in shared memory."""
    kind = _InShared if isinstance(value.type, SharedType) else _InRegisters
    return kind(emitter, value, tiles, first=first)
