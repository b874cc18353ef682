"""Sanitised launches, `zg.sanitized`, and the option of pytest."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import entry_points
from types import SimpleNamespace

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.gpu.options import SANITIZERS
from ziggurat.kernels.kernel import Kernel
from ziggurat.sanitizing import pytest_plugin
from ziggurat.transforms.sanitize.records import place_of_check
from ziggurat.transforms.simplify import lower_structured


@zg.kernel
def halo(out, x, n, B: zg.constexpr):
    at = zg.program_id(0) * B + zg.arange(0, B)
    v = zg.load(x + at, zg.less(at, n), 0.0)
    before = zg.load(out + at - B, zg.and_(zg.less(at, n), zg.greater_equal(at, B)), 0.0)
    zg.store(out + at, v + before, zg.less(at, n))


@zg.kernel
def logs(out, x, n, B: zg.constexpr):
    at = zg.program_id(0) * B + zg.arange(0, B)
    zg.store(out + at, zg.log(zg.load(x + at)), zg.less(at, n))


def numbers(count: int = 40) -> np.ndarray:
    return np.arange(1, count + 1, dtype=np.float32)


def reports_of(kernel, grid, *arguments, **options) -> tuple[zg.SanitizerReport, ...]:
    with pytest.raises(zg.SanitizerError) as failure:
        kernel[grid](*arguments, **options)
    return failure.value.errors


def test_message():
    with pytest.raises(zg.SanitizerError) as failure:
        halo[(3,)](np.zeros(40, np.float32), numbers(), 40, 16, sanitize=True, interpret=True)
    text = re.sub(r"at \S*/test_sanitizing.py:\d+", "at test_sanitizing.py", str(failure.value))
    assert text == (
        "the sanitizers found a fault in 'halo'\n\n"
        "program (1, 0, 0) reads out[0], which program (0, 0, 0) has written\n"
        "  at test_sanitizing.py:14\n"
        "        before = zg.load(out + at - B, zg.and_(zg.less(at, n), zg.greater_equal(at, B)), 0.0)\n"
        "                 ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "  it is written here\n"
        "  at test_sanitizing.py:5\n"
        "        zg.store(out + at, v + before, zg.less(at, n))\n"
        "        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "  hint: programs run in any order: use an atomic, or give each program elements of its own"
    )


@pytest.mark.parametrize("interpret", [True, False])
def test_several_faults_of_one_launch(interpret):
    reports = reports_of(
        logs, (3,), np.zeros(40, np.float32), numbers() - 1, 40, 16, sanitize=True, interpret=interpret
    )
    assert [(report.check, report.argument, report.element) for report in reports] == [
        ("bounds", "x", 40), ("nan", "out", 0)
    ]  # fmt: skip
    assert reports[0].program == (2, 0, 0) and isinstance(reports[0], zg.KernelRuntimeError)


@pytest.mark.parametrize("interpret", [True, False])
def test_the_result_is_that_of_the_kernel(interpret):
    x, expected, out = numbers(), np.zeros(40, np.float32), np.zeros(40, np.float32)
    logs[(2,)](expected, x, 32, 16, interpret=interpret)
    logs[(2,)](out, x, 32, 16, sanitize=True, interpret=interpret)
    assert np.array_equal(out, expected) and out[31] != 0
    logs[(0,)](out, x, 32, 16, sanitize=True, interpret=interpret)


def test_only_what_is_asked_for():
    x = numbers() - 1
    assert [r.check for r in reports_of(logs, (3,), numbers(), x, 40, 16, sanitize=["bounds"])] == ["bounds"]
    assert [r.check for r in reports_of(logs, (2,), numbers(), x, 32, 16, sanitize="nan")] == ["nan"]
    logs[(2,)](numbers(), x, 32, 16, sanitize=())
    logs[(2,)](numbers(), x, 32, 16, sanitize=("races", "overflow"))


@pytest.mark.parametrize("value", ["race", ("bounds", "limits"), 3])
def test_unknown_names(value):
    with pytest.raises(zg.LaunchError, match="sanitize must be names of races, bounds, overflow, undefined, nan"):
        logs[(2,)](numbers(), numbers(), 32, 16, sanitize=value)


@pytest.mark.parametrize("interpret", [True, False])
def test_arrays_that_share_memory(interpret):
    memory = np.zeros(48, np.float32)
    (report,) = reports_of(
        shifted, (3,), memory[1:], memory[:-1], 40, 16, sanitize="races", interpret=interpret
    )  # fmt: skip
    assert {report.program, report.other_program} <= {(0, 0, 0), (1, 0, 0), (2, 0, 0)}
    shifted[(3,)](np.zeros(48, np.float32), memory, 40, 16, sanitize="races", interpret=interpret)


@zg.kernel
def shifted(out, x, n, B: zg.constexpr):
    at = zg.program_id(0) * B + zg.arange(0, B)
    zg.store(out + at, zg.load(x + at, zg.less(at, n), 0.0) + 1.0, zg.less(at, n))


@zg.kernel
def read_back(out, x, B: zg.constexpr):
    at = zg.program_id(0) * B + zg.arange(0, B)
    zg.store(out + at, zg.load(x + at), zg.less(at, 20))
    zg.store(x + at, zg.load(out + at) * 2.0)


@zg.kernel
def counted(out, B: zg.constexpr):
    zg.atomic_add(out + zg.arange(0, B), 1)


@pytest.mark.parametrize("interpret", [True, False])
def test_elements_that_nothing_has_written(interpret):
    out, x = np.zeros(32, np.float32), numbers(32)
    read_back[(2,)](out, x, 16, sanitize="undefined", interpret=interpret)
    read_back[(2,)](out, x, 16, sanitize="races", uninitialized="out", interpret=interpret)
    for checks in ("undefined", True):
        (report,) = reports_of(
            read_back, (2,), out, x, 16, sanitize=checks, uninitialized=["out"], interpret=interpret
        )  # fmt: skip
        assert (report.check, report.argument, report.element) == ("undefined", "out", 20)
        assert "reads out[20], which nothing has written" in report.summary
    read_back[(1,)](out, x, 16, sanitize=True, uninitialized="out", interpret=interpret)
    (report,) = reports_of(
        counted, (1,), np.zeros(16, np.int32), 16, sanitize=True, uninitialized="out", interpret=interpret
    )  # fmt: skip
    assert report.summary == "program (0, 0, 0) updates out[0], which nothing has written"


@pytest.mark.parametrize(
    ("value", "message"), [("y", "has no parameter 'y'"), (3, "must be names of parameters; got 3")]
)
def test_uninitialized_arrays_that_are_none(value, message):
    with pytest.raises(zg.LaunchError, match=message):
        counted[(1,)](np.zeros(16, np.int32), 16, sanitize=True, uninitialized=value)


def test_strided_arrays():
    whole = numbers(80)
    logs[(2,)](np.zeros(64, np.float32), whole[::2], 32, 16, sanitize="bounds")
    (report,) = reports_of(logs, (5,), np.zeros(80, np.float32), whole[:79:2], 80, 16, sanitize="bounds")
    assert report.argument == "x" and report.element == 79
    backward = whole[40::-1]
    (report,) = reports_of(logs, (3,), np.zeros(64, np.float32), backward, 48, 16, sanitize="bounds")
    assert report.argument == "x" and report.element == 1, "its first element is the last in memory"


def test_tuples_descriptors_and_tuned_kernels():
    x, out = numbers(64), np.zeros(64, np.float32)
    copied[(4,)](zg.TensorDescriptor(out, (16,)), zg.TensorDescriptor(x, (16,)), sanitize=True)
    assert np.array_equal(out, x)
    of_pair[(3,)]((out, x), 16, sanitize="nan")
    (report,) = reports_of(of_pair, (5,), (out, x), 16, sanitize="bounds")[:1]
    assert report.argument == "pair[1]"
    tuned = zg.autotune([zg.Config({"B": 16})], key=["n"])(halo)
    assert reports_of(tuned, (3,), np.zeros(40, np.float32), numbers(), 40, sanitize="races")[0].argument == "out"


@zg.kernel
def copied(out, x):
    at = zg.program_id(0) * 16
    zg.store_tensor_descriptor(out, [at], zg.load_tensor_descriptor(x, [at]))


@zg.kernel
def of_pair(pair, B: zg.constexpr):
    out, x = pair
    at = zg.program_id(0) * B + zg.arange(0, B)
    zg.store(out + at, zg.load(x + at))


@zg.kernel
def asserts(x, n, B: zg.constexpr):
    at = zg.arange(0, B)
    zg.device_assert(zg.greater(zg.load(x + at, zg.less(at, n)), 0.0))


@zg.kernel
def links(out, following):
    place = zg.program_id(0)
    count = 0
    while place >= 0:
        place = zg.load(following + place)
        count += 1
    zg.store(out + zg.program_id(0), count)


@pytest.mark.parametrize("interpret", [True, False])
def test_a_loop_that_goes_on_by_what_it_reads_outside_ends(interpret):
    """A read outside gives 0, and with 0 the list never ends: 0, 2, 50, 0, …"""
    following = np.array([2, 3, 50, -1], np.int32)
    reports = reports_of(links, (2,), np.zeros(2, np.int32), following, sanitize="bounds", interpret=interpret)
    assert [(report.argument, report.element) for report in reports] == [("following", 50)]


def test_an_assertion_about_undefined_elements():
    with pytest.raises(zg.SanitizerError) as failure:
        asserts[(1,)](numbers(), 10, 16, sanitize="undefined", interpret=True)
    (report,) = failure.value.errors
    assert "asserts an undefined element: the mask of this load of x leaves it out" in report.summary
    assert "device-side assertion failed" in str(failure.value.__cause__)
    with pytest.raises(zg.KernelRuntimeError, match="device-side assertion failed"):
        asserts[(1,)](numbers(), 10, 16, sanitize="races", interpret=True)


@pytest.mark.parametrize("lowered", [False, True], ids=["structured", "blocks"])
def test_built_models(lowered):
    with zg.build("built", zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32) as kernel:
        out, x, n = kernel.arguments
        at = zg.arange(0, 16)

        def step(i, acc):
            w = zg.load(x + at + i * 16, zg.less(at + i * 16, 40))
            return zg.add(acc, w)

        acc = zg.for_(0, n, 1, zg.zeros((16,), zg.f32), step)
        zg.store(out + at, acc)
    model = lower_structured(kernel.triton) if lowered else kernel.triton
    assert any(isinstance(op, zg.dialects.cf.CondBr) for op in model.walk()) == lowered
    sanitized = zg.sanitized(model)
    arguments = np.zeros(16, np.float32), numbers(), 3
    for native in (False, True):
        memory = sanitized.memory(1, *arguments)
        if native:
            zg.compile(sanitized.model, target="cpu")[1](*arguments, memory)
        else:
            zg.run(sanitized.model, 1, *arguments, memory)
        (report,) = sanitized.reports(memory, 1, *arguments)
        assert (report.check, report.argument, report.element) == ("undefined", "arg0", 8)


def test_triton_c():
    kernel = zg.triton_c(
        "__global__ void twice(float* out, float* x, int n) {\n  int at[TM] = get_program_id(0) * TM + 0 ... TM;\n"
        "  *(out + at) = *(x + at) * 2;\n}",
        TM=16,
    )
    reports = reports_of(kernel, (3,), np.zeros(40, np.float32), numbers(), 40, sanitize="bounds")
    assert [(r.argument, r.element, r.location.line) for r in reports] == [("x", 40, 3), ("out", 40, 3)]


def test_a_model_is_sanitized():
    model = halo.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, 16)
    sanitized = zg.sanitized(model, "races", names=["out", "x", "n"])
    assert zg.same_model(zg.parse(str(sanitized.model)), sanitized.model)
    out, x = np.zeros(40, np.float32), numbers()
    memory = sanitized.memory((3,), out, x, 40)
    zg.run(sanitized.model, (3,), out, x, 40, memory)
    (report,) = sanitized.reports(memory, (3,), out, x, 40)
    assert (report.argument, report.element, report.program, report.other_program) == ("out", 0, (1, 0, 0), (0, 0, 0))
    with pytest.raises(zg.SanitizerError, match="found a fault in 'halo"):
        sanitized.check(memory, (3,), out, x, 40)
    with pytest.raises(zg.LaunchError, match="the arrays 'out' and 'x' share memory") as failure:
        sanitized.memory((3,), x, x, 40)
    assert "shared=[(0, 1)]" in str(failure.value)
    zg.sanitized(model, shared=[(0, 1)]).memory((3,), x, x, 40)
    with pytest.raises(zg.LaunchError, match="takes 3 arguments; got 2"):
        sanitized.memory((3,), x, x)
    with pytest.raises(zg.LaunchError, match="'names' must have 3 names"):
        zg.sanitized(model, names=["out"])
    for options in ({"shared": [(0, 2)]}, {"shared": [(0, 9)]}, {"uninitialized": [9]}, {"uninitialized": "x"}):
        with pytest.raises(zg.LaunchError, match="must have the numbers of parameters that are arrays, 0, 1; got"):
            zg.sanitized(model, **options)
    for other in (np.zeros(3, np.int64), None):
        with pytest.raises(zg.LaunchError, match="the memory must be that of a launch"):
            sanitized.reports(other, (3,), out, x, 40)


def test_a_model_with_elements_that_nothing_has_written():
    model = halo.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, 16)
    sanitized = zg.sanitized(model, "undefined", names=["out", "x", "n"], uninitialized=[1])
    arguments = np.zeros(40, np.float32), numbers(), 40
    memory = sanitized.memory((3,), *arguments)
    zg.run(sanitized.model, (3,), *arguments, memory)
    (report,) = sanitized.reports(memory, (3,), *arguments)
    assert (report.check, report.argument, report.element) == ("undefined", "x", 0)


def test_too_many_programs():
    with pytest.raises(zg.LaunchError, match="must have less than 2097151 programs"):
        shifted[(1 << 21,)](np.zeros(40, np.float32), numbers(), 40, 16, sanitize="races")


FILE = """
import numpy as np
import ziggurat as zg

