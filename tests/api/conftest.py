"""The recorded driver of the runtime's tests, for what the public face does with it."""

import fake_driver
import pytest

fake, failed = fake_driver.fake, fake_driver.failed


@pytest.fixture
def gpu(fake, tmp_path, monkeypatch):
    """The recorded driver for kernels of three parameters, with a home of its own. `measure(times)` is a measure for
    `zg.autotune` that runs a launch, and says the time for its number of threads; `measured` has these numbers."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ZIGGURAT_CACHE_DIR", raising=False)
    fake.parameters = 3
    fake.measured = []

    def measure(times):
        def run_and_tell(run):
            run()
            fake.measured.append(fake.launches[-1]["threads"])
            return times[fake.launches[-1]["threads"]]

        return run_and_tell

    fake.measure = measure
    return fake
