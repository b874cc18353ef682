"""The cost of a launch: the work of all programs of a grid, by the iterations of each program's loops.

    scf.for %0 %n %64 …        in a launch with n = 1000: 16 iterations

Bounds of loops are computed from the arguments and from the number of the program. A sample of the programs stands for
a large grid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.numbers import Number
from ziggurat.codemodel.op import Body, Op, Value
from ziggurat.codemodel.traits import Loop
from ziggurat.codemodel.types import ScalarType
from ziggurat.transforms.place.cost import Cost, Entry, Work, cost_of
from ziggurat.transforms.simplify.fold import evaluate

_SAMPLES = 64
_CERTAIN = 0.7  # Of the estimated issue slots; a test holds them within a fourth of the machine code.


def least_cycles(module: gpu.Module, grid: Sequence[int], numbers: Mapping[str, Number]) -> float | None:
    """The cycles of one SM that all programs of a grid take at least, whatever the caches hold; None if that does not
    follow from the numbers among the arguments.

    Matrix units and shared memory count, and issue slots less the error of their estimate.
    """
    if any(len(body.blocks) > 1 for op in module.walk() for body in op.bodies):
        return None
    cost = cost_of(module)
    work = work_of_grid(cost, grid, known_parameters(cost.func, numbers), at_least=True)
    if work is None:
        return None
    cycles = work.cycles
    return max(cycles["matrix units"], cycles["shared memory"], _CERTAIN * cycles["issue slots"])


def work_of_grid(
    cost: Cost, grid: Sequence[int], given: Mapping[Value, Number], *, at_least: bool = False
) -> Work | None:
    """The work of all programs, where parameters have the values `given`; None if that leaves a loop's iterations open.

    A branch counts if its condition is not known; both parts of one then. With `at_least`, none does.
    """
    (x, y, z), total = grid, dict[Body, int]()
    programs = range(0, x * y * z, max(1, x * y * z // _SAMPLES))
    for number in programs:
        runs = _runs(cost.func, {**given}, (number % x, number // x % y, number // x // y), grid, at_least)
        if runs is None:
            return None
        for body, count in runs.items():
            total[body] = total.get(body, 0) + count
    work = sum((entry.work.times(total[_body_of(entry)]) for entry in cost.entries), Work())
    return work.times(math.prod(grid) / len(programs))


def known_parameters(func: tt.Func, numbers: Mapping[str, Number]) -> dict[Value, Number]:
    """The values of a function's parameters, from numbers by the names of its parts, or by the parameters' numbers."""
    parts = func.parts or map(str, range(len(func.body.parameters)))
    return {
        parameter: numbers[part]
        for parameter, part in zip(func.body.parameters, parts, strict=False)
        if part in numbers and isinstance(parameter.type, ScalarType)
    }


def _body_of(entry: Entry) -> Body:
    """The body whose runs are those of an entry: the loop's own for its index and its jump."""
    if entry.op is entry.loop:
        return entry.op.bodies[-1]
    assert entry.op.parent is not None
    return entry.op.parent.parent


def _runs(
    func: tt.Func, known: dict[Value, Number], ids: Sequence[int], grid: Sequence[int], at_least: bool
) -> dict[Body, int] | None:
    """How often a program runs each body; None if that is not known. `known` gets the values of scalars."""
    runs = {func.body: 1}
    for op in func.body.walk():
        assert op.parent is not None
        around = runs[op.parent.parent]
        numbers = [known[value] for value in op.operands if value in known]
        runs.update(dict.fromkeys(op.bodies, around))
        if isinstance(op, tt.Grid):
            known[op.result] = (ids if isinstance(op, tt.GetProgramId) else grid)[op.axis]
        elif isinstance(op, arith.ConstantOp):
            known[op.result] = op.value
        elif isinstance(op, scf.If) and numbers:
            runs[op.bodies[0] if not numbers[0] else op.bodies[1]] = 0
        elif isinstance(op, scf.If) and at_least:
            runs.update(dict.fromkeys(op.bodies, 0))
        elif isinstance(op, Loop):
            count = _iterations(op, known)
            if count is None and around:
                return None
            runs.update(dict.fromkeys(op.bodies, around * (count or 0)))
        elif numbers and len(numbers) == len(op.operands):
            result = evaluate(op, tuple(numbers))
            known.update({} if result is None else {op.result: result})
    return runs


def _iterations(op: Op, known: Mapping[Value, Number]) -> int | None:
    if not isinstance(op, scf.For) or any(value not in known for value in op.controls):
        return None
    start, stop, step = (int(known[value]) for value in op.controls)
    return max(0, -((start - stop) // step)) if step else None
