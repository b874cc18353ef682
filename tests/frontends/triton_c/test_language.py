"""The results of programs of Triton-C, on the interpreter against NumPy."""

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.frontends.triton_c.reader import read_kernel

RANDOM = np.random.default_rng(0)


def run(source: str, *arguments: object, grid: object = 1, **macros: object) -> None:
    zg.triton_c(source, **macros)[grid](*arguments)


def outputs(body: str, inputs: str = "", *arguments: object, shape: tuple[int, ...] = (8,), dtype: object = np.float32):
    """The array that the statements of a kernel leave in `out`."""
    out = np.zeros(shape, dtype)
    name = {"float32": "float", "int32": "int", "float64": "double", "int64": "long"}[np.dtype(dtype).name]
    run(f"__global__ void f({name} *out{', ' if inputs else ''}{inputs}) {{ {body} }}", out, *arguments)
    return out


def scalar(expression: str, dtype: object = np.int32, inputs: str = "", *arguments: object):
    return outputs(f"*out = {expression};", inputs, *arguments, shape=(1,), dtype=dtype)[0]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("7 / 2", 3), ("-7 / 2", -3), ("7 / -2", -3), ("-7 % 3", -1), ("7 % -3", 1), ("(-7) / 2", -3),
        ("1 + 2 * 3", 7), ("(1 + 2) * 3", 9), ("1 << 4", 16), ("-16 >> 2", -4), ("6 & 3", 2), ("6 | 3", 7),
        ("6 ^ 3", 5), ("~5", -6), ("!5", 0), ("!0", 1), ("3 < 4", 1), ("3 == 4", 0), ("2 && 0", 0), ("2 && 3", 1),
        ("0 || 5", 1), ("1 ? 2 : 3", 2), ("0 ? 2 : 3", 3), ("0x1F", 31), ("017", 15), ("0b101", 5), ("'a'", 97),
        ("'\\n'", 10), ("'\\0'", 0), ("'\\x41'", 65), ("5u", 5), ("5l + 1", 6), ("sizeof(float)", 4),
        ("sizeof(long)", 8), ("sizeof(half*)", 8), ("(int)3.9", 3), ("(int)-3.9", -3), ("min(3, 4)", 3),
        ("max(3, 4)", 4), ("abs(-3)", 3), ("10 - 3 - 2", 5), ("2 * 3 % 4", 2), ("1 + 2 << 3", 24), ("7 & 3 == 3", 1),
        ("1 | 2 ^ 3 & 2", 1), ("1 < 2 == 1", 1), ("-2 * -3", 6), ("+5", 5), ("- - 5", 5), ("true + true", 2),
        ("(3 > 2) + (2 > 1)", 2), ("-(3 > 2)", -1), ("(3 > 2) << 3", 8), ("(2 > 1) / (2 > 1)", 1),
        ("INT_MAX", 2**31 - 1),
        ("(char)300", 44), ("(unsigned char)-1", 255), ("(bool)7", 1), ("(short)40000", -25536), ("(1, 2)", 2),
        ("INT_MIN", -(2**31)), ("UINT_MAX == 4294967295", 1), ("LONG_MAX == 9223372036854775807", 1),
        ("LONG_MIN == -LONG_MAX - 1", 1), ("true", 1), ("false", 0), ("'\\t'", 9), ("'\\r'", 13), ("'\\a'", 7),
        ("'\\b'", 8), ("'\\f'", 12), ("'\\v'", 11), ("'\\\\'", 92), ("'\\''", 39), ("'\\101'", 65), ("'\\7'", 7),
        ("5ull", 5), ("(2u << 31) == 0", 1), ("(2ul << 31) == 0", 0), ("0xFFFFFFFFFFu >> 36", 15), ("010 - 8", 0),
        ("(1u - 2u) / 2u", 2**31 - 1), ("sizeof(short)", 2), ("sizeof(char)", 1), ("sizeof(unsigned long long)", 8),
        ("sizeof(long int)", 8), ("sizeof(short int)", 2), ("sizeof(signed)", 4), ("sizeof(int unsigned)", 4),
        ("(unsigned short)-1", 65535), ("(signed char)200", -56), ("(uint8_t)-1", 255), ("(int16_t)40000", -25536),
        ("cdiv(7, 2)", 4), ("1 ? 2 : 0 ? 3 : 4", 2), ("0 ? 2 : 0 ? 3 : 4", 4), ("!!7", 1), ("3 - -3", 6),
    ],
)  # fmt: skip
def test_constant_expressions_are_those_of_c(expression: str, value: int):
    assert scalar(expression) == value


