"""`zg.bisect`: the first step on the way to machine code that changes what a launch computes."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from ziggurat.backend.launch.grids import padded
from ziggurat.bisecting.reduction import reduced
from ziggurat.bisecting.report import script
from ziggurat.bisecting.steps import Array, Arrays, Launch, Step, cpu_steps, gpu_steps, step_named
from ziggurat.boundary import no_faults, public
from ziggurat.codemodel.errors import LaunchError, ZigguratError
from ziggurat.codemodel.gpu.options import CPU, CompileOptions
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.text.writer import summary
from ziggurat.launches.inspected import launch_of

# The share of an array's largest number by which elements may differ where a step rounds otherwise, by their bits.
# Dots of f32 multiply numbers of 10 bits (tf32), so they may differ as f16.
BOUNDS = {8: 2.0**-2, 16: 2.0**-6, 32: 2.0**-8, 64: 2.0**-30}
_PROGRAMS = 64  # Of a launch, of which the first with another result is looked for.


@attrs.frozen
class Fault:
    """The first step that is wrong: its name, and the reason, for people. `op` is the first op with other values than
    before, in the model that the step made, and None where that is not known; `program` is where. `before` is the model
    that the step took, reduced to what still shows the fault."""

    step: str
    reason: str
    op: Op | None = attrs.field(default=None, repr=False)
    program: tuple[int, int, int] | None = None
    before: Op | None = attrs.field(default=None, repr=False)


@attrs.frozen
class Bisection:
    """The outcome of `zg.bisect`: `fault`, or None where all steps agree; and the names of the `steps` that ran.

    `save(path)` writes a program that shows the fault again.
    """

    fault: Fault | None
    steps: tuple[str, ...]
    launch: Launch = attrs.field(repr=False)
    options: CompileOptions = attrs.field(repr=False)

    def __str__(self) -> str:
        if self.fault is None:
            return f"{len(self.steps)} steps agree: {', '.join(self.steps)}"
        lines = [f"'{self.fault.step}' changes the result: {self.fault.reason}"]
        if self.fault.program is not None:
            lines.append(f"in program {self.fault.program}")
        if self.fault.op is not None:
            lines.append(f"the first op with another value: {summary(self.fault.op)}")
            if self.fault.op.location is not None:
                lines.append(self.fault.op.location.excerpt())
        if self.fault.before is not None:
            lines += ["the model before it, reduced:", str(self.fault.before).rstrip()]
        return "\n".join(lines)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a Python program that shows the fault; its path. Raises `LaunchError` if there is none."""
        if self.fault is None or self.fault.before is None:
            raise LaunchError("there is no fault to report" if self.fault is None else "the fault has no model")
        file = Path(path)
        file.write_text(script(self.fault.step, self.fault.before, self.launch, self.options), encoding="utf-8")
        return file


@public
def bisect(
    kernel: Any, grid: Any, /, *arguments: Any, expected: Sequence[Any] | None = None, step: str | None = None,
    seconds: float = 30, **keywords: Any,
) -> Bisection:  # fmt: skip
    """The first step on the way from a kernel's Triton model to machine code that changes what a launch computes.

        print(zg.bisect(softmax, (4,), y, x, 100, 128))

    The launch runs by the interpreter after each pass, as simulated code before and after LLVM's passes, by native code
    of this machine, and on a GPU that the target fits; the arrays stay as they are. `arguments` and `keywords` are
    those of a launch; further keywords are options of compilation. With `target="cpu"`, only the CPU's passes and
    native code are looked at. Of a kernel in whose place a model is given, `keywords` are options alone.

    The Triton model by the interpreter is taken to be right, unless `expected` has the arrays that the launch should
    give, in the order of its array arguments: then "the Triton model" may be the answer. Passes keep every bit, but for
    those that round otherwise; of these and of machine code, an array of floats may differ by `BOUNDS` of its largest
    number.

    With `step`, that step alone is looked at, for a model of the stage before it.

    A fault has the op, and a reduced model, for which the search takes at most about `seconds`. Raises the errors of
    the kernel's front half, and `LaunchError` for arguments that do not fit.
    """
    model, launch, options = _launch_of(kernel, grid, arguments, keywords)
    with no_faults("bisecting", lambda: model, str(model.attributes.get("sym_name", model.NAME))):
        return _bisected(model, launch, options, expected, step, seconds)


def _launch_of(
    kernel: Any, grid: Any, arguments: Sequence[Any], keywords: dict[str, Any]
) -> tuple[Op, Launch, CompileOptions]:
    """The Triton model, the launch and the options of what a user gives."""
    if isinstance(kernel, Op):
        options = CompileOptions.of(keywords)
        return kernel, Launch(padded(grid), [f"arg{at}" for at in range(len(arguments))], arguments), options
    kernel, bound, settings = launch_of("zg.bisect", kernel, arguments, keywords, "a kernel or a model")
    signature, run_time, values = kernel.specialized(bound)
    sizes = padded(kernel.sizes(grid, bound))
    launch = Launch(sizes, run_time, values, kernel.rules.tolerant_memory)
    return kernel.model_for(signature), launch, CompileOptions.of(settings)


