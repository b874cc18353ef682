"""The simulated matrix units by themselves: fragments, matrices of 8 rows, mma.sync by hand, and wgmma that is waited
for."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.ptx.assemble import to_llvm
from ziggurat.backend.simulator.matrix_units import fragment_a, fragment_b, fragment_c
from ziggurat.backend.simulator.shared import SimulationError
from ziggurat.backend.simulator.simulate import simulate
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.transforms.gpu.gpu_passes import place


@pytest.mark.parametrize("m, k, per", [
    (16, 16, 2), (16, 8, 1), (16, 32, 4), (8, 4, 1), (16, 16, 4), (16, 4, 1), (16, 16, 1),
])  # fmt: skip
def test_fragments_hold_every_element_once(m: int, k: int, per: int) -> None:
    for shape, places in (
        ((m, k), [fragment_a(i, per, m) for i in range(m * k // 32)]),
        ((k, 8), [fragment_b(i, per) for i in range(k * 8 // 32)]),
        ((m, 8), [fragment_c(i) for i in range(m * 8 // 32)]),
    ):
        values = np.zeros(shape, int)
        for rows, columns in places:
            assert len(rows) == len(columns) == 32
            np.add.at(values, (rows, columns), 1)
        assert (values == 1).all()


def test_places_of_the_manual() -> None:
    """m16n8k16: a3 of lane 5 is at row 9 and column 3, b2 at row 10 and column 1, c2 at row 9 and column 2."""
    assert [int(part[5]) for part in fragment_a(3, 2, 16)] == [9, 3]
    assert [int(part[5]) for part in fragment_b(2, 2)] == [10, 1]
    assert [int(part[5]) for part in fragment_c(2)] == [9, 2]


def loads(parameter: int, count: int, name: str) -> str:
    """Registers of 32 bits: thread t's are one after another."""
    lines = [f"%{name}t = mul i32 %tid, {count}"]
    for at in range(count):
        lines += [
            f"%{name}n{at} = add i32 %{name}t, {at}",
            f"%{name}p{at} = getelementptr i32, ptr addrspace(1) %p{parameter}, i32 %{name}n{at}",
            f"%{name}{at} = load i32, ptr addrspace(1) %{name}p{at}, align 4",
        ]
    return "\n".join(lines) + "\n"


def stores(parameter: int, make: list[str]) -> str:
    lines = [f"%ot = mul i32 %tid, {len(make)}"]
    for at, value in enumerate(make):
        lines += [
            f"%on{at} = add i32 %ot, {at}",
            f"%op{at} = getelementptr i32, ptr addrspace(1) %p{parameter}, i32 %on{at}",
            f"store i32 {value}, ptr addrspace(1) %op{at}, align 4",
        ]
    return "\n".join(lines)


def registers(matrix: np.ndarray, places: list) -> np.ndarray:
    """Each lane's elements, packed in words."""
    values = np.stack([matrix[place] for place in places], axis=1)
    return np.ascontiguousarray(values).view(np.uint32)


