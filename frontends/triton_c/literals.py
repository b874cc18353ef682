"""Literals of Triton-C, and expressions of integer literals, which are known when the source is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ziggurat.codemodel.errors import KernelValueError
from ziggurat.codemodel.numbers import quotient, remainder
from ziggurat.codemodel.python_operators import BY_SIGN
from ziggurat.codemodel.types import ScalarType, i64, u32, u64
from ziggurat.frontends.triton_c.c_library import BINARY, CONSTANTS
from ziggurat.frontends.triton_c.grammar import Node
from ziggurat.frontends.triton_c.source import CSource
from ziggurat.frontends.triton_c.trees import grouped

_ESCAPE = re.compile(r"\\([0-7]{1,3}|x[0-9a-fA-F]+|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_KNOWN_UNARY: Mapping[str, Callable[[int], int]] = {
    "-": lambda x: -x, "+": lambda x: x, "!": lambda x: int(not x), "~": lambda x: ~x,
}  # fmt: skip
_KNOWN: Mapping[str, Callable[[int, int], int]] = {
    **{sign: row.function for sign, row in BY_SIGN.items() if sign in BINARY},
    "/": quotient, "%": remainder,
    "&&": lambda a, b: bool(a) and bool(b), "||": lambda a, b: bool(a) or bool(b),
}  # fmt: skip


def literal(node: Node, source: CSource) -> tuple[Any, ScalarType | None]:
    """The number of a literal, and the type that its suffix gives it."""
    token = node.children[0]
    text = str(token)
    if token.type == "CHARACTER":
        characters = unescaped(text.removeprefix("L"))
        if len(characters) != 1:
            raise source.syntax(
                f"a character literal must have one character; got {len(characters)}", node, "write 'a'"
            )
        return ord(characters), None
    if token.type == "FLOAT":
        digits = text.rstrip("fFlL") if "x" not in text.lower() else text.rstrip("lL")
        if "x" in digits.lower():
            try:
                return float.fromhex(digits.rstrip("fF") if "p" in digits.lower() else digits), None
            except (ValueError, OverflowError):
                raise source.at(KernelValueError(f"the number {text} is not a float"), node) from None
        return float(digits), None
    digits = text.rstrip("uUlL")
    suffix = text[len(digits) :].lower()
    if suffix not in ("", "u", "l", "ul", "lu", "ll", "ull", "llu"):
        raise source.syntax(f"a number cannot end in '{suffix}'", node, "write u, l or ul, or nothing")
    octal = len(digits) > 1 and digits[0] == "0" and digits.isdecimal()
    if len(digits) > 100:
        raise source.at(KernelValueError("an integer must fit in 64 bits"), node)
    try:
        value = int(digits, 8 if octal else 0)
    except ValueError:
        raise source.syntax(f"{text} is not an octal number", node, "leave out the 0 before it") from None
    if value >= 1 << 64:
        raise source.at(KernelValueError(f"the integer {text} does not fit in 64 bits"), node)
    long, unsigned = "l" in suffix, "u" in suffix
    if not suffix:
        return value, None
    return value, u64 if unsigned and (long or value >= 1 << 32) else u32 if unsigned else i64


def unescaped(text: str) -> str:
    """The characters of a string or a character with its quotes."""

    def escape(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] == "x" and len(code) > 1:
            return chr(min(int(code[1:], 16), 0x10FFFF))
        return chr(int(code, 8)) if code[0] in "01234567" else _ESCAPES.get(code, code)

    return _ESCAPE.sub(escape, text[1:-1])


def static_value(node: Node, source: CSource, is_variable: Callable[[str], bool]) -> int | None:
    """The value of an expression of integer literals and constants; None for another expression."""
    if node.data == "group":
        return static_value(node.children[1], source, is_variable)
    if node.data == "number" and node.children[0].type in ("INTEGER", "CHARACTER"):
        return literal(node, source)[0]
    if node.data == "name" and not is_variable(str(node.children[0])):
        value = CONSTANTS.get(str(node.children[0]))
        return int(value) if isinstance(value, int) else None
    if node.data == "unary" and str(node.children[0]) in "-+!~":
        value = static_value(node.children[1], source, is_variable)
        return None if value is None else _KNOWN_UNARY[str(node.children[0])](value)
    if node.data == "chain":
        node = grouped(node)
    if node.data != "binary":
        return None
    left, sign, right = node.children
    a, b = static_value(left, source, is_variable), static_value(right, source, is_variable)
    if a is None or b is None or str(sign) not in _KNOWN:
        return None
    if (str(sign) in ("/", "%") and b == 0) or (str(sign) in ("<<", ">>") and not 0 <= b < 64):
        return None
    return int(_KNOWN[str(sign)](a, b))
