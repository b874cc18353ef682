"""The least cycles of a launch: by hand for small kernels, and below the times that the ladder's kernels took."""

from __future__ import annotations

import functools
import json
import math
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import ziggurat as zg
import ziggurat.triton.language as tl
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.transforms.cost.bounds import least_cycles
from ziggurat.transforms.cost.grid_cost import Launch

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))
from kernels_by_ziggurat import KERNELS as kernels

ROOT = Path(__file__).resolve().parents[3]
LESS = zg.CompareKind.LESS_THAN
F16, F32, N = (zg.divisible(type_, 16) for type_ in (zg.ptr(zg.f16), zg.ptr(zg.f32), zg.i32))


def least(kernel: Any, types: list[Any], grid: tuple[int, int, int], *, sms: int = 1, **numbers: int) -> float:
    """The bound of a launch, with the numbers of parameters by name."""
    compiled = kernel.compile(*types, target="sm_90a", num_warps=4)
    names = list(kernel.signature.parameters)
    arguments = {str(names.index(name)): number for name, number in numbers.items()}
    cycles = least_cycles(compiled.stages["gpu"], Launch(grid, arguments), sms)
    assert cycles is not None
    return cycles


@zg.kernel
def product(a, b, out, k, M: zg.constexpr, K: zg.constexpr):
    at, depth = zg.arange(0, M), zg.arange(0, K)
    total = zg.zeros((M, M), zg.f32)
    for start in range(0, k, K):
        row = zg.add(zg.mul(zg.expand(at, 1), k), zg.expand(zg.add(start, depth), 0))
        total = zg.dot(zg.load(zg.add(a, row)), zg.trans(zg.load(zg.add(b, row))), total)
    if zg.load(out) > 0:
        total = zg.dot(zg.cast(total, zg.f16), zg.cast(total, zg.f16), total)
    zg.store(zg.add(out, zg.add(zg.mul(zg.expand(at, 1), M), zg.expand(at, 0))), total)


def test_products():
    # 16 steps of 128×128×64 for each of 10 programs; what a branch does may not be done. Wavefronts: each wgmma of 64
    # rows reads these and 128 columns of 32 bytes, and what it reads is stored before.
    actual = least(product, [F16, F16, F32, N, 128, 64], (10, 1, 1), k=1024)
    assert 10 * 16 * 512 < actual <= 10 * (16 * (8 * (64 + 128) * 32 / 128 + 32768 / 128) + 512)
    # Without the number of steps, what is before the loop.
    assert least(product, [F16, F16, F32, N, 128, 64], (10, 1, 1)) < actual / 10


def test_programs_that_are_alike_run_on_one_multiprocessor_each():
    types = [F16, F16, F32, N, 128, 64]
    one = least(product, types, (1, 1, 1), k=1024)
    assert least(product, types, (10, 1, 1), sms=4, k=1024) == pytest.approx(3 * one)


def test_ctas_of_a_cluster_run_on_one_multiprocessor_each():
    types = [F32, F32, N, N, 1 << 15]
    model = kernels.softmax.compile(*types, target="sm_90a", num_ctas=4, num_warps=8).stages["gpu"]
    one, four = (least_cycles(model, Launch((1, 1, 1)), sms) for sms in (1, 4))
    assert four and one == 4 * four
    # Each CTA computes a fourth of the powers, and each of its 8 warps the inverse of their sum.
    assert four == (1 << 15) / 4 / 16 + 8 * 32 / 16


@zg.kernel
def powers(x, out, n, B: zg.constexpr, VARIES: zg.constexpr):
    at = zg.arange(0, B)
    arguments = zg.load(zg.add(x, at))
    total = zg.zeros((B,), zg.f32)
    for index in range(0, n):
        total = zg.add(total, zg.exp2(zg.add(arguments, zg.cast(index, zg.f32)) if VARIES else arguments))
    zg.store(zg.add(out, at), total)


