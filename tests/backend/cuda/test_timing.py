"""What `do_bench` makes of times; the timing itself needs a GPU."""

import pytest

from ziggurat.backend.cuda import testing
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
