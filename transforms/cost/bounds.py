"""The least time of a launch: cycles that no machine code for the model can do without.

    %d = gpu.wgmma %a %b %c;        128×256×64, 64 times in each of 512 programs, on 132 SMs

takes the matrix units of one SM at least ⌈512 / 132⌉ · 64 · 1024 cycles. The bound counts three units of an SM besides:
shared memory, the units for functions (MUFU), and issue slots. It leaves out whatever a launch may save:

* instructions that LLVM or ptxas may remove: all arithmetic of integers and pointers, conversions, products that may be
  part of an FMA. Of floats, operations count, and of neighbours of 16 bits half;
* values of a thread that may be known to be equal, also as they are loaded from one address, and those that nothing may
  need (`cost_of`, with `at_least`);
* what does not change in a loop, which may be computed before it, and what only a branch or loop uses that is not run;
* bytes of global memory: caches and masks save them, and TMA does not move what lies outside of a matrix (but writes
  zeros to shared memory);
* copies under a condition: as many as a loop's channel has slots are not made in the last iterations;
* branches whose condition, and loops whose iterations, do not follow from the numbers of the launch.

So a configuration whose bound is above the time of another one need not be measured. Programs of a grid differ in their
iterations only by their ids; each of them is followed (`runs_of_bodies`).
"""

from __future__ import annotations

from collections.abc import Mapping

from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.dialects import math as functions
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.asynchronous import BufferOp
from ziggurat.codemodel.op import Body, Op, Value
from ziggurat.codemodel.traits import Loop, Pure, Returns
from ziggurat.codemodel.types import ScalarType, element_of
from ziggurat.transforms.analysis.queries import constant_of, is_elementwise, is_persistent, shared_of
from ziggurat.transforms.cost.cost import CostEntry, Work, cost_of
from ziggurat.transforms.cost.grid_cost import Launch, Runs, alike, body_of, runs_of_bodies

_ADDS = (arith.AddF, arith.SubF)
# The share of the estimated issue slots that is certain. Three operands of a maximum may take one slot (Blackwell).
_ARITHMETIC: Mapping[type[Op], float] = {
    **dict.fromkeys((*_ADDS, arith.MulF, functions.Fma), 1),
    **dict.fromkeys((arith.MaxNumF, arith.MinNumF), 0.5),
    **dict.fromkeys((arith.MaximumF, arith.MinimumF), 0.25),  # The estimate has two.
}
_DIVISIONS = (arith.DivF, tt.PreciseDivF)
# Functions with one operation of the MUFU for each element of 32 bits.
_FUNCTIONS = (
    functions.Exp, functions.Exp2, functions.Log, functions.Log2, functions.Sqrt, functions.Rsqrt, tt.PreciseSqrt,
    *_DIVISIONS,
)  # fmt: skip
_NEUTRAL = (0, 1, -1)  # Constants that an operation may be removed with.
_COMBINED = 0.5  # The share of the issue slots of a reduction of floats: maxima of three, as above.
_PAIRS = 100  # From this capability on, one instruction computes two elements of f32 (add.f32x2).
_MOVABLE = (Pure, tt.Load, gpu.LocalLoad, gpu.LocalGather, tt.Reduce, tt.Scan)


