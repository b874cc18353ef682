"""Transforming models: a transformer says what replaces an op; where it says nothing, the op is copied.

    def double_negation(builder, op, operands):
        if isinstance(op, NegF) and isinstance((inner := operands[0]).op, NegF):
            return inner.op.operand            # uses of the op get this value instead
        return None                            # says nothing: the op is copied

    better = transform(model, double_negation)

A transformer gets the builder of the new model, an op of the old one, and the values of the new model that stand for
its operands. It may add any ops to the builder, and returns

* None: copy the op, its bodies transformed in turn;
* a value of the new model, which stands for the op's result from here on;
* `DROP`: the op has no counterpart.

A change of types runs on by itself. A copy whose operands have other types than before gets the result type that
follows from them, a loop's body takes what the loop now carries, and a body yields the types that its terminators hand
over. Each such copy is checked: one that does not fit raises a `BuildError` that names the op and its source line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NoReturn

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.errors import BuildError, KernelTypeError, shown
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Block, BlockParameter, Body, Op, OpResult, Successor, Value, fill, require_model
from ziggurat.codemodel.structured import Structured, packed
from ziggurat.codemodel.traits import BodyTerminator, Isolated, SymbolTable, SymbolUser
from ziggurat.codemodel.types import Type


class _Drop:
    __slots__ = ()

    def __repr__(self) -> str:
        return "DROP"


DROP: Final = _Drop()

Outcome = Value | _Drop | None
Transformer = Callable[["Rewriter", Op, tuple[Value, ...]], Outcome]


class ValueMap:
    """The counterparts in the new model of values and blocks of the old one. A lookup goes on in the outer map."""

    __slots__ = ("blocks", "parent", "values")

    def __init__(self, parent: ValueMap | None = None) -> None:
        self.values: dict[Value, Value] = {}
        self.blocks: dict[Block, Block] = {}
        self.parent = parent

    def get(self, value: Value) -> Value | None:
        """The new value for an old one, or None."""
        here: ValueMap | None = self
        while here is not None:
            mapped = here.values.get(value)
            if mapped is not None:
                return mapped
            here = here.parent
        return None


class Concerned(dict[type[Op], bool]):
    """Whether one of some transformers is to be asked about the ops of a class.

    A transformer with an attribute `concerns`, a function from a class of ops to a bool, is asked about the ops of
    those classes only.
    """

    def __init__(self, transformers: Sequence[Transformer]) -> None:
        super().__init__()
        self.transformers = transformers

    def __missing__(self, cls: type[Op]) -> bool:
        tests = [getattr(transformer, "concerns", None) for transformer in self.transformers]
        concerned = self[cls] = any(test is None or test(cls) for test in tests)
        return concerned


class _Run:
    """One run of `transform`: whether a transformer has changed anything, how many values it was told of, and the
    functions that were inlined."""

    __slots__ = ("changed", "inlined", "notes")

    def __init__(self) -> None:
        self.changed = False
        self.notes = 0
        self.inlined: list[Op] = []


class Rewriter(Builder):
    """The builder that a transformer writes to, which also knows the map from old values to new ones.

    `caller` is the place of the call when the ops that are rewritten here are those of an inlined function.
    """

    __slots__ = (
        "_concerned",
        "_copied",
        "_place",
        "_run",
        "_unmarked",
        "caller",
        "mapping",
        "pass_name",
        "transformers",
    )

    _concerned: Concerned
    _copied: tuple[OpResult, tuple[Value, ...]] | None  # The last copy, and the operands that it was made with.
    _place: Location | None
    _unmarked: bool  # Whether `_place` does not name the pass yet.
    _run: _Run
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
        rewriter = Rewriter(builder._draft, builder.block, builder.location)  # pyright: ignore[reportPrivateUsage]
        rewriter.mapping = ValueMap()
        rewriter.transformers = tuple(transformers)
        rewriter.pass_name = pass_name
        rewriter.caller = caller
        rewriter._run = builder._run if isinstance(builder, Rewriter) else _Run()
        rewriter._copied = None
        rewriter._concerned = Concerned(rewriter.transformers)
        return rewriter

    @property
    def location(self) -> Location | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The place of ops that are added without one. It names the pass from when it is first asked for."""
        if self._unmarked and self._place is not None and self.pass_name is not None:
            self._place = self._place.made_by(self.pass_name)
        self._unmarked = False
        return self._place

    @location.setter
    def location(self, place: Location | None) -> None:
        self._place, self._unmarked = place, False

    def __getitem__(self, value: Value) -> Value:
        """The new value that stands for an old one. Raises `BuildError` when there is none."""
        mapped = self.mapping.get(value)
        if mapped is None:
            raise BuildError(f"{value!r} has no counterpart in the new model: its op was dropped, but it is still used")
        return mapped

    def __setitem__(self, old: Value, new: Value) -> None:
        self.mapping.values[old] = new
        self._run.changed = True
        self._run.notes += 1

    @property
    def notes(self) -> int:
        """The number of new values that transformers have given to old ones."""
        return self._run.notes

    def copy(self, op: Op, operands: Sequence[Value], type_: Type | None = None) -> OpResult:
        """Append a copy of an old op with these operands, its bodies transformed in turn.

        The result type is `type_`. Without it, it is the old type where the operands and bodies have their old types,
        and else the one that follows from them. The copy has the location of the op, not that of this pass.
        """
        if not (type_ or self.caller or op.bodies or op.successors) and len(operands) == len(op.operands):
            operands = tuple(operands)
            new = self.add_copy(op, operands)
            self._copied = new, operands
            return new
        bodies: Sequence[Body] = ()
        if op.bodies:
            isolated = isinstance(op, Isolated) or op.parent is None
            types = op.entry_types(operands) if isinstance(op, Structured) or op.operands else None
            bodies = [self.rewrite_body(body, isolated=isolated, parameter_types=types) for body in op.bodies]
        successors: Sequence[Successor] = ()
        if op.successors:
            blocks = self.mapping.blocks
            successors = [Successor(blocks[s.block], [self[v] for v in s.arguments]) for s in op.successors]
            for successor in successors:
                _require_fit(op, successor)
        place = op.location if self.caller is None else self._place_of(op)
        if place is None:
            self.location = None  # An op without a place stays without one.
        new = self.add(rebuilt(op, operands, bodies, successors, type_), place)
        if type_ is None and isinstance(operands, tuple):
            self._copied = new, operands
        return new

    def _place_of(self, op: Op) -> Location | None:
        """The location of an old op, seen from the caller when it is inlined here."""
        place = op.location
        if self.caller is None:
            return place
        return self.caller if place is None else place.called_from(self.caller)

    def note_inlined(self, function: Op) -> None:
        """Let a function of the model, whose body was put in the place of a call, go when no call is left."""
        self._run.inlined.append(function)

    def inside(self, types: Sequence[Type], yield_type: Type, *, isolated: bool = False) -> Rewriter:
        """A rewriter for the body of an op that is added here next. It sees the counterparts that are known here."""
        return self.scoped(Builder.root(types, yield_type) if isolated else self.nested(types, yield_type))

    def replacing(self, body: Body, yield_type: Type | None = None) -> Rewriter:
        """A rewriter for an isolated body in place of an old one, whose parameters stand for the old ones."""
        yields = body.yield_type if yield_type is None else yield_type
        inner = self.inside([parameter.type for parameter in body.parameters], yields, isolated=True)
        inner.mapping.values.update(zip(body.parameters, inner.parameters, strict=True))
        return inner

    def scoped(self, start: Builder | None = None) -> Rewriter:
        """A rewriter that appends at `start`, or here. Counterparts that it is told of are unknown to this one."""
        rewriter = Rewriter.over(start or self, self.transformers, self.pass_name, self.caller)
        rewriter.mapping.parent = self.mapping
        rewriter._run = self._run
        if self._concerned.transformers is rewriter.transformers:
            rewriter._concerned = self._concerned
        return rewriter

    def rewrite_body(
        self,
        body: Body,
        *,
        isolated: bool = False,
        parameter_types: Sequence[Type] | None = None,
        yield_type: Type | None = None,
        mapping: Mapping[BlockParameter, Value] | None = None,
    ) -> Body:
        """A new body made from an old one by the transformers; its parameter and yield types may be replaced.

        Without `yield_type` it is that of the values that the terminators hand over, where it was so before. `mapping`
        has values visible here that replace old parameters inside; the new body still takes these parameters.
        """
        types = [p.type for p in body.parameters] if parameter_types is None else parameter_types
        yields = body.yield_type if yield_type is None else yield_type
        inner = self.inside(types, yields, isolated=isolated)
        inner.mapping.values.update(zip(body.parameters, inner.parameters, strict=False))
        if mapping is not None:
            inner.mapping.values.update(mapping.items())
        inner.rewrite_blocks(body)
        new_body = inner.finish()
        if yield_type is None:
            _follow_terminators(body, new_body)
        return new_body

    def rewrite_blocks(self, body: Body) -> None:
        """Append the blocks of an old body: its entry block here, the others as new blocks. The parameters of the entry
        must be mapped before."""
        for block in body.blocks[1:]:
            new_block_ = self.new_block([p.type for p in block.parameters])
            self.mapping.blocks[block] = new_block_
            self.mapping.values.update(zip(block.parameters, new_block_.parameters, strict=True))
        for block in body.blocks:
            if block is not body.entry:
                self.move_to(self.mapping.blocks[block])
            self.rewrite_ops(block.ops)

    def rewrite(self, op: Op) -> None:
        """Append the counterpart of one old op, asking the transformers in order."""
        self.rewrite_ops((op,))

    def rewrite_ops(self, ops: Sequence[Op]) -> None:
        """Append the counterparts of old ops, asking the transformers about each, in order."""
        if self._concerned.transformers is not self.transformers:
            self._concerned = Concerned(self.transformers)
        concerned, caller, values = self._concerned, self.caller, self.mapping.values
        for op in ops:
            try:
                try:
                    operands = tuple(map(values.__getitem__, op.operands))
                except KeyError:  # Some are known in an outer map only.
                    operands = tuple(map(self.__getitem__, op.operands))
                outcome: Outcome = None
                if concerned[type(op)]:
                    self._place, self._unmarked = (op.location if caller is None else self._place_of(op)), True
                    outcome = self._ask(op, operands)
                if outcome is None:
                    if op.bodies or op.successors or caller is not None:
                        values[op.result] = self.copy(op, operands)
                    else:
                        values[op.result] = self.add_copy(op, operands)
                elif isinstance(outcome, Value):
                    values[op.result] = outcome
                elif outcome is not DROP:
                    raise BuildError(f"a transformer must give a value, DROP or None; got {outcome!r}")
            except BuildError as error:
                error.while_rewriting(op.NAME, op.location)
                raise

    def _ask(self, op: Op, operands: tuple[Value, ...]) -> Outcome:
        """The outcome of the first transformer that says something."""
        block = self.block
        before = len(block._ops)  # pyright: ignore[reportPrivateUsage]
        self._copied = None
        outcome: Outcome = None
        for transformer in self.transformers:
            outcome = transformer(self, op, operands)
            if outcome is not None:
                break
        if not self._run.changed:
            copied = self._copied
            plain = outcome is not None and copied is not None and copied[0] is outcome and copied[1] is operands
            unchanged = outcome is None or (plain and copied is not None and copied[0].op.NAME == op.NAME)
            self._run.changed = not unchanged or self.block is not block or len(block._ops) != before + plain  # pyright: ignore[reportPrivateUsage]
        return outcome


