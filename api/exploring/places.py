"""Where lines of models and of machine texts come from: places in sources, numbered for a page."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import attrs

from ziggurat.codemodel.location import FRONTENDS, Location

_FILE_OF_LLVM = r'!(\d+) = !DIFile\(filename: "(.*?)", directory'
_SCOPE = r"!(\d+) = (?:distinct )?!DI(?:Subprogram|LexicalBlockFile)\(.*?file: !(\d+)"
_PLACE = r"!(\d+) = (?:distinct )?!DILocation\(line: (\d+), column: (\d+), scope: !(\d+)(?:, inlinedAt: !(\d+))?"
_FILE = re.compile(r'\.file\s+(\d+)\s+"(.*?)"(?:\s+"(.*?)")?')  # A name, or a folder and a name.
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)(.*)")
_CALL = re.compile(r"inlined_at (\d+) (\d+) (\d+)")
_SASS = re.compile(r'\s*//## File "(.*?)", line (\d+)(?: inlined at "(.*?)", line (\d+))?')


@attrs.frozen
class Place:
    """A place in a source, and the place of the call that led there. Lines and columns count from 1; a column or an end
    of 0 is not known."""

    file: str
    line: int
    column: int = 0
    end_line: int = 0
    end_column: int = 0
    caller: Place | None = None

    def chain(self) -> Iterator[Place]:
        """The place, and those of the calls, from the innermost."""
        place: Place | None = self
        while place is not None:
            yield place
            place = place.caller

    def covers(self, other: Place) -> bool:
        """Whether the two begin at the same place, as far as both are known."""
        if (self.file, self.line) != (other.file, other.line):
            return False
        return self.column == other.column or not self.column or not other.column


def place_of(location: Location | None) -> Place | None:
    """The place of an op, of which the outermost call comes last."""
    if location is None:
        return None
    location = location.outside(FRONTENDS)
    if location.file.startswith(FRONTENDS):
        return None
    caller = place_of(location.caller)
    end = (location.end_line, location.end_column + 1) if location.end_line else (0, 0)
    return Place(location.file, location.line, location.column + 1, *end, caller)


def llvm_places(text: str) -> list[Place | None]:
    """The place of each line of LLVM text."""
    files = dict(re.findall(_FILE_OF_LLVM, text))
    scopes = {scope: files.get(file, "") for scope, file in re.findall(_SCOPE, text)}
    nodes = {match[0]: match for match in re.findall(_PLACE, text)}

    def place(number: str) -> Place | None:
        if number not in nodes:
            return None
        _, line, column, scope, caller = nodes[number]
        return Place(scopes.get(scope, ""), int(line), int(column), caller=place(caller) if caller else None)

    attached = (re.search(r"!dbg !(\d+)$", line) for line in text.splitlines())
    return [place(match[1]) if match is not None else None for match in attached]


def assembly_places(text: str) -> list[Place | None]:
    """The place of each line of PTX, or of a CPU's assembly: that of the last `.loc` before it."""
    files = {match[1]: os.path.join(match[2], match[3] or "").rstrip("/") for match in _FILE.finditer(text)}
    places: list[Place | None] = []
    at: Place | None = None
    is_inline = False  # Inline assembly is not indented.
    for line in text.splitlines():
        is_inline = is_inline != line.lstrip().startswith("// end" if is_inline else "// begin")
        if match := _LOC.match(line):
            at = None
            for file, number, column in [*reversed(_CALL.findall(match[4])), match.groups()[:3]]:
                at = Place(files.get(file, ""), int(number), int(column), caller=at) if number != "0" else at
            places.append(None)
        else:
            is_place = is_inline or line.startswith(("\t", " "))
            is_code = is_place and not line.lstrip().startswith((".", "//", "#", "{", "}")) and line[-1:] != ":"
            places.append(at if is_code else None)
    return places


def sass_places(text: str) -> list[Place | None]:
    """The place of each line of machine code, from the disassembler's comments before it."""
    places: list[Place | None] = []
    at: Place | None = None
    for line in text.splitlines():
        if match := _SASS.match(line):
            caller = Place(match[3], int(match[4])) if match[3] else None
            at = Place(match[1], int(match[2]), caller=caller)
        places.append(None if match or not line.startswith(" ") else at)
    return places
