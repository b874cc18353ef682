"""Places in a kernel's source, read from the debug metadata of LLVM text."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from ziggurat.codemodel.location import Location


class Places:
    """The places of a text's metadata. A place in `known` with the same line and column gives its span."""

    def __init__(self, metadata: Mapping[int, str], known: Iterable[Location] = ()) -> None:
        self._metadata = metadata
        self._known = {(place.file, place.line, place.column): place for place in known}
        self._made: dict[int, Location | None] = {}

    def of(self, number: int | None) -> Location | None:
        """The place of the metadata with this number."""
        if number is None:
            return None
        if number not in self._made:
            self._made[number] = self._place(number)
        return self._made[number]

    def _place(self, number: int) -> Location | None:
        node = self._metadata.get(number, "")
        line, file = self._field(node, "line"), self._file(self._reference(node, "scope"))
        if not line or file is None:
            return None
        place = Location(file, line, max(0, self._field(node, "column") - 1))
        place = self._known.get((place.file, place.line, place.column), place)
        caller = self._reference(node, "inlinedAt")
        return place if place.caller is not None or caller is None else place.called_from(self.of(caller))

    def _file(self, scope: int | None) -> str | None:
        while scope is not None:
            node = self._metadata.get(scope, "")
            file = self._reference(node, "file")
            if file is not None:
                found = re.search(r'filename: "([^"]*)", directory: "([^"]*)"', self._metadata.get(file, ""))
                return None if found is None else os.path.join(_read(found[2]), _read(found[1]))
            scope = self._reference(node, "scope")
        return None

    @staticmethod
    def _field(node: str, name: str) -> int:
        found = re.search(rf"\b{name}: (\d+)", node)
        return int(found[1]) if found else 0

    @staticmethod
    def _reference(node: str, name: str) -> int | None:
        found = re.search(rf"\b{name}: !(\d+)", node)
        return int(found[1]) if found else None


def _read(quoted: str) -> str:
    """Text as LLVM quotes it."""
    return unquoted(quoted).decode(errors="surrogateescape")


def unquoted(quoted: str) -> bytes:
    """The bytes of text that LLVM quotes, some of them in hexadecimal."""
    return re.sub(rb"\\([0-9A-Fa-f]{2})", lambda found: bytes([int(found[1], 16)]), quoted.encode())
