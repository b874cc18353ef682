"""`compiled.simulate`: compiled kernels on a machine without a GPU, and the faults that are found in them."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.simulator.simulate import simulate
from ziggurat.cli import main
from ziggurat.launches.simulated import _changes

F32, F64, I32 = zg.ptr(zg.f32), zg.ptr(zg.f64), zg.ptr(zg.i32)


@zg.kernel
def scaled(x, out, by, n, BLOCK: zg.constexpr):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    inside = zg.compare(at, n, zg.CompareKind.LESS_THAN)
    zg.store(zg.add(out, at), zg.mul(zg.load(zg.add(x, at), inside), by), inside)


@zg.kernel
def unmasked(x, out, BLOCK: zg.constexpr):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    zg.store(zg.add(out, at), zg.load(zg.add(x, at)))


@pytest.mark.parametrize("optimized", [False, True])
@pytest.mark.parametrize("scalar", [zg.f16, zg.bf16, zg.f32, zg.f64])
def test_a_kernel_with_a_float_argument_on_views(scalar: zg.Any, optimized: bool) -> None:
    compiled = scaled.compile(zg.ptr(scalar), zg.ptr(scalar), scalar, zg.i32, 32, num_warps=1)
    whole = np.arange(160).astype(scalar.dtype)
    x, out = whole[7:57], np.zeros(64, scalar.dtype)
    compiled.simulate[2](x, out[3:53], 0.5, 50, optimized=optimized)
    np.testing.assert_array_equal(out[3:53], x * scalar.dtype.type(0.5))
    assert not out[:3].any() and not out[53:].any()


def test_a_stray_access_is_reported_at_its_line() -> None:
    compiled = unmasked.compile(F32, F32, 64, num_warps=1)
    with pytest.raises(zg.SimulationError) as error:
        compiled.simulate[(2,)](np.zeros(100, np.float32), np.zeros(128, np.float32))
    text = str(error.value)
    assert "thread 4 reads 4 byte(s) at byte 400 of 'x', which has 400; in program (1, 0, 0)" in text
    assert "zg.load(zg.add(x, at))" in text.splitlines()[2] and text.splitlines()[3].strip() == "^" * 22
    with pytest.raises(zg.SimulationError, match="of 'out'"):
        compiled.simulate[(2,)](np.zeros(128, np.float32), np.zeros(100, np.float32))


@zg.kernel
def wide(x, out):
    at = zg.arange(0, 128)
    zg.store(zg.add(out, at), zg.load(zg.add(x, at)))


def test_an_argument_that_is_not_what_it_was_compiled_for() -> None:
    compiled = scaled.compile(zg.divisible(F32), F32, zg.f32, zg.i32, 32, num_warps=1)
    x = np.zeros(33, np.float32)
    for wrong, words in [
        ((x, x, 1.0), "4 argument"),
        (
            (x, x.astype(np.float64), 1.0, 5),
            "'out' of 'scaled' is compiled for an array of f32; got an array of f64",
        ),
        ((x[1:], x, 1.0, 5), "'x' of 'scaled' is compiled for an address divisible by 16"),
        ((x, x, 1.0, 2.5), "'n' of 'scaled' is compiled for a number of type i32"),
        ((x, 3, 1.0, 5), "'out' of 'scaled' is compiled for an array of f32; got int"),
    ]:
        with pytest.raises(zg.LaunchError, match=words.replace("(", r"\(")):
            compiled.simulate[1](*wrong)
    with pytest.raises(zg.LaunchError, match="grid"):
        compiled.simulate["x"](x, x, 1.0, 5)


def test_a_false_promise_of_alignment_is_refused() -> None:
    """The address is not divisible as the kernel was compiled for, so the launch is refused."""
    compiled = wide.compile(zg.divisible(F32), zg.divisible(F32), num_warps=1)
    x = np.zeros(129, np.float32)
    with pytest.raises(zg.LaunchError, match="divisible by 16"):
        compiled.simulate[1](x[1:], x)


@zg.kernel
def powers(start, by, out, count):
    for step in range(0, count):
        result = zg.dot(start.load([step * 64, 0]), by.load([0, 0]))
        out.store([step * 64 + 64, 0], zg.cast(result, zg.f16))


def test_descriptors_that_must_not_share_memory() -> None:
    """Loads by TMA pass the stores before them, so that a launch refuses these arguments."""
    block = zg.divisible(zg.descriptor((64, 64), zg.f16))
    compiled = powers.compile(block, block, block, zg.i32, target="sm_90a", num_warps=4)
    x, y = (zg.TensorDescriptor(np.ones((192, 64), np.float16), (64, 64)) for _ in range(2))
    with pytest.raises(zg.LaunchError, match="'out' and 'start' of 'powers' must not share memory"):
        compiled.simulate[1](x, y, x, 2)


@zg.kernel
def reversed_in_place(x, N: zg.constexpr, BARRIER: zg.constexpr):
    at = zg.arange(0, N)
    zg.store(zg.add(x, at), zg.mul(zg.load(zg.add(x, at)), 2.0))
    if BARRIER:
        zg.debug_barrier()
    back = zg.load(zg.add(x, zg.sub(N - 1, at)))
    zg.debug_barrier()
    zg.store(zg.add(x, at), back)


@pytest.mark.parametrize("optimized", [False, True])
def test_a_race_in_global_memory(optimized: bool) -> None:
    x = np.arange(64, dtype=np.float32)
    reversed_in_place.compile(F32, 64, True, num_warps=2).simulate[1](x, optimized=optimized)
    assert (x == 2 * np.arange(64)[::-1]).all()
    with pytest.raises(
        zg.SimulationError, match="a barrier must be between a store and another thread's load"
    ) as error:
        reversed_in_place.compile(F32, 64, False, num_warps=2).simulate[1](x)
    assert error.value.location is not None and "back = " in (error.value.location.source_line() or "")


@zg.kernel
def relative(x, N: zg.constexpr, BARRIER: zg.constexpr):
    at = zg.arange(0, N)
    first, own = zg.load(x), zg.load(zg.add(x, at))
    if BARRIER:
        zg.debug_barrier()
    zg.store(zg.add(x, at), zg.sub(own, first))


@zg.kernel
def counted(x, out, N: zg.constexpr, BARRIER: zg.constexpr):
    before = zg.load(x)
    if BARRIER:
        zg.debug_barrier()
    zg.store(x, zg.add(before, 1.0))
    zg.store(zg.add(out, zg.arange(0, N)), before)


@pytest.mark.parametrize("barrier", [False, True])
@pytest.mark.parametrize("optimized", [False, True])
def test_a_store_of_what_other_warps_have_loaded_and_use(optimized: bool, barrier: bool) -> None:
    """The compiler places the barrier that the kernel leaves out."""
    for num_warps in (1, 2, 4):
        x, out = np.arange(2, 66, dtype=np.float32), np.zeros(64, np.float32)
        relative.compile(F32, 64, barrier, num_warps=num_warps).simulate[1](x, optimized=optimized)
        counted.compile(F32, F32, 64, barrier, num_warps=num_warps).simulate[1](x, out, optimized=optimized)
        assert (x == [1, *range(1, 64)]).all() and (out == 0).all()


@pytest.mark.parametrize("num_warps", [2, 4])
def test_without_its_barrier_such_a_store_is_a_race(num_warps: int) -> None:
    """The use is a race before the store as well as after it."""

    def simulate_without(kernel: zg.Compiled, *arguments: object) -> None:
        text = re.sub(r".*bar\.sync 0;.*\n", "", kernel.stages["llvm"])
        assert text != kernel.stages["llvm"]
        simulate(text, num_warps=num_warps, shared=kernel.shared, arguments=arguments, names=["x", "out"])

    words = r"thread 0 writes byte 0 of 'x', which warp \d has read"
    x, out = np.arange(2, 66, dtype=np.float32), np.zeros(64, np.float32)
    with pytest.raises(zg.SimulationError, match=f"a barrier must be between a load and .* {words}"):
        simulate_without(relative.compile(F32, 64, False, num_warps=num_warps), x)
    with pytest.raises(zg.SimulationError, match=f"{words} and uses here") as error:
        simulate_without(counted.compile(F32, F32, 64, False, num_warps=num_warps), x, out)
    assert "zg.arange(0, N)), before)" in str(error.value)


@zg.kernel
def increased(x):
    for _ in range(3):
        zg.store(x, zg.add(zg.load(x), 1.0))
        zg.debug_barrier()


@zg.kernel
def softmax_in_place(x, N: zg.constexpr):
    at = zg.arange(0, N)
    row = zg.load(zg.add(x, at))
    powers = zg.exp(zg.sub(row, zg.max(row, 0)))
    zg.store(zg.add(x, at), zg.div(powers, zg.sum(powers, 0)))


@pytest.mark.parametrize("num_warps", [2, 8])
@pytest.mark.parametrize("optimized", [False, True])
def test_replicas_load_what_one_thread_stores(num_warps: int, optimized: bool) -> None:
    """A scalar, and tensors with fewer elements than there are threads."""
    x = np.zeros(1, np.float32)
    increased.compile(F32, num_warps=num_warps).simulate[1](x, optimized=optimized)
    assert x[0] == 3
    for size in (16, 64):
        row = np.zeros(size, np.float32)
        softmax_in_place.compile(F32, size, num_warps=num_warps).simulate[1](row, optimized=optimized)
        np.testing.assert_allclose(row, 1 / size)


@zg.kernel
def of_all_kinds(x, out, N: zg.constexpr):
    at = zg.arange(0, N)
    v = zg.load(zg.add(x, at))
    far = zg.sin(zg.mul(v, 1e12))
    zg.store(zg.add(out, at), zg.add(zg.add(far, zg.exp(v)), zg.mod(v, 0.7)))


@pytest.mark.parametrize("optimized", [False, True])
def test_routines_of_f64_are_simulated(optimized: bool) -> None:
    """The sine of large angles reads a table and uses i128; the remainder has a loop."""
    x, out = np.linspace(-3, 5, 32), np.zeros(32)
    of_all_kinds.compile(F64, F64, 32, num_warps=1).simulate[1](x, out, optimized=optimized)
    np.testing.assert_allclose(out, np.sin(x * 1e12) + np.exp(x) + np.fmod(x, 0.7), rtol=1e-12)


@zg.kernel
def narrowed(x, out, N: zg.constexpr):
    at = zg.arange(0, N)
    zg.store(zg.add(out, at), zg.cast(zg.load(zg.add(x, at)), zg.f8e4m3))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("optimized", [False, True])
def test_conversions_to_8_bit_floats(target: str, optimized: bool) -> None:
    x = np.linspace(-500, 500, 64).astype(np.float32)
    out = np.zeros(64, ml_dtypes.float8_e4m3fn)
    compiled = narrowed.compile(F32, zg.ptr(zg.f8e4m3), 64, target=target, num_warps=1)
    compiled.simulate[1](x, out, optimized=optimized)
    np.testing.assert_array_equal(out.astype(np.float32), np.clip(x, -448, 448).astype(out.dtype).astype(np.float32))


@zg.kernel
def talking(x, N: zg.constexpr):
    v = zg.load(zg.add(x, zg.arange(0, N)))
    zg.device_print("v%", v)
    zg.device_print("more than 1", zg.compare(v, 1.0, zg.CompareKind.GREATER_THAN))
    zg.device_assert(zg.compare(v, 3.0, zg.CompareKind.LESS_THAN), "must be small")


def test_prints_and_assertions(capsys) -> None:
    compiled = talking.compile(F32, 2, num_warps=1)
    compiled.simulate[1](np.array([0.25, 2], np.float32))
    assert capsys.readouterr().out.splitlines() == [
        "pid (0, 0, 0) idx (0) v%: 0.25", "pid (0, 0, 0) idx (1) v%: 2",
        "pid (0, 0, 0) idx (0) more than 1: False", "pid (0, 0, 0) idx (1) more than 1: True",
    ]  # fmt: skip
    with pytest.raises(zg.KernelRuntimeError, match="assertion failed: must be small") as error:
        compiled.simulate[1](np.array([0.25, 4], np.float32))
    assert error.value.location is not None


@zg.kernel
def waiting(flag):
    while zg.atomic_add(flag, 0) == 0:
        pass


def test_a_loop_that_waits_for_another_program_is_found_at_once() -> None:
    compiled = waiting.compile(I32, num_warps=1)
    compiled.simulate[1](np.ones(1, np.int32))
    with pytest.raises(zg.SimulationError, match="waits for a change of memory that nothing makes") as error:
        compiled.simulate[1](np.zeros(1, np.int32))
    assert error.value.location is not None


@zg.kernel
def endless(x):
    i = 0
    while i >= 0:
        i = (i + 1) & 1023
    zg.store(x, i)


def test_the_number_of_instructions_is_limited() -> None:
    with pytest.raises(zg.SimulationError, match=r"loop limit exceeded: .* 400 instructions \(max_steps\)"):
        endless.compile(I32, num_warps=1).simulate[1](np.zeros(1, np.int32), max_steps=400)


@zg.kernel
def in_steps(x, n, step):
    total = 0
    for _ in range(0, n, step):
        total += 1
    zg.store(x, total)


def test_a_loop_with_a_step_of_zero_exceeds_the_limit() -> None:
    compiled = in_steps.compile(I32, zg.i32, zg.i32, num_warps=1)
    with pytest.raises(zg.SimulationError, match=r"loop limit exceeded(.|\n)*the step of a range may be zero"):
        compiled.simulate[1](np.zeros(1, np.int32), 4, 0, max_steps=400)


@zg.kernel
def by_hand(x):
    zg.store(x, zg.inline_asm_elementwise("nanosleep.u32 $1; mov.b32 $0, 0;", "=r,r", (1,), zg.i32, False, 1))


def test_instructions_that_are_not_known() -> None:
    with pytest.raises(zg.TargetError, match="the simulator does not know"):
        by_hand.compile(I32, num_warps=1).simulate[1](np.zeros(1, np.int32))


KERNELS = """
import ziggurat as zg
@zg.kernel
def add(x, y, out, n, BLOCK: zg.constexpr):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    inside = zg.compare(at, n, zg.CompareKind.LESS_THAN)
    zg.store(zg.add(out, at), zg.add(zg.load(zg.add(x, at), inside), zg.load(zg.add(y, at), inside)), inside)
