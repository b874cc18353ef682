"""Arithmetic of all pairs of dtypes: the promoted dtype, by a second table of the rules, and the numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

BOOL = ("i1",)
INTS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64")
ALL = (*BOOL, *INTS, *FLOATS)

# The semantics document, rule by rule, written out: what a dtype of one row gives with one of another.
KIND = {**dict.fromkeys(BOOL, 0), **dict.fromkeys(INTS, 1), **dict.fromkeys(FLOATS, 2)}
WIDTH = {"i1": 1, "f8e4m3": 8, "f8e5m2": 8, "bf16": 16, **{n: int(n[1:]) for n in (*INTS, "f16", "f32", "f64")}}


def promoted(a: str, b: str) -> str:
    if a == b:
        return a
    if KIND[a] != KIND[b]:
        return max(a, b, key=KIND.__getitem__)
    if WIDTH[a] != WIDTH[b]:
        return max(a, b, key=WIDTH.__getitem__)
    return "f16" if KIND[a] == 2 else f"u{WIDTH[a]}"


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [
        ("i32", "bf16", "bf16"), ("f32", "f16", "f32"), ("f16", "bf16", "f16"), ("i32", "u32", "u32"),
        ("f8e4m3", "f8e5m2", "f16"), ("i1", "i8", "i8"), ("u8", "i16", "i16"), ("i64", "f8e5m2", "f8e5m2"),
    ],
)  # fmt: skip
def test_promotion_table_matches_the_document(a, b, result):
    assert promoted(a, b) == promoted(b, a) == result


def narrowed(array, dtype, dtypes):
    """Floats rounded to a dtype; the 8-bit ones saturate, infinities too."""
    target = dtypes[dtype]
    if dtype in ("f8e4m3", "f8e5m2"):
        limit = {"f8e4m3": 448.0, "f8e5m2": 57344.0}[dtype]
        if array.dtype == np.float64:
            # ml_dtypes rounds by way of f32; these values are exact there or far from a tie.
            array = array.astype(np.float32)
        array = np.clip(array, -limit, limit)
    return array.astype(target)


def converted(array, source, target, dtypes):
    """The cast that promotion makes."""
    if source == target:
        return array
    if KIND[target] == 2:
        if target in ("f32", "f64"):
            return array.astype(dtypes[target])
        wide = array.astype(np.float64 if KIND[source] < 2 and target in ("f16", "bf16") else np.float32)
        return narrowed(wide, target, dtypes)
    return array.astype(dtypes[target])


def wide(array):
    """Floats under 32 bits as f32, in which their operations are exact enough to round once more."""
    return array.astype(np.float32) if array.dtype.itemsize < 4 and array.dtype.kind not in "iub" else array


def truncated(a, b):
    """C's quotient, one Python integer at a time."""
    results = []
    for x, y in zip(a.ravel().tolist(), b.ravel().tolist(), strict=True):
        quotient = abs(x) // abs(y)
        results.append(quotient if (x < 0) == (y < 0) else -quotient)
    return results


def wrapped(numbers, like):
    bits = like.dtype.itemsize * 8
    unsigned = np.array([n % (1 << bits) for n in numbers], dtype=f"u{bits // 8}")
    return unsigned.view(like.dtype).reshape(like.shape)


def sample(values, a, b):
    """All pairs of a few values of two dtypes."""
    x, y = values(a), values(b)
    if len(x) > 40:
        x = x[[0, 1, 2, 3, 7, 56, 57, 64, 80, 100, 122, 123, 124, 125, 126, 127, 128, 129, 190, 250, 254, 255]]
    if len(y) > 40:
        y = y[[0, 1, 2, 3, 8, 48, 56, 63, 81, 101, 122, 123, 124, 125, 126, 127, 128, 130, 200, 253, 254, 255]]
    return np.repeat(x, len(y)), np.tile(y, len(x))


