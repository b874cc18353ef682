"""The places of trees in the source, the errors there, and the macros that a tree comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import attrs

from ziggurat.codemodel.errors import KernelSyntaxError, KernelTypeError, ZigguratError
from ziggurat.codemodel.location import Location
from ziggurat.frontends.triton_c.grammar import Node, span
from ziggurat.frontends.triton_c.preprocess import Token

E = TypeVar("E", bound=ZigguratError)

_MAX_DEFINITIONS = 3  # The number of macros whose definitions an error shows.


@attrs.frozen
class CSource:
    """The tokens of a source. `macros` has the places of the definitions that a place in the source comes from."""

    tokens: Sequence[Token]
    macros: dict[Location, tuple[tuple[str, Location], ...]] = attrs.field(
        factory=lambda: dict[Location, tuple[tuple[str, Location], ...]]()
    )

    def place(self, node: Node) -> Location:
        """The place of a tree that has tokens."""
        first, last = span(node)
        return self.between(max(first, 0), max(last, 0))

    def between(self, first: int, last: int) -> Location:
        """The place from one token to another, by their numbers."""
        start, end = self.tokens[first].place, self.tokens[last].place
        place = start
        if start.file == end.file and (end.line, end.column) >= (start.line, start.column):
            place = Location(start.file, start.line, start.column, end.end_line, end.end_column)
        if place not in self.macros:
            places: dict[str, Location] = {}
            for token in self.tokens[first : last + 1]:
                if token.macro is not None and token.defined is not None:
                    places.setdefault(token.macro, token.defined)
            if places:
                self.macros[place] = tuple(places.items())[:_MAX_DEFINITIONS]
        return place

    def syntax(self, summary: str, node: Node, hint: str | None = None) -> KernelSyntaxError:
        """A `KernelSyntaxError` at a tree."""
        return self.at(KernelSyntaxError(summary, hint=hint), node)

    def type_error(self, summary: str, node: Node, hint: str | None = None) -> KernelTypeError:
        """A `KernelTypeError` at a tree."""
        return self.at(KernelTypeError(summary, hint=hint), node)

    def at(self, error: E, node: Node) -> E:
        """The error, placed at a tree."""
        error.location = self.place(node)
        return self.explain(error)

    def explain(self, error: E) -> E:
        """The error, with the definitions of the macros that its place comes from."""
        for part in error.parts:
            place = part.location
            while place is not None:
                bare = attrs.evolve(place, caller=None)
                for name, defined in self.macros.get(bare, ()):
                    text = f"in the definition of the macro '{name}'"
                    if (text, defined) not in part.related:
                        part.add(text, defined)
                place = place.caller
        return error