@pytest.mark.parametrize(
    "name", ["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "<", ">", "<=", ">=", "==", "!=", "&&", "||"]
)
def test_integer_operators_at_run_time_are_those_of_c(name: str):
    a, b = RANDOM.integers(-50, 50, 64).astype(np.int32), RANDOM.integers(1, 7, 64).astype(np.int32)
    out = np.zeros(64, np.int32)
    run(
        "__global__ void f(int *a, int *b, int *out)"
        f"{{ int i[64] = 0 ... 64; *(out + i) = *(a + i) {name} *(b + i); }}",
        a,
        b,
        out,
    )
    wide = {
        "/": lambda x, y: int(x / y), "%": lambda x, y: x - int(x / y) * y, "&&": lambda x, y: int(bool(x) and bool(y)),
        "||": lambda x, y: int(bool(x) or bool(y)),
    }  # fmt: skip
    meaning = wide.get(name) or (lambda x, y: eval(f"int(x {name} y)"))
    assert list(out) == [np.int64(meaning(int(x), int(y))).astype(np.int32) for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("n >> u", -4), ("-8 >> u", -4), ("(n << u) < 0", 1), ("(1 << u) - 4 < 0", 1), ("n >> l", -4), ("c << 8", 1280),
        ("c << k", 1280), ("n >> c", -1), ("(n < 0) << 3", 8), ("n >> (n < 0)", -4), ("(unsigned)n >> 31", 1),
    ],
)  # fmt: skip
def test_the_count_of_a_shift_does_not_decide_its_type(expression: str, value: int):
    inputs = "int n, unsigned u, long l, char c, int k"
    assert scalar(expression, np.int32, inputs, -8, 1, 1, 5, 8) == value
    assert scalar("m << l", np.int64, "int m, long l", 1 << 30, 2) == 0


@pytest.mark.parametrize(
    ("loop", "inputs", "argument", "value"),
    [
        ("int i = 0; i < n; i++", "float n", 3.5, 4), ("int i = 0; i < (int)n; i++", "float n", 3.5, 3),
        ("int i = 0; i < halved(n); i++", "int n", 7, 4), ("int i = 0; i < 2.5f * n; i++", "int n", 1, 3),
        ("int i = -3; i < n; i++", "unsigned n", 10, 0), ("int i = -3; i < n; i++", "int n", 4, 7),
        ("int i = 0; i < n; i += 2", "float n", 3.5, 2), ("int i = 0; i < 9; i += n", "float n", 2.5, 5),
        ("int i = 0; i < max(n, 2.5f); i++", "int n", 1, 3), ("int i = 0; i < sqrtf(n + 0.5f); i++", "int n", 4, 3),
        ("int i = 0; i < sqrtf(n); i++", "float n", 5, 3), ("int i = 0; i < cast(n, float); i++", "int n", 3, 3),
        ("int i = 0; i < M_PI; i++", "int n", 0, 4), ("int i = 0; i < abs(n); i++", "int n", -3, 3),
        ("int i = 5; i > n; i = i - 2", "int n", 0, 3), ("int i = 5; n < i; i -= 2", "int n", 0, 3),
        ("int i = 5; i >= n; i--", "int n", 5, 1), ("int i = 0; i <= n; i += 3", "int n", 6, 3),
        ("int i = n; i != 0; i--", "int n", 3, 3), ("int i = 0; n >= i; i++", "int n", 2, 3),
    ],
)  # fmt: skip
def test_a_loop_compares_its_counter_as_c_does(loop: str, inputs: str, argument: object, value: int):
    out = np.zeros(1, np.int32)
    source = "float halved(int n) { return n * 0.5f; }"
    run(f"{source} __global__ void f(int *out, {inputs}) {{ int s = 0; for ({loop}) s++; *out = s; }}", out, argument)
    assert out[0] == value


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("M_PI", np.pi), ("M_E", np.e), ("FLT_MAX", np.finfo("f4").max), ("FLT_MIN", np.finfo("f4").tiny),
        ("FLT_EPSILON", np.finfo("f4").eps), ("INFINITY", np.inf), ("-INFINITY", -np.inf), ("NAN", np.nan),
        (".5e1", 5), ("1.e-1f", 0.1), ("0x1.8p1", 3), ("0x1p-1f", 0.5), ("2.5L", 2.5), ("7 / 2.0", 3.5), ("-0.0", -0.0),
    ],
)  # fmt: skip
def test_constant_floats_are_those_of_c(expression: str, value: float):
    actual = scalar(expression, np.float32)
    np.testing.assert_array_equal(actual, np.float32(value))
    assert np.signbit(actual) == np.signbit(value)