"""


def test_the_command(tmp_path, capsys) -> None:
    file = tmp_path / "kernels_to_simulate.py"
    file.write_text(KERNELS)
    arguments = ["simulate", f"{file}:add", "f32[100], f32[100], f32[100], 100, 64", "--num-warps", "1"]
    assert main([*arguments, "--grid", "2", "--seed", "1"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "add: 2 program(s) of 32 threads for sm_90a: no fault found", "  x: unchanged", "  y: unchanged",
        "  out: 100 of 100 elements changed; largest difference from the interpreter: 0",
    ]  # fmt: skip
    assert main([arguments[0], arguments[1], "f32[100], f32[99], f32[100], 100, 64", "--grid", "2"]) == 1
    assert "of 'y', which has 396" in capsys.readouterr().err
    for array in ("f31[100]", "f32[-4]", "f32[0]", "f32[4.5]", "f32[4, 0]", "f32[x, 4]", "f32[4; 0]"):
        assert main(["simulate", f"{file}:add", array]) == 1
        assert f"'{array}' must be a dtype and a shape of sizes from 1 on" in capsys.readouterr().err
    assert main(["simulate", f"{file}:add", "f32[100000000000000]"]) == 1
    assert "the array f32[100000000000000] must fit in memory" in capsys.readouterr().err
    assert main([*arguments, "--grid", "2,1"]) == 0
    assert capsys.readouterr().out.startswith("add: 2 program(s)")
    for grid in ("0", "-1", "2,0", "x", "2,"):
        assert main([*arguments, "--grid", grid]) == 1
        assert f"--grid must be sizes of one or more; got {grid}\n  hint: --grid 4 1" in capsys.readouterr().err


@zg.kernel
def of_a_pair(pair, out, N: zg.constexpr):
    at = zg.arange(0, N)
    zg.store(zg.add(out, at), zg.add(zg.load(zg.add(pair[0], at)), zg.load(zg.add(pair[1], at))))


def test_arguments_by_name() -> None:
    compiled = scaled.compile(F32, F32, zg.f32, zg.i32, 32, num_warps=1)
    x, out = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    compiled.simulate[1](x, out, n=32, by=2.0, seed=1)
    np.testing.assert_array_equal(out, 2 * x)
    for keywords, words in [
        ({"by": 2.0, "m": 3}, "'scaled' has no run-time argument 'm'"),
        ({"by": 2.0, "x": x}, "'scaled' got 'x' twice"),
        ({"by": 2.0}, r"takes 4 argument\(s\) .*; got 3"),
    ]:
        with pytest.raises(zg.LaunchError, match=words):
            compiled.simulate[1](x, out, **keywords)
    paired = of_a_pair.compile((F32, F32), F32, 32, num_warps=1)
    paired.simulate[1](out=out, pair=(x, x))
    np.testing.assert_array_equal(out, 2 * x)
    for wrong in ((x,), (x, x, x)):
        with pytest.raises(zg.LaunchError, match=r"takes 3 argument\(s\)"):
            paired.simulate[1](out=out, pair=wrong)


@pytest.mark.parametrize(
    ("name", "value", "least"), [("seed", "x", 0), ("seed", -5, 0), ("seed", 1.5, 0), ("ctas", 0, 1), ("ctas", "2", 1)]
)
def test_numbers_that_a_simulation_rejects(name: str, value: zg.Any, least: int) -> None:
    compiled = wide.compile(F32, F32, num_warps=1)
    x = np.zeros(128, np.float32)
    with pytest.raises(zg.LaunchError, match=f"{name} must be an integer of {least} or more; got {value!r}"):
        compiled.simulate[1](x, x.copy(), **{name: value})


COMMANDS = """
import ziggurat as zg
@zg.kernel
def add(pair, out, N: zg.constexpr):
    at = zg.arange(0, N)
    zg.store(zg.add(out, at), zg.add(zg.load(zg.add(pair[0], at)), zg.load(zg.add(pair[1], at))))
