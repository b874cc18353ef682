"""Transforming models: a function from ops to values, and copying as what happens where it says nothing.

    def double_negation(builder, op, operands):
        if isinstance(op, NegF) and isinstance(inner := operands[0], OpResult) and isinstance(inner.op, NegF):
            return inner.op.operand            # uses of the op get this value instead
        return None                            # says nothing: the op is copied

    better = transform(model, double_negation)

A transformer gets the builder of the new model, an op of the old one, and the values of the new model that stand for
its operands. It may add any ops to the builder, and returns

* None: copy the op, its bodies transformed in turn;
* a value of the new model, which stands for the op's result from here on;
* `DROP`: the op has no counterpart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.declare import convert_attribute
from ziggurat.codemodel.errors import BuildError
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Block, BlockParameter, Body, Op, OpResult, Successor, Value, fill, require_model
from ziggurat.codemodel.traits import Isolated
from ziggurat.codemodel.types import Type


class _Drop:
    __slots__ = ()

    def __repr__(self) -> str:
        return "DROP"


DROP: Final = _Drop()

Outcome = Value | _Drop | None
Transformer = Callable[["Rewriter", Op, tuple[Value, ...]], Outcome]


class ValueMap:
    """What stands in the new model for the values and blocks of the old one. Inner maps see through to outer ones."""

    __slots__ = ("blocks", "parent", "values")

    def __init__(self, parent: ValueMap | None = None) -> None:
        self.values: dict[Value, Value] = {}
        self.blocks: dict[Block, Block] = {}
        self.parent = parent

    def get(self, value: Value) -> Value | None:
        """The new value for an old one, or None."""
        here: ValueMap | None = self
        while here is not None:
            found = here.values.get(value)
            if found is not None:
                return found
            here = here.parent
        return None


class Rewriter(Builder):
    """The builder that a transformer writes to, which also knows the map from old values to new ones.

    `caller` is the place of the call that the ops rewritten here are the inlined callee of, if they are.
    """

    __slots__ = ("caller", "mapping", "pass_name", "transformers")

    caller: Location | None
    mapping: ValueMap
    transformers: tuple[Transformer, ...]
    pass_name: str | None

    @staticmethod
    def over(
        builder: Builder,
        transformers: Sequence[Transformer] = (),
        pass_name: str | None = None,
        caller: Location | None = None,
    ) -> Rewriter:
        """A rewriter that appends at the place of `builder`."""
        made = Rewriter(builder._draft, builder.block, builder._parent_draft, builder.location)  # pyright: ignore[reportPrivateUsage]
        made.mapping = ValueMap()
        made.transformers = tuple(transformers)
        made.pass_name = pass_name
        made.caller = caller
        return made

    def __getitem__(self, value: Value) -> Value:
        """The new value that stands for an old one. Raises `BuildError` when there is none."""
        found = self.mapping.get(value)
        if found is None:
            raise BuildError(f"{value!r} has no counterpart in the new model: its op was dropped, but it is still used")
        return found

    def __setitem__(self, old: Value, new: Value) -> None:
        self.mapping.values[old] = new

    def copy(self, op: Op, operands: Sequence[Value], type_: Type | None = None) -> OpResult:
        """Append a copy of an old op with these operands, its bodies transformed in turn.

        The result type is `type_`. Without it, it is the old type where the operands and bodies have their old types,
        and else the inferred one. The copy has the location of the op, not that of this pass.
        """
        bodies: Sequence[Body] = ()
        if op.bodies:
            isolated = isinstance(op, Isolated)
            bodies = [self.rewrite_body(body, isolated=isolated) for body in op.bodies]
        successors: Sequence[Successor] = ()
        if op.successors:
            blocks = self.mapping.blocks
            successors = [Successor(blocks[s.block], [self[v] for v in s.arguments]) for s in op.successors]
        place = op.location
        if self.caller is not None:
            place = self.caller if place is None else place.called_from(self.caller)
        if place is None:
            self.location = None  # What had no place gets none.
        return self.add(rebuilt(op, operands, bodies, successors, type_), place)

    def rewrite_body(
        self,
        body: Body,
        *,
        isolated: bool = False,
        parameter_types: Sequence[Type] | None = None,
        yield_type: Type | None = None,
        known: Mapping[BlockParameter, Value] | None = None,
    ) -> Body:
        """A new body made from an old one by the transformers; its parameter and yield types may be replaced.

        `known` has values visible here for old parameters that are to be replaced inside; the new body still takes
        them.
        """
        types = [p.type for p in body.parameters] if parameter_types is None else parameter_types
        yields = body.yield_type if yield_type is None else yield_type
        start = Builder.root(types, yields) if isolated else self.nested(types, yields)
        inner = Rewriter.over(start, self.transformers, self.pass_name, self.caller)
        inner.mapping.parent = self.mapping
        for old, new in zip(body.parameters, inner.parameters, strict=False):
            inner[old] = new
        for old, new in (known or {}).items():
            inner[old] = new
        inner.rewrite_blocks(body)
        return inner.finish()

    def rewrite_blocks(self, body: Body) -> None:
        """Append the blocks of an old body: its entry block here, the others as new blocks. Parameters of the entry are
        to be mapped before."""
        for block in body.blocks[1:]:
            made = self.new_block([p.type for p in block.parameters])
            self.mapping.blocks[block] = made
            self.mapping.values.update(zip(block.parameters, made.parameters, strict=True))
        for block in body.blocks:
            if block is not body.entry:
                self.move_to(self.mapping.blocks[block])
            self.rewrite_ops(block.ops)

    def rewrite_ops(self, ops: Sequence[Op]) -> None:
        """Append the counterparts of old ops."""
        for op in ops:
            self.rewrite(op)

    def rewrite(self, op: Op) -> None:
        """Append the counterpart of one old op, asking the transformers in order."""
        operands = tuple([self[value] for value in op.operands])
        place = op.location
        if self.caller is not None:
            place = self.caller if place is None else place.called_from(self.caller)
        self.location = place if place is None or self.pass_name is None else place.made_by(self.pass_name)
        outcome: Outcome = None
        for transformer in self.transformers:
            outcome = transformer(self, op, operands)
            if outcome is not None:
                break
        if outcome is None:
            outcome = self.copy(op, operands)
        if isinstance(outcome, Value):
            self.mapping.values[op.result] = outcome
        elif outcome is not DROP:
            raise BuildError(f"a transformer gives a value, DROP or None, not {outcome!r} (asked about {op.NAME})")


def rebuilt(
    op: Op,
    operands: Sequence[Value],
    bodies: Sequence[Body],
    successors: Sequence[Successor] = (),
    type_: Type | None = None,
) -> Op:
    """A new op like `op` with other operands, bodies and successors, not placed yet.

    The result type is `type_`. Without it, it is the old type where the operands and bodies have their old types, and
    else the inferred one; of ops whose type is a declared field it is the old one. Types are not checked.
    """
    before = op.operands
    same = len(operands) == len(before) and len(bodies) == len(op.bodies)
    if same:
        for new, old in zip(operands, before, strict=True):
            if new.type is not old.type and new.type != old.type:
                same = False
                break
        for made_body, old_body in zip(bodies, op.bodies, strict=True):
            if made_body.yield_type != old_body.yield_type:
                same = False
    result = op.result.type if type_ is None else type_
    if len(operands) == len(before) and len(bodies) == len(op.bodies) and len(successors) == len(op.successors):
        made = op.SPEC.copy(op, tuple(operands), successors, bodies, result)
    else:
        made = op.SPEC.make(operands, successors, dict(op.attributes), bodies, result)
        made.__dict__["location"] = op.location
    if type_ is None and not same and op.SPEC.result_type is None:
        fill(made.result, "type", made.infer_type())
    return made


def transform(op: Op, *transformers: Transformer, pass_name: str | None = None) -> Op:
    """The model that the transformers make of the one rooted at `op`; with none of them, a copy.

    The first transformer that says something about an op decides. `pass_name` is recorded in the location of ops that
    the transformers add. The root itself is always copied.
    """
    require_model(op, "transform")
    if op.operands or op.successors:
        raise BuildError("the root of a model has no operands")
    outside = Rewriter.over(Builder.root(), transformers, pass_name)
    bodies = [outside.rewrite_body(body, isolated=True) for body in op.bodies]
    made = rebuilt(op, (), bodies)
    return made


def compose(*passes: Callable[[Op], Op]) -> Callable[[Op], Op]:
    """The pass that runs these passes one after the other."""

    def composed(op: Op) -> Op:
        for step in passes:
            op = step(op)
        return op

    return composed


def with_attributes(op: Op, changes: Mapping[str, object]) -> Op:
    """A copy of a root op with some attributes changed. Raises `BuildError` for one that the op does not have."""
    spec = op.SPEC
    attributes = dict(op.attributes)
    for name, value in changes.items():
        if name not in attributes:
            raise BuildError(f"{op.NAME} has no attribute '{name}'; it has {', '.join(attributes) or 'none'}")
        attributes[name] = convert_attribute(value, spec.by_name[name].kind, f"{op.NAME}: attribute '{name}'")
    outside = Rewriter.over(Builder.root())
    bodies = [outside.rewrite_body(body, isolated=True) for body in op.bodies]
    made = spec.make((), (), attributes, bodies, op.result.type)
    made.__dict__["location"] = op.location
    made.check()
    return made
