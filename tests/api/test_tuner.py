"""One tuning: the configurations that are compiled, measured and left out, and the record."""

import io
import re
import sys
import threading
import time
import types
from contextlib import contextmanager
from types import SimpleNamespace

import attrs
import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.cache.records import Records
from ziggurat.backend.cuda.cache import Cache
from ziggurat.backend.devices.driver import own_stream
from ziggurat.codemodel.errors import KernelErrors, ResourceError
from ziggurat.tuning import tuner as module
from ziggurat.tuning.measuring import Progress
from ziggurat.tuning.tuner import Tuner, reason_of

LESS = zg.CompareKind.LESS_THAN


def copy(x_ptr, out_ptr, n, BLOCK: zg.constexpr):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    mask = zg.compare(at, n, LESS)
    zg.store(zg.add(out_ptr, at), zg.load(zg.add(x_ptr, at), mask), mask)


def tall(x_ptr, y_ptr, out_ptr, K, M: zg.constexpr, INNER: zg.constexpr):
    """A sum of products whose accumulator grows with M squared."""
    at, inner = zg.arange(0, M), zg.arange(0, INNER)
    x_at = zg.add(x_ptr, zg.add(zg.mul(zg.expand(at, 1), K), zg.expand(inner, 0)))
    y_at = zg.add(y_ptr, zg.add(zg.mul(zg.expand(inner, 1), M), zg.expand(at, 0)))
    total = zg.zeros((M, M), zg.f32)
    for _ in range(0, K, INNER):
        total = zg.dot(zg.load(x_at), zg.load(y_at), total)
        x_at, y_at = zg.add(x_at, INNER), zg.add(y_at, INNER * M)
    out_at = zg.add(out_ptr, zg.add(zg.mul(zg.expand(at, 1), M), zg.expand(at, 0)))
    zg.store(out_at, total)


CONFIGS = [
    zg.Config({"BLOCK": 64}, num_warps=2),
    zg.Config({"BLOCK": 128}),
    zg.Config({"BLOCK": 256}, num_warps=8),
]
NAMES = [str(config) for config in CONFIGS]
TIMES = {64: 3.0, 128: 1.01, 256: 1.0}  # by threads: 128 and 256 differ by less than the noise


def tuned(gpu, configs=CONFIGS, key=("n",), kernel=copy, **options):
    return zg.autotune(configs, key, **{"measure": gpu.measure(TIMES), "quiet": True, **options})(zg.kernel(kernel))


def grid(meta):
    return (zg.cdiv(1000, meta["BLOCK"]),)


def arrays(dtype=np.float32):
    return zg.empty(1000, dtype), zg.empty(1000, dtype)


def tuner(kernel, *arguments, **keywords):
    return Tuner(kernel, grid, arguments or (*arrays(), 1000), keywords)


def fails_for(gpu, threads, error):
    """A measure that fails for kernels with this number of threads."""
    measure = gpu.measure(TIMES)

    def run_and_fail(run):
        time = measure(run)
        if gpu.measured[-1] in threads:
            raise error
        return time

    return run_and_fail


def test_the_choice_and_its_record(gpu):
    record, config = tuner(tuned(gpu)).choice(CONFIGS)
    assert config is CONFIGS[1] and record.config == NAMES[1] and record.left_out == {}
    assert record.times == dict(zip(NAMES, [3.0, 1.01, 1.0], strict=True))
    about = {name: record.about[name] for name in ("kernel", "key", "types", "options", "configs", "device")}
    assert about == {
        "kernel": "copy",
        "key": {"n": "1000"},
        "types": {"x_ptr": "f32", "out_ptr": "f32"},
        "options": {},
        "configs": NAMES,
        "device": "FAKE GPU",
    }
    assert Records().get(record.about) == record


def test_options_of_the_compilation_are_part_of_the_record(gpu):
    """Streams and checks are not."""
    kernel = tuned(gpu)
    request = tuner(kernel, exact_math=True, stream=0, check=True)
    assert request.options == {"exact_math": True}
    assert request.choice(CONFIGS)[0].about["options"] == {"exact_math": "True"}
    assert len(gpu.measured) == 3
    tuner(kernel, exact_math=True).choice(CONFIGS)
    assert len(gpu.measured) == 3
    tuner(kernel).choice(CONFIGS)
    assert len(gpu.measured) == 6


