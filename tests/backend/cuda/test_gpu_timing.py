"""`do_bench`: its calls, the flushes of the cache, and its results, on a fake driver with made-up times."""

import sys
import types
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from ziggurat.backend.cuda import gpu_timing
from ziggurat.backend.devices.driver import own_stream
from ziggurat.codemodel.errors import LaunchError


def test_quantiles(timed, monkeypatch: pytest.MonkeyPatch):
    times = [1.0, 10.0, 3.0, 2.0]
    monkeypatch.setattr(gpu_timing, "_times", lambda *_: list(times))
    assert gpu_timing.do_bench(print, quantiles=(0.0, 0.5, 1.0)) == [1.0, 2.5, 10.0]
    times = [4.0]
    assert gpu_timing.do_bench(print, quantiles=[0.3]) == [4.0]


def test_median_and_rounds(fake, monkeypatch: pytest.MonkeyPatch):
    calls, wipes = [], []
    elapsed = iter([50.0, *(float(n) for n in range(1, 100))])  # The first is of the estimate: 10 ms a call.
    ok = fake.cuInit(0)[0]
    for name in ("cuEventRecord", "cuEventSynchronize", "cuEventDestroy"):
        monkeypatch.setattr(fake, name, lambda *_: (ok,), raising=False)
    monkeypatch.setattr(fake, "cuEventCreate", lambda flags: (ok, object()), raising=False)
    monkeypatch.setattr(fake, "cuEventElapsedTime", lambda start, end: (ok, next(elapsed)), raising=False)
    monkeypatch.setattr(fake, "cuMemsetD8Async", lambda *a: wipes.append(a[2]) or (ok,), raising=False)
    assert gpu_timing.do_bench(lambda: calls.append(1), warmup=20, rep=90) == 5.0
    # One to compile, 5 to estimate, 2 to warm up, 9 that are timed.
    assert len(calls) == 1 + 5 + 2 + 9 and wipes == [256 << 20] * (5 + 9)
    assert fake.freed != []


@pytest.fixture
def timed(fake, monkeypatch: pytest.MonkeyPatch):
    """The fake driver with events of which every pair is 2 ms apart, and graphs; `events` tells what was asked."""
    fake.events, ok = [], fake.cuInit(0)[0]

    def tell(name, answer=None):
        def asked(*arguments):
            fake.events.append((name, arguments))
            return (ok,) if answer is None else (ok, answer)

        monkeypatch.setattr(fake, name, asked, raising=False)

    for name in ("EventRecord", "EventSynchronize", "EventDestroy", "StreamBeginCapture", "GraphDestroy"):
        tell(f"cu{name}")
    for name in ("GraphLaunch", "GraphExecDestroy"):
        tell(f"cu{name}")
    for name, answer in (
        ("EventCreate", "event"),
        ("EventElapsedTime", 2.0),
        ("StreamCreate", 77),
        ("StreamEndCapture", "graph"),
        ("GraphInstantiate", "made"),
    ):
        tell(f"cu{name}", answer)
    for name in ("CUstreamCaptureMode", "CUstream_flags"):
        monkeypatch.setattr(fake, name, fake.CUdevice_attribute, raising=False)
    return fake


def asked(fake, name):
    return [arguments for messages, arguments in fake.events if messages == name]


def test_without_flush_nothing_is_wiped_and_five_rounds_are_the_least(timed):
    calls = []
    assert gpu_timing.do_bench(lambda: calls.append(1), warmup=0, rep=0, flush=False) == 2.0
    assert len(calls) == 1 + 5 + 1 + 5 and timed.done == []
    assert len(asked(timed, "cuEventCreate")) == len(asked(timed, "cuEventDestroy")) == 2 * (1 + 5)


def test_quantiles_are_given_in_the_order_asked_for(timed, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gpu_timing, "_times", lambda *_: [3.0, 1.0, 2.0])
    assert gpu_timing.do_bench(lambda: None, quantiles=(1.0, 0.0, 0.5)) == [3.0, 1.0, 2.0]
    assert gpu_timing.do_bench(lambda: None) == 2.0


def test_a_graph_is_captured_once_and_its_time_shared_among_its_calls(timed):
    calls = []
    # 5 calls took 2 ms: 25 of them are a tenth of 100 ms.
    assert gpu_timing.do_bench(lambda: calls.append(own_stream()), warmup=25, rep=100, graph=True) == 2.0 / 25
    assert calls == [77] * (1 + 5 + 25)  # on a stream of its own, which kernels find
    assert own_stream() == 0
    ((stream, mode),) = asked(timed, "cuStreamBeginCapture")
    assert stream == ("stream", 77) and mode == "CU_STREAM_CAPTURE_MODE_THREAD_LOCAL"
    assert asked(timed, "cuGraphLaunch") == [("made", stream)] * (2 + 10)
    assert asked(timed, "cuGraphExecDestroy") == [("made",)] and asked(timed, "cuGraphDestroy") == [("graph",)]


