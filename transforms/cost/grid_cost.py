"""The cost of a launch: the work of all programs of a grid, by the iterations of each program's loops.

    scf.for %0 %n %64 …        in a launch with n = 1000: 16 iterations

Bounds of loops that follow from arguments and from the number of the program are computed. Only scalars on which a
loop or a branch depends are evaluated, for programs and iterations that differ in these; of many, some stand for all.

Of a kernel whose CTAs run several programs each (`persist`), one CTA is taken to run all of them. NumPy is imported
when a launch is followed: compiling needs none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.fragments import GRID
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.numbers import ELEMENTWISE, Number
from ziggurat.codemodel.op import Body, Op, OpResult, Value
from ziggurat.codemodel.traits import Loop
from ziggurat.codemodel.types import ScalarType
from ziggurat.transforms.analysis.queries import is_persistent
from ziggurat.transforms.cost.cost import Cost, CostEntry, Work

if TYPE_CHECKING:
    from ziggurat.codemodel.scalars import Array

_PROGRAMS = 1 << 16  # The most programs that are followed.
_ITERATIONS = (1024, 64, 8)  # The most iterations of a loop, by the number of loops around it that are followed.
_GOLDEN = (math.sqrt(5) - 1) / 2


@attrs.frozen
class Launch:
    """A launch on a grid of three axes. `numbers` has the values of scalars by the names of the function's parts: of an
    argument ("2"), or of a size or stride of a descriptor ("0.shape1")."""

    grid: tuple[int, int, int]
    numbers: Mapping[str, Number] = attrs.field(factory=dict[str, Number])

    @property
    def programs(self) -> int:
        """The number of programs."""
        return math.prod(self.grid)


@attrs.frozen
class Runs:
    """How often all programs of a launch run each body, and how often they come to each loop and run its body."""

    bodies: Mapping[Body, float]
    entered: Mapping[Op, float]


def work_of_grid(cost: Cost, launch: Launch) -> Work | None:
    """The work of one CTA of each program of a launch; None if its numbers leave the iterations of a loop open.

    A branch counts if its condition is not known; both parts of one then.
    """
    runs = runs_of_bodies(cost.func, launch, at_least=False)
    if runs is None:
        return None
    return sum((entry.work.times(runs.bodies.get(body_of(entry), 0)) for entry in cost.entries), Work())


def body_of(entry: CostEntry) -> Body:
    """The body whose runs are those of an entry: the loop's own for its index and its jump."""
    if entry.op is entry.loop:
        return entry.op.bodies[-1]
    assert entry.op.parent is not None
    return entry.op.parent.parent


def runs_of_bodies(func: tt.Func, launch: Launch, *, at_least: bool) -> Runs | None:
    """How often all programs run each body; None if the iterations of a loop are not known.

    With `at_least`, no program runs a body more seldom: what is not known does not run, and programs and iterations
    that are too many to follow do not count.
    """
    counts = _Counts(func, launch, at_least)
    return None if counts.open else Runs(counts.runs, counts.entered)


def alike(func: tt.Func) -> bool:
    """Whether all programs run each body as often, as far as a launch's numbers tell: nothing depends on their ids."""
    return not any(isinstance(value.op, tt.GetProgramId) for value in _decisive(func))


