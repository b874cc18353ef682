"""`explain` of a launch: the cycles of a grid, and the measured time on a GPU, which is played here."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

import ziggurat as zg
from ziggurat.cli import main
from ziggurat.cli.sources import find_kernel
from ziggurat.launches import explained
from ziggurat.transforms.cost.cost import Work

SOURCE = """
import ziggurat as zg

@zg.kernel
def total(x_ptr, out_ptr, n, stride, B: zg.constexpr):
    sums = zg.zeros((B,), zg.f32)
    for start in range(0, n, B):
        sums = zg.add(sums, zg.load(zg.add(x_ptr, zg.mul(zg.add(start, zg.arange(0, B)), stride))))
    zg.store(zg.add(out_ptr, zg.arange(0, B)), sums)

@zg.kernel
def product(a, b, c, k, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr):
    row = zg.program_id(0) * M
    sums = zg.zeros((M, N), zg.f32)
    for start in range(0, a.shape[1], K):
        sums = zg.dot(a.load((row, start)), zg.trans(b.load((0, start))), sums)
    c.store((row, 0), zg.cast(sums, zg.f16))

@zg.kernel
def counted(x_ptr, n):
    while n > 0:
        zg.store(x_ptr, 0.0)
        n -= 1
"""


@pytest.fixture
def file(tmp_path: Any) -> str:
    path = tmp_path / "kernels.py"
    path.write_text(SOURCE)
    return str(path)


def test_cycles_of_a_grid(file: str, capsys: pytest.CaptureFixture[str]):
    arguments = "f32[4096], f32[1024], 4096, 1, 1024"
    assert main(["explain", f"{file}:total", arguments, "--grid", "2,1"]) == 0
    text = capsys.readouterr().out
    # A stride of 1 is compiled in, as a launch does. 4 iterations of 4096 bytes, and 4096 that are stored.
    assert "100 %     128" in text and "; `" not in text
    assert (
        f"\n2 programs, cycles of an SM for each: L2 cache {5 * 4096 // 64}, issue slots "
        in text.splitlines()[-1] + text
    )


def test_descriptors_and_the_sizes_that_they_have(file: str, capsys: pytest.CaptureFixture[str]):
    arguments = "f16[256, 512; 128, 64], f16[128, 512; 128, 64], f16[256, 128; 128, 128], 512, 128, 128, 64"
    assert main(["explain", f"{file}:product", arguments, "--grid", "2"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    # 8 steps of 128×128×64: 512 cycles of the matrix units each.
    assert last.startswith("2 programs, cycles of an SM for each: matrix units 4096, shared memory ")


def test_loops_that_do_not_follow_from_the_arguments(file: str, capsys: pytest.CaptureFixture[str]):
    assert main(["explain", f"{file}:counted", "f32[1], 3", "--grid", "1"]) == 0
    assert capsys.readouterr().out.endswith("1 programs: the iterations of a loop do not follow from the arguments\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--grid", "x"], "--grid must be sizes of one or more; got x\n  hint: --grid 4 1"),
        (
            ["--grid", "1", "--divisible", "n"],
            "--divisible must be left out with --grid\n  hint: the arrays and values",
        ),
        (["--grid", "1", "--target", "cpu"], "explain must have a GPU as its target; got the target 'cpu'"),
    ],
)
def test_misuse(file: str, options: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    assert main(["explain", f"{file}:total", "f32[64], f32[32], 64, 1, 32", *options]) == 1
    assert message in capsys.readouterr().err


@attrs.frozen
class Device:
    """A GPU of 2 SMs at 1 GHz, with memory of 2 × 1 GHz × 32 bits: 8 bytes a nanosecond."""

    name: str = "GPU of paper"
    target: str = "sm_80"

    def attribute(self, name: str) -> int:
        return {
            "MULTIPROCESSOR_COUNT": 2, "CLOCK_RATE": 1_000_000, "MEMORY_CLOCK_RATE": 1_000_000,
            "GLOBAL_MEMORY_BUS_WIDTH": 32,
        }[name]  # fmt: skip


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    runs: list[int] = []

    def bench(run: Any) -> float:
        run()
        runs.append(1)
        return 0.008  # Milliseconds.

    monkeypatch.setattr(explained, "is_here", lambda: True)
    monkeypatch.setattr(explained, "current_device", Device)
    monkeypatch.setattr(explained, "to_device", lambda array: array)
    monkeypatch.setattr(explained, "do_bench", bench)
    return runs


def test_the_measured_time(file: str, gpu: list[int], capsys: pytest.CaptureFixture[str]):
    assert main(["explain", f"{file}:total", "f32[4096], f32[1024], 4096, 1, 1024", "--grid", "3"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("total for sm_80: ") and gpu == [1]
    # Three programs on two SMs move 5 × 4096 bytes each; the arrays have 20480 bytes, which takes 2.56 µs.
    assert "\nGPU of paper: 8.0 µs measured; device memory takes at least 2.6, 32 % of it\n" in text


def test_the_measured_time_of_an_open_loop(file: str, gpu: list[int], capsys: pytest.CaptureFixture[str]):
    assert main(["explain", f"{file}:counted", "f32[1], 3", "--grid", "1"]) == 0
    assert capsys.readouterr().out.endswith("\nGPU of paper: 8.0 µs\n")


def test_tuples_of_arrays(file: str):
    @zg.kernel
    def first(pair, B: zg.constexpr):
        at = zg.arange(0, B)
        zg.store(zg.add(pair[1], at), zg.load(zg.add(pair[0], at)))

    text = explained.report(first, "[f32[64], f32[64]], 64", [1], {})
    assert "1 programs, cycles of an SM for each: L2 cache 8" in text


def test_descriptors_and_tuples_are_measured_as_well(file: str, gpu: list[int], monkeypatch: pytest.MonkeyPatch):
    moved: list[Any] = []
    monkeypatch.setattr(explained, "to_device", lambda array: moved.append(array.shape) or array)
    arguments = "f16[384, 512; 128, 64], f16[128, 512; 128, 64], f16[384, 128; 128, 128], 512, 128, 128, 64"
    kernel = find_kernel(f"{file}:product")
    text = explained.report(kernel, arguments, [3], {"num_warps": 8, "target": "sm_90a"})
    assert text.startswith("product for sm_80: 8 warps") and moved == [(384, 512), (128, 512), (384, 128)]
    data = 2 * (384 * 512 + 128 * 512 + 384 * 128)
    assert f"GPU of paper: 8.0 µs measured; device memory takes at least {data / 8000:.1f}, 973 % of it\n" in text
    moved.clear()

    @zg.kernel
    def first(pair, n, B: zg.constexpr):
        at = zg.arange(0, B)
        zg.store(zg.add(pair[1], at), zg.load(zg.add(pair[0], at)), zg.less(at, n))

    explained.report(first, "[f32[64], i32[64]], 60, 64", [1], {})
    assert moved == [(64,), (64,)] and gpu == [1, 1]


def test_the_least_time_of_a_launch(gpu: list[int]):
    """Rounds of CTAs at the clock of the SMs; memory moves what is asked for, but no array twice."""
    work = Work(issued=12_000.0, moved=64.0)
    cycles = work.cycles["issue slots"]
    for count, ctas, rounds in ((1, 1, 1), (2, 1, 1), (3, 1, 2), (3, 2, 3)):
        least = explained._least(work, count, ctas, 10**6)
        assert least["issue slots"] == pytest.approx(cycles / count * rounds / 1000)
        assert least["device memory"] == pytest.approx(ctas * 64 / 8000)
    assert explained._least(work, 1, 1, 40)["device memory"] == pytest.approx(40 / 8000)
