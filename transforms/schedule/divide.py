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
from itertools import combinations, pairwise, product

import attrs

from ziggurat.codemodel.dialects import core, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.asynchronous import ResultInFlight, ResultWait
from ziggurat.codemodel.op import Body, Op, OpResult, Value
from ziggurat.codemodel.traits import Terminator
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.transforms.analysis.affine import Forms
from ziggurat.transforms.analysis.apart import are_apart
from ziggurat.transforms.analysis.memory_flow import users_of
from ziggurat.transforms.analysis.memory_order import MemoryOrder
from ziggurat.transforms.analysis.obstacle import Obstacle
from ziggurat.transforms.analysis.queries import is_persistent
from ziggurat.transforms.simplify.dce import Sweep
from ziggurat.transforms.simplify.demand import Demand
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
    parts_and_dots: list[tuple[set[Op], set[Op]]] = []  # The stores of each part, and the dots that they need.
    for store in (op for op in func.walk() if isinstance(op, _STORES)):
        stores: set[Op] = {store}
        kept = _Needs(module, stores).kept
        dots: set[Op] = {op for op in func.walk() if isinstance(op, ResultInFlight) and op.result in kept}
        for part in [pair for pair in parts_and_dots if pair[1] & dots]:
            stores |= part[0]
            dots |= part[1]
            parts_and_dots.remove(part)
        parts_and_dots.append((stores, dots))
    parts = [stores for stores, dots in parts_and_dots if dots]
    if len(parts) < 2 or len({frozenset(dot.parent for dot in dots) for _, dots in parts_and_dots if dots}) > 1:
        return [whole(module)]
    memory = MemoryOrder(func)
    if (ordered := next((op for op in func.body.walk() if not _may_run_beside(op, memory)), None)) is not None:
        return Obstacle("an op must keep its order among those of all roles", ordered)
    parts[0].update(*(stores for stores, dots in parts_and_dots if not dots))
    by_pointers = [[op for op in func.walk() if isinstance(op, tt.Store) and op in stores] for stores in parts]
    forms = Forms(func)
    of_programs = func.body.entry.ops if is_persistent(func) else ()  # Programs have no order.
    for part, other in (pair for a, b in combinations(by_pointers, 2) for pair in product(a, b)):
        if not are_apart(forms, part, other, of_programs):
            return Obstacle(f"it may store where the store at {part.location} does", other)
    return [part_for(module, stores) for stores in parts]


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


class _Needs(Demand):
    """The ops and values of a kernel that some of its ops need, with these: stores, for example, or loads."""

    def __init__(self, module: gpu.Module, roots: Iterable[Op]) -> None:
        self.roots = frozenset(roots)
        super().__init__(module)

    def _enter(self, bodies: Iterable[Body]) -> None:
        for op in (op for body in bodies for op in body.walk() if op in self.roots):
            self._keep_with_owners(op)

    def _keep(self, op: Op) -> None:
        super()._keep(op)
        if isinstance(op, gpu.LocalAlloc):
            for store in (user for user in users_of(op.result) if isinstance(user, gpu.LocalStore)):
                self._keep_with_owners(store)


def part_for(module: gpu.Module, roots: Iterable[Op]) -> KernelPart:
    """The part of a kernel that some of its ops need, with these."""
    needs = _Needs(module, roots)
    results = needs.kept
    for block in (block for op in module.walk() for body in op.bodies for block in body.blocks):
        for fence, op in pairwise(block.ops):
            if isinstance(fence, gpu.FenceAsync) and op.result in results:
                results.add(fence.result)
    sweep = Sweep(module, needs)
    new = sweep.copy()
    # A loop of one value is its component as well.
    loads = {op.result for op in module.walk() if isinstance(op, core.TupleLoad)}
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
