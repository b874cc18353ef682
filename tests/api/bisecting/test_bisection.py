"""`zg.bisect`: a fault that is planted in a pass is named at that pass; right kernels have none."""

import os
import signal
import subprocess
import sys
import time
from random import Random
from typing import Any

import attrs
import numpy as np
import pytest
from explored_kernels import sums
from generated_passes import generated
from miscompilations import edits, planted, replaced_step
from pass_cases import CASES

import ziggurat as zg
from ziggurat import triton
from ziggurat.bisecting.apart import apart
from ziggurat.bisecting.comparison import difference
from ziggurat.bisecting.report import script
from ziggurat.bisecting.steps import NATIVE, OPTIMIZED, SIMULATED, Launch, as_before, span_of
from ziggurat.cli import main
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.transform import transform

NAMES = (
    "softmax by blocks, sm_90a",
    "lower blocks",
    "running means",
    "in flight: descriptors",
    "clusters: rows",
    "added",
)


def bisected(case, **more):
    usual = CompileOptions.of({"target": case.options.target})
    fields = (field.name for field in attrs.fields(CompileOptions))
    options = {
        name: getattr(case.options, name) for name in fields if getattr(case.options, name) != getattr(usual, name)
    }
    return zg.bisect(case.model, case.grid, *case.arguments(), target=case.options.target, **options, **more)


def launched():
    x = np.random.default_rng(1).standard_normal(300).astype(np.float32)
    return (3,), np.zeros(96, np.float32), x, 300, 2.0, 4, 32


@pytest.mark.parametrize("name", [*NAMES, "multicast"])
def test_all_steps_of_a_right_kernel_agree(name):
    outcome = bisected(CASES[name]())
    assert outcome.fault is None, str(outcome)
    assert {SIMULATED, OPTIMIZED, NATIVE} <= set(outcome.steps)


@pytest.mark.parametrize("seed", range(7001, 7021, 2))
def test_all_steps_of_a_generated_kernel_agree(seed):
    outcome = bisected(generated(seed))
    assert outcome.fault is None, str(outcome)