class _Counts:
    """The runs of each body by all programs.

    Programs that may differ are followed together: a known value is an array with the number of each of them, or with
    one number of all.
    """

    def __init__(self, func: tt.Func, launch: Launch, at_least: bool) -> None:
        import numpy as np

        self.at_least, self.open = at_least, False
        self.decisive = _decisive(func)
        self.runs: dict[Body, float] = {}
        self.entered: dict[Op, float] = {}
        self.ops: dict[Body, list[Op]] = {}  # Those of each body that decide.
        taken_in_turn = is_persistent(func)  # A CTA for each program, as if the loop over programs had one iteration.
        self.grid = (launch.programs, 1, 1) if taken_in_turn else launch.grid
        ids = (value.op for value in self.decisive if isinstance(value, OpResult))
        axes = sorted({op.axis for op in ids if isinstance(op, tt.GetProgramId)})
        count = math.prod(self.grid[axis] for axis in axes)
        rest, weights = self._followed(count, _PROGRAMS)
        self.ids = [np.zeros(1, np.int32)] * 3
        for axis in axes:
            rest, self.ids[axis] = rest // max(1, self.grid[axis]), (rest % max(1, self.grid[axis])).astype(np.int32)
        alike = math.prod(self.grid) // count if count else 0
        numbers = {**launch.numbers, **{f"{GRID} {axis}": size for axis, size in enumerate(launch.grid)}}
        arrays = {value: _array(number, value) for value, number in known_parameters(func, numbers).items()}
        with np.errstate(all="ignore"):  # Of programs that do not come to an op.
            self._count(func.body, weights * alike, arrays, 0)
        for op in func.walk():
            within = taken_in_turn and not any(isinstance(owner, Loop) for owner in op.path())
            for body in op.bodies:
                if op is not func and not _decides(op):
                    assert op.parent is not None
                    self.runs[body] = self.runs.get(op.parent.parent, 0)
                if within:
                    self.runs[body] = min(1, self.runs.get(body, 0))

    def _followed(self, count: int, most: int) -> tuple[Array, Array]:
        """The numbers below `count` that are followed, at most so many, and for how many each of them stands."""
        import numpy as np

        picks = np.arange(min(count, most))
        if len(picks) == count or self.at_least:
            return picks, np.ones(len(picks))
        return (picks * _GOLDEN % 1 * count).astype(np.int64), np.full(len(picks), count / len(picks))

    def _count(self, body: Body, times: Array, values: dict[Value, Array], depth: int) -> None:
        """Count runs of a body by each program, at a depth of loops whose iterations are followed."""
        total = float(times.sum())
        self.runs[body] = self.runs.get(body, 0) + total
        if not total:
            return
        if body not in self.ops:
            ops = (op for block in body.blocks for op in block.ops)
            self.ops[body] = [op for op in ops if _decides(op) or op.result in self.decisive]
        for op in self.ops[body]:
            if op.bodies:
                self._follow(op, times, values, depth)
            else:
                number = self._number(op, values)
                values.pop(op.result, None)
                values |= {} if number is None else {op.result: number}

    def _follow(self, op: Op, times: Array, values: dict[Value, Array], depth: int) -> None:
        if isinstance(op, scf.If):
            condition = values.get(op.condition)
            for body, is_then in zip(op.bodies, (True, False), strict=True):
                possible = not self.at_least if condition is None else condition == is_then
                self._count(body, times * possible, values, depth)
        elif isinstance(op, Loop):
            count = _iterations(op, values)
            if count is None:
                self.open = self.open or not self.at_least
                count = 0 * times
            self.entered[op] = self.entered.get(op, 0) + float((times * (count > 0)).sum())
            index = op.body.parameters[0] if isinstance(op, scf.For) else None
            if isinstance(op, scf.For) and index in self.decisive and count.any():
                most = _ITERATIONS[min(depth, len(_ITERATIONS) - 1)]
                for number, weight in zip(*self._followed(int(count.max()), most), strict=True):
                    values[index] = values[op.start] + number.astype(values[op.step].dtype) * values[op.step]
                    self._count(op.body, times * (number < count) * weight, values, depth + 1)
            else:
                for body in op.bodies:
                    self._count(body, times * count, values, depth)
        else:
            for body in op.bodies:
                self._count(body, times, values, depth)

    def _number(self, op: Op, values: Mapping[Value, Array]) -> Array | None:
        """The result of an op, if it is known."""
        from ziggurat.codemodel.scalars import MEANINGS

        if isinstance(op, tt.GetProgramId):
            return self.ids[op.axis]
        if isinstance(op, tt.GetNumPrograms):
            return _array(self.grid[op.axis], op.result)
        if isinstance(op, arith.ConstantOp):
            return _array(op.value, op.result)
        if not isinstance(op, ELEMENTWISE) or any(value not in values for value in op.operands):
            return None
        return MEANINGS[op](op, *(values[value] for value in op.operands))


def _array(number: Number, value: Value) -> Array:
    """An array of a number in the type of a scalar."""
    from ziggurat.codemodel.scalars import array_of

    assert isinstance(value.type, ScalarType)
    return array_of(number, value.type)


def _decides(op: Op) -> bool:
    """Whether the bodies of an op may run more or less often than the body around it, or have such ops."""
    return isinstance(op, scf.If | Loop | gpu.WarpSpecialize)


def known_parameters(func: tt.Func, numbers: Mapping[str, Number]) -> dict[Value, Number]:
    """The values of a function's parameters, from numbers by the names of its parts, or by the parameters' numbers."""
    parts = func.parts or map(str, range(len(func.body.parameters)))
    return {
        parameter: numbers[part]
        for parameter, part in zip(func.body.parameters, parts, strict=False)
        if part in numbers and isinstance(parameter.type, ScalarType)
    }


def _decisive(func: tt.Func) -> set[Value]:
    """The values on which the iterations of loops and the conditions of branches depend."""
    controls = (value for op in func.walk() if isinstance(op, scf.For | scf.If) for value in op.controls)
    return reached(controls, lambda value: () if value.op is None or value.op.bodies else value.op.operands)


def _iterations(op: Op, values: Mapping[Value, Array]) -> Array | None:
    """The iterations of a loop in each program; None if they are not known, or a step is zero."""
    import numpy as np

    if not isinstance(op, scf.For) or any(value not in values for value in op.controls):
        return None
    start, stop, step = (values[value].astype(np.int64) for value in op.controls)
    return np.maximum(0, -((start - stop) // step)) if step.all() else None