@pytest.mark.parametrize(
    ("expression", "divisor"),
    [
        ("16", 16), ("24", 8), ("-(-16)", 16), ("+8", 8), ("~-9", 8), ("!0 * 4", 4), ("!7 + 4", 4), ("3 << 3", 8),
        ("64 >> 2", 16), ("100 / 6", 16), ("-100 / -6", 16), ("60 - -100 / 25", 64), ("36 % 20", 16),
        ("32 + -20 % 16 * 4", 16), ("12 & 24", 8), ("8 | 16", 8), ("12 ^ 4", 8), ("(3 == 3) * 2", 2),
        ("(3 != 3) + 4", 4),
        ("(2 < 3) * 2", 2), ("(3 < 3) + 2", 2), ("(3 > 3) + 2", 2), ("(3 <= 3) * 2", 2), ("(2 >= 2) * 4", 4),
        ("(2 && 0) + 2", 2), ("(0 && 2) + 2", 2), ("(3 && 2) * 2", 2), ("(0 || 0) + 4", 4), ("(0 || 6) * 4", 4),
        ("'@'", 64), ("true * 4", 4), ("1 << 40", 1 << 30), ("(1 << 31) * 2", 1 << 30),
        ("2 * 3 * 4", 8), ("1 << 63", 1 << 30),
    ],
)  # fmt: skip
def test_divisors_are_expressions_of_constants(expression: str, divisor: int):
    kernel = read_kernel(f"__global__ void f(int n __multipleof({expression})) {{ }}", "f.c", {})
    assert [parameter.divisibility for parameter in kernel.parameters] == [divisor]


@pytest.mark.parametrize("expression", ["0", "-4", "n", "4 / 0", "4 % 0", "1 << 64", "1 << -1", "2.0", "f(2)", "4 @ 4"])
def test_divisors_are_positive_constants(expression: str):
    with pytest.raises(zg.KernelSyntaxError, match="__multipleof must have a positive number"):
        read_kernel(f"__global__ void f(int n __multipleof({expression})) {{ }}", "f.c", {})


def test_functions_of_floats_have_their_names_in_c():
    value = scalar(
        "fminf(x, 2) + fmaxf(x, 4) * 10 + fmodf(x, 2) * 100 + fabsf(-x) + sqrtf(9)", np.float32, "float x", 3.0
    )
    assert value == 2 + 40 + 100 + 3 + 3
    with pytest.raises(zg.KernelNameError, match="there is no function 'minf'"):
        scalar("minf(1, 2)")


def test_a_range_binds_tighter_than_arithmetic():
    assert list(outputs("int i[8] = 3 * 2 + 0 ... 8; *(out + (0 ... 8)) = i;", dtype=np.int32)) == [*range(6, 14)]
    assert list(outputs("int i[8] = 0 ... 8 + 1; *(out + (0 ... 8)) = i;", dtype=np.int32)) == [*range(1, 9)]
    assert list(outputs("*(out + 0 ... 8) = 2 ... 10;", dtype=np.int32)) == [*range(2, 10)]


def test_the_first_listing_of_the_document():
    actual = outputs(
        """
        float x[16, 8] = 3.14;
        float y[16, 8] = 5.17;
        float z[16, 8] = x + y;
        float u[16] = z[:, +]; // sum along the second axis
        float v[16, 32] = u[:, newaxis]; // broadcasting along the second axis
        int i[16] = 0 ... 16, j[32] = 0 ... 32;
        *(out + i[:, newaxis] * 32 + j[newaxis, :]) = v;
        """,
        shape=(16, 32),
    )
    assert np.allclose(actual, 8 * (3.14 + 5.17))


def test_subscripts_reduce_and_add_axes():
    x = RANDOM.standard_normal((8, 16)).astype(np.float32)
    body = """
    int i[8] = 0 ... 8, j[16] = 0 ... 16;
    float t[8, 16] = *(x + i[:, newaxis] * 16 + j[newaxis, :]);
    *(out + i) = {};
    """
    for index, expected in [
        ("t[:, +]", x.sum(1)), ("t[:, max]", x.max(1)), ("t[:, min]", x.min(1)), ("(^t)[max, :]", x.max(1)),
    ]:  # fmt: skip
        assert np.allclose(outputs(body.format(index), "float *x", x), expected, atol=1e-5), index
    total = outputs(body.replace("*(out + i)", "*out").format("t[+, max]"), "float *x", x, shape=(1,))
    assert np.allclose(total, x.max(1).sum(), atol=1e-4)


def test_masked_loads_and_stores():
    x = RANDOM.standard_normal(5).astype(np.float32)
    body = "int i[8] = 0 ... 8; bool ok[8] = i < n; *?(ok)(out + i) = *?(ok)(x + i) * 2;"
    assert np.allclose(outputs(body, "float *x, int n", x, 5), [*(2 * x), 0, 0, 0])
    body = "int i[8] = 0 ... 8; *(out + i) = *?(i < n)(x + i);"
    assert np.allclose(outputs(body, "float *x, int n", x, 5), [*x, 0, 0, 0])


