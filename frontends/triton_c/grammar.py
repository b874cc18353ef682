"""The grammar of Triton-C, and the parser: from tokens to a syntax tree.

The parser is lark's (LALR). A token of a tree has its number among the tokens of the source as `start_pos`, from which
`span` finds the place of a tree. (lark's own propagation of positions takes as long as the rest of the parsing.)
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, TypeAlias

import attrs
import lark
from lark.exceptions import UnexpectedToken

from ziggurat.codemodel.errors import KernelSyntaxError
from ziggurat.frontends.language.signature import suggest
from ziggurat.frontends.triton_c import preprocess
from ziggurat.frontends.triton_c.declared import TYPE_WORDS
from ziggurat.frontends.triton_c.preprocess import Token

# A tree of lark or a token of lark.
Node: TypeAlias = Any

QUALIFIERS = (
    "__global__", "__device__", "const", "volatile", "static", "inline", "__inline__", "__forceinline__", "extern",
    "restrict", "__restrict__", "__restrict", "register", "__readonly", "__writeonly", "__noalias", "__retune",
    "__constant__",
)  # fmt: skip
ATTRIBUTES = ("__multipleof", "__aligned")
WORDS = {
    "if": "IF", "else": "_ELSE", "for": "FOR", "while": "WHILE", "do": "DO", "break": "BREAK", "continue": "CONTINUE",
    "return": "RETURN", "sizeof": "SIZEOF",
}  # fmt: skip
# Words of C that the language does not have, and words to write in their place.
NOT_C = {
    "switch": "write if and else", "case": "write if and else", "default": "write if and else",
    "goto": "write a loop, with break or continue", "struct": "pass its members as parameters",
    "union": "cast with bitcast(x, type)", "enum": "write #define or const int", "typedef": "write #define",
    "class": "write functions", "template": "write macros, and give their values from outside",
    "asm": "call inline_asm_elementwise", "__shared__": "leave it out: the compiler allocates shared memory",
    "__syncthreads": "leave it out: the compiler inserts barriers", "_Complex": "keep two arrays",
    **dict.fromkeys(("threadIdx", "blockDim"), "a program has no threads: compute with the range 0 ... N, an array"),
    "blockIdx": "call get_program_id(0)", "gridDim": "call get_num_programs(0)",
    "auto": "write the type", "printf": 'call device_print("x: ", x)',
}  # fmt: skip
_SIGNS = {
    "+": "PLUS", "-": "MINUS", "*": "STAR", "/": "SLASH", "%": "PERCENT", "@": "AT", "&": "AND", "|": "OR",
    "^": "CARET", "~": "TILDE", "!": "NOT", "<": "LESS", ">": "GREATER", "<=": "LESS_EQUAL", ">=": "GREATER_EQUAL",
    "==": "EQUAL", "!=": "NOT_EQUAL", "<<": "SHIFT_LEFT", ">>": "SHIFT_RIGHT", "&&": "AND_AND", "||": "OR_OR",
    "=": "ASSIGN", "+=": "ADD_ASSIGN", "-=": "SUB_ASSIGN", "*=": "MUL_ASSIGN", "/=": "DIV_ASSIGN",
    "%=": "MOD_ASSIGN", "&=": "AND_ASSIGN", "|=": "OR_ASSIGN", "^=": "XOR_ASSIGN", "<<=": "SHL_ASSIGN",
    ">>=": "SHR_ASSIGN", "@=": "DOT_ASSIGN", "++": "INCREMENT", "--": "DECREMENT", "?": "_QUESTION", ":": "COLON",
    "...": "ELLIPSIS", "*?": "MASKED", "(": "_LPAR", ")": "_RPAR", "[": "_LSQB", "]": "_RSQB", "{": "_LBRACE",
    "}": "_RBRACE", ",": "_COMMA", ";": "_SEMICOLON", ".": "DOT", "->": "ARROW",
}  # fmt: skip
_KINDS = {
    preprocess.INTEGER: "INTEGER", preprocess.FLOAT: "FLOAT", preprocess.STRING: "STRING",
    preprocess.CHARACTER: "CHARACTER",
}  # fmt: skip
_TERMINALS = ("NAME", "TYPE", "QUALIFIER", "ATTRIBUTE", *_KINDS.values(), *WORDS.values(), *_SIGNS.values())

# The binary operators, from the loosest to the tightest. The range `a ... b` binds tighter than all of them. The
# grammar has a chain of operands and operators, which is grouped when it is read: a rule for each level would take the
# parser several times as long.
LEVELS = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"), ("+", "-"),
    ("*", "/", "%", "@"),
)  # fmt: skip
_OPERATORS = tuple(_SIGNS[sign] for signs in LEVELS for sign in signs)

_GRAMMAR = r"""
start: (function | prototype | declaration _SEMICOLON)*

