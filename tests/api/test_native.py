"""Kernels on arrays in memory as native code: launches, arguments of all libraries, errors, the cache, processes."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from libraries import require

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.backend.cpu.runtime.native import native
from ziggurat.backend.jit.objects import Objects
from ziggurat.cli import main
from ziggurat.codemodel.errors import ZigguratWarning

HERE = Path(__file__)


@zg.kernel
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: zg.constexpr = 64):
    start = zg.program_id(0) * BLOCK
    offsets = zg.add(start, zg.arange(0, BLOCK))
    mask = zg.compare(offsets, n, zg.CompareKind.LESS_THAN)
    x = zg.load(zg.add(x_ptr, offsets), mask)
    y = zg.load(zg.add(y_ptr, offsets), mask)
    zg.store(zg.add(out_ptr, offsets), zg.add(x, y), mask)


def fresh() -> zg.Kernel:
    """The kernel without the launches of other tests."""
    return zg.kernel(add.fn)


def arrays(n: int = 1000, dtype: Any = np.float32) -> list[Any]:
    random = np.random.default_rng(0)
    return [random.standard_normal(n).astype(dtype), random.standard_normal(n).astype(dtype), np.zeros(n, dtype)]


def test_launches_have_the_interpreter_s_result():
    kernel = fresh()
    x, y, out = arrays()
    for grid in ((16,), (16, 1), 16, lambda meta: (zg.cdiv(meta["n"], meta["BLOCK"]),), [16]):
        for _ in range(3):
            out[:] = 0
            kernel[grid](x, y, out, 1000, BLOCK=64, interpret=False)
            np.testing.assert_array_equal(out, x + y)
    assert kernel[16,] is kernel[16,], "the launcher over a grid is made once"


@pytest.mark.parametrize("library", ["numpy", "torch", "bfloat16", "jax", "dlpack", "descriptor"])
def test_arrays_of_other_libraries_are_not_copied(library: str):
    x, y, out = arrays()
    inputs: list[Any] = [x, y, out]
    if library == "torch":
        torch = require("torch")
        inputs = [torch.from_numpy(array) for array in inputs]
    elif library == "bfloat16":
        torch = require("torch")
        inputs = [torch.from_numpy(array).to(torch.bfloat16) for array in inputs]
        out = inputs[2]
    elif library == "jax":
        jax = require("jax")
        inputs = [*map(jax.numpy.asarray, inputs[:2]), out]
    elif library == "dlpack":

        class Protocol:
            def __init__(self, array: Any) -> None:
                self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__

        inputs = [*map(Protocol, inputs[:2]), out]
    kernel = fresh()
    for _ in range(2):
        out[:] = 0
        kernel[16,](*inputs, 1000, interpret=False)
        if library == "bfloat16":
            assert (inputs[2] == inputs[0] + inputs[1]).all()
        else:
            np.testing.assert_array_equal(out, x + y)


@zg.kernel
def copy(source, target, COUNT: zg.constexpr):
    for i in range(COUNT):
        target.store([zg.program_id(0), i * 16], source.load([zg.program_id(0), i * 16]))


def test_descriptors():
    x, out = np.arange(4 * 64, dtype=np.float32).reshape(4, 64), np.zeros((4, 64), np.float32)
    for _ in range(2):
        copy[4,](zg.TensorDescriptor(x, (1, 16)), zg.TensorDescriptor(out, (1, 16)), COUNT=4, interpret=False)
    np.testing.assert_array_equal(out, x)


def test_a_stray_access_is_the_interpreter_s_error():
    messages: set[str] = set()
    x, y, out = arrays()
    kernel = fresh()
    for options in ({"interpret": True}, {"interpret": False}, {"interpret": False}):
        with pytest.raises(zg.MemoryAccessError) as error:
            kernel[17,](x, y, out[:993], 1024, interpret=options["interpret"])
        messages.add(str(error.value))
    assert len(messages) == 1
    assert "program (15, 0, 0) reads x_ptr[1000], but x_ptr has 1000 elements" in messages.pop()
    kernel[16,](x, y, out, 1000, interpret=False)
    with pytest.raises(zg.MemoryAccessError, match=r"program \(15, 0, 0\) reads x_ptr"):
        kernel[16,](x, y, out, 1008, interpret=False)  # by a plan, as 1008 is divisible by 16 as 1000 is not


def test_read_only_arrays():
    x, y, out = arrays()
    x.flags.writeable = False
    kernel = fresh()
    for _ in range(2):
        kernel[16,](x, y, out, 1000, interpret=False)
    out.flags.writeable = False
    for _ in range(2):
        with pytest.raises(zg.MemoryAccessError, match="writes out_ptr, but its array is read-only"):
            kernel[16,](x, y, out, 1000, interpret=False)


def test_arguments_are_bound_and_refused_as_ever():
    x, y, out = arrays()
    kernel = fresh()
    kernel[16,](x, y, out, n=1000, interpret=False)
    with pytest.raises(zg.LaunchError, match="takes 5 arguments; got 6"):
        kernel[16,](x, y, out, 1000, 64, 3, interpret=False)
    with pytest.raises(zg.LaunchError, match="has no parameter 'm'"):
        kernel[16,](x, y, out, 1000, m=3, interpret=False)
    with pytest.raises(zg.LaunchError, match="'n'"):
        kernel[16,](x, y, out, interpret=False)
    with pytest.raises(zg.LaunchError, match="check must be True or False"):
        kernel[16,](x, y, out, 1000, check="no", interpret=False)


def test_without_checks():
    x, y, out = arrays(1024)
    kernel = fresh()
    for _ in range(2):
        kernel[16,](x[:1000], y[:1000], out[:1000], 1024, check=False, interpret=False)  # Reads and writes beyond.
    np.testing.assert_array_equal(out, x + y)
    with pytest.raises(zg.MemoryAccessError):
        kernel[16,](x[:1000], y[:1000], out[:1000], 1024, interpret=False)


SCALE = 2.0


@zg.kernel
def scaled(x_ptr, SCALED: zg.constexpr = True):
    zg.store(x_ptr, zg.mul(zg.load(x_ptr), SCALE))


@pytest.mark.parametrize("grid", [16, (16,), (16, 1), np.int64(16)])
def test_grids_are_known_at_later_launches(grid: Any, monkeypatch: pytest.MonkeyPatch):
    kernel = fresh()
    x, y, out = arrays()
    kernel[grid](x, y, out, 1000, 64)
    monkeypatch.setattr(kernel, "launch", lambda *arguments, **keywords: pytest.fail("the grid is not known"))
    out[:] = 0
    kernel[grid](x, y, out, 1000, 64)
    np.testing.assert_array_equal(out, x + y)


@zg.kernel
def converted(out_ptr, value):
    zg.store(out_ptr, zg.cast(value, zg.f64))


@pytest.mark.parametrize(
    ("first", "same", "others"),
    [
        (np.int64(3), [np.int64(5), np.int64(1 - 2**31)], [3, np.int64(2**31), np.int64(16), np.int32(3)]),
        (np.int64(2**40 + 1), [np.int64(2**31 + 1)], [np.int64(3), np.int64(-(2**40) - 1)]),
        (np.int8(-3), [np.int8(-127), np.int8(127)], [np.int16(3), np.int8(16), -3]),
        (np.uint32(3), [np.uint32(2**32 - 1)], [np.int32(3)]),
        (np.uint64(3), [], [np.uint64(2**64 - 1)]),
        (np.float64(0.1), [np.float64(-1e300), np.float64("nan")], [0.1, np.float32(0.1)]),
        # The fast way would convert a subnormal as the processor does, which may flush it.
        (np.float32(0.1), [np.float32(-3e38)], [np.float64(0.1), np.float16(0.1), np.float32(1e-45)]),
        (np.float16(0.1), [], [np.float16(0.25)]),
        (True, [False], [np.bool_(True), 1]),
    ],
)
def test_numbers_of_numpy_are_known_at_later_launches(first: Any, same: list[Any], others: list[Any]):
    kernel = zg.kernel(converted.fn)
    out, expected = np.zeros(1), np.zeros(1)
    slow, launch = [], kernel.launch
    kernel.launch = lambda *arguments, **keywords: (slow.append(arguments), launch(*arguments, **keywords))  # pyright: ignore
    kernel[(1,)](out, first)
    for value in (first, *same, *others):
        slow.clear()
        with np.errstate(over="ignore"):
            kernel[(1,)](out, value)
            converted[(1,)](expected, value, interpret=True)
        np.testing.assert_array_equal(out, expected)
        assert bool(slow) == (any(value is other for other in others) or isinstance(value, np.uint64 | np.float16))


@triton.jit
def declared(out_ptr, value: tl.int32):
    tl.store(out_ptr, value.to(tl.float64))


def test_numbers_of_declared_parameters():
    out = np.zeros(1)
    for value in (np.int64(3), np.bool_(True), np.int8(5), True, 7, np.int64(2**32 + 3)):
        for _ in range(3):
            declared[(1,)](out, value)
            assert out[0] == int(value) % 2**32


def test_a_changed_global_leads_to_new_code():
    global SCALE
    x = np.ones(1, np.float32)
    scaled[1,](x, interpret=False)
    SCALE = 5.0
    scaled[1,](x, interpret=False)
    SCALE = 2.0
    assert x[0] == 10


def test_the_interpreter_takes_over_where_there_is_no_native_code(monkeypatch: pytest.MonkeyPatch):
    from ziggurat.launches import cpu

    def refuse(*arguments: Any, **more: Any) -> Any:
        raise zg.TargetError("'tt.dance' has no native code")

    monkeypatch.setattr(cpu, "code_of", refuse)
    x, y, out = arrays()
    kernel = fresh()
    with pytest.warns(ZigguratWarning, match="'add' is interpreted, as no native code could be made: 'tt.dance' has"):
        kernel[16,](x, y, out, 1000, interpret=False)
    np.testing.assert_array_equal(out, x + y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out[:] = 0
        kernel[16,](x, y, out, 1000, interpret=False)
    np.testing.assert_array_equal(out, x + y)


def test_compiled_kernels_have_stages_and_run():
    compiled = add.compile(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, 64, target="cpu")
    assert list(compiled.stages) == ["python", "triton", "cpu", "llvm", "asm"]
    assert "cpu.module" in str(compiled.cpu) and "define i64" in compiled.llvm and compiled.code.symbol in compiled.asm
    x, y, out = arrays()
    compiled[16,](x, y, out, 1000)
    np.testing.assert_array_equal(out, x + y)
    with pytest.raises(zg.LaunchError, match="'out_ptr' of 'add' is compiled for an array of f32; got an array of f64"):
        compiled[16,](x, y, out.astype(np.float64), 1000)
    with pytest.raises(zg.LaunchError, match="must be launched over a grid"):
        compiled(x, y, out, 1000)
    assert "compiled for" in repr(compiled)
    with pytest.raises(
        AttributeError, match="compiled for a CPU has no 'ptx'\n  hint: its stages are python, triton, cpu"
    ):
        _ = compiled.ptx
    again = zg.compile(compiled.stages["triton"], target="cpu")
    assert again.code.object == compiled.code.object, "two builds of one kernel are equal"
    assert pickle.loads(pickle.dumps(again.code)) == again.code


def test_a_kernel_for_a_gpu_has_no_stages_of_a_cpu():
    types = zg.ptr(zg.f32), zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32
    compiled = add.compile(*types, target="sm_90a")
    for name in ("asm", "cpu"):
        with pytest.raises(
            AttributeError, match=f"compiled for a GPU has no '{name}'\n  hint: its stages are python, t"
        ):
            getattr(compiled, name)
    assert compiled in {compiled}


@pytest.mark.parametrize("stage", ["cpu", "asm", "llvm", "all"])
def test_stages_on_the_command_line(stage: str, capsys: pytest.CaptureFixture[str]):
    target = [] if stage in ("cpu", "asm") else ["--target", "cpu"]
    assert main(["show", f"{HERE}:add", "ptr<f32>, ptr<f32>, ptr<f32>, i32, 64", "--stage", stage, *target]) == 0
    output = capsys.readouterr().out
    marks = {"cpu": "cpu.region", "asm": ".text", "llvm": "define i64 @"}
    assert all(mark in output for name, mark in marks.items() if stage in (name, "all"))
    assert (
        main(["show", f"{HERE}:add", "ptr<f32>, ptr<f32>, ptr<f32>, i32, 64", "--stage", "ptx", "--target", "cpu"]) == 1
    )


# The cache on disk.


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.object"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    native()  # The runtime is in the cache as well, if it is compiled there.
    monkeypatch.setenv("ZIGGURAT_CACHE_DIR", str(tmp_path))
    return tmp_path


def run_once() -> None:
    x, y, out = arrays()
    fresh()[16,](x, y, out, 1000, interpret=False)
    np.testing.assert_array_equal(out, x + y)


def test_code_is_kept_on_disk(cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    run_once()
    (file,) = files(cache)
    from ziggurat.backend.cpu import compile as compiler

    with monkeypatch.context() as patch:
        patch.setattr(compiler, "compile_cpu", None)
        run_once()
    x, y, out = arrays()
    with pytest.raises(zg.MemoryAccessError, match="reads x_ptr"):  # The places of checks are kept, too.
        fresh()[16,](x, y, out, 1001, interpret=False)
    assert main(["cache"]) == 0
    assert " add\n" in capsys.readouterr().out
    for damaged in (b"", file.read_bytes()[:-10], b"x" + file.read_bytes()[1:]):
        file.write_bytes(damaged)
        run_once()
        assert file.read_bytes() != damaged


_PROGRAM = """
import multiprocessing, sys
sys.path[:0] = sys.argv[1:]
import test_native, ziggurat.backend.cpu.compile, ziggurat.backend.cpu.runtime.kernels
def work():
    start.wait()
    for _ in range(3):
        test_native.run_once()