@pytest.mark.parametrize(
    "value",
    ["i < n ? *(x + i) : 7", "i >= n ? 7 : *(x + i)", "i < n ? (*(x + i)) : 7.0", "(i < n) && 1 ? *(x + i) : 7",
     "select(i < n, *?(i < n)(x + i), 7.0)", "i < n ? *(x + i) + 0 : 7", "i < n ? -(- *(x + i)) : 7"],
)  # fmt: skip
def test_an_operand_that_c_would_not_evaluate_is_not_loaded(value: str):
    x = RANDOM.standard_normal(5).astype(np.float32)
    actual = outputs(f"int i[8] = 0 ... 8; *(out + i) = {value};", "float *x, int n", x, 5)
    assert np.allclose(actual, [*x, 7, 7, 7])


def test_logical_operators_mask_their_second_operand():
    x = np.array([1, 0, 1, 0, 1], np.int32)
    body = "int i[8] = 0 ... 8; *(out + i) = i < n && *(x + i);"
    assert list(outputs(body, "int *x, int n", x, 5, dtype=np.int32)) == [1, 0, 1, 0, 1, 0, 0, 0]
    body = "int i[8] = 0 ... 8; *(out + i) = i >= n || *(x + i);"
    assert list(outputs(body, "int *x, int n", x, 5, dtype=np.int32)) == [1, 0, 1, 0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("i < n ? (i > 0 ? *(x + i - 1) : 7) : 9", [7, 1, 2, 3, 4, 9, 9, 9]),
        ("i >= n ? 9 : i == 0 ? 7 : *(x + i - 1)", [7, 1, 2, 3, 4, 9, 9, 9]),
        ("i < n ? *?(i > 0)(x + i - 1) : 9", [0, 1, 2, 3, 4, 9, 9, 9]),
        ("*?(i < n) (x + *(at + i))", [5, 4, 3, 2, 1, 0, 0, 0]),
        ("i < n && (i == 0 || *(x + i - 1) > 2)", [1, 0, 0, 1, 1, 0, 0, 0]),
        ("i >= n || !(*(x + i) == 3)", [1, 1, 0, 1, 1, 1, 1, 1]),
        ("i < n ? 60 / *(x + i) : -1", [60, 30, 20, 15, 12, -1, -1, -1]),
        ("i < n ? 60 % *(x + i) + (i > 2 ? 7 / (i - 2) : 0) : -1", [0, 0, 0, 7, 3, -1, -1, -1]),
        ("0 ? *(x + 100) : 3", [3] * 8), ("1 ? 4 : *(x + 100)", [4] * 8), ("0 && *(x + 100)", [0] * 8),
        ("1 || *(x + 100)", [1] * 8), ("i < n ? *(x + i) : *(at + i - n)", [1, 2, 3, 4, 5, 4, 3, 2]),
        ("i < n ? *(x + i) : 2.5", [1, 2, 3, 4, 5, 2, 2, 2]),
    ],
)  # fmt: skip
def test_conditions_in_each_other_mask_what_they_guard(value: str, expected: list[int]):
    x, at = np.array([1, 2, 3, 4, 5], np.int32), np.array([4, 3, 2, 1, 0], np.int32)
    body = f"int i[8] = 0 ... 8; *(out + i) = {value};"
    assert outputs(body, "int *x, int *at, int n", x, at, 5, dtype=np.int32).tolist() == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("int t[8, 2] = join(i, i * 2); *(out + i) = split(t)[1];", [0, 2, 4, 6, 8, 10, 12, 14]),
        ("int t[8, 2] = join(i, i * 2); *(out + i) = split(t)[2 - 2];", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("*(out + i) = (i + i)[+];", [56] * 8), ("*(out + i) = zeros({8, 4}, int)[:, +] + i;", [*range(8)]),
        ("*(out + i) = abs(i)[max];", [7] * 8),
        ("*(out + i) = i; (void) atomic_add(out, 5);", [5, 1, 2, 3, 4, 5, 6, 7]),
        ("*(out + i) = i, *out = 9;", [9, *range(1, 8)]),
        ("int k[8] = {}; *(out + i) = k;", [0] * 8), ("int k[8] = {0}; *(out + i) = k + 1;", [1] * 8),
        ("int k[8] = 3; k += i; *(out + i) = k;", [3, 4, 5, 6, 7, 8, 9, 10]),
        ("*(out + i) = shaped(i) + 1;", [2, 3, 4, 5, 6, 7, 8, 9]), ("*(out + i) = any(i);", [*range(10, 18)]),
        ("*(out + i) = none();", [4] * 8), ("*(out + i) = LIMIT + LEVELS;", [19] * 8),
        ("int s = 0; { int s = 5; s++; } for (int s = 0; s < 3; s++) { int t = s; } *(out + i) = s;", [0] * 8),
        ("*(out + i) = true ? 1, 2 : 3;", [2] * 8),
    ],
)  # fmt: skip
def test_small_programs(body: str, expected: list[int]):
    source = """
    const int LIMIT = 1 << 4, LEVELS = 3;
    int shaped(int x[8]) { return x + 1; }
    int any(int x[...]) { return x + 10; }
    int none(void) { return 4; }
    """
    out = np.zeros(8, np.int32)
    run(f"{source} __global__ void f(int *out) {{ int i[8] = 0 ... 8; {body} }}", out)
    assert out.tolist() == expected


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("int g(int n __multipleof(8)) { return n; } __global__ void f(int *o, int n) { *o = g(n); }", "@[8]"),
        ("__global__ void f(int *o, int n) { int k __multipleof(24) = n; *o = k; }", "@[8]"),
        ("__global__ void f(int *o, int n) { int *p __aligned(32) = o + n; *p = 1; }", "@[32]"),
        ("__global__ void f(int *o, int n) { int *p __multipleof(4) __aligned(64) = o + n; *p = 1; }", "@[64]"),
        ("__global__ void f(int *o, int n) { int *p __aligned(4) __multipleof(64) = o + n; *p = 1; }", "@[64]"),
        ("__global__ void f(int *o, int n) { int k __aligned(64) = n; *o = k; }", None),
    ],
)
def test_hints_of_declarations(source: str, hint: str | None):
    text = str(zg.triton_c(source).triton())
    assert ("tt.multiple_of" in text) == (hint is not None) and (hint is None or hint in text)


