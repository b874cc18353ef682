"""Loads through pointers that become loads through descriptors: which do, and their results against the interpreter.

Inputs are small integers, of which all sums are exact.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.fragments import MAP
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.gpu.hazards import hazards
from ziggurat.transforms.gpu.raise_pointers import raise_pointers, why_not_raised
from ziggurat.transforms.tiles.prepare import prepare_for_gpu

LESS = zg.CompareKind.LESS_THAN
F16, I8, N = zg.divisible(zg.ptr(zg.f16)), zg.divisible(zg.ptr(zg.i8)), zg.divisible(zg.i32)


@zg.kernel
def product(
    a_ptr, b_ptr, c_ptr, m, n, k, am, ak, bk, bn, cm,
    M: zg.constexpr, N: zg.constexpr, K: zg.constexpr, also: zg.constexpr, roles: zg.constexpr = False,
):  # fmt: skip
    """c = a · b, by pointers that the loop moves, with a variation `also`."""
    row, column = zg.program_id(0) * M, zg.program_id(1) * N
    if also == "any row":
        row = cm
    if also == "row that wraps around":
        row = row * (1 << 24)
    rows, columns = zg.add(row, zg.arange(0, M)), zg.add(column, zg.arange(0, N))
    at = zg.arange(0, K)
    at_m, at_n = zg.mod(rows, m), zg.mod(columns, n)
    if also in ("masked", "endless"):
        at_m, at_n = rows, columns
    if also == "other rows":
        at_m = zg.mod(zg.mul(rows, 2), m)
    a_at = zg.add(a_ptr, zg.add(zg.mul(zg.expand(at_m, 1), am), zg.mul(zg.expand(at, 0), ak)))
    b_at = zg.add(b_ptr, zg.add(zg.mul(zg.expand(at, 1), bk), zg.mul(zg.expand(at_n, 0), bn)))
    acc = zg.zeros((M, N), zg.f32)
    if also == "store before":
        zg.store(a_ptr, 1.0)
    if also == "barrier":
        zg.debug_barrier()
    for step in zg.range(0, zg.cdiv(k, K), warp_specialize=roles):
        rest = k - step * K
        a_in = zg.broadcast(zg.compare(zg.expand(at, 0), rest, LESS), (M, K))
        b_in = zg.broadcast(zg.compare(zg.expand(at, 1), rest, LESS), (K, N))
        if also == "masked":
            a_in = zg.and_(zg.compare(zg.expand(rows, 1), m, LESS), a_in)
            b_in = zg.and_(zg.compare(zg.expand(columns, 0), n, LESS), b_in)
        if also == "half":
            a_in = zg.and_(a_in, zg.compare(zg.expand(at, 0), 8, LESS))
        if also == "endless":
            a, b = zg.load(a_at), zg.load(b_at)
        elif also == "other":
            a, b = zg.load(a_at, a_in, other=1.0), zg.load(b_at, b_in, other=0.0)
        else:
            a, b = zg.load(a_at, a_in, other=0.0), zg.load(b_at, b_in, other=0.0)
        if also == "used":
            a = zg.add(a, a)
        acc = zg.dot(a, b, acc)
        a_at, b_at = zg.add(a_at, K * ak), zg.add(b_at, K * bk)
        if also == "twice":
            a_at = zg.add(a_at, zg.program_id(0))
        if also == "unequal":
            a_at = zg.add(a_at, step)
        if also == "store inside":
            zg.store(c_ptr, 1.0)
    if also == "sum":
        acc = zg.add(acc, zg.expand(zg.sum(acc, 0), 0))
    if also == "activation":
        acc = zg.where(zg.compare(acc, 0.0, zg.CompareKind.GREATER_THAN), acc, zg.mul(acc, 2.0))
    inside = zg.and_(zg.compare(zg.expand(rows, 1), m, LESS), zg.compare(zg.expand(columns, 0), n, LESS))
    if also == "row unmasked":
        inside = zg.broadcast(zg.compare(zg.expand(columns, 0), n, LESS), (M, N))
    zg.store(zg.add(c_ptr, zg.add(zg.mul(zg.expand(rows, 1), cm), zg.expand(columns, 0))), zg.cast(acc, zg.f16), inside)


@zg.kernel
def by_index(a_ptr, b_ptr, c_ptr, m, n, k, am, bn, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr):
    """c = a · bᵀ, by pointers of each iteration; scalars are added to the pointers first."""
    rows, columns = zg.add(zg.program_id(0) * M, zg.arange(0, M)), zg.arange(0, N)
    a_ptr, b_ptr = a_ptr + zg.program_id(0) * M * am, zg.multiple_of(b_ptr, 16)
    acc = zg.zeros((M, N), zg.f32)
    for start in range(0, k, K):
        at = zg.add(start, zg.arange(0, K))
        inside = zg.compare(zg.expand(at, 0), k, LESS)
        a_at = zg.add(a_ptr, zg.add(zg.mul(zg.expand(zg.arange(0, M), 1), am), zg.expand(at, 0)))
        b_at = zg.add(b_ptr, zg.add(zg.mul(zg.expand(columns, 1), bn), zg.expand(at, 0)))
        acc = zg.dot(zg.load(a_at, inside), zg.trans(zg.load(b_at, inside)), acc)
    inside = zg.and_(zg.compare(zg.expand(rows, 1), m, LESS), zg.compare(zg.expand(columns, 0), n, LESS))
    zg.store(zg.add(c_ptr, zg.add(zg.mul(zg.expand(rows, 1), n), zg.expand(columns, 0))), zg.cast(acc, zg.f16), inside)


@zg.kernel
def far(a_ptr, b_ptr, c_ptr, k, am, bn, also: zg.constexpr):
    """Each program's matrix · b, where the matrix may be 2³¹ elements after the parameter or more."""
    at, number = zg.arange(0, 64), zg.program_id(0)
    wide = zg.cast(number, zg.i64)
    if also == "product":
        a_ptr = a_ptr + wide * 2**20
    if also == "constant":
        a_ptr = a_ptr + 2**32
    if also == "factor":
        a_ptr = a_ptr + wide * 2**32
    if also == "sum":
        a_ptr = a_ptr + number * 2**20
        a_ptr = a_ptr + zg.program_id(1) * 2**20
    if also == "narrow":
        a_ptr = a_ptr + number * 2**20
    if also == "squares":
        for _ in zg.static_range(9):
            number = number * number + k
        a_ptr = a_ptr + number * am
    if also == "rows":
        a_ptr = a_ptr + wide * 64 * am
    rows = zg.cast(zg.expand(at, 1), zg.i64) if also == "wide rows" else zg.expand(at, 1)
    a_at = zg.add(a_ptr, zg.add(zg.mul(rows, am), zg.expand(at, 0)))
    b_at = zg.add(b_ptr, zg.add(zg.expand(at, 1), zg.mul(zg.expand(at, 0), bn)))
    acc = zg.zeros((64, 64), zg.i32)
    for _ in range(0, k, 64):
        acc = zg.dot(zg.load(a_at), zg.load(b_at), acc)
        a_at, b_at = zg.add(a_at, 64), zg.add(b_at, 64)
    zg.store(zg.add(c_ptr, zg.add(number * 4096, zg.add(zg.mul(zg.expand(at, 1), 64), zg.expand(at, 0)))), acc)