def test_one_configuration_is_not_measured(gpu):
    record, config = tuner(tuned(gpu)).choice(CONFIGS[2:])
    assert config is CONFIGS[2] and record.times == {} and gpu.measured == [] and gpu.launches == []
    assert Records().all() == []


def test_a_record_that_names_none_of_the_configurations_is_made_anew(gpu):

    record, _ = tuner(tuned(gpu)).choice(CONFIGS)
    Records().put(attrs.evolve(record, config="BLOCK=1"))
    again, config = tuner(tuned(gpu)).choice(CONFIGS)
    assert again == record and config is CONFIGS[1] and len(gpu.measured) == 6


def test_without_the_cache_nothing_is_read_or_written(gpu):
    for _ in range(2):
        tuner(tuned(gpu, cache_results=False)).choice(CONFIGS)
    assert len(gpu.measured) == 6 and Records().all() == []


def test_what_is_compiled_already_is_not_compiled_again(gpu, monkeypatch):
    jobs = []
    original = module.compile_all
    monkeypatch.setattr(module, "compile_all", lambda work, *rest: jobs.append(len(work)) or original(work, *rest))
    tuner(tuned(gpu, cache_results=False)).choice(CONFIGS[:2])
    tuner(tuned(gpu, cache_results=False)).choice(CONFIGS)
    assert jobs == [2, 1]


@pytest.mark.parametrize("error", [zg.LaunchError("too many threads\nof them"), ResourceError("too much")])
def test_what_cannot_be_launched_is_left_out(gpu, error, capsys):
    request = tuner(tuned(gpu, measure=fails_for(gpu, [128], error), quiet=False))
    record, config = request.choice(CONFIGS)
    assert config is CONFIGS[2] and list(record.times) == [NAMES[0], NAMES[2]]
    reason = error.summary.partition("\n")[0]
    assert record.left_out == {NAMES[1]: reason} and request.left_out == {NAMES[1]: error}
    assert capsys.readouterr().err == f"copy: without {NAMES[1]}: {reason}\n"


def test_where_none_can_be_launched_each_reason_is_told(gpu):
    error = zg.LaunchError("too many", hint="fewer warps")
    request = tuner(tuned(gpu, measure=fails_for(gpu, TIMES, error)))
    with pytest.raises(zg.LaunchError) as excinfo:
        request.choice(CONFIGS)
    lines = excinfo.value.summary.splitlines()
    assert lines == ["no configuration of 'copy' can be launched:", *(f"  {name}: too many" for name in NAMES)]
    assert excinfo.value.hint == "fewer warps" and Records().all() == []
    request = tuner(tuned(gpu, measure=fails_for(gpu, TIMES, ResourceError("too many"))))
    with pytest.raises(zg.LaunchError) as excinfo:
        request.choice(CONFIGS)
    assert excinfo.value.hint == "add a configuration with smaller blocks"


def test_an_error_of_the_measure_is_its_own(gpu):
    with pytest.raises(ZeroDivisionError):
        tuner(tuned(gpu, measure=lambda run: 1 / 0)).choice(CONFIGS)
    assert Records().all() == []


def test_do_bench_measures_where_nothing_else_does(gpu, monkeypatch):
    calls = []

    def do_bench(run, warmup, rep, graph, host):
        run()
        calls.append((warmup, rep, graph, host))
        return float(len(calls))

    monkeypatch.setattr("ziggurat.backend.cuda.gpu_timing.do_bench", do_bench)
    kernel = tuned(gpu, measure=None, warmup=1.0, rep=2.0, use_cuda_graph=True)
    record, config = tuner(kernel).choice(CONFIGS)
    assert calls == [(1.0, 2.0, True, False)] * 3
    assert config is CONFIGS[0] and list(record.times.values()) == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("gives", "text"),
    [(None, "None"), ([1.0, 2.0], r"\[1.0, 2.0\]"), ("fast", "'fast'"), (-1.0, "-1.0"), (1j, "1j")],
)
def test_what_is_no_time_says_what_was_expected(gpu, gives, text):
    request = tuner(tuned(gpu, measure=lambda run: gives))
    with pytest.raises(zg.LaunchError, match=f"'copy' must give a time, a number of zero or more; got {text}") as e:
        request.choice(CONFIGS)
    assert NAMES[0] in str(e.value) and Records().all() == []
    assert (e.value.hint is not None) == (gives is None)


