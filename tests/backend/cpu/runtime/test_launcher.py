"""Plans: the arguments that they take, what is packed, and bounds, all compared with the launch in Python."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
import pytest
from libraries import require

from ziggurat.backend.cpu.code import ArgumentSlot
from ziggurat.backend.cpu.runtime import launcher
from ziggurat.backend.cpu.runtime.kernels import NativeKernel
from ziggurat.backend.cpu.runtime.native import native
from ziggurat.backend.cpu.runtime.plans import Given, plan_of
from ziggurat.backend.cpu.sites import Site
from ziggurat.backend.launch import checks
from ziggurat.codemodel.types import PtrType, f16, f32, f64, find_scalar, i1, i16, i32, i64, u64

Made = Callable[..., NativeKernel]
ARRAYS = 4
# Copies what an entry gets to the first array: its slots, and from the element 8 on 5 + 3 * ARRAYS words of the
# description of the launch.
_ECHO = """
  br label %copy
copy:
  %i = phi i64 [ 0, %body ], [ %i.next, %copy ]
  %i.next = add i64 %i, 1
  %from = getelementptr i64, ptr %arguments, i64 %i
  %to = getelementptr i64, ptr %p0, i64 %i
  %word = load i64, ptr %from
  store i64 %word, ptr %to
  %more = icmp slt i64 %i.next, SLOTS
  br i1 %more, label %copy, label %describe
describe:
  %j = phi i64 [ 0, %copy ], [ %j.next, %describe ]
  %j.next = add i64 %j, 1
  %j.from = getelementptr i64, ptr %launch, i64 %j
  %j.place = add i64 %j, 8
  %j.to = getelementptr i64, ptr %p0, i64 %j.place
  %j.word = load i64, ptr %j.from
  store i64 %j.word, ptr %j.to
  %j.more = icmp slt i64 %j.next, 17
  br i1 %j.more, label %describe, label %copied
