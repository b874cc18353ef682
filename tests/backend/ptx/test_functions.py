"""Functions as they are emitted: exact ones are run on the host, fast ones are compared by their instructions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.scalars import erf
from ziggurat.codemodel.types import SCALARS

# Overflows and NaN are compared as well.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

EXACT = CompileOptions(exact_math=True)
REFERENCES = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "erf": erf,
}  # fmt: skip
INSTRUCTIONS = {
    "exp": "ex2.approx.ftz.f32", "exp2": "ex2.approx.ftz.f32",
    "sqrt": "sqrt.approx.ftz.f32", "rsqrt": "rsqrt.approx.ftz.f32",
}  # fmt: skip


def given(element: str) -> np.ndarray:
    """All numbers of 16 bits; of others, positive and negative ones, zeros, infinities, NaN."""
    if element == "f16":
        return np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    x = np.concatenate([np.random.default_rng(1).uniform(-4, 4, 500), [0, -0.0, np.inf, -np.inf, np.nan, 1, -1]])
    return x.astype(SCALARS[element].dtype)


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("element", ["f16", "f32", "f64"])
def test_exact_functions(name: str, element: str, emission_on_host, ulps) -> None:
    x = given(element)
    wide = np.float64 if element != "f64" else np.longdouble
    true = erf(x.astype(np.float64)) if name == "erf" else REFERENCES[name](x.astype(wide))
    actual = emission_on_host(f"math.{name}", [element], element, options=EXACT)(x)
    assert ulps(actual, true, x.dtype.type).max() <= {"f16": 0.502, "f32": 2.1, "f64": 2.1}[element]


@pytest.mark.parametrize("name", ["sqrt", "rsqrt"])
@pytest.mark.parametrize("element", ["f32", "f64"])
def test_exact_roots_are_rounded_once_and_inverses_twice(name: str, element: str, emission_on_host) -> None:
    x = np.random.default_rng(2).uniform(0, 1e6, 1000).astype(SCALARS[element].dtype)
    root = np.sqrt(x)
    actual = emission_on_host(f"math.{name}", [element], element, options=EXACT)(x)
    np.testing.assert_array_equal(actual, root if name == "sqrt" else 1 / root)


@pytest.mark.parametrize("name", REFERENCES)
def test_fast_instructions_of_f32(name: str, emission) -> None:
    """f32 has fast instructions; f64 has none."""
    emitter, _ = emission(f"%y : f32 = math.{name} %x;", "%x : f32")
    text = "\n".join(emitter.lines)
    if name in INSTRUCTIONS:
        assert INSTRUCTIONS[name] in text and not emitter.definitions
    else:
        assert "asm" not in text and list(emitter.definitions) == [f"zg.{name}.f32"]
    wide, _ = emission(f"%y : f64 = math.{name} %x;", "%x : f64")
    assert "asm" not in "\n".join(wide.lines)
    assert list(wide.definitions) == ([] if "sqrt" in name else [f"zg.{name}.f64"])


@pytest.mark.parametrize("name", ["log2", "sin", "cos", "tanh"])
def test_approximations_are_instructions_unless_functions_are_exact(name: str, emission, emission_on_host) -> None:
    emitter, _ = emission(f"%y : f32 = math.approximate %x @{name};", "%x : f32")
    instruction = "lg2" if name == "log2" else name
    assert f"{instruction}.approx" in "\n".join(emitter.lines) and not emitter.definitions
    x = given("f32")
    exact = emission_on_host(f"math.approximate @{name}", ["f32"], "f32", options=EXACT)(x)
    np.testing.assert_array_equal(exact, emission_on_host(f"math.{name}", ["f32"], "f32", options=EXACT)(x))


def test_small_floats_are_computed_with_in_f32(emission) -> None:
    emitter, _ = emission("%y : f16 = math.exp %x;", "%x : f16")
    text = "\n".join(emitter.lines)
    assert text.index("fpext half %p0 to float") < text.index("ex2.approx.ftz.f32") < text.index("fptrunc float")


def test_a_routine_is_defined_once(emission) -> None:
    emitter, _ = emission("%y : f32 = math.sin %x; %z : f32 = math.sin %y;", "%x : f32")
    assert len(emitter.definitions) == 1
    assert [line.split(" = ")[1] for line in emitter.lines] == [
        "call float @zg.sin.f32(float %p0)",
        "call float @zg.sin.f32(float %v1)",
    ]


@pytest.mark.parametrize(
    "name, reference", [("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc), ("roundeven", np.rint)]
)
@pytest.mark.parametrize("element", ["f8e4m3", "f8e5m2", "f16", "f32", "f64"])
def test_whole_numbers(name: str, reference, element: str, emission_on_host, same) -> None:
    """Infinities and NaN do not change, not even those of 8-bit floats, whose rounding saturates."""
    small = SCALARS[element].bits == 8
    x = np.arange(256, dtype=np.uint8).view(SCALARS[element].dtype) if small else given(element)
    true = reference(x.astype(np.float64)).astype(x.dtype)
    actual = emission_on_host(f"math.{name}", [element], element)(x.view(np.uint8) if small else x).view(x.dtype)
    same(actual, true)


@pytest.mark.parametrize("element", ["f8e4m3", "f8e5m2", "f16", "f32", "f64"])
def test_magnitudes_of_floats_have_no_sign(element: str, emission_on_host) -> None:
    small = SCALARS[element].bits == 8
    x = np.arange(256, dtype=np.uint8).view(SCALARS[element].dtype) if small else given(element)
    actual = emission_on_host("math.absf", [element], element)(x.view(np.uint8) if small else x).view(x.dtype)
    kind = f"u{x.dtype.itemsize}"
    top = np.dtype(kind).type(1 << (8 * x.dtype.itemsize - 1))
    np.testing.assert_array_equal(actual.view(kind), x.view(kind) & ~top)


def test_magnitudes_of_integers(emission, emission_on_host) -> None:
    """The magnitude of the smallest number does not fit: it is the number itself."""
    x = np.array([-128, -127, -1, 0, 127], np.int8)
    actual = emission_on_host("math.absi", ["i8"], "i8")(x.view(np.uint8)).view(np.int8)
    assert actual.tolist() == [-128, 127, 1, 0, 127]
    emitter, (code,) = emission("%y : u8 = math.absi %x;", "%x : u8")
    assert code == "%p0" and not emitter.lines


@pytest.mark.parametrize("element", ["i8", "u16", "i32", "u64"])
def test_bits_of_integers(element: str, emission_on_host) -> None:
    dtype = SCALARS[element].dtype
    x = np.array([0, 1, 5, 126, 127, -1], np.int64).astype(dtype)
    width = 8 * dtype.itemsize
    texts = [f"{number:0{width}b}" for number in x.view(f"u{dtype.itemsize}").tolist()]
    expected = {
        "math.ctpop": [text.count("1") for text in texts],
        "math.ctlz": [width - len(text.lstrip("0")) for text in texts],
        "math.bitreverse": np.array([int(text[::-1], 2) for text in texts], np.uint64).astype(dtype).tolist(),
    }
    arguments = x.view(np.uint8) if dtype.itemsize == 1 else x
    for name, numbers in expected.items():
        assert emission_on_host(name, [element], element)(arguments).view(dtype).tolist() == numbers


def test_fma_rounds_once(emission_on_host) -> None:
    """(1 + 2⁻²³)² less its rounded value is the rounding error."""
    x = np.array([1 + 2.0**-23], np.float32)
    rounded = x * x
    actual = emission_on_host("math.fma", ["f32"] * 3, "f32")(x, x, -rounded)
    assert actual.tolist() == [2.0**-46]


def test_fma_of_8_bit_floats_rounds_once(emission_on_host, same) -> None:
    random = np.random.default_rng(3)
    codes = [random.integers(0, 256, 5000).astype(np.uint8) for _ in range(3)]
    a, b, c = (code.view(ml_dtypes.float8_e4m3fn).astype(np.float64) for code in codes)
    true = a * b + c  # Exact.
    limit = np.float64(448)
    true = np.clip(true, -limit, limit).astype(ml_dtypes.float8_e4m3fn)
    actual = emission_on_host("math.fma", ["f8e4m3"] * 3, "f8e4m3")(*codes)
    same(actual.view(true.dtype), true)