@pytest.mark.parametrize("gives", [np.float32(2.0), np.array(2.0), 2, 0])
def test_whatever_is_a_number_is_a_time(gpu, gives):
    record, config = tuner(tuned(gpu, measure=lambda run: gives)).choice(CONFIGS)
    assert config is CONFIGS[0] and list(record.times.values()) == [float(gives)] * 3
    assert all(type(time) is float for time in record.times.values())


@pytest.mark.parametrize("none", [np.nan, np.inf])
def test_a_configuration_without_a_time_is_left_out(gpu, none):
    times = iter([none, 2.0, 1.0])
    record, config = tuner(tuned(gpu, measure=lambda run: next(times))).choice(CONFIGS)
    assert config is CONFIGS[2] and list(record.times) == NAMES[1:]
    assert record.left_out == {NAMES[0]: f"its time must be finite; measure gave {none}"}
    with pytest.raises(zg.LaunchError, match="no configuration of 'copy' can be launched") as error:
        tuner(tuned(gpu, measure=lambda run: none, cache_results=False)).choice(CONFIGS)
    assert str(error.value).count(f"measure gave {none}") == 3
    assert error.value.hint == "let measure give milliseconds"


@pytest.fixture
def clocked(gpu, monkeypatch):
    """The recorded driver with events, memory and graphs: `streams` has what was done, and on which stream."""
    gpu.streams, ok = [], gpu.cuInit(0)[0]

    def tell(name, position, answer=None):
        def asked(*arguments):
            gpu.streams.append((name, arguments[position]))
            return (ok,) if answer is None else (ok, answer)

        monkeypatch.setattr(gpu, f"cu{name}", asked, raising=False)

    for name, position in (
        ("EventRecord", 1), ("StreamSynchronize", 0), ("StreamBeginCapture", 0), ("GraphLaunch", 1),
        ("MemsetD8Async", 3), ("MemcpyDtoDAsync", 3),
    ):  # fmt: skip
        tell(name, position)
    tell("StreamEndCapture", 0, "graph")
    for name, answer in (
        ("EventCreate", "event"), ("EventElapsedTime", 2.0), ("StreamCreate", 88), ("GraphInstantiate", "made"),
        ("EventSynchronize", None), ("EventDestroy", None), ("GraphDestroy", None), ("GraphExecDestroy", None),
    ):  # fmt: skip
        answered = (ok,) if answer is None else (ok, answer)
        monkeypatch.setattr(gpu, f"cu{name}", lambda *_, answered=answered: answered, raising=False)
    for name in ("CUstreamCaptureMode", "CUstream_flags"):
        monkeypatch.setattr(gpu, name, gpu.CUdevice_attribute, raising=False)
    return gpu


SETTING_BACK = {"restore_value": ["out_ptr"], "reset_to_zero": ["x_ptr"]}


@pytest.mark.parametrize("stream", [77, SimpleNamespace(cuda_stream=77), SimpleNamespace(__cuda_stream__=(0, 77))])
def test_all_of_a_measurement_is_on_the_launch_s_stream(clocked, stream):
    kernel = tuned(clocked, measure=None, warmup=1, rep=1, **SETTING_BACK)
    kernel[grid](*arrays(), 1000, stream=stream)
    assert {launch["stream"] for launch in clocked.launches} == {("stream", 77)}
    assert {on for _, on in clocked.streams} == {("stream", 77)}
    assert {"EventRecord", "MemsetD8Async", "MemcpyDtoDAsync"} <= {name for name, _ in clocked.streams}
    clocked.launches.clear()
    kernel[grid](*arrays(), 1000)
    assert clocked.launches[-1]["stream"] == ("stream", 0)  # afterwards all is as it was


