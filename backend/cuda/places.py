"""Source locations in the code of a kernel, for profilers: `.loc` of the PTX, moved to where the source is now.

A cached kernel was compiled from a model of the same structure, whose source may have been elsewhere. A binary keeps,
for each location in its code, the op of the model that it came from. The same op of the current model has the current
location.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from ziggurat.backend.cuda.binary import Binary
from ziggurat.backend.ptx.lines import directive_name, files_of
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Op

# A location, with the number of an op in the model, and the number of calls from the location to the op.
Entry = list[Any]
Place = tuple[str, int, int]

# Both begin with fixed text, which the search finds ten times as quickly as a pattern.
_FILE = re.compile(r'\t\.file\t(\d+) "(.*)"\n?')
_LOC = re.compile(r"\t\.loc\t(\d+ \d+ \d+)(.*)")
_CALL = re.compile(r"(?<=inlined_at )\d+ \d+ \d+")


def source_map(model: Op, ptx: str) -> list[Entry]:
    """The op of each location in the code: lists `[file, line, column, op, calls]`, which JSON can hold."""
    files = files_of(ptx)
    places = {_place(files, text) for loc, more in set(_LOC.findall(ptx)) for text in (loc, *_CALL.findall(more))}
    if not places:
        return []
    exact: dict[Place, tuple[int, int]] = {}
    lines: dict[tuple[str, int], tuple[int, int]] = {}
    for number, op in enumerate(model.walk()):
        for calls, place in enumerate(_chain(op.location)):
            exact.setdefault(place, (number, calls))
            lines.setdefault(place[:2], (number, calls))
    entries: list[Entry] = []
    for place in sorted(places):
        # LLVM drops the column when it joins instructions that differ in the column alone.
        source = exact.get(place) or (lines.get(place[:2]) if place[2] == 0 else None)
        if source is not None:
            entries.append([*place, *source])
    return entries


def placed_as(model: Op, binary: Binary) -> Binary:
    """A kernel of the same structure as the model, with the places of the model in its code."""
    entries: list[Entry] = binary.metadata.get("places", [])
    if not entries or not isinstance(binary.code, str):
        return binary
    ops: list[Op] = list(model.walk())
    moves: dict[Place, Place] = {}
    changed: list[Entry] = []
    for entry in entries:
        old: Place = (entry[0], entry[1], entry[2])
        number, calls = int(entry[3]), int(entry[4])
        chain = list(_chain(ops[number].location)) if number < len(ops) else []
        new = chain[calls] if calls < len(chain) else old
        moves[old] = new if old[2] else (new[0], new[1], 0)
        changed.append([*moves[old], number, calls])
    if all(old == new for old, new in moves.items()):
        return binary
    return attrs.evolve(
        binary, code=_rewritten(binary.code, moves), metadata={**binary.metadata, "places": sorted(changed)}
    )


def _chain(location: Location | None) -> Iterator[Place]:
    """The places of a location, from the op outwards, as PTX counts: columns from 1."""
    while location is not None:
        yield directive_name(location.file), location.line, min(location.column + 1, 0xFFFF)
        location = location.caller


def _rewritten(ptx: str, moves: dict[Place, Place]) -> str:
    files = files_of(ptx)
    numbers: dict[str, int] = {}

    def moved_to(match: re.Match[str] | str) -> str:
        old = _place(files, match if isinstance(match, str) else match[0])
        file, line, column = moves.get(old, old)
        return f"{numbers.setdefault(file, len(numbers) + 1)} {line} {column}"

    text = _LOC.sub(lambda match: f"\t.loc\t{moved_to(match[1])}{_CALL.sub(moved_to, match[2])}", ptx)
    table = "".join(f'\t.file\t{number} "{_quoted(name)}"\n' for name, number in numbers.items())
    at = _FILE.search(text)
    assert at is not None
    return text[: at.start()] + table + _FILE.sub("", text[at.end() :])


def _place(files: Mapping[int, str], text: str) -> Place:
    """A location in a directive: the number of the file, line, column."""
    number, line, column = map(int, text.split())
    return files.get(number, ""), line, column


def _quoted(name: str) -> str:
    raw = name.encode(errors="surrogateescape")
    return "".join(f"\\{chr(b)}" if b in b'"\\' else chr(b) if 32 <= b < 127 else f"\\{b:03o}" for b in raw)