def compiles_to(op, element, x, y, dtypes):
    """The result of a call on operands of one dtype."""
    if op in ("add", "sub", "mul", "minimum", "maximum") and element != "i1":
        if KIND[element] == 1:
            function = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "minimum": np.minimum,
                        "maximum": np.maximum}[op]  # fmt: skip
            return function(x, y)
        p, q = wide(x), wide(y)
        if op in ("minimum", "maximum"):
            less = (p < q) | ((p == q) & np.signbit(p))
            if op == "maximum":
                less = (p > q) | ((p == q) & ~np.signbit(p))
            picked = np.where(np.isnan(p), q, np.where(np.isnan(q), p, np.where(less, p, q)))
            return picked.astype(dtypes[element])  # One of the operands, an infinity too: nothing is rounded.
        function = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[op]
        return narrowed(function(p, q), element, dtypes)
    if op in ("and_", "or_", "xor"):
        return {"and_": np.bitwise_and, "or_": np.bitwise_or, "xor": np.bitwise_xor}[op](x, y)
    if op in ("minimum", "maximum"):
        return (np.logical_and if op == "minimum" else np.logical_or)(x, y)
    raise AssertionError(op)


@pytest.mark.parametrize("distance", range(len(ALL)))
def test_arithmetic_of_two_dtypes(distance, compute, values, rows, dtypes):
    """Each dtype with the one that is as far from it in the list: a few of these tests have each one on each side."""
    for a, b in zip(ALL, ALL[distance:] + ALL[:distance], strict=True):
        element = promoted(a, b)
        raw_x, raw_y = rows(*sample(values, a, b))
        x, y = (converted(v, n, element, dtypes) for v, n in ((raw_x, a), (raw_y, b)))
        lines, expected = [], {}
        ops = ["minimum", "maximum"]
        if element != "i1":
            ops += ["add", "sub", "mul"]
        else:
            for name, function in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply)):
                lines.append(f"{name} = zg.{name}(a, b)")
                expected[name] = function(x.astype(np.int32), y.astype(np.int32))
        if KIND[element] < 2:
            ops += ["and_", "or_", "xor"]
        for op in ops:
            lines.append(f"{op} = zg.{op}(a, b)")
            expected[op] = compiles_to(op, element, x, y, dtypes)
        p, q = wide(x), wide(y)
        lines.append("div = zg.div(a, b)")
        if KIND[element] == 2:
            expected["div"] = narrowed(p / q, element, dtypes)
            lines.append("mod = zg.mod(a, b)")
            expected["mod"] = narrowed(np.fmod(p, q), element, dtypes)
        else:
            # Each goes to f32 from its own dtype: -1 does not become 255 on the way because of a u8 beside it.
            expected["div"] = raw_x.astype(np.float32) / raw_y.astype(np.float32)
        for kind, function in (
            ("EQUAL", np.equal), ("NOT_EQUAL", np.not_equal), ("LESS_THAN", np.less),
            ("LESS_THAN_OR_EQUAL", np.less_equal), ("GREATER_THAN", np.greater),
            ("GREATER_THAN_OR_EQUAL", np.greater_equal),
        ):  # fmt: skip
            lines.append(f"{kind} = zg.compare(a, b, K.{kind})")
            expected[kind] = function(p, q)
        # Python's min and max of scalars are tried elsewhere.
        compute("\n".join(lines), {"a": raw_x, "b": raw_y}, expected, thorough=distance in (0, 4, 9))


@pytest.mark.parametrize("distance", range(len(INTS)))
def test_division_and_shifts_of_integers(distance, compute, values, rows, dtypes):
    """C's rounding: toward zero, the remainder with the sign of the dividend."""
    for a, b in zip(INTS, INTS[distance:] + INTS[:distance], strict=True):
        element = promoted(a, b)
        x, y = sample(values, a, b)
        keep = converted(y, b, element, dtypes) != 0
        x, y = rows(x[keep], y[keep])
        p, q = (converted(v, n, element, dtypes) for v, n in ((x, a), (y, b)))
        quotients = truncated(p, q)
        remainders = [m - n * d for m, n, d in zip(p.ravel().tolist(), q.ravel().tolist(), quotients, strict=True)]
        bits = WIDTH[element]
        by = (y % np.array(bits, y.dtype)).astype(y.dtype)
        shift = converted(by, b, element, dtypes)
        expected = {
            "quotient": wrapped(quotients, p),
            "remainder": wrapped(remainders, p),
            "left": wrapped([m << int(n) for m, n in zip(p.ravel().tolist(), shift.ravel(), strict=True)], p),
            "right": wrapped([m >> int(n) for m, n in zip(p.ravel().tolist(), shift.ravel(), strict=True)], p),
        }
        compute(
            """
            quotient = zg.floordiv(a, b)
            remainder = zg.mod(a, b)
            left = zg.shl(a, by)
            right = zg.shr(a, by)
            """,
            {"a": x, "b": y, "by": by}, expected, thorough=distance == 0,
        )  # fmt: skip


