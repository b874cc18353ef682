"""The division of a kernel among consumers: dots that no op needs together are the work of different roles.

    %d = gpu.wgmma %a0 %b %c0; …            part 0: %d = gpu.wgmma %a0 %b %c0; … tt.descriptor_store %x …
    %e = gpu.wgmma %a1 %b %c1; …            part 1: %e = gpu.wgmma %a1 %b %c1; … tt.descriptor_store %y …
    tt.descriptor_store %x …
    tt.descriptor_store %y …

A part is a kernel by itself: some stores, and all that is computed for them. What several parts need, such as loads and
indices, each of them has. Parts run side by side. So a kernel is divided only if its effects have no order: stores by
TMA (note 003), stores through pointers to other arguments or to other indices of a matrix, and loads of what the kernel
does not change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product

from ziggurat.codemodel import records
from ziggurat.codemodel.dialects import core, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import BlockParameter, Body, Op, OpResult, Value
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.traits import BodyTerminator, Terminator
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import shape_of
from ziggurat.transforms.place.affine import Forms, product_of, sum_of
from ziggurat.transforms.place.components import Component, Group, component_of, groups_of
from ziggurat.transforms.place.flow import users_of
from ziggurat.transforms.place.memory_order import MemoryOrder
from ziggurat.transforms.place.obstacle import Obstacle
from ziggurat.transforms.simplify.dce import Sweep
from ziggurat.transforms.simplify.demand import value_count
from ziggurat.transforms.simplify.effects import is_pure

_STORES = (tt.DescriptorStore, tt.DescriptorReduce, tt.Store)


@records.distinct
class Part:
    """A part of a kernel, as a module; `origin` has, for the results of its ops, those of the ops of the kernel."""

    module: gpu.Module
    origin: Mapping[Value, Value]

    @property
    def body(self) -> Body:
        """The body of the function."""
        (func,) = self.module.functions().values()
        return func.bodies[0]


def whole(module: gpu.Module) -> Part:
    """A kernel as its only part."""
    return Part(module, {op.result: op.result for op in module.walk()})


def parts_of(module: gpu.Module) -> Sequence[Part] | Obstacle:
    """The parts of a kernel, or the op for which it stays whole; a kernel whose stores need all dots is its only part.

    Each part has a dot in each of the blocks that have dots.
    """
    (func,) = module.functions().values()
    assert isinstance(func, tt.Func)
    if not all(map(_is_followed, func.walk())):
        return [whole(module)]
    groups = groups_of(func)
    found: list[tuple[_Needs, set[OpResult]]] = []  # The needs of the stores of each part, and its dots.
    for store in (op for op in func.walk() if isinstance(op, _STORES)):
        needs = _Needs(groups)
        needs.add(store)
        dots = {op.result for op in func.walk() if isinstance(op, gpu.Wgmma) and op.result in needs.kept}
        for one in [one for one in found if one[1] & dots]:
            needs.join(one[0])
            dots |= one[1]
            found.remove(one)
        found.append((needs, dots))
    parts = [needs for needs, dots in found if dots]
    if len(parts) < 2 or len({frozenset(dot.block for dot in dots) for _, dots in found if dots}) > 1:
        return [whole(module)]
    memory = MemoryOrder(func)
    if (ordered := next((op for op in func.body.walk() if not _may_run_beside(op, memory)), None)) is not None:
        return Obstacle("an op must keep its order among those of all roles", ordered)
    for needs in (needs for needs, dots in found if not dots):
        parts[0].join(needs)
    stores = [[op for op in func.walk() if isinstance(op, tt.Store) and op.result in part.kept] for part in parts]
    forms = Forms(func)
    for one, other in (pair for a, b in combinations(stores, 2) for pair in product(a, b)):
        if not _are_apart(forms, one, other):
            return Obstacle(f"it may store where the store at {one.location} does", other)
    return [_part(module, func, needs) for needs in parts]


def _is_followed(op: Op) -> bool:
    """Whether it is known what a store needs of an op: not of jumps, and not of Tuples of several values."""
    return not isinstance(op, scf.While | core.MakeTuple) and all(len(body.blocks) == 1 for body in op.bodies)


def _may_run_beside(op: Op, memory: MemoryOrder) -> bool:
    """Whether an op may run in several roles, or in one without regard to those of other roles."""
    match op:
        case tt.MakeTensorDescriptor():
            return op.at_launch  # Each role would make a map of its own.
        case tt.Load():
            return memory.stays(op)
        case tt.Store() | tt.DescriptorStore() | tt.DescriptorReduce() | tt.DescriptorLoad():
            return True
        case _:
            return isinstance(op, scf.For | scf.If | Terminator) or op.NAME.startswith("gpu.") or is_pure(op)


def _are_apart(forms: Forms, one: tt.Store, other: tt.Store) -> bool:
    """Whether two stores write through other arguments, or other indices of one matrix: blocks of the same strides,
    which are a constant distance apart along an axis."""
    a, b = forms.form(one.ptr), forms.form(other.ptr)
    if a is None or b is None or a.origin is None or b.origin is None:
        return False
    if a.origin is not b.origin:
        return True
    between = sum_of(a.base, b.base, -1)
    if a.axes != b.axes or any(axis.wrap for axis in a.axes) or not between:
        return False
    # The distance is `steps` strides.
    strides = [axis.stride for axis in a.axes]
    for stride, size in zip(strides, shape_of(one.ptr.type), strict=True):
        for key in set(stride) & set(between):
            steps = between[key] // stride[key]
            if abs(steps) >= size and between == product_of(stride, {(): steps}):
                return True
    return False


class _Needs:
    """The ops and carried values that some stores need."""

    def __init__(self, groups: Mapping[Component, Group]) -> None:
        self.groups = groups
        self.kept: set[Value] = set()
        self.values: dict[Value, set[int]] = {}  # The numbers of the values of loops and branches.
        self._seen: set[Component] = set()

    def join(self, other: _Needs) -> None:
        """Add what other stores need."""
        self.kept |= other.kept
        for owner, numbers in other.values.items():
            self.values.setdefault(owner, set()).update(numbers)

    def add(self, op: Op) -> None:
        """Add an op with all that it needs."""
        work: list[Op | Value] = [op]
        while work:
            work += self._of_op(item) if isinstance(item := work.pop(), Op) else self._of_value(item)

    def _of_op(self, op: Op) -> Iterator[Op | Value]:
        """The ops and values that an op needs, without the values that it carries or hands on."""
        if op.result in self.kept:
            return
        self.kept.add(op.result)
        if isinstance(op.parent_op, Structured):
            yield op.parent_op
        if isinstance(op, Structured):
            yield from op.controls
            yield from (block.terminator for body in op.bodies for block in body.blocks)
        elif not isinstance(op, Terminator):
            self.kept.update(inner.result for inner in op.walk())  # The body of a reduction.
            yield from op.operands
        if isinstance(op, gpu.LocalAlloc):
            yield from (user for user in users_of(op.result) if isinstance(user, gpu.LocalStore))

    def _of_value(self, value: Value) -> Iterator[Op | Value]:
        """The ops and values that a value needs."""
        if isinstance(value, OpResult) and isinstance(value.op, core.TupleLoad):
            self.kept.add(value)
        component = component_of(value)
        if component in self._seen:
            return
        self._seen.add(component)
        source = component[0]
        group = self.groups.get(component)
        if group is not None:
            owner, number = group.members[-1]
            self.values.setdefault(owner, set()).add(number)
            assert isinstance(owner, OpResult)
            yield owner.op
            yield from (self._handed(op, given, number) for op, given in group.sources)
        elif isinstance(source, OpResult):
            yield source.op
        elif isinstance(source, BlockParameter) and isinstance(source.block.parent.parent, Structured):
            yield source.block.parent.parent

    @staticmethod
    def _handed(op: Op, given: Component, number: int) -> Value:
        """The value that an op hands to a group: an initial value, or an operand of a terminator."""
        assert isinstance(op, BodyTerminator | Structured)
        found = (op.handed if isinstance(op, BodyTerminator) else op.inits)[number]
        assert component_of(found) == given
        return found


def _part(module: gpu.Module, func: Op, needs: _Needs) -> Part:
    """The part of a kernel that some stores need."""
    kept = {*needs.kept, module.result, func.result}
    kept.update(op.result for body in (module.body, *func.bodies) for op in body.entry.ops[-1:])
    for block in (block for op in func.walk() for body in op.bodies for block in body.blocks):
        for fence, op in zip(block.ops, block.ops[1:], strict=False):
            if isinstance(fence, gpu.FenceAsync) and op.result in kept:
                kept.add(fence.result)
    counts = ((op, value_count(op)) for op in func.walk() if op.result in kept)
    needed = ((op.result, sorted(needs.values.get(op.result, ())), count) for op, count in counts)
    narrowed: dict[Value, list[int]] = {result: numbers for result, numbers, count in needed if len(numbers) < count}
    sweep = Sweep(kept, narrowed)
    made = sweep.root(module)
    # A loop of one value is its component as well.
    loads = {op.result for op in func.walk() if isinstance(op, core.TupleLoad)}
    old = {new: value for value, new in sweep.values.items() if value not in loads}

    def waiting(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if not isinstance(op, gpu.WgmmaWait) or not op.pending:
            return None
        # Some of the groups that the wait leaves in flight are those of other parts.
        wait = old[op.result]
        assert isinstance(wait, OpResult) and wait.block is not None
        before = wait.block.ops[: wait.block.ops.index(wait.op)]
        begun = [one.result in kept for one in before if isinstance(one, gpu.Wgmma)]
        return builder.add(gpu.WgmmaWait(operands[0], sum(begun[-op.pending :])), op.location)

    final = transform(made, waiting, pass_name="specialize")
    assert isinstance(final, gpu.Module)
    pairs = zip(final.walk(), made.walk(), strict=True)
    return Part(final, {new.result: old[one.result] for new, one in pairs if one.result in old})
