"""The preprocessor: from the text of a source and macros to tokens, each with its place in the source.

`pcpp` does the work: directives, macros with and without arguments, `#include`. It knows the line of a token. Here each
token gets its column as well, and a token of a macro's replacement two places: that of the macro's use, and that in the
definition.
"""

# pcpp has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

import functools
import io
import os
import types
from bisect import bisect_right
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from pcpp import evaluator as pcpp_numbers
from pcpp import parser as pcpp_rules
from pcpp import preprocessor as pcpp

from ziggurat.codemodel.errors import KernelSyntaxError, ZigguratError, warn
from ziggurat.codemodel.location import Location, register
from ziggurat.codemodel.text.limits import MAX_DEPTH, MAX_EXPANSION, MAX_FILES, MAX_TOKEN, TOO_DEEP, read_regular

# Kinds of tokens of the preprocessor.
IDENTIFIER, INTEGER, FLOAT, STRING, CHARACTER = "CPP_ID", "CPP_INTEGER", "CPP_FLOAT", "CPP_STRING", "CPP_CHAR"
_SKIPPED = ("CPP_WS", "CPP_LINECONT", "CPP_COMMENT1", "CPP_COMMENT2")
_NAMED = ("define", "undef", "ifdef", "ifndef")  # Directives that a name follows.

# The preprocessor's own rules cut 0x1p3, .5, 10ull and ^= into pieces. The end of `1...2` is no part of a float.
_RULES = {
    "t_CPP_ELLIPSIS": r"\.\.\.",
    "t_CPP_XOREQUAL": r"\^=",
    "t_CPP_FLOAT": r"(0[xX][0-9a-fA-F]+(\.[0-9a-fA-F]*)?[pP][+-]?\d+|\d+\.(?!\.)\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?"
    r"|\d+[eE][+-]?\d+)[fFlL]?",
    "t_CPP_INTEGER": r"(0[xX][0-9a-fA-F]+('[0-9a-fA-F]+)*|0[bB][01]+('[01]+)*|\d+('\d+)*)[uUlL]*",
}


def _shifted(number: Any, count: Any) -> Any:
    """`number << count` of a condition. pcpp makes all bits before it keeps 64, and may use up the memory."""
    if not 0 <= count.value() < pcpp_numbers.INTMAXBITS:
        raise ArithmeticError
    return number * (1 << count.value())


setattr(pcpp_numbers.Value, "__lshift__", _shifted)  # noqa: B010  # pcpp's rules name the class.


@attrs.frozen
class Token:
    """A token after the preprocessor. `defined` is its place in the definition of the macro that it comes from."""

    kind: str
    text: str
    place: Location
    defined: Location | None = None
    macro: str | None = None


@attrs.frozen
class Preprocessed:
    """The tokens of a source. `queried` are the names, not defined in the end, that conditions of `#if` ask for.

    `names` are all names in the source, its macros' replacements and the files that it includes, in lines that a
    condition leaves out as well. `with_arguments` are the macros that need arguments.
    """

    tokens: tuple[Token, ...]
    queried: tuple[str, ...]
    includes: tuple[str, ...]
    names: frozenset[str]
    with_arguments: frozenset[str]


class _Line(int):
    """The number of a token's line, with the token's whole place. pcpp gives the tokens of a macro's replacement the
    line of the macro's use, and so this place."""

    place: Location


@functools.cache
def _lexer() -> Any:
    """The lexer, which takes 20 ms to make."""
    rules = types.SimpleNamespace(**vars(pcpp_rules))
    # With a package or the name of a table, the lexer's table would be written into the folder of pcpp.
    del rules.__package__
    for name, pattern in _RULES.items():
        setattr(rules, name, pattern)
    rules.tokens = (*pcpp_rules.tokens, "CPP_ELLIPSIS")
    return pcpp_rules.lex.lex(module=rules, lextab="")


