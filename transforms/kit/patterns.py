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
from ziggurat.codemodel.op import Op, Value, require_argument
from ziggurat.codemodel.traits import Commutative, Constant
from ziggurat.codemodel.types import constant_key

Captures = dict[str, Value]


@attrs.frozen
class Pattern:
    """A form of values. Make one with `op_`, `capture`, `constant`, `anything` or `either`.

    `matches(value, captured)` gives the ways in which the value has this form, each as the captures made on the way.
    Such a value is the result of an op of one of the classes `kinds`; of any, or none, where there are none. `keys`
    has the key of the constant that it must be, if any.
    """

    matches: Callable[[Value, Captures], Iterator[Captures]]
    kinds: tuple[type, ...] = ()
    keys: tuple[Any, ...] = ()


@attrs.frozen
class OpPattern(Pattern):
    """The form that `op_` makes. `of_op(op, operands, captured)` is `matches` for an op as if it had these operands."""

    of_op: Callable[[Op, Sequence[Value], Captures], Iterator[Captures]] = attrs.field(kw_only=True)
    operands: tuple[Pattern, ...] = attrs.field(kw_only=True)

    def admits(self, cls: type, operands: Sequence[type]) -> bool:
        """Whether an op of a class may match whose operands are results of ops of these classes, or of none."""

        def fit(order: Sequence[type]) -> bool:
            return all(not p.kinds or issubclass(kind, p.kinds) for p, kind in zip(self.operands, order, strict=True))

        if not issubclass(cls, self.kinds) or len(operands) != len(self.operands):
            return False
        return fit(operands) or (issubclass(cls, Commutative) and fit((operands[1], operands[0], *operands[2:])))


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

    return Pattern(matches, form.kinds, form.keys)


def constant(name: str | None = None, *, value: Any = attrs.NOTHING) -> Pattern:
    """The result of a constant op, of this value where one is given; 1, 1.0 and True are not the same."""
    pattern = op_(Constant)
    if value is not attrs.NOTHING:
        pattern = attrs.evolve(op_(Constant, value=value), keys=(constant_key(value),))
    return pattern if name is None else capture(name, pattern)


def either(*patterns: Pattern) -> Pattern:
    """A value of one of these forms, tried in order."""
    _require_patterns("either", *patterns)
    kinds = tuple(kind for form in patterns for kind in form.kinds) if all(form.kinds for form in patterns) else ()
    return Pattern(
        lambda value, captured: (captures for form in patterns for captures in form.matches(value, captured)), kinds
    )


def op_(kind: type | tuple[type, ...], *operands: Pattern, **attributes: Any) -> OpPattern:
    """The result of an op of this class or trait (or one of them) with operands of these forms.

    The number of operands must agree. The attributes that are named must be equal; one that the op lacks is not.
    """
    kinds = kind if isinstance(kind, tuple) else (kind,)
    for cls in kinds:
        declaration = OPS.get(str(cls))
        hint = f"its class is {declaration.__name__}" if declaration else "arith.MulF is such a class"
        require_argument(cls, is_of_ops(cls), "op_: 'kind' must be a class of ops, or a trait", hint)
    _require_patterns("op_", *operands)

    def of_op(op: Op, values: Sequence[Value], captured: Captures) -> Iterator[Captures]:
        if not isinstance(op, kinds) or len(values) != len(operands):
            return
        actual = op.attributes
        for name, attribute in attributes.items():
            if name not in actual or constant_key(actual[name]) != constant_key(attribute):
                return
        yield from _each(operands, values, captured)
        if isinstance(op, Commutative):
            first, second, *rest = values
            yield from _each(operands, (second, first, *rest), captured)

    def matches(value: Value, captured: Captures) -> Iterator[Captures]:
        return iter(()) if value.op is None else of_op(value.op, value.op.operands, captured)

    return OpPattern(matches, kinds, of_op=of_op, operands=operands)


def is_of_ops(cls: Any) -> bool:
    """Whether ops are of a class: it is a class of ops, or a trait of some."""
    return isinstance(cls, type) and any(issubclass(op, cls) for op in OPS.values())


def _each(patterns: Sequence[Pattern], values: Sequence[Value], captured: Captures) -> Iterator[Captures]:
    """The ways in which each value matches its pattern."""
    if not patterns:
        yield captured
        return
    for captures in patterns[0].matches(values[0], captured):
        yield from _each(patterns[1:], values[1:], captures)
