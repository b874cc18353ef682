"""Triton models come back as source: in explicit calls and in Triton's Python, with the same ops."""

import re
from pathlib import Path

import pytest
from lifted import ops_of

import ziggurat as zg
from ziggurat.codemodel.declare import OPS
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.errors import KernelValueError, TargetError
from ziggurat.transforms.lift.lift import LIFTERS

TESTS = Path(__file__).parents[2]
# Read from MLIR: blocks, which no source has, and a reshape whose order is free, which only Triton writes.
OF_MLIR = ("forms", "printed_unsigned", "printed_centred")
GOLDEN = [
    file
    for folder in ("transforms", "backend/mlir")
    for file in sorted((TESTS / folder / "golden").glob("*.triton.txt"))
    if not file.name.startswith(OF_MLIR)
]
F16, F32, I32 = zg.ptr(zg.f16), zg.ptr(zg.f32), zg.ptr(zg.i32)
KERNELS = {
    "numbers": (
        """def f(x, y, n: zg.i32):
    i = zg.arange(0, 16)
    a = zg.load(x + i, i < n, other=1.0)
    b = zg.maximum(zg.exp(a) - zg.sqrt_rn(a * 0.5), zg.minimum(a, zg.tanh(a), propagate_nan=True))
    k = zg.cast(b, zg.i64) + n
    c = zg.where(k > 5, zg.fma(a, b, 2.0), zg.abs(-b)) % 3.0
    d = zg.directed("mul", "rz", c, c) + zg.approximate("sin", c) + zg.div_rn(c, b) + zg.rint(c)
    h = zg.cast(zg.cast(d, zg.f16) / 3.0, zg.f16, fp_downcast_rounding="rtz")
    m = (~(i < n)) ^ (i == 3) | (h > 0.1)
    u = zg.bitcast(d, zg.u32) >> 3 & 15
    zg.store(y + i, zg.cast(u, zg.f32) + h + zg.cast(m, zg.f32) + zg.popc(k) + zg.umulhi(u, 7), i < n)
    zg.store(y + 20, 0.0)
    zg.store(y + 21, zg.cast(zg.cast(n, zg.f64) * 0.1 > 0.3, zg.f32) - (-n) + (n // 3 if n > 2 else 7))
""",
        (F32, F32, zg.i32),
    ),
    "shapes": (
        """def f(x, y, q):
    i = zg.arange(0, 8)
    at = i[:, None] * 8 + i[None, :]
    a = zg.load(x + at)
    b = zg.trans(zg.reshape(zg.join(a, a * 2.0), (8, 16)))
    left, right = zg.split(zg.reshape(b, (8, 8, 2)))
    zg.store(y + at, zg.gather(left, zg.cast(right, zg.i32), 1) + zg.broadcast(zg.load(x), (8, 8)))
    zg.store(q + zg.arange(0, 4), zg.histogram(zg.load(q + i), 4))
    c = zg.multiple_of(zg.load(q), 8)
    zg.assume(c > 0)
    zg.device_assert(c > 1, "c")
    zg.device_print("c", c)
    zg.store(zg.cast(zg.cast(y, zg.i64) + 4, zg.ptr(zg.f32)) + i, zg.cat(zg.arange(0, 4), zg.arange(4, 8)) + 0.5)
""",
        (F32, F32, I32),
    ),
    "reductions": (
        """@zg.function
def pick(a, i, b, j):
    return zg.where(a > b, a, b), zg.where(a > b, i, j)
@zg.function
def both(a, b):
    return a + b, a * b
@zg.kernel
def f(x, y):
    i = zg.arange(0, 32)
    a = zg.load(x + i)
    best, where = zg.reduce((a, i), 0, pick)
    sums = zg.cumsum(a, 0, reverse=True)
    p, q = zg.map_elementwise(both, a, sums)
    low, index = zg.min(a, 0, return_indices=True)
    zg.store(y + i, p * q + best + where + zg.sum(sums) + low + index + zg.max(a, keep_dims=True))
    u = zg.inline_asm_elementwise("add.s32 $0, $1, $2;", "=r,r,r", (i, i), zg.i32, True, 1)
    zg.store(y + u, zg.softmax(a))
    zg.atomic_add(y + i, a, i < 3, sem="relaxed", scope="cta")
    zg.store(y, zg.atomic_cas(zg.cast(y, zg.ptr(zg.i32)), 0, 1, sem="acquire") + zg.atomic_max(y, 2.0))
""",
        (F32, F32),
    ),
    "flow": (
        """def f(x, y, n):
    if n == 0:
        return
    total, first, second = 0.0, 0, 1
    for i in zg.range(0, n, 2, num_stages=3):
        first, second = second, first + second
        for j in range(n, i, -1):
            if j % 3 == 0:
                total += zg.load(x + j)
            elif j > 7:
                total, first = total * 2, first - 1
    count = n
    while count > 3 and zg.load(x + count) > 0.0 or count > 50:
        count //= 2
        total = total + 1 if count > first else total
    while count < 9:
        count += 1
        if count == first:
            break
    for k in range(10):
        if k > count:
            break
        total -= 1
    zg.store(y, total + first + second)
""",
        (F32, F32, zg.i32),
    ),
    "matrices": (
        """def f(x, y, m, n):
    a = zg.make_tensor_descriptor(x, (m, n), (zg.cast(n, zg.i64), 1), (16, 16), padding_option="nan")
    b = zg.make_tensor_descriptor(y, (m, n), (zg.cast(n, zg.i64), 1), (16, 16))
    total = zg.zeros((16, 16), zg.f32)
    for k in range(0, a.shape[1], 16):
        total = zg.dot(a.load((0, k)), zg.trans(a.load((k, 0))), total, input_precision="tf32")
        zg.debug_barrier()
    b.store((0, zg.program_id(1) * zg.num_programs(0)), zg.cast(zg.dot(zg.cast(total, zg.f16), a.load((0, 0))), zg.f16))
    b.atomic_add((16, 0), a.load((0, 0)))
    flag = zg.cast(x, zg.ptr(zg.i32))
    if zg.wait(flag, 1, timeout_ns=1000):
        zg.signal(flag, zg.cast(zg.load(flag + 1, sem="acquire"), zg.i32) + zg.smid())
""",
        (F16, F16, zg.i32, zg.i32),
    ),
}


