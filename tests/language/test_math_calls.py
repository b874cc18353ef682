"""Functions of floats: their distance from the true value, and their results at the limits."""

from __future__ import annotations

import math

import numpy as np
import pytest

import ziggurat as zg

FLOATS = ("f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64")
NARROW = ("f8e4m3", "f8e5m2", "f16", "bf16")
LIMITS = {"f8e4m3": 448.0, "f8e5m2": 57344.0}

erf = np.vectorize(math.erf, otypes=[np.float64])
FUNCTIONS = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "erf": erf,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "floor": np.floor, "ceil": np.ceil, "abs": np.abs,
}  # fmt: skip


def rounded(array, name, dtypes):
    if name in LIMITS:
        array = np.clip(array.astype(np.float32), -LIMITS[name], LIMITS[name])
    elif name == "bf16":
        array = array.astype(np.float32)
    return array.astype(dtypes[name])


@pytest.mark.parametrize("name", FLOATS)
def test_functions(name, compute, values, rows, dtypes):
    rng = np.random.default_rng(1)
    some = [rng.standard_normal(120), rng.standard_normal(60) * 20, 10.0 ** rng.uniform(-6, 6, 60)]
    x = np.concatenate([values(name), *(rounded(array, name, dtypes) for array in some)])
    (x,) = rows(x)
    true = {call: function(x.astype(np.float64)) for call, function in FUNCTIONS.items()}
    body = "\n".join(f"{call} = zg.{call}(x)" for call in FUNCTIONS)
    expected = {call: rounded(array, name, dtypes) for call, array in true.items()}
    # exp(-x) overflows in f32 where the true value is below the normal numbers.
    if name != "f64":
        expected["sigmoid"][x.astype(np.float64) < -88.722] = 0
    # 8-bit floats are computed in f32 and rounded: as good as rounding the true value but at ties; these have none.
    ulp = {"f32": 4, "f64": 4, "f8e4m3": 0, "f8e5m2": 0}.get(name, 1)
    if name == "f8e5m2":
        expected["abs"] = (x.view(np.uint8) & 0x7F).view(x.dtype)
    compute(body, {"x": x}, expected, ulp=ulp)


@pytest.mark.parametrize("name", ("i1", "i8", "i32", "i64", "u16", "u64"))
def test_functions_of_integers_are_of_f32(name, compute, values, rows):
    (x,) = rows(values(name))
    calls = [call for call in FUNCTIONS if call not in ("abs",)]
    wide = x.astype(np.float32).astype(np.float64)
    expected = {call: FUNCTIONS[call](wide).astype(np.float32) for call in calls}
    expected["sigmoid"][wide < -88.722] = 0
    compute(
        "\n".join(f"{call} = zg.{call}(x)" for call in calls),
        {"x": x},
        expected,
        ulp=2,
    )


@pytest.mark.parametrize("name", ("f16", "bf16", "f32", "f64", "f8e5m2"))
def test_softmax(name, compute, dtypes):
    x = rounded(np.random.default_rng(0).standard_normal((2, 4, 16)) * 4, name, dtypes)
    wide = x.astype(np.float64)
    powers = {axis: np.exp(wide - wide.max(axis + 1, keepdims=True)) for axis in (0, 1)}
    expected = {f"y{axis}": rounded(p / p.sum(axis + 1, keepdims=True), name, dtypes) for axis, p in powers.items()}
    body = "y0 = zg.softmax(x)\ny1 = zg.softmax(x, dim=-1)"
    compute(body, {"x": x}, expected, **({"tolerance": 1e-3} if name == "f8e5m2" else {"ulp": 32}))


def test_functions_of_scalars(compute):
    x = np.array([0.5, 2.0], np.float32)
    compute(
        "y = zg.exp(x) + zg.sqrt(4)\nz = zg.sigmoid(x * 1.0)\nw = zg.floor(x)",
        {"x": x},
        {
            "y": np.exp(x) + np.float32(2),
            "z": (1 / (1 + np.exp(-x.astype(float)))).astype(np.float32),
            "w": np.floor(x),
        },
        ulp=2,
    )


@pytest.mark.parametrize("name", FLOATS)
def test_division_and_root_rounded_correctly(name, compute, values, rows, dtypes):
    """`div_rn` and `sqrt_rn` of f32 are rounded correctly on a GPU as well, where `div` and `sqrt` are not."""
    some = values(name)
    a, b = rows(np.repeat(some, len(some))[:2048], np.tile(some, len(some))[:2048], programs=4)
    with np.errstate(all="ignore"):
        wide = np.float64 if name == "f64" else np.float32
        quotient = rounded(a.astype(wide) / b.astype(wide), name, dtypes)
        root = rounded(np.sqrt(np.abs(a.astype(wide))), name, dtypes)
    compute(
        "q = zg.div_rn(a, b)\nr = zg.sqrt_rn(zg.abs(zg.cast(a, WIDE)))\ns = zg.cast(r, a.dtype)\nt = zg.sqrt_rn(4)",
        {"a": a, "b": b},
        {"q": quotient, "s": root},
        WIDE=zg.f64 if name == "f64" else zg.f32,
    )