copied:
"""
ECHO = _ECHO.replace("SLOTS", "2")
TYPES = " ".join(["ptr<i64>"] * (ARRAYS + 1))
NAMES = [f"a{number}" for number in range(16)]


def slow(*arguments: Any, **keywords: Any) -> str:
    return f"slow {len(arguments)} {sorted(keywords)}"


def failed(record: bytes, grid: bytes, values: Sequence[Any], names: Sequence[str]) -> str:
    return f"failed {np.frombuffer(record, np.int64).tolist()} {launcher.GRID.unpack(grid)} {values} {names}"


def of_array(name: str, array: Any, rules: int = 0) -> Given:
    scalar = find_scalar(array.dtype)
    assert scalar is not None
    return Given(name, array, PtrType(scalar), rules)


def launch_of(
    kernel: NativeKernel, argument: Sequence[Given], grid: tuple[int, int, int] = (1, 1, 1), **options: Any
) -> Any:
    plan = plan_of(kernel, argument, options, "done", failed)
    assert plan is not None
    return native().launcher(grid, [plan], slow)


def views(random: np.random.Generator) -> list[Any]:
    """Arrays of i64: some of their own, some views of one another, of any shape and strides."""
    base = np.zeros((6, 8), np.int64)
    other = np.zeros(40, np.int64)
    raw = np.zeros(400, np.uint8)[8:].view(np.int64)
    choices = [
        base, base[1:3], base[:, ::2], base[::-1], base.T[2:5], base[2, 3:3], base[4:, 5:], other, other[5:9],
        other[20::-3], np.zeros(3, np.int64), np.zeros((2, 0), np.int64), np.array(5, np.int64), raw, raw[3:7],
        np.broadcast_to(other[:1], (4, 3)), np.frombuffer(bytes(64), np.int64),
    ]  # fmt: skip
    return [choices[place] for place in random.integers(0, len(choices), ARRAYS)]


@pytest.mark.parametrize("seed", range(60))
def test_bounds_are_those_of_the_launch_in_python(made: Made, seed: int):
    kernel = made(TYPES, _ECHO.replace("SLOTS", "5"), bounds=(1, 2, 3, 4))
    random = np.random.default_rng(seed)
    first, arrays = np.zeros(32, np.int64), views(random)
    launch = launch_of(kernel, [of_array(NAMES[n], array) for n, array in enumerate([first, *arrays])], (2, 1, 1))
    for more in range(3):
        arrays = views(random) if more else arrays
        kernel.launch((2, 1, 1), NAMES[:5], [first, *arrays])
        expected = first.copy()
        first[:] = 0
        assert launch(first, *arrays) == "done"
        np.testing.assert_array_equal(first, expected)


NUMBERS = [
    (3, i32, [4, 0, -5, 2**31 - 1, -(2**31)], [2**31, -(2**31) - 1, 2**70, 3.0, True, np.int64(3), None]),
    (2**40, i64, [2**31, 2**63 - 1], [5, -(2**40), 2**63, "2"]),
    (-(2**40), i64, [-(2**31) - 1, -(2**63)], [2**40, -5, -(2**63) - 1]),
    (0.5, f32, [1.0, float("inf"), 1e300, -0.0, float("nan")], [1, np.float32(2), None]),
    (0.5, f64, [1.0, 1e300, 5e-324], [1, True]),
    (True, i1, [False, True], [0, 1, np.True_]),
]  # fmt: skip


@pytest.mark.parametrize(("value", "type_", "fit", "others"), NUMBERS)
def test_numbers_of_the_same_type_are_packed(made: Made, value: Any, type_: Any, fit: list[Any], others: list[Any]):
    kernel = made(f"ptr<i64> {type_.name}", ECHO)
    out = np.zeros(32, np.int64)
    launch = launch_of(kernel, [of_array("out", out), Given("x", value, type_)])
    for number in (value, *fit):
        kernel.launch((1, 1, 1), ["out", "x"], [out, number])
        width = {"i1": 1, "i32": 4, "f32": 4}.get(type_.name, 8)
        expected = out[1:2].copy().view(np.uint8)[:width].tobytes()
        out[:] = -1
        assert launch(out, number) == "done"
        assert out[1:2].view(np.uint8)[:width].tobytes() == expected
    for number in others:
        assert launch(out, number) == "slow 2 []"


def test_rules_of_divisibility(made: Made):
    kernel = made("ptr<i64> i32", ECHO)
    room = np.zeros(64, np.int64)
    room = room[room.ctypes.data // 8 % 2 :]  # The first element lies at a multiple of 16.
    divisible = checks.DIVISIBLE
    other = checks.NOT_DIVISIBLE | checks.NOT_ONE
    launch = launch_of(kernel, [of_array("out", room, divisible), Given("n", 32, i32, divisible)])
    assert [launch(room, n) for n in (32, 0, -16, 8)] == ["done", "done", "done", "slow 2 []"]
    assert launch(room[1:], 32) == "slow 2 []"
    launch = launch_of(kernel, [of_array("out", room[1:], other), Given("n", 3, i32, other)])
    assert [launch(room[1:], n) for n in (3, 1, 16, 2)] == ["done", "slow 2 []", "slow 2 []", "done"]
    assert launch(room, 3) == "slow 2 []"


def test_arguments_by_position_by_name_and_left_out(made: Made):
    kernel = made("ptr<i64> i32", ECHO)
    out, block = np.zeros(32, np.int64), 4096 + len(NAMES)
    inputs = [
        of_array("out", out), Given("block", block, None), Given("n", 7, i32), Given("mode", "fast", None),
        Given("left", 2, None, passed=False),
    ]  # fmt: skip
    launch = launch_of(kernel, inputs, num_warps=4)
    fast = "".join(["fa", "st"])
    assert launch(out, int(str(block)), 8, fast, num_warps=4) == "done"
    assert out[1] == 8
    assert launch(out, n=9, mode="fast", block=block, num_warps=4) == "done"
    assert launch(out, block, 8, "fast", 2, num_warps=4) == "done"
    assert launch(out, block, 8, "fast", left=2, num_warps=4) == "done"
    assert out[1] == 8
    for arguments, keywords in (
        ((out, block, 8, "fast"), {}),
        ((out, block, 8, "fast"), {"num_warps": 8}),
        ((out, block, 8, "fast"), {"num_warps": 4.0}),
        ((out, block, 8, "fast", 3), {"num_warps": 4}),
        ((out, block, 8, "fast", 2, 4), {}),
        ((out, block, 8, "fast", 2, 4, 5), {}),
        ((out, block, 8, "slow"), {"num_warps": 4}),
        ((out, block + 1, 8, "fast"), {"num_warps": 4}),
        ((out, block, 8), {"num_warps": 4}),
        ((out, block, 8, "fast"), {"n": 8, "num_warps": 4}),
        ((out, block, 8, "fast"), {"more": 8, "num_warps": 4}),
        ((), {}),
    ):
        assert launch(*arguments, **keywords) == f"slow {len(arguments)} {sorted(keywords)}"


def test_arrays_that_are_not_those_of_the_plan(made: Made):
    kernel = made("ptr<i64>", "")
    out = np.zeros(64, np.int64)
    launch = launch_of(kernel, [of_array("out", out)])

    class Other(np.ndarray):  # type: ignore[type-arg]
        pass

    records = np.zeros(64, np.dtype([("a", np.int64), ("b", np.int32)]))["a"]
    misaligned = np.zeros(64 * 8 + 1, np.uint8)[1:].view(np.int64)
    for array in (
        out.view(Other),
        out.view(np.float64),
        out.astype(">i8"),
        records,
        misaligned,
        [1],
        None,
        "x",
        out[0],
    ):
        assert launch(array) == "slow 1 []"
    assert launch(out) == "done"


def test_errors_have_the_record_and_the_arguments(made: Made):
    body = "  %wrong = icmp eq i64 %program, 5\n  br i1 %wrong, label %fail, label %fine\nfine:\n"
    kernel = made("i32", body)
    launch = launch_of(kernel, [Given("n", 3, i32)], (3, 4, 1))
    assert launch(n=9).startswith("failed [1, 5, ")
    assert launch(n=9).endswith("(3, 4, 1, 0, 12) (9,) ('n',)")
    assert launch(9).endswith("(3, 4, 1, 0, 12) (9,) ()")


def test_the_first_plan_that_fits_is_taken(made: Made):
    kernel = made("ptr<i64> f32", ECHO)
    out = np.zeros(32, np.int64)
    first = plan_of(kernel, [of_array("out", out), Given("x", 1.5, f32)], {}, "first", failed)
    second = plan_of(kernel, [of_array("out", out), Given("x", None, None)], {}, "second", failed)
    plans = [first, second]
    launch = native().launcher((1, 1, 1), plans, slow)
    assert [launch(out, 2.0), launch(out, None), launch(out, 2)] == ["first", "second", "slow 2 []"]
    plans[:] = [second]
    assert launch(out, 2.0) == "slow 2 []"


def test_references_are_given_back(made: Made):
    kernel = made("ptr<i64> i32", ECHO)
    out, mode, n = np.zeros(32, np.int64), "".join(["mo", "de"]), 1000
    options = {"num_warps": 2**20}
    launch = launch_of(kernel, [of_array("out", out), Given("n", n, i32), Given("mode", mode, None)], **options)
    things = [out, mode, n, options["num_warps"], np.ndarray, out.dtype, launch]
    before = list(map(sys.getrefcount, things))
    for number in range(100):
        launch(out, n, mode=mode, **options)
        launch(out, 2.0, mode=mode, **options)
        launch(out, 1 << 70, mode, number)
    assert list(map(sys.getrefcount, things)) == before


def test_tensors_of_torch(made: Made):
    torch = require("torch")
    kernel = made("ptr<i64> ptr<i64>", ECHO, bounds=(0, 1))
    out, x = torch.zeros(32, dtype=torch.int64), torch.zeros((2, 3), dtype=torch.int64)
    launch = launch_of(kernel, [of_array("out", out), of_array("x", x)])
    kernel.launch((1, 1, 1), ["out", "x"], [out.numpy(), x.numpy()])
    expected = out.clone()
    out[:] = 0
    assert launch(out, x) == "done"
    assert torch.equal(out[:17], expected[:17])
    before = [sys.getrefcount(thing) for thing in (out, x, torch.int64)]
    assert launch(out, x.t()) == "done"  # No stride is asked for: the kernel reads memory in order.
    nested = torch.nested.nested_tensor([torch.zeros(3, dtype=torch.int64)] * 2)
    for other in (x.to(torch.int32), nested, torch.zeros(6, dtype=torch.int64, device="meta"), x.numpy(), None):
        assert launch(out, other) == "slow 2 []"
    assert launch(out, x[1:]) == "done"
    assert [sys.getrefcount(thing) for thing in (out, x, torch.int64)] == before


def test_views_of_torch_with_a_stride_of_the_launch(made: Made):
    torch = require("torch")
    kernel = made("ptr<i64> ptr<i64> i32", ECHO, bounds=(0, 1))
    out, wide = torch.zeros(32, dtype=torch.int64), torch.zeros((4, 6), dtype=torch.int64)
    x = wide[:, :2]
    arguments = [of_array("out", out), attrs.evolve(of_array("x", x), stride=(0, 2, 6)), Given("stride", 6, i32)]
    launch = launch_of(kernel, arguments)
    assert launch(out, x, 6) == "done"
    low = x.data_ptr()
    spans = [(out.data_ptr(), out.data_ptr() + 256), (low, low + 8 * (3 * 6 + 2))]
    assert [tuple(out[13 + 3 * n : 15 + 3 * n].tolist()) for n in (0, 1)] == spans
    for other, number in ((x, 5), (wide[:, ::2].t(), 6), (wide[::2], 6)):
        assert launch(out, other, number) == "slow 3 []"
    assert launch(out, wide[::2], 12) == launch(out, wide, 5) == "done"
    launch = launch_of(kernel, [arguments[0], attrs.evolve(arguments[1], stride=(64, -1, 0)), arguments[2]])
    assert launch(out, x, 6) == "slow 3 []" and launch(out, wide, 6) == "done"


@pytest.mark.parametrize(
    "make_arguments",
    [
        Given("x", (1, 2), i32),
        Given("x", np.float16(1), f16),
        Given("x", 2**63, u64),
        Given("x", memoryview(b"1234"), PtrType(i32)),
        Given("x", 1, f32),
    ],
)
def test_arguments_without_a_plan(made: Made, make_arguments: Given):
    assert plan_of(made("i32", ""), [make_arguments], {}, None, failed) is None


def test_too_many_arguments_for_a_plan(made: Made):
    out = np.zeros(4, np.int64)
    kernel = made(" ".join(["ptr<i64>"] * 25), "")
    assert plan_of(kernel, [of_array(f"a{n}", out) for n in range(25)], {}, None, failed) is None
    arguments = [Given(f"c{n}", n, None) for n in range(65)]
    assert plan_of(made("", ""), arguments, {}, None, failed) is None
    assert plan_of(made("", ""), arguments[:64], {}, None, failed) is not None


def test_kernels_without_a_plan(made: Made):
    """Those that print, and those that get two parts of one argument."""
    arguments = [Given("n", 3, i32), Given("m", 3, i32)]
    kernel = made("i32 i32", "")
    assert plan_of(kernel, arguments, {}, None, failed) is not None
    assert plan_of(made("i32 i32", "", sites=(Site("prints", None),)), arguments, {}, None, failed) is None
    code = attrs.evolve(kernel.code, parameters=(ArgumentSlot("i32", 0), ArgumentSlot("i32", 0, "shape0")))
    assert plan_of(NativeKernel(code, "parts"), arguments, {}, None, failed) is None


def test_constants_of_a_plan(made: Made):
    """Constants without a hash have no plan; tuples are compared by identity."""
    kernel = made("", "")
    assert plan_of(kernel, [Given("c", [1], None)], {}, None, failed) is None
    assert plan_of(kernel, [], {"c": {}}, None, failed) is None
    value = (1, 2.5)
    launch = launch_of(kernel, [Given("c", value, None)])
    assert [launch(value), launch((1, *[2.5]))] == ["done", "slow 1 []"]


def test_a_number_that_the_kernel_does_not_read(made: Made):
    """Its entry has no slot, and the numbers of the arguments after it are those of the launch."""
    kernel = made("ptr<i64> i32", ECHO)
    code = attrs.evolve(kernel.code, parameters=(ArgumentSlot("ptr<i64>", 0), ArgumentSlot("i32", 2)), bounds=(0,))
    out = np.zeros(32, np.int64)
    launch = launch_of(NativeKernel(code, "unread"), [of_array("out", out), Given("x", 0.5, f32), Given("n", 7, i32)])
    assert launch(out, 1.5, 9) == "done"
    assert out[1] == 9 and out[13:15].tolist() == [out.ctypes.data, out.ctypes.data + 256]


@pytest.mark.parametrize(
    ("value", "type_", "declared", "fit", "others"),
    [
        (3, i64, True, [2**40, -(2**63), 2**63 - 1], [2**63]),
        (3, i32, True, [-(2**31), 2**31 - 1], [2**31]),
        (np.int32(3), i32, False, [np.int32(-5)], [3, np.int64(3)]),
        (np.int64(2**40), i64, False, [np.int64(2**50)], [np.int64(3), 2**40]),
        (np.int16(3), i16, False, [np.int16(-5)], [np.int32(3)]),
    ],
)
def test_declared_integers_and_those_of_numpy(
    made: Made, value: Any, type_: Any, declared: bool, fit: list[Any], others: list[Any]
):
    """All numbers of a declared type, or of NumPy's, fit."""
    launch = launch_of(made("", ""), [Given("n", value, type_, declared=declared)])
    assert [launch(number) for number in (value, *fit)] == ["done"] * (1 + len(fit))
    assert [launch(number) for number in others] == ["slow 1 []"] * len(others)


def test_numbers_that_a_plan_cannot_hold(made: Made):
    for given in (
        Given("x", True, i32), Given("x", 3, f32), Given("x", 0.5, f16), Given("x", 1, i1), Given("x", "1", i32),
        Given("x", 0.5, i32), Given("x", 3, u64, declared=True),
    ):  # fmt: skip
        assert plan_of(made("", ""), [given], {}, None, failed) is None