def test_a_capture_is_ended_where_a_call_fails(timed):
    calls = []

    def run():
        calls.append(1)
        if len(calls) > 6:
            raise ValueError("while captured")

    with pytest.raises(ValueError, match="while captured"):
        gpu_timing.do_bench(run, graph=True)
    assert asked(timed, "cuStreamEndCapture") == [(("stream", 77),)] and asked(timed, "cuGraphLaunch") == []
    assert own_stream() == 0


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("mean", 4.0), ("min", 1.0), ("max", 8.0), ("median", 3.0), ("all", [3.0, 1.0, 8.0])],
)
def test_what_is_made_of_the_times(timed, monkeypatch: pytest.MonkeyPatch, mode, expected):
    monkeypatch.setattr(gpu_timing, "_times", lambda *_: [3.0, 1.0, 8.0])
    assert gpu_timing.do_bench(lambda: None, return_mode=mode) == expected
    assert gpu_timing.do_bench(lambda: None, return_mode=mode, quantiles=(0.5,)) == [3.0]  # which then say it all


def test_milliseconds_stand_where_triton_has_them(timed, monkeypatch: pytest.MonkeyPatch):
    calls = []
    monkeypatch.setattr(gpu_timing, "_times", lambda run, stream, *rest: calls.append(rest) or [1.0])
    gpu_timing.do_bench(lambda: None, 3, 40)
    gpu_timing.do_bench(lambda: None)
    assert calls == [(3, 40, True), (25.0, 100.0, True)]


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"run": 3}, "'run' must be a function without arguments; got 3"),
        ({"warmup": -1}, "warmup of do_bench must be a number of milliseconds; got -1"),
        ({"rep": float("nan")}, "rep of do_bench must be a number of milliseconds; got nan"),
        ({"rep": "10"}, "rep of do_bench must be a number of milliseconds; got '10'"),
        ({"return_mode": "best"}, "return_mode of do_bench must be one of mean, min, max, median, all; got 'best'"),
        ({"quantiles": (0.5, 50)}, "a quantile must be from 0 to 1; got 50"),
        ({"graph": True, "stream": 0}, "cannot be captured on the default stream"),
    ],
)
def test_what_cannot_be_measured_is_said_before_it_is(timed, argument, message):
    calls = []
    with pytest.raises(LaunchError, match=message):
        gpu_timing.do_bench(**{"run": lambda: calls.append(1), **argument})
    assert calls == [] and timed.events == []


def streams_of(fake):
    """The streams on which events were recorded, and on which something was captured."""
    captured = [argument[0] for argument in asked(fake, "cuStreamBeginCapture")]
    return {argument[1] for argument in asked(fake, "cuEventRecord")}, captured


@pytest.mark.parametrize("stream", [55, SimpleNamespace(cuda_stream=55), SimpleNamespace(ptr=55)])
@pytest.mark.parametrize("graph", [False, True])
def test_a_named_stream_is_the_one_that_is_timed(timed, stream, graph):
    calls = []
    gpu_timing.do_bench(lambda: calls.append(own_stream()), 1, 1, stream=stream, graph=graph)
    assert set(calls) == {55} and own_stream() == 0
    assert streams_of(timed) == ({("stream", 55)}, [("stream", 55)] if graph else [])


class Library(types.ModuleType):
    """A library of arrays by its streams: as torch and as CuPy have them."""

    def __init__(self, current):
        super().__init__("library")
        self.current, self.cuda, self.entered = current, self, []
        self.Stream = SimpleNamespace(null=self.stream(SimpleNamespace(address=0)))

    def is_initialized(self):
        return True

    def current_stream(self, device=None):
        return SimpleNamespace(cuda_stream=self.current)

    def current_device(self):
        return 0

    @property
    def _C(self):
        return SimpleNamespace(_cuda_getCurrentRawStream=lambda device: self.current)

    def get_current_stream(self):
        return SimpleNamespace(ptr=self.current)

    def ExternalStream(self, address, device=None):  # torch's is given to `stream`, CuPy's is entered itself
        result = self.stream(SimpleNamespace(address=address))
        result.address = address
        return result

    def stream(self, choice):
        @contextmanager
        def entered():
            before, self.current = self.current, choice.address
            self.entered.append(choice.address)
            yield
            self.current = before

        return entered()


@pytest.mark.parametrize("name", ["torch", "cupy"])
@pytest.mark.parametrize("graph", [False, True])
def test_the_current_stream_of_a_library_is_the_one_that_is_timed(timed, monkeypatch, name, graph):
    library = Library(33)
    monkeypatch.setitem(sys.modules, name, library)
    waited = []
    ok = timed.cuInit(0)[0]
    monkeypatch.setattr(timed, "cuStreamSynchronize", lambda stream: waited.append(stream) or (ok,))
    calls = []
    gpu_timing.do_bench(lambda: calls.append((library.current, own_stream())), 1, 1, graph=graph)
    address = 77 if graph else 33
    assert set(calls) == {(address, address)}
    assert (library.current, own_stream()) == (33, 0)
    assert streams_of(timed)[0] == {("stream", address)}
    assert waited[0] == ("stream", 33)  # a graph's stream begins after the work in flight


def test_a_default_stream_that_is_named_is_the_current_one_of_libraries(timed, monkeypatch):
    libraries = {name: Library(33) for name in ("torch", "cupy")}
    for name, library in libraries.items():
        monkeypatch.setitem(sys.modules, name, library)
    gpu_timing.do_bench(lambda: None, 1, 1, stream=0)
    assert [library.entered for library in libraries.values()] == [[0], [0]]
    assert streams_of(timed)[0] == {("stream", 0)}