context = multiprocessing.get_context("fork")
start = context.Barrier(8)
processes = [context.Process(target=work) for _ in range(8)]
for process in processes:
    process.start()
for process in processes:
    process.join()
print([process.exitcode for process in processes])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_many_processes_compile_at_once(cache: Path):
    command = [sys.executable, "-c", _PROGRAM, str(HERE.parent), str(HERE.parents[1] / "support")]
    assert subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout == f"{[0] * 8}\n"
    assert len(Objects().entries()) >= 1 and not list(cache.glob(".*-*"))


# Torture.


@pytest.mark.skipif(sys.platform == "win32", reason="counts memory as Unix does")
def test_many_launches_leave_no_memory_behind():
    import resource

    kernel = fresh()
    x, y, out = arrays(64)

    def launch(count: int) -> int:
        for number in range(count):
            kernel[1,](x, y, out, number % 64, interpret=False)
            if number % 1000 == 0:
                kernel[number % 3,](x.copy(), y.copy(), out, 64, interpret=False)
                with pytest.raises(zg.MemoryAccessError):
                    kernel[2,](x, y, out, 128, interpret=False)
        gc.collect()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    before = launch(2000)
    assert launch(100_000) - before < 4096, "kilobytes"


def test_many_threads_launch_new_kernels_at_once():
    def work(number: int) -> bool:
        good = True
        for turn in range(20):
            x, y, out = arrays(500 + 100 * (turn % 5), (np.float32, np.float64)[number % 2])
            kernels[turn % 3][lambda meta: (zg.cdiv(meta["n"], meta["BLOCK"]),)](
                x, y, out, len(x), BLOCK=16 << turn % 3, interpret=False
            )
            good &= bool((out == x + y).all())
        return good

    kernels = [fresh() for _ in range(3)]
    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(16)))
    assert threading.active_count() < 30


