"""Launches that a process records for a library."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.cuda.device_memory import DeviceArray
from ziggurat.codemodel.types import f16
from ziggurat.shipping.recording import Recorder
from ziggurat.shipping.variant import read_variants


@zg.kernel
def copy(x, n, stride, B: zg.constexpr):
    at = zg.arange(0, B)
    zg.store(x + at * stride, zg.load(x + at * stride, at < n), at < n)


@zg.kernel
def move(block):
    block.store([0, 0], block.load([0, 16]))


PROGRAM = """
import sys
import numpy as np
import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl

@zg.kernel
def add(x, y, n, stride, B: zg.constexpr):
    i = zg.program_id(0) * B + zg.arange(0, B)
    zg.store(y + i * stride, zg.load(x + i * stride, i < n) + 1.0, i < n)

@triton.autotune([triton.Config({"B": b}) for b in (32, 64)], key=["n"])
@triton.jit
def tuned(x, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, tl.load(x + i, i < n) + 1, i < n)

@triton.jit
def of_tuple(xs, dtype: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(xs[1] + i, tl.load(xs[0] + i).to(dtype))

x = np.ones(256, np.float32)
y = np.zeros_like(x)
for n, stride in ((256, 1), (256, 1), (240, 1), (100, 1), (100, 2)):
    add[lambda meta: (zg.cdiv(meta["n"], meta["B"]),)](x, y, n, stride, 64)
for _ in range(2 if len(sys.argv) == 1 else 0):
    tuned[lambda meta: (triton.cdiv(meta["n"], meta["B"]),)](x, 256)
of_tuple[(1,)]((x, y), tl.float32, 16, num_warps=1)
assert (y[:16] == x[:16]).all()
"""


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recording")
    (folder / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "ZIGGURAT_RECORD": str(folder / "launches.json"), "ZIGGURAT_CACHE_DIR": str(folder)}
    for more in ([], ["again"]):  # The second run finds the same variants there.
        command = [sys.executable, str(folder / "program.py"), *more]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
    return read_variants(folder / "launches.json")


def test_each_variant_is_recorded_once(recording):
    assert [variant.kernel for variant in recording] == ["add"] * 3 + ["tuned", "of_tuple"]


def test_what_is_known_of_arguments(recording):
    facts = [{p.name: "one" if p.is_one else p.divisor for p in variant.passed} for variant in recording[:3]]
    assert facts == [
        {"x": 16, "y": 16, "n": 16, "stride": "one"}, {"x": 16, "y": 16, "n": 1, "stride": "one"},
        {"x": 16, "y": 16, "n": 1, "stride": 1},
    ]  # fmt: skip
    assert recording[0].parameters[-1].constant == 64 and recording[0].place.startswith("program.py:")


def test_the_grid_is_recorded(recording):
    assert recording[0].grid is not None and recording[0].grid.takes == ("n",)


def test_only_the_chosen_configuration_is_recorded(recording):
    tuned = recording[3]
    assert tuned.parameters[-1].constant in (32, 64) and "-> {" in tuned.model


def test_tuples_and_options(recording):
    tuple_ = recording[4]
    assert [p.name for p in tuple_.passed] == ["xs[0]", "xs[1]"] and tuple_.options["num_warps"] == 1
    assert tuple_.parameters[2].constant == {"name": "f32"}


def test_launches_on_a_gpu_are_recorded_alike(fake):
    """Arrays and descriptors there, by a fake driver."""
    n, x = 64, DeviceArray(0x1000, (64, 64), f16, 0)

    def noted(kernel, *arguments, grid=(1,), **keywords):
        recorder = Recorder()
        recorder(kernel, grid, arguments, keywords)
        (variant,) = recorder.variants.values()
        return variant

    variant = noted(copy, x, n, 1, 32, grid=lambda meta: (zg.cdiv(meta["n"], meta["B"]),), num_warps=8)
    assert [p.facts for p in variant.parameters] == [
        {"name": "x", "type": "ptr<f16>", "divisor": 16}, {"name": "n", "type": "i32", "divisor": 16},
        {"name": "stride", "type": "i32", "is_one": True}, {"name": "B", "constant": 32},
    ]  # fmt: skip
    assert variant.options == {"num_warps": 8} and variant.grid is not None
    by_blocks = noted(move, zg.TensorDescriptor(x, (16, 16)))
    assert by_blocks.passed[0].type == "descriptor<x16, x16, f16>" and by_blocks.passed[0].divisor == 16


def test_recording_changes_nothing():
    sizes, recorder, x = [2, 1], Recorder(), np.zeros(4, np.float32)
    recorder(copy, lambda meta: (sizes.pop(),), (x, 4, 1, 4), {})
    (variant,) = recorder.variants.values()
    assert variant.grid is None and sizes == [2, 1]


def test_what_cannot_be_recorded_gives_a_warning():
    with pytest.warns(zg.ZigguratWarning, match="a launch of 'copy' is not recorded: 'copy' needs 'B'"):
        Recorder()(copy, (1,), (np.zeros(4), 4, 1), {})
