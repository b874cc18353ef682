"""The difference of two models, readable: numbering does not count."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from ziggurat.codemodel.op import Op, require_argument, require_model, same_model
from ziggurat.codemodel.text.writer import to_text

_NAME = re.compile(r"[%^][\w.]+")


def difference(before: Op, after: Op, context: int = 3) -> str:
    """The lines in which two models differ, as a unified difference; "" for equal models.

    Values and blocks have numbers in the text, and one more op renumbers all that follow. Lines that differ in numbers
    alone count as equal, as long as each old number corresponds to one new number.
    """
    require_model(before, "difference")
    require_model(after, "difference")
    is_count = isinstance(context, int) and context >= 0  # pyright: ignore[reportUnnecessaryIsInstance]
    require_argument(context, is_count, "difference: 'context' must be a number of lines, zero or more")
    if same_model(before, after):
        return ""
    old, new = to_text(before).splitlines(), to_text(after).splitlines()
    entries = [f"{mark}{(old if mark == '-' else new)[number]}" for mark, number in edits(old, new)]
    changed = [index for index, line in enumerate(entries) if line[0] != " "]
    visible = [i for i in range(len(entries)) if any(abs(i - at) <= context for at in changed)]
    lines: list[str] = []
    for previous, index in zip([-1, *visible], visible, strict=False):
        if index != previous + 1:
            lines.append("…")
        lines.append(entries[index])
    return "\n".join(lines)


def edits(old: Sequence[str], new: Sequence[str]) -> list[tuple[str, int]]:
    """The lines of two texts of models in one order: " " and the number of a new line that is an old one but for its
    numbers, "-" and that of an old line that is gone, "+" and that of a new line."""
    matcher = difflib.SequenceMatcher(None, [_NAME.sub("%", x) for x in old], [_NAME.sub("%", x) for x in new], False)
    names: dict[str, str] = {}
    entries: list[tuple[str, int]] = []
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag != "equal":
            entries += [*(("-", number) for number in range(a, b)), *(("+", number) for number in range(c, d))]
            continue
        for left, right in zip(range(a, b), range(c, d), strict=True):
            pairs = zip(_NAME.findall(old[left]), _NAME.findall(new[right]), strict=True)
            is_same = all(names.setdefault(mine, theirs) == theirs for mine, theirs in pairs)
            entries += [(" ", right)] if is_same else [("-", left), ("+", right)]
    return entries