@pytest.mark.parametrize("stream", [{}, {"stream": 77}, {"stream": 0}])
def test_a_graph_captures_the_launches(clocked, stream):
    """On a stream of its own, which begins after the work in flight on the launch's."""
    kernel = tuned(clocked, measure=None, warmup=1, rep=1, use_cuda_graph=True, **SETTING_BACK)
    kernel[grid](*arrays(), 1000, **stream)
    before, own = ("stream", stream.get("stream", 0)), ("stream", 88)
    assert [launch["stream"] for launch in clocked.launches][-1] == before
    assert {launch["stream"] for launch in clocked.launches[:-1]} == {own}
    done = {name: {on for stream, on in clocked.streams if stream == name} for name, _ in clocked.streams}
    assert done["StreamBeginCapture"] == done["EventRecord"] == done["GraphLaunch"] == {own}
    capture = clocked.streams.index(("StreamBeginCapture", own))
    assert ("StreamSynchronize", before) in clocked.streams[:capture]


def test_a_measure_of_the_user_s_is_on_the_launch_s_stream_as_well(clocked):
    calls = []
    kernel = tuned(clocked, measure=lambda run: calls.append(own_stream()) or run() or 1.0, **SETTING_BACK)
    kernel[grid](*arrays(), 1000, stream=77)
    assert calls == [77] * 3 and own_stream() == 0
    assert {launch["stream"] for launch in clocked.launches} == {("stream", 77)}
    assert {on for _, on in clocked.streams} == {("stream", 77)}


class Cupy(types.ModuleType):
    """CuPy with an array and streams, as far as launches and measurements ask for them."""

    class ndarray:
        dtype = np.dtype("f4")
        shape = (1000,)

        def __init__(self, pointer):
            self.data = SimpleNamespace(ptr=pointer, device_id=0)
            self.__cuda_array_interface__ = {"shape": self.shape, "strides": None}

    def __init__(self, current):
        super().__init__("cupy")
        self.current, self.cuda = current, self
        self.Stream = SimpleNamespace(null=self.ExternalStream(0))

    def get_current_stream(self):
        return SimpleNamespace(ptr=self.current)

    @contextmanager
    def ExternalStream(self, address):
        before, self.current = self.current, address
        yield
        self.current = before


@pytest.mark.parametrize("options", [{}, {"stream": 0}, {"stream": 77}])
@pytest.mark.parametrize("graph", [False, True])
def test_the_current_stream_of_the_arrays_library_is_the_one_that_is_timed(clocked, monkeypatch, options, graph):
    cupy = Cupy(33)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    kernel = tuned(clocked, measure=None, warmup=1, rep=1, use_cuda_graph=graph, **SETTING_BACK)
    # One array is ours, the other CuPy's: the library that has streams decides.
    kernel[grid](zg.empty(1000), cupy.ndarray(0x2000), 1000, **options)
    on = ("stream", options.get("stream", 33))
    measured = {launch["stream"] for launch in clocked.launches[:-1]}
    assert measured == {("stream", 88)} if graph else measured == {on}
    assert clocked.launches[-1]["stream"] == on and cupy.current == 33
    assert {where for name, where in clocked.streams if name == "EventRecord"} == measured


def test_checks_wait_after_the_choice_only(clocked, monkeypatch):
    waits = []
    original = clocked.cuCtxSynchronize
    monkeypatch.setattr(clocked, "cuCtxSynchronize", lambda: waits.append(len(clocked.launches)) or original())
    kernel = tuned(clocked, measure=None, warmup=1, rep=1)
    kernel[grid](*arrays(), 1000, check=True)
    assert waits == [len(clocked.launches)]


def test_a_descriptor_s_array_is_set_back(gpu):
    def scale(x, out_ptr, n, BLOCK: zg.constexpr):
        tile = x.load([0, 0])
        x.store([0, 0], zg.mul(tile, 2.0))

    array, copies = zg.empty((16, 16)), []
    configs = [zg.Config({"BLOCK": 1}), zg.Config({"BLOCK": 2})]
    measure = lambda run: run() or copies.append(gpu.done[0]) or 1.0  # noqa: E731
    kernel = tuned(gpu, configs, kernel=scale, restore_value=["x"], measure=measure)
    Tuner(kernel, (1,), (zg.TensorDescriptor(array, (16, 16)), zg.empty(4), 1), {}).choice(configs)
    assert copies[0][0] == "copy" and copies[0][2:] == (array.pointer, 1024)


def test_a_reason_is_a_line():
    assert reason_of(zg.LaunchError("  first\nsecond", hint="hint")) == "first"
    assert reason_of(KernelErrors([ResourceError("one\nmore"), ResourceError("two")])) == "one"


