"""The resources of a kernel, as a cubin states them.

A cubin is an ELF file of 64 bits. Its section `.nv.info` has entries of a format, an attribute, the size of what
follows, and for these attributes a symbol and a number, as `nvdisasm` and `cuobjdump -elf` print them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_WITH_SIZE = 4  # The format of entries that say their size; the others have two bytes in its place.
_FRAME_SIZE, _REGISTERS = 0x11, 0x2F


def resources_of(cubin: bytes) -> tuple[int, int]:
    """The registers of a thread, and the bytes of its stack, spills included: the most of the kernel and the functions
    that it calls; 0 where the code does not say."""
    entries = list(_entries(_section(cubin, b".nv.info"))) if cubin.startswith(b"\x7fELF") else []
    registers, stack = (
        [number for attribute, number in entries if attribute == each] for each in (_REGISTERS, _FRAME_SIZE)
    )
    return max(registers, default=0), max(stack, default=0)


def _section(code: bytes, name: bytes) -> bytes:
    (table,) = struct.unpack_from("<Q", code, 0x28)
    size, count, names = struct.unpack_from("<HHH", code, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", code, table + size * number) for number in range(count)]
    for title, *_, start, length in headers:
        begin = headers[names][4] + title
        if code[begin : code.index(b"\0", begin)] == name:
            return code[start : start + length]
    return b""


def _entries(section: bytes) -> Iterator[tuple[int, int]]:
    """The attributes that a section has a number for."""
    at = 0
    while at + 4 <= len(section):
        form, attribute, size = struct.unpack_from("<BBH", section, at)
        at += 4
        if form == _WITH_SIZE:
            if size == 8:
                yield attribute, struct.unpack_from("<II", section, at)[1]
            at += size