@pytest.mark.parametrize("name, dtype, k, sums", [
    ("f16", np.float16, 16, "f32"), ("bf16", ml_dtypes.bfloat16, 16, "f32"), ("tf32", np.float32, 8, "f32"),
    ("s8", np.int8, 32, "s32"), ("u8", np.uint8, 32, "s32"), ("e4m3", ml_dtypes.float8_e4m3fn, 32, "f32"),
    ("e5m2", ml_dtypes.float8_e5m2, 32, "f32"),
])  # fmt: skip
def test_a_product_of_each_type(name: str, dtype, k: int, sums: str, by_hand) -> None:
    """d = a · b + c in two warps, each with its own."""
    per = 4 // np.dtype(dtype).itemsize
    random = np.random.default_rng(1)
    of_c = np.float32 if sums == "f32" else np.int32
    arguments = {"a": [], "b": [], "c": [], "d": []}
    low = 0 if name == "u8" else -4
    for _ in range(2):
        a, b = random.integers(low, 5, (16, k)).astype(dtype), random.integers(low, 5, (k, 8)).astype(dtype)
        c = random.integers(-4, 5, (16, 8)).astype(of_c)
        arguments["a"].append(registers(a, [fragment_a(i, per, 16) for i in range(k // 2)]))
        arguments["b"].append(registers(b, [fragment_b(i, per) for i in range(k // 4)]))
        arguments["c"].append(registers(c, [fragment_c(i) for i in range(4)]))
        expected = (a.astype(np.float64) @ b.astype(np.float64) + c).astype(of_c)
        arguments["d"].append(registers(expected, [fragment_c(i) for i in range(4)]))
    arrays = {key: np.concatenate(parts) for key, parts in arguments.items()}
    na, nb = arrays["a"].shape[1], arrays["b"].shape[1]
    numbers = [f"${at}" for at in range(4 + na + nb + 4)]
    groups = [numbers[:4], numbers[4 : 4 + na], numbers[4 + na : 4 + na + nb], numbers[4 + na + nb :]]
    operands = ", ".join("{" + ", ".join(group) + "}" for group in groups)
    text = f"mma.sync.aligned.m16n8k{k}.row.col.{sums}.{name}.{name}.{sums} {operands};"
    kind = "float" if sums == "f32" else "i32"
    casts = "".join(f"%s{i} = bitcast i32 %c{i} to {kind}\n" for i in range(4))
    result = "{ " + ", ".join([kind] * 4) + " }"
    values = [f"i32 %a{i}" for i in range(na)] + [f"i32 %b{i}" for i in range(nb)] + [f"{kind} %s{i}" for i in range(4)]
    constraints = ",".join(["=f"] * 4 + ["r"] * (na + nb) + ["f"] * 4)
    lines = loads(0, na, "a") + loads(1, nb, "b") + loads(2, 4, "c") + casts
    lines += f'%r = call {result} asm "{text}", "{constraints}"({", ".join(values)}) #1\n'
    for i in range(4):
        lines += f"%e{i} = extractvalue {result} %r, {i}\n%d{i} = bitcast {kind} %e{i} to i32\n"
    out = np.zeros((64, 4), np.uint32)
    by_hand(lines + stores(3, [f"%d{i}" for i in range(4)]), arrays["a"], arrays["b"], arrays["c"], out, num_warps=2)
    np.testing.assert_array_equal(out, arrays["d"])


ROWS = """%at = mul i32 %tid, 16
    %place = getelementptr i8, ptr addrspace(3) @smem, i32 %at
    %address = ptrtoint ptr addrspace(3) %place to i32\n"""


def moved(trans_in: str, trans_out: str) -> str:
    """Four matrices by stmatrix into shared memory, and back by ldmatrix."""
    words = [f"%x{i}" for i in range(4)]
    values = ", ".join(f"${i + 1}" for i in range(4))
    store = f"stmatrix.sync.aligned.m8n8.x4{trans_in}.shared.b16 [$0 + 0], {{{values}}};"
    load = f"ldmatrix.sync.aligned.m8n8.x4{trans_out}.shared.b16 {{$0, $1, $2, $3}}, [$4 + 0];"
    kind = "{ i32, i32, i32, i32 }"
    arguments = ", ".join(f"i32 {word}" for word in words)
    text = loads(0, 4, "x") + ROWS
    text += f'call void asm sideeffect "{store}", "r,r,r,r,r,~{{memory}}"(i32 %address, {arguments}) #1\n'
    text += f'%r = call {kind} asm "{load}", "=r,=r,=r,=r,r"(i32 %address) #1\n'
    text += "".join(f"%d{i} = extractvalue {kind} %r, {i}\n" for i in range(4))
    return text + stores(1, [f"%d{i}" for i in range(4)])


@pytest.mark.parametrize("trans_in, trans_out", [("", ""), (".trans", ".trans"), ("", ".trans"), (".trans", "")])
def test_matrices_go_through_shared_memory(trans_in: str, trans_out: str, by_hand) -> None:
    """The matrices are equal afterwards, or transposed where one of the two instructions transposes."""
    matrices = np.arange(256, dtype=np.uint16).reshape(4, 8, 8)
    places = [[(np.arange(32) // 4, np.arange(32) % 4 * 2 + i) for i in range(2)]] * 4
    words, transposed = (
        np.concatenate([registers(m, p) for m, p in zip(argument, places, strict=True)], axis=1)
        for argument in (matrices, matrices.transpose(0, 2, 1))
    )
    out = np.zeros((32, 4), np.uint32)
    by_hand(moved(trans_in, trans_out), words, out, shared=512)
    np.testing.assert_array_equal(out, words if trans_in == trans_out else transposed)


@pytest.mark.parametrize("opcode", ["stmatrix", "ldmatrix"])
def test_rows_are_aligned(opcode: str, by_hand) -> None:
    text = moved("", "")
    if opcode == "ldmatrix":  # The store at the rows' places, the load beside them.
        text = text.replace("[$4 + 0]", "[$4 + 8]")
    else:
        text = text.replace("[$0 + 0]", "[$0 + 8]")
    with pytest.raises(SimulationError, match=f"a row of {opcode} must be aligned"):
        by_hand(text, np.zeros((32, 4), np.uint32), np.zeros((32, 4), np.uint32), shared=528)


@pytest.mark.parametrize(("mode", "tie"), [("rna", 1 + 2.0**-10), ("rn", 1)])
def test_tf32_is_rounded_to_10_bits(mode: str, tie: float, by_hand) -> None:
    x = np.array([1 + 2.0**-10, 1 + 2.0**-11, 1 + 2.0**-12, np.inf, -3.5], np.float32)
    arguments, out = np.resize(x, 32).astype(np.float32), np.zeros(32, np.float32)
    text = loads(0, 1, "x") + "%f = bitcast i32 %x0 to float\n"
    text += f'%r = call i32 asm "cvt.{mode}.tf32.f32 $0, $1;", "=r,f"(float %f) #1\n'
    by_hand(text + stores(1, ["%r"]), arguments, out)
    assert out[:5].tolist() == [1 + 2.0**-10, tie, 1, np.inf, -3.5]


def test_pairs_of_8_bit_floats_become_halves(by_hand) -> None:
    x = np.arange(64, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)
    pairs, out = x.view(np.uint16).astype(np.uint32), np.zeros(64, np.float16)
    text = loads(0, 1, "x") + "%h = trunc i32 %x0 to i16\n"
    text += '%r = call i32 asm "cvt.rn.f16x2.e4m3x2 $0, $1;", "=r,h"(i16 %h) #1\n'
    by_hand(text + stores(1, ["%r"]), pairs, out)
    np.testing.assert_array_equal(out, x.astype(np.float16))


@pytest.mark.parametrize("kind, dtype, largest", [
    ("e4m3", ml_dtypes.float8_e4m3fn, 448), ("e5m2", ml_dtypes.float8_e5m2, 57344),
])  # fmt: skip
def test_floats_become_pairs_of_8_bit_ones(kind: str, dtype: Any, largest: float, by_hand) -> None:
    x = np.resize(np.array([1.06, -3.3, largest * 1.04, -1e30, np.inf, np.nan, 2.0**-20, 0.0], np.float32), 64)
    words, out = x.view(np.uint32), np.zeros(32, np.uint32)
    text = loads(0, 2, "x") + "%low = bitcast i32 %x0 to float\n%high = bitcast i32 %x1 to float\n"
    text += f'%p = call i16 asm "cvt.rn.satfinite.{kind}x2.f32 $0, $1, $2;", "=h,f,f"(float %high, float %low) #1\n'
    by_hand(f"{text}%r = zext i16 %p to i32\n" + stores(1, ["%r"]), words, out)
    actual = out.astype(np.uint16).view(dtype)
    np.testing.assert_array_equal(
        actual.astype(np.float32), np.clip(x, -largest, largest).astype(dtype).astype(np.float32)
    )


@zg.kernel
def cut(x_ptr, out_ptr, dtype: zg.constexpr, N: zg.constexpr):
    numbers = zg.arange(0, N)
    zg.store(zg.add(out_ptr, numbers), zg.cast(zg.load(zg.add(x_ptr, numbers)), dtype, fp_downcast_rounding="rtz"))


@pytest.mark.parametrize("source, target", [
    (zg.f64, zg.f32), (zg.f64, zg.f16), (zg.f64, zg.bf16), (zg.f32, zg.f16), (zg.f32, zg.bf16),
])  # fmt: skip
def test_casts_toward_zero_are_those_of_the_interpreter(source: Any, target: Any) -> None:
    random = np.random.default_rng(5)
    x = random.standard_normal(256) * 2.0 ** random.integers(-60, 60, 256)
    x[:14] = [
        0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        65504,
        -65519,
        65520,
        1e300,
        -1e-300,
        3.5e38,
        2.0**-25,
        2.0**-149,
        1e-40,
    ]
    with np.errstate(over="ignore"):
        x = x.astype(source.dtype)
    expected, actual = np.zeros((2, 256), target.dtype)
    cut[1,](x, expected, target, 256)
    cut.compile(zg.ptr(source), zg.ptr(target), target, 256, target="sm_90a").simulate[1,](x, actual)
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    assert np.array_equal(np.signbit(actual), np.signbit(expected))
    np.testing.assert_array_equal(actual.astype(np.float64), expected.astype(np.float64))


@zg.kernel
def product(a_ptr, b_ptr, out_ptr, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr):
    rows, columns = zg.expand(zg.arange(0, M), 1), zg.expand(zg.arange(0, N), 0)
    a = zg.load(zg.add(a_ptr, zg.add(zg.mul(rows, K), zg.expand(zg.arange(0, K), 0))))
    b = zg.load(zg.add(b_ptr, zg.add(zg.mul(zg.expand(zg.arange(0, K), 1), N), columns)))
    zg.store(zg.add(out_ptr, zg.add(zg.mul(rows, N), columns)), zg.dot(a, b))


@pytest.fixture(scope="module")
def wgmma() -> str:
    half = zg.divisible(zg.ptr(zg.f16))
    module = place(product.triton(half, half, zg.divisible(zg.ptr(zg.f32)), 64, 16, 16), CompileOptions("sm_90a", 4))
    text = to_llvm(module)
    assert "wgmma.mma_async" in text
    return text


def multiplied(text: str) -> bool:
    random = np.random.default_rng(4)
    a, b = random.integers(-3, 4, (64, 16)).astype(np.float16), random.integers(-3, 4, (16, 16)).astype(np.float16)
    out = np.zeros((64, 16), np.float32)
    simulate(text, num_warps=4, shared=8192, arguments=[a, b, out])
    return np.array_equal(out, a.astype(np.float64) @ b.astype(np.float64))


def without(text: str, word: str) -> str:
    """The text without the calls of assembly that contain a word."""
    lines = [line for line in text.split("\n") if not (word in line and "asm" in line)]
    assert len(lines) < text.count("\n") + 1
    return "\n".join(lines)


def test_sums_are_nowhere_before_the_wait(wgmma: str) -> None:
    assert multiplied(wgmma)
    assert not multiplied(wgmma.replace("wgmma.wait_group.sync.aligned 0", "wgmma.wait_group.sync.aligned 1"))


def test_a_wgmma_reads_what_it_has_been_shown(wgmma: str) -> None:
    with pytest.raises(SimulationError, match="without a fence since"):
        multiplied(without(wgmma, "fence.proxy.async"))
    with pytest.raises(SimulationError, match="written since the last barrier"):
        multiplied(without(wgmma, "bar.sync"))


def test_a_wgmma_reads_inside_of_shared_memory(wgmma: str) -> None:
    with pytest.raises(SimulationError, match="outside"):
        multiplied(re.sub(r"add\.s64 (\w+), (\$\d+), \d+", r"add.s64 \1, \2, 1023", wgmma))


def test_a_wgmma_after_its_commit_or_before_its_fence_is_none(wgmma: str) -> None:
    with pytest.raises(AssertionError, match="before its fence or after its commit"):
        multiplied(wgmma.replace("wgmma.fence.sync.aligned;", ""))