def test_what_does_not_fit_is_left_out_with_the_reason(gpu, capsys):
    configs = [zg.Config({"M": m, "INNER": inner}) for m, inner in ((16, 16), (256, 16), (64, 2048))]
    gpu.parameters = 4
    kernel = zg.autotune(configs, measure=gpu.measure(TIMES))(zg.kernel(tall))
    x, y, out = (zg.empty(256 * 256, dtype) for dtype in (np.float16, np.float16, np.float32))
    kernel[(1,)](x, y, out, 64)
    output = capsys.readouterr().err
    assert re.search(r"tall: without M=256, .*: .*registers in each of 256 threads, which have 255", output), output
    assert re.search(r"tall: without M=64, .*: the kernel needs \d+ bytes of shared memory", output), output
    assert set(kernel.last.left_out) == {str(config) for config in configs[1:]}
    assert gpu.launches[-1]["threads"] == 128
    quiet = zg.autotune(configs, measure=gpu.measure(TIMES), quiet=True, cache_results=False)(zg.kernel(tall))
    quiet[(1,)](x, y, out, 64)
    assert capsys.readouterr().err == ""
    hopeless = zg.autotune(configs[1:], measure=gpu.measure(TIMES), quiet=True)(zg.kernel(tall))
    with pytest.raises(zg.LaunchError, match="no configuration of 'tall' can be launched") as error:
        hopeless[(1,)](x, y, out, 64)
    assert all(str(config) in str(error.value) for config in configs[1:]) and "smaller blocks" in str(error.value)


def test_what_takes_longer_at_least_is_not_measured(gpu, monkeypatch):
    """Those with the lowest bounds come first. The bounds are of this launch, and not kept with the kernels."""
    gpu.parameters = 4
    of_one = {"MULTIPROCESSOR_COUNT": 1, "CLOCK_RATE": 1000}  # A microsecond a cycle.
    gpu.attributes |= {f"CU_DEVICE_ATTRIBUTE_{name}": number for name, number in of_one.items()}
    measured, names, times = [], [], {256: 40.0, 128: 5.0}
    monkeypatch.setattr(Cache, "put", lambda cache, key, binary: names.append(binary))

    def bench(tuner, run):
        run()
        measured.append(gpu.launches[-1]["threads"])
        return times[measured[-1]]

    monkeypatch.setattr(Tuner, "_bench", bench)
    # 64 steps of 64×64×16, and 2 of 16×16×16.
    configs = [zg.Config({"M": m, "INNER": 16}, num_warps=warps) for m, warps in ((64, 8), (16, 4))]
    kernel = zg.autotune(configs, quiet=True)(zg.kernel(tall))
    x, y, out = (zg.empty(256 * 256, dtype) for dtype in (np.float16, np.float16, np.float32))
    kernel[(100,)](x, y, out, 1024)
    assert measured == [128] and list(kernel.last.times) == [str(configs[1])]
    assert re.fullmatch(r"it takes \S+ ms at least, and another 5 ms", kernel.last.left_out[str(configs[0])])
    assert len(names) == 2 and not any(module.LEAST in binary.metadata for binary in names)


def test_what_the_driver_refuses_is_left_out(gpu, failed):
    kernel = tuned(gpu, quiet=True)
    gpu.attributes["CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK"] = 128
    kernel[grid](*arrays(), 1000)
    (reason,) = kernel.last.left_out.values()
    assert "256 threads, where it can have 128" in reason
    assert gpu.measured == [64, 128]


def test_an_error_of_the_kernel_itself_is_raised_as_it_is(gpu):
    @zg.autotune(CONFIGS)
    @zg.kernel
    def wrong(x_ptr, BLOCK: zg.constexpr):
        zg.store(x_ptr, zg.arange(0, BLOCK) + "a")

    with pytest.raises(zg.ZigguratError) as error:
        wrong[(1,)](zg.empty(4))
    assert "no configuration" not in str(error.value) and "wrong" not in wrong.choices


def test_arrays_are_set_back_around_each_run(gpu):
    kernel = tuned(gpu, restore_value=["x_ptr"], reset_to_zero=["out_ptr"])
    x, out = arrays()
    kernel[grid](x, out, 1000)
    zero = ("set", out.pointer, 0, 4000)
    copies = [done[1] for done in gpu.done if done[0] == "copy" and done[2] == x.pointer]
    runs = [
        [zero, ("copy", copy, x.pointer, 4000), ("launch", threads), ("copy", x.pointer, copy, 4000)]
        for copy, threads in zip(copies, (64, 128, 256), strict=True)
    ]
    assert gpu.done == [*runs[0], *runs[1], *runs[2], zero, ("launch", 128)]