@pytest.mark.parametrize("at_end", [False, True])
def test_guard_pages_around_arrays_are_not_touched(at_end: bool):
    """An array at the edge of a page that cannot be read: masked lanes must not touch it."""
    from guarded import POSSIBLE, guarded  # Processes that import this file have no path to it.

    if not POSSIBLE:
        pytest.skip("needs mprotect")
    x, y, out = (guarded(np.zeros(1000, np.float32), at_end) for _ in range(3))
    x[:], y[:] = np.arange(1000), 1
    for grid, block in ((16, 64), (1, 1024), (63, 16), (1000, 1)):
        for check in (True, False):
            out[:] = 0
            fresh()[grid,](x, y, out, 1000, BLOCK=block, check=check, interpret=False)
            np.testing.assert_array_equal(out, x + y)


# Tuning and timing.


def test_tuning_measures_native_code(cache: Path):
    configs = [zg.Config({"BLOCK": block}) for block in (16, 64, 1024)]
    kernel = zg.autotune(configs, key=["n"], restore_value=["out_ptr"], warmup=1, rep=2)(fresh())
    x, y, out = arrays()
    grid = lambda meta: (zg.cdiv(meta["n"], meta["BLOCK"]),)  # noqa: E731
    for _ in range(2):
        out[:] = 0
        kernel[grid](x, y, out, 1000, interpret=False)
        np.testing.assert_array_equal(out, x + y)
    with pytest.raises(
        zg.LaunchError, match=r"'BLOCK' of 'add' is chosen by zg\.autotune, and the launch gives it as well"
    ):
        kernel[grid](x, y, out, 1000, BLOCK=64)
    assert len(kernel.choices) == 1 and kernel.last is not None and set(kernel.last.times) == set(map(str, configs))
    assert kernel.last.about["types"] == {"x_ptr": "f32", "y_ptr": "f32", "out_ptr": "f32"}
    again = zg.autotune(configs, key=["n"], measure=lambda run: pytest.fail("it is on disk"))(fresh())
    again[grid](x, y, out, 1000, interpret=False)
    interpreted = zg.autotune(configs, key=["n"], measure=lambda run: pytest.fail("it is interpreted"))(fresh())
    interpreted[grid](x, y, out, 1000, interpret=True)