def test_a_division_that_c_would_not_evaluate_is_harmless():
    assert scalar("n ? 6 / n : -1", np.int32, "int n", 0) == -1
    assert scalar("n ? 6 / n : -1", np.int32, "int n", 4) == 1
    assert scalar("n && 6 % n == 2", np.int32, "int n", 0) == 0


def test_declared_types_convert_at_each_assignment():
    assert scalar("x", np.float32, "float x", 3) == 3
    body = "int x = 3.9; x = x + 0.9; x += 1.7; *out = x;"
    assert outputs(body, shape=(1,), dtype=np.int32)[0] == 4
    body = "char c = 127; c++; *out = c;"
    assert outputs(body, shape=(1,), dtype=np.int32)[0] == -128
    body = "unsigned u = -1; *out = u == UINT_MAX;"
    assert outputs(body, shape=(1,), dtype=np.int32)[0] == 1
    body = "half h = 1.0 / 3; *out = h;"
    assert outputs(body, shape=(1,))[0] == np.float16(1 / 3)
    body = "bool b = 0.5; *out = b;"
    assert outputs(body, shape=(1,), dtype=np.int32)[0] == 1


def test_compound_assignments_and_steps():
    body = "int x = 5; x += 3; x -= 1; x *= 4; x /= 3; x %= 5; x <<= 3; x >>= 1; x |= 3; x ^= 1; x &= 14; *out = x;"
    x = 5 + 3 - 1
    x = x * 4 // 3 % 5
    x = ((x << 3 >> 1 | 3) ^ 1) & 14
    assert outputs(body, shape=(1,), dtype=np.int32)[0] == x
    body = """
    int i = 4; int a = i++; int b = ++i; int c = i--; int d = --i;
    *(out + 0 ... 1) = a; *(out + 1) = b; *(out + 2) = c; *(out + 3) = d;
    """
    assert list(outputs(body, shape=(4,), dtype=np.int32)) == [4, 6, 6, 4]
    assert list(outputs("int a, b; a = b = 3; *out = a + b;", shape=(1,), dtype=np.int32)) == [6]
    assert list(outputs("int a = 1, b = 2; a = 5, b = 6; *out = a * b;", shape=(1,), dtype=np.int32)) == [30]
    out = np.full(1, 3, np.int32)
    run("__global__ void f(int *p) { *p += 4; (*p)++; *p *= 2; }", out)
    assert out[0] == 16


