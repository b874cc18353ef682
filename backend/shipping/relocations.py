"""Relocations of the machines that shared objects are linked for, and stubs of calls to other libraries.

Sources: System V ABI, AMD64 supplement, section 4.4; ELF for the Arm 64-bit Architecture, section 5.7.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

import attrs

_RELATIVE, _RELATIVE_64, _BRANCH, _PAGE, _LOW = range(5)  # What a relocation changes.
_LDR_SLOT, _BR, _NOP, _ADRP = 0xF9400211, 0xD61F0220, 0xD503201F, 0x90000010  # With x16 and x17.


@attrs.frozen
class Machine:
    """A machine by its number in ELF. `address` is the relocation of a whole address, `of_table` and `of_base` those
    that the loader resolves: of an entry of the table of offsets, and of an address relative to the object. `kinds` has
    the others, with what they change and the shift of an offset; those `by_offset` mean an entry of the table."""

    number: int
    address: int
    of_table: int
    of_base: int
    kinds: Mapping[int, tuple[int, int]] = attrs.field(hash=False)
    by_offset: frozenset[int]
    stub_size: int
    page: int  # The largest page of memory that systems use.

    def stub(self, place: int, slot: int) -> bytes:
        """A stub at an address: jump to the address in a slot."""
        if self.number == X86_64.number:
            return b"\xff\x25" + struct.pack("<i", slot - place - 6)
        code = struct.pack("<4I", _ADRP, _LDR_SLOT, _BR, _NOP)
        return _paged(code[:4], slot, place) + _low(code[4:8], slot, 3) + code[8:]

    def changed(self, kind: int, code: bytes, target: int, place: int) -> bytes:
        """The bytes at a place, relocated to a target. There are 8 bytes; the result may be shorter."""
        part, shift = self.kinds[kind]
        if part == _RELATIVE:
            return struct.pack("<i", target - place)
        if part == _RELATIVE_64:
            return struct.pack("<q", target - place)
        if part == _PAGE:
            return _paged(code[:4], target, place)
        if part == _LOW:
            return _low(code[:4], target, shift)
        return struct.pack("<I", int.from_bytes(code[:4], "little") | (target - place >> 2 & 0x3FFFFFF))


def _paged(code: bytes, target: int, place: int) -> bytes:
    """ADRP with the distance between the pages of 4 KiB."""
    pages = (target >> 12) - (place >> 12)
    return struct.pack("<I", int.from_bytes(code, "little") | (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5)


def _low(code: bytes, target: int, shift: int) -> bytes:
    """An addition, a load or a store with the low 12 bits of an address."""
    return struct.pack("<I", int.from_bytes(code, "little") | ((target & 0xFFF) >> shift) << 10)


X86_64: Final = Machine(
    62, 1, 6, 8, {**dict.fromkeys((2, 4, 9, 41, 42), (_RELATIVE, 0)), 24: (_RELATIVE_64, 0)},
    frozenset((9, 41, 42)), 8, 0x1000,
)  # fmt: skip
AARCH64: Final = Machine(
    183, 257, 1025, 1027,
    {260: (_RELATIVE_64, 0), 261: (_RELATIVE, 0), 275: (_PAGE, 0), 277: (_LOW, 0), 278: (_LOW, 0), 282: (_BRANCH, 0),
     283: (_BRANCH, 0), 284: (_LOW, 1), 285: (_LOW, 2), 286: (_LOW, 3), 299: (_LOW, 4), 311: (_PAGE, 0),
     312: (_LOW, 3)},
    frozenset((311, 312)), 16, 0x10000,
)  # fmt: skip
MACHINES: Final = {machine.number: machine for machine in (X86_64, AARCH64)}