def test_python_operators_on_scalars_are_the_calls(compute, dtypes):
    a = np.array([-7, 7, -7, 7, 5, -1, 2**31 - 1, -(2**31)], np.int32)
    b = np.array([2, 2, -2, -2, 3, 7, 10, 3], np.int32)
    q, r = wrapped(truncated(a, b), a), a - b * wrapped(truncated(a, b), a)
    compute(
        """
        sums = a + b
        differences = a - b
        products = a * b
        quotients = a // b
        remainders = a % b
        ratios = a / b
        ands = a & b
        ors = a | b
        xors = a ^ b
        shifted = a << 3
        back = a >> 3
        negative = -a
        inverted = ~a
        positive = +a
        smaller = min(a, b, 1)
        larger = max(a, b)
        size = abs(a)
        below = a < b
        not_above = a <= b
        equal = a == b
        unequal = a != b
        turned = not (a > b)
        as_float = float(a)
        as_int = int(a * 0.5)
        as_bool = bool(a - 5)
        mixed = a * 2.5
        """,
        {"a": a, "b": b},
        {
            "sums": a + b, "differences": a - b, "products": a * b, "quotients": q, "remainders": r,
            "ratios": a.astype(np.float32) / b.astype(np.float32), "ands": a & b, "ors": a | b, "xors": a ^ b,
            "shifted": a << 3, "back": a >> 3, "negative": -a, "inverted": ~a, "positive": a,
            "smaller": np.minimum(np.minimum(a, b), 1), "larger": np.maximum(a, b), "size": np.abs(a), "below": a < b,
            "not_above": a <= b, "equal": a == b, "unequal": a != b, "turned": a <= b, "as_float": a.astype(np.float32),
            "as_int": np.trunc(a.astype(np.float32) * np.float32(0.5)).astype(np.int32),
            "as_bool": a != 5, "mixed": a.astype(np.float32) * np.float32(2.5),
        },
    )  # fmt: skip


