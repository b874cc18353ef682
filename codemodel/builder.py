"""Building models. A `Builder` is a place in a body under construction; each op that is added there is checked.

>>> from ziggurat.codemodel.dialects import arith, core
>>> from ziggurat.codemodel.types import i32
>>> f = Builder.root([i32, i32], i32)
>>> x, y = f.parameters
>>> total = f.add(arith.AddI(x, y))
>>> f.add(core.Return([total])).op
<return %free_0>
>>> print(core.Func("sum", f.finish()))
func @"sum" (%0 : i32, %1 : i32)i32 -> {
    %2 : i32 = arith.addi %0 %1;
    return %2;
};
<BLANKLINE>
"""

from __future__ import annotations

from collections.abc import Sequence

from ziggurat.codemodel.errors import BuildError, KernelTypeError, shown
from ziggurat.codemodel.graphs import reverse_postorder
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Block, BlockParameter, Body, Op, OpResult, Value, set_blocks, set_ops
from ziggurat.codemodel.traits import Terminator
from ziggurat.codemodel.types import Type, void


class _Draft:
    """A body under construction, shared by the builders that point into it."""

    __slots__ = ("blocks", "body", "closed", "open_children", "parent")

    def __init__(self, parameter_types: Sequence[Type], yield_type: Type, parent: _Draft | None) -> None:
        self.body = Body(yield_type, parent.body if parent is not None else None)
        self.parent = parent
        self.blocks = [Block(self.body, parameter_types)]
        self.closed = False
        self.open_children = 0
        if parent is not None:
            parent.open_children += 1

    def close(self) -> None:
        if self.parent is not None and not self.closed:
            self.parent.open_children -= 1
        self.closed = True