def types_of(form: str = "NN", also: str = "", element: Any = F16, stride: Any = N, sizes: Any = zg.i32) -> list[Any]:
    strides = [item for letter in form for item in ((stride, 1) if letter == "N" else (1, stride))]
    return [element, element, F16, sizes, sizes, sizes, *strides, zg.i32, 64, 64, 64, also]


def count_of(*argument: Any, kernel: Any = product, **options: Any) -> int:
    """The number of loads that are raised."""
    model = raise_pointers(prepare_for_gpu(kernel.triton(*argument)), CompileOptions("sm_90a", **options))
    verify(model)
    return sum(isinstance(op, tt.DescriptorLoad) for op in model.walk())


@pytest.mark.parametrize("also", ["", "masked", "endless", "activation"])
@pytest.mark.parametrize("form", ["NN", "NT", "TN", "TT"])
def test_raised(form: str, also: str) -> None:
    assert count_of(*types_of(form, also)) == 2


@pytest.mark.parametrize(
    "also",
    [
        "any row", "other rows", "half", "other", "twice", "unequal", "sum", "row unmasked", "store before",
        "store inside", "barrier", "row that wraps around",
    ],
)  # fmt: skip
def test_not_raised(also: str) -> None:
    """The model does not change: not for one of the two loads either."""
    module = prepare_for_gpu(product.triton(*types_of("NN", also)))
    assert zg.same_model(raise_pointers(module, CompileOptions("sm_90a")), module)


ADDRESSES = "its addresses are not known to be those of a block of a tensor, as a descriptor's are"
OTHER = "another load for the dots of its loop is not done by TMA"
WRITES = "an op that may write comes before it, or is in a loop with it"


