"""Every elementwise call means the same on constants, at run time, from Python, interpreted and simplified.

Operands are all combinations of the telling values of a dtype: NaN, infinities, zeros of both signs, subnormals,
extremes. A kernel makes the call on values that it loads; another on constants of the dtype, which simplification
folds; and one on Python's numbers, whose dtype is f64, i1, or an integer without a width.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel import scalars
from ziggurat.codemodel.errors import KernelTypeError, KernelValueError
from ziggurat.codemodel.numbers import rounded_number
from ziggurat.codemodel.types import SCALARS, ScalarType, f8e5m2, f32, f64, i1, i8, i32, i64
from ziggurat.frontends.language.signature import CALLS, SIGNATURES
from ziggurat.frontends.library import LIBRARY

GROUPS = ("Arithmetic", "Comparison", "Math")
ELEMENTWISE = [name for name, signature in SIGNATURES.items() if signature.group in GROUPS]
# Calls of these groups that are not functions of numbers alone.
OTHERS = {
    "softmax": "reduces a tensor", "next_power_of_2": "takes a constant only", "compare": "equal, less … are it",
    "directed": "names its operation", "approximate": "names its function",
}  # fmt: skip
CALLS_OF_NUMBERS = [name for name in ELEMENTWISE if name not in OTHERS]
# Calls that are written in the language are long, and made of the others.
SHORT = [name for name in CALLS_OF_NUMBERS if name not in LIBRARY or name in ("cdiv", "sigmoid")]
SCALARS_BY_DTYPE = {scalar.dtype: scalar for scalar in SCALARS.values()}
KINDS = {"bool": (i1, bool), "int": (i64, int), "float": (f64, float)}


def operands(name: str) -> int:
    return sum(not parameter.constexpr for parameter in SIGNATURES[name].parameters)


def telling(scalar: ScalarType) -> list[Any]:
    """Values at which wrong meanings differ from right ones."""
    if scalar == i1:
        return [False, True]
    if scalar.is_int:
        low, high = scalar.limits
        return sorted({low, high, 0, 1, 7, *((-1, -3, low + 1) if scalar.signed else (high // 2 + 1,))})
    form = scalar.format
    numbers = [
        math.nan, 0.0, -0.0, 1.0, -1.0, 0.1, -2.5, form.largest, -form.largest,
        math.ldexp(form.epsilon, form.smallest_exponent),
        form.smallest_normal, -form.smallest_normal,
    ]  # fmt: skip
    numbers = [rounded_number(number, scalar) for number in numbers]
    return numbers if scalar.saturates else [*numbers, math.inf, -math.inf]


def combinations(name: str, scalar: ScalarType) -> list[tuple[Any, ...]]:
    """Operands for which the call is defined."""
    values, count = telling(scalar), operands(name)
    if count == 3:
        values = values[::3] if len(values) > 8 else values[::2] if len(values) > 4 else values
    columns = list(itertools.product(values, repeat=count))
    if count > 1 and len(columns) > 30 and (scalar not in (i32, f32) or name in LIBRARY):
        # A fifth of them: the places of the operands have one sum modulo 5, so each value meets others in each place.
        places = itertools.product(range(len(values)), repeat=count)
        columns = [row for row, place in zip(columns, places, strict=True) if sum(place) % 5 == 0]
    if scalar.is_int and name in ("floordiv", "mod"):
        columns = [(a, b) for a, b in columns if b and (a, b) != (scalar.limits[0], -1)]
    if scalar.is_int and name in ("shl", "shr"):
        columns = [(a, b) for a, b in columns if 0 <= b < scalar.bits]
    if name == "cdiv":
        limit = max(scalar.limits[1], 1 << 31)
        columns = [(a, b) for a, b in columns if a >= 0 and b > 0 and a + b <= limit]
    if name == "where":
        columns = [(bool(c == c and c), x, y) for c, x, y in columns]
    return list(dict.fromkeys(columns))


def stored(kernel: Callable[..., Any], name: str, operands: Sequence[str], into: str, **names: Any) -> Any:
    """A kernel that makes the call on each of a list of operands, and stores what it gives."""
    return kernel(
        f"""
        def f(o):
            for k in zg.static_range(COUNT):
                zg.store(zg.add(o, k), zg.cast(zg.{name}({", ".join(operands)}), zg.{into}))
        """,
        **names,
    )


def loaded(kernel: Callable[..., Any], name: str, arrays: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """The results of the call for values that a kernel loads."""
    count = len(arrays[0])
    size = 1 << (count - 1).bit_length()
    letters = "abc"[: len(arrays)]
    loads = "; ".join(f"{x} = zg.load(zg.add(p{x}, i))" for x in letters)
    f = kernel(f"""
        def f({", ".join(f"p{x}" for x in letters)}, o):
            i = zg.arange(0, {size})
            {loads}
            zg.store(zg.add(o, i), zg.{name}({", ".join(letters)}))
    """)
    padded = [np.resize(array, size) for array in arrays]
    result = result_type(name, [SCALARS_BY_DTYPE[array.dtype] for array in arrays])
    out = np.zeros(size, result.dtype)
    f[(1,)](*padded, out, interpret=True)
    return out[:count]


def result_type(name: str, types: Sequence[ScalarType]) -> ScalarType:
    """The dtype that a call gives."""
    element = types[-1]
    if (SIGNATURES[name].group == "Comparison" and name != "where") or name in ("isnan", "isinf", "isfinite"):
        return i1
    if name in ("popc", "clz"):
        return i32
    if name == "umulhi":
        return element.unsigned
    if name in ("add", "sub", "mul", "cdiv") and element == i1:
        return i32
    is_float = name in ("div", "div_rn") or (SIGNATURES[name].group == "Math" and name != "abs")
    return f32 if is_float and not element.is_float else element


def same(actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The elements at which two arrays have the same bits, or both NaN."""
    equal = scalars.bits_of(actual) == scalars.bits_of(expected)
    if SCALARS_BY_DTYPE[actual.dtype].is_float:
        equal |= np.isnan(actual.astype(np.float64)) & np.isnan(expected.astype(np.float64))
    return equal


