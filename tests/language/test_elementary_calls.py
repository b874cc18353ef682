"""Functions that are written in the language, on every dtype and at the ends of each."""

from __future__ import annotations

import numpy as np
import pytest

FLOATS = ("f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64")
INTEGERS = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")
LIMITS = {"f8e4m3": 448.0, "f8e5m2": 57344.0}
FUNCTIONS = {
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh,
    "expm1": np.expm1, "log1p": np.log1p, "trunc": np.trunc, "rint": np.rint,
    "round": lambda x: np.copysign(np.trunc(x) + (np.abs(x - np.trunc(x)) >= 0.5) * np.sign(x), x),
}  # fmt: skip
QUESTIONS = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}


def rounded(array, name, dtypes):
    if name in LIMITS:
        array = np.clip(array.astype(np.float32), -LIMITS[name], LIMITS[name])
    elif name == "bf16":
        array = array.astype(np.float32)
    return array.astype(dtypes[name])


def some_of(name, values, rows, dtypes):
    rng = np.random.default_rng(3)
    some = [
        rng.uniform(-1, 1, 60),
        rng.standard_normal(60) * 20,
        np.arange(-4, 4, 0.25),
        10.0 ** rng.uniform(-6, 6, 30),
    ]
    (x,) = rows(np.concatenate([values(name), *(rounded(array, name, dtypes) for array in some)]))
    return x


@pytest.mark.parametrize("name", FLOATS)
def test_functions(name, compute, values, rows, dtypes):
    x = some_of(name, values, rows, dtypes)
    wide = x.astype(np.float64)
    body = "\n".join(f"{call} = zg.{call}(x)" for call in (*FUNCTIONS, *QUESTIONS))
    expected = {call: rounded(function(wide), name, dtypes) for call, function in FUNCTIONS.items()}
    expected |= {call: function(wide) for call, function in QUESTIONS.items()}
    compute(body, {"x": x}, expected, ulp={"f32": 4, "f64": 4, "f8e4m3": 0, "f8e5m2": 0}.get(name, 1))


@pytest.mark.parametrize("name", FLOATS)
def test_tangent(name, compute, values, rows, dtypes):
    x = some_of(name, values, rows, dtypes)
    expected = rounded(np.tan(x.astype(np.float64)), name, dtypes)
    compute("y = zg.tan(x)", {"x": x}, {"y": expected}, ulp={"f32": 4, "f64": 4, "f8e4m3": 0, "f8e5m2": 0}.get(name, 1))


@pytest.mark.parametrize("name", ("i1", "i8", "i32", "u64"))
def test_functions_of_integers_are_of_f32(name, compute, values, rows):
    (x,) = rows(values(name))
    wide = x.astype(np.float32).astype(np.float64)
    body = "\n".join(f"{call} = zg.{call}(x)" for call in (*FUNCTIONS, *QUESTIONS))
    expected = {call: function(wide).astype(np.float32) for call, function in FUNCTIONS.items()}
    expected |= {call: function(wide) for call, function in QUESTIONS.items()}
    compute(body, {"x": x}, expected, ulp=4)


@pytest.mark.parametrize("name", FLOATS)
def test_angles_of_points(name, compute, values, rows, dtypes):
    """All pairs of the test values: all signs of zeros and infinities, and NaN."""
    some = values(name) if name not in LIMITS else values(name)[::9]
    y, x = np.meshgrid(some, some)
    y, x = rows(y.ravel(), x.ravel())
    true = np.arctan2(y.astype(np.float64), x.astype(np.float64))
    expected = rounded(true, name, dtypes)
    ulp = {"f32": 4, "f64": 4, "f8e4m3": 0, "f8e5m2": 0}.get(name, 1)
    compute("z = zg.atan2(y, x)", {"y": y, "x": x}, {"z": expected}, ulp=ulp)


def test_angles_are_of_the_promoted_dtype(compute):
    y, x = np.array([[1, -2]], np.int32), np.array([[-1.0, 0.5]], np.float64)
    h = np.array([[2.0, -0.0]], np.float16)
    compute(
        "a = zg.atan2(y, x)\nb = zg.atan2(y, y)\nc = zg.atan2(h, -1)\nd = zg.atan2(zg.expand(h, 1), h)",
        {"y": y, "x": x, "h": h},
        {
            "a": np.arctan2(y, x), "b": np.arctan2(y.astype(np.float32), y.astype(np.float32)),
            "c": np.arctan2(h, np.float16(-1)), "d": np.arctan2(h[:, :, None], h[:, None]),
        },
        ulp=4,
    )  # fmt: skip


def test_rounding_of_halves(compute):
    """Numbers next to one half, and numbers so large that they have no fraction."""
    near = np.nextafter(np.float32(0.5), np.float32(0))
    x = np.array([[0.5, 1.5, 2.5, near, 8388607.5, 8388609.0, 4194304.5, 0.0]], np.float32)
    x = np.concatenate([x, -x])
    up = np.array([[1, 2, 3, 0, 8388608, 8388609, 4194305, 0]], np.float32)
    compute(
        "a = zg.round(x)\nb = zg.rint(x)\nc = zg.trunc(x)",
        {"x": x},
        {"a": np.concatenate([up, -up]), "b": np.rint(x), "c": np.trunc(x)},
    )


@pytest.mark.parametrize("name", INTEGERS)
def test_bits(name, compute, values, rows, dtypes):
    (x,) = rows(np.concatenate([values(name), np.array([1, 2, 4, 8, 64, 127], dtypes[name])]))
    width = 8 * x.dtype.itemsize
    unsigned = x.view(f"u{x.dtype.itemsize}")

    def of_text(function, dtype):
        return np.array([function(f"{number:0{width}b}") for number in unsigned.ravel().tolist()], dtype).reshape(
            x.shape
        )

    compute(
        "a = zg.popc(x)\nb = zg.clz(x)\nc = zg.brev(x)",
        {"x": x},
        {
            "a": of_text(lambda text: text.count("1"), np.int32),
            "b": of_text(lambda text: len(text) - len(text.lstrip("0")), np.int32),
            "c": of_text(lambda text: int(text[::-1], 2), unsigned.dtype).view(x.dtype),
        },
    )  # fmt: skip
