"""Line information: the line of the kernel's source for each instruction, as LLVM metadata.

LLVM writes it as `.loc` and `.file` directives, which profilers and `cuda-gdb` read; for CPUs as DWARF. There is
nothing else for a debugger: no variables, no types.

The kernel is a subprogram. Each other file that ops came from through a call is one as well, inlined at the place of
the call. Ops of the language's own library have the place of the author's call.
"""

from __future__ import annotations

import os
import re

from ziggurat.backend.llvm.routines import encoded, escaped
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.location import FRONTENDS, Location


def first_place(func: tt.Func) -> Location | None:
    """The place of a kernel's source: that of the function, or of the first op that has one."""
    locations = (op.location for op in (func, *func.body.entry.ops))
    return next((place for place in locations if place is not None and place.caller is None), None)


def _quoted(text: str) -> str:
    """A string of metadata."""
    return f'"{escaped(encoded(text))}"'


class LineInfo:
    """The metadata of one kernel. Nodes are made at the first request and written once. `first` is the number of the
    first one; `kind` is LLVM's word for what is written."""

    def __init__(
        self, name: str, symbol: str, location: Location | None, *, kind: str = "DebugDirectivesOnly", first: int = 0
    ) -> None:
        self._nodes: dict[str, int] = {}
        self._texts: list[str] = []  # Of the nodes, in their order.
        self._first = first
        self._places: dict[Location, str] = {}
        self._unit_file = self._file(location.file if location is not None else "<unknown>")
        self.file = location.file if location is not None else None
        self._node("!{}")
        nothing = self._node("!{null}")
        self._type = self._node(f"!DISubroutineType(types: !{nothing})")
        self._unit = self._node(
            f'distinct !DICompileUnit(language: DW_LANG_C, file: !{self._unit_file}, producer: "ziggurat", '
            f"isOptimized: true, runtimeVersion: 0, emissionKind: {kind})"
        )
        self._name, self._line = name, location.line if location is not None else 0
        self.subprogram = self.function(symbol)

    def _node(self, text: str) -> int:
        number = self._nodes.get(text)
        if number is None:
            number = self._nodes[text] = self._first + len(self._nodes)
            self._texts.append(text)
        return number

    def _file(self, path: str) -> int:
        return self._node(f'!DIFile(filename: {_quoted(directive_name(path))}, directory: "")')

    def _subprogram(self, file: int, name: str, symbol: str, line: int) -> int:
        return self._node(
            f"distinct !DISubprogram(name: {_quoted(name)}, linkageName: {_quoted(symbol)}, scope: !{file}, "
            f"file: !{file}, line: {line}, type: !{self._type}, scopeLine: {line}, "
            f"spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !{self._unit})"
        )

    def function(self, symbol: str) -> int:
        """The subprogram of a function that has code of the kernel."""
        return self._subprogram(self._unit_file, self._name, symbol, self._line)

    def moved(self, node: int, subprogram: int) -> int:
        """The node for the place of an instruction that is in another function of the kernel."""
        if node == self.subprogram:
            return subprogram
        scopes, text = r"(scope|inlinedAt): !(\d+)", self._texts[node - self._first]
        return self._node(re.sub(scopes, lambda of: f"{of[1]}: !{self.moved(int(of[2]), subprogram)}", text))

    def suffix(self, location: Location | None) -> str:
        """The suffix of an instruction that comes from this place; "" for None."""
        if location is None:
            return ""
        attachment = self._places.get(location)
        if attachment is None:
            attachment = self._places[location] = f", !dbg !{self._place(location.outside(FRONTENDS))}"
        return attachment

    def _place(self, location: Location) -> int:
        inlined = ""
        if location.caller is not None:
            file = self._file(location.file)
            name = os.path.splitext(os.path.basename(location.file))[0]
            scope = self._subprogram(file, name, f"zg.{file}", 0)
            inlined = f", inlinedAt: !{self._place(location.caller)}"
        elif location.file == self.file:
            scope = self.subprogram
        else:
            file = self._file(location.file)
            scope = self._node(f"!DILexicalBlockFile(scope: !{self.subprogram}, file: !{file}, discriminator: 0)")
        # LLVM holds columns in 16 bits.
        column = min(location.column + 1, 0xFFFF)
        distinct = "distinct " if inlined else ""
        return self._node(f"{distinct}!DILocation(line: {location.line}, column: {column}, scope: !{scope}{inlined})")

    def metadata(self) -> list[str]:
        """The lines for the end of the module."""
        lines = [f"!{number} = {text}" for text, number in self._nodes.items()]
        version = self._first + len(self._nodes)
        return [
            *lines, f'!{version} = !{{i32 2, !"Debug Info Version", i32 3}}', f"!llvm.module.flags = !{{!{version}}}",
            f"!llvm.dbg.cu = !{{!{self._unit}}}",
        ]  # fmt: skip


# Patterns, which `re` compiles at their first use: few kernels need them.
_REFUSED = r"\bline (\d+)\s*;"
_FILE = r'\.file\s+(\d+)\s+"((?:[^"\\]|\\.)*)"'
_LOC = r"\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)"


def refused_at(ptx: str, log: str) -> Location | None:
    """The place in the kernel's source of the first line of PTX that the assembler's message names.

    The last `.loc` before the line gives it; None where there is none.
    """
    place = re.search(_REFUSED, log)
    lines = ptx.splitlines()
    if place is None or not 0 < int(place[1]) <= len(lines):
        return None
    at = next((match for line in reversed(lines[: int(place[1])]) if (match := re.match(_LOC, line))), None)
    if at is None:
        return None
    file, line, column = at.groups()
    files = files_of(ptx)
    if int(file) not in files or line == "0":
        return None
    return Location(files[int(file)], int(line), max(0, int(column) - 1))


def directive_name(path: str) -> str:
    """The name of a file in `.file`: ptxas reads no escaped quotes or ends of lines there."""
    return re.sub(r'["\r\n]', "'", path)


def files_of(ptx: str) -> dict[int, str]:
    """The names of the files that PTX names in `.file`, by number."""
    return {int(number): _unquoted(name) for number, name in re.findall(_FILE, ptx)}


def _unquoted(text: str) -> str:
    """A file name as LLVM writes it in a directive: non-ASCII bytes as octal numbers."""
    raw = re.sub(rb"\\([0-7]{3}|.)", _byte, text.encode())
    return raw.decode(errors="surrogateescape")


def _byte(match: re.Match[bytes]) -> bytes:
    digits = match[1]
    return bytes([int(digits, 8)]) if len(digits) == 3 else {b"n": b"\n", b"t": b"\t"}.get(digits, digits)