def test_threads_tune_one_after_another(cache: Path):
    lock, measured = threading.Lock(), list[int]()
    running = 0

    def measure(run: Callable[[], None]) -> float:
        nonlocal running
        with lock:
            running += 1
            measured.append(running)
        time.sleep(0.001)
        run()
        with lock:
            running -= 1
        return 1.0

    @zg.kernel
    def accumulate(x_ptr, skipped, n, BLOCK: zg.constexpr):
        at = zg.add(zg.mul(zg.program_id(0), BLOCK), zg.arange(0, BLOCK))
        zg.atomic_add(zg.add(x_ptr, at), 1.0, zg.less(at, n))

    configs = [zg.Config({"BLOCK": block}) for block in (16, 64)]
    names = ["x_ptr", "skipped"]
    kernel = zg.autotune(configs, key=["n"], restore_value=names, reset_to_zero=["skipped"], measure=measure)(
        accumulate
    )

    def work(number: int) -> set[float]:
        x = np.zeros(100 + number % 2, np.float32)
        kernel[lambda meta: (zg.cdiv(meta["n"], meta["BLOCK"]),)](x, None, x.size, interpret=False)
        return set(x.tolist())

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(16))) == [{1.0}] * 16
    assert measured == [1] * 4  # Once a key, and never two at once.


