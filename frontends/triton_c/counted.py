"""Loops that count: `for (int k = a; k < b; k += s)` as a loop over a range, which the compiler pipelines.

A loop counts if its variable is declared in the head and assigned nowhere else, the bound and the step do not change,
and the condition and the step have the same direction. Any other loop becomes a `while`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs
import lark

from ziggurat.codemodel.errors import warn
from ziggurat.codemodel.types import ScalarType, i32
from ziggurat.frontends.language.signature import SIGNATURES
from ziggurat.frontends.triton_c.c_library import CONSTANTS, EFFECTS, call_of
from ziggurat.frontends.triton_c.grammar import Node
from ziggurat.frontends.triton_c.trees import grouped, without_groups

if TYPE_CHECKING:
    from ziggurat.frontends.triton_c.statements import CStatements

# For each comparison, the direction of counting and the number to add to the bound to leave it out of the range.
_COMPARISONS = {"<": (1, 0), "<=": (1, 1), ">": (-1, 0), ">=": (-1, -1)}
_EXCHANGED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "!=": "!="}


@attrs.frozen
class Counted:
    """The head of a loop that counts: the range from `start` to `stop + offset` by `step`.

    `offset` is 1 or -1 where the condition includes the bound, and 0 where it does not. `step` is a number or an
    expression, which is `negated` in a loop that counts down. `is_plain` holds where the start needs no conversion to
    the variable's type.
    """

    variable: Node
    name: str
    type: ScalarType
    start: Node
    is_plain: bool
    stop: Node
    offset: int
    step: int | Node
    negated: bool


def counting_head(reader: CStatements, initial: Node, test: Node, step: Node, suite: Node) -> Counted | None:
    """The range of a loop that counts; None for another loop."""
    counter = _counter(reader, initial)
    if counter is None or test is None or step is None:
        return None
    variable, name, type_, start = counter
    counting = _counting(name, step)
    compared = _compared(name, test)
    if counting is None or compared is None:
        return None
    amount, sign = counting
    comparison, stop = compared
    number = amount if isinstance(amount, int) else reader.static_value(amount)
    if number is not None:
        sign, number = (sign, number) if number > 0 else (-sign, -number)
    if number and type_.signed and _COMPARISONS.get(comparison, (sign,))[0] != sign:
        warn(
            f"the step moves '{name}' away from the end of the loop, whose condition is {name} {comparison} …",
            reader.source.place(step),
        )
    offset = _offset(comparison, type_, sign, number)
    if offset is None:
        return None
    assigned = set(_assigned(suite))
    parts = [stop] if isinstance(amount, int) else [stop, amount]
    if name in assigned or not all(_is_integer(reader, part) for part in parts):
        return None
    if not all(_is_fixed(reader, part, assigned | {name}) for part in parts):
        return None
    # A negative start is converted before it is compared with an unsigned bound.
    begun = reader.static_value(start)
    is_plain = type_ == i32 and begun is not None and begun >= 0
    return Counted(
        variable, name, type_, start, is_plain, stop, offset,
        amount if number is None else sign * number, number is None and sign < 0,
    )  # fmt: skip


def _counter(reader: CStatements, initial: Node) -> tuple[Node, str, ScalarType, Node] | None:
    """The one integer that the head of a loop declares: its declaration, name, type and initial value."""
    if initial is None or initial.data != "declaration" or len(initial.children) != 2:
        return None
    specifiers, variable = initial.children
    stars, token, dims, *rest = variable.children
    if stars.children or dims.children or len(rest) != 2 or rest[-1] is None or rest[-1].data == "braces":
        return None
    base = reader.specifiers(specifiers)
    if base.type is None or base.type.kind != "int" or base.qualifiers or base.multiple > 1:
        return None
    return variable, str(token), base.type, rest[-1]


def _offset(comparison: str, type_: ScalarType, sign: int, step: int | None) -> int | None:
    """The number to add to the bound to leave it out of the range; None where the loop might not count.

    `sign` is the direction of the step, and `step` its size, None where it is not known.
    """
    if step == 0 or (not type_.signed and (sign < 0 or step is None)):
        return None  # An unsigned number that counts down, or by an unknown step, may wrap around.
    if comparison == "!=":
        return 0 if step == 1 and type_.signed else None
    direction, offset = _COMPARISONS[comparison]
    return offset if direction == sign else None


def _counting(name: str, step: Node) -> tuple[int | Node, int] | None:
    """The amount that a step adds to the variable, 1 or an expression, and its sign; None for another step."""
    step = without_groups(step)
    if step.data in ("step", "step_after"):
        sign, target = step.children if step.data == "step" else reversed(step.children)
        return (1, 1 if str(sign) == "++" else -1) if _is(target, name) else None
    if step.data != "assign" or not _is(step.children[0], name):
        return None
    sign, amount = str(step.children[1].children[0]), step.children[2]
    if sign in ("+=", "-="):
        return amount, 1 if sign == "+=" else -1
    amount = without_groups(amount)
    if sign != "=" or amount.data != "chain":
        return None
    left, operator, right = grouped(amount).children
    if _is(left, name) and str(operator) in ("+", "-"):
        return right, 1 if str(operator) == "+" else -1
    return (left, 1) if _is(right, name) and str(operator) == "+" else None


def _compared(name: str, test: Node) -> tuple[str, Node] | None:
    """The comparison with the variable on its left, and the expression on its right; None for another condition."""
    test = without_groups(test)
    if test.data != "chain":
        return None
    left, sign, right = grouped(test).children
    sign = str(sign)
    if sign not in _EXCHANGED:
        return None
    if _is(left, name):
        return sign, right
    return (_EXCHANGED[sign], left) if _is(right, name) else None


def _is(node: Node, name: str) -> bool:
    node = without_groups(node)
    return node.data == "name" and str(node.children[0]) == name


def _assigned(tree: Node) -> Iterator[str]:
    """The names of variables that a statement assigns to."""
    for part in tree.iter_subtrees():
        if part.data in ("assign", "step"):
            target = part.children[0 if part.data == "assign" else 1]
        elif part.data == "step_after":
            target = part.children[0]
        else:
            continue
        target = without_groups(target)
        if target.data == "name":
            yield str(target.children[0])


def _is_integer(reader: CStatements, tree: Node) -> bool:
    """Whether an expression is an integer as far as its names, literals and casts tell."""
    if isinstance(tree, lark.Token):
        return tree.type != "FLOAT"
    if tree.data == "name":
        name = str(tree.children[0])
        variable = reader.find(name)
        if variable is not None:
            return isinstance(variable.type, ScalarType) and variable.type.is_int
        return not isinstance(CONSTANTS.get(name), float)
    if tree.data == "cast":
        type_ = reader.specifiers(tree.children[1].children[0]).type
        return type_ is not None and type_.is_int
    if tree.data == "call" and tree.children[0].data == "name":
        call = call_of(str(tree.children[0].children[0]), len(_arguments(tree)))
        if call == "cast" or (call in SIGNATURES and SIGNATURES[call].group == "Math" and call != "abs"):
            return False
    return all(_is_integer(reader, child) for child in tree.children if child is not None)


def _is_fixed(reader: CStatements, tree: Node, changed: set[str]) -> bool:
    """Whether an expression has the same value in every iteration, in which these variables change."""
    for part in tree.iter_subtrees():
        if part.data in ("assign", "step", "step_after", "load", "masked"):
            return False
        if part.data == "name" and str(part.children[0]) in changed:
            return False
        if part.data == "call":
            name = str(part.children[0].children[0]) if part.children[0].data == "name" else ""
            call = call_of(name, len(_arguments(part)))
            if name in reader.program.functions or call is None or call in EFFECTS:
                return False
    return True


def _arguments(call: Node) -> list[Node]:
    return [child for child in call.children[1:] if isinstance(child, lark.Tree)]