class _Preprocessor(pcpp.Preprocessor):
    """pcpp with places for tokens and with errors for messages. `file` is the source that is read now."""

    def __init__(self) -> None:
        super().__init__(_lexer().clone())
        self.queried: dict[str, None] = {}
        self.included: dict[str, None] = {}
        self.names: set[str] = set()
        # The place of the condition of `#if` that is evaluated, and a name in it that is called and is no macro.
        self.condition: Location | None = None
        self.callee: str | None = None
        self.folder = os.path.realpath(".")  # Files to include are there or below.
        self.expanded = 0  # The characters that macros have expanded to.
        for name in ("__DATE__", "__TIME__", "__PCPP__"):  # A model must not depend on the time.
            del self.macros[name]

    def group_lines(self, input: str, abssource: str) -> Generator[Any]:
        # A line that ends in a backslash and the next one are one line (C11 5.1.1.2, phase 2).
        lines, starts, length, line_text = list[str](), list[int](), 0, ""
        for line in [*map(str.rstrip, input.splitlines()), ""]:
            starts.append(length + len(line_text))
            if line.endswith("\\"):
                line_text += line[:-1]
                continue
            lines.append((line_text + line).rstrip())
            length, line_text = length + len(lines[-1]) + 1, ""
        text = "\n".join(lines)
        plain = text.isascii()

        def position(offset: int) -> tuple[int, int]:
            number = bisect_right(starts, offset)
            part = text[starts[number - 1] : offset]
            return number, len(part if plain else part.encode())

        for line in super().group_lines(text, abssource):
            before: Any = None
            for token in line:
                if token.type in _SKIPPED:
                    continue
                if token.type == IDENTIFIER:
                    self.names.add(token.value)
                number, column = position(token.lexpos)
                end, last = position(token.lexpos + len(token.value) - 1)
                token.lineno = _Line(number)
                token.lineno.place = token.place = Location(abssource, number, column, end, last + 1)
                if len(token.value) > MAX_TOKEN and token.type != STRING:
                    raise KernelSyntaxError(f"a token is longer than {MAX_TOKEN} characters", token.place)
                if token.type == INTEGER:
                    token.value = token.value.replace("'", "")
                if (
                    before is not None
                    and before.value == "/"
                    and token.value.startswith("*")
                    and (before.lexpos + 1 == token.lexpos)
                ):  # A comment that is closed is one token.
                    place = attrs.evolve(before.place, end_column=column + 1)
                    raise KernelSyntaxError("the comment is not closed", place, "write */ at its end")
                before = token
            yield line

    def define(self, tokens: Any) -> None:
        if not isinstance(tokens, str) and tokens[0].type != IDENTIFIER:
            raise KernelSyntaxError(f"#define must be followed by a name; got '{tokens[0].value}'", tokens[0].place)
        super().define(tokens)
        if not isinstance(tokens, str):
            for token in self.macros[tokens[0].value].value:
                token.replacement = True  # Copies have it too; tokens of a macro's argument do not.

    def on_error(self, file: str, line: int, msg: str) -> None:
        place = line.place if isinstance(line, _Line) else self._here()
        if msg.startswith("Unterminated"):
            directive = msg.removeprefix("Unterminated ").strip()
            raise KernelSyntaxError(f"'{directive}' has no #endif", place, "write #endif after the last of its lines")
        if msg.startswith("Could not evaluate"):
            raise KernelSyntaxError("the condition must be an expression of integers", self.condition)
        raise KernelSyntaxError(f"the preprocessor: {msg[:1].lower()}{msg[1:]}", place)

    def _here(self) -> Location | None:
        directive = self.lastdirective
        return None if directive is None else directive.place

    def on_include_not_found(self, is_malformed: bool, is_system_include: bool, curdir: str, includepath: str) -> Any:
        summary = f"there is no file '{includepath}' to include"
        raise KernelSyntaxError("#include must name a file" if is_malformed else summary, self._here())

    def on_file_open(self, is_system_include: bool, includepath: str) -> Any:
        place = self._here()
        if not os.path.exists(includepath):
            raise FileNotFoundError(includepath)
        if not os.path.realpath(includepath).startswith(os.path.join(self.folder, "")):
            hint = f"copy it to {self.folder}, or to a folder below"
            raise KernelSyntaxError("a file to include must be in the folder of the source, or below", place, hint)
        if self.include_depth > MAX_DEPTH or len(self.included) >= MAX_FILES:
            raise KernelSyntaxError(f"includes are {TOO_DEEP}", place, "write #pragma once in a file that is included")
        try:
            text = read_regular(Path(includepath)).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise KernelSyntaxError(f"'{includepath}' cannot be included: {error}", place) from None
        self.included[includepath] = None
        return io.StringIO(text)

    def expand_macros(self, tokens: Any, expanding_from: Sequence[str] = ()) -> Any:
        expanded = super().expand_macros(tokens, [*expanding_from])
        if expanding_from:
            self.expanded += sum(len(token.value) for token in expanded)
            if self.expanded > MAX_EXPANSION:
                place = getattr(self.linemacro, "place", None)
                raise KernelSyntaxError(f"the macros expand to more than {MAX_EXPANSION} characters", place)
        return expanded

    def on_unknown_macro_in_defined_expr(self, tok: Any) -> bool:
        self.queried[tok.value] = None
        return False

    def on_unknown_macro_in_expr(self, ident: str) -> int:
        self.queried[ident] = None
        return 0

    def on_unknown_macro_function_in_expr(self, ident: str) -> Any:
        self.callee = ident
        return int

    def evalexpr(self, tokens: Any) -> Any:
        if not tokens:
            raise IndexError
        first, last = tokens[0].place, tokens[-1].place
        self.condition = attrs.evolve(first, end_line=last.end_line, end_column=last.end_column)
        self.callee = None
        value = super().evalexpr(tokens)
        if self.callee is not None:
            summary = f"'{self.callee}' is not a macro with arguments"
            raise KernelSyntaxError(summary, self.condition, f"write #define {self.callee}(x) … before the condition")
        return value

    def on_directive_unknown(self, directive: Any, toks: Sequence[Any], ifpassthru: bool, precedingtoks: Any) -> bool:
        name, message = directive.value, "".join(token.value for token in toks)
        place: Location = directive.place
        if name == "error":
            raise KernelSyntaxError(f"#error {message}".rstrip(), place)
        if name == "warning":
            warn(f"#warning {message}", place)
        elif name not in ("pragma", "line"):
            raise KernelSyntaxError(f"the preprocessor has no directive #{name}", place)
        return True

    def read(self, text: str, file: str) -> list[Token]:
        """The tokens of a text. Raises `KernelSyntaxError`."""
        result: list[Token] = []
        try:
            for token in self.parsegen(text, file, file):
                if token.type not in _SKIPPED:
                    if getattr(token, "replacement", False):
                        result.append(
                            Token(token.type, token.value, token.lineno.place, token.place, token.expanded_from[0])
                        )
                    else:
                        result.append(Token(token.type, token.value, token.place))
        except (ZigguratError, RecursionError, MemoryError):
            raise
        except Exception as error:  # pcpp has no errors of its own for directives that are cut off.
            name = getattr(self.lastdirective, "value", "")
            if isinstance(error, IndexError) and name in (*_NAMED, "if", "elif"):
                after = "a name" if name in _NAMED else "a condition"
                raise KernelSyntaxError(f"#{name} must be followed by {after}", self._here()) from None
            message = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise KernelSyntaxError(f"the preprocessor cannot read this: {message}", self._here()) from None
        return result