@pytest.mark.parametrize(
    ("head", "count"),
    [
        ("int i = 0; i < n; i++", 5), ("int i = 0; i <= n; i++", 6), ("int i = n; i > 0; i--", 5),
        ("int i = n; i >= 0; --i", 6), ("int i = 0; i < n; i += 2", 3), ("int i = n; i > 0; i -= 3", 2),
        ("int i = 0; n > i; ++i", 5), ("int i = 0; i != n; i++", 5), ("int i = 0; i < n; i = i + 2", 3),
        ("int i = 0; i < n; i = 2 + i", 3), ("int i = 10; i < n; i++", 0), ("long i = 0; i < n; i++", 5),
        ("unsigned i = 0; i < n; i++", 5), ("unsigned i = n; i > 0; i--", 5), ("char i = 0; i < n; i++", 5),
        ("int i = 0; i < n + n; i += s", 4), ("int i = n; i > 0; i -= s", 2), ("float i = 0; i < n; i += 0.5", 10),
        ("int i = 1; i < 100; i *= 3", 5), ("int i = 0, j = 9; i < j; i++, j--", 5),
        ("int i = 0; i * i < 50; i++", 8), ("int i = 0; i < n && i < 3; i++", 3), ("int i = 0; n; n--", 5),
        ("int i = 8; i; i = i / 2", 4), ("int i = 0; i < 6; i += 1 + 1", 3), ("int i = 6; i > 0; i += -2", 3),
        ("; n; n -= 1", 5), ("n = 3; n > 0; n--", 3),
    ],
)  # fmt: skip
def test_loops_run_as_often_as_in_c(head: str, count: int):
    body = f"int total = 0; for ({head}) total++; *out = total;"
    assert outputs(body, "int n, int s", 5, 3, shape=(1,), dtype=np.int32)[0] == count


def test_only_loops_that_count_become_ranges():
    def op(head: str, body: str = "t += i;") -> str:
        kernel = zg.triton_c(f"__global__ void f(int *p, int n) {{ int t = 0; for ({head}) {{ {body} }} *p = t; }}")
        return next(op.NAME for op in kernel.triton().walk() if op.NAME.startswith("scf."))

    assert op("int i = 0; i < n; i++") == "scf.for"
    assert op("int i = n; i > 0; i -= 4") == "scf.for"
    assert op("int i = 0; i < n; i++", "t += i; i++;") == "scf.while"
    assert op("int i = 0; i < n; i++", "n = n - 1; t += i;") == "scf.while"
    assert op("int i = n; i > 0; i += -4") == op("int i = 0; i < ~-n; i++") == "scf.for"
    assert op("int i = 0; i < cdiv(n, 4); i++") == op("int i = 0; i < (n); (i)++") == "scf.for"
    assert op("int i = n; i != 0; i--") == op("int i = 0; n >= i; i = 1 + i") == "scf.for"
    assert op("int i = 0; i < *p; i++") == "scf.while"
    assert op("int i = 0; i < n; i++", "t += i; n++;") == op("int i = 0; i < n; i++", "t += i; --n;") == "scf.while"
    assert op("int i = 0; i < n; i++", "t += i; (i) = i;") == op("int i = 0; i != n; i += 2") == "scf.while"
    assert op("int i = 0; i < i + n; i++", "t += i; if (i > 3) break;") == "scf.while"
    assert op("int i = 0; i < n; i = 9 - i") == op("int i = 0; i < n; i = n - 1") == "scf.while"
    assert op("int i = 0; i > n; i++") == "scf.while"
    assert op("unsigned i = n; i > 0; i -= 2") == "scf.while"


def test_while_do_break_and_continue():
    body = "int i = 0, t = 0; while (1) { i++; if (i == 3) continue; if (i > n) break; t += i; } *out = t;"
    assert outputs(body, "int n", 6, shape=(1,), dtype=np.int32)[0] == 1 + 2 + 4 + 5 + 6
    body = "int t = 0; for (int i = 0; i < 10; i++) { if (i % 2) continue; t += i; } *out = t;"
    assert outputs(body, shape=(1,), dtype=np.int32)[0] == 20
    body = "int t = 0; for (int i = 0;; i++) { if (i == n) break; t++; } *out = t;"
    assert outputs(body, "int n", 3, shape=(1,), dtype=np.int32)[0] == 3
    body = "int t = 0, i = 100; for (; i > 0; i /= 2) { if (i == 25) continue; t += i; } *out = t;"
    assert outputs(body, shape=(1,), dtype=np.int32)[0] == 100 + 50 + 12 + 6 + 3 + 1
    body = "int t = 0; do { t++; } while (t < n); *out = t;"
    assert outputs(body, "int n", 4, shape=(1,), dtype=np.int32)[0] == 4
    assert outputs(body, "int n", 0, shape=(1,), dtype=np.int32)[0] == 1
    body = "int t = 0, i = 0; do { i++; if (i == 2) continue; t += i; } while (i < n); *out = t;"
    assert outputs(body, "int n", 4, shape=(1,), dtype=np.int32)[0] == 8
    body = "int t = 0; for (int i = 0; i < 4; i++) for (int j = 0; j < 4; j++) { if (j > i) break; t++; } *out = t;"
    assert outputs(body, shape=(1,), dtype=np.int32)[0] == 10


