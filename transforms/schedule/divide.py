"""The division of a kernel among consumers: dots that no op needs together are the work of different roles.

    %d = gpu.wgmma %a0 %b %c0; …            part 0: %d = gpu.wgmma %a0 %b %c0; … tt.descriptor_store %x …
    %e = gpu.wgmma %a1 %b %c1; …            part 1: %e = gpu.wgmma %a1 %b %c1; … tt.descriptor_store %y …
    tt.descriptor_store %x …
    tt.descriptor_store %y …

A part is a kernel by itself: some stores, and all that is computed for them. What several parts need, such as loads and
indices, each of them has. Parts run side by side. So a kernel is divided only if its effects have no order: stores by
TMA (note 003), stores through pointers to other arguments or to other indices of a matrix, and loads of what the kernel
does not change. The part that some loads need is the producer of `specialize`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product

import attrs

from ziggurat.codemodel.dialects import core, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.asynchronous import ResultInFlight, ResultWait
from ziggurat.codemodel.op import BlockParameter, Body, Op, OpResult, Value
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.traits import BodyTerminator, Terminator
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.transforms.analysis.affine import Forms
from ziggurat.transforms.analysis.apart import are_apart
from ziggurat.transforms.analysis.components import Component, ComponentGroup, component_of, groups_of
from ziggurat.transforms.analysis.memory_flow import users_of
from ziggurat.transforms.analysis.memory_order import MemoryOrder
from ziggurat.transforms.analysis.obstacle import Obstacle
from ziggurat.transforms.analysis.queries import is_persistent
from ziggurat.transforms.simplify.dce import Sweep
from ziggurat.transforms.simplify.demand import value_count
from ziggurat.transforms.simplify.effects import is_pure

_STORES = (tt.DescriptorStore, tt.DescriptorReduce, tt.Store)


@attrs.frozen(eq=False)
class KernelPart:
    """A part of a kernel, as a module; `origin` has, for the results of its ops, those of the ops of the kernel."""

    module: gpu.Module
    origin: Mapping[Value, Value]

    @property
    def body(self) -> Body:
        """The body of the function."""
        (func,) = self.module.functions().values()
        return func.bodies[0]

    def ops(self) -> Iterator[tuple[Op, Value]]:
        """The ops, each with the result of that of the kernel."""
        return ((op, self.origin[op.result]) for op in self.module.walk() if op.result in self.origin)


def whole(module: gpu.Module) -> KernelPart:
    """A kernel as its only part."""
    return KernelPart(module, {op.result: op.result for op in module.walk()})


def parts_of(module: gpu.Module) -> Sequence[KernelPart] | Obstacle:
    """The parts of a kernel, or the op for which it stays whole; a kernel whose stores need all dots is its only part.

    Each part has a dot in each of the blocks that have dots.
    """
    (func,) = module.functions().values()
    assert isinstance(func, tt.Func)
    if not all(map(_is_followed, func.walk())):
        return [whole(module)]
    groups = groups_of(func)
    parts_and_dots: list[tuple[_Needs, set[Op]]] = []  # The needs of the stores of each part, and its dots.
    for store in (op for op in func.walk() if isinstance(op, _STORES)):
        needs = _Needs(groups)
        needs.add(store)
        dots: set[Op] = {op for op in func.walk() if isinstance(op, ResultInFlight) and op.result in needs.kept}
        for part in [pair for pair in parts_and_dots if pair[1] & dots]:
            needs.join(part[0])
            dots |= part[1]
            parts_and_dots.remove(part)
        parts_and_dots.append((needs, dots))
    parts = [needs for needs, dots in parts_and_dots if dots]
    if len(parts) < 2 or len({frozenset(dot.parent for dot in dots) for _, dots in parts_and_dots if dots}) > 1:
        return [whole(module)]
    memory = MemoryOrder(func)
    if (ordered := next((op for op in func.body.walk() if not _may_run_beside(op, memory)), None)) is not None:
        return Obstacle("an op must keep its order among those of all roles", ordered)
    for needs in (needs for needs, dots in parts_and_dots if not dots):
        parts[0].join(needs)
    stores = [[op for op in func.walk() if isinstance(op, tt.Store) and op.result in part.kept] for part in parts]
    forms = Forms(func)
    of_programs = func.body.entry.ops if is_persistent(func) else ()  # Programs have no order.
    for part, other in (pair for a, b in combinations(stores, 2) for pair in product(a, b)):
        if not are_apart(forms, part, other, of_programs):
            return Obstacle(f"it may store where the store at {part.location} does", other)
    return [_part(module, func, needs) for needs in parts]


def part_for(module: gpu.Module, roots: Iterable[Op]) -> KernelPart:
    """The part of a kernel that some of its ops need, with these."""
    (func,) = module.functions().values()
    needs = _Needs(groups_of(func))
    for op in roots:
        needs.add(op)
    return _part(module, func, needs)


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


class _Needs:
    """The ops and carried values that some stores need."""

    def __init__(self, groups: Mapping[Component, ComponentGroup]) -> None:
        self.groups = groups
        self.kept: set[Value] = set()
        self.values: dict[Value, set[int]] = {}  # The numbers of the values of loops and branches.
        self._visited: set[Component] = set()

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
        if isinstance(value.op, core.TupleLoad):
            self.kept.add(value)
        component = component_of(value)
        if component in self._visited:
            return
        self._visited.add(component)
        source = component[0]
        group = self.groups.get(component)
        if group is not None:
            owner, number = group.members[-1]
            self.values.setdefault(owner, set()).add(number)
            assert isinstance(owner, OpResult)
            yield owner.op
            yield from (self._handed(op, source, number) for op, source in group.sources)
        elif isinstance(source, OpResult):
            yield source.op
        elif isinstance(source, BlockParameter) and isinstance(source.block.parent.parent, Structured):
            yield source.block.parent.parent

    @staticmethod
    def _handed(op: Op, component: Component, number: int) -> Value:
        """The value that an op hands to a group: an initial value, or an operand of a terminator."""
        assert isinstance(op, BodyTerminator | Structured)
        operand = (op.handed if isinstance(op, BodyTerminator) else op.inits)[number]
        assert component_of(operand) == component
        return operand


def _part(module: gpu.Module, func: Op, needs: _Needs) -> KernelPart:
    """The part of a kernel that some stores need."""
    results = {*needs.kept, module.result, func.result}
    results.update(op.result for body in (module.body, *func.bodies) for op in body.entry.ops[-1:])
    for block in (block for op in func.walk() for body in op.bodies for block in body.blocks):
        for fence, op in zip(block.ops, block.ops[1:], strict=False):
            if isinstance(fence, gpu.FenceAsync) and op.result in results:
                results.add(fence.result)
    counts = ((op, value_count(op)) for op in func.walk() if op.result in results)
    components = ((op.result, sorted(needs.values.get(op.result, ())), count) for op, count in counts)
    narrowed: dict[Value, list[int]] = {
        result: numbers for result, numbers, count in components if len(numbers) < count
    }
    sweep = Sweep(results, narrowed)
    new = sweep.root(module)
    # A loop of one value is its component as well.
    loads = {op.result for op in func.walk() if isinstance(op, core.TupleLoad)}
    old = {new: value for value, new in sweep.values.items() if value not in loads}

    def waiting(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if not isinstance(op, ResultWait) or not op.pending:
            return None
        # Some of the groups that the wait leaves in flight are those of other parts.
        wait = old[op.result]
        assert isinstance(wait, OpResult) and wait.block is not None
        before = wait.block.ops[: wait.block.ops.index(wait.op)]
        begun = [op.result in results for op in before if isinstance(op, ResultInFlight)]
        return builder.add(op.evolve(value=operands[0], pending=sum(begun[-op.pending :])), op.location)

    final = transform(new, waiting, pass_name="specialize")
    assert isinstance(final, gpu.Module)
    pairs = zip(final.walk(), new.walk(), strict=True)
    return KernelPart(final, {new.result: old[pair.result] for new, pair in pairs if pair.result in old})