def test_what_tuning_resets_must_be_an_array(cache: Path):
    configs = [zg.Config({"BLOCK": block}) for block in (16, 64)]
    x, y, out = arrays()
    for setting in ("restore_value", "reset_to_zero"):
        kernel = zg.autotune(configs, key=["n"], measure=lambda run: 1.0, **{setting: ["n"]})(fresh())
        with pytest.raises(zg.LaunchError, match="'n' must be an array, as reset_to_zero or restore_value names it"):
            kernel[1,](x, y, out, 1000, interpret=False)


def test_tuning_leaves_out_blocks_that_go_beyond_the_arrays(cache: Path):
    @zg.kernel
    def doubled(x_ptr, BLOCK: zg.constexpr):
        at = zg.add(x_ptr, zg.arange(0, BLOCK))
        zg.store(at, zg.mul(zg.load(at), 2.0))

    configs = [zg.Config({"BLOCK": block}) for block in (64, 16)]
    kernel = zg.autotune(configs, key=[], restore_value=["x_ptr"], warmup=1, rep=2)(doubled)
    x = np.ones(16, np.float32)
    kernel[1,](x)
    assert (x == 2).all() and kernel.last is not None and set(kernel.last.times) == {str(configs[1])}


def test_times_on_this_machine():
    x, y, out = arrays()
    time = zg.testing.do_bench(lambda: add[16,](x, y, out, 1000, interpret=False), warmup=1, rep=2)
    assert 0 < time < 1000
    assert len(zg.testing.do_bench(lambda: None, 1, 1, quantiles=[0.2, 0.5])) == 2