def test_operators_on_constants_are_pythons(compute, kernel):
    """`//` and `%` of constants round down, unlike the calls, and constant integers have no width."""
    pairs = [(-7, 2), (7, -2), (-7, -2), (7, 2), (2**30, 7), (-1, 2**31)]
    for a, b in pairs:
        compute(
            f"""
            zg.static_assert({a} // {b} == Q and zg.floordiv({a}, {b}) == {math.trunc(a / b)})
            zg.static_assert({a} % {b} == R and zg.mod({a}, {b}) == {int(math.fmod(a, b))})
            zg.static_assert(zg.div({a}, {b}) == {a} / {b} and A ** 2 == {a} * {a})
            zg.static_assert(zg.cdiv({abs(a)}, {abs(b)}) == -(-abs(A) // abs({b})))
            zg.static_assert(zg.minimum(A, {b}) == min(A, {b}) and zg.maximum(A, {b}) == max(A, {b}))
            zg.static_assert((A << 2) >> 2 == A and zg.shl(A, 2) == {a << 2} and (A & 6 | 1 ^ 3) == {a & 6 | 1 ^ 3})
            y = zg.cast(Q, zg.i64)
            """,
            {}, {"y": np.array([a // b], np.int64)}, Q=a // b, R=a % b, A=a,
        )  # fmt: skip
    compute(
        """
        zg.static_assert(zg.next_power_of_2(0) == 1 and zg.next_power_of_2(1) == 1 and zg.next_power_of_2(17) == 32)
        zg.static_assert(zg.next_power_of_2(64) == 64 and len((1, 2, 3)) == 3 and isinstance(2.0, float))
        zg.static_assert(zg.sqrt(4) == 2.0 and zg.exp(0) == 1.0 and zg.floor(-0.5) == -1.0 and zg.abs(-3) == 3)
        zg.static_assert(zg.invert(5) == -6 and zg.neg(2.5) == -2.5 and zg.where(True, 1, 2) == 1)
        y = zg.cast(zg.clamp(5, 0, 3), zg.i32)
        """,
        {}, {"y": np.array([3], np.int32)},
    )  # fmt: skip


# A literal takes the other's dtype where its kind is not above it; else the first of its own kind that holds it.
LITERALS = [
    ("u8", "1", "u8"), ("i8", "-128", "i8"), ("i64", "3", "i64"), ("u64", "18446744073709551615", "u64"),
    ("f16", "1", "f16"), ("bf16", "0.1", "bf16"), ("f64", "0.1", "f64"), ("f32", "0.1", "f32"), ("i16", "4.0", "f32"),
    ("i1", "1", "i32"), ("i1", "3000000000", "u32"), ("i1", "5000000000", "i64"), ("i1", "10000000000000000000", "u64"),
    ("i1", "0.5", "f32"), ("i32", "1e300", "f64"), ("f16", "70000", "f16"), ("f32", "1e300", "f32"),
    ("u8", "True", "u8"),
    ("f8e4m3", "2.5", "f8e4m3"), ("f64", "7", "f64"), ("i1", "-3000000000", "i64"), ("f32", "16777217", "f32"),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "literal", "result"), LITERALS)
def test_literals(dtype, literal, result, compute, values, rows, dtypes):
    (x,) = rows(values(dtype))
    number = eval(literal)
    y = np.full(x.shape, number, dtypes[result]) if result[0] in "iu" else None
    if y is None:
        y = narrowed(np.full(x.shape, number, np.float64), result, dtypes)
    p, q = wide(converted(x, dtype, result, dtypes)), wide(y)
    total, less = p + q, p < q
    if KIND[result] == 2:
        total = narrowed(total, result, dtypes)
    for body in (f"add(x, {literal})", f"add({literal}, x)"):
        compute(f"y = zg.{body}", {"x": x}, {"y": total})
    compute(f"y = zg.compare(x, {literal}, K.LESS_THAN)", {"x": x}, {"y": less})


@pytest.mark.parametrize("dtype", ALL)
def test_one_operand(dtype, compute, values, rows, dtypes):
    (x,) = rows(values(dtype))
    lines, expected = ["size = zg.abs(x)"], {}
    if KIND[dtype] == 2:
        sign = np.array(1 << (WIDTH[dtype] - 1), f"u{x.itemsize}")
        raw = x.view(f"u{x.itemsize}")
        expected["size"] = (raw & ~sign).view(x.dtype)
        expected["negative"] = (raw ^ sign).view(x.dtype)
        lines.append("negative = zg.neg(x)")
        lines += ["down = zg.floor(x)", "up = zg.ceil(x)"]
        expected["down"] = narrowed(np.floor(wide(x)), dtype, dtypes)
        expected["up"] = narrowed(np.ceil(wide(x)), dtype, dtypes)
    else:
        expected["size"] = x if dtype == "i1" or dtype[0] == "u" else np.where(x < 0, -x, x).astype(x.dtype)
        lines.append("inverted = zg.invert(x)")
        expected["inverted"] = ~x
        lines += ["down = zg.floor(x)", "up = zg.ceil(x)"]
        expected["down"] = expected["up"] = x.astype(np.float32)
        if dtype != "i1":
            lines.append("negative = zg.neg(x)")
            expected["negative"] = (-x.astype(x.dtype)).astype(x.dtype)
    compute("\n".join(lines), {"x": x}, expected)


@pytest.mark.parametrize("dtype", ["u32", "u64", "i32", "i64"])
def test_umulhi(dtype, compute, values, rows, dtypes):
    x, y = rows(*sample(values, dtype, dtype))
    unsigned = f"u{dtype[1:]}"
    bits = WIDTH[dtype]
    p, q = (v.view(dtypes[unsigned]).ravel().tolist() for v in (x, y))
    products = [(m * n) >> bits for m, n in zip(p, q, strict=True)]
    compute(
        "y = zg.umulhi(a, b)\nz = zg.umulhi(a, 3)",
        {"a": x, "b": y},
        {
            "y": np.array(products, dtypes[unsigned]).reshape(x.shape),
            "z": np.array([m * 3 >> bits for m in p], dtypes[unsigned]).reshape(x.shape),
        },
    )


def exact(value, dtype, dtypes):
    """A fraction rounded once to a float dtype, ties to even."""
    low = float(value)
    if Fraction(low) != value and dtype != "f64":
        # To odd in f64, so that the second rounding is the only one.
        other = np.nextafter(low, np.inf if Fraction(low) < value else -np.inf)
        low = low if int(np.float64(low).view(np.int64)) & 1 else float(other)
    if dtype == "bf16":
        near = np.float64(low).astype(np.float32)
        if float(near) != low and not int(near.view(np.uint32)) & 1:
            near = np.nextafter(near, np.float32(np.inf if float(near) < low else -np.inf), dtype=np.float32)
        return near.astype(dtypes["bf16"])
    return np.float64(low).astype(dtypes[dtype])


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_fma_rounds_once(dtype, compute, rows, dtypes):
    rng = np.random.default_rng(5)
    near_one = 1 + rng.integers(-8, 8, (3, 512)) * 2.0 ** -{"f16": 10, "bf16": 7, "f32": 23, "f64": 52}[dtype]
    a, b, c = near_one.astype(dtypes[dtype])
    c[::2] = (-a * b)[::2]
    if dtype == "f16":
        # The sum is 2^-31 below the middle of two numbers: rounded to f32 first, it would be a tie.
        a[1::8], b[1::8], c[1::8] = 1 + 2.0**-10, 2.0**-11 * (1 - 2.0**-10), 1 + 2.0**-10
    expected = [
        exact(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)), dtype, dtypes)
        for x, y, z in zip(a, b, c, strict=True)
    ]
    shape = (2, 256)
    compute(
        "y = zg.fma(a, b, c)",
        {"a": a.reshape(shape), "b": b.reshape(shape), "c": c.reshape(shape)},
        {"y": np.array(expected, dtypes[dtype]).reshape(shape)},
    )


