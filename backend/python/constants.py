"""The constexpr parameters of a kernel in source that was lifted from its Triton model.

The model has the values of these parameters only. The source of the kernel, where it can be read, says which number is
one of them: the argument or the operand at the same place. A size in a shape is one as well, if no other parameter has
this value and the source does not have it as a literal. Each parameter that is found again comes back with its value as
the default, after the run-time parameters.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from ziggurat.backend.python.writer import dotted
from ziggurat.codemodel.graphs import by_key
from ziggurat.codemodel.messages import Words
from ziggurat.transforms.lift.source_names import Span, constant_parameters, place_of


def restore_constants(tree: Any, source: ast.FunctionDef, words: Words) -> None:
    """Let a lifted definition have the constexpr parameters of its source."""
    names = set(constant_parameters(source))
    names -= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    spans: dict[Span, Any] = {}
    for node in ast.walk(source):
        if isinstance(node, ast.expr | ast.For):  # A loop's place is that of the statement.
            spans.setdefault(place_of(node), node.iter if isinstance(node, ast.For) else node)
    places = [
        (name, place)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call | ast.BinOp | ast.Compare)
        for name, place in _counterparts(node, spans.get(place_of(node)))
        if name in names
    ]
    contents = {name: [place.content() for place in group] for name, group in by_key(places).items()}
    # An integer that is also converted to a float is one of both.
    values = {name: min(group, key=_is_float) for name, group in contents.items() if len(set(group)) == 1}
    for name, place in places:
        if name in values:
            place.put(name)
    literals = [node.value for node in ast.walk(source) if isinstance(node, ast.Constant)]
    by_value = by_key((value, name) for name, value in values.items())
    for place in [place for node in ast.walk(tree) if isinstance(node, ast.Call) for place in _sizes(node)]:
        candidates = by_value.get(place.content(), [])
        if len(candidates) == 1 and place.content() not in literals:
            place.put(candidates[0])
    for name, value in values.items():
        tree.args.args.append(ast.arg(name, dotted(f"{words.language}.constexpr")))
        tree.args.defaults.append(ast.Constant(value))


def _is_float(number: float) -> bool:
    return isinstance(number, float)


class _Place:
    """A place of a number in a list or in a field of a node."""

    def __init__(self, items: list[Any] | None, node: Any, key: Any) -> None:
        self.items, self.node, self.key = items, node, key

    def content(self) -> Any:
        node = getattr(self.node, self.key) if self.items is None else self.items[self.key]
        return node.value if isinstance(node, ast.Constant) and type(node.value) in (int, float) else None

    def put(self, name: str) -> None:
        if self.items is None:
            setattr(self.node, self.key, ast.Name(name, ast.Load()))
        else:
            self.items[self.key] = ast.Name(name, ast.Load())


def _counterparts(new: Any, old: Any) -> Iterator[tuple[str, _Place]]:
    """The numbers in an expression at whose places the source has a name, and these names."""
    if type(new) is not type(old):
        return
    if isinstance(new, ast.Call):
        yield from _items(new.args, old.args)
        by_name = {keyword.arg: keyword.value for keyword in old.keywords}
        for keyword in new.keywords:
            if keyword.arg in by_name:
                yield from _pair(_Place(None, keyword, "value"), keyword.value, by_name[keyword.arg])
    elif isinstance(new, ast.Tuple):
        if len(new.elts) == len(old.elts):
            yield from _items(new.elts, old.elts)
    elif isinstance(new, ast.BinOp):
        if type(new.op) is type(old.op):
            for field in ("left", "right"):
                yield from _pair(_Place(None, new, field), getattr(new, field), getattr(old, field))
    elif isinstance(new, ast.Compare) and list(map(type, new.ops)) == list(map(type, old.ops)):
        yield from _pair(_Place(None, new, "left"), new.left, old.left)
        yield from _items(new.comparators, old.comparators)


def _items(new: list[ast.expr], old: Sequence[ast.expr]) -> Iterator[tuple[str, _Place]]:
    for index, (node, other) in enumerate(zip(new, old, strict=False)):
        yield from _pair(_Place(new, None, index), node, other)


def _pair(place: _Place, new: ast.expr, old: ast.expr) -> Iterator[tuple[str, _Place]]:
    if isinstance(old, ast.Name) and place.content() is not None:
        yield old.id, place
    elif isinstance(new, ast.Tuple):
        yield from _counterparts(new, ast.Tuple(old.elts) if isinstance(old, ast.List) else old)


def _sizes(call: ast.Call) -> Iterator[_Place]:
    """The sizes in the shapes among the arguments of a call."""
    for node in call.args:
        if isinstance(node, ast.Tuple):
            yield from (_Place(node.elts, None, index) for index in range(len(node.elts)))