def least_cycles(module: gpu.Module, launch: Launch, multiprocessors: int) -> float | None:
    """The cycles that a launch takes at least on a device with so many SMs; None if nothing is known of it.

    The module is the model after all passes. Where the launch cannot make the tensor maps of pointers, it takes another
    kernel (`raise_pointers`), for which the bound does not hold.
    """
    jumps = any(op.jumps for op in module.walk())
    cost = cost_of(module, at_least=True)
    if jumps or any(isinstance(op, Returns) and op.parent_op is not cost.func for op in cost.func.walk()):
        return None
    runs = runs_of_bodies(cost.func, launch, at_least=True)
    assert runs is not None
    varying: dict[Op, set[Value]] = {}
    requirements = _needed(cost.func, runs)
    wide = cost.target.capability >= _PAIRS
    work = sum(
        (certain(entry, wide).times(_runs(entry, runs, requirements, varying)) for entry in cost.entries), Work()
    )
    # Issue slots, matrix units, shared memory and the MUFU work at the same time.
    cycles = {name: count for name, count in work.cycles.items() if name != "L2 cache"}
    most, programs, ctas = max(cycles.values()), launch.programs, cost.func.num_ctas
    if alike(cost.func) and not is_persistent(cost.func) and programs:
        return -(-programs * ctas // multiprocessors) * most / programs  # Each CTA has one SM.
    return most * ctas / multiprocessors


def certain(entry: CostEntry, wide: bool) -> Work:
    """The work of an op that machine code cannot leave out; `wide` if pairs of f32 may be computed at once."""
    op, work = entry.op, entry.work
    if isinstance(op, gpu.DotFma):
        sums, element = work.issued - work.wavefronts, element_of(op.c.type)
        assert isinstance(element, ScalarType)
        share = {True: 1, False: 0.25}[element.is_float] * min(1, element.bits / 32)
        return Work(issued=sums * share / (1 + wide))
    if isinstance(op, gpu.MatrixProduct):
        return Work(tensor=work.tensor, wavefronts=work.wavefronts)
    if isinstance(op, BufferOp):
        return Work(wavefronts=work.wavefronts)
    element = element_of(op.result.type)
    if isinstance(op, tt.Reduce | tt.Scan):
        inner = op.combine.entry.ops[:-1]
        certain = len(inner) == 1 and isinstance(inner[0], tuple(_ARITHMETIC))
        return Work(issued=_COMBINED / (1 + wide) * work.issued) if certain else Work()
    if not isinstance(element, ScalarType) or not element.is_float or not is_elementwise(op):
        return Work()
    if isinstance(op, _FUNCTIONS):
        count = work.functions * min(1, element.bits / 32) * (element.bits <= 32) * (not _has_inverse(op))
        return Work(issued=count, functions=count)
    share = _ARITHMETIC.get(type(op), 0)
    in_fma = isinstance(op, arith.MulF) and any(isinstance(user, _ADDS) for user in op.result.uses)
    if in_fma or any(constant_of(value) in _NEUTRAL for value in op.operands):
        share = 0
    return Work(issued=share * work.issued / (1 + wide))


def _has_inverse(op: Op) -> bool:
    """Whether an op divides by a constant, or by a value that an earlier division in the model has inverted."""
    if not isinstance(op, _DIVISIONS):
        return False
    others = (user for user in op.rhs.uses if isinstance(user, _DIVISIONS) and user.rhs is op.rhs)
    return constant_of(op.rhs) is not None or next(others) is not op


def _needed(func: tt.Func, runs: Runs) -> dict[Op, float]:
    """How often an op's result is used at least: LLVM moves an op into the branch, or before the loop, that uses it."""
    cycles: dict[Op, float] = {}
    for op in reversed([*func.body.walk()]):
        assert op.parent is not None
        body = op.parent.parent
        count = runs.bodies.get(body, 0)
        if isinstance(op, _MOVABLE):
            bodies: dict[Op, dict[Body, float]] = {}  # By the op in the body, and its own body, that a use is in.
            for user in op.result.uses:
                owner, inner, uses = _before(user, body, cycles[user], runs)
                of_owner = bodies.setdefault(owner, {})
                of_owner[inner] = max(of_owner.get(inner, 0), uses)
            # One branch or the other runs.
            counts = [(sum if isinstance(owner, scf.If) else max)(each.values()) for owner, each in bodies.items()]
            count = min(count, max(counts, default=0))
        cycles[op] = count
    return cycles


def _before(op: Op, body: Body, count: float, runs: Runs) -> tuple[Op, Body, float]:
    """The op in a body that is or has another op, its own body with that, and how often the loops in between are
    entered for so many runs."""
    inner = body
    for owner in op.path():
        count = min(count, runs.entered.get(owner, count))
        if owner.parent is None or owner.parent.parent is body:
            return owner, inner, count
        inner = owner.parent.parent
    raise InternalError(f"{op.NAME} uses what stands in no body around it", str(op.root()))


def _runs(entry: CostEntry, runs: Runs, cycles: Mapping[Op, float], varying: dict[Op, set[Value]]) -> float:
    """The least number of times that an entry's op runs: without the iterations of loops in which it does not change,
    and without what a branch in these does.

    `varying` keeps the values that change in each loop.
    """
    op = entry.op
    count = runs.bodies.get(body_of(entry), 0) if op is entry.loop else cycles[op]
    around, in_branch = op.parent_op, False
    if isinstance(op, gpu.TmaLoad) and not constant_of(op.predicate):
        if not isinstance(around, scf.For) or around.parent is None:
            return 0
        return max(0, count - _slots(op.buffer) * runs.bodies.get(around.parent.parent, 0))
    for owner in () if around is None else around.path():
        if isinstance(owner, tt.Func) or owner.parent is None:
            break
        if isinstance(owner, Loop):
            if owner not in varying:
                varying[owner] = _varying(owner)
            if _changes(op, varying[owner]):
                break
            count = 0 if in_branch else min(count, runs.entered.get(owner, 0))
        in_branch = in_branch or isinstance(owner, scf.If)
    return count


def _slots(buffer: Value) -> int:
    """The slots of the ring that a buffer is one of."""
    view = buffer.op
    return shared_of(view.buffer).count if isinstance(view, gpu.LocalView) else 1


def _varying(loop: Op) -> set[Value]:
    """The values in a loop that differ between its iterations. What the loop carries does, unless each iteration hands
    on what does not."""
    constant: set[Value] = set()
    while True:
        varying = _varying_but(loop, constant)
        if not isinstance(loop, scf.For):
            return varying
        pairs = zip(loop.body.parameters[1:], loop.body.entry.terminator.operands, strict=True)
        more = {parameter for parameter, value in pairs if value is parameter or value not in varying} - constant
        if not more:
            return varying
        constant |= more


def _varying_but(loop: Op, constant: set[Value]) -> set[Value]:
    varying = set[Value](parameter for body in loop.bodies for parameter in body.parameters) - constant

    def follow(body: Body) -> bool:
        """Whether anything in a body varies."""
        before = len(varying)
        for op in (op for block in body.blocks for op in block.ops):
            if isinstance(op, Loop):
                varying.update(parameter for inner in op.bodies for parameter in inner.parameters)
            inside = [follow(inner) for inner in op.bodies]
            if any(inside) or isinstance(op, Loop) or _changes(op, varying):
                varying.add(op.result)
        return len(varying) > before

    for body in loop.bodies:
        follow(body)
    return varying


def _changes(op: Op, varying: set[Value]) -> bool:
    return not isinstance(op, _MOVABLE) or not varying.isdisjoint(op.operands)