def preprocess(text: str, file: str, macros: Mapping[str, str]) -> Preprocessed:
    """The tokens of a source with these macros defined, by name and replacement.

    Raises `KernelSyntaxError` for what the preprocessor rejects, and for a macro that is given and that the source
    defines as well.
    """
    run = _Preprocessor()
    prelude = "".join(f"#define {name} {' '.join(value.split())}\n" for name, value in macros.items())
    origin = f"<macros of {file.strip('<>')}>"
    register(origin, prelude)
    run.read(prelude, origin)
    ours = dict(run.macros)
    run.names = {token.value for name in macros for token in ours[name].value if token.type == IDENTIFIER}
    if os.path.isfile(file):
        run.temp_path = [os.path.dirname(file)]  # Files to include are looked for beside the source.
        run.folder = os.path.realpath(os.path.dirname(file))
    tokens = run.read(text, file)
    for name in macros:
        now = run.macros.get(name)
        if now is not ours[name] and now is not None and now.lineno is not None:
            raise KernelSyntaxError(
                f"the macro '{name}' is given, and the source defines it as well",
                now.lineno.place,
                f"write #ifndef {name} before the definition and #endif after it, or leave the macro out",
            )
    # The name of an include guard is asked for, and is then defined as nothing.
    guards = {name for name, macro in run.macros.items() if macro.arglist is None and not macro.value}
    queried = tuple(name for name in run.queried if name not in guards and name not in macros)
    with_arguments = frozenset(name for name, macro in run.macros.items() if macro.arglist is not None)
    return Preprocessed(tuple(tokens), queried, tuple(run.included), frozenset(run.names), with_arguments)