def test_if_else_and_returns():
    body = "if (n > 3) *out = 1; else if (n > 1) *out = 2; else { *out = 3; }"
    assert [outputs(body, "int n", n, shape=(1,), dtype=np.int32)[0] for n in (5, 2, 0)] == [1, 2, 3]
    body = "*out = 1; if (n) return; *out = 2;"
    assert [outputs(body, "int n", n, shape=(1,), dtype=np.int32)[0] for n in (5, 0)] == [1, 2]
    body = "for (int i = 0; i < 10; i++) { *out = i; if (i == n) return; } *out = 99;"
    assert [outputs(body, "int n", n, shape=(1,), dtype=np.int32)[0] for n in (4, 20)] == [4, 99]
    body = """
    for (int i = 0; i < 5; i++) for (int j = 0; j < 5; j++) { *out = i * 10 + j; if (i * j == n) return; }
    *out = 99;
    """
    assert [outputs(body, "int n", n, shape=(1,), dtype=np.int32)[0] for n in (6, 50)] == [23, 99]


def test_names_are_those_of_the_innermost_block():
    body = """
    int x = 1;
    { int x = 2; x = 3; { float x = 0.5; } }
    if (1) { int x = 9; }
    for (int x = 5; x < 6; x++);
    *out = x;
    """
    assert outputs(body, shape=(1,), dtype=np.int32)[0] == 1
    body = "int t = 0; for (int i = 0; i < 3; i++) { int i = 7; t += i; } *out = t;"
    assert outputs(body, shape=(1,), dtype=np.int32)[0] == 21
    body = "int t = 0, k = 0; for (k = 0; k < 3; k++) { int k = 100; if (t > 150) continue; t += k; } *out = t;"
    assert outputs(body, shape=(1,), dtype=np.int32)[0] == 200


def test_functions():
    source = """
    const float HALF = 0.5;
    __device__ float square(float x) { return x * x; }
    float halved(float x[...]) { return x * HALF; }
    int sign(int x) { if (x < 0) return -1; if (x > 0) return 1; return 0; }
    int first(int n) { for (int i = 0; i < 100; i++) { if (i * i >= n) return i; } return -1; }
    void put(float *p, float value) { *p = value; }
    float add2(float a, float b) { return a + b; }
    __global__ void f(float *out, int n) {
      put(out, square(3));
      int i[8] = 0 ... 8;
      float t[8] = i;
      *(out + 1) = halved(t)[+];
      *(out + 2) = sign(-5) + sign(0) * 10 + sign(n) * 100;
      put(out + 3, first(n));
      *(out + 4) = reduce(t, 0, add2);
    }
    """
    out = np.zeros(5, np.float32)
    run(source, out, 30)
    assert list(out) == [9, 14, 99, 6, 28]


def test_the_library():
    x = np.abs(RANDOM.standard_normal(8)).astype(np.float32)
    for call, expected in [
        ("sqrt(x)", np.sqrt(x)), ("expf(x)", np.exp(x)), ("logf(x)", np.log(x)), ("fmax(x, 0.5)", np.maximum(x, 0.5)),
        ("min(x, 0.5)", np.minimum(x, 0.5)), ("select(x > 1, x, 0.0)", np.where(x > 1, x, 0)), ("fabs(-x)", x),
        ("cumsum(x, 0)", np.cumsum(x)), ("x - max(x)", x - x.max()), ("x - sum(x, 0)", x - x.sum()),
        ("zeros(8, float)", 0 * x), ("cast(x, int)", np.trunc(x)), ("gather(x, 7 - (0 ... 8), 0)", x[::-1]),
    ]:  # fmt: skip
        actual = outputs(f"int i[8] = 0 ... 8; float x[8] = *(in + i); *(out + i) = {call};", "float *in", x)
        assert np.allclose(actual, expected, atol=1e-5), call


def test_atomics_convert_their_values():
    out = np.zeros(1, np.float32)
    run("__global__ void f(float *p) { atomic_add(p, 2); }", out, grid=5)
    assert out[0] == 10
    out = np.zeros(8, np.int32)
    run(
        "__global__ void f(int *p) { int i[8] = 0 ... 8; atomic_add(p + i, 1.0, i < 4); atomic_max(p, 3); }",
        out,
        grid=3,
    )
    assert list(out) == [5, 3, 3, 3, 0, 0, 0, 0]


