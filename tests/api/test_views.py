"""Views that are not contiguous: a launch warns once where no number is one of their strides."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from libraries import require

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.codemodel.errors import ZigguratWarning
from ziggurat.triton.runtime.driver import HostDriver, driver

torch = require("torch")
N = 8


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine for Triton's programs, which take no arrays in its memory where it has a GPU."""
    monkeypatch.setattr(driver, "active", HostDriver())


@zg.kernel
def read(x_ptr, y_ptr, stride, B: zg.constexpr = N, S: zg.constexpr = 1):
    offsets = zg.arange(0, B)
    x = zg.load(zg.add(x_ptr, zg.mul(zg.mul(offsets, stride), S)))
    zg.store(zg.add(y_ptr, offsets), x)


@triton.jit
def triton_read(x_ptr, y_ptr, stride, B: tl.constexpr = N, S: tl.constexpr = 1):
    offsets = tl.arange(0, B)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets * stride * S))


MAKE = pytest.mark.parametrize("make", [lambda: zg.kernel(read.fn), lambda: triton.jit(triton_read.fn)])
WIDE = np.arange(400, dtype=np.float32).reshape(20, 20)
LINE = np.arange(400, dtype=np.float32)


def warned(launcher: Any, x: Any, *numbers: Any, **keywords: Any) -> bool:
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always")
        launcher(x, np.zeros(N, np.float32), *numbers, **keywords)
    messages = [str(each.message) for each in records if issubclass(each.category, ZigguratWarning)]
    assert all("'x_ptr' of" in text and "must be contiguous" in text for text in messages)
    return bool(messages)


STRAY: list[Callable[[], Any]] = [
    lambda: LINE[::2], lambda: WIDE.T, lambda: WIDE[:, :5], lambda: WIDE[:, 3], lambda: torch.from_numpy(WIDE).t(),
    lambda: np.lib.stride_tricks.sliding_window_view(LINE, 3), lambda: torch.from_numpy(LINE)[::3],
    lambda: np.asfortranarray(WIDE), lambda: torch.from_numpy(WIDE)[:, 3],
    lambda: np.broadcast_to(WIDE[:, :1], (20, 20)), lambda: torch.from_numpy(LINE)[:8].reshape(2, 1, 4).expand(2, 3, 4),
]  # fmt: skip
FINE: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (WIDE[:, :5], (20,), {}), (WIDE.T, (20,), {}), (WIDE[:, 3], (20,), {}), (LINE[::2], (2,), {}),
    (LINE[::3], (1,), {"S": 3}), (torch.from_numpy(WIDE).t(), (20,), {}), (WIDE, (1,), {}), (WIDE[3:7], (1,), {}),
    (WIDE[:, :1], (20,), {}), (WIDE[4:5], (1,), {}), (np.broadcast_to(LINE[:8], (4, 8)), (0,), {}),
    (torch.from_numpy(LINE)[:1].expand(20), (0,), {}), (torch.from_numpy(WIDE)[:, 3], (20,), {}),
    (torch.from_numpy(WIDE)[:, :5], (20,), {}), (torch.nn.Parameter(torch.ones(20, 20)[:, 3]), (20,), {}),
    (LINE.reshape(20, 1, 20), (1,), {}), (WIDE[:, ::2], (np.int64(20),), {}),
]  # fmt: skip


@MAKE
@pytest.mark.parametrize("stray", STRAY)
@pytest.mark.parametrize("warm", [False, True])
def test_a_launch_warns_once(make: Callable[[], Any], stray: Callable[[], Any], warm: bool):
    kernel = make()
    launcher = kernel[1]
    if warm:
        for number in (1, 2, 20):
            assert not warned(launcher, WIDE, number) and not warned(launcher, torch.from_numpy(WIDE), number)
    assert warned(kernel[1], stray(), 1)
    for _ in range(3):
        assert not warned(launcher, stray(), 1) and not warned(kernel[1], stray(), 1)


@MAKE
@pytest.mark.parametrize("number", range(len(FINE)))
def test_there_is_no_false_alarm(make: Callable[[], Any], number: int, monkeypatch: pytest.MonkeyPatch):
    kernel = make()
    x, numbers, name = FINE[number]
    for _ in range(2):
        assert not warned(kernel[1], x, *numbers, **name)
        assert not warned(kernel[1], WIDE, 1)
    monkeypatch.setattr(kernel, "launch", lambda *arguments, **more: pytest.fail("the view takes the slow path"))
    for _ in range(2):
        assert not warned(kernel[1], x, *numbers, **name)


@MAKE
@pytest.mark.parametrize("library", [lambda array: array, torch.from_numpy], ids=["numpy", "torch"])
def test_a_plan_knows_which_number_is_the_stride(make: Callable[[], Any], library: Callable[[Any], Any]):
    kernel = make()
    for width in (20, 10, 5):
        x = library(LINE.reshape(-1, width)[:, :3])
        assert not warned(kernel[1], x, width)
        y = np.zeros(N, np.float32)
        kernel[1](x, y, width)
        np.testing.assert_array_equal(y, x[:N, 0])
    assert warned(kernel[1], library(WIDE[:, :3]), 2)


@zg.kernel
def read_rows(x_ptr, y_ptr, strides, first, second, third: zg.constexpr = 1):
    zg.store(y_ptr, zg.load(x_ptr))


@triton.jit
def triton_read_rows(x_ptr, y_ptr, strides, first, second, third: tl.constexpr = 1):
    tl.store(y_ptr, tl.load(x_ptr))


MAKE_ROWS = pytest.mark.parametrize("make", [lambda: zg.kernel(read_rows.fn), lambda: triton.jit(triton_read_rows.fn)])
WINDOWS = np.lib.stride_tricks.sliding_window_view(LINE, 3)


@MAKE_ROWS
@pytest.mark.parametrize(
    ("x", "numbers", "is_stray"),
    [
        (WINDOWS, (64, 1, 1), False), (WINDOWS, (64, 1, 2), True),
        (torch.from_numpy(LINE).unfold(0, 3, 1), (64, 1, 1), False),
        (np.broadcast_to(LINE[:8], (4, 8)), (64, 64, 1), False), (np.broadcast_to(LINE[:8], (4, 8)), (64, 64, 8), True),
        (WIDE[:, 3], (np.array([20]), 8, 1), False), (WIDE[:, 3], (torch.tensor([20, 1]), 8, 1), False),
        (WIDE[:, 3], ((np.array([20], np.int32), 20), 8, 1), False),
        (LINE[::3], (np.arange(16), 8, 1), True), (WIDE[:, 3], (np.array([0, 20]), 8, 1), True),
        (WIDE[:, 3], (np.full(400, 20), 8, 1), True), (WIDE[:, 3], (np.array([20.0]), 8, 1), True),
        (np.broadcast_to(LINE[:1], (20,)), (np.zeros(4, np.int32), 8, 1), True),
    ],
)  # fmt: skip
def test_numbers_that_are_strides(make: Callable[[], Any], x: Any, numbers: tuple[Any, ...], is_stray: bool):
    kernel = make()
    assert warned(kernel[1], x, *numbers) == is_stray
    assert not warned(kernel[1], x, *numbers)