class Builder:
    """A place at the end of a block of a body under construction.

    Ops that are added without a location get `location`.
    """

    __slots__ = ("_draft", "block", "location")

    def __init__(self, draft: _Draft, block: Block, location: Location | None) -> None:
        self._draft = draft
        self.block = block
        self.location = location

    @staticmethod
    def root(parameter_types: Sequence[Type] = (), yield_type: Type = void) -> Builder:
        """Start a body that uses nothing from outside. Returns the builder of its entry block."""
        draft = _Draft(parameter_types, yield_type, None)
        return Builder(draft, draft.blocks[0], None)

    def nested(self, parameter_types: Sequence[Type] = (), yield_type: Type = void) -> Builder:
        """Start a body for an op that will be added here; its ops may use the values visible here."""
        self._require_open()
        draft = _Draft(parameter_types, yield_type, self._draft)
        return Builder(draft, draft.blocks[0], self.location)

    @property
    def parameters(self) -> tuple[BlockParameter, ...]:
        """The parameters of the current block."""
        return self.block.parameters

    @property
    def entry(self) -> Block:
        """The entry block of the body."""
        return self._draft.blocks[0]

    @property
    def body(self) -> Body:
        """The body under construction. An op must not get it before `finish`."""
        return self._draft.body

    def new_block(self, parameter_types: Sequence[Type] = ()) -> Block:
        """Add a block to this body. Go there with `move_to`, or make another builder with `at`."""
        self._require_open()
        block = Block(self._draft.body, parameter_types)
        self._draft.blocks.append(block)
        return block

    def move_to(self, block: Block) -> None:
        """Continue at the end of `block`, a block of the same body."""
        if block.parent is not self._draft.body:
            raise BuildError("a builder moves only among the blocks of its own body")
        self.block = block

    def at(self, block: Block) -> Builder:
        """Another builder of the same body, at the end of `block`."""
        other = Builder(self._draft, self.block, self.location)
        other.move_to(block)
        return other

    @property
    def terminated(self) -> bool:
        """True when the current block has its terminator."""
        ops = self.block._ops  # pyright: ignore[reportPrivateUsage]
        return bool(ops) and isinstance(ops[-1], Terminator)

    def add(self, op: Op, location: Location | None = None) -> OpResult:
        """Place `op` at the end of the block and return its result.

        Raises `BuildError` when the op is placed already, the block has its terminator, or an operand is not visible
        here.
        """
        draft = self._draft
        block = self.block
        try:
            is_placed = op.parent is not None
        except AttributeError:
            raise KernelTypeError(f"a builder must get an op to add; got {shown(op)}") from None
        if draft.closed:
            raise BuildError(f"cannot add {op.NAME}: the body is finished")
        if is_placed:
            raise BuildError(f"{op.NAME} is placed already; copy it with a transform")
        ops = block._ops  # pyright: ignore[reportPrivateUsage]
        if ops and isinstance(ops[-1], Terminator):
            raise BuildError(f"cannot add {op.NAME} after the block's terminator")
        for value in op.operands:
            source = value.op
            if (home := value.block if source is None else source.parent) is not block:
                self._require_visible(op, home)
        for successor in op.successors:
            if successor.block.parent is not draft.body:
                raise BuildError(f"{op.NAME}: a successor must be a block of the same body")
            if successor.block is draft.blocks[0]:
                raise BuildError(f"{op.NAME}: the entry block cannot be a successor")
            for value in successor.arguments:
                self._require_visible(op, value.block)
        for body in op.bodies:
            if body.ancestor is not None and body.ancestor is not draft.body:
                raise BuildError(f"{op.NAME}: its body was started at another place")
            if not body.blocks:
                raise BuildError(f"{op.NAME}: its body is not finished")
        fields = op.__dict__
        if location is not None:
            fields["location"] = location
        elif fields["location"] is None:
            fields["location"] = self.location
        fields["parent"] = block
        ops.append(op)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        return op.result

    def add_copy(self, op: Op, operands: tuple[Value, ...]) -> OpResult:
        """Place a copy of an op without bodies and successors, with as many other operands, at the end of the block.

        It is `rebuilt` and `add` for the ops that most of a transform's time goes to.
        """
        block, spec, fits = self.block, op.SPEC, True
        for old, new in zip(op.operands, operands):  # noqa: B905  (`strict` takes time)
            source = new.op
            if (home := new.block if source is None else source.parent) is not block:
                self._require_visible(op, home)
            if (kind := old.type) is not (other := new.type) and kind != other:
                fits = False
        ops = block._ops  # pyright: ignore[reportPrivateUsage]
        if self._draft.closed or (ops and isinstance(ops[-1], Terminator)):
            return self.add(spec.copy(op, operands, (), (), op.result.type))  # Says what is wrong.
        copy, result = spec.copy_leaf(op, operands, block)
        if not fits:
            spec.rederive(copy)
        ops.append(copy)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        return result

    def finish(self) -> Body:
        """Close the body: put its blocks in reverse postorder, without unreachable ones.

        Raises `BuildError` when a block has no terminator or an inner body is unfinished.
        """
        self._require_open()
        draft = self._draft
        if draft.open_children:
            raise BuildError("an inner body is not finished")
        for index, block in enumerate(draft.blocks):
            ops = block._ops  # pyright: ignore[reportPrivateUsage]
            if not ops or not isinstance(ops[-1], Terminator):
                raise BuildError(f"block {index} has no terminator")
            set_ops(block, tuple(ops))
        first, *others = draft.blocks
        set_blocks(draft.body, reverse_postorder(first, lambda block: block.successors) if others else (first,))
        draft.close()
        return draft.body

    def abandon(self) -> None:
        """Abandon the body, so that the one around it can be finished without it."""
        self._draft.close()

    def _require_open(self) -> None:
        if self._draft.closed:
            raise BuildError("the body is finished")

    def _require_visible(self, op: Op, block: Block | None) -> None:
        if block is None:
            raise BuildError(f"{op.NAME}: an operand is the result of an op that is not placed")
        body: Body | None = self._draft.body
        while body is not None:
            if block.parent is body:
                return
            body = body.ancestor
        raise BuildError(
            f"{op.NAME}: an operand is not visible here (declared in another body)",
            hint="in a transformer, use `operands` or builder[value] for the counterpart of an old value",
        )