def test_a_fault_names_the_configuration(gpu, failed):
    def fails(run):
        gpu.launch_status = [failed("CUDA_ERROR_ILLEGAL_ADDRESS", 700)] * 3
        try:
            run()
        finally:
            gpu.launch_status = []

    kernel = zg.autotune(CONFIGS, measure=fails)(zg.kernel(copy))
    with pytest.raises(zg.MemoryAccessError, match=r"tuning, with BLOCK=64, num_warps=2"):
        kernel[grid](*arrays(), 1000)


# The progress bar.


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_shown_on_a_terminal_only():
    for stream, is_visible in ((io.StringIO(), False), (Terminal(), True)):
        progress = Progress("scale: compiling", 4, stream)
        for _ in range(2):
            progress.advance()
        assert ("[###############...............] 2/4" in stream.getvalue()) == is_visible
        progress.close()
        assert stream.getvalue().endswith("\r\x1b[K") == is_visible


def test_the_line_is_drawn_anew_from_none_to_all():
    stream = Terminal()
    progress = Progress("measuring", 3, stream)
    for _ in range(3):
        progress.advance()
    lines = stream.getvalue().split("\r")
    assert lines[0] == "" and [line.rpartition(" ")[2] for line in lines[1:]] == [f"{n}/3\x1b[K" for n in range(4)]
    assert [line.count("#") for line in lines[1:]] == [0, 10, 20, 30]
    assert {line.count("#") + line.count(".") for line in lines[1:]} == {30}


@pytest.mark.parametrize("total", [0, 1])
def test_one_thing_needs_no_line(total):
    stream = Terminal()
    progress = Progress("compiling", total, stream)
    for _ in range(total):
        progress.advance()
    progress.close()
    assert stream.getvalue() == "" and progress.done == total


def test_it_is_standard_error_that_is_written(capsys, monkeypatch):
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    Progress("compiling", 2).close()
    assert stream.getvalue().startswith("\rcompiling [") and capsys.readouterr().out == ""


def test_threads_may_advance_it():
    class Slow(Terminal):
        """A stream that notices two threads writing at once."""

        def write(self, text):
            assert inside.acquire(blocking=False), "two threads draw"
            try:
                time.sleep(0.0002)  # lets the others run
                return super().write(text)
            finally:
                inside.release()

    inside, stream = threading.Lock(), Slow()
    progress = Progress("compiling", 40, stream)
    failed = []

    def work():
        try:
            for _ in range(10):
                progress.advance()
        except AssertionError as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == [] and progress.done == 40
    assert stream.getvalue().endswith("] 40/40\x1b[K")


# The thresholds.


@pytest.mark.parametrize(
    ("times", "place"), [((1.019, 1.0, 1.0), 0), ((1.025, 1.019, 1.0), 1), ((1.025, 1.021, 1.0), 2)]
)
def test_a_difference_of_two_percent_is_noise(gpu, times, place):
    record, config = tuner(tuned(gpu, measure=gpu.measure(dict(zip((64, 128, 256), times, strict=True))))).choice(
        CONFIGS
    )
    assert config is CONFIGS[place] and record.config == NAMES[place]


def test_a_bound_must_be_ten_percent_above_the_fastest(gpu):
    request = tuner(tuned(gpu))
    request.least = {"slow": 5.51, "near": 5.49, "equal": 5.0 * 1.1}
    assert request._is_left_out("slow", 5.0) and not request._is_left_out("near", 5.0)
    assert not request._is_left_out("equal", 5.0) and not request._is_left_out("unknown", 0.0)
    assert list(request.left_out) == ["slow"]
    assert request.left_out["slow"].summary == "it takes 5.51 ms at least, and another 5 ms"


def test_the_time_of_compiling_and_measuring(gpu):
    request = tuner(tuned(gpu, cache_results=False))
    assert request.seconds == 0.0
    start = time.perf_counter()
    request.choice(CONFIGS)
    assert 0 < request.seconds <= time.perf_counter() - start