@zg.kernel
def steps_to_one(out, x, BLOCK: zg.constexpr):
    at = zg.arange(0, BLOCK)
    number, steps = zg.load(x + at), zg.zeros([BLOCK], zg.i32)
    while zg.max(number, axis=0) > 1:
        steps += zg.cast(number > 1, zg.i32)
        following = zg.where(number % 2 == 0, number // 2, 3 * number + 1)
        number = zg.where(number > 1, following, number)
    zg.store(out + at, steps)


def test_a_loop_whose_values_are_in_buffers():
    """The passes for CPUs keep the numbers of the loop in buffers: nothing else changes from round to round."""
    outcome = zg.bisect(steps_to_one, 1, np.zeros(8, np.int32), np.arange(1, 9, dtype=np.int32), 8)
    assert outcome.fault is None and "cpu regions" in outcome.steps


@zg.kernel
def crowded(out, BLOCK: zg.constexpr):
    lanes = zg.arange(0, BLOCK)
    zg.store(zg.add(out, lanes % 2), lanes)


def test_a_race_that_strict_mode_finds():
    """The interpreter has no threads: the kernel's own race shows at the first code that has, and is the kernel's."""
    fault = zg.bisect(crowded, 1, np.zeros(2, np.int32), 64, seconds=0.1).fault
    assert fault is not None and fault.step == "the Triton model" and "writes two values" in fault.reason


@pytest.mark.parametrize("name", NAMES)
def test_a_planted_fault_is_named(name):
    """In each of three steps of the case, an edit that changes the result."""
    case = CASES[name]()
    steps = [step for step in bisected(case).steps[1:] if step not in (OPTIMIZED, NATIVE)]
    count = 0
    random = Random(name)
    for _ in range(12):
        step = random.choice(steps)
        with planted(step, random.randrange(1000)) as plant:
            outcome = bisected(case, seconds=0.1)
        if outcome.fault is not None:
            assert outcome.fault.step == step, f"{plant.what} in {step}: {outcome}"
            count += 1
        if count == 3:
            return
    pytest.fail("too few edits change the result")


def test_the_op_and_a_small_model():
    grid, *arguments = launched()
    with planted("assign", 0) as plant:
        outcome = zg.bisect(sums, grid, *arguments)
    fault = outcome.fault
    assert fault is not None and fault.step == "assign" and plant.what
    assert fault.before is not None
    whole = sums.compile(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, zg.f32, 4, 32).stages["triton"]
    assert len(list(fault.before.walk())) < len(list(whole.walk())) / 2
    assert "'assign' changes the result" in str(outcome)


def test_sizes_are_reduced():
    """A sum of rows of 300 numbers in three programs, each in four blocks of 32."""
    grid, *arguments = launched()
    with planted("lower", 2):
        fault = zg.bisect(sums, grid, *arguments).fault
    assert fault is not None and fault.launch is not None and fault.before is not None
    assert fault.launch.grid == (1, 1, 1)
    assert all(value.size < 96 for value in fault.launch.arguments if isinstance(value, np.ndarray))
    assert "x32" not in str(fault.before)


def test_a_missing_wait_is_named_where_it_is_lost():
    """No value shows it, as the interpreter computes a wgmma at once."""

    def around(step):
        def wrong(model, *more):
            return zg.transform(step(model, *more), lambda b, op, v: v[0] if isinstance(op, gpu.WgmmaWait) else None)

        return wrong

    case = CASES["in flight: pointers, wgmma"]()
    with replaced_step("dots", around):
        fault = bisected(case, seconds=0.1).fault
    assert fault is not None and fault.step == "dots" and "no wait between" in fault.reason


@zg.kernel
def undefined(out, x, n, BLOCK: zg.constexpr):
    at = zg.arange(0, BLOCK)
    zg.store(zg.add(out, at), zg.load(zg.add(x, at), zg.less(at, n)))


def test_a_kernel_that_is_wrong_itself():
    """Code may store anything where nothing was loaded: that is no fault of a step."""
    x = np.ones(32, np.float32)

    def sevens(builder, op, operands):
        if not isinstance(op, tt.Load):
            return None
        return builder.add(tt.Load(*operands, builder.add(arith.ConstantOp(7.0, op.result.type))))

    def around(step):
        return lambda model, *more: step(zg.transform(model, sevens), *more)

    with replaced_step(SIMULATED, around):
        fault = zg.bisect(undefined, 1, np.zeros_like(x), x, 20, 32, num_warps=1, seconds=0.1).fault
    assert fault is not None and fault.step == "the Triton model"
    assert "stores an undefined element" in fault.reason and "zg.load" in fault.reason


def test_code_that_ends_its_process_or_never_ends():
    assert apart(lambda: {"x": np.ones(2)}, 10)["x"].sum() == 2
    with pytest.raises(zg.KernelRuntimeError, match="SIGKILL"):
        apart(lambda: os.kill(os.getpid(), signal.SIGKILL), 10)
    with pytest.raises(TimeoutError, match="not come to its end"):
        apart(lambda: time.sleep(20), 0.2)
    with pytest.raises(zg.MemoryAccessError, match="stray"):
        apart(failing, 10)


def failing():
    raise zg.MemoryAccessError("stray")


def test_a_report_shows_the_fault_again(tmp_path):
    """It is a program, whose exit status is 1 while the fault is there."""
    grid, *arguments = launched()
    with planted("lower", 2):
        outcome = zg.bisect(sums, grid, *arguments)
        assert outcome.fault is not None
        report = outcome.save(tmp_path / "report.py")
        with pytest.raises(SystemExit) as ending:
            exec(compile(report.read_text(), str(report), "exec"), {"__name__": "__main__"})
        assert ending.value.code == 1
    done = subprocess.run([sys.executable, str(report)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "2 steps agree" in done.stdout, done.stderr


@zg.kernel
def differences(out, x, n, BLOCK: zg.constexpr):
    at = zg.program_id(0) * BLOCK + zg.arange(0, BLOCK)
    v = zg.load(x + at, at < n, 0.0)
    zg.store(out + at, v - zg.max(v, axis=0), at < n)


def swapped(model):
    """A pass of a user's, which is wrong: it swaps the operands of differences."""

    def change(builder, op, operands):
        return builder.add(arith.SubF(operands[1], operands[0])) if isinstance(op, arith.SubF) else None

    return transform(model, change)


@pytest.mark.parametrize("at", ["triton", "schedule", "schedule.expand"])
@pytest.mark.parametrize("name", ["swapped", "my pass"])
def test_passes_of_a_kernels_own_are_steps(at, name, tmp_path):
    """The report imports the pass, or says that it has to be written there."""
    own = swapped if name == "swapped" else (lambda model: swapped(model))
    kernel = differences.with_passes((name, own), at=at)
    x = np.arange(40, dtype=np.float32)
    outcome = zg.bisect(kernel, (3,), np.zeros(40, np.float32), x, 40, 16, seconds=5)
    assert outcome.fault is not None and outcome.fault.step == name
    assert isinstance(outcome.fault.op, arith.SubF)
    report = outcome.save(tmp_path / "report.py")
    command = [sys.executable, str(report)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1, done.stderr
    if name == "swapped":
        assert "'swapped' changes the result" in done.stdout
    else:
        assert "write the pass 'my pass' here" in done.stderr


@triton.jit
def shifted(out, x, BLOCK: triton.language.constexpr):
    at = triton.language.program_id(0) * BLOCK + triton.language.arange(0, BLOCK)
    triton.language.store(out + at, triton.language.load(x + at + 1))


def test_a_report_of_a_kernel_in_tritons_python(tmp_path):
    """It leaves out accesses outside of arrays, as launches of the kernel do: the reduced one has some."""
    with planted("allocate", 0) as plant:
        outcome = zg.bisect(shifted, (3,), np.zeros(40, np.float32), np.arange(40, dtype=np.float32), 16)
        assert outcome.fault is not None and plant.what
        report = outcome.save(tmp_path / "report.py")
        assert "tolerant=True" in report.read_text()
        with pytest.raises(SystemExit) as ending:
            exec(compile(report.read_text(), str(report), "exec"), {"__name__": "__main__"})
        assert ending.value.code == 1


@pytest.mark.parametrize(
    "view",
    [lambda x: x[::-1], lambda x: x[: len(x) // 2 * 2 : 2], lambda x: x[:0], lambda x: x.reshape(-1, 4).T, lambda x: x],
)
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "float8_e4m3fn"])
def test_a_report_keeps_arrays_as_they_are(view, dtype):
    value = view(np.arange(40).astype(dtype))
    program = script("lower", sums.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, zg.f32, 4, 32),
                     Launch((1, 1, 1), ["x"], [value]), CompileOptions.of({}), None)  # fmt: skip
    names: dict[str, Any] = {}
    exec(program.partition("outcome =")[0], names)
    (copy,) = names["arguments"]
    assert copy.dtype == value.dtype and copy.strides == value.strides
    assert np.array_equal(copy, value) and copy.flags.writeable


def test_a_report_that_cannot_be_written(tmp_path):
    x = np.arange(40, dtype=np.float32)
    outcome = zg.bisect(differences.with_passes(swapped), (3,), np.zeros(40, np.float32), x, 40, 16, seconds=0)
    with pytest.raises(zg.LaunchError, match="the report cannot be written"):
        outcome.save(tmp_path / "none" / "report.py")


def test_a_pass_that_fails():
    grid, *arguments = launched()

    def failing(model, options):
        raise zg.BuildError("it cannot be done")

    from ziggurat.transforms.gpu import gpu_passes

    phases = gpu_passes.PHASES
    gpu_passes.PHASES = gpu_passes.replaced("allocate", ("allocate", failing))
    try:
        outcome = zg.bisect(sums, grid, *arguments)
    finally:
        gpu_passes.PHASES = phases
    assert outcome.fault is not None and outcome.fault.step == "allocate"
    assert "it cannot be done" in outcome.fault.reason


def test_expected_arrays():
    grid, out, x, *rest = launched()
    right = out.copy()
    sums[grid](right, x, *rest)
    assert zg.bisect(sums, grid, out, x, *rest, expected=[right], target="cpu").fault is None
    fault = zg.bisect(sums, grid, out, x, *rest, expected=[right + 1], target="cpu").fault
    assert fault is not None and fault.step == "the Triton model" and "out[0]" in fault.reason
    assert not out.any()


def test_strides_stay():
    """The kernel takes elements to lie side by side, which those of the view do not: that is an error of its own."""
    grid, out, x, *rest = launched()
    with pytest.raises(zg.MemoryAccessError, match="no element of x"):
        zg.bisect(sums, grid, out, np.repeat(x, 2)[::2], *rest)
    assert zg.bisect(sums, grid, out, x[::-1][::-1], *rest, target="cpu").fault is None


def test_only_a_cpus_steps():
    grid, *arguments = launched()
    steps = zg.bisect(sums, grid, *arguments, target="cpu").steps
    assert steps[-1] == NATIVE and all(step.startswith("cpu ") for step in steps[1:-1])


def test_differences():
    a = {"x": np.array([1.0, np.nan, 0.0], np.float32)}
    assert difference(a, {"x": np.array([1.0, np.nan, -0.0], np.float32)}, rounds=False) is None
    assert difference(a, {"x": np.array([1.0001, np.nan, 0.0], np.float32)}, rounds=True) is None
    assert "x[0]" in str(difference(a, {"x": np.array([1.0001, np.nan, 0.0], np.float32)}, rounds=False))
    assert "x[1]" in str(difference(a, {"x": np.array([1.0, 1.0, 0.0], np.float32)}, rounds=True))
    whole = {"x": np.array([1, 2])}
    assert "1 of 2" in str(difference(whole, {"x": np.array([1, 3])}, rounds=True))


def test_what_is_given_must_fit():
    grid, *arguments = launched()
    with pytest.raises(zg.ZigguratError, match="'kernel' must be a kernel or a model"):
        zg.bisect(np.sum, grid, *arguments)
    for step in ("latencies", 5, ("lower", 5), ["lower"]):
        with pytest.raises(zg.LaunchError, match="has no step"):
            zg.bisect(sums, grid, *arguments, step=step)
    for expected in ([], 5, [np.zeros(3)], ["a"], arguments[:2] + [np.zeros(1)]):
        with pytest.raises(zg.LaunchError, match=r"'expected' must be a list of the arrays out\[96\], x\[300\]"):
            zg.bisect(sums, grid, *arguments, expected=expected)
    with pytest.raises(zg.KernelTypeError, match="'seconds' must be a number; got 'a'"):
        zg.bisect(sums, grid, *arguments, seconds="a")
    for kernel in (sums, sums.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, zg.f32, 4, 32)):
        with pytest.raises(zg.LaunchError, match="must have a program"):
            zg.bisect(kernel, (0,), *arguments[: 6 if kernel is sums else 4])
    with pytest.raises(zg.LaunchError, match="there is no fault"):
        zg.bisect(sums, grid, *arguments, target="cpu").save("report.py")


def test_the_command(tmp_path, capsys):
    file = tmp_path / "kernels.py"
    file.write_text(
        "import ziggurat as zg\n\n@zg.kernel\ndef f(x, B: zg.constexpr):\n"
        "    at = zg.add(x, zg.arange(0, B))\n    zg.store(at, zg.add(zg.load(at), 1))\n"
    )
    arguments = ["bisect", f"{file}:f", "f32[64], 64", "--num-warps", "1", "-o", str(tmp_path / "report.py")]
    assert main(arguments) == 0
    assert "steps agree" in capsys.readouterr().out
    with planted("assign", 0):
        assert main(arguments) == 1
    assert "'assign' changes the result" in capsys.readouterr().err
    assert (tmp_path / "report.py").is_file()


def test_edits_are_of_many_kinds():
    model = sums.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, zg.f32, 4, 32)
    assert len({name.partition(" of ")[0] for name, _ in edits(model)}) >= 5
    assert any(isinstance(op, arith.AddF) for op in model.walk())


@pytest.mark.parametrize("view", [np.s_[:], np.s_[:3, :5], np.s_[::2, 1::3], np.s_[1:, 2], np.s_[4:, :]])
def test_the_memory_of_an_array_with_gaps_is_copied_whole(view):
    """A kernel on a GPU gets the strides of the array in memory as numbers."""
    array = np.arange(6 * 8, dtype=np.float32).reshape(6, 8)[view]
    whole = span_of(array)
    assert whole is array or (whole.ndim == 1 and whole.ctypes.data == array.ctypes.data)
    np.testing.assert_array_equal(as_before(whole.copy(), array), array)