def _require_fit(op: Op, successor: Successor) -> None:
    """Raise `BuildError` unless the arguments of a successor have the types of its block's parameters."""
    for parameter, value in zip(successor.block.parameters, successor.arguments, strict=False):
        if parameter.type is not value.type and parameter.type != value.type:
            raise BuildError(
                f"{op.NAME}: parameter {parameter.index} of the block is {parameter.type}; it is given {value.type}",
                hint="give the blocks other parameters with Rewriter.new_block, or convert the value before the branch",
            )


def _follow_terminators(old: Body, new: Body) -> None:
    """Let a body yield what its terminators hand over now, if it did so before."""
    if len(old.blocks) != len(new.blocks):
        return
    for before, after in zip(old.blocks, new.blocks, strict=True):
        last, now = before.ops[-1], after.ops[-1]
        if isinstance(last, BodyTerminator) and isinstance(now, BodyTerminator) and last.NAME == now.NAME:
            old_types, new_types = ([value.type for value in end.handed] for end in (last, now))
            if old_types != new_types and old.yield_type == packed(old_types):
                fill(new, "yield_type", packed(new_types))
                return


def rebuilt(
    op: Op,
    operands: Sequence[Value],
    bodies: Sequence[Body],
    successors: Sequence[Successor] = (),
    type_: Type | None = None,
) -> Op:
    """A new op like `op` with other operands, bodies and successors, not placed yet.

    The result type is `type_`, unchecked. Without it, it is the old type where the operands and bodies have their old
    types; else the type that follows from them (`Op.infer_type`, `Op.derive_type`), and the op is checked.
    """
    result = op.result.type if type_ is None else type_
    before, had = op.operands, op.bodies
    fits = len(operands) == len(before)
    if fits and len(bodies) == len(had) and len(successors) == len(op.successors):
        copy = op.SPEC.copy(op, tuple(operands), successors, bodies, result)
    else:
        copy = op.SPEC.make(operands, successors, dict(op.attributes), bodies, result)
        copy.__dict__["location"] = op.location
    if type_ is None:
        for old, new in zip(before, operands):  # noqa: B905  (`strict` takes time)
            if (kind := old.type) is not (other := new.type) and kind != other:
                fits = False
                break
        if not fits or (had and list(map(_types, bodies)) != list(map(_types, had))):
            op.SPEC.rederive(copy)
    return copy


