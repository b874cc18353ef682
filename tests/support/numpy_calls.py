"""Calls of the language in NumPy and in Python's numbers, for the tables in tests/language/values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]

DTYPES: dict[str, np.dtype[Any]] = {
    "i1": np.dtype(np.bool_), "i8": np.dtype(np.int8), "i16": np.dtype(np.int16), "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64), "u8": np.dtype(np.uint8), "u16": np.dtype(np.uint16), "u32": np.dtype(np.uint32),
    "u64": np.dtype(np.uint64), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32), "f64": np.dtype(np.float64), "f8e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
}  # fmt: skip
INTS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64")
ALL = ("i1", *INTS, *FLOATS)
KIND = {"i1": 0, **dict.fromkeys(INTS, 1), **dict.fromkeys(FLOATS, 2)}
WIDTH = {"i1": 1, "f8e4m3": 8, "f8e5m2": 8, "bf16": 16, **{n: int(n[1:]) for n in (*INTS, "f16", "f32", "f64")}}
LARGEST = {"f8e4m3": 448.0, "f8e5m2": 57344.0}  # 8-bit floats saturate, infinities too.


def promoted(a: str, b: str) -> str:
    """The dtype of an operation on two dtypes: the rules of the semantics document, a second time."""
    if a == b:
        return a
    if KIND[a] != KIND[b]:
        return max(a, b, key=KIND.__getitem__)
    if WIDTH[a] != WIDTH[b]:
        return max(a, b, key=WIDTH.__getitem__)
    return "f16" if KIND[a] == 2 else f"u{WIDTH[a]}"


def summed(name: str) -> str:
    """The dtype of a sum."""
    return f"{name[0]}32".replace("f", "i") if name == "i1" or (name in INTS and WIDTH[name] < 32) else name


def is_float(name: str) -> bool:
    return KIND[name] == 2


def to(array: Any, name: str) -> Array:
    """A cast; to a narrow float, it rounds once, and 8-bit floats saturate."""
    array = np.asarray(array)
    dtype = DTYPES[name]
    if array.dtype == dtype:
        return array
    if name in LARGEST:
        return np.clip(array.astype(np.float32), -LARGEST[name], LARGEST[name]).astype(dtype)
    if name in ("f16", "bf16") and array.dtype.kind in "biu":
        array = array.astype(np.float64)
    return array.astype(dtype)


def wide(array: Array) -> Array:
    """Floats under 32 bits as f32, in which their operations are exact enough to round once more."""
    return array.astype(np.float32) if array.dtype.itemsize < 4 and array.dtype.kind not in "iub" else array


def f32(array: Any) -> Array:
    return np.asarray(array).astype(np.float32)


def f64(array: Any) -> Array:
    return np.asarray(array).astype(np.float64)


def i32(array: Any) -> Array:
    return np.asarray(array).astype(np.int32)


def values(name: str) -> Array:
    """Test values of a dtype: all values of 8-bit types; the extremes and some others of wider types."""
    dtype = DTYPES[name]
    if name == "i1":
        return np.array([False, True])
    if dtype.itemsize == 1:
        return np.arange(256, dtype=np.uint8).view(dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        some = [0, 1, 2, 3, 7, 10, 100, info.max // 3, info.max - 1, info.max, info.min]
        return np.array([*some, *([-1, -2, -3, -7, -100, info.min + 1] if info.min else [])], dtype)
    info = ml_dtypes.finfo(dtype)
    sizes = [float(x) for x in (info.smallest_subnormal, info.smallest_normal, info.max, info.eps)]
    some = [0.0, 1.0, 1.5, 2.0, 3.0, 0.1, 7.25, 100.0, *sizes, 1 + sizes[3], 0.75 * sizes[2], np.inf, np.nan]
    return np.array([*some, *(-x for x in some)], np.float64).astype(dtype)


def rows(*arrays: Array, programs: int = 2) -> list[Array]:
    """Arrays as rows, one for each program, of a power of two elements, padded with the first elements."""
    count = max(len(array) for array in arrays)
    width = 1 << max(0, -(-count // programs) - 1).bit_length()
    return [np.resize(array, programs * width).reshape(programs, width) for array in arrays]


def sample(a: str, b: str) -> tuple[Array, Array]:
    """All pairs of a few values of two dtypes."""
    x, y = values(a), values(b)
    if len(x) > 40:
        x = x[[0, 1, 2, 3, 7, 56, 57, 64, 80, 100, 122, 123, 124, 125, 126, 127, 128, 129, 190, 250, 254, 255]]
    if len(y) > 40:
        y = y[[0, 1, 2, 3, 8, 48, 56, 63, 81, 101, 122, 123, 124, 125, 126, 127, 128, 130, 200, 253, 254, 255]]
    return np.repeat(x, len(y)), np.tile(y, len(x))


def neighbours(names: Sequence[str], distance: int) -> Iterator[tuple[str, str]]:
    """Each dtype with the one that is as far from it in the list."""
    return zip(names, (*names[distance:], *names[:distance]), strict=True)


def shapes(name: str, *usual: tuple[int, ...]) -> Sequence[tuple[int, ...]]:
    """Shapes to reduce: all of a list for three dtypes, the usual ones for others."""
    return ((1,), (16,), (4, 8), (2, 1, 4), (2, 4, 8)) if name in ("i32", "f32", "bf16") else usual


def small(name: str, *shape: int, end: int = 100, seed: int = 0) -> Array:
    """Numbers from 0 to `end`."""
    return np.random.default_rng(seed).integers(0, 2 if name == "i1" else end, shape).astype(DTYPES[name])


def any_numbers(name: str, *shape: int, seed: int = 0) -> Array:
    """All integers; small whole floats, so that sums are exact in every order."""
    rng = np.random.default_rng(seed)
    if name == "i1":
        return rng.integers(0, 2, shape).astype(bool)
    if name in INTS:
        info = np.iinfo(DTYPES[name])
        return rng.integers(info.min, info.max, shape, DTYPES[name], endpoint=True)
    return rng.integers(-4, 5, shape).astype(DTYPES[name])


def integers(function: Callable[..., int], *arrays: Array, dtype: Any = None) -> Array:
    """A function of Python's integers on each element; the result wraps."""
    like = np.dtype(dtype or arrays[0].dtype)
    lists = (array.ravel().tolist() for array in arrays)
    numbers = [int(function(*elements)) % (1 << like.itemsize * 8) for elements in zip(*lists, strict=True)]
    return np.array(numbers, f"u{like.itemsize}").view(like).reshape(arrays[0].shape)