@zg.kernel
def far(out, B: zg.constexpr):
    zg.store(out + zg.arange(0, B), zg.full((B,), zg.program_id(0), zg.i32))

def test_wrong():
    far[(2,)](np.zeros(16, np.int32), 16)

def test_right():
    far[(1,)](np.zeros(16, np.int32), 16)
    far[(2,)](np.zeros(16, np.int32), 16, sanitize=())
"""


def test_the_option_of_pytest(tmp_path):
    (tmp_path / "test_far.py").write_text(FILE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    if not entry_points(group="pytest11", name="ziggurat"):  # Where the package is not installed, it is named.
        command += ["-p", "ziggurat.sanitizing.pytest_plugin"]
    done = subprocess.run(
        [*command, "--ziggurat-sanitizers=races,nan", str(tmp_path)], capture_output=True, text=True, cwd=tmp_path
    )
    assert "1 failed, 1 passed" in done.stdout + done.stderr
    assert "which program (0, 0, 0) has written" in done.stdout


@pytest.mark.parametrize(
    ("everything", "names", "expected"),
    [(False, None, ()), (True, None, SANITIZERS), (False, "nan,races", ("races", "nan")), (False, "speed", None)],
)
def test_the_options_of_pytest_choose(everything, names, expected, monkeypatch):
    monkeypatch.setattr(Kernel, "sanitizers", ())
    values = {"--ziggurat-sanitize": everything, "--ziggurat-sanitizers": names}
    ends = []
    config = SimpleNamespace(getoption=values.__getitem__, add_cleanup=ends.append)
    if expected is None:
        with pytest.raises(pytest.UsageError, match="must be names of races"):
            pytest_plugin.pytest_configure(config)
        return
    pytest_plugin.pytest_configure(config)
    assert Kernel.sanitizers == expected and len(ends) == bool(expected)
    for end in ends:
        end()
    assert Kernel.sanitizers == ()


def test_a_launch_on_a_gpu(fake, monkeypatch):
    """The launch writes the facts about the arrays before it, and reads the reports after it."""
    sanitized = zg.sanitized(halo.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, 16), "races").sanitized
    reads, writes = (
        next(n for n, check in enumerate(sanitized.checks) if check.verb == verb and check.parameter == 0)
        for verb in ("reads", "writes")
    )
    out, x = zg.empty(40), zg.to_device(numbers())
    fake.parameters, launch, facts = 4, fake.cuLaunchKernel, []

    def launch_that_reports(*arguments):
        words = np.frombuffer(fake.copied, np.int64).copy()
        facts.append(words[2:10].tolist())
        place = place_of_check(2, reads)
        words[place : place + 4] = 1, 2, 64, 1 << 12 | writes
        fake.copied = words.tobytes()
        return launch(*arguments)

    monkeypatch.setattr(fake, "cuLaunchKernel", launch_that_reports)
    for _ in range(2):
        (report,) = reports_of(halo, (3,), out, x, 40, 16, sanitize="races")
        assert (report.argument, report.element, report.program) == ("out", 16, (2, 0, 0))
        assert report.other_program == (1, 0, 0)
    low, high, table, rows, *of_x = facts[0]
    assert (low, high, table, rows) == (0, 160, sanitized.size, 40) and of_x == [0, 160, 0, 0]
    assert [launch["grid"] for launch in fake.launches] == [(3, 1, 1)] * 2
    memory = int.from_bytes(fake.launches[0]["values"][3], "little")
    assert ("set", memory, 0, 8 * (sanitized.size + 3 * 40)) in fake.done, "the tables begin as zeros"


@zg.kernel
def waits_for_two(flag, out, n):
    i = zg.program_id(0)
    if i == n:
        zg.wait(flag, 2, "ge", scope="gpu")
    else:
        zg.atomic_add(flag, 1)
    zg.store(out + i, 1.0)


def test_a_kernel_that_waits_is_interpreted() -> None:
    flag, out = np.zeros(1, np.int32), np.zeros(3, np.float32)
    waits_for_two[(3,)](flag, out, 2, sanitize=True)
    assert out.tolist() == [1, 1, 1]
    flag[:], out[:] = 0, 0
    waits_for_two[(3,)](flag, out, 0, sanitize=True)  # For later programs.
    assert out.tolist() == [1, 1, 1]
    flag[:] = 0
    with pytest.raises(zg.KernelRuntimeError, match=r"deadlock: program .* waits for a change of memory that nothing"):
        waits_for_two[(2,)](flag, out, 0, sanitize=True)