def _types(body: Body) -> list[Type]:
    """The types of a body's signature."""
    return [body.yield_type, *[parameter.type for parameter in body.parameters]]


class _Unchanged(Rewriter):
    """A builder of no model, for `changes`: whoever uses it changes something."""

    __slots__ = ()

    def __init__(self) -> None:
        pass

    def __getattribute__(self, name: str) -> NoReturn:
        raise _Changed

    def __getitem__(self, value: Value) -> NoReturn:
        raise _Changed

    def __setitem__(self, old: Value, new: Value) -> NoReturn:
        raise _Changed


class _Changed(Exception):
    pass


def changes(op: Op, transformer: Transformer) -> bool:
    """Whether a transformer would change a model. It is asked about the ops as they are, and must note nothing before
    it uses its builder. For transformers that mostly change nothing: `transform` makes a copy to find that."""
    builder, concerned = _Unchanged(), Concerned((transformer,))
    try:
        return any(
            concerned[type(inner)] and transformer(builder, inner, inner.operands) is not None for inner in op.walk()
        )
    except _Changed:
        return True


def transform(op: Op, *transformers: Transformer, pass_name: str | None = None) -> Op:
    """The model that the transformers make of the one rooted at `op`.

    The first transformer that says something about an op decides; they are asked about the root, too. Gives `op` itself
    when none of them changed anything; without transformers, a copy. `pass_name` is recorded in the location of ops
    that the transformers add. Raises `BuildError` when the root is dropped or becomes several ops, and when an op does
    not fit its new operands.
    """
    require_model(op, "transform")
    for transformer in transformers:
        if not callable(transformer):
            raise KernelTypeError(f"a transformer must be a function (builder, op, operands); got {transformer!r}")
    if op.operands or op.successors:
        raise BuildError("the root of a model has no operands")
    outside = Rewriter.over(Builder.root(), transformers, pass_name)
    outside.rewrite(op)
    if transformers and not outside._run.changed:  # pyright: ignore[reportPrivateUsage]
        return op
    result = outside.mapping.get(op.result)
    if not isinstance(result, OpResult) or outside.block.ops != (result.op,):
        raise BuildError(f"the root of a model becomes one op; {op.NAME} became {len(outside.block.ops)}", op.location)
    result.op.__dict__["parent"] = None
    inlined = outside._run.inlined  # pyright: ignore[reportPrivateUsage]
    _drop_uncalled(result.op, {function.attributes["sym_name"] for function in inlined if function.root() is op})
    return result.op


def _drop_uncalled(op: Op, inlined: set[str]) -> None:
    """Remove those of the inlined functions from a new module that nothing calls any more."""
    while inlined and isinstance(op, SymbolTable):
        callees = {inner.attributes["callee"] for inner in op.walk() if isinstance(inner, SymbolUser)}
        removed = [function for name, function in op.functions().items() if name in inlined and name not in callees]
        if not removed:
            return
        entry = op.bodies[0].entry
        fill(entry, "_ops", tuple(other for other in entry.ops if not any(other is function for function in removed)))
        op.__dict__.pop("_ops", None)


def with_attributes(op: Op, changes: Mapping[str, object]) -> Op:
    """A copy of a root op with some attributes changed. Raises `BuildError` for one that the op does not have."""
    require_model(op, "with_attributes")
    for name in changes:
        if name not in op.attributes:
            raise BuildError(f"{op.NAME} has no attribute {shown(name)}; it has {', '.join(op.attributes) or 'none'}")
    outside = Rewriter.over(Builder.root())
    bodies = {field.name: outside.rewrite_body(op.__dict__[field.name], isolated=True) for field in op.SPEC.bodies}
    new = op.evolve(**bodies, **changes)
    new.__dict__["location"] = op.location
    return new
