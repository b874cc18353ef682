"""A file of perf's format "jitdump": the code that is loaded, and its source lines.

The format is that of tools/perf/Documentation/jitdump-specification.txt in Linux. gdb needs no file: LLVM registers the
objects that it links by gdb's JIT interface.
"""

from __future__ import annotations

import ctypes
import io
import itertools
import mmap
import os
import struct
import sys
import threading
import time
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Final

from ziggurat.backend.jit.loading import debug_folder, linking, llvm
from ziggurat.codemodel.errors import warn

_LOAD, _LINES = 0, 2  # The kinds of records.
_FUNCTION: Final = 2  # ELF's type of a symbol.
_TABLE: Final = struct.Struct("=IHIBBBbBB")  # The head of DWARF's table of lines.
_numbers = itertools.count()


def write(image: bytes, symbol: str, address: int) -> None:
    """Write the functions of an object that is loaded, with `symbol` at this address, where a profiler finds them.

    Only objects of ELF are written. A warning tells of a folder that cannot be written.
    """
    if not image.startswith(b"\x7fELF"):
        return
    with linking:
        try:
            path, _ = _file(debug_folder(), os.getpid(), int.from_bytes(image[18:20], sys.byteorder))
            with open(path, "ab") as file:
                for kind, record in _records(image, symbol, address):
                    file.write(struct.pack("=IIQ", kind, 16 + len(record), time.monotonic_ns()) + record)
        except OSError as error:
            warn(f"profilers are not told of '{symbol}', as ZIGGURAT_DEBUG_DIR cannot be written: {error}", None)


@lru_cache(maxsize=1)
def _file(place: str, process: int, machine: int) -> tuple[str, mmap.mmap]:
    """The file of a process. perf finds it by its name, and by the process having mapped it as code."""
    os.makedirs(place, exist_ok=True)
    path = os.path.abspath(os.path.join(place, f"jit-{process}.dump"))
    with open(path, "wb+") as file:
        file.write(struct.pack("=IIIIIIQQ", 0x4A695444, 1, 40, machine, 0, process, time.monotonic_ns(), 0))
        file.flush()
        return path, mmap.mmap(file.fileno(), 40, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)


def _records(image: bytes, symbol: str, address: int) -> Iterator[tuple[int, bytes]]:
    """Two records for each function in the section of `symbol`: its lines, and its name and code."""
    sections = {section.name(): section.data() for section in llvm().ObjectFileRef.from_data(image).sections()}
    names, places = sections[b".strtab"], list(_places(sections.get(b".debug_line", b"")))
    functions = {
        names[name : names.index(0, name)]: (section, start, size)
        for name, kind, _, section, start, size in struct.iter_unpack("=IBBHQQ", sections[b".symtab"])
        if kind & 15 == _FUNCTION
    }
    home, first, _ = functions[symbol.encode()]
    for name, (section, start, size) in functions.items():
        if section == home:
            at = address - first + start
            rows = [
                struct.pack("=Qii", at + place - start, line, 0) + file + b"\0"
                for place, line, file in places
                if start <= place < start + size
            ]
            yield _LINES, struct.pack("=QQ", at, len(rows)) + b"".join(rows)
            head = struct.pack("=IIQQQQ", os.getpid(), threading.get_native_id(), at, at, size, next(_numbers))
            yield _LOAD, head + name + b"\0" + ctypes.string_at(at, size)


def _places(table: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The rows of a table of lines (DWARF 4, 6.2) for the first section of code: offset, line, and file."""
    if table[4:6] != b"\4\0":
        return
    _, _, header, width, _, _, base, span, first = _TABLE.unpack_from(table)
    stream = io.BytesIO(table)
    stream.seek(_TABLE.size + first - 1)
    folders = [b"", *iter(partial(_text, stream), b"")]
    files = [b""]
    while name := _text(stream):
        files.append(os.path.join(folders[_number(stream)], name))
        _number(stream)  # The time of the file, and its size.
        _number(stream)
    stream.seek(10 + header)
    at, line, file = 0, 1, 1
    while True:
        (code,) = stream.read(1)
        if code == 0:  # The first such operation is the address, which is relocated; the other one ends the section.
            size = _number(stream)
            if stream.read(size)[0] == 1:
                return
        elif code == 2:
            at += _number(stream) * width
        elif code == 3:
            line += _number(stream, signed=True)
        elif code == 4:
            file = _number(stream)
        elif code == 5:  # The column.
            _number(stream)
        elif code == 8:
            at += (255 - first) // span * width
        elif code == 9:
            at += int.from_bytes(stream.read(2), sys.byteorder)
        elif code >= first:
            at += (code - first) // span * width
            line += base + (code - first) % span
        if line and (code == 1 or code >= first):  # Line 0 marks code without a line.
            yield at, line, files[file]


def _text(stream: io.BytesIO) -> bytes:
    return b"".join(iter(partial(stream.read, 1), b"\0"))


def _number(stream: io.BytesIO, *, signed: bool = False) -> int:
    """A number in groups of seven bits, the lowest ones first."""
    value = shift = 0
    more = True
    while more:
        (byte,) = stream.read(1)
        value, shift, more = value | (byte & 127) << shift, shift + 7, byte > 127
    return value - (1 << shift) if signed and value >> (shift - 1) else value
