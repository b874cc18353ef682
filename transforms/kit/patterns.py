"""Patterns over trees of operands.

    >>> from ziggurat.codemodel.dialects import arith
    >>> from ziggurat.transforms.kit.patterns import anything, capture, constant, match, op_
    >>> from ziggurat.codemodel.text.parser import parse
    >>> f = parse('''tt.func @"f" (%n : i32)i32 -> {
    ...     %0 : i32 = arith.constant @4;
    ...     %1 : i32 = arith.addi %0 %n;
    ...     %2 : i32 = arith.muli %1 %1;
    ...     tt.return %2; };''')
    >>> product = f.bodies[0].entry.terminator.operands[0]
    >>> sum_ = op_(arith.AddI, capture("x"), constant("c"))
    >>> found = match(op_(arith.MulI, sum_, sum_), product)
    >>> found["x"], found["c"].op.value
    (<parameter 0 : i32>, 4)
    >>> match(op_(arith.SubI, anything(), anything()), product) is None
    True

A pattern captures values by name; a name that occurs twice stands for one value. The operands of a commutative op are
also tried the other way round, with backtracking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from ziggurat.codemodel.declare import OPS
from ziggurat.codemodel.op import Value, require_argument
from ziggurat.codemodel.traits import Commutative, Constant
from ziggurat.codemodel.types import constant_key

Captures = dict[str, Value]


@attrs.frozen
class Pattern:
    """A form of values. Make one with `op_`, `capture`, `constant`, `anything` or `either`.

    `matches(value, captured)` gives the ways in which the value has this form, each as the captures made on the way.
    """

    matches: Callable[[Value, Captures], Iterator[Captures]]


def match(pattern: Pattern, value: Value) -> Captures | None:
    """The captures of the first match of the pattern with the tree of operands at `value`, or None."""
    _require_patterns("match", pattern)
    require_argument(value, Value, "match: 'value' must be a Value", "give op.result, or a parameter of a body")
    return next(pattern.matches(value, {}), None)


def _require_patterns(call: str, *patterns: object) -> None:
    for pattern in patterns:
        hint = "make one with op_, capture, constant, anything or either"
        require_argument(pattern, Pattern, f"{call}: each pattern must be a Pattern", hint)


def anything() -> Pattern:
    """Any value."""
    return Pattern(lambda value, captured: iter((captured,)))


def capture(name: str, pattern: Pattern | None = None) -> Pattern:
    """A value of this form (any, without a pattern), captured under the name."""
    require_argument(name, str, "the name of a captured value must be a string", "kit.constant(value=3) is a constant")
    form = anything() if pattern is None else pattern
    _require_patterns("capture", form)

    def matches(value: Value, captured: Captures) -> Iterator[Captures]:
        bound_value = captured.get(name)
        if bound_value is None:
            for captures in form.matches(value, captured):
                # The pattern may have captured the name itself, deeper in the tree.
                if captures.get(name, value) is value:
                    yield {**captures, name: value}
        elif bound_value is value:
            yield from form.matches(value, captured)

    return Pattern(matches)


def constant(name: str | None = None, *, value: Any = attrs.NOTHING) -> Pattern:
    """The result of a constant op, of this value where one is given; 1, 1.0 and True are not the same."""
    attributes = {} if value is attrs.NOTHING else {"value": value}
    pattern = op_(Constant, **attributes)
    return pattern if name is None else capture(name, pattern)


def either(*patterns: Pattern) -> Pattern:
    """A value of one of these forms, tried in order."""
    _require_patterns("either", *patterns)
    return Pattern(
        lambda value, captured: (captures for form in patterns for captures in form.matches(value, captured))
    )


def op_(kind: type | tuple[type, ...], *operands: Pattern, **attributes: Any) -> Pattern:
    """The result of an op of this class or trait (or one of them) with operands of these forms.

    The number of operands must agree. The attributes that are named must be equal; one that the op lacks is not.
    """
    for cls in kind if isinstance(kind, tuple) else (kind,):
        declaration = OPS.get(str(cls))
        hint = f"its class is {declaration.__name__}" if declaration else "arith.MulF is such a class"
        require_argument(cls, _is_of_ops(cls), "op_: 'kind' must be a class of ops, or a trait", hint)
    _require_patterns("op_", *operands)

    def matches(value: Value, captured: Captures) -> Iterator[Captures]:
        op = value.op
        if op is None or not isinstance(op, kind) or len(op.operands) != len(operands):
            return
        actual = op.attributes
        for name, attribute in attributes.items():
            if name not in actual or constant_key(actual[name]) != constant_key(attribute):
                return
        yield from _each(operands, op.operands, captured)
        if isinstance(op, Commutative):
            first, second, *rest = op.operands
            yield from _each(operands, (second, first, *rest), captured)

    return Pattern(matches)


def _is_of_ops(cls: Any) -> bool:
    return isinstance(cls, type) and any(issubclass(op, cls) for op in OPS.values())


def _each(patterns: Sequence[Pattern], values: Sequence[Value], captured: Captures) -> Iterator[Captures]:
    """The ways in which each value matches its pattern."""
    if not patterns:
        yield captured
        return
    for captures in patterns[0].matches(values[0], captured):
        yield from _each(patterns[1:], values[1:], captures)