def test_fma_and_clamp_promote_all_three(compute, dtypes):
    a = np.array([[1, 2], [3, -4]], np.int32)
    b = np.array([[0.5, 2], [1.5, 3]], np.float16)
    c = np.array([[1, 1], [2, 0.25]], np.float32)
    compute(
        """
        y = zg.fma(a, b, c)
        z = zg.fma(b, 2, 1.5)
        w = zg.clamp(a, b, c)
        v = zg.clamp(b, 0, 1)
        """,
        {"a": a, "b": b, "c": c},
        {
            "y": a.astype(np.float32) * b.astype(np.float32) + c, "z": b * np.float16(2) + np.float16(1.5),
            "w": np.minimum(np.maximum(a.astype(np.float32), b.astype(np.float32)), c),
            "v": np.clip(b, np.float16(0), np.float16(1)),
        },
    )  # fmt: skip


@pytest.mark.parametrize("dtype", ["i8", "u16", "i64", "f8e5m2", "f16", "bf16", "f32", "f64"])
def test_maximum_and_minimum_ignore_nan(dtype, compute, values, rows, dtypes):
    x, low = rows(*sample(values, dtype, dtype))
    high = np.roll(low, 7)
    p, a, b = wide(x), wide(low), wide(high)
    maximum = compiles_to("maximum", dtype, x, low, dtypes)
    clamped = compiles_to("minimum", dtype, maximum, high, dtypes)
    condition = np.nan_to_num(p.astype(np.float64)) > 1
    compute(
        """
        held = zg.clamp(x, low, high)
        picked = zg.where(zg.compare(x, one, K.GREATER_THAN), x, low)
        kept = zg.where(zg.compare(x, one, K.GREATER_THAN), 0, low)
        """,
        {"x": x, "low": low, "high": high, "one": np.ones_like(x)},
        {"held": clamped, "picked": np.where(condition, x, low), "kept": np.where(condition, np.zeros_like(x), low)},
    )


def test_where_promotes_its_values_alone(compute, dtypes):
    c = np.array([[True, False, True, False]] * 2)
    a = np.arange(8, dtype=np.int16).reshape(2, 4)
    b = (np.arange(8) / 4).astype(dtypes["bf16"]).reshape(2, 4)
    compute(
        """
        y = zg.where(c, a, b)
        z = zg.where(c, 1, a)
        w = zg.where(c, a, 0.5)
        v = zg.where(zg.expand(c, 1), zg.expand(a, 0), 7)
        u = zg.where(True, a, b)
        """,
        {"c": c, "a": a, "b": b},
        {
            "y": np.where(c, a.astype(dtypes["bf16"]), b), "z": np.where(c, np.int16(1), a),
            "w": np.where(c, a.astype(np.float32), np.float32(0.5)),
            "v": np.where(c[:, :, None], a[:, None, :], np.int16(7)), "u": a.astype(dtypes["bf16"]),
        },
    )  # fmt: skip