def test_matrix_products():
    a, b = RANDOM.standard_normal((16, 32)).astype(np.float32), RANDOM.standard_normal((32, 16)).astype(np.float32)
    source = """
    __global__ void f(float *a, float *b, float *c) {
      int i[16] = 0 ... 16, k[32] = 0 ... 32;
      float x[16, 32] = *(a + i[:, newaxis] * 32 + k[newaxis, :]);
      float y[32, 16] = *(b + k[:, newaxis] * 16 + i[newaxis, :]);
      float z[16, 16] = 1;
      PRODUCT
      *(c + i[:, newaxis] * 16 + i[newaxis, :]) = z;
    }
    """
    for product, expected in [
        ("z = x @ y;", a @ b), ("z += x @ y;", 1 + a @ b), ("z = z + x @ y;", 1 + a @ b),
        ("z = 2 * z + x @ y;", 2 + a @ b), ("z -= x @ y;", 1 - a @ b), ("z = ^y @ ^x;", (a @ b).T),
        ("z = x @ y * 2;", 2 * (a @ b)), ("z @= x @ y;", np.ones((16, 16)) @ (a @ b)),
    ]:  # fmt: skip
        c = np.zeros((16, 16), np.float32)
        run(source.replace("PRODUCT", product), a, b, c)
        assert np.allclose(c, expected, atol=1e-3), product


def test_half_products_are_accumulated_in_float():
    source = """
    __global__ void f(half *a, float *c) {
      int i[16] = 0 ... 16;
      half x[16, 16] = *(a + i[:, newaxis] * 16 + i[newaxis, :]);
      float z[16, 16] = 0;
      z += x @ x;
      *(c + i[:, newaxis] * 16 + i[newaxis, :]) = z;
    }
    """
    model = zg.triton_c(source).triton()
    dot = next(op for op in model.walk() if op.NAME == "tt.dot")
    assert str(dot.result.type) == "tensor<x16, x16, f32>"
    assert not any(op.NAME == "arith.addf" for op in model.walk())


def test_pointers_are_moved_compared_and_cast():
    x = np.arange(8, dtype=np.int32)
    body = """
    int *p = x + 2; p++; p += 2; p = p - 1;
    *out = *p; *(out + 1) = *(1 + p); *(out + 2) = x == x; *(out + 3) = *(int*)(char*)x;
    """
    assert list(outputs(body, "int *x", x, shape=(4,), dtype=np.int32)) == [4, 5, 1, 0]
    body = "int* p[4] = x; int* q[4] = p + (0 ... 4); *(out + (0 ... 4)) = *q;"
    assert list(outputs(body, "int x[]", x, shape=(4,), dtype=np.int32)) == [0, 1, 2, 3]


def test_parameters_have_their_declared_types():
    third = 1 / 3
    assert scalar("x", np.float64, "double x", third) == third
    assert scalar("x / y", np.int64, "long x, unsigned char y", 1 << 40, 200) == (1 << 40) // 200
    assert scalar("x", np.int32, "bool x", True) == 1
    for type_, value in (("int", 1 << 31), ("unsigned", -1), ("short", 40000), ("char", 200), ("int", 2.5)):
        with pytest.raises(zg.LaunchError, match="'x' of 'f' is declared as"):
            scalar("x", np.int32, f"{type_} x", value)
    with pytest.raises(zg.LaunchError, match="declared as"):
        run("__global__ void f(float *p) { *p = 1; }", np.zeros(1))
    with pytest.raises(zg.LaunchError, match="declared as"):
        run("__global__ void f(int n) { }", np.zeros(1))


def test_names_that_python_keeps_for_itself():
    out = np.zeros(1, np.float32)
    kernel = zg.triton_c("__global__ void f(float *in, float *lambda) { *lambda = *in; }")
    assert list(kernel.signature.parameters) == ["in_", "lambda_"]
    kernel[1](np.ones(1, np.float32), lambda_=out)
    assert out[0] == 1


@pytest.mark.parametrize(
    ("loop", "k", "q"),
    [
        ("while (q-- > 0 && k < 3) k++;", 3, 1),
        ("while (q--) k++;", 5, -1),
        ("do k++; while (q-- > 0);", 6, -1),
        ("while ((q -= 1) > 0) k++;", 4, 0),
        ("while (--q > 0) { k++; if (k == 2) continue; }", 4, 0),
        ("do { k++; if (k == 2) continue; } while (--q > 0);", 5, 0),
        ("for (; q-- > 0; k++) ;", 5, -1),
        ("while (q-- > 0) { if (k == 2) break; k++; }", 2, 2),
    ],
)
def test_conditions_that_assign(loop: str, k: int, q: int):
    actual = np.zeros(2, np.int32)
    source = f"__global__ void f(int *o) {{ int q = 5, k = 0; {loop} *o = k; *(o + 1) = q; }}"
    zg.triton_c(source)[1](actual)
    assert list(actual) == [k, q]
