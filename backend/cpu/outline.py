"""A long kernel as several functions.

LLVM's passes take a time that grows with the square of a function's length: a loop that its author unrolled a thousand
times would take minutes. The emitter writes a mark between ops outside of regions. Neighbours of together `LONG` lines
become a function of their own. It takes the values that it uses, stores those that others use to memory of the kernel,
and returns 0 or the code of an error, which the kernel returns as well.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence

import attrs

from ziggurat.backend.ptx.lines import LineInfo

LONG = 1500  # Lines of a function, from which on the next op begins another one.

_MARK = "; mark "
_LABEL = re.compile(r"^([\w.]+):", re.MULTILINE)
_TARGET = re.compile(r"label %([\w.]+)")
_NAME = re.compile(r"%([\w.]+)")
_DEFINITION = re.compile(r"^  %([\w.]+) = (.*)", re.MULTILINE)
_DEBUG = re.compile(r"!dbg !(\d+)")

# The type of the value of an instruction, as its text says it.
_TYPE = r"(<\d+ x \w+>|\w+)"
_TYPES = tuple(
    (re.compile(pattern), result)
    for pattern, result in (
        (r"(?:getelementptr|inttoptr|alloca)\b", "ptr"),
        (r"[fi]cmp \w+ (<\d+ x )", r"\1i1>"),
        (r"[fi]cmp ", "i1"),
        (rf"(?:[sz]ext|trunc|fpext|fptrunc|[su]itofp|fpto[su]i|bitcast|ptrtoint) .* to {_TYPE}", r"\1"),
        (rf"select (?:<\d+ x i1>|i1) [^,]+, {_TYPE} ", r"\1"),
        (r"extractelement <\d+ x (\w+)>", r"\1"),
        (r"shufflevector <\d+ x (\w+)> .*, <(\d+) x i32> ", r"<\2 x \1>"),
        (rf"load (?:atomic )?{_TYPE},", r"\1"),
        (rf"atomicrmw \w+ ptr [^,]+, {_TYPE} ", r"\1"),
        (r"extractvalue { (\w+), \w+ } [^,]+, 0", r"\1"),
        (r"extractvalue { \w+, (\w+) } [^,]+, 1", r"\1"),
        (rf"\w+ (?:(?:fast|exact|disjoint|contract|n[a-z]+) )*{_TYPE} ", r"\1"),
    )
)


def type_of(instruction: str) -> str:
    """The LLVM type of the value of an instruction."""
    for pattern, result in _TYPES:
        match = pattern.match(instruction)
        if match is not None:
            return match.expand(result)
    raise AssertionError(f"no type in {instruction!r}")


def mark(sequence: int) -> str:
    """The line before each op of a sequence, and after the last one. Control goes from an op only to the next one."""
    return f"{_MARK}{sequence}"


@attrs.frozen(eq=False)
class _Unit:
    """The lines of a function. `end` lines in, a function that is a part returns; blocks that end otherwise follow."""

    lines: list[str]
    end: int
    values: Mapping[str, str]  # The instructions, by the names of their values.
    taken: set[str]  # The names that it uses and that others define.

    @staticmethod
    def of(lines: Sequence[str], aside: Sequence[str], labels: Mapping[str, object]) -> _Unit:
        text = "\n".join((*lines, *aside))
        values = dict(_DEFINITION.findall(text))
        return _Unit([*lines, *aside], len(lines), values, {*_NAME.findall(text)} - values.keys() - labels.keys())


def outlined(symbol: str, lines: Sequence[str], places: LineInfo | None) -> tuple[list[str], list[str]]:
    """The lines of a kernel, which begin with the label of its entry, and those of the functions that it calls."""
    parts = _parts(lines)
    if not parts:
        return _unmarked(lines), []
    bounds = [0, *(bound for part in parts for bound in (part.start, part.stop)), len(lines)]
    pieces = [_unmarked(lines[start:stop]) for start, stop in itertools.pairwise(bounds)]
    own, inner = pieces[::2], pieces[1::2]  # A piece of the kernel, a part, a piece of the kernel …
    blocks = _blocks(lines)
    asides = [_aside(piece, blocks) for piece in inner]
    moved = {label for aside in asides for label in aside}
    own = [_without(piece, moved) for piece in own]
    own[-1] += _text(_aside(list(itertools.chain(*own)), blocks), blocks)
    kernel = _Unit.of(list(itertools.chain(*own)), (), blocks)
    units = [_Unit.of(piece, _text(aside, blocks), blocks) for piece, aside in zip(inner, asides, strict=True)]
    types = {name: text for unit in (kernel, *units) for name, text in unit.values.items()}
    users = Counter(itertools.chain(kernel.taken, *(unit.taken for unit in units)))

    functions: list[str] = []
    label = "entry"
    for number, unit in enumerate(units):
        label = [label, *_labels(own[number])][-1]
        name = f"{symbol}.{number + 1}"
        results = {value: type_of(text) for value, text in unit.values.items() if value in users}
        takes = [f"{type_of(types[value]) if value in types else 'ptr'} %{value}" for value in sorted(unit.taken)]
        given = ", ".join([*takes, *(f"ptr %{value}.out" for value in results)])
        place = _DEBUG.search("\n".join(unit.lines))
        debug = f", {place[0]}" if place else ""
        functions += _function(name, given, label, unit, results, places if place else None)
        own[0][1:1] = [f"  %{value}.out = alloca {type_}" for value, type_ in results.items()]
        call = f"call i64 @{name}({given}){debug}"
        last = [label, *_labels(inner[number])][-1]
        if last == label:  # Nothing in it can end the kernel.
            own[number].append(f"  {call}")
        else:
            status = f"%status{number}"
            own[number] += [
                f"  {status} = {call}",
                f"  {status}.good = icmp eq i64 {status}, 0",
                f"  br i1 {status}.good, label %{last}, label %bad.part{number}, !prof !2",
                f"bad.part{number}:",
                f"  ret i64 {status}",
                f"{last}:",
            ]
        own[number] += [f"  %{value} = load {type_}, ptr %{value}.out" for value, type_ in results.items()]
        label = last
    return list(itertools.chain(*own)), functions


def _function(
    name: str, given: str, label: str, unit: _Unit, results: Mapping[str, str], places: LineInfo | None
) -> list[str]:
    """The lines of a function whose first block has this label."""
    lines, debug = unit.lines, ""
    if places is not None:
        moved, subprogram = places.moved, places.function(name)
        debug = f" !dbg !{subprogram}"
        lines = [_DEBUG.sub(lambda node: f"!dbg !{moved(int(node[1]), subprogram)}", line) for line in lines]
    stores = [f"  store {type_} %{value}, ptr %{value}.out" for value, type_ in results.items()]
    head = f"define internal i64 @{name}({given}) #1{debug} {{"
    return [head, f"{label}:", *lines[: unit.end], *stores, "  ret i64 0", *lines[unit.end :], "}"]


def _parts(lines: Sequence[str]) -> list[range]:
    """The lines of each function."""
    parts: list[range] = []
    begins: dict[str, int] = {}  # Where the present part of each open sequence begins, outermost first.
    latest: dict[str, int] = {}  # Their last marks.
    for at, line in enumerate(lines):
        if not line.startswith(_MARK):
            continue
        while line in begins and next(reversed(begins)) != line:  # An inner sequence, which has ended.
            begins.popitem()
        begin = begins.setdefault(line, at)
        if parts and parts[-1].stop > latest.get(line, at):  # The op before this mark is divided itself.
            begins[line] = at
        elif at - begin >= LONG:
            parts.append(range(begin, at))
            begins[line] = at
        latest[line] = at
    return parts


def _unmarked(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if not line.startswith(_MARK)]


def _labels(lines: Sequence[str]) -> list[str]:
    return _LABEL.findall("\n".join(lines))


def _blocks(lines: Sequence[str]) -> dict[str, list[str]]:
    """The lines of each block, by its label."""
    blocks: dict[str, list[str]] = {}
    block: list[str] = []
    for line in lines:
        match = _LABEL.match(line)
        if match is not None:
            block = blocks[match[1]] = []
        block.append(line)
    return blocks


def _text(labels: Sequence[str], blocks: Mapping[str, Sequence[str]]) -> list[str]:
    return [line for label in labels for line in blocks[label]]


def _aside(lines: Sequence[str], blocks: Mapping[str, Sequence[str]]) -> list[str]:
    """The labels of the blocks elsewhere that these lines branch to, and of those that these branch to."""
    own = {*_labels(lines)}
    aside: dict[str, None] = {}
    targets = _TARGET.findall("\n".join(lines))
    while targets:
        label = targets.pop()
        if label not in own and label not in aside:
            aside[label] = None
            targets += _TARGET.findall("\n".join(blocks[label]))
    return list(aside)


def _without(lines: Sequence[str], labels: set[str]) -> list[str]:
    """The lines without those of blocks with these labels."""
    kept: list[str] = []
    keeps = True
    for line in lines:
        match = _LABEL.match(line)
        keeps = keeps if match is None else match[1] not in labels
        if keeps:
            kept.append(line)
    return kept