@pytest.mark.parametrize(
    ("also", "expected"),
    [
        ("", []),
        ("store before", [WRITES, WRITES]),
        ("barrier", [WRITES, WRITES]),
        ("store inside", [WRITES, WRITES]),
        ("unequal", [ADDRESSES, OTHER]),
        ("half", ["its mask is not known to be that of a block, index < size on each axis", OTHER]),
        ("other", ["its value where the mask is false is not zero", OTHER]),
        ("sum", ["its index is taken modulo a size, and rows beyond the size may be stored"] * 2),
    ],
)
def test_why_loads_are_not_raised(also: str, expected: list[str]) -> None:
    """Each load has its obstacle: of stores and barriers, the op in the way."""
    actual = why_not_raised(prepare_for_gpu(product.triton(*types_of("NN", also))), CompileOptions("sm_90a"))
    assert sorted(array.why for array in actual.values()) == sorted(expected)
    in_the_way = {type(array.op) for array in actual.values() if array.why == WRITES}
    assert in_the_way <= {tt.Store, tt.Barrier} and len(in_the_way) == (WRITES in expected)


def test_a_load_that_goes_elsewhere_first_stays() -> None:
    assert count_of(*types_of("NN", "used")) == 1


@pytest.mark.parametrize(
    "types", [types_of(element=zg.ptr(zg.f16)), types_of(stride=zg.i32), types_of(stride=zg.divisible(zg.i64))]
)
def test_bases_and_strides_are_known_multiples_of_16_bytes_in_32_bits(types: list[Any]) -> None:
    assert count_of(*types) == 0


@pytest.mark.parametrize(
    "options",
    [{"raise_pointers": False}, {"num_stages": 1}, {"target": "sm_80"}, {"launch_pdl": True}],
)
def test_options_without_it(options: dict[str, Any]) -> None:
    module = prepare_for_gpu(product.triton(*types_of()))
    arguments = CompileOptions(**{"target": "sm_90a", **options})
    assert zg.same_model(raise_pointers(module, arguments), module)


def test_loads_for_mma_sync_are_raised() -> None:
    """Two warps have too few rows for wgmma."""
    assert count_of(*types_of(), num_warps=2) == 2


def test_pointers_of_each_iteration() -> None:
    assert count_of(F16, F16, F16, zg.i32, zg.i32, zg.i32, N, N, 64, 64, 64, kernel=by_index) == 2


@pytest.mark.parametrize("also", ["product", "constant", "factor", "sum"])
def test_not_where_a_column_may_exceed_32_bits(also: str) -> None:
    """TMA takes indices of 32 bits."""
    assert count_of(I8, I8, zg.ptr(zg.i32), zg.i32, N, N, also, kernel=far) == 0


@pytest.mark.parametrize("also", ["narrow", "rows", "wide rows"])
def test_offsets_of_64_bits_that_move_by_whole_rows(also: str) -> None:
    assert count_of(I8, I8, zg.ptr(zg.i32), zg.i32, N, N, also, kernel=far) == 2


@zg.kernel
def striding(a_ptr, b_ptr, c_ptr, k, am, bn, STEP: zg.constexpr):
    """The pointer moves by itself; the sum of what all iterations add may need 64 bits."""
    at = zg.arange(0, 64)
    acc = zg.zeros((64, 64), zg.i32)
    for _ in range(0, k, 64):
        a = zg.load(zg.add(a_ptr, zg.add(zg.mul(zg.expand(at, 1), am), zg.expand(at, 0))))
        acc = zg.dot(a, zg.load(zg.add(b_ptr, zg.add(zg.expand(at, 1), zg.mul(zg.expand(at, 0), bn)))), acc)
        a_ptr = a_ptr + (am * 64 if STEP == "rows" else 2**26)
    zg.store(zg.add(c_ptr, zg.add(zg.mul(zg.expand(at, 1), 64), zg.expand(at, 0))), acc)


@pytest.mark.parametrize(("step", "plan"), [("rows", 2), ("columns", 0)])
def test_pointers_that_a_loop_moves_far(step: str, plan: int) -> None:
    assert count_of(I8, I8, zg.ptr(zg.i32), zg.i32, N, N, step, kernel=striding) == plan


@zg.kernel
def striding_index(a_ptr, b_ptr, c_ptr, k, am, bn, TYPE: zg.constexpr):
    """The pointer moves by an index that the loop carries; one of 64 bits may exceed 32 bits."""
    at = zg.arange(0, 64)
    acc, start = zg.zeros((64, 64), zg.i32), zg.cast(0, TYPE)
    for _ in range(0, k, 64):
        a = zg.load(zg.add(a_ptr + start, zg.add(zg.mul(zg.expand(at, 1), am), zg.expand(at, 0))))
        acc = zg.dot(a, zg.load(zg.add(b_ptr, zg.add(zg.expand(at, 1), zg.mul(zg.expand(at, 0), bn)))), acc)
        start = start + 64
    zg.store(zg.add(c_ptr, zg.add(zg.mul(zg.expand(at, 1), 64), zg.expand(at, 0))), acc)


@pytest.mark.parametrize(("type_", "plan"), [(zg.i32, 2), (zg.i64, 0)])
def test_indices_that_a_loop_moves(type_: Any, plan: int) -> None:
    assert count_of(I8, I8, zg.ptr(zg.i32), zg.i32, N, N, type_, kernel=striding_index) == plan


