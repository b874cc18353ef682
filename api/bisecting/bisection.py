"""`zg.bisect`: the first step on the way to machine code that changes what a launch computes."""

from __future__ import annotations

import contextlib
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from ziggurat.backend.launch.grids import program_at, sizes_of
from ziggurat.bisecting.comparison import FAILURE, VALUES, difference, differs, wrong_with
from ziggurat.bisecting.reduction import reduced
from ziggurat.bisecting.report import script
from ziggurat.bisecting.sizes import shrunk
from ziggurat.bisecting.steps import (
    DEVICE,
    NATIVE,
    OPTIMIZED,
    SIMULATED,
    Array,
    Arrays,
    Launch,
    Step,
    cpu_steps,
    gpu_steps,
    own_steps,
    step_named,
)
from ziggurat.boundary import no_faults, public
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import KernelErrors, LaunchError, ZigguratError, is_of_signal
from ziggurat.codemodel.gpu.options import CPU, CompileOptions
from ziggurat.codemodel.graphs import by_key
from ziggurat.codemodel.op import Op, Value, require_argument
from ziggurat.codemodel.passes import Pass
from ziggurat.codemodel.text.writer import summary
from ziggurat.kernels.own_passes import OwnPass
from ziggurat.launches.inspected import grid_of
from ziggurat.tuning.inspected import launch_of

SOURCE = "the Triton model"
OF_CODE = (SIMULATED, OPTIMIZED, DEVICE, NATIVE)
Way = Callable[[Op, Launch], Iterator[Step]]  # To machine code: its steps, for a model and a launch.
_PROGRAMS = 64  # Of a launch, of which the first with another result is looked for.


@attrs.frozen
class Fault:
    """The first step that is wrong: its name, and the reason, for people. `op` is the first op with other values than
    before, in the model that the step made, and None where that is not known; `program` is where. `before` is the model
    that the step took, and `launch` the launch, both reduced to what still shows the fault."""

    step: str
    reason: str
    op: Op | None = attrs.field(default=None, repr=False)
    program: tuple[int, int, int] | None = None
    before: Op | None = attrs.field(default=None, repr=False)
    launch: Launch | None = attrs.field(default=None, repr=False)


@attrs.frozen
class Bisection:
    """The outcome of `zg.bisect`: `fault`, or None where all steps agree; and the names of the `steps` that ran.

    `save(path)` writes a program that shows the fault again.
    """

    fault: Fault | None
    steps: tuple[str, ...]
    launch: Launch = attrs.field(repr=False)
    options: CompileOptions = attrs.field(repr=False)
    passes: Sequence[OwnPass] = attrs.field(default=(), repr=False)  # The kernel's own.

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
        """Write a Python program that shows the fault; its path. Raises `LaunchError` if there is none, or it cannot be
        written."""
        if self.fault is None:
            raise LaunchError("there is no fault to report")
        if self.fault.before is None:
            hint = "the launch and the arrays that are expected show the fault"
            raise LaunchError(
                f"the fault is in '{self.fault.step}', before which there is no model to reduce", hint=hint
            )
        file = Path(path)
        launch = self.fault.launch or self.launch
        own = next((own for own in self.passes if own.name == self.fault.step), None)
        text = script(self.fault.step, self.fault.before, launch, self.options, None if own is None else own.function)
        try:
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise LaunchError(f"the report cannot be written: {error}") from None
        return file


