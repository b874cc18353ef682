"""The template and the constraints of inline assembly, as LLVM's NVPTX target reads them.

LLVM ends the process, or calls exit, on templates that it cannot read; so they are read here first.
"""

from __future__ import annotations

import re

# The letters of LLVM's NVPTX target, and the bits that a register of each holds.
LETTERS = {"b": 1, "c": 8, "h": 16, "r": 32, "l": 64, "f": 32, "d": 64}

# Patterns, which `re` compiles at their first use: few kernels have inline assembly.
# "$$" is a dollar sign, "${:uid}" a number that differs between two copies of the text.
_NAMED = r"\$(?:(\$)|(\d+)|\{(\d+)\}|(\{:uid\}))"
# Control characters but tabs and ends of lines, and surrogates, which have no bytes.
_UNPRINTABLE = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]"
_CONSTRAINT = rf"=&?[{''.join(LETTERS)}]|[n{''.join(LETTERS)}]|\d+|~\{{\w+\}}"


def parts_of(constraints: str) -> list[str]:
    """The constraints one by one."""
    return [part.strip() for part in constraints.split(",")] if constraints.strip() else []


def template_error(text: str, registers: int) -> tuple[str, str] | None:
    """The message and the hint for a template that cannot be assembled with so many registers; None for others."""
    at = 0
    while (at := text.find("$", at)) >= 0:
        match = re.compile(_NAMED).match(text, at)
        if match is None:
            piece = text[at : at + 8].split("\n")[0]
            return f"'$' must begin $0, ${{0}}, ${{:uid}} or $$; got {piece!r}", "write '$$' for a dollar sign"
        number = match[2] or match[3]
        if number is not None and int(number[:9]) >= registers:
            names = f"$0 to ${registers - 1}" if registers else "none"
            return f"the assembly names ${number[:9]}, and the constraints have {names}", "write '$$' for a dollar sign"
        at = match.end()
    if wrong := re.search(_UNPRINTABLE, text):
        return f"assembly must be printable text; got the character {wrong[0]!r}", "PTX is ASCII"
    return None


def constraints_error(constraints: str) -> str | None:
    """The message for constraints that LLVM cannot read; None for others."""
    parts = parts_of(constraints)
    outputs = sum(part.startswith("=") for part in parts)
    for at, part in enumerate(parts):
        if re.fullmatch(_CONSTRAINT, part) is None:
            return f"the constraint {part!r} must be one of PTX's: {', '.join(LETTERS)}, n, a number, ~{{memory}}"
        if part.startswith("=") != (at < outputs):
            return f"the constraints of results must come first; got {constraints!r}"
        if part.isdecimal() and int(part[:9]) >= outputs:
            return f"the constraint {part!r} must be the number of a result"
    return None
