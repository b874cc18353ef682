"""The comparison of a step with the one before: what is wrong with it, if anything."""

from __future__ import annotations

import re

import attrs
import numpy as np

from ziggurat.bisecting.steps import PLACED, Array, Arrays, Launch, Step
from ziggurat.codemodel.dialects import cpu
from ziggurat.codemodel.errors import KernelErrors, LaunchError, ZigguratError, is_of_signal
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.text.writer import summary

# The share of an array's largest number by which elements may differ where a step rounds otherwise, by their bits.
# Dots of f32 multiply numbers of 10 bits (tf32), so they may differ as f16.
BOUNDS = {8: 2.0**-2, 16: 2.0**-6, 32: 2.0**-8, 64: 2.0**-30}
VALUES, HAZARD, FAILURE = "values", "hazard", "failure"


@attrs.frozen
class Wrong:
    """What is wrong with a step: the `reason`, for people, and its `kind`, which stays where the model is reduced:
    other values, something that nothing waits for, or the kind of an error."""

    kind: str
    reason: str


def wrong_with(step: Step, before: Op, expected: Arrays, launch: Launch) -> tuple[Wrong | None, Arrays]:
    """What is wrong with a step for a model before it, and the arrays that it gives; `expected` are those of that
    model. Whatever a faulty model does to a tool that runs it is a fault of the step that made it.

    Raises `LaunchError` for arguments that code was not compiled for."""
    if step.failure is not None:
        return Wrong(FAILURE, f"the pass fails: {_summary(step.failure)}"), expected
    try:
        model = step.model
        if model is None and step.transform is not None:
            model = step.transform(before)
        arrays = step.of(before) if model is None else launch.interpreted(model)
    except Exception as error:
        # The arguments do not fit what was compiled, or a handler of a signal ends the search.
        if is_of_signal(error) or (isinstance(error, LaunchError) and step.transform is None):
            raise
        if isinstance(error, TimeoutError):
            return Wrong("no end", f"it does not come to its end in {launch.seconds:.0f} s"), expected
        return Wrong(_kind(error), f"{type(error).__name__}: {_summary(error)}"), expected
    reason = difference(expected, arrays, step.rounds)
    if reason is not None:
        return Wrong(VALUES, reason), arrays
    return _hazard(step.name, model), arrays


def _hazard(step: str, model: Op | None) -> Wrong | None:
    """What a model lacks that no value shows: a wait, or at the end of the CPU's passes the place of a buffer."""
    from ziggurat.transforms.gpu.hazards import hazards_so_far

    hazards: list[object] = []
    if isinstance(model, gpu.Module):
        hazards += hazards_so_far(model)
    elif isinstance(model, cpu.Module) and step == PLACED:
        allocations = (op for op in model.walk() if isinstance(op, cpu.Alloc) and op.result.uses)
        hazards += (f"{summary(op)} has no place" for op in allocations if op.offset < 0)
    return Wrong(HAZARD, "; ".join(map(str, hazards))) if hazards else None


def _summary(error: Exception) -> str:
    if isinstance(error, KernelErrors):
        error = error.parts[0]
    return error.summary if isinstance(error, ZigguratError) else str(error)


def _kind(error: Exception) -> str:
    """The kind of an error, without the numbers and names of its message."""
    first = _summary(error).partition(";")[0].partition("'")[0]
    return f"{type(error).__name__}: {re.sub('[0-9]+', '', first)}"


def difference(expected: Arrays, actual: Arrays, rounds: bool) -> str | None:
    """The first difference between the arrays of two runs, in words; None if there is none. Where a step `rounds`,
    floats may differ by `BOUNDS`."""
    for name, first in expected.items():
        second = actual[name]
        wrong = differs(first, second, rounds)
        if wrong.any():
            place = tuple(map(int, np.argwhere(wrong)[0]))
            at = f"[{', '.join(map(str, place))}]"
            count = f"{int(wrong.sum())} of {wrong.size} elements differ"
            return f"{name}{at} is {second[place]}, and was {first[place]}; {count}"
    return None


def differs(first: Array, second: Array, rounds: bool) -> Array:
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