function: header block
prototype: header _SEMICOLON
header: specifiers stars NAME _LPAR [parameters] _RPAR
parameters: parameter (_COMMA parameter)*
parameter: specifiers stars NAME dims (attribute | QUALIFIER)*
         | specifiers
specifiers: (TYPE | QUALIFIER | attribute)+
stars: (STAR QUALIFIER*)*
attribute: ATTRIBUTE [_LPAR assignment _RPAR]
dims: (_LSQB [sizes] _RSQB)*
sizes: expression (_COMMA expression)* | ELLIPSIS

?statement: block
          | declaration _SEMICOLON
          | commas _SEMICOLON -> evaluate
          | _SEMICOLON -> empty
          | IF _LPAR commas _RPAR statement [_ELSE statement] -> if
          | FOR _LPAR (declaration | [commas]) _SEMICOLON [commas] _SEMICOLON [commas] _RPAR statement -> for
          | WHILE _LPAR commas _RPAR statement -> while
          | DO statement WHILE _LPAR commas _RPAR _SEMICOLON -> do
          | BREAK _SEMICOLON -> break
          | CONTINUE _SEMICOLON -> continue
          | RETURN [commas] _SEMICOLON -> return
block: _LBRACE statement* _RBRACE
declaration: specifiers variable (_COMMA variable)*
variable: stars NAME dims (attribute | QUALIFIER)* [ASSIGN (assignment | braces)]
braces: _LBRACE [assignment (_COMMA assignment)*] _RBRACE

?commas: assignment (_COMMA assignment)*
?assignment: expression
           | unary set assignment -> assign
!set: ASSIGN | ADD_ASSIGN | SUB_ASSIGN | MUL_ASSIGN | DIV_ASSIGN | MOD_ASSIGN | AND_ASSIGN | OR_ASSIGN | XOR_ASSIGN
    | SHL_ASSIGN | SHR_ASSIGN | DOT_ASSIGN
?expression: chain
           | chain _QUESTION commas COLON expression -> choose
?chain: range ((OPERATOR) range)*
?range: unary
      | unary ELLIPSIS unary -> range
?unary: postfix
      | STAR unary -> load
      | MASKED _LPAR commas _RPAR unary -> masked
      | (MINUS | PLUS | NOT | TILDE | CARET | AND) unary -> unary
      | (INCREMENT | DECREMENT) unary -> step
      | cast
      | sizeof
!cast: _LPAR type _RPAR unary
!sizeof: SIZEOF _LPAR type _RPAR
?postfix: primary
        | subscript
        | call
        | postfix (INCREMENT | DECREMENT) -> step_after
        | postfix (DOT | ARROW) NAME -> member
!subscript: postfix _LSQB index (_COMMA index)* _RSQB
!call: postfix _LPAR [argument (_COMMA argument)*] _RPAR
?primary: NAME -> name
        | (INTEGER | FLOAT | CHARACTER) -> number
        | STRING+ -> string
        | group
