"""Persistent programs: a launch starts as many CTAs as fit on the card, and each of them runs several programs.

    tt.func @"…" (%0 : ptr<f16>, …) -> {               tt.func @"…" @parts=[…, "grid 0", "grid 1", "grid 2"]
                                                           (%0 : ptr<f16>, …, %8 : i32, %9 : i32, %10 : i32) -> {
        %9 = tt.make_tensor_descriptor %0 …;               %11 = tt.make_tensor_descriptor %0 …;
        %11 : i32 = tt.get_program_id @0;                  scf.for (tt.get_program_id @0) (%8 · %9 · %10)
        …                                      becomes             (tt.get_num_programs @0) (%n : i32) -> {
                                                               %13 : i32 = arith.remsi %n %8;
        scf.for … { … tt.dot … }                               scf.for … { … tt.dot … }
        tt.store …;                                            tt.store …;
        tt.return; }                                           scf.yield; }
                                                           tt.return; }

The new parameters have the sizes of the grid that the launch asks for, and the grid of the machine has one axis. Then a
producer (`specialize`) loads for the next program during the stores of this one, and a CTA starts once.

Programs have no order, and one that depends on another one has to wait for it, by atomics or by reading again and
again. So the pass leaves kernels alone that have an atomic, a barrier, a volatile load, a while loop, or an op that
does anything but load and store.

The pass takes kernels that are expected to gain by it: an SM has registers for one CTA only, as the accumulators take
half of them; `specialize` can split the loops into roles; and shared memory suffices for three stages beside the block
that is stored. The launch makes the tensor maps (`raise_pointers`). Where it cannot, or where the programs are too many
for an i32, it takes the kernel that was compiled without both passes.
"""

from __future__ import annotations

from collections.abc import Sequence

from ziggurat.codemodel.dialects import arith, core, scf, tt
from ziggurat.codemodel.gpu.fragments import GRID
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.codemodel.op import Op, OpResult, Value, expect
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import DescriptorType, TensorType, i32, scalar_element, void
from ziggurat.transforms.analysis.queries import bytes_of, function_of, tensor_of
from ziggurat.transforms.cost.budget import ACCUMULATORS_IN_TURN, BESIDE_ROLES
from ziggurat.transforms.simplify.effects import is_pure, may_trap, may_write

_AXES = 3
_NUM_WARPS = 8  # Beside a producer, they have the registers of an SM.
_STAGES = 3