def _bisected(
    model: Op, launch: Launch, options: CompileOptions, expected: Sequence[Any] | None, only: str | None,
    seconds: float,
) -> Bisection:  # fmt: skip
    names = ["the Triton model"]
    first = launch.interpreted(model)
    if expected is not None:
        right = dict(zip(first, map(np.asarray, expected), strict=False))
        reason = difference(right, {name: first[name] for name in right}, rounds=True)
        if reason is not None:
            return Bisection(Fault(names[0], reason), tuple(names), launch, options)
    ways: list[Iterator[Step]] = [] if options.target == CPU else [gpu_steps(model, options, launch)]
    for way in [*ways, cpu_steps(model, launch)] if only is None else [iter([step_named(only, options, launch)])]:
        before, last = model, first
        for step in way:
            names.append(step.name)
            reason, arrays = _wrong(step, before, last, launch)
            if reason is not None:
                fault = _explained(Fault(step.name, reason, before=before), step, launch, seconds)
                return Bisection(fault, tuple(names), launch, options)
            before, last = (before if step.model is None else step.model), arrays
    return Bisection(None, tuple(names), launch, options)


def _wrong(step: Step, before: Op, last: Arrays, launch: Launch) -> tuple[str | None, Arrays]:
    """What is wrong with a step, or None, and the arrays that it gives. `last` are those of the step before."""
    if step.failure is not None:
        return f"the pass fails: {step.failure}", last
    try:
        arrays = step.of(before) if step.model is None else launch.interpreted(step.model)
    except LaunchError:  # The arguments do not fit what was compiled.
        raise
    except ZigguratError as error:
        return f"{type(error).__name__}: {error.summary}", last
    return difference(last, arrays, step.rounds), arrays


def difference(expected: Arrays, actual: Arrays, rounds: bool) -> str | None:
    """The first difference between the arrays of two runs, in words; None if there is none. Where a step `rounds`,
    floats may differ by `BOUNDS`."""
    for name, first in expected.items():
        second = actual[name]
        wrong = _differs(first, second, rounds)
        if wrong.any():
            place = tuple(map(int, np.argwhere(wrong)[0]))
            at = f"[{', '.join(map(str, place))}]"
            count = f"{int(wrong.sum())} of {wrong.size} elements differ"
            return f"{name}{at} is {second[place]}, and was {first[place]}; {count}"
    return None


def _differs(first: Array, second: Array, rounds: bool) -> Array:
    """Where two arrays differ. Zeros of either sign are one number, and so are all that are none."""
    with np.errstate(invalid="ignore"):
        same = (first == second) | ((first != first) & (second != second))
    if first.dtype.kind in "biu" or not rounds:
        return ~same
    a, b = first.astype(np.float64), second.astype(np.float64)
    with np.errstate(all="ignore"):
        most = np.abs(a[np.isfinite(a)]).max(initial=0)
        near = np.abs(a - b) <= BOUNDS[8 * first.dtype.itemsize] * most
        return ~(near | same)


def _explained(fault: Fault, step: Step, launch: Launch, seconds: float) -> Fault:
    """The fault with the program, the op and a reduced model, as far as these are found in time."""
    assert fault.before is not None
    until = time.monotonic() + seconds
    program, op = None, None
    if step.model is not None:
        program, op = _first_op(fault.before, step.model, launch, step.rounds, until)

    def fails(model: Op) -> bool:
        try:
            right = launch.interpreted(model)
        except ZigguratError:
            return False
        try:
            return difference(right, step.of(model), step.rounds) is not None
        except ZigguratError:
            return True

    smaller = reduced(fault.before, fails, max(0.0, until - time.monotonic())) if fails(fault.before) else fault.before
    return attrs.evolve(fault, program=program, op=op, before=smaller)


def _first_op(
    before: Op, after: Op, launch: Launch, rounds: bool, until: float
) -> tuple[tuple[int, int, int] | None, Op | None]:
    """The first program whose values differ between two models, and the first op there whose value the model before did
    not have at that place of the source."""
    x, y, _ = launch.grid
    for number in range(min(_PROGRAMS, launch.grid[0] * y * launch.grid[2])):
        if time.monotonic() > until:
            break
        earlier: dict[Any, list[Array]] = {}
        for place, content, _ in _values(before, launch, number):
            earlier.setdefault(place, []).append(content)
        for place, content, op in _values(after, launch, number):
            others = earlier.get(place)
            if others and not any(not _differs(other, content, rounds).any() for other in others):
                return (number % x, number // x % y, number // x // y), op
    return None, None


def _values(model: Op, launch: Launch, program: int) -> list[tuple[Any, Array, Op]]:
    """The values of numbers in a program, in the order in which it has them: the place in the source with what the
    value is, the value, and its op."""
    from ziggurat.backend.reference.run import watch
    from ziggurat.backend.reference.values import expand, is_array, plain
    from ziggurat.codemodel.op import OpResult
    from ziggurat.codemodel.types import ScalarType, element_of, shape_of

    values: list[tuple[Any, Array, Op]] = []

    def see(memory: Any, value: Value, content: Any) -> None:
        content, element = plain(content), element_of(value.type)
        if isinstance(value, OpResult) and isinstance(element, ScalarType) and is_array(content):
            shape, place = shape_of(value.type), value.op.location
            if place is not None and content.ndim == len(shape) + 1:
                key = place.file, place.line, place.column, str(element), shape, value.op.NAME
                values.append((key, expand(content[:1], shape)[0], value.op))

    with contextlib.suppress(ZigguratError):  # Its values until then count.
        watch(model, launch.grid, launch.fresh(), program, see, names=launch.names, tolerant=launch.tolerant)
    return values