def quotient(a: int, b: int) -> int:
    """C's: toward zero."""
    return abs(a) // abs(b) if (a < 0) == (b < 0) else -(abs(a) // abs(b))


def remainder(a: int, b: int) -> int:
    return a - b * quotient(a, b)


COMPARISONS = {
    "EQUAL": np.equal, "NOT_EQUAL": np.not_equal, "LESS_THAN": np.less, "LESS_THAN_OR_EQUAL": np.less_equal,
    "GREATER_THAN": np.greater, "GREATER_THAN_OR_EQUAL": np.greater_equal,
}  # fmt: skip
ARITHMETIC: dict[str, Any] = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
BITWISE: dict[str, Any] = {"and_": np.bitwise_and, "or_": np.bitwise_or, "xor": np.bitwise_xor}


def operation(call: str, x: Array, y: Array, name: str) -> Array:
    """An operation on two operands of one dtype. Of minima and maxima, NaN is ignored, and -0.0 is below 0.0."""
    if call in ARITHMETIC:
        if name == "i1":
            return ARITHMETIC[call](i32(x), i32(y))
        return to(ARITHMETIC[call](wide(x), wide(y)), name)
    if not is_float(name):
        return np.minimum(x, y) if call == "minimum" else np.maximum(x, y)
    p, q = wide(x), wide(y)
    if call == "minimum":
        first = (p < q) | ((p == q) & np.signbit(p))
    else:
        first = (p > q) | ((p == q) & ~np.signbit(p))
    # One of the operands, an infinity too: nothing is rounded.
    return np.where(np.isnan(q) | (first & ~np.isnan(p)), x, y).astype(x.dtype)