@public
def bisect(
    kernel: Any, grid: Any, /, *arguments: Any, expected: Sequence[Any] | None = None,
    step: str | tuple[str, Pass] | None = None, tolerant: bool = False, seconds: float = 30, **keywords: Any,
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

    The passes that a kernel has on the Triton model and later (`with_passes`) are steps as well. With `step`, that step
    alone is looked at, for a model of the stage before it: its name, or the name and the function of a pass of one's
    own. If `tolerant`, accesses outside of arrays are left out, as in kernels in Triton's Python.

    A fault has the op, and a reduced model, for which the search takes at most about `seconds`. Raises the errors of
    the kernel's front half, and `LaunchError` for arguments that do not fit.
    """
    require_argument(seconds, (int, float), "zg.bisect: 'seconds' must be a number")
    model, launch, options, passes = _launch_of(kernel, grid, arguments, keywords)
    launch = attrs.evolve(launch, tolerant=launch.tolerant or tolerant)
    with no_faults("bisecting", lambda: model, str(model.attributes.get("sym_name", model.NAME))):
        return _bisected(model, launch, options, passes, expected, step, seconds)


def _launch_of(
    kernel: Any, grid: Any, arguments: Sequence[Any], keywords: dict[str, Any]
) -> tuple[Op, Launch, CompileOptions, Sequence[OwnPass]]:
    """The Triton model, the launch, the options and the kernel's own passes of what a user gives."""
    if isinstance(kernel, Op):
        options, sizes = CompileOptions.of(keywords), grid_of("zg.bisect", sizes_of(grid, "zg.bisect"))
        return kernel, Launch(sizes, [f"arg{at}" for at in range(len(arguments))], arguments), options, ()
    kernel, bound, settings = launch_of("zg.bisect", kernel, arguments, keywords, "a kernel or a model")
    signature, run_time, values = kernel.specialized(bound)
    sizes = grid_of("zg.bisect", kernel.sizes(grid, bound))
    launch = Launch(sizes, run_time, values, kernel.rules.tolerant_memory)
    model = kernel.model_before_passes(signature)
    return model, launch, kernel.settings(CompileOptions.of(settings)), kernel.passes


def _bisected(
    model: Op, launch: Launch, options: CompileOptions, passes: Sequence[OwnPass], expected: Sequence[Any] | None,
    only: str | tuple[str, Pass] | None, seconds: float,
) -> Bisection:  # fmt: skip
    names = [SOURCE]
    start = time.monotonic()
    first = launch.interpreted(model)
    # Later models take longer, but not that much longer.
    seconds_of_run = 10 + 50 * (time.monotonic() - start)
    launch = attrs.evolve(launch, arguments=launch.fresh(), seconds=seconds_of_run)

    def outcome(fault: Fault | None) -> Bisection:
        return Bisection(fault, tuple(names), launch, options, passes)

    if expected is not None:
        right = _expected(expected, first)
        reason = difference(right, {name: first[name] for name in right}, rounds=True)
        if reason is not None:
            return outcome(Fault(names[0], reason, launch=launch))
    own_way: Way = partial(own_steps, [own for own in passes if own.at == "triton"])
    if only is not None:
        ways: list[Way] = [lambda model, launch: iter([step_named(only, options, launch)])]
    elif options.target == CPU:
        ways = [own_way, cpu_steps]
    else:
        ways = [own_way, partial(gpu_steps, options), cpu_steps]
    for way in ways:
        before, last = model, first
        for step in way(model, launch):
            names.append(step.name)
            wrong, arrays = wrong_with(step, before, last, launch)
            if wrong is not None:
                own = _own_fault(model, launch) if step.name in OF_CODE else None
                search = _Search(way, step.name, names.count(step.name), wrong.kind, only is None)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # Of what smaller models have that the kernel has not.
                    return outcome(own or search.explained(model, before, step, wrong.reason, launch, seconds))
            before, last = (before if step.model is None else step.model), arrays
        if way is own_way:
            model, first = before, last
    return outcome(None)


def _expected(expected: Sequence[Any], actual: Arrays) -> Arrays:
    """The arrays that a launch should give, by name. Raises `LaunchError` for those that no launch could give."""
    arrays = [np.asarray(array) for array in expected] if isinstance(expected, list | tuple) else []
    right = dict(zip(actual, arrays, strict=False))
    fits = all(array.shape == actual[name].shape and array.dtype.kind in "biufV" for name, array in right.items())
    if not right or len(arrays) > len(actual) or not fits:
        shapes = ", ".join(f"{name}{list(array.shape)}" for name, array in actual.items())
        raise LaunchError(f"zg.bisect: 'expected' must be a list of the arrays {shapes}, or of the first of them")
    return right


def _own_fault(model: Op, launch: Launch) -> Fault | None:
    """The fault that a kernel has itself, of those that only code shows: a race between threads, the use of undefined
    elements. Code may compute anything for such a kernel."""
    from ziggurat.backend.reference.run import run

    if not isinstance(model, core.Module):
        return None
    try:
        run(
            model, None, launch.grid, launch.fresh(), names=launch.names, strict=True, tolerant=launch.tolerant,
            seconds=launch.seconds,
        )  # fmt: skip
    except TimeoutError:
        return None
    except ZigguratError as error:
        part = error.parts[0] if isinstance(error, KernelErrors) else error
        place = "" if part.location is None else f"\n{part.location.excerpt()}"
        return Fault(SOURCE, f"the kernel itself is not right: {part.summary}{place}", launch=launch)
    return None


@attrs.frozen(eq=False)
class _Search:
    """The search for a smaller launch, and a smaller model, with which a step is wrong in the same way."""

    way: Way
    name: str
    count: int  # The number of the step among those of its name.
    kind: str
    whole: bool  # Whether the model is the Triton model, rather than one before the step.

    def explained(self, model: Op, before: Op, step: Step, reason: str, launch: Launch, seconds: float) -> Fault:
        """The fault with the program, the op, and a reduced model and launch, as far as these are found in time."""
        until = time.monotonic() + seconds
        program, op = None, None
        if step.model is not None and self.kind == VALUES:
            program, op = _first_op(before, step.model, launch, step.rounds, until)
        if self.name == DEVICE and self.kind != VALUES:  # After a launch that has failed, all others fail.
            return Fault(self.name, reason, before=before, launch=launch)
        if self.whole and self.kind != FAILURE and self._is_wrong(model, launch):
            model, launch = shrunk(model, launch, self._is_wrong, (until - time.monotonic()) / 2)
            pair = self._at(model, launch)
            assert pair is not None
            before, step = pair
        if step.failure is None:
            step = attrs.evolve(step, model=None)

            def fails(candidate: Op) -> bool:
                return self._is_wrong_step(step, candidate, launch)

            if fails(before):
                # A store whose address is gone would be a race of its own.
                before = reduced(before, fails, until - time.monotonic(), keep_addresses=self.kind != VALUES)
        return Fault(self.name, reason, op, program, before, launch)

    def _at(self, model: Op, launch: Launch) -> tuple[Op, Step] | None:
        """The model before the step, and the step, of a model and a launch; None where it is not on their way."""
        before, count = model, 0
        for step in self.way(model, launch):
            count += step.name == self.name
            if step.name == self.name and count == self.count:
                return before, step
            before = before if step.model is None else step.model
        return None

    def _is_wrong(self, model: Op, launch: Launch) -> bool:
        """Whether the step is wrong for a Triton model and a launch, which is right by itself."""
        if _right(model, launch) is None:
            return False
        pair = self._at(model, launch)
        return pair is not None and self._is_wrong_step(pair[1], pair[0], launch)

    def _is_wrong_step(self, step: Step, before: Op, launch: Launch) -> bool:
        right = _right(before, launch)
        if right is None:
            return False
        try:
            wrong, _ = wrong_with(step, before, right, launch)
        except LaunchError:
            return False
        return wrong is not None and wrong.kind == self.kind


def _right(model: Op, launch: Launch) -> Arrays | None:
    """The arrays after a run of a model by the interpreter; None where it does not come to its end."""
    try:
        return launch.interpreted(model)
    except Exception as error:
        if is_of_signal(error):
            raise
        return None


def _first_op(
    before: Op, after: Op, launch: Launch, rounds: bool, until: float
) -> tuple[tuple[int, int, int] | None, Op | None]:
    """The first program whose values differ between two models, and the first op there whose value the model before did
    not have at that place of the source."""
    for number in range(min(_PROGRAMS, math.prod(launch.grid))):
        if time.monotonic() > until:
            break
        earlier = by_key((place, content) for place, content, _ in _values(before, launch, number))
        for place, content, op in _values(after, launch, number):
            others = earlier.get(place)
            if others and not any(not differs(other, content, rounds).any() for other in others):
                return program_at(number, launch.grid), op
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
