"""Shared objects of ELF for x86-64 and Arm, linked of relocatable objects: llvmlite has no linker.

A shared object for `dlopen` needs little: the sections of the objects, one after the other, in three segments by what
memory may do (read, run, write); relocations between them resolved; a table of the global offsets and stubs for
functions of other libraries; and the dynamic section with symbols and the relocations that remain. Unwind tables and
debug sections are left out.

Source: System V ABI, chapters 4 and 5.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import attrs

from ziggurat.backend.shipping.relocations import MACHINES, Machine
from ziggurat.codemodel.errors import InternalError, TargetError

_SECTION: Final = struct.Struct("<IIQQQQIIQQ")  # The head of a section.
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_RELOCATION: Final = struct.Struct("<QQq")
_SEGMENT: Final = struct.Struct("<IIQQQQQQ")
_TABLE, _STRINGS, _ADDENDS, _HASH, _DYNAMIC, _ZEROS, _SYMBOLS = 2, 3, 4, 5, 6, 8, 11  # Types of sections.
_WRITE, _ALLOCATE, _RUN = 1, 2, 4  # Flags of sections.
_LOCAL, _GLOBAL = 0, 1
_COMMON: Final = 0xFFF2


def is_elf(data: bytes) -> bool:
    """Whether these bytes are a file of ELF for 64 bits."""
    return data.startswith(b"\x7fELF\x02")


def is_linkable(data: bytes) -> bool:
    """Whether an object is of a machine that shared objects are linked for."""
    return is_elf(data) and _number_of(data) in MACHINES


def _number_of(data: bytes) -> int:
    return struct.unpack_from("<H", data, 18)[0]


@attrs.frozen
class _Symbol:
    name: str
    binding: int
    section: int
    value: int


class _Object:
    """A relocatable object: its sections as (name's offset, type, flags, address, data, link, info, alignment)."""

    symbols: list[_Symbol]

    def __init__(self, data: bytes) -> None:
        (start,) = struct.unpack_from("<Q", data, 40)
        size, count, own = struct.unpack_from("<HHH", data, 58)
        heads: list[tuple[int, ...]] = [_SECTION.unpack_from(data, start + size * number) for number in range(count)]
        self.heads = heads
        self.data: list[bytes] = [data[head[4] : head[4] + head[5]] if head[1] != _ZEROS else b"" for head in heads]
        self.names = [_text(self.data[own], head[0]) for head in heads]
        table = next((number for number, head in enumerate(heads) if head[1] == _TABLE), None)
        self.symbols = []
        if table is not None:
            strings = self.data[heads[table][6]]
            rows: Iterable[tuple[int, ...]] = _SYMBOL.iter_unpack(self.data[table])
            for name, info, _, section, value, _ in rows:
                self.symbols.append(_Symbol(_text(strings, name), info >> 4, section, value))

    @property
    def loaded(self) -> list[int]:
        """The numbers of the sections that are in memory when the code runs."""
        return [
            number
            for number, head in enumerate(self.heads)
            if head[2] & _ALLOCATE and not self.names[number].startswith((".eh_frame", ".note"))
        ]


def _text(strings: bytes, offset: int) -> str:
    return strings[offset : strings.index(0, offset)].decode()


def symbols_of(data: bytes) -> list[str]:
    """The names that an object defines for others."""
    return [symbol.name for symbol in _Object(data).symbols if symbol.binding != _LOCAL and symbol.section]


class _Output:
    """The contents of a segment, `flags` of which say what memory may do."""

    def __init__(self, flags: int) -> None:
        self.flags = flags
        self.bytes = bytearray()
        self.address = 0

    def add(self, data: bytes, alignment: int = 8) -> int:
        """Append data; its offset."""
        self.bytes += bytes(-len(self.bytes) % max(1, alignment))
        self.bytes += data
        return len(self.bytes) - len(data)


def shared_object(
    objects: Sequence[bytes], exports: Collection[str], name: str, libraries: Iterable[str] = ("libm.so.6", "libc.so.6")
) -> bytes:
    """The shared object of relocatable objects of one machine. `exports` are the symbols that it has for others, and
    `libraries` have what the objects lack.

    Raises `TargetError` for objects of other machines, and `InternalError` for what no object of this compiler has.
    """
    if not all(map(is_linkable, objects)):
        raise TargetError(
            "a shared object can be linked for Linux on x86-64 and Arm only",
            hint='save("kernel.a"), and link it: cc -shared -Wl,--whole-archive kernel.a',
        )
    (number,) = set(map(_number_of, objects))
    return _Linker([*map(_Object, objects)], MACHINES[number], exports, name, libraries).file


class _Linker:
    def __init__(
        self, inputs: Sequence[_Object], machine: Machine, exports: Collection[str], name: str, libraries: Iterable[str]
    ) -> None:
        self.inputs, self.machine = inputs, machine
        self.read, self.run, self.write = _Output(4), _Output(5), _Output(6)
        self.outputs = self.read, self.run, self.write
        self.places: dict[tuple[int, int], tuple[_Output, int]] = {}  # By object and section.
        self.defined: dict[str, tuple[int, _Symbol]] = {}
        for number, item in enumerate(inputs):
            for symbol in item.symbols:
                if symbol.binding != _LOCAL and symbol.section:
                    if symbol.name in self.defined or symbol.section == _COMMON:
                        raise InternalError(f"the symbol '{symbol.name}' is defined twice, or common")
                    self.defined[symbol.name] = number, symbol
        self.imports = sorted(
            {
                symbol.name
                for item in inputs
                for symbol in item.symbols
                if symbol.binding != _LOCAL and not symbol.section and symbol.name not in self.defined
            }
        )
        self.exports = [symbol for symbol in exports if symbol in self.defined]
        self.dynamic_numbers = {symbol: 1 + number for number, symbol in enumerate((*self.imports, *self.exports))}
        self.remaining: list[tuple[int, int, int]] = []  # Relocations for the loader.
        self._lay_out(name, libraries)
        self._resolve()
        self._finish()

    def _lay_out(self, name: str, libraries: Iterable[str]) -> None:
        """Give each section a place, and the tables theirs."""
        strings = bytearray(b"\0")

        def text(value: str) -> int:
            strings.extend(value.encode() + b"\0")
            return len(strings) - len(value.encode()) - 1

        self.name_offsets = [text(symbol) for symbol in self.dynamic_numbers]
        self.tags = [(1, text(library)) for library in libraries] if self.imports else []
        self.tags.append((14, text(name)))
        count = 1 + len(self.dynamic_numbers)
        heads = 64 + 5 * _SEGMENT.size
        self.read.add(bytes(heads))
        # One bucket: the loader compares each of the few names.
        chain = [*range(2, count), 0] if count > 1 else []
        self.hash = self.read.add(struct.pack(f"<{4 + len(chain)}I", 1, count, int(count > 1), 0, *chain))
        self.symbol_table = self.read.add(bytes(_SYMBOL.size * count))
        self.strings = self.read.add(bytes(strings), 1)
        self.string_size = len(strings)
        relocations = len(self.imports) + len(self.defined) + sum(
            len(item.data[number]) // _RELOCATION.size
            for item in self.inputs
            for number, head in enumerate(item.heads)
            if head[1] == _ADDENDS
        )  # fmt: skip
        self.relocations = self.read.add(bytes(_RELOCATION.size * relocations))
        for number, item in enumerate(self.inputs):
            for section in item.loaded:
                head = item.heads[section]
                output = self.write if head[2] & _WRITE else self.run if head[2] & _RUN else self.read
                data = bytes(head[5]) if head[1] == _ZEROS else item.data[section]
                self.places[number, section] = output, output.add(data, head[8])
        self.stubs = {symbol: self.run.add(bytes(self.machine.stub_size)) for symbol in self.imports}
        # Symbols of other libraries, and of these objects where code asks for their place in the table.
        self.offsets = {symbol: self.write.add(bytes(8)) for symbol in (*self.imports, *self.defined)}
        self.dynamic = self.write.add(bytes(16 * (len(self.tags) + 9)))
        address = 0
        for output in self.outputs:
            output.address = address
            address += self._whole(output)

    def _whole(self, output: _Output) -> int:
        """The bytes of a segment in whole pages."""
        return -(-len(output.bytes) // self.machine.page) * self.machine.page

    def _address(self, number: int, symbol: _Symbol) -> int:
        """The address of a symbol that an object has."""
        output, offset = self.places[number, symbol.section]
        return output.address + offset + symbol.value

    def _resolve(self) -> None:
        machine = self.machine
        for symbol, stub in self.stubs.items():
            code = machine.stub(self.run.address + stub, self.write.address + self.offsets[symbol])
            self.run.bytes[stub : stub + len(code)] = code
        for symbol, offset in self.offsets.items():
            slot = self.write.address + offset
            if symbol in self.stubs:
                self.remaining.append((slot, self.dynamic_numbers[symbol] << 32 | machine.of_table, 0))
            else:
                self.remaining.append((slot, machine.of_base, self._address(*self.defined[symbol])))
        for number, item in enumerate(self.inputs):
            for table, head in enumerate(item.heads):
                if head[1] != _ADDENDS or (number, head[7]) not in self.places:
                    continue
                for offset, info, addend in _RELOCATION.iter_unpack(item.data[table]):
                    symbol_number, kind = divmod(int(info), 1 << 32)
                    self._relocate(number, head[7], offset, kind, item.symbols[symbol_number], addend)

    def _relocate(self, number: int, section: int, offset: int, kind: int, symbol: _Symbol, addend: int) -> None:
        output, start = self.places[number, section]
        at, place = start + offset, output.address + start + offset
        is_import = not symbol.section and symbol.name in self.stubs
        owner = (number, symbol) if symbol.section else self.defined.get(symbol.name)
        machine = self.machine
        if kind == machine.address and is_import:
            self.remaining.append((place, self.dynamic_numbers[symbol.name] << 32 | machine.address, addend))
        elif kind == machine.address and owner is not None:
            self.remaining.append((place, machine.of_base, self._address(*owner) + addend))
        elif kind not in machine.kinds or (kind in machine.by_offset and symbol.name not in self.offsets):
            raise InternalError(f"the relocation {kind} of '{symbol.name}' is not one of code that can be anywhere")
        else:
            if kind in machine.by_offset:
                target = self.write.address + self.offsets[symbol.name]
            else:
                target = self._address(*owner) if owner is not None else self.run.address + self.stubs[symbol.name]
            code = machine.changed(kind, bytes(output.bytes[at : at + 8]), target + addend, place)
            output.bytes[at : at + len(code)] = code

    def _finish(self) -> None:
        read, write = self.read, self.write
        for number, symbol in enumerate(self.dynamic_numbers, 1):
            value, section = 0, 0
            if symbol in self.defined:
                owner, entry = self.defined[symbol]
                value = self._address(owner, entry)
                section = 5 + self.outputs.index(self.places[owner, entry.section][0])
            # A function: linkers make stubs for those alone.
            head = _SYMBOL.pack(self.name_offsets[number - 1], _GLOBAL << 4 | 2, 0, section, value, 0)
            at = self.symbol_table + _SYMBOL.size * number
            read.bytes[at : at + _SYMBOL.size] = head
        remaining = b"".join(_RELOCATION.pack(*entry) for entry in self.remaining)
        read.bytes[self.relocations : self.relocations + len(remaining)] = remaining
        tags = [
            *self.tags, (4, self.hash), (5, self.strings), (6, self.symbol_table), (10, self.string_size),
            (11, _SYMBOL.size), (7, self.relocations), (8, len(remaining)), (9, _RELOCATION.size), (0, 0),
        ]  # fmt: skip
        dynamic = b"".join(struct.pack("<qQ", *tag) for tag in tags)
        write.bytes[self.dynamic : self.dynamic + len(dynamic)] = dynamic
        segments = [
            _SEGMENT.pack(1, output.flags, *[output.address] * 3, *[len(output.bytes)] * 2, self.machine.page)
            for output in self.outputs
        ]
        at = write.address + self.dynamic
        segments.append(_SEGMENT.pack(2, 6, at, at, at, len(dynamic), len(dynamic), 8))
        segments.append(_SEGMENT.pack(0x6474E551, 6, 0, 0, 0, 0, 0, 16))  # A stack that cannot be run.
        body = b"".join(bytes(output.bytes).ljust(self._whole(output), b"\0") for output in self.outputs)
        sections, names = self._sections(len(body), len(remaining), len(dynamic))
        start = len(body) + len(names)
        head = struct.pack(
            "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, self.machine.number, 1, 0, 64, start, 0, 64, _SEGMENT.size,
            len(segments), _SECTION.size, len(sections), len(sections) - 1,
        )  # fmt: skip
        head += b"".join(segments)
        self.file = head + body[len(head) :] + names + b"".join(sections)

    def _sections(self, end: int, remaining: int, dynamic: int) -> tuple[list[bytes], bytes]:
        """The heads of the sections, which linkers read, and their names, which begin at `end`."""
        count = 1 + len(self.dynamic_numbers)
        rows = [
            ("", 0, 0, 0, 0, 0, 0, 0, 0),
            (".hash", _HASH, 2, self.hash, self.symbol_table - self.hash, 2, 0, 8, 4),
            (".dynsym", _SYMBOLS, 2, self.symbol_table, _SYMBOL.size * count, 3, 1, 8, _SYMBOL.size),
            (".dynstr", _STRINGS, 2, self.strings, self.string_size, 0, 0, 1, 0),
            (".rela.dyn", _ADDENDS, 2, self.relocations, remaining, 2, 0, 8, _RELOCATION.size),
        ]
        for name, output, flags in zip((".rodata", ".text", ".data"), self.outputs, (2, 6, 3), strict=True):
            skipped = self.relocations + remaining if output is self.read else 0
            length = (self.dynamic if output is self.write else len(output.bytes)) - skipped
            rows.append((name, 1, flags, output.address + skipped, max(0, length), 0, 0, 1, 0))
        rows.append((".dynamic", _DYNAMIC, 3, self.write.address + self.dynamic, dynamic, 3, 0, 8, 16))
        rows.append((".shstrtab", _STRINGS, 0, end, 0, 0, 0, 1, 0))
        names = b"\0" + b"".join(row[0].encode() + b"\0" for row in rows[1:])
        rows[-1] = (*rows[-1][:4], len(names), *rows[-1][5:])
        names += bytes(-len(names) % 8)
        heads = [
            _SECTION.pack(
                names.index(b"\0" + name.encode() + b"\0") + 1 if name else 0,
                kind, flags, address if flags else 0, address, size, link, info, alignment, width,
            )
            for name, kind, flags, address, size, link, info, alignment, width in rows
        ]  # fmt: skip
        return heads, names
