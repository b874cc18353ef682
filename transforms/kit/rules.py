"""Rules, applied to a model until none applies.

    rules = kit.Rules("strength")

    @rules.of(arith.DivUI)
    def by_one(builder, op, operands):
        return operands[0] if constant_of(operands[1]) == 1 else None

    twice = kit.op_(arith.MulI, kit.capture("x"), kit.constant(value=2))
    rules.add(twice, lambda builder, x: builder.add(arith.AddI(x, x)))

    better = rules(model)

Of thousands of rules, those are tried on an op that its class admits, the classes of the ops that give its operands,
and the constants among these.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from ziggurat.codemodel.fixpoint import fixpoint
from ziggurat.codemodel.op import Op, Value, require_argument
from ziggurat.codemodel.traits import Constant
from ziggurat.codemodel.transform import Outcome, Rewriter, Transformer
from ziggurat.codemodel.types import constant_key
from ziggurat.transforms.kit.patterns import OpPattern, is_of_ops

Replacement = Callable[..., Outcome]
Entry = tuple[int, OpPattern | None, Transformer]  # The number of a rule in its order, its pattern, and the rule.


class Rules:
    """Rules by classes of ops: a pass, from model to model. `name` is that of the pass, and `limit` the number of
    applications after which the rules count as endless; see `fixpoint`.

    A rule is a transformer, or a pattern and what replaces it. It sees the ops of the new model as its `operands`.
    Where several apply, the one that was added first does.
    """

    def __init__(self, name: str = "rules", *, limit: int | None = None) -> None:
        self.__name__, self.limit = name, limit
        self._rules: list[tuple[OpPattern | tuple[type, ...], Transformer]] = []
        self._of_class: dict[type, tuple[Entry, ...]] = {}
        self._of_classes: dict[tuple[type, ...], _Choice] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_of_class": {}, "_of_classes": {}}  # These are made as models have need of them.

    def of(self, *classes: type) -> Callable[[Transformer], Transformer]:
        """Decorator: add a transformer for the ops of these classes, or with these traits."""
        hint = "arith.MulF is such a class"
        require_argument(classes, bool(classes), "Rules.of: one class of ops or more must be given", hint)
        for cls in classes:
            require_argument(cls, is_of_ops(cls), "Rules.of: each must be a class of ops, or a trait", hint)

        def add(rule: Transformer) -> Transformer:
            require_argument(rule, callable(rule), "a rule must be a function (builder, op, operands)")
            return self._add(classes, rule)

        return add

    def add(self, pattern: OpPattern, replacement: Replacement) -> None:
        """Add a rule for ops of a form, a pattern that `op_` makes.

        `replacement(builder, **captures)` gives what stands for the op, or None to leave it.
        """
        hint = "kit.op_(arith.AddI, kit.capture('x'), kit.constant(value=0))"
        require_argument(pattern, OpPattern, "Rules.add: 'pattern' must be of an op", hint)
        require_argument(
            replacement, callable(replacement), "Rules.add: 'replacement' must be a function (builder, **captures)"
        )

        def rule(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
            captures = next(pattern.of_op(op, operands, {}), None)
            return None if captures is None else replacement(builder, **captures)

        rule.__name__ = str(getattr(replacement, "__name__", replacement))
        self._add(pattern, rule)

    def _add(self, form: OpPattern | tuple[type, ...], rule: Transformer) -> Transformer:
        self._rules.append((form, rule))
        self._of_class.clear()
        self._of_classes.clear()
        return rule

    def __call__(self, model: Op) -> Op:
        """The model to which no rule applies; `model` itself where none does now."""
        return fixpoint(
            model, self._select, concerns=lambda cls: bool(self._of(cls)), limit=self.limit, pass_name=self.__name__
        )

    def __repr__(self) -> str:
        return f"<{len(self._rules)} rules '{self.__name__}'>"

    def _select(self, op: Op, operands: tuple[Value, ...]) -> tuple[Transformer, ...]:
        """The rules that may apply to an op with these operands."""
        cls: type = type(op)
        rules = self._of(cls)
        if not rules:
            return ()
        key = (cls, *[type(value.op) for value in operands])
        choice = self._of_classes.get(key)
        if choice is None:
            choice = self._of_classes[key] = _Choice(
                [(n, p, rule) for n, p, rule in rules if p is None or p.admits(cls, key[1:])], key[1:]
            )
        return choice.of(operands) if choice.constants else choice.rules

    def _of(self, cls: type) -> tuple[Entry, ...]:
        """The rules that may apply to ops of a class."""
        rules = self._of_class.get(cls)
        if rules is None:
            rules = self._of_class[cls] = tuple(self._for(cls))
        return rules

    def _for(self, cls: type) -> Iterator[Entry]:
        for number, (form, rule) in enumerate(self._rules):
            if isinstance(form, OpPattern) and issubclass(cls, form.kinds):
                yield number, form, rule
            elif isinstance(form, tuple) and issubclass(cls, form):
                yield number, None, rule


class _Choice:
    """Rules in order, for operands of some classes: those to be tried always, and those to be tried where an operand is
    a constant, by its key. `constants` has the places of the operands that are constants, if it matters which."""

    def __init__(self, rules: Sequence[Entry], operands: Sequence[type]) -> None:
        self.by_constant: dict[Any, list[tuple[int, Transformer]]] = {}
        always: list[tuple[int, Transformer]] = []
        for number, pattern, rule in rules:
            keys = [key for operand in (() if pattern is None else pattern.operands) for key in operand.keys]
            group = self.by_constant.setdefault(keys[0], []) if keys else always
            group.append((number, rule))
        self.always = always
        self.rules = tuple(rule for _, rule in always)
        places = [place for place, cls in enumerate(operands) if issubclass(cls, Constant)]
        self.constants = places if self.by_constant else []

    def of(self, operands: Sequence[Value]) -> tuple[Transformer, ...]:
        """The rules for operands."""
        keys = {constant_key(operands[place].op.__dict__["value"]): None for place in self.constants}
        groups = [group for key in keys if (group := self.by_constant.get(key))]
        if not groups:
            return self.rules
        return tuple(rule for _, rule in sorted(itertools.chain(self.always, *groups), key=itemgetter(0)))