def compiled(text, kernel):
    """The model of the kernel that a text defines, for the types of another kernel."""
    text = re.sub(r"^(import|from) triton\b", r"\1 ziggurat.triton", text, flags=re.MULTILINE)
    text = text.replace("import ziggurat.triton\n", "import ziggurat.triton as triton\n")
    name = re.findall(r"^def (\w+)", text, re.MULTILINE)[-1]
    return zg.kernel(source=text, name=name).triton(*(parameter.type for parameter in kernel.body.parameters))


def kernel_of(model):
    return [op for op in model.walk() if isinstance(op, tt.Func)][-1]


@pytest.mark.parametrize("language", ["zg", "triton"])
@pytest.mark.parametrize("name", KERNELS)
def test_the_source_of_a_kernel_gives_its_ops(name, language):
    source, types = KERNELS[name]
    model = zg.kernel(source=source, name="f").triton(*types)
    for form in (model, zg.simplify(model)):
        text = zg.to_python(form, language)
        assert ops_of(compiled(text, kernel_of(form))) == ops_of(form), text


@pytest.mark.parametrize("language", ["zg", "triton"])
def test_prints_come_back_with_their_spaces_and_ends(language):
    calls = [
        "'a', n, 'b'", "'a', n, 'b', sep=''", "n, '', n, ''", "'{', n, '}', sep=''", "'a b', n, end=''",
        "n, end='\\n\\n'", "", "'', n", "n, n", "'a', n", "'{', n, '}{}', sep='{'",
    ]  # fmt: skip
    source = "def f(n):\n" + "".join(f"    print({call})\n" for call in calls)
    model = zg.kernel(source=source, name="f").triton(zg.i32)
    text = zg.to_python(model, language)
    assert ops_of(compiled(text, kernel_of(model))) == ops_of(model), text


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.name.partition(".")[0])
def test_golden_kernels_come_back(file):
    model = zg.parse(file.read_text(encoding="utf-8"))
    for language in ("zg", "triton"):
        text = zg.to_python(model, language)
        assert ops_of(compiled(text, kernel_of(model))) == ops_of(model), text


