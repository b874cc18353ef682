"""The names in the tokens of a source, found before it is parsed: its functions, and names that must be macros.

A source with macros that have no value yet cannot be parsed: `TYPE *x` may be a declaration. So this reads tokens only,
and takes for a declared name what follows a type in a place where a declaration can stand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from ziggurat.frontends.language.signature import SIGNATURES
from ziggurat.frontends.triton_c.c_library import ALIASES, CONSTANTS
from ziggurat.frontends.triton_c.declared import TYPE_WORDS
from ziggurat.frontends.triton_c.grammar import ATTRIBUTES, NOT_C, QUALIFIERS, WORDS
from ziggurat.frontends.triton_c.preprocess import IDENTIFIER, Token

KEYWORDS = frozenset((*WORDS, *TYPE_WORDS, *QUALIFIERS, *ATTRIBUTES))
KNOWN_NAMES = KEYWORDS | set(SIGNATURES) | set(ALIASES) | set(CONSTANTS) | {"newaxis", *NOT_C}
_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")
# A declaration stands at the start of a source, and after these.
_BEFORE = (";", "{", "}", "(", ")", "else", "do")


@attrs.frozen
class Header:
    """The name of a function, the names of its parameters, and whether `__global__` is before it."""

    name: str
    parameters: tuple[str, ...]
    is_kernel: bool


def headers(tokens: Sequence[Token]) -> list[Header]:
    """The functions that are defined in a source."""
    result: list[Header] = []
    depth = start = index = 0
    while index < len(tokens):
        text = tokens[index].text
        if depth == 0 and text == "(" and index and _is_name(tokens[index - 1]):
            end = _closing(tokens, index)
            if end + 1 < len(tokens) and tokens[end + 1].text == "{":
                words = {token.text for token in tokens[start : index - 1]}
                names = _parameters(tokens[index + 1 : end])
                result.append(Header(tokens[index - 1].text, tuple(names), "__global__" in words))
            index = end
        elif text in _OPENING:
            depth += 1
        elif text in _CLOSING:
            depth -= 1
            start = index + 1
        elif text == ";":
            start = index + 1
        index += 1
    return result


def undeclared(tokens: Sequence[Token]) -> dict[str, Token]:
    """The names that a source uses and does not declare, with their first uses: macros without a value."""
    names: set[str] = set()
    for header in headers(tokens):
        names |= {header.name, *header.parameters}
    for index, token in enumerate(tokens):
        before = tokens[index - 1].text if index else ";"
        if before == "(" and (index < 2 or tokens[index - 2].text != "for"):
            continue
        if token.kind == IDENTIFIER and before in _BEFORE:
            names.update(_declaration(tokens, index))
    tokens_by_name: dict[str, Token] = {}
    for index, token in enumerate(tokens):
        following = tokens[index + 1].text if index + 1 < len(tokens) else ""
        before = tokens[index - 1].text if index else ""
        is_used = token.kind == IDENTIFIER and following != "(" and before not in (".", "->")
        if is_used and token.text not in KNOWN_NAMES and token.text not in names:
            tokens_by_name.setdefault(token.text, token)
    return tokens_by_name


def _is_name(token: Token) -> bool:
    return token.kind == IDENTIFIER and token.text not in KEYWORDS


def _closing(tokens: Sequence[Token], index: int) -> int:
    """The index of the bracket that closes the one at an index; of the last token where none does."""
    depth = 0
    for place in range(index, len(tokens)):
        depth += (tokens[place].text in _OPENING) - (tokens[place].text in _CLOSING)
        if depth == 0:
            return place
    return len(tokens) - 1


def _split(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    """The parts between commas that are in no brackets."""
    part: list[Token] = []
    depth = 0
    for token in tokens:
        depth += (token.text in _OPENING) - (token.text in _CLOSING)
        if token.text == "," and depth == 0:
            yield part
            part = []
        else:
            part.append(token)
    yield part


def _parameters(tokens: Sequence[Token]) -> Iterator[str]:
    for part in _split(tokens):
        name = ""
        depth = 0
        for token in part:
            depth += (token.text in _OPENING) - (token.text in _CLOSING)
            if depth == 0 and _is_name(token):
                name = token.text  # The last one: a type that is a macro stands before it.
        if name:
            yield name


def _declaration(tokens: Sequence[Token], index: int) -> Iterator[str]:
    """The names that a declaration at an index declares; none where there is no declaration."""
    # The words of the type and the stars, up to the first declared name.
    has_type = False
    while index < len(tokens) and tokens[index].kind == IDENTIFIER:
        following = tokens[index + 1].text if index + 1 < len(tokens) else ""
        word = tokens[index].text
        if word in WORDS:
            return
        if word in ATTRIBUTES and following == "(":
            index = _closing(tokens, index + 1)
        elif has_type and _is_name(tokens[index]):
            break
        has_type = has_type or word not in QUALIFIERS
        index += 1
        if index < len(tokens) and tokens[index].text == "*":
            while index < len(tokens) and (tokens[index].text == "*" or tokens[index].text in QUALIFIERS):
                index += 1
            break
    if not has_type or index >= len(tokens) or not _is_name(tokens[index]):
        return
    # The declarators, up to the semicolon or the bracket that ends the declaration.
    end = index
    depth = 0
    while end < len(tokens) and not (tokens[end].text == ";" and depth <= 0) and depth >= 0:
        depth += (tokens[end].text in _OPENING) - (tokens[end].text in _CLOSING)
        end += 1
    for part in _split(tokens[index:end]):
        first = next((token for token in part if token.text != "*"), None)
        if first is not None and _is_name(first):
            yield first.text