def extreme_with_nan(call: str, x: Array, y: Array) -> Array:
    """A minimum or maximum that is NaN where an operand is."""
    nan = np.isnan(f64(x)) | np.isnan(f64(y))
    return np.where(nan, np.array(np.nan, x.dtype), operation(call, x, y, "f64")).astype(x.dtype)


def exact(value: Fraction, name: str) -> Any:
    """A fraction rounded once to a float dtype, ties to even."""
    low = float(value)
    if Fraction(low) != value and name != "f64":
        # To odd in f64, so that the second rounding is the only one.
        other = np.nextafter(low, np.inf if Fraction(low) < value else -np.inf)
        low = low if int(np.float64(low).view(np.int64)) & 1 else float(other)
    if name == "bf16":
        near = np.float64(low).astype(np.float32)
        if float(near) != low and not int(near.view(np.uint32)) & 1:
            near = np.nextafter(near, np.float32(np.inf if float(near) < low else -np.inf), dtype=np.float32)
        return near.astype(DTYPES["bf16"])
    return np.float64(low).astype(DTYPES[name])


def fma(a: Array, b: Array, c: Array, name: str) -> Array:
    rows = zip(*(f64(x).ravel().tolist() for x in (a, b, c)), strict=True)
    return np.array([exact(Fraction(x) * Fraction(y) + Fraction(z), name) for x, y, z in rows]).reshape(a.shape)


def near_fma(name: str) -> tuple[Array, ...]:
    """Operands whose exact sums are next to the middle of two numbers, or next to zero."""
    rng = np.random.default_rng(5)
    step = 2.0 ** -{"f16": 10, "bf16": 7, "f32": 23, "f64": 52}[name]
    a, b, c = (1 + rng.integers(-8, 8, (3, 512)) * step).astype(DTYPES[name])
    c[::2] = (-a * b)[::2]
    if name == "f16":
        # The sum is 2^-31 below the middle of two numbers: rounded to f32 first, it would be a tie.
        a[1::8], b[1::8], c[1::8] = 1 + 2.0**-10, 2.0**-11 * (1 - 2.0**-10), 1 + 2.0**-10
    return tuple(x.reshape(2, 256) for x in (a, b, c))


_erf = np.vectorize(math.erf, otypes=[np.float64])
FUNCTIONS: dict[str, Any] = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "erf": _erf,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "floor": np.floor, "ceil": np.ceil,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh,
    "expm1": np.expm1, "log1p": np.log1p, "trunc": np.trunc, "rint": np.rint,
    "round": lambda x: np.copysign(np.trunc(x) + (np.abs(x - np.trunc(x)) >= 0.5) * np.sign(x), x),
}  # fmt: skip


def numbers(name: str) -> Array:
    """All test values of a dtype of floats, and random numbers of many sizes."""
    rng = np.random.default_rng(1)
    near = rng.uniform(-1, 1, 60), rng.standard_normal(120), rng.standard_normal(60) * 20, np.arange(-4, 4, 0.25)
    (x,) = rows(np.concatenate([values(name), *(to(array, name) for array in (*near, 10.0 ** rng.uniform(-6, 6, 60)))]))
    return x


def function(call: str, x: Array, name: str) -> Array:
    """A function of floats, computed in f64; of integers, in f32."""
    number = f64(x if is_float(name) else f32(x))
    result = to(FUNCTIONS[call](number), name if is_float(name) else "f32")
    if call == "sigmoid" and name != "f64":
        result[number < -88.722] = 0  # exp(-x) overflows in f32 where the true value is below the normal numbers.
    return result


