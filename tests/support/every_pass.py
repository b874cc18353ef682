"""The models after each pass of a compilation, interpreted on the same arguments: which pass changes the result.

`Case` is a kernel with its arguments and its target; `first_fault` runs it after every pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

import ziggurat as zg
from ziggurat.backend.launch.arrays import elements
from ziggurat.backend.reference.run import run
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.passes import Snapshot
from ziggurat.transforms.gpu.gpu_passes import PLACE, place

Arguments = Sequence[Any]


@attrs.frozen(eq=False)
class Case:
    """A Triton model, the arguments of a launch, and the grid.

    `arguments` makes arrays, descriptors of arrays, and numbers. Results may differ by `tolerance`, relative to the
    largest element of an array: by 0 where all sums are exact. If the kernel `reorders` sums that are not
    exact, `lower` may give others, and the passes after it must keep those. If `tolerant`, accesses may be outside of
    the arrays: they read 0 and write nothing.
    """

    model: Op
    arguments: Callable[[], Arguments]
    options: CompileOptions
    grid: tuple[int, ...] = (1,)
    tolerance: float = 0
    reorders: bool = False
    tolerant: bool = False


def case(
    kernel: Any, arguments: Callable[[], Arguments], constants: Arguments = (), grid: tuple[int, ...] = (1,),
    tolerance: float = 0, reorders: bool = False, target: str = "sm_90a", **options: Any,
) -> Case:  # fmt: skip
    """A case of a kernel; the types are those of the arguments, divisible by 16 where these are."""
    model = kernel.triton(*map(_type_of, arguments()), *constants)
    return Case(model, arguments, CompileOptions(target, **options), grid, tolerance, reorders)


def _type_of(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        return zg.divisible(zg.ptr(elements()[argument.dtype]))
    if isinstance(argument, zg.TensorDescriptor):
        return zg.divisible(argument.type)
    if isinstance(argument, float):
        return zg.f32
    return zg.divisible(zg.i32) if argument % 16 == 0 else zg.i32


def results(model: Op, case: Case) -> list[np.ndarray]:
    """The arrays of a launch after it."""
    arguments = case.arguments()
    run(model, None, case.grid, arguments, tolerant=case.tolerant)
    hosts = [value.host if isinstance(value, zg.TensorDescriptor) else value for value in arguments]
    return [value for value in hosts if isinstance(value, np.ndarray)]


def difference(expected: Sequence[np.ndarray], actual: Sequence[np.ndarray], tolerance: float) -> str | None:
    """The first difference between arrays; None if there is none."""
    for number, (first, second) in enumerate(zip(expected, actual, strict=True)):
        if first.tobytes() == second.tobytes():
            continue
        a, b = (array.astype(np.float64) for array in (first, second))
        both = np.isfinite(a) & np.isfinite(b)
        limit = tolerance * np.abs(a[both]).max(initial=0)
        wrong = np.where(both, np.abs(np.where(both, a - b, 0)) > limit, ~((a == b) | (np.isnan(a) & np.isnan(b))))
        if wrong.any() or (not tolerance and (a != b)[both].any()):
            place = tuple(np.argwhere(wrong)[0])
            return f"array {number} at {place}: {first[place]} and {second[place]}, {int(wrong.sum())} elements differ"
    return None


def first_fault(case: Case, passes: list[Snapshot] | None = None) -> str | None:
    """The first pass whose model fails or gives another result, with the reason; None if all give the same. Raises the
    error of the kernel itself, and `ResourceError` for one that is too large for the target.

    `passes` gets the models after each pass. A model that a pass leaves as it is does not run again.
    """
    expected = results(case.model, case)
    snapshots: list[Snapshot] = [] if passes is None else passes
    try:
        place(case.model, case.options, snapshots)
        failure = None
    except zg.ResourceError:
        raise
    except Exception as error:
        failure = f"{PLACE[len(snapshots)][0] if len(snapshots) < len(PLACE) else 'hazards'}: {error}"
    before = case.model
    for snapshot in snapshots:
        if snapshot.model is before:
            continue
        before = snapshot.model
        try:
            actual = results(before, case)
            if snapshot.name == "lower" and case.reorders:
                expected = actual
            fault = difference(expected, actual, case.tolerance)
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
        if fault is not None:
            return f"{snapshot.name}: {fault}"
    return failure
