"""Archives of object files (`.a`) with the index of symbols that linkers ask for, in System V's format, as by `ar`."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from ziggurat.backend.shipping.elf import is_elf, symbols_of

_MAGIC: Final = b"!<arch>\n"
_MAX_NAME: Final = 15  # Bytes of a name in its member's head.


def archive(members: Mapping[str, bytes]) -> bytes:
    """The archive of these files by name. Only files of ELF are in the index; names and files have any length."""
    names = b""
    heads: list[bytes] = []
    for name in members:
        raw = name.encode()
        if len(raw) > _MAX_NAME:
            heads.append(b"/%d" % len(names))
            names += raw + b"/\n"
        else:
            heads.append(raw + b"/")
    exports = [symbols_of(data) if is_elf(data) else [] for data in members.values()]
    texts = b"".join(symbol.encode() + b"\0" for symbols in exports for symbol in symbols)
    count = sum(map(len, exports))
    index_size = 4 + 4 * count + len(texts)
    place = len(_MAGIC) + _size(index_size) + (_size(len(names)) if names else 0)
    places: list[int] = []
    for symbols, data in zip(exports, members.values(), strict=True):
        places += [place] * len(symbols)
        place += _size(len(data))
    parts = [_MAGIC, _member(b"/", struct.pack(f">{1 + count}I", count, *places) + texts)]
    if names:
        parts.append(_member(b"//", names))
    parts += [_member(head, data) for head, data in zip(heads, members.values(), strict=True)]
    return b"".join(parts)


def _size(size: int) -> int:
    """The bytes of a member of this size with its head."""
    return 60 + size + size % 2


def _member(name: bytes, data: bytes) -> bytes:
    # No time, owner or mode, so that equal libraries have equal bytes.
    head = b"%-16s%-12d%-6d%-6d%-8s%-10d`\n" % (name, 0, 0, 0, b"644", len(data))
    return head + data + b"\n" * (len(data) % 2)