def axes(rank: int) -> list[tuple[int | None, bool]]:
    """All axes of a reduction, with and without keeping them."""
    return [(axis, keep) for axis in (None, *range(rank), -1) for keep in (False, True)]


def reduced(ufunc: Any, x: Array, axis: int | None, keep: bool) -> Array:
    """A reduction of each program's tensor; the first axis is that of the programs."""
    over = tuple(range(1, x.ndim)) if axis is None else axis + 1 if axis >= 0 else axis
    return ufunc.reduce(x, axis=over, keepdims=keep, dtype=x.dtype)


def running(ufunc: Any, x: Array, axis: int, reverse: bool = False) -> Array:
    """A scan of each program's tensor."""
    along = axis + 1 if axis >= 0 else axis
    scan = ufunc.accumulate(np.flip(x, along) if reverse else x, along, dtype=x.dtype)
    return np.flip(scan, along) if reverse else scan


def pool_of(name: str, values: Array, *shape: int) -> Array:
    """Few values, so that there are ties, with NaN, infinities and zeros among floats; a row of NaN."""
    rng = np.random.default_rng(1)
    if not is_float(name):
        return rng.choice(rng.choice(values, 6), (6, *shape))
    ends = [448, -448] if name == "f8e5m2" else [np.inf, -np.inf]  # An infinite f8e5m2 saturates in f32.
    finite = rng.choice(values[np.isfinite(f64(values))], 6)
    special = np.array([np.nan, np.nan, *ends, 0.0, -0.0]).astype(values.dtype)
    x = rng.choice(np.concatenate([finite, special]), (6, *shape))
    x[4] = np.array(np.nan, x.dtype)
    return x


def extreme(call: str, x: Array, axis: int | None, keep: bool) -> tuple[Array, Array, Array]:
    """The extreme, the leftmost element equal to it, and its place; NaN only where there is nothing else."""
    flat = x.reshape(x.shape[0], -1) if axis is None else x
    along = 1 if axis is None else axis + 1 if axis >= 0 else x.ndim - 1
    lines = np.moveaxis(flat, along, -1)
    values, elements, places = [], [], []
    for row in lines.reshape(-1, lines.shape[-1]):
        keys = (row if row.dtype.kind in "iub" else f64(row)).tolist()
        numbers = [key for key in keys if key == key]
        best = (max(numbers) if call == "max" else min(numbers)) if numbers else None
        place = keys.index(best) if numbers else 0
        value = row[place]
        if best == 0 and row.dtype.kind not in "iub":
            signs = [np.signbit(key) for key in keys if key == 0]  # 0.0 is larger than -0.0.
            value = np.array(-0.0 if (all if call == "max" else any)(signs) else 0.0).astype(row.dtype)
        values.append(value)
        elements.append(row[place])
        places.append(place)
    shape = lines.shape[:-1]
    results = [np.array(r, t).reshape(shape) for r, t in ((values, x.dtype), (elements, x.dtype), (places, np.int32))]
    if keep:
        results = [r.reshape(-1, *(1,) * (x.ndim - 1)) if axis is None else np.expand_dims(r, along) for r in results]
    return results[0], results[1], results[2]


def linear(a: Array, b: Array, axis: int, reverse: bool) -> tuple[Array, Array]:
    """The scan of steps x -> a * x + b along an axis."""
    a, b = (np.moveaxis(v, axis + 1, -1)[..., :: -1 if reverse else 1].copy() for v in (a, b))
    for i in range(1, a.shape[-1]):
        b[..., i] += b[..., i - 1] * a[..., i]
        a[..., i] *= a[..., i - 1]
    return tuple(np.moveaxis(v[..., :: -1 if reverse else 1], -1, axis + 1) for v in (a, b))  # type: ignore[return-value]


def _key(element: Any) -> Any:
    """-0.0 before 0.0, and NaN above all numbers."""
    number = element.item() if element.dtype.kind in "iub" else float(element)
    return (1, 0.0, 0) if number != number else (0, number, 0 if number else -int(np.signbit(float(number))))