def test_what_does_not_change_in_a_loop_counts_once():
    # 16 a cycle of the 1024 in each of 100 iterations.
    assert least(powers, [F32, F32, N, 1024, True], (1, 1, 1), n=100) == 100 * 1024 / 16
    # An addition is left in the loop: 8 of a thread in a warp, and four warps issue in a cycle. Powers count once.
    assert least(powers, [F32, F32, N, 1024, False], (1, 1, 1), n=100) == 100 * 8 + 8


@zg.kernel
def of_odd_programs(x, out, n, B: zg.constexpr):
    at = zg.arange(0, B)
    arguments = zg.load(zg.add(x, at))
    total = arguments
    for index in range(0, zg.program_id(0) % 2 * n):
        total = zg.add(total, zg.exp2(arguments))
        if index == 0:
            total = zg.add(total, zg.log2(arguments))
    zg.store(zg.add(out, at), total)


def test_what_a_loop_without_iterations_would_use_does_not_count():
    # Half the programs have 100 additions, and one that a branch does. They alone have a power, eight for each thread.
    assert least(of_odd_programs, [F32, F32, N, 1024], (10, 1, 1), n=100) == 5 * (100 * 8 + 8 + 8)


@zg.kernel
def of_a_branch(x, out, n, B: zg.constexpr):
    at = zg.arange(0, B)
    power = zg.exp2(zg.load(zg.add(x, at)))
    if zg.program_id(0) < n:
        zg.store(zg.add(out, at), power)


def test_what_only_a_branch_uses_counts_where_it_is_taken():
    assert least(of_a_branch, [F32, F32, N, 1024], (10, 1, 1), n=3) == 3 * 1024 / 16
    assert least(of_a_branch, [F32, F32, N, 1024], (10, 1, 1)) == 0


