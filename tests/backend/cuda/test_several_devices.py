"""Kernels on several GPUs of one machine: arrays say where a launch is; modules are loaded once for each device."""

import functools
import threading

import numpy as np
import pytest
from launched import loaded_in
from libraries import require

import ziggurat as zg
from ziggurat.backend.devices.driver import current_device, device_count, on_device, synchronize

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def two_devices():
    count = device_count()
    if count < 2:
        pytest.skip(f"needs two GPUs, and there is {count}")


def kernel_of_its_own():
    @zg.kernel
    def scale(x_ptr, out_ptr, n, BLOCK: zg.constexpr):
        at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
        mask = zg.compare(at, n, zg.CompareKind.LESS_THAN)
        x = zg.load(zg.add(x_ptr, at), mask)
        zg.store(zg.add(out_ptr, at), zg.add(zg.mul(x, 2.0), 1.0), mask)

    return scale


def arrays(device: int, n: int = 1000, seed: int = 0):
    x = np.random.default_rng(seed).normal(size=n).astype(np.float32)
    return x, zg.to_device(x, device), zg.to_device(np.zeros_like(x), device)


def grid(n: int):
    return (zg.cdiv(n, 256),)


def test_launches_go_where_the_arrays_are():
    kernel = kernel_of_its_own()
    cases = [(number, *arrays(number, seed=number)) for number in (0, 1)]
    for _ in range(5):
        for number, x, dx, out in cases:
            assert out.device == number
            kernel[grid(1000)](dx, out, 1000, BLOCK=256)
            assert np.array_equal(zg.to_host(out), 2 * x + 1)
    contexts = [values.context for values in loaded_in(kernel.dispatcher)]
    assert len(contexts) == 2 == len(set(contexts))  # loaded once for each device, however often it is launched


def test_the_current_device_stays_what_it_was():
    kernel = kernel_of_its_own()
    for current in (0, 1):
        with on_device(current):
            for number in (1, 0):
                x, dx, out = arrays(number)
                kernel[grid(1000)](dx, out, 1000, BLOCK=256)
                assert np.array_equal(zg.to_host(out), 2 * x + 1)
                assert current_device().number == current


@pytest.mark.parametrize("seen_before", [False, True])
def test_arrays_on_different_devices_are_an_error_that_breaks_nothing(seen_before):
    kernel = kernel_of_its_own()
    x, on_first, out_first = arrays(0)
    _, _, out_second = arrays(1)
    if seen_before:  # The hot path is to notice as well.
        for _ in range(3):
            kernel[grid(1000)](on_first, out_first, 1000, BLOCK=256)
    with pytest.raises(zg.LaunchError, match="several devices: 'x_ptr' on 0, 'out_ptr' on 1") as error:
        kernel[grid(1000)](on_first, out_second, 1000, BLOCK=256)
    assert "zg.to_device" in str(error.value)
    kernel[grid(1000)](on_first, out_first, 1000, BLOCK=256)
    assert np.array_equal(zg.to_host(out_first), 2 * x + 1)
    assert not zg.to_host(out_second).any()


def test_torch_tensors_of_either_device():
    torch = require("torch")
    kernel = kernel_of_its_own()
    for number in (0, 1, 0, 1):
        x = torch.randn(4096, device=f"cuda:{number}")
        out = torch.zeros_like(x)
        stream = torch.cuda.Stream(number)
        torch.cuda.synchronize(number)
        with torch.cuda.stream(stream):
            torch.cuda._sleep(1_000_000)  # A launch on another stream would not wait for this.
            x.mul_(2.0)
            kernel[grid(4096)](x, out, 4096, BLOCK=256)
        stream.synchronize()
        assert torch.equal(out, 2 * x + 1)
    first, second = (torch.zeros(16, device=f"cuda:{number}") for number in (0, 1))
    kernel[(1,)](first, torch.zeros_like(first), 16, BLOCK=256)
    with pytest.raises(zg.LaunchError, match="several devices"):
        kernel[(1,)](first, second, 16, BLOCK=256)
    with pytest.raises(zg.LaunchError, match="'out_ptr' of 'scale' must be on a GPU"):
        kernel[(1,)](first, torch.zeros(16), 16, BLOCK=256)


class Interface:
    """An array of a library that does not say where it is."""

    def __init__(self, array):
        self.array = array
        self.__cuda_array_interface__ = array.__cuda_array_interface__


class Pointer:
    def __init__(self, array):
        self.array, self.dtype, self.is_cuda = array, "float32", True

    def data_ptr(self):
        return self.array.pointer


@pytest.mark.parametrize("values", [Interface, Pointer])
def test_the_driver_says_where_memory_is_that_does_not(values):
    kernel = kernel_of_its_own()
    for number in (0, 1, 0, 1, 1):
        x, dx, out = arrays(number, seed=number)
        kernel[grid(1000)](values(dx), values(out), 1000, BLOCK=256)
        assert np.array_equal(zg.to_host(out), 2 * x + 1)
    first, second = arrays(0)[1], arrays(1)[1]
    for _ in range(2):
        with pytest.raises(zg.LaunchError, match="several devices: 'x_ptr' on 0, 'out_ptr' on 1"):
            kernel[grid(1000)](values(first), values(second), 1000, BLOCK=256)


def test_dlpack_alone_says_where_an_array_is():
    torch = require("torch")

    class Packed:
        def __init__(self, tensor):
            self.tensor = tensor

        def __dlpack__(self, **options):
            return self.tensor.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

    kernel = kernel_of_its_own()
    for number in (0, 1, 0, 1, 1):
        x = torch.randn(4096, device=f"cuda:{number}")
        out = torch.zeros_like(x)
        torch.cuda.synchronize(number)
        kernel[grid(4096)](Packed(x), Packed(out), 4096, BLOCK=256)
        with on_device(number):
            synchronize()
        assert torch.equal(out, 2 * x + 1)


def test_a_thread_for_each_device():
    kernel = kernel_of_its_own()
    failures = []

    def work(number):
        try:
            with on_device(number):
                x, dx, out = arrays(number, 100_000, seed=number)
                for _ in range(200):
                    kernel[grid(100_000)](dx, out, 100_000, BLOCK=256)
                synchronize()
                if not np.array_equal(zg.to_host(out), 2 * x + 1):
                    failures.append(number)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in (0, 1, 0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_tuning_and_timing_happen_where_the_arrays_are(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ZIGGURAT_CACHE_DIR", raising=False)
    configs = [zg.Config({"BLOCK": 256}), zg.Config({"BLOCK": 1024}, num_warps=8)]
    tuned = zg.autotune(configs, ["n"], restore_value=["out_ptr"], warmup=1, rep=5)(kernel_of_its_own())
    with on_device(0):
        x, dx, out = arrays(1, 1 << 20)
        tuned[lambda meta: (zg.cdiv(1 << 20, meta["BLOCK"]),)](dx, out, 1 << 20)
        assert np.array_equal(zg.to_host(out), 2 * x + 1)
        assert current_device().number == 0
    assert len(tuned.last.times) == 2 and min(tuned.last.times.values()) > 0
    launch = functools.partial(tuned[(4096,)], dx, out, 1 << 20)
    with on_device(1):
        assert zg.testing.do_bench(launch, warmup=1, rep=5) > 0