def test_cdiv(compute):
    for dtype in (np.int32, np.int64, np.uint32, np.int16):
        x = np.array([[0, 1, 9, 10], [11, 20, 21, 1000]], dtype)
        d = np.array([[1, 2, 10, 10], [10, 7, 10, 64]], dtype)
        compute(
            "y = zg.cdiv(x, d)\nz = zg.cdiv(x, 10)",
            {"x": x, "d": d},
            {"y": -(-x.astype(int) // d).astype(dtype), "z": -(-x.astype(int) // 10).astype(dtype)},
        )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((4,), (4, 1)),
        ((8,), (2, 4, 8)),
        ((2, 4, 1), (4, 8)),
        ((), (4, 2)),
        ((1, 1), (8,)),
        ((4, 1, 2), (1, 8, 1)),
        ((), ()),
    ],
)
def test_broadcasting_pads_on_the_left(first, second, compute):
    a = np.arange(3 * int(np.prod(first)), dtype=np.int32).reshape(3, *first)
    b = (np.arange(3 * int(np.prod(second))) / 2).astype(np.float32).reshape(3, *second)
    rank = max(len(first), len(second))
    x = a.reshape(3, *(1,) * (rank - len(first)), *first).astype(np.float32)
    y = b.reshape(3, *(1,) * (rank - len(second)), *second)
    compute(
        """
        total = zg.add(a, b)
        product = zg.mul(b, a)
        less = zg.compare(a, b, K.LESS_THAN)
        picked = zg.where(zg.compare(a, 5, K.LESS_THAN), a, b)
        kept = zg.clamp(a, 1.0, b)
        """,
        {"a": a, "b": b},
        {
            "total": x + y, "product": x * y, "less": x < y, "picked": np.where(x < 5, x, y),
            "kept": np.minimum(np.maximum(x, 1), y),
        },
    )  # fmt: skip


@pytest.mark.parametrize("name", FLOATS)
def test_nan_that_propagates(name, compute, values, dtypes):
    some = values(name) if dtypes[name].itemsize > 1 else values(name)[::5]
    x, y = (grid.reshape(1, -1) for grid in np.meshgrid(some, some))
    size = 1 << (x.size - 1).bit_length()
    x, y = (np.resize(grid, (1, size)) for grid in (x, y))
    wide, other = x.astype(np.float64), y.astype(np.float64)
    nan = np.isnan(wide) | np.isnan(other)
    zeros = (wide == 0) & (other == 0)
    signs = np.signbit(wide), np.signbit(other)
    expected = {}
    for result, choose, sign in (("low", np.minimum, signs[0] | signs[1]), ("high", np.maximum, signs[0] & signs[1])):
        extreme = np.where(choose(wide, other) == wide, x, y)
        extreme = np.where(zeros, np.where(sign, -0.0, 0.0).astype(x.dtype), extreme)
        expected[result] = np.where(nan, np.array(np.nan, x.dtype), extreme).astype(x.dtype)
    body = "low = zg.minimum(x, y, propagate_nan=True)\nhigh = zg.maximum(x, y, True)"
    compute(body, {"x": x, "y": y}, expected)


def test_nan_that_a_clamp_propagates(compute):
    x = np.array([[np.nan, -3, 0.5, 9]], np.float32)
    expected = {"y": np.clip(x, -1, 2), "z": np.array([[-1, -1, 0.5, 2]], np.float32)}
    compute("y = zg.clamp(x, -1.0, 2.0, propagate_nan=True)\nz = zg.clamp(x, -1.0, 2.0)", {"x": x}, expected)


def test_nan_of_constants(compute):
    body = """
    zg.static_assert(zg.maximum(1, 2, propagate_nan=True) == 2)
    y = zg.cast(zg.maximum(float("nan"), 2.0, propagate_nan=True), zg.f32)
    z = zg.cast(zg.clamp(float("nan"), 0.0, 2.0), zg.f32)
    """
    compute(body, {"x": np.zeros(1)}, {"y": np.array([np.nan], np.float32), "z": np.zeros(1, np.float32)})


@pytest.mark.parametrize("name", ("f16", "bf16", "f32", "f64"))
def test_quotients_of_floats(name, compute, dtypes):
    x, y = (np.random.default_rng(seed).standard_normal((2, 16)).astype(dtypes[name]) for seed in (0, 1))
    expected = (x.astype(np.float64) / y.astype(np.float64)).astype(dtypes[name])
    compute(
        "p = zg.fdiv(x, y)\nq = zg.fdiv(x, y, ieee_rounding=True)", {"x": x, "y": y}, {"p": expected, "q": expected}
    )