def test_names_are_those_of_the_source():
    source, types = KERNELS["flow"]
    lines = zg.to_python(zg.kernel(source=source, name="f").triton(*types), "triton").splitlines()
    assert lines[:2] + lines[4:7] == [
        "import triton", "import triton.language as tl", "@triton.jit", "def f(x, y, n):", "    if n == 0:",
    ]  # fmt: skip
    assert "    for i in tl.range(0, n, 2, num_stages=3):" in lines
    assert "        count = count // 2" in lines


def test_constants_that_are_parameters_come_back():
    source = """def f(x, BM: zg.constexpr, y, n, BN: zg.constexpr, SCALE: zg.constexpr, ONE: zg.constexpr):
    i = zg.arange(0, BM)
    total = zg.zeros((BM, BN), zg.f32)
    for start in range(0, n, BN):
        at = i[:, None] * BN + (zg.arange(0, BN) * ONE)[None, :]
        total += zg.load(x + at, at < n) * SCALE
    zg.store(y + i, zg.sum(total, 1) / BN)
"""

    kernel = zg.kernel(source=source, name="f")
    for sizes in ((16, 32), (16, 16)):
        model = kernel.triton(F32, sizes[0], F32, zg.i32, sizes[1], 0.5, 1)
        for language in ("zg", "triton"):
            text = zg.to_python(model, language)
            assert ops_of(compiled(text, kernel_of(model))) == ops_of(model), text
            tail = "BM: LL.constexpr=16, BN: LL.constexpr=32, SCALE: LL.constexpr=0.5, ONE: LL.constexpr=1):"
            tail = tail.replace("LL", "zg" if language == "zg" else "tl").replace("32", str(sizes[1]))
            assert "def f(x, y, n, " in text and {*tail.split(", ")} == {
                *text.partition("n, ")[2].splitlines()[0].split(", ")
            }
            if sizes == (16, 32):
                body = text.partition("def f(")[2].partition("\n")[2]
                assert not re.search(r"\b(16|32)\b", body), text
                if language == "zg":
                    larger = zg.kernel(source=text, name="f").triton(F32, F32, zg.i32, 64, 32, 0.5, 1)
                    assert ops_of(larger) == ops_of(kernel.triton(F32, 64, F32, zg.i32, 32, 0.5, 1))
    zg.to_python(zg.parse(str(model)))  # Without a source.


def test_names_of_python_and_of_the_text_are_not_taken():
    for name in ("class", "zg", "range"):
        text = zg.to_python(zg.parse(f'tt.func @"{name}" ()void -> {{\n    tt.return;\n}};'))
        assert f"def function_{name}():" in text
    source, types = KERNELS["flow"]
    source = re.sub(r"\bx\b", "float", re.sub(r"\bcount\b", "tl", re.sub(r"\btotal\b", "triton", source)))
    source = re.sub(r"\bfirst\b", "print", source).replace("(float, y", "(float, libdevice").replace("(y", "(libdevice")
    model = zg.kernel(source=source, name="f").triton(*types)
    for language in ("zg", "triton"):
        text = zg.to_python(model, language)
        assert ops_of(compiled(text, kernel_of(model))) == ops_of(model), text
        assert "def f(float_1, libdevice_2, n):" in text


def test_every_op_has_a_form_but_those_of_blocks():
    dialects = ("tt", "arith", "math", "scf")
    ops = [cls for cls in OPS.values() if cls.__module__.rpartition(".")[2].partition("_")[0] in dialects]
    without = ["arith.constant", "scf.condition", "tt.func", "tt.poison"]
    assert LIFTERS.missing(ops) == without


def test_what_has_no_source_is_said():
    blocks = 'tt.func @"f" ()void -> {\n    cf.br ^1;\n  ^1:\n    tt.return;\n};'
    undefined = 'tt.func @"f" ()void -> {\n    %0 : f32 = tt.poison;\n    tt.print %0 @"";\n    tt.return;\n};'
    for text, message in ((blocks, "control flow between blocks"), (undefined, "'tt.poison' has no form")):
        with pytest.raises(TargetError, match=message):
            zg.to_python(zg.parse(text))
    with pytest.raises(KernelValueError, match='must be "triton" or "zg"'):
        zg.to_python(zg.parse('tt.func @"f" ()void -> {\n    tt.return;\n};'), "c")