def order(x: Array, descending: bool = False) -> Array:
    """The stable order of each row."""
    rows = x.reshape(-1, x.shape[-1])
    sign = -1 if descending else 1
    places = []
    for row in rows:
        keys = [_key(element) for element in row]
        ranks = {key: rank for rank, key in enumerate(sorted(set(keys)))}
        places.append(sorted(range(len(row)), key=lambda i: sign * ranks[keys[i]]))
    return np.array(places, np.int32).reshape(x.shape)


def ordered(x: Array, descending: bool = False) -> Array:
    return np.take_along_axis(x, order(x, descending), -1)


def counted(x: Array, bins: int, mask: Array | None = None) -> Array:
    mask = np.ones(x.shape, bool) if mask is None else mask
    rows = [row[kept].tolist() for row, kept in zip(x, mask, strict=True)]
    return np.array([[row.count(n) for n in range(bins)] for row in rows], np.int32)


def tf32(x: Array) -> Array:
    """10 digits after the point, to nearest, ties to even."""
    bits = x.view(np.uint32)
    odd = (bits >> np.uint32(13)) & np.uint32(1)
    return ((bits + np.uint32(0xFFF) + odd) & np.uint32(0xFFFFE000)).view(np.float32)


def bf16_twice(x: Array) -> Array:
    """The rest of f32 numbers beyond their bf16 part, as bf16."""
    return f64((x - f32(to(x, "bf16"))).astype(DTYPES["bf16"]))


def factors(name: str, *shape: int, seed: int) -> Array:
    """Operands of products that are exact in every order of summation."""
    rng = np.random.default_rng(seed)
    if name in ("i8", "u8"):
        return rng.integers(*((-128, 128) if name == "i8" else (0, 256)), shape).astype(DTYPES[name])
    return (rng.integers(-8, 9, shape) / 4).astype(DTYPES[name])


def philox(offset: int, seed: int, rounds: int = 10) -> list[int]:
    """Philox 4x32 in Python's integers."""
    c, k = [offset & 0xFFFFFFFF, offset >> 32, 0, 0], [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(rounds):
        p, q = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [q >> 32 ^ c[1] ^ k[0], q & 0xFFFFFFFF, p >> 32 ^ c[3] ^ k[1], p & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def words(offset: Array, seed: Any, rounds: int = 10) -> tuple[Array, ...]:
    """The four words for each offset and seed."""
    offset, seed = np.broadcast_arrays(offset, np.asarray(seed))
    numbers = [philox(int(o), int(s), rounds) for o, s in zip(offset.ravel(), seed.ravel(), strict=True)]
    return tuple(np.array(word, np.uint32).reshape(offset.shape) for word in zip(*numbers, strict=True))


FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def scaled(name: str, *shape: int, axis: int = -1, seed: int = 0) -> tuple[Array, Array]:
    """An operand in a microscaling format, packed along an axis, and its values."""
    rng = np.random.default_rng(seed)
    if name != "e2m1":
        dtype = {"e4m3": "f8e4m3", "e5m2": "f8e5m2", "fp16": "f16"}.get(name, name)
        elements = (rng.integers(-16, 17, shape) / 8).astype(DTYPES[dtype])
        return elements, f64(elements)
    codes = rng.integers(0, 16, shape)
    halves = [np.take(codes, range(start, shape[axis], 2), axis) for start in (0, 1)]
    return (halves[0] | halves[1] << 4).astype(np.uint8), np.where(codes & 8, -1, 1) * FP4[codes & 7]


def scales(*shape: int, seed: int) -> tuple[Array, Array]:
    """Scales near 1, and the factor of each element along the last axis."""
    codes = np.random.default_rng(seed).integers(125, 130, shape).astype(np.uint8)
    return codes, np.repeat(2.0 ** (f64(codes) - 127), 32, axis=-1)