@zg.kernel
def named(x, name: zg.constexpr):
    zg.store(x, 1.0 if name == "array 7" else 2.0)
"""


def test_the_command_takes_tuples_and_strings(tmp_path, capsys) -> None:
    file = tmp_path / "kernels_of_tuples.py"
    file.write_text(COMMANDS)
    assert main(["simulate", f"{file}:add", "[f32[32], f32[32]], f32[32], 32", "--num-warps", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  pair[0]: unchanged", "  pair[1]: unchanged",
        "  out: 32 of 32 elements changed; largest difference from the interpreter: 0",
    ]  # fmt: skip
    for name in ("array 7", "f32[4]"):
        assert main(["simulate", f"{file}:named", f'f32[1], "{name}"']) == 0
        assert "x: 1 of 1 elements changed; largest difference from the interpreter: 0" in capsys.readouterr().out
    assert main(["simulate", f"{file}:named", 'ptr<f32>, "a"']) == 1
    assert "an argument must be an array, as f32[1024], or a value; got the type ptr<f32>" in capsys.readouterr().err


@zg.kernel
def in_hexadecimal(x, N: zg.constexpr):
    zg.device_print("", zg.load(zg.add(x, zg.arange(0, N))), hex=True)


@pytest.mark.parametrize("scalar", [zg.f8e4m3, zg.f8e5m2, zg.bf16, zg.f16, zg.f32, zg.f64], ids=str)
def test_bits_of_floats_are_printed(scalar: zg.Any, capsys) -> None:
    x = np.array([1.5, -2.0]).astype(scalar.dtype)
    in_hexadecimal.compile(zg.ptr(scalar), 2, num_warps=1).simulate[1](x)
    bits = [int.from_bytes(value.tobytes(), "little") for value in x]
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == [
        f"0x{b:0{scalar.bits // 4}x}" for b in bits
    ]


@zg.kernel
def kept(out, n):
    zg.store(out, zg.cast(n, zg.i64))


@pytest.mark.parametrize("scalar", [zg.i8, zg.u8, zg.i16, zg.u32, zg.i64], ids=str)
def test_numbers_of_compiled_kernels_are_in_the_limits_of_their_types(scalar: zg.Any) -> None:
    compiled, out = kept.compile(zg.ptr(zg.i64), scalar, num_warps=1), np.zeros(1, np.int64)
    low, high = scalar.limits
    for number in (low, high):
        compiled.simulate[1](out, number)
        assert out[0] == number
    for number in (low - 1, high + 1):
        with pytest.raises(zg.LaunchError, match=f"from {low} to {high}|fit in 64 bits|number of type {scalar}"):
            compiled.simulate[1](out, number)


@pytest.mark.parametrize(
    ("after", "expected", "text"),
    [
        ([1, 2, np.nan], [1, 2, np.nan], "unchanged"),
        ([1, 3, np.nan], [1, 3, np.nan], "1 of 3 elements changed; largest difference from the interpreter: 0"),
        ([1, 3, np.nan], [1, 2.5, np.nan], "1 of 3 elements changed; largest difference from the interpreter: 0.5"),
        ([1, 2, np.nan], [3, 2, np.nan], "0 of 3 elements changed; largest difference from the interpreter: 2"),
        ([1, np.inf, 0], [1, np.inf, 0], "2 of 3 elements changed; largest difference from the interpreter: 0"),
    ],
)
def test_changes_of_an_array(after, expected, text) -> None:
    assert _changes(np.array([1, 2, np.nan]), np.array(after, float), np.array(expected, float)) == text


@zg.kernel
def product_of_blocks(x_ptr, y_ptr, out_ptr, k, M: zg.constexpr, N: zg.constexpr, K: zg.constexpr):
    row, at, inner = zg.program_id(0) * M, zg.arange(0, M), zg.arange(0, K)
    total = zg.zeros((M, N), zg.f32)
    for start in range(0, k, K):
        x = zg.load(x_ptr + (row + zg.expand(at, 1)) * k + start + zg.expand(inner, 0))
        y = zg.load(y_ptr + zg.expand(zg.arange(0, N), 0) * k + start + zg.expand(inner, 1))
        total = zg.dot(x, y, total)
    zg.store(out_ptr + (row + zg.expand(at, 1)) * N + zg.expand(zg.arange(0, N), 0), zg.cast(total, zg.f16))


def test_ctas_of_a_persistent_kernel(monkeypatch) -> None:
    """There are as many as `ctas`, at most one for each program, and each has the instructions of its programs."""
    calls = []
    monkeypatch.setattr("ziggurat.backend.simulator.simulate.simulate", lambda text, **call: calls.append(call))
    halves = zg.divisible(zg.ptr(zg.f16), 16)
    compiled = product_of_blocks.compile(halves, halves, halves, zg.divisible(zg.i32, 16), 128, 256, 64)
    assert compiled.persistent and compiled.maps
    for grid, ctas, sizes, turns in ((5, 2, (2, 1, 1), 3), (1, 4, (1, 1, 1), 1), (4, 4, (4, 1, 1), 1)):
        x, y, out = (np.zeros(size, np.float16) for size in (128 * grid * 64, 256 * 64, 128 * grid * 256))
        compiled.simulate[grid](x, y, out, 64, ctas=ctas, max_steps=1000)
        call = calls.pop()
        assert call["grid"] == sizes and call["max_steps"] == 1000 * turns
        assert (call["seed"], call["promises"], call["num_warps"]) == (0, True, compiled.num_warps)
        names, arrays = call["names"], {"x_ptr", "y_ptr", "out_ptr"}
        assert names.count("the grid") == 3 and len(names) == len(call["arguments"])
        at = names.index("the grid")
        assert set(names[:at]) <= {*arrays, "k"} and set(names[at + 3 :]) <= arrays
