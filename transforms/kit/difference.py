"""The difference of two models, readable: numbering does not count."""

from __future__ import annotations

import difflib
import re

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
    matcher = difflib.SequenceMatcher(None, [_NAME.sub("%", x) for x in old], [_NAME.sub("%", x) for x in new], False)
    names: dict[str, str] = {}
    entries: list[str] = []
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag != "equal":
            entries += [f"-{line}" for line in old[a:b]] + [f"+{line}" for line in new[c:d]]
            continue
        for left, right in zip(old[a:b], new[c:d], strict=True):
            pairs = list(zip(_NAME.findall(left), _NAME.findall(right), strict=True))
            if all(names.setdefault(mine, theirs) == theirs for mine, theirs in pairs):
                entries.append(f" {right}")
            else:
                entries += [f"-{left}", f"+{right}"]
    changed = [index for index, line in enumerate(entries) if line[0] != " "]
    visible = [i for i in range(len(entries)) if any(abs(i - at) <= context for at in changed)]
    lines: list[str] = []
    for previous, index in zip([-1, *visible], visible, strict=False):
        if index != previous + 1:
            lines.append("…")
        lines.append(entries[index])
    return "\n".join(lines)
