"""The number of warps of a CTA, where a launch leaves it to the compiler.

A table of two rows, whose limits were measured on an H200 (docs/results/gpu.md):

* A kernel without dots has a warp for each 1024 elements of its largest tensor, 32 a thread: from 4 to 16, and 32 for
  tensors that 16 warps would hold in more than 64 registers a thread.
* A kernel with dots has 4 warps, or as many more as the accumulators of a loop need: those of the largest tiles do not
  fit in the registers of 4 warps. Where threads load the operands, and not TMA, they need registers for them as well.

The other choices follow from the plan of each loop: its stages (`loop_plan`), and the roles of warps (`specialize`).
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from ziggurat.codemodel.dialects import core, scf, tt
from ziggurat.codemodel.gpu.options import USUAL_WARPS
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import TensorType, scalar_element
from ziggurat.transforms.analysis.queries import feeds_dot, function_of
from ziggurat.transforms.cost.budget import ACCUMULATORS, ACCUMULATORS_BESIDE_LOADS

ELEMENTS_OF_WARP = 1024  # Of the largest tensor, 32 a thread.
MAX_WARPS_OF_ROWS = 16  # 32 warps are slower: they leave no second CTA, and wait for each other.
MAX_ELEMENTS = 64  # A thread.


@attrs.frozen
class WarpChoice:
    """The number of warps, and the reason for it as a clause."""

    count: int
    why: str


def choose_warps(module: core.Module, target: str) -> WarpChoice:
    """The warps for a kernel after `raise_pointers`."""
    func = function_of(module)
    most = max((_accumulators(op) for op in func.walk() if isinstance(op, scf.For)), default=0)
    if func.holds(tt.Dot):
        return _for_dots(func, most, target)
    tensors = (op.result.type for op in func.walk() if isinstance(op, tt.Load | tt.Store | tt.Reduce))
    stored_types = (value.type for op in func.walk() if isinstance(op, tt.Store | tt.Reduce) for value in op.operands)
    largest = max((type_.numel for type_ in (*tensors, *stored_types) if isinstance(type_, TensorType)), default=1)
    count = min(max(USUAL_WARPS, largest // ELEMENTS_OF_WARP), MAX_WARPS_OF_ROWS)
    if largest > 32 * count * MAX_ELEMENTS:
        count *= 2
    return WarpChoice(count, f"the largest tensor has {largest} elements, {max(1, largest // (32 * count))} a thread")


def _for_dots(func: Op, accumulators: int, target: str) -> WarpChoice:
    loads = [op for op in func.walk() if isinstance(op, tt.Load) and feeds_dot(op.result)]
    by_threads = TARGETS[target].has_tma and any(isinstance(op.parent_op, scf.For) for op in loads)
    most, count = ACCUMULATORS_BESIDE_LOADS if by_threads else ACCUMULATORS, USUAL_WARPS
    if accumulators >= most * 32 * count:
        count *= 2  # Twice as many again would have half of the registers: no more accumulators fit.
    beside = ", which loads the operands as well" if by_threads else ""
    return WarpChoice(count, f"the accumulators take {accumulators // (32 * count)} registers of a thread{beside}")


def _accumulators(loop: scf.For) -> int:
    """The registers of a CTA for the results of the dots of a loop, those of a chain once."""
    return sum(type_.numel * scalar_element(type_).bytes // 4 for type_ in _results(loop))


def _results(loop: scf.For) -> Iterator[TensorType]:
    for op in loop.body.entry.ops:
        if isinstance(op, tt.Dot) and isinstance(op.result.type, TensorType):
            chained = isinstance(op.c.op, tt.Dot) and op.c.op.parent_op is loop
            if not chained:
                yield op.result.type
