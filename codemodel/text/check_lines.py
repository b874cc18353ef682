"""Lines that say what a part of a text must be, as LLVM's FileCheck has them.

    // CHECK: tt.func @"f"
    // CHECK-NEXT: [[SUM:%[0-9]+]] : i32 = arith.addi
    // CHECK-NOT: arith.muli
    // CHECK: tt.return [[SUM]]

`CHECK` matches next in the text, `CHECK-NEXT` in the next line, `CHECK-SAME` in the same line; `CHECK-EMPTY` is an
empty next line, `CHECK-COUNT-3` three matches. Lines of `CHECK-DAG` after each other match in any order, without
overlap. `CHECK-NOT` matches nowhere between the matches around it. `CHECK-LABEL` divides the text: what follows it
matches before the next label. `{{…}}` is a regular expression of Python's, `[[NAME:…]]` one whose match `[[NAME]]`
stands for from there on; a label forgets names without `$`. Blanks match any number of blanks.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import attrs

from ziggurat.codemodel.errors import LaunchError

_LINE = re.compile(r"//\s*(CHECK(?:-[\w-]+)?):(.*)$", re.MULTILINE)
_PARTS = re.compile(r"\{\{(.+?)\}\}(?!\})|\[\[(\$?[A-Za-z_]\w*)\]\]|\[\[(\$?[A-Za-z_]\w*):(.*?)\]\](?!\])|([ \t]+)")
_KINDS = ("", "NEXT", "SAME", "EMPTY", "NOT", "DAG", "LABEL")
_COUNT = re.compile(r"COUNT-([1-9]\d*)")


@attrs.frozen
class CheckLine:
    """One line: its kind, such as "NEXT", "" for a plain one, and what it must match."""

    kind: str
    pattern: str

    def __str__(self) -> str:
        return f"CHECK{'-' * bool(self.kind)}{self.kind}: {self.pattern}"


class _MismatchError(Exception):
    """Says which line does not match, and where it should."""


def check_lines(text: str) -> list[CheckLine]:
    """The lines of a text, in order. Raises `LaunchError` for one that is no such line."""
    lines: list[CheckLine] = []
    for name, pattern in _LINE.findall(text):
        kind = name.removeprefix("CHECK").removeprefix("-")
        count = _COUNT.fullmatch(kind)
        line = CheckLine("" if count else kind, pattern.strip())
        if line.kind not in _KINDS:
            raise LaunchError(
                f"'// {name}:' is no check", hint=f"the kinds are {', '.join(filter(None, _KINDS))}, COUNT-n"
            )
        if bool(line.pattern) == (line.kind == "EMPTY"):
            raise LaunchError(f"'// {name}:' must have {'nothing' if line.pattern else 'a text'} after the colon")
        lines += [line] * int(count[1] if count else 1)
    if lines and lines[0].kind in ("NEXT", "SAME", "EMPTY"):
        raise LaunchError(f"'// {lines[0]}' follows no match", hint="begin with // CHECK: or // CHECK-LABEL:")
    return lines


def mismatch(lines: Sequence[CheckLine], text: str) -> str | None:
    """What the first line that a text does not match says; None if all match. Raises `LaunchError` for a line that is
    no regular expression, or that has a name without a match."""
    names: dict[str, str] = {}
    labels = [index for index, line in enumerate(lines) if line.kind == "LABEL"]
    try:
        spans: list[tuple[int, int]] = []
        for index in labels:
            spans.append(_Matcher(text, spans[-1][1] if spans else 0, len(text), names).next(lines[index]))
        ends = [*(start for start, _ in spans), len(text)]
        bounds = zip([0, *(end for _, end in spans)], ends, [0, *(index + 1 for index in labels)], strict=True)
        for (start, end, first), last in zip(bounds, [*labels, len(lines)], strict=True):
            names = {name: value for name, value in names.items() if name[0] == "$"} if first else names
            _Matcher(text, start, end, names).all(lines[first:last])
    except _MismatchError as error:
        return str(error)
    return None


@attrs.define
class _Matcher:
    """Matches lines in a part of a text, from `place` to `end`. `names` has the texts of variables."""

    text: str
    place: int
    end: int
    names: dict[str, str]

    def all(self, lines: Sequence[CheckLine]) -> None:
        """Match all lines, of which none is a label."""
        refused: list[CheckLine] = []
        for kind, group in itertools.groupby(lines, lambda line: line.kind):
            if kind == "NOT":
                refused += group
                continue
            for spans in [self.any_order([*group])] if kind == "DAG" else ([self.next(line)] for line in group):
                self.refuse(refused, min(start for start, _ in spans))
                refused = []
                self.place = max(end for _, end in spans)
        self.refuse(refused, self.end)

    def next(self, line: CheckLine) -> tuple[int, int]:
        """The first match of a line from here on."""
        if line.kind == "EMPTY":
            start = self.text.find("\n", self.place, self.end) + 1
            if start and self.text[start : start + 1] in ("", "\n"):
                return start, start
            raise self.error(line, "the next line is not empty")
        match = self.search(line, self.place)
        if match is None:
            raise self.error(line, "nothing matches")
        breaks = self.text.count("\n", self.place, match.start())
        if breaks != {"NEXT": 1, "SAME": 0}.get(line.kind, breaks):
            raise self.error(line, "the match is not in the " + ("next line" if line.kind == "NEXT" else "same line"))
        return match.span()

    def any_order(self, lines: Sequence[CheckLine]) -> list[tuple[int, int]]:
        """Matches of the lines that do not overlap."""
        spans: list[tuple[int, int]] = []
        for line in lines:
            place = self.place
            while (match := self.search(line, place)) is not None:
                overlapped = [end for start, end in spans if start < match.end() and match.start() < end]
                if not overlapped:
                    break
                place = max(overlapped)
            if match is None:
                raise self.error(line, "nothing matches")
            spans.append(match.span())
        return spans

    def refuse(self, lines: Sequence[CheckLine], end: int) -> None:
        """Raise the error of a line that matches before `end`."""
        for line in lines:
            if (match := self.search(line, self.place)) is not None and match.start() < end:
                raise self.error(line, f"line {self.line_of(match.start())} matches")

    def search(self, line: CheckLine, place: int) -> re.Match[str] | None:
        """The first match, whose variables have their texts from now on."""
        groups: dict[str, str] = {}
        pattern, last = "", 0
        for part in _PARTS.finditer(line.pattern):
            pattern += re.escape(line.pattern[last : part.start()])
            last = part.end()
            regex, name, new, inner, _ = part.groups()
            if name and name not in groups and name not in self.names:
                raise LaunchError(f"'// {line}' has [[{name}]], which no match has given a text")
            if new:
                groups[new] = f"group_{len(groups)}"
                pattern += f"(?P<{groups[new]}>{inner})"
            elif name:
                pattern += f"(?P={groups[name]})" if name in groups else re.escape(self.names[name])
            else:
                pattern += f"(?:{regex})" if regex else r"[ \t]+"
        try:
            expression = re.compile(pattern + re.escape(line.pattern[last:]), re.MULTILINE)
        except re.error as error:
            raise LaunchError(f"'// {line}' is no regular expression: {error}") from None
        match = None
        while match is None and place <= self.end:  # A match is within a line.
            line_end = self.text.find("\n", place, self.end)
            line_end = line_end if line_end >= 0 else self.end
            match = expression.search(self.text, place, line_end)
            place = line_end + 1
        if match is not None and line.kind != "NOT":
            self.names.update({name: match[group] for name, group in groups.items()})
        return match

    def line_of(self, place: int) -> int:
        return self.text.count("\n", 0, place) + 1

    def error(self, line: CheckLine, reason: str) -> _MismatchError:
        """The error of a line, with the lines from where it is looked for."""
        number = self.line_of(self.place)
        lines = self.text[: self.end].splitlines()[number - 1 : number + 7]
        excerpt = "\n".join(f"{number + index:5} | {text}" for index, text in enumerate(lines))
        return _MismatchError(f"// {line}\n{reason}, from line {number} on:\n{excerpt}")