@zg.kernel
def of_equal_values(x, out, n, B: zg.constexpr, WHAT: zg.constexpr):
    at = zg.arange(0, B)
    index, few = at, zg.compare(at, B // 2, LESS)
    if WHAT == "one":
        index = zg.mul(at, 0)
    if WHAT == "pairs":
        index = zg.floordiv(at, 2)
    if WHAT == "period":
        index = zg.mod(at, 4)
    arguments = zg.load(zg.add(x, index), few if WHAT == "masked load" else None, other=None)
    if WHAT == "one by one":
        arguments = zg.div(zg.mul(arguments, 1.0), 3.0)
    else:
        arguments = zg.exp2(arguments)
    if WHAT == "chosen":
        arguments = zg.where(few, arguments, 0.0)
    zg.store(zg.add(out, at), arguments, few if WHAT == "masked store" else None)


@pytest.mark.parametrize(
    ("what", "once"),
    [
        ("one", 1),
        ("pairs", 1),
        ("period", 1),
        ("masked load", 0),
        ("one by one", 0),
        ("chosen", 0),
        ("masked store", 0),
    ],
)
def test_what_a_thread_may_compute_once_or_never_counts_so(what: str, once: int):
    """The numbers of threads alone tell which elements are equal, or not needed."""
    assert least(of_equal_values, [F32, F32, N, 1024, what], (1, 1, 1)) == once * 128 / 16
    assert least(of_equal_values, [F32, F32, N, 1024, ""], (1, 1, 1)) == 1024 / 16


@zg.kernel
def quotients(x, out, n, B: zg.constexpr):
    at = zg.arange(0, B)
    arguments = zg.load(zg.add(x, at))
    zg.store(zg.add(out, at), zg.div(zg.div(zg.sub(arguments, 2.0), arguments), arguments))


def test_quotients_of_one_divisor_share_its_inverse():
    assert least(quotients, [F32, F32, N, 1024], (1, 1, 1)) == 1024 / 16


@zg.kernel
def integers(x, out, n, B: zg.constexpr):
    at = zg.arange(0, B)
    total = zg.load(zg.add(x, at))
    for index in range(0, n):
        total = zg.add(total, index)
    zg.store(zg.add(out, at), total)


def test_integers_may_cost_nothing():
    assert least(integers, [zg.ptr(zg.i32), zg.ptr(zg.i32), N, 1024], (1, 1, 1), n=100) == 0


@zg.kernel
def triangle(x, out, B: zg.constexpr):
    at = zg.arange(0, B)
    total = zg.load(zg.add(x, at))
    for _ in range(zg.program_id(0) + 1):
        total = zg.exp2(total)
    zg.store(zg.add(out, at), total)


def test_programs_that_differ_are_followed():
    # On four SMs, any of which may run the longest ones.
    assert least(triangle, [F32, F32, 1024], (10, 3, 1), sms=4) == pytest.approx(3 * sum(range(11)) * 1024 / 16 / 4)
    # 2¹⁷ programs are not followed one by one; those that are not count nothing.
    whole = (1 << 17) * ((1 << 17) + 1) / 2 * 1024 / 16
    assert 0 < least(triangle, [F32, F32, 1024], (1 << 17, 1, 1)) < whole


# The ladder's kernels, whose times on an H200 are in its report.

SMS, KHZ = 132, 1_980_000  # Of an H200, at its highest clock.
Setting = dict[str, int]


def matmul(form: str, m: int, n: int, k: int, setting: Setting, type_: Any = zg.f16, out: Any = None) -> Any:
    form = "N" + form[1] if setting.get("TURNED") else form
    strides = (*((k, 1) if form[0] == "N" else (1, m)), *((n, 1) if form[1] == "N" else (1, k)), n, 1)
    numbers = [m, n, k, *strides]
    types = [1 if number == 1 else N if number % 16 == 0 else zg.i32 for number in numbers]
    tiles = {name: setting[name] for name in "MNK"}
    pointers = [zg.divisible(zg.ptr(each), 16) for each in (type_, type_, out or type_)]
    sums = tl.int32 if type_ == zg.i8 else tl.float32
    compiled = compile(kernels.matmul, setting, *pointers, *types, GROUP=setting.get("GROUP", 8), SUM=sums, **tiles)
    names = ("m", "n", "k", "am", "ak", "bk", "bn", "cm", "cn")
    grid = math.ceil(m / tiles["M"]) * math.ceil(n / tiles["N"])
    return compiled, grid, dict(zip(names, numbers, strict=True))


def described(*shape: int, type_: Any = zg.f16) -> Any:
    return zg.divisible(zg.descriptor(shape, type_), 16)


def matmul_blocks(size: int, setting: Setting) -> Any:
    m, n, k = (setting[name] for name in "MNK")
    count, shapes = setting.get("BLOCKS", 1), ((m, k), (n, k), (m, n >> setting.get("HALVES", 0)))
    arguments = {"GROUP": setting.get("GROUP", 8), "M": m, "N": n, "K": k, "ROLES": bool(setting.get("ROLES", False))}
    if count > 1:
        kernel, arguments = kernels.matmul_rows, arguments | {"BLOCKS": count}
    else:
        kernel, arguments = kernels.matmul_blocks, arguments | {"HALVES": bool(setting.get("HALVES", False))}
    blocks = [described(*shape) for shape in shapes]
    compiled = compile(kernel, setting, *blocks, None, None, N, N, N, "", **arguments)
    tiles = math.ceil(size / (m * count)) * (size // n)
    return compiled, min(tiles, SMS) if setting.get("persistent") else tiles, dict.fromkeys("mnk", size)


def attention(d: int, causal: bool, n: int, heads: int, setting: Setting) -> Any:
    arguments = {"TILES": 0, "PARTS": 1, "GROUP": 4, "ROLES": 0, "ONCE": 0, "PAIRS": 0} | setting
    arguments |= {name: bool(arguments[name]) for name in ("ROLES", "ONCE", "PAIRS")}
    arguments |= {"CAUSAL": causal, "SHARED": 1, "D": d, "LANES": d < 256}
    several, count = arguments["TILES"], arguments.get("BLOCKS", 1)
    kernel = kernels.attention_blocks if count > 1 else kernels.attention
    m, columns = arguments["M"], arguments["N"]
    blocks = [described(*shape) for shape in ((m, d), (columns, d), (columns, d), (m, d // arguments["PARTS"]))]
    arguments = {name: arguments[name] for name in kernel.arg_names if name in arguments}
    compiled = compile(kernel, setting, *blocks, F32, N, N, zg.f32, **arguments)
    tiles = n // (m * count) * heads
    return compiled, min(tiles, several * SMS) if several else tiles, {"n": n, "heads": heads}


def compile(kernel: Any, setting: Setting, *types: Any, **argument: Any) -> Any:
    options = {"num_warps": setting["warps"], "num_stages": setting["stages"], "maxnreg": setting.get("maxnreg")}
    # LLVM would take most of the time, for PTX that no test reads.
    with patch("ziggurat.backend.ptx.assemble.to_ptx", lambda *_: ""):
        return kernel.compile(*types, target="sm_90a", **options, **argument)


ROWS = {
    "matmul f16 NN 4096": functools.partial(matmul, "NN", 4096, 4096, 4096),  # Programs taken in turn.
    "matmul f16 NN 8192×8192×512": functools.partial(matmul, "NN", 8192, 8192, 512),
    "matmul f16 NN 3001×3001×3001": functools.partial(matmul, "NN", 3001, 3001, 3001),  # No TMA.
    "matmul tf32 NT 4096": functools.partial(matmul, "NT", 4096, 4096, 4096, type_=zg.f32),
    "matmul int8 TN 4096": functools.partial(matmul, "TN", 4096, 4096, 4096, type_=zg.i8, out=zg.i32),
    "matmul f16 NT 8192, descriptors": functools.partial(matmul_blocks, 8192),
    "attention f16 D128 4096": functools.partial(attention, 128, False, 4096, 128),
    "attention f16 D256 causal 1024": functools.partial(attention, 256, True, 1024, 256),
}


@pytest.mark.parametrize("name", ROWS)
def test_no_bound_is_above_the_measured_time(name: str):
    report = json.loads((ROOT / "benchmarks" / "results" / "gpu-ladder.json").read_text("utf-8"))
    measured = report["rows"][name]["settings"]
    shares: list[float] = []
    for label, milliseconds in measured.items():
        who, *words = label.split(", ")
        if who != "ours" or not milliseconds:
            continue
        setting = {word: int(number == "True" or number) for word, number in (item.split() for item in words)}
        compiled, grid, numbers = ROWS[name](setting=setting)
        model = compiled.stages["gpu"]
        assert isinstance(model, gpu.Module)
        names = [argument.name for argument in compiled.arguments]
        arguments = {str(at): numbers[item] for at, item in enumerate(names) if item in numbers}
        cycles = least_cycles(model, Launch((grid, 1, 1), arguments), SMS)
        assert cycles is not None
        shares.append(cycles / KHZ / milliseconds)
    assert shares and max(shares) < 1 and min(shares) > 0.15, shares


@zg.kernel
def of_neighbours(x, out, B: zg.constexpr):
    at = zg.arange(0, B)
    zg.store(zg.add(out, at), zg.sub(zg.exp2(zg.load(zg.add(x, zg.add(at, 1)))), zg.exp2(zg.load(zg.add(x, at)))))


@zg.kernel
def of_diagonals(x, out, B: zg.constexpr):
    at = zg.add(zg.expand(zg.arange(0, B), 1), zg.expand(zg.arange(0, B), 0))
    zg.store(zg.add(out, at), zg.exp2(zg.load(zg.add(x, at))))


def test_what_is_loaded_from_one_address_counts_once():
    for kernel, size, warps in ((of_neighbours, 1024, 4), (of_diagonals, 64, 1)):
        binary = kernel.compile(F32, F32, size, target="sm_90a", num_warps=warps)
        powers = binary.ptx.count("ex2.approx") * 32 * warps / 16
        assert 0 < (least_cycles(binary.stages["gpu"], Launch((1, 1, 1)), 1) or 0) <= powers