!group: _LPAR commas _RPAR
index: COLON | PLUS | assignment
?argument: assignment | type | braces
type: specifiers stars dims
"""


_MAX_OPEN = 5000  # Symbols of what is begun and not ended: each `else if` adds six.


def _grammar() -> str:
    """The text of the grammar for lark."""
    return _GRAMMAR.replace("OPERATOR", " | ".join(_OPERATORS)) + f"%declare {' '.join(_TERMINALS)}\n"


@functools.cache
def parser() -> lark.Lark:
    """The parser, which takes half a second to make."""
    return lark.Lark(_grammar(), parser="lalr", lexer="basic", maybe_placeholders=True)


def parse(tokens: Sequence[Token]) -> Node:
    """The syntax tree of tokens that are `merged`.

    Raises `KernelSyntaxError` at the first token that cannot stand where it is.
    """
    run: Any = parser()
    run = run.parse_interactive()
    number = 0
    try:
        for number, token in enumerate(tokens):
            kind, text = _kind(token), token.text
            run.feed_token(lark.Token(kind, text, number))
            if len(run.parser_state.state_stack) > _MAX_OPEN:
                raise error_at(token, "the source is nested too deeply here", "move a part into a function of its own")
        number = len(tokens)
        return run.feed_eof()
    except UnexpectedToken:
        raise _unexpected(tokens, number, run.accepts()) from None


def span(node: Node) -> tuple[int, int]:
    """The numbers of the first and the last token of a tree that has tokens."""
    return _end(node, 1), _end(node, -1)


def _end(node: Node, step: int) -> int:
    """The number of the first token of a tree, or of the last one where `step` is -1; -1 for a tree without tokens."""
    if isinstance(node, lark.Token):
        return node.start_pos if node.start_pos is not None else -1
    meta: Any = node.meta
    if not hasattr(meta, f"end{step}"):  # Kept, because the last token of an `if` is that of all its `else if`s.
        ends = (_end(child, step) for child in node.children[::step] if child is not None)
        setattr(meta, f"end{step}", next((end for end in ends if end >= 0), -1))
    return getattr(meta, f"end{step}")


def merge_tokens(tokens: Sequence[Token]) -> list[Token]:
    """The tokens that the parser numbers, with `*?` and `@=` as one each, which the preprocessor does not know."""
    merged: list[Token] = []
    for token in tokens:
        last = merged[-1] if merged else None
        if last is not None and last.text + token.text in ("*?", "@="):
            place = last.place
            if token.text == "=" and place.end_column != token.place.column:
                merged.append(token)  # `a @ = b` is an error.
                continue
            if (place.file, place.end_line) == (token.place.file, token.place.line):
                place = attrs.evolve(place, end_column=token.place.end_column)
            merged[-1] = attrs.evolve(last, text=last.text + token.text, place=place)
        else:
            merged.append(token)
    return merged


def _kind(token: Token) -> str:
    """The terminal that a token is. Raises `KernelSyntaxError` for a token that is none."""
    text = token.text
    if token.kind == preprocess.IDENTIFIER:
        if text in NOT_C:
            raise error_at(token, f"Triton-C has no '{text}'", NOT_C[text])
        return _NAMES.get(text, "NAME")
    kind = _KINDS.get(token.kind) or _SIGNS.get(text)
    if kind is None:
        unclosed = "a string or a character is not closed on its line" if text in ("'", '"') else None
        raise error_at(token, unclosed or f"Triton-C has no character {text!r}")
    return kind


_NAMES = {
    **WORDS,
    **dict.fromkeys(TYPE_WORDS, "TYPE"),
    **dict.fromkeys(QUALIFIERS, "QUALIFIER"),
    **dict.fromkeys(ATTRIBUTES, "ATTRIBUTE"),
}


def error_at(token: Token, summary: str, hint: str | None = None) -> KernelSyntaxError:
    """An error at a token; one that comes from a macro shows the macro's definition too."""
    error = KernelSyntaxError(summary, token.place, hint)
    if token.macro is not None:
        error.add(f"in the definition of the macro '{token.macro}'", token.defined)
    return error


