"""Comparison of arrays, and of the results of two models: `assert_close`, `assert_same`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ziggurat.codemodel.errors import LaunchError, ZigguratError
from ziggurat.codemodel.op import Op, require_argument

# Relative and absolute tolerances by the name of the element type; other types must be equal.
TOLERANCES: dict[str, tuple[float, float]] = {
    "float64": (1e-7, 1e-7),
    "float32": (1.3e-6, 1e-5),
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float8_e4m3fn": (0.125, 1e-3),
    "float8_e5m2": (0.25, 1e-3),
}


def assert_close(
    actual: Any, expected: Any, *, rtol: float | None = None, atol: float | None = None, equal_nan: bool = True
) -> None:
    """Raise `AssertionError` unless two arrays, of any libraries, agree element by element.

    The condition is `|actual - expected| <= atol + rtol * |expected|`. The defaults of `rtol` and `atol` follow from
    the coarser of the two element types; integers must be equal. Shapes must agree, unless one is a single number.
    Differences are computed in float64. The message tells how many elements differ, and the largest difference.
    """
    tolerances: dict[str, Any] = {"rtol": rtol, "atol": atol}
    for name, tolerance in tolerances.items():
        fits = tolerance is None or (isinstance(tolerance, int | float | np.number) and bool(tolerance >= 0))
        require_argument(tolerance, fits, f"assert_close: '{name}' must be a number of zero or more")
    result, reference = _host(actual), _host(expected)
    for name, array, value in (("actual", result, actual), ("expected", reference, expected)):
        require_argument(value, array.dtype.kind not in "OSUMm", f"assert_close: '{name}' must be an array of numbers")
    if result.shape != reference.shape and reference.ndim and result.ndim:
        raise AssertionError(f"the shapes differ: {list(result.shape)}, and {list(reference.shape)} is expected")
    default = max(TOLERANCES.get(result.dtype.name, (0.0, 0.0)), TOLERANCES.get(reference.dtype.name, (0.0, 0.0)))
    relative = default[0] if rtol is None else rtol
    absolute = default[1] if atol is None else atol
    if relative == absolute == 0.0:
        wrong = np.asarray(result != reference)
        if equal_nan:
            wrong &= ~((result != result) & (reference != reference))
        error = wrong.astype(np.float64)
    else:
        a, b = result.astype(np.float64), reference.astype(np.float64)
        with np.errstate(invalid="ignore"):
            error = np.where(a == b, 0.0, np.abs(a - b))
            if equal_nan:
                error = np.where(np.isnan(a) & np.isnan(b), 0.0, error)
            wrong = ~(error <= absolute + relative * np.where(np.isfinite(b), np.abs(b), 0.0))
    if not wrong.any():
        return
    worst = np.unravel_index(int(np.argmax(np.where(wrong, np.nan_to_num(error, nan=np.inf), -1.0))), wrong.shape)
    got, want = np.broadcast_to(result, wrong.shape)[worst], np.broadcast_to(reference, wrong.shape)[worst]
    place = f" at [{', '.join(map(str, worst))}]" if worst else ""
    raise AssertionError(
        f"{int(wrong.sum())} of {wrong.size} elements differ by more than rtol={relative:g}, atol={absolute:g}; "
        f"most{place}: {got}, and {want} is expected"
    )


def assert_same(
    model_a: Op,
    model_b: Op,
    inputs: Sequence[Any],
    grid: int | tuple[int, ...] = 1,
    *,
    rtol: float = 0.0,
    atol: float = 0.0,
    prove: bool = False,
) -> None:
    """Raise `AssertionError` unless two Triton models do the same to the same inputs.

        zg.testing.assert_same(model, zg.simplify(model), [x, out, n], grid=(4,))

    Each model runs on the reference interpreter with `inputs` as they are: what it has written is taken back
    afterwards. Every array that the models wrote, one of a `TensorDescriptor` too, must agree element by element:
    exactly, or as `assert_close` does with `rtol` and `atol`. The message names the argument, and has the difference of
    the two models. With `prove` they must do the same to all inputs, by `zg.prove`: an answer of "unknown" is an error
    as well. Raises `LaunchError` when the inputs do not fit, or the grid has no program.
    """
    from ziggurat.backend.launch.grids import sizes_of
    from ziggurat.launches.host import run
    from ziggurat.transforms.kit import difference

    require_argument(inputs, Iterable, "assert_same: 'inputs' must be the arguments of a launch, in a list")
    inputs = tuple(inputs)
    if not callable(grid) and 0 in sizes_of(grid, "assert_same"):
        raise LaunchError(f"the grid of assert_same must have a program; got {grid}")
    arrays = {index: array for index, value in enumerate(inputs) if (array := _memory(value, index)) is not None}
    before = {index: array.copy() for index, array in arrays.items()}
    results: list[dict[int, np.ndarray[Any, Any]]] = []
    for which, model in (("first", model_a), ("second", model_b)):
        try:
            run(model, grid, *inputs)
            results.append({index: array.copy() for index, array in arrays.items()})
        except ZigguratError as error:
            error.summary = f"the {which} model: {error.summary}"
            raise
        finally:
            for index, array in arrays.items():
                if array.flags.writeable:
                    array[...] = before[index]
    first, second = results
    for index, a in first.items():
        b = second[index]
        try:
            assert_close(b, a, rtol=rtol, atol=atol)
        except AssertionError as error:
            report = difference(model_a, model_b) or "the models are equal"
            raise AssertionError(f"argument {index} differs after the second model: {error}\n{report}") from None
    if prove:
        from ziggurat.proving import prove as proved

        if not (proof := proved(model_a, model_b)):
            raise AssertionError(f"the models are not proved equal: {proof}")


def _memory(value: Any, index: int) -> np.ndarray[Any, Any] | None:
    """The memory of an argument that is an array or a descriptor."""
    from ziggurat.backend.launch.arrays import as_array, is_array
    from ziggurat.backend.launch.descriptors import TensorDescriptor

    if isinstance(value, TensorDescriptor):
        return value.host
    return as_array(value, f"argument {index}") if is_array(value) else None


def _host(array: Any) -> np.ndarray[Any, Any]:
    """An array in memory, with the same element type."""
    from ziggurat.backend.cuda.device_memory import DeviceArray
    from ziggurat.backend.launch.arrays import as_array

    if isinstance(array, DeviceArray):
        return array.numpy()
    if callable(getattr(array, "detach", None)):  # torch
        array = array.detach().cpu().contiguous()
    elif hasattr(array, "__cuda_array_interface__") and callable(getattr(array, "get", None)):  # CuPy
        array = array.get()
    if isinstance(array, (int, float, bool, complex, np.generic, list, tuple)):
        return np.asarray(array)
    try:
        return as_array(array, "the array")
    except LaunchError:
        return np.asarray(array)