def takes(name: str, scalar: ScalarType) -> bool:
    """Whether a call takes operands of this dtype; other tests check the errors for the rest."""
    if name in ("floordiv", "and_", "or_", "xor", "shl", "shr", "invert", "cdiv"):
        return scalar.is_int
    if name in ("popc", "clz", "brev"):
        return scalar.kind == "int"
    if name == "umulhi":
        return scalar.kind == "int" and scalar.bits >= 32
    if name in ("fma", "fdiv"):
        return scalar.is_float
    return name != "neg" or scalar != i1


@pytest.mark.parametrize("name", CALLS_OF_NUMBERS)
def test_interpreted_and_simplified(kernel: Any, name: str):
    """For each dtype; calls that are written in the language for three of them."""
    for scalar in SCALARS.values() if name in SHORT else (i8, f8e5m2, f32):
        if takes(name, scalar):
            check_simplified(kernel, name, scalar)


def check_simplified(kernel: Any, name: str, scalar: ScalarType) -> None:
    rows = combinations(name, scalar)
    columns = list(zip(*rows, strict=True))
    types = [scalar] * len(columns)
    if name == "where":
        types[0] = i1
    arrays = [np.concatenate([scalars.array_of(v, t) for v in c]) for c, t in zip(columns, types, strict=True)]
    expected = loaded(kernel, name, arrays)

    operands = [f"zg.cast(C{j}[k], zg.{type_})" for j, type_ in enumerate(types)]
    result = SCALARS_BY_DTYPE[expected.dtype]
    f = stored(kernel, name, operands, result.name, COUNT=len(rows), **{f"C{j}": c for j, c in enumerate(columns)})
    model = f.triton(zg.ptr(result))
    for step in (model, zg.simplify(model)):
        out = np.zeros(len(rows), result.dtype)
        zg.run(step, 1, out)
        wrong = ~same(out, expected)
        assert not wrong.any(), [(rows[i], out[i], expected[i]) for i in np.flatnonzero(wrong)[:5]]


@pytest.mark.parametrize("name", [name for name in CALLS_OF_NUMBERS if CALLS[name].host is not None])
@pytest.mark.parametrize("kind", KINDS)
def test_constants_and_calls_from_python(kernel: Any, name: str, kind: str):
    scalar, python = KINDS[kind]
    if not takes(name, scalar):
        return
    rows = combinations(name, scalar)
    by_python: list[Any] = []
    accepted_rows: list[tuple[Any, ...]] = []
    for values in rows:
        try:
            number = CALLS[name](*values)
        except KernelValueError:
            continue  # An integer without a width that needs more than 64 bits.
        if isinstance(number, int) and not -(1 << 63) <= number < 1 << 63:
            continue
        by_python.append(number)
        accepted_rows.append(values)
    assert len(accepted_rows) > len(rows) // 3
    columns = list(zip(*accepted_rows, strict=True))
    types = [scalar] * len(columns)
    if name == "where":
        types[0] = i1

    # The same call on values that are loaded. A function of an integer is computed in f32 there, of a constant in f64.
    if isinstance(by_python[0], float) and python is not float:
        types = [f64] * len(columns)
    arrays = [
        np.concatenate([scalars.array_of(t.dtype.type(v).item(), t) for v in c])
        for c, t in zip(columns, types, strict=True)
    ]
    expected = loaded(kernel, name, arrays)
    result = SCALARS_BY_DTYPE[expected.dtype]
    from_python = np.concatenate([scalars.array_of(number, result) for number in by_python])
    wrong = ~same(from_python, expected)
    assert not wrong.any(), [(accepted_rows[i], by_python[i], expected[i]) for i in np.flatnonzero(wrong)[:5]]

    operands = [f"C{j}[k]" for j in range(len(columns))]
    f = stored(
        kernel, name, operands, result.name, COUNT=len(accepted_rows), **{f"C{j}": c for j, c in enumerate(columns)}
    )
    out = np.zeros(len(accepted_rows), result.dtype)
    f[(1,)](out, interpret=True)
    wrong = ~same(out, expected)
    assert not wrong.any(), [(accepted_rows[i], out[i], expected[i]) for i in np.flatnonzero(wrong)[:5]]


def test_next_power_of_2_in_a_kernel_is_that_of_python(kernel: Any):
    numbers = (-3, 0, 1, 2, 3, 1000, 1 << 40)
    f = stored(kernel, "next_power_of_2", ["C0[k]"], "i64", COUNT=len(numbers), C0=numbers)
    out = np.zeros(len(numbers), np.int64)
    f[(1,)](out, interpret=True)
    assert out.tolist() == [zg.next_power_of_2(number) for number in numbers]


@pytest.mark.parametrize(
    "name", [name for name in CALLS_OF_NUMBERS if CALLS[name].host is not None and name not in ("neg", "where")]
)
def test_arguments_that_a_kernel_refuses_are_refused_by_python(name: str):
    for scalar, python in KINDS.values():
        if not takes(name, scalar) and name not in ("fma", "fdiv", "cdiv"):
            with pytest.raises(KernelTypeError):
                CALLS[name](*[python(1)] * operands(name))