# Words for sets of terminals that the parser could go on with; the first set that is among them is said.
_EXPRESSION = frozenset(("NAME", "INTEGER", "_LPAR", "STAR", "MINUS"))
_SAID = (
    (frozenset(("IF", "_RBRACE", "TYPE")), "a statement or '}'"),
    (frozenset(("IF", "TYPE")), "a statement"),
    (_EXPRESSION | {"TYPE", "_SEMICOLON"}, "a declaration, an expression or ';'"),
    (_EXPRESSION | {"TYPE"}, "an expression or a type"),
    (_EXPRESSION | {"COLON"}, "an index: ':', newaxis, '+', max or min"),
    (_EXPRESSION | {"_SEMICOLON"}, "an expression or ';'"),
    (_EXPRESSION | {"_RPAR"}, "an expression or ')'"),
    (_EXPRESSION | {"ELLIPSIS"}, "a size"),
    (_EXPRESSION | {"_LBRACE"}, "an expression"),
    (_EXPRESSION, "an expression"),
    (frozenset(("TYPE", "QUALIFIER", "$END")), "a function, such as __global__ void f(float *x) { … }"),
    (frozenset(("TYPE", "QUALIFIER", "NAME")), "a name or '*'"),
    (frozenset(("TYPE", "QUALIFIER", "_RPAR")), "a parameter, such as float *x"),
    (frozenset(("TYPE", "QUALIFIER")), "a type"),
)
# Continuations that are always possible and would hide the one that is missing.
_ALWAYS = frozenset(_OPERATORS) | {
    "_QUESTION", "ELLIPSIS", "_LSQB", "INCREMENT", "DECREMENT", "DOT", "ARROW", "ATTRIBUTE", "QUALIFIER",
    "_LPAR",
}  # fmt: skip
_TEXTS = {name: f"'{text}'" for text, name in (*_SIGNS.items(), *WORDS.items())} | {
    "NAME": "a name", "$END": "the end of the source", "TYPE": "a type", "QUALIFIER": "a qualifier",
    "ATTRIBUTE": "an attribute", "INTEGER": "a number", "FLOAT": "a number", "STRING": "a string",
    "CHARACTER": "a character",
}  # fmt: skip


def _unexpected(tokens: Sequence[Token], number: int, accepted: set[str]) -> KernelSyntaxError:
    """The error of a token that cannot stand where it is."""
    ended = number == len(tokens)
    if not tokens:
        return KernelSyntaxError("the source has no function", None, "write __global__ void f(float *x) { … }")
    token = tokens[-1] if ended else tokens[number]
    before = tokens[number - 1] if number else None
    got = "the source ends here" if ended else f"got '{token.text}'"
    tokens = () if ended else [token for token in (before, token) if token is not None]
    names = [token for token in tokens if token.kind == preprocess.IDENTIFIER]
    if len(names) == 2 and _kind(names[0]) == "NAME":
        return _no_type(names[0])
    if names[-1:] == [token] and before is not None and "TYPE" in accepted and "NAME" not in accepted:
        return _no_type(token)
    expectation = _expected(accepted)
    # A missing ';' belongs to the line before.
    at = before if before is not None and expectation == "';'" and not ended else token
    place = at.place
    if at is before and not ended:
        end = attrs.evolve(place, line=place.end_line, column=place.end_column, end_column=place.end_column + 1)
        return KernelSyntaxError(f"';' is expected here; {got} next", end)
    return error_at(token, f"{expectation} is expected; {got}")


def _no_type(token: Token) -> KernelSyntaxError:
    """The error of a name in the place of a type."""
    name = token.text
    hint = suggest(name, [*_NAMES]) or f"define it as a macro: {name}=… from Python, or -D{name}=…"
    return error_at(token, f"'{name}' is not a type", hint)


def _expected(accepted: set[str]) -> str:
    """The continuations in words."""
    for terminals, words in _SAID:
        if terminals <= accepted:
            return words
    rest = accepted - _ALWAYS or accepted
    if "_SEMICOLON" in rest:
        return "';'"
    texts = [*dict.fromkeys(text for name, text in _TEXTS.items() if name in rest)]
    signs = [text for text in texts if not text.endswith("='")] or texts
    return signs[0] if len(signs) == 1 else f"{', '.join(signs[:-1])} or {signs[-1]}"
