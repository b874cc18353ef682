"""The plan of a kernel's regions: the loop nest in which each tensor is computed, and the tensors that get a buffer.

The ops of a block between two barriers (control flow, accesses of scalars, prints) are a `Segment`: a list of items. An
item is a loop nest over a shape with statements, or an op on whole buffers. Ops that are cheap to compute again are no
statements: they are computed wherever a statement needs them. A statement joins the last item of its shape in which
everything it needs is there: a tensor at the same index is there in the same item, a reduced tensor, or one at another
index, only after it. An affine load joins the item that first needs it or a later load. Loads stay between the stores
around them, and stores in their order.

A tensor needs a buffer (a home) when an item other than its own reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from ziggurat.codemodel.dialects import arith, cf, core, cpu, math, scf, tt
from ziggurat.codemodel.op import Block, BlockParameter, Body, Op, OpResult, Value
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.traits import MayTrap, MemoryRead, MemoryWrite, Pure
from ziggurat.codemodel.types import TensorType, Type, component_types, shape_of
from ziggurat.transforms.analysis.components import Component, component_of

MAX_COST = 12  # Operations that are computed again rather than stored.
# Statements of a loop nest. LLVM's time grows with the square of the values that a loop uses, and registers are few.
MAX_STATEMENTS = 64

# Ops that are worth a buffer when another region needs their result.
EXPENSIVE = (
    *(math.Exp, math.Exp2, math.Log, math.Log2, math.Sqrt, math.Rsqrt, math.Sin, math.Cos, math.Tanh, math.Erf),
    *(math.Directed, math.Fma, arith.DivF, arith.RemF, tt.PreciseDivF, tt.PreciseSqrt, tt.MapElementwise, tt.Gather),
    math.Approximate,
)
_FREE = (
    tt.MakeRange,
    tt.Splat,
    tt.Broadcast,
    tt.ExpandDims,
    tt.Trans,
    tt.Reshape,
    tt.Hint,
    arith.ConstantOp,
    tt.Poison,
)
_LOADS = (tt.Load, cpu.Load)
_STORES = (tt.Store, cpu.Store)
_ATOMICS = (tt.AtomicRMW, tt.AtomicCAS)
# No load may come after one of these instead of before it.
_FAILING = (tt.Load, MemoryWrite, MayTrap, tt.Gather, tt.Assert)


@attrs.frozen(eq=False)
class NestStep:
    """A step of a loop nest: an op; or, without one, a tensor that is stored to the home of `target`. It is read from
    the home of `source`, if there is one."""

    op: Op | None
    value: Value
    target: Component | None = None
    source: Component | None = None


@attrs.define(eq=False)
class Item:
    """A loop nest over a shape; or an op on whole buffers, for which `shape` is None. `axis` is the one along which it
    reduces, -1 for none."""

    index: int
    shape: tuple[int, ...] | None
    statements: list[NestStep] = attrs.field(factory=list[NestStep])
    axis: int = -1
    ordered: bool = False  # Whether indices must come in row-major order.
    alone: bool = False  # Whether no other statement may join.
    moved: set[Component] = attrs.field(factory=set[Component])  # Homes that are read at another index.
    late: bool = False  # Whether a store may compute its mask once more after the loops.
    writes: bool = False  # Whether a statement writes to memory,
    reads: bool = False  # reads from it,
    loads: bool = False  # or reads at an index that is not affine.


@attrs.define(eq=False)
class Segment:
    """Items in order. `scalars[i]` are the ops on scalars that come before item i, and after all for the last i."""

    items: list[Item] = attrs.field(factory=list[Item])
    scalars: list[list[Op]] = attrs.field(factory=lambda: [[]])


@attrs.frozen(eq=False)
class Edge:
    """A branch to a block that takes tensors: the segment that stores them to its homes."""

    successor: int
    segment: Segment


Entry = Segment | Edge | Op


@attrs.frozen(eq=False)
class _Inline:
    """A tensor without an item: the components of anchors that it needs, with whether at the same index; the rank of
    the scalars that it needs; what it costs."""

    needs: dict[Component, bool]
    rank: int
    cost: int
    segment: Segment | None


def is_anchor(op: Op) -> bool:
    """Whether an op is a statement of its own wherever it stands."""
    return isinstance(op, (*EXPENSIVE, *_LOADS, *_STORES, *_ATOMICS, MayTrap, tt.Reduce, tt.Assert, tt.InlineAsm))


def holds_tensor(type_: Type) -> bool:
    """Whether a value of the type is a tensor, or has one among its components."""
    return any(isinstance(part, TensorType) for part in component_types(type_))


def carried(op: Structured) -> list[int]:
    """The numbers of the carried values that are tensors."""
    return [index for index, type_ in enumerate(op.value_types) if isinstance(type_, TensorType)]


class NestPlan:
    """The entries of each block, and the components that need a home."""

    def __init__(self, func: tt.Func) -> None:
        self.entries: dict[Block, list[Entry]] = {}
        self.homes: dict[Component, None] = {}
        self.item_of: dict[Value, Item] = {}  # The item of each anchor.
        self.same_home: dict[Component, Component] = {}  # The component whose home another one shares.
        self._owned: set[Component] = set()  # What control flow carries in a home.
        self._inline: dict[Value, _Inline] = {}
        self._segment = Segment()
        self._ranks: dict[Value, int] = {}  # The ranks of scalars of the present segment.
        self._loads: list[cpu.Load] = []  # Those that have no place yet, in order.
        self._body(func.body)

    def home(self, component: Component) -> Component:
        """The component that owns the home of one."""
        while component in self.same_home:
            component = self.same_home[component]
        return component

    # Blocks.

    def _body(self, body: Body) -> None:
        items = dict(self.item_of)
        for block in body.blocks[1:]:
            for parameter in block.parameters:
                if isinstance(parameter.type, TensorType):
                    self._own((parameter, 0))
        for block in body.blocks:
            self._block(block)
        self.item_of = items  # Tensors from outside that got homes here are unknown again.

    def _own(self, component: Component) -> None:
        self.homes[component] = None
        self._owned.add(component)

    def _block(self, block: Block) -> None:
        entries = self.entries[block] = []
        self._begin(entries)
        for op in block.ops:
            if isinstance(op, scf.Yield | scf.Condition):
                self._yield(op)
                entries.append(op)
            elif isinstance(op, cf.Br | cf.CondBr):
                self._branch(op, entries)
            elif self._is_scalar(op):
                self._scalar(op)
            elif isinstance(op, Structured):
                self._structured(op, entries)
            elif isinstance(op, tt.Dot | tt.Scan | tt.Histogram | cpu.Sort):
                self._whole(op)
            elif isinstance(op, core.TupleLoad):  # A component of an op that has been planned.
                continue
            elif self._is_statement(op) and not _gives_scalars(op):
                if isinstance(op, cpu.Load):
                    self._loads.append(op)  # It gets its place when something needs it.
                    if not op.result.uses or _feeds_dots(op):
                        self._place_loads()
                else:
                    self._statement(NestStep(op, op.result), op.used_values(), self._shape(op))
            elif isinstance(op, Pure) and not _gives_scalars(op):
                self._note(op)
            else:
                for value in op.operands:
                    if isinstance(value.type, TensorType):
                        self._force(value)
                entries.append(op)
                self._begin(entries)

    def _begin(self, entries: list[Entry]) -> None:
        self._place_loads()
        self._segment = Segment()
        self._ranks = {}
        entries.append(self._segment)

    @staticmethod
    def _is_scalar(op: Op) -> bool:
        """Whether an op can be placed among the scalars of a segment."""
        pure = isinstance(op, Pure) and not op.bodies and not isinstance(op, tt.Split)
        return pure and not holds_tensor(op.result.type) and not any(holds_tensor(v.type) for v in op.operands)

    def _is_statement(self, op: Op) -> bool:
        touches = holds_tensor(op.result.type) or any(isinstance(v.type, TensorType) for v in op.operands)
        return touches and (is_anchor(op) or self._cost(op) > MAX_COST)

    def _cost(self, op: Op) -> int:
        if not isinstance(op, Pure) or not isinstance(op.result.type, TensorType):
            return 0
        return self._record(op).cost

    def _shape(self, op: Op) -> tuple[int, ...]:
        parts = [*component_types(op.result.type), *(value.type for value in op.operands)]
        if isinstance(op, tt.Reduce):
            parts = [op.values[0].type]
        return next(part.shape for part in parts if isinstance(part, TensorType))

    # Needs.

    def _record(self, op: Op) -> _Inline:
        """The needs of an op without an item."""
        inline = self._inline.get(op.result)
        if inline is not None:
            return inline
        needs: dict[Component, bool] = {}
        rank, cost = 0, 0 if isinstance(op, (*_FREE, core.TupleLoad, core.MakeTuple)) else 1
        moves = moved_operands(op)
        for position, value in enumerate(op.used_values()):
            if holds_tensor(value.type):
                inner, inner_rank, inner_cost = self._needs(value)
                for component, same in inner.items():
                    needs[component] = needs.get(component, True) and same and position not in moves
                rank, cost = max(rank, inner_rank), cost + inner_cost
            else:
                rank = max(rank, self._rank(value))
        return _Inline(needs, rank, cost, self._segment)

    def _note(self, op: Op) -> None:
        self._inline[op.result] = self._record(op)

    def _needs(self, value: Value) -> tuple[dict[Component, bool], int, int]:
        """The components of anchors that a tensor needs, the rank of its scalars, and its cost."""
        base, index = component_of(value)
        if base in self.item_of or (base, index) in self._owned or any(load.result is base for load in self._loads):
            return {(base, index): True}, 0, 0
        needs = self._inline.get(base)
        if needs is None:
            assert isinstance(base, OpResult), f"{base!r} has no home"
            needs = self._inline[base] = self._record(base.op)
        return needs.needs, needs.rank if needs.segment is self._segment else 0, needs.cost

    def _rank(self, value: Value) -> int:
        return self._ranks.get(component_of(value)[0], 0)

    # Items.

    def _scalar(self, op: Op) -> None:
        if isinstance(op, MayTrap):
            self._place_loads()
        rank = max((self._rank(value) for value in op.operands), default=0)
        self._ranks[op.result] = rank
        self._segment.scalars[rank].append(op)

    def _place_loads(self, count: int | None = None, bound: int = 0, shape: tuple[int, ...] | None = None) -> None:
        """Place the loads that have no place, or the first ones: those of a shape in an item from `bound` on."""
        for load in self._loads[:count]:
            self._loads.remove(load)
            mine = self._shape(load)
            self._statement(NestStep(load, load.result), load.used_values(), mine, bound if mine == shape else 0)

    def _statement(self, statement: NestStep, values: Iterable[Value], shape: tuple[int, ...], bound: int = 0) -> Item:
        """Place a statement that uses these values, in an item from `bound` on."""
        op = statement.op
        needs: dict[Component, bool] = {}
        moves = moved_operands(op) if op is not None else ()
        for position, value in enumerate(values):
            if holds_tensor(value.type):
                inner, rank, _ = self._needs(value)
                bound = max(bound, rank)
                for component, same in inner.items():
                    needs[component] = needs.get(component, True) and same and position not in moves
            else:
                bound = max(bound, self._rank(value))
        fails = op is not None and op.holds(_FAILING)
        loads = [n for n, load in enumerate(self._loads, 1) if (load.result, 0) in needs or fails]
        self._place_loads(max(loads, default=0), bound, shape)
        for component, same in needs.items():
            item = self._here(component[0])
            if item is not None:
                bound = max(bound, item.index if same and item.shape == shape else item.index + 1)
        bound = max(bound, self._after_memory(op), self._after_readers(statement))
        near = [item for component in needs if (item := self._here(component[0])) is not None]
        item = self._join(statement, bound, shape, near)
        for component, same in needs.items():
            if self._here(component[0]) is not item:
                self.homes[component] = None
                if not same:
                    item.moved.add(self.home(component))
        item.statements.append(statement)
        if isinstance(op, cpu.Store) and op.mask is not None and self._needs(op.mask)[0]:
            item.late = True
        if op is not None:
            self._place(op, item)
        return item

    def _here(self, base: Value) -> Item | None:
        """The item of an anchor, if it is one of the present segment."""
        item = self.item_of.get(base)
        items = self._segment.items
        return item if item is not None and item.index < len(items) and items[item.index] is item else None

    def _place(self, op: Op, item: Item) -> None:
        if isinstance(op, tt.Reduce | tt.Dot | tt.Scan | tt.Histogram | cpu.Sort):
            for index, type_ in enumerate(component_types(op.result.type)):
                if isinstance(type_, TensorType):
                    self.homes[op.result, index] = None
            self._ranks[op.result] = item.index + 1
        self.item_of[op.result] = item
        item.writes = item.writes or isinstance(op, MemoryWrite)
        item.reads = item.reads or isinstance(op, MemoryRead)
        item.loads = item.loads or (isinstance(op, MemoryRead) and not isinstance(op, cpu.Load))

    def _after_memory(self, op: Op | None) -> int:
        """The first item in which an access may stand."""
        if isinstance(op, tt.Assert):
            return max(0, len(self._segment.items) - 1)
        if op is None or not isinstance(op, MemoryRead | MemoryWrite):
            return 0
        for item in reversed(self._segment.items):
            if item.writes:
                return item.index + 1
            if item.reads and isinstance(op, MemoryWrite):
                # A region with affine accesses tests whether its store overlaps what it loads.
                return item.index if isinstance(op, cpu.Store) and not item.loads else item.index + 1
        return 0

    def _after_readers(self, statement: NestStep) -> int:
        """The first item in which a home may be overwritten that items of the segment read."""
        if statement.target is None or statement.op is not None:
            return 0
        items = self._segment.items
        read = bool(items) and (items[-1].late or self.home(statement.target) in items[-1].moved)
        return len(items) if read else max(0, len(items) - 1)

    def _join(self, statement: NestStep, bound: int, shape: tuple[int, ...], near: Sequence[Item]) -> Item:
        """The item that a statement joins: the last one, or for a reduction one that computes what it reduces."""
        op, items = statement.op, self._segment.items
        axis = op.axis if isinstance(op, tt.Reduce) else -1
        ordered = isinstance(op, (*_ATOMICS, tt.Store))
        last = len(shape) - 1
        if op is not None and _feeds_dots(op):  # A dot may read the memory itself, without the item.
            return self._append(Item(len(items), shape, alone=True))
        batch = items[bound:][::-1]
        if isinstance(op, tt.Reduce):
            batch.sort(key=lambda item: not any(item is other for other in near))
        for item in batch:
            fits = item.shape == shape and not item.alone and (axis < 0 or item.axis in (-1, axis))
            fits = fits and len(item.statements) < MAX_STATEMENTS
            if fits and not (item.ordered and axis not in (-1, last)) and not (ordered and item.axis not in (-1, last)):
                item.axis = max(item.axis, axis)
                item.ordered = item.ordered or ordered
                return item
        return self._append(Item(len(items), shape, axis=axis, ordered=ordered))

    def _append(self, item: Item) -> Item:
        self._segment.items.append(item)
        self._segment.scalars.append([])
        return item

    def _force(self, value: Value) -> None:
        """Give a tensor a home, with all other components of the op that it is one of."""
        self._place_loads()
        base, index = component_of(value)
        if (base, index) in self._owned or base in self.item_of:
            self.homes[base, index] = None
            return
        parts = {use.index: use.result for use in base.uses if isinstance(use, core.TupleLoad)} | {index: value}
        items: list[Item] = []
        for number, part in parts.items():
            items.append(self._statement(NestStep(None, part, (base, number)), [part], shape_of(part.type)))
            self.homes[base, number] = None
        self.item_of[base] = items[-1]

    def _whole(self, op: Op) -> None:
        """An op on buffers: its tensors get homes, and an item holds it alone."""
        values = op.operands
        target: Component | None = None
        if isinstance(op, tt.Dot):
            values = dot_operands(op)[: 2 if adds_to_zero(op) else 3]
            target = self._sum_home(op)
            if target is not None and self.home((op.c, 0)) != target:
                self.same_home[op.c, 0] = target
        for value in values:
            if isinstance(value.type, TensorType):
                self._force(value)
        item = self._append(Item(len(self._segment.items), None))
        item.statements.append(NestStep(op, op.result))
        self._place(op, item)
        if target is not None:
            self.same_home[op.result, 0] = target

    def _sum_home(self, op: tt.Dot) -> Component | None:
        """The home in which a dot may add, if nothing else needs what it holds: that of another dot's sum, or of a
        tensor that a loop carries, which is the third operand or what that is computed from."""
        value = op.c
        if len(value.uses) != 1 or op.operands.count(value) != 1:
            return None
        if isinstance(value.op, tt.Dot) and value.op.parent is op.parent:
            return self.home((value, 0))
        for (source, index), same in self._needs(value)[0].items():
            is_carried = isinstance(source, BlockParameter) and isinstance(source.owner, scf.For)
            if is_carried and same and source.block is op.parent and _only_for(source, value):
                return self.home((source, index))
        return None

    # Control flow.

    def _structured(self, op: Structured, entries: list[Entry]) -> None:
        self._place_loads()
        numbers = carried(op)
        for index in numbers:
            owner = (op.result, index)
            self._own(owner)
            for body in op.bodies if op.inits else ():
                self.same_home[op.entry_arguments(body)[index], 0] = owner
                self._own((op.entry_arguments(body)[index], 0))
            if op.inits:
                value = op.inits[index]
                self._statement(NestStep(None, value, owner), [value], shape_of(value.type))
        entries.append(op)
        for body in op.bodies:
            self._body(body)
        self._begin(entries)

    def _yield(self, op: scf.Yield | scf.Condition) -> None:
        self._place_loads()
        structure = op.parent_op
        assert isinstance(structure, Structured)
        pairs = [(op.handed[index], (structure.result, index)) for index in carried(structure)]
        self._store_all(pairs)

    def _branch(self, op: cf.Br | cf.CondBr, entries: list[Entry]) -> None:
        self._place_loads()
        for number, successor in enumerate(op.successors):
            pairs = [
                (value, (parameter, 0))
                for value, parameter in zip(successor.arguments, successor.block.parameters, strict=True)
                if isinstance(value.type, TensorType)
            ]
            if pairs:
                outer, ranks = self._segment, self._ranks
                self._segment, self._ranks = Segment(), {}
                for component in (component for value, _ in pairs for component in self._needs(value)[0]):
                    self.homes[component] = None
                self._store_all(pairs)
                entries.append(Edge(number, self._segment))
                self._segment, self._ranks = outer, ranks
        entries.append(op)

    def _store_all(self, pairs: Sequence[tuple[Value, Component]]) -> None:
        """Store tensors to homes, all at once: one that another one needs is stored to a home of its own first."""
        pairs = [(value, owner) for value, owner in pairs if self.home(component_of(value)) != self.home(owner)]
        early: list[tuple[Value, Component, Component | None]] = []
        late: list[tuple[Value, Component, Component | None]] = []
        components: set[Component] = set()  # Homes that are replaced before the next late tensor is read.
        for value, owner in pairs:
            needs = [self._needs(other)[0] for other, _ in pairs if other is not value]
            overlaps = any(self.home(c) == self.home(owner) and not same for c, same in self._needs(value)[0].items())
            if not overlaps and not any(self.home(c) == self.home(owner) for needs in needs for c in needs):
                early.append((value, owner, None))
                continue
            self._force(value)
            source = self._copy(value) if self.home(component_of(value)) in components else None
            late.append((value, owner, source))
            components.add(self.home(owner))
        for value, owner, source in (*early, *late):
            self._statement(NestStep(None, value, owner, source), [value], shape_of(value.type))

    def _copy(self, value: Value) -> Component:
        """Copy a tensor that has a home to another one: that of the same component, counted from the last one."""
        base, index = component_of(value)
        copy = base, index - len(component_types(base.type))
        self.homes[copy] = None
        self._statement(NestStep(None, value, copy), [value], shape_of(value.type))
        return copy


def _gives_scalars(op: Op) -> bool:
    """Whether an op takes a tensor of two elements apart."""
    return isinstance(op, tt.Split) and not holds_tensor(op.result.type)


def dot_operands(op: tt.Dot) -> tuple[Value, Value, Value]:
    """The operands of a dot, the second one without its transposition, if it has one."""
    b = op.b
    transposed = isinstance(b.op, tt.Trans) and tuple(b.op.order) == (1, 0)
    return op.a, b.op.operands[0] if isinstance(b, OpResult) and transposed else b, op.c


def adds_to_zero(op: Op) -> bool:
    """Whether an op is a dot whose third operand is 0."""
    zero = op.c.op if isinstance(op, tt.Dot) else None
    return isinstance(zero, arith.ConstantOp) and zero.value == 0 and str(zero.value)[0] != "-"


def _only_for(source: Value, value: Value) -> bool:
    """Whether a tensor is used to compute a value, and nowhere else."""
    while source is not value:
        if len(source.uses) != 1:
            return False
        source = source.uses[0].result
    return True


def _feeds_dots(op: Op) -> bool:
    """Whether an op is an affine load that only dots use."""
    if not isinstance(op, cpu.Load):
        return False
    users = [user for use in op.result.uses for user in (use.result.uses if isinstance(use, tt.Trans) else (use,))]
    return bool(users) and all(isinstance(user, tt.Dot) and op.result in dot_operands(user)[:2] for user in users)


def moved_operands(op: Op) -> Sequence[int]:
    """The positions of the operands that an op reads at another index than that of its result."""
    if isinstance(op, tt.Gather):
        return (0,)
    if isinstance(op, tt.MapElementwise):
        return range(len(op.operands)) if op.pack > 1 else ()
    if isinstance(op, tt.ExpandDims | tt.Broadcast | tt.Reshape | tt.Trans | tt.Join | tt.Split | tt.Cat):
        return range(len(op.operands))
    return ()
