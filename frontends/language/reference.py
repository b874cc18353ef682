"""The language reference, docs/reference/language.md: `reference.md` filled in from the signature table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ziggurat.codemodel.types import SCALARS, ScalarType
from ziggurat.frontends.language import METHODS, SIGNATURES
from ziggurat.frontends.language.signature import Signature

_TEXT: Final = Path(__file__).with_name("reference.md")
_RAISED: Final = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def reference() -> str:
    """The reference in Markdown."""
    text = _TEXT.read_text(encoding="utf-8")
    groups = {
        group: [s for s in SIGNATURES.values() if s.group == group]
        for group in re.findall(r"^\{([A-Z].*)\}$", text, re.M)
    }
    parts = {group: "\n".join(map(_entry, signatures)) for group, signatures in groups.items()}
    parts |= {"contents": _contents(groups), "dtypes": "\n".join(map(_dtype, SCALARS.values()))}
    return re.sub(r"^\{(.+)\}$", lambda match: parts[match[1]], text, flags=re.M).removesuffix("\n")


def _contents(groups: dict[str, list[Signature]]) -> str:
    lines = [
        f"| [{group}](#{group.lower().replace(' ', '-')}) | {' '.join(f'`{s.name}`' for s in signatures)} |"
        for group, signatures in groups.items()
    ]
    return "\n".join(["| calls | |", "| --- | --- |", *lines, ""])


def _dtype(type_: ScalarType) -> str:
    return f"| `zg.{type_.name}` | {type_.kind} | {type_.bits} | {_values(type_)} |"


def _values(type_: ScalarType) -> str:
    if type_.kind == "bool":
        return "false, true; a byte in memory"
    if type_.kind == "int":
        power = str(type_.bits - 1 if type_.signed else type_.bits).translate(_RAISED)
        return f"{f'−2{power}' if type_.signed else '0'} … 2{power} − 1"
    return {
        "f16": "IEEE 754 binary16; up to 65504",
        "bf16": "the upper half of an f32",
        "f32": "IEEE 754 binary32",
        "f64": "IEEE 754 binary64",
        "f8e4m3": "4 bits of exponent, 3 of fraction; up to 448, no infinities",
        "f8e5m2": "5 bits of exponent, 2 of fraction; up to 57344",
    }[type_.name]


def _entry(signature: Signature) -> str:
    summary, _, rest = signature.doc.partition("\n\n")
    methods = [f"Also `desc.{method}(…)`.\n" for method, spelling in METHODS.items() if spelling.call == signature.name]
    return "\n".join([f"### `zg.{signature}`\n", f"{summary}\n", *methods, *_paragraphs(signature, rest)])


def _paragraphs(signature: Signature, text: str) -> Iterator[str]:
    """The rest of a docstring. Result and Errors become paragraphs; parameters that take constants are marked."""
    constants = {f"`{p.name}`" for p in signature.parameters if p.constexpr}
    for line in text.split("\n"):
        label, _, rest = line.partition(":")
        if label in ("Result", "Errors"):
            if label == "Errors":
                yield ""
            yield f"**{label}:**{rest}"
        elif constants.issuperset(label.removeprefix("- ").split(", ")):
            yield f"{label} (constant):{rest}"
        else:
            yield line
    yield ""