def make_persistent(module: core.Module, options: CompileOptions) -> core.Module:
    """The model after `raise_pointers` whose CTAs run several programs each, if they are independent."""
    if why_not_persistent(module, options) is not None:
        return module

    def rewrite(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        return _function(builder, op) if isinstance(op, tt.Func) else None

    return expect(transform(module, rewrite, pass_name="persist"), core.Module)


def why_not_persistent(module: core.Module, options: CompileOptions) -> str | None:
    """The reason why each CTA runs one program, as a clause; None if it is to run several."""
    func = function_of(module)
    if not options.persistent or options.launch_cooperative_grid:
        return "the launch asks for it"
    if not _is_tiled(func):
        return "its loads are not through descriptors that the launch makes of pointers"
    return _waits(func) or _why_no_gain(func, options)


def _is_tiled(func: tt.Func) -> bool:
    """Whether loads go through descriptors that the launch makes, and there are no others."""
    makes = [op for op in func.walk() if isinstance(op, tt.MakeTensorDescriptor)]
    has_descriptors = any(isinstance(parameter.type, DescriptorType) for parameter in func.body.parameters)
    return bool(makes) and all(op.at_launch for op in makes) and len(func.body.blocks) == 1 and not has_descriptors


def _waits(func: tt.Func) -> str | None:
    """The reason why a program may wait for another one."""
    for op in func.walk():
        silent = op.bodies or isinstance(op, tt.Store | tt.DescriptorStore | tt.Return)
        if isinstance(op, scf.While | tt.DescriptorReduce | tt.Print) or (not silent and may_write(op)):
            return f"a program may wait for another one by {op.NAME}"
    return None


def _why_no_gain(func: tt.Func, options: CompileOptions) -> str | None:
    """The reason why a kernel is not expected to gain: see above."""
    if options.warps != _NUM_WARPS or options.warp_specialize is False:
        return f"it has not {_NUM_WARPS} warps and roles"
    dots = [op for op in func.walk() if isinstance(op, tt.Dot)]
    loops = {op.parent_op for op in dots}
    for loop in loops:
        if not isinstance(loop, scf.For) or loop.parent_op is not func:
            return "a dot is in no loop, or in one within another"
        num_stages = options.num_stages if loop.num_stages is None else loop.num_stages
        if num_stages is not None and num_stages < _STAGES:
            return f"its loops have {num_stages} stages, not {_STAGES}"
        if loop.holds(tt.Load):
            return "threads load in a loop of dots"
    accumulated = max(sum(tensor_of(op.result).numel for op in dots if op.parent_op is loop) for loop in loops)
    registers = accumulated // (32 * options.warps)
    if registers not in ACCUMULATORS_IN_TURN:
        least, most = ACCUMULATORS_IN_TURN[0], ACCUMULATORS_IN_TURN[-1]
        return f"the accumulators take {registers} registers of a thread, not {least} to {most}"
    loads = [op for op in func.walk() if isinstance(op, tt.DescriptorLoad)]
    stored_values = [op.value for op in func.walk() if isinstance(op, tt.Store | tt.DescriptorStore)]
    ring = _STAGES * sum(bytes_of(op.result) for op in loads)
    room = TARGETS[options.target].max_shared - BESIDE_ROLES - max(map(bytes_of, stored_values), default=0)
    if ring > room:
        return f"{_STAGES} stages take {ring} bytes of shared memory, which has {room} beside what is stored"
    return None if all(map(_is_read_by_wgmma, loads)) else "threads turn operands of a dot"


def _is_read_by_wgmma(load: tt.DescriptorLoad) -> bool:
    """Whether wgmma reads a block from shared memory as TMA stores it there: threads transpose no part of it."""
    if scalar_element(load.result.type).bytes == 2:
        return True
    dots = [user for user in load.result.uses if isinstance(user, tt.Dot)]
    users = [user for use in load.result.uses if isinstance(use, tt.Trans) for user in use.result.uses]
    along_k = all(op.a is load.result for op in dots)
    return along_k and all(
        isinstance(op, tt.Dot) and isinstance(op.b, OpResult) and op.b.op in load.result.uses for op in users
    )


def _function(builder: Rewriter, op: tt.Func) -> Value:
    """The function with a loop over programs."""
    count = len(op.body.parameters)
    inner = builder.inside([*(parameter.type for parameter in op.body.parameters), *[i32] * _AXES], void, isolated=True)
    inner.location = op.location
    inner.mapping.values.update(zip(op.body.parameters, inner.parameters, strict=False))
    sizes = inner.parameters[count:]
    ops = op.body.entry.ops[:-1]
    before = _before(ops)
    inner.rewrite_ops(before)
    whole = inner.add(arith.MulI(inner.add(arith.MulI(sizes[0], sizes[1])), sizes[2]))
    start, step = inner.add(tt.GetProgramId(0)), inner.add(tt.GetNumPrograms(0))
    body = inner.inside([i32], void)
    (number,) = body.parameters
    row = body.add(arith.DivSI(number, sizes[0]))
    ids = [body.add(arith.RemSI(*pair)) for pair in ((number, sizes[0]), (row, sizes[1]))]
    ids.append(body.add(arith.DivSI(row, sizes[1])))

    def numbered(_: Rewriter, inner: Op, operands: tuple[Value, ...]) -> Outcome:
        if isinstance(inner, tt.GetProgramId | tt.GetNumPrograms):
            return (ids if isinstance(inner, tt.GetProgramId) else sizes)[inner.axis]
        return None

    body.transformers = (*body.transformers, numbered)
    body.rewrite_ops([inner for inner in ops if inner not in before])
    body.add(scf.Yield([]))
    inner.add(scf.For(start, whole, step, [], body.finish()))
    inner.add(tt.Return([]), op.body.entry.terminator.location)
    divisibility = (*op.divisibility, *[1] * _AXES) if op.divisibility else ()
    parts = (*map(str, range(count)), *(f"{GRID} {axis}" for axis in range(_AXES)))
    return builder.add(op.evolve(body=inner.finish(), divisibility=divisibility, parts=parts), op.location)


def _before(ops: Sequence[Op]) -> list[Op]:
    """The ops that compute the same scalars for all programs, from parameters and constants."""
    inside: set[Value] = set()
    earlier: list[Op] = []
    for op in ops:
        alike = is_pure(op) and not op.bodies and not may_trap(op) and inside.isdisjoint(op.operands)
        if alike and not isinstance(op, tt.Grid) and not isinstance(op.result.type, TensorType):
            earlier.append(op)
        else:
            inside.add(op.result)
    return earlier
