"""`do_bench`: what it calls, wipes and makes of times, on a driver that tells times that are made up."""

import pytest

from ziggurat.backend.cuda import testing
from ziggurat.backend.cuda.driver import own_stream
from ziggurat.codemodel.errors import LaunchError


def test_quantiles():
    times = [1.0, 2.0, 3.0, 10.0]
    assert [testing._quantile(times, share) for share in (0.0, 0.5, 1.0)] == [1.0, 2.5, 10.0]
    assert testing._quantile([4.0], 0.3) == 4.0
    with pytest.raises(LaunchError, match="from 0 to 1"):
        testing._quantile(times, 20)


def test_median_and_rounds(fake, monkeypatch: pytest.MonkeyPatch):
    calls, wipes = [], []
    elapsed = iter([50.0, *(float(n) for n in range(1, 100))])  # The first is of the estimate: 10 ms a call.
    fake.attributes["CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE"] = 1 << 20
    ok = fake.cuInit(0)[0]
    for name in ("cuEventRecord", "cuEventSynchronize", "cuEventDestroy"):
        monkeypatch.setattr(fake, name, lambda *_: (ok,), raising=False)
    monkeypatch.setattr(fake, "cuEventCreate", lambda flags: (ok, object()), raising=False)
    monkeypatch.setattr(fake, "cuEventElapsedTime", lambda start, end: (ok, next(elapsed)), raising=False)
    monkeypatch.setattr(fake, "cuMemsetD8Async", lambda *a: wipes.append(a[2]) or (ok,), raising=False)
    assert testing.do_bench(lambda: calls.append(1), warmup=20, repeat=90) == 5.0
    # One to compile, 5 to estimate, 2 to warm up, 9 that are timed.
    assert len(calls) == 1 + 5 + 2 + 9 and wipes == [2 << 20] * (5 + 9)
    assert fake.freed != []


@pytest.fixture
def timed(fake, monkeypatch: pytest.MonkeyPatch):
    """The fake driver with events of which every pair is 2 ms apart, and graphs; `events` tells what was asked."""
    fake.attributes["CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE"] = 1 << 20
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
    return [arguments for told, arguments in fake.events if told == name]


def test_without_flush_nothing_is_wiped_and_five_rounds_are_the_least(timed):
    calls = []
    assert testing.do_bench(lambda: calls.append(1), warmup=0, repeat=0, flush=False) == 2.0
    assert len(calls) == 1 + 5 + 1 + 5 and timed.done == []
    assert len(asked(timed, "cuEventCreate")) == len(asked(timed, "cuEventDestroy")) == 2 * (1 + 5)


def test_quantiles_are_given_in_the_order_asked_for(timed, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(testing, "_times", lambda *_: [3.0, 1.0, 2.0])
    assert testing.do_bench(lambda: None, quantiles=(1.0, 0.0, 0.5)) == [3.0, 1.0, 2.0]
    assert testing.do_bench(lambda: None) == 2.0


def test_a_graph_is_captured_once_and_its_time_shared_among_its_calls(timed):
    calls = []
    # 5 calls took 2 ms: 25 of them are a tenth of 100 ms.
    assert testing.do_bench(lambda: calls.append(own_stream()), warmup=25, repeat=100, graph=True) == 2.0 / 25
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
        testing.do_bench(run, graph=True)
    assert asked(timed, "cuStreamEndCapture") == [(("stream", 77),)] and asked(timed, "cuGraphLaunch") == []
    assert own_stream() == 0