def test_squares_of_squares_are_not_multiplied_out() -> None:
    assert count_of(I8, I8, zg.ptr(zg.i32), zg.i32, N, N, "squares", kernel=far) == 0


def laid_out(x: np.ndarray, letter: str, unit: int = 16) -> np.ndarray:
    """The matrix, or its transpose, in rows that are multiples of `unit` apart; NaN fills the rest."""
    if letter == "T":
        return laid_out(x.T, "N").T
    room = np.full((x.shape[0], -(-x.shape[1] // unit) * unit), np.nan, x.dtype)
    room[:, : x.shape[1]] = x
    return room[:, : x.shape[1]]


@functools.cache
def compiled(form: str = "NN", also: str = "", roles: bool = False, **options: Any) -> zg.Compiled:
    return product.compile(*types_of(form, also), roles, target="sm_90a", num_warps=4, verify=True, **options)


def judged(m: int, n: int, k: int, form: str, also: str = "", seed: int = 0, roles: bool = False) -> zg.Compiled:
    """Simulate the compiled kernel, and compare with the interpreter."""
    rng = np.random.default_rng(m + n + k)
    a, b = (
        laid_out(rng.integers(-3, 4, shape).astype(np.float16), letter)
        for shape, letter in zip(((m, k), (k, n)), form, strict=True)
    )
    results: list[np.ndarray] = []
    strides = [stride // 2 for array in (a, b) for stride in array.strides]
    binary = compiled(form, also, roles)
    assert len(binary.maps) == 2 and not hazards(binary.stages["gpu"])
    grid = (-(-m // 64), -(-n // 64))
    for simulated in (True, False):
        c = np.full((m + 64, n + 64), 7, np.float16)
        if simulated:
            run_time = [stride for stride in strides if stride != 1]
            binary.simulate[grid](a, b, c, m, n, k, *run_time, n + 64, seed=seed)
        else:
            product[grid](a, b, c, m, n, k, *strides, n + 64, 64, 64, 64, also, interpret=True)
        results.append(c)
    np.testing.assert_array_equal(*results)
    return binary


@pytest.mark.parametrize("form", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("sizes", [(64, 64, 64), (100, 72, 150), (33, 65, 40)])
def test_products_of_all_forms_and_sizes(form: str, sizes: tuple[int, int, int]) -> None:
    """Rows that wrap around, and columns beyond K: nothing of the NaN between the rows is used."""
    judged(*sizes, form)


@pytest.mark.parametrize(("also", "seed"), itertools.product(["masked", "activation"], [0, 1, 5]))
def test_variations(also: str, seed: int) -> None:
    judged(100, 72, 150, "NN", also, seed)


def test_a_tensor_without_an_end() -> None:
    judged(128, 64, 192, "NT", "endless")


def test_roles() -> None:
    result = judged(100, 72, 300, "NT", roles=True)
    assert any(isinstance(op, gpu.WarpSpecialize) for op in result.stages["gpu"].walk())


def test_results_in_the_memory_of_an_operand() -> None:
    """A program stores after all that it loads; other programs would be a race in any case."""
    a, b = (np.random.default_rng(s).integers(-3, 4, (64, 64)).astype(np.float16) for s in (1, 2))
    binary = compiled()
    expected = a.astype(np.float64) @ b
    binary.simulate[1, 1](a, b, a, 64, 64, 64, 64, 64, 64)
    np.testing.assert_array_equal(a, expected)


@pytest.mark.parametrize("sizes", [(0, 64, 64), (64, 0, 64), (64, 64, 0), (0, 0, 0), (-64, 64, 64), (64, 64, -48)])
def test_matrices_without_elements(sizes: tuple[int, ...]) -> None:
    """All loads give zeros, or are not stored."""
    a, b = (np.ones((64, 64), np.float16) for _ in range(2))
    for plan in (True, False):
        out = np.full((64, 64), 7, np.float16)
        binary = compiled(raise_pointers=plan)
        assert any(part.startswith(MAP) for part in binary.stages["gpu"].body.entry.ops[0].parts) == plan
        binary.simulate[1, 1](a, b, out, *sizes, 64, 64, 64)
        expected = np.full((64, 64), 7)
        expected[: max(sizes[0], 0), : max(sizes[1], 0)] = 0
        np.testing.assert_array_equal(out, expected)


def test_arguments_without_a_tensor_map() -> None:
    arrays = [np.zeros((64, 64), np.float16) for _ in range(3)]
    binary = compiled()
    with pytest.raises(LaunchError, match="must be positive") as error:
        binary.simulate[1, 1](*arrays, 64, 64, 64, -64, 64, 64)
    assert "raise_pointers=False" in str(error.value)
