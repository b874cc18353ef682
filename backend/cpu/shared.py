"""Slow paths that are alike, as one function.

Each affine access has a slow path, which goes element by element. Those of a loop that its author unrolled a thousand
times differ in the values and constants that they use, and LLVM would compile each. So slow paths of equal text become
calls of a function, which takes the values, and the constants that differ. It returns 0 or the code of an error, which
the kernel returns as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from ziggurat.backend.cpu.outline import DEFINITION, checked_call, type_of
from ziggurat.codemodel.graphs import by_key

SLOW: Final = "slow"  # The labels of slow paths begin so.
MIN_PATHS: Final = 4  # Fewer than these stay in the kernel.

_BRANCH = re.compile(rf"  br i1 %[\w.]+, label %([\w.]+), label %({SLOW}\d+), ")
_DEBUG = re.compile(r", !dbg !\d+$")
_LABEL = re.compile(r"^([\w.]+):")
_NAME = re.compile(r"%([\w.]+)")
# A constant after its type, and the second operand of an operation on integers.
_TYPED = re.compile(r"\b(i\d+) (-?\d+)(?=[,)]|$)")
_OPERAND = re.compile(r"^(  %[\w.]+ = (?:icmp \w+|[a-z]+)(?: nuw| nsw| exact| disjoint)* (i\d+) %[\w.]+, )(-?\d+)$")
_PLACE: Final = "\0"  # Stands for a constant.


@attrs.frozen
class _Path:
    """A slow path: its lines in a text, where control goes on, its text with names and constants left out, the outer
    values that it uses, and its constants."""

    text: int
    first: int
    end: int
    after: str
    form: str
    values: tuple[str, ...]
    constants: tuple[tuple[str, str], ...]


def share(symbol: str, texts: Sequence[list[str]], attributes: str) -> list[str]:
    """Replace the slow paths in the texts of a kernel that are alike by calls, and give the lines of the functions."""
    paths_of_all = (path for number, lines in enumerate(texts) for path in _paths(number, lines))
    forms = by_key((path.form, path) for path in paths_of_all)
    groups = [paths for paths in forms.values() if len(paths) >= MIN_PATHS]
    definitions = dict(DEFINITION.findall("\n".join("\n".join(lines) for lines in texts))) if groups else {}
    functions: list[str] = []
    calls: list[tuple[_Path, str]] = []
    for number, paths in enumerate(groups):
        name = f"{symbol}.{SLOW}{number}"
        constants = zip(*(path.constants for path in paths), strict=True)
        differing = [place for place, column in enumerate(constants) if len({*column}) > 1]
        signature = [type_of(definitions[v]) if v in definitions else "ptr" for v in paths[0].values]
        functions += _function(name, paths[0], signature, differing, attributes)
        for path in paths:
            arguments = [f"{type_} %{value}" for type_, value in zip(signature, path.values, strict=True)]
            arguments += [" ".join(path.constants[place]) for place in differing]
            calls.append((path, f"call preserve_mostcc i64 @{name}({', '.join(arguments)})"))
    for path, call in sorted(calls, key=lambda pair: pair[0].first, reverse=True):
        label = texts[path.text][path.first - 1][:-1]
        texts[path.text][path.first : path.end] = checked_call(f"{label}.status", call, path.after)
    return functions


def _paths(number: int, lines: Sequence[str]) -> Iterator[_Path]:
    for at, line in enumerate(lines):
        branch = _BRANCH.match(line)
        if branch is None:
            continue
        after = branch[1]
        first = at + 2  # After the label.
        end = lines.index(f"{after}:", first)
        yield _path(number, first, end, lines[first:end], {branch[2]: SLOW, after: "after"})


def _path(number: int, first: int, end: int, lines: Sequence[str], own: dict[str, str]) -> _Path:
    """The slow path of these lines; `own` has the names that its labels get, to begin with those before and after."""
    after = [*own][1]
    lines = [_DEBUG.sub("", line) for line in lines]
    for line in lines:
        for pattern, prefix in ((_LABEL, "at"), (DEFINITION, "v")):
            match = pattern.match(line)
            if match is not None:
                own[match[1]] = f"{prefix}{len(own)}"
    values: dict[str, str] = {}
    constants: list[tuple[str, str]] = []

    def renamed(name: re.Match[str]) -> str:
        return f"%{own.get(name[1]) or values.setdefault(name[1], f'p{len(values)}')}"

    def typed(constant: re.Match[str]) -> str:
        constants.append((constant[1], constant[2]))
        return f"{constant[1]} {_PLACE}"

    form: list[str] = []
    for line in lines:
        label = _LABEL.match(line)
        if label is not None:
            form.append(f"{own[label[1]]}:")
            continue
        line = _TYPED.sub(typed, line)
        operand = _OPERAND.match(line)
        if operand is not None:
            constants.append((operand[2], operand[3]))
            line = f"{operand[1]}{_PLACE}"
        form.append(_NAME.sub(renamed, line))
    return _Path(number, first, end, after, "\n".join(form), tuple(values), tuple(constants))


def _function(name: str, path: _Path, signature: Sequence[str], differing: Sequence[int], attributes: str) -> list[str]:
    """The function of slow paths like this one; the constants at some places are parameters."""
    parameters = [f"{type_} %p{number}" for number, type_ in enumerate(signature)]
    parameters += [f"{path.constants[place][0]} %c{place}" for place in differing]
    pieces = path.form.split(_PLACE)
    constants = [f"%c{place}" if place in differing else value for place, (_, value) in enumerate(path.constants)]
    text = "".join(piece + constant for piece, constant in zip(pieces, [*constants, ""], strict=True))
    head = f"define internal preserve_mostcc i64 @{name}({', '.join(parameters)}) {attributes} {{"
    return [head, f"{SLOW}:", *text.split("\n"), "after:", "  ret i64 0", "}"]
