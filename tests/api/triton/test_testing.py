"""`triton.testing`: comparisons, benchmarks and figures of the machine."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from libraries import require

import ziggurat.triton as triton
from ziggurat.backend.cuda import gpu_timing
from ziggurat.triton.runtime.driver import CudaDriver, HostDriver, driver
from ziggurat.triton.testing import Benchmark

testing = triton.testing


def test_tensors_agree_within_tolerances():
    torch = require("torch")
    x = torch.ones(8)
    testing.assert_close(x, x + 0.009)  # The absolute tolerance is 0.01, and there is no relative one.
    with pytest.raises(AssertionError):
        testing.assert_close(x, x + 0.011)
    with pytest.raises(AssertionError):
        testing.assert_close(100 * x, 100 * x + 0.02)
    testing.assert_close(100 * x, 100 * x + 0.9, rtol=0.01)
    with pytest.raises(AssertionError, match="of the sum"):
        testing.assert_close(x, x + 0.005, atol=0.001, err_msg="of the sum")
    with pytest.raises(AssertionError):
        testing.assert_close(x, x + 0.005, atol=0)
    testing.assert_close(np.full(3, np.nan), [np.nan] * 3)
    testing.assert_close(x.bfloat16().requires_grad_(), x.bfloat16() + 1 / 128)
    testing.assert_close(3.0 * x.bfloat16() + 2**-6, 3.0 * x.bfloat16(), atol=2**-5)
    tolerance = {torch.float32: 0.1, torch.float16: 0.5}.__getitem__
    testing.assert_close(x.half(), x + 0.4, atol=tolerance)
    with pytest.raises(AssertionError):
        testing.assert_close(x, x.half() + 0.4, atol=tolerance, rtol=lambda dtype: 0)
    with pytest.raises(AssertionError):  # In the precision of float32.
        testing.assert_close(torch.tensor([2.0**20], dtype=torch.bfloat16), torch.tensor([2.0**20 + 1]))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> list:
    """The calls of the function that measures, in place of measuring; it runs what it would measure once."""
    calls = []

    def measured(call, warmup, rep, **settings):
        call()
        calls.append((warmup, rep, settings))
        quantiles = settings["quantiles"]
        return 2.0 if quantiles is None else [float(quantile) for quantile in quantiles]

    monkeypatch.setattr(gpu_timing, "do_bench", measured)
    return calls


def test_measurements_pass_on_their_settings(bench):
    tensors, runs = [SimpleNamespace(grad=3) for _ in range(2)], []
    result = testing.do_bench(lambda: runs.append([x.grad for x in tensors]), grad_to_none=iter(tensors))
    assert result == 2.0 and runs == [[None, None]]
    assert testing.do_bench(lambda: 0, 5, 7, quantiles=[0.5], return_mode="min") == 0.5
    assert testing.do_bench_cudagraph(lambda: 0, quantiles=[0.5, 0.2]) == [0.5, 0.2]
    assert testing.do_bench_cudagraph(lambda: 0, 9, return_mode="all") == 2.0
    settings = {"graph": False, "quantiles": None, "return_mode": "mean", "host": True}
    assert bench == [
        (25, 100, settings),
        (5, 7, {**settings, "quantiles": [0.5], "return_mode": "min"}),
        (20, 20, {**settings, "graph": True, "quantiles": [0.5, 0.2]}),
        (9, 9, {**settings, "graph": True, "return_mode": "all"}),
    ]


def test_measurements_of_a_gpu_are_by_its_clock(gpu, bench):
    testing.do_bench(lambda: 0)
    assert bench[-1][2]["host"] is False


def table(**settings) -> Benchmark:
    return Benchmark(
        x_names=["n"], x_vals=[1, 2], line_arg="by", line_vals=[10, 20], line_names=["ten", "twenty"],
        plot_name="products", args={"add": 0}, **settings,
    )  # fmt: skip


def test_benchmarks_are_run_and_printed(capsys, tmp_path, monkeypatch):
    calls = []

    @testing.perf_report(table())
    def product(n, by, add, *, more=0):
        calls.append((n, by, add, more))
        return n * by + add

    assert product(2, 3, add=4) == 10
    calls.clear()
    assert product.run() is None and capsys.readouterr().out == ""
    assert calls == [(n, by, 0, 0) for n in (1, 2) for by in (10, 20)]
    calls.clear()
    product.run(print_data=True, add=5, more=6)
    output = capsys.readouterr().out
    assert "products" in output and "45" in output and calls[0] == (1, 10, 5, 6)
    plots = []
    monkeypatch.setattr(triton.testing.reports.Table, "plot", lambda table, path, show: plots.append((path, show)))
    product.run(show_plots=True)
    product.run(save_path=str(tmp_path))
    assert plots == [(None, True), (tmp_path / "products.png", False)] and (tmp_path / "products.csv").exists()


@pytest.mark.parametrize("is_list", [False, True])
def test_tables_of_pandas(monkeypatch, is_list):
    pandas = SimpleNamespace(DataFrame=lambda records: ("frame", [*records]))
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    product = testing.perf_report([table()] if is_list else table())(lambda n, by, add: n * by)
    result = product.run(return_df=True)
    (kind, records) = result[0] if is_list else result
    assert kind == "frame" and [row["n"] for row in records] == [1, 2] and records[1]["twenty"] == 40
    assert len(result) == (1 if is_list else 2)


def test_numbers_that_the_management_tool_gives(monkeypatch):
    commands = []
    monkeypatch.setattr(
        "subprocess.check_output", lambda command, text: commands.append(command) or "1980, 2619\n" if text else b""
    )
    assert testing.nvsmi(["clocks.max.sm", "clocks.max.mem"]) == [1980, 2619]
    assert commands == [
        ["nvidia-smi", "-i", "0", "--query-gpu=clocks.max.sm,clocks.max.mem", "--format=csv,noheader,nounits"]
    ]


def test_figures_of_an_h100_stand_for_a_machine_without_a_gpu():
    """3.35 TB/s, 132 multiprocessors; as Triton has it, in each the tensor cores of an A100."""
    torch = require("torch")
    assert testing.get_dram_gbps() == 2619000 * 5120 * 2 / 8 / 1e6
    rates = {torch.float32: (256, 32), torch.float16: (512, 64), torch.bfloat16: (512, 64)}
    for dtype, (tensor_cores, others) in rates.items():
        assert testing.get_max_tensorcore_tflops(dtype, 1000) == pytest.approx(132 * 4 * 1000 * tensor_cores * 1e-9)
        assert testing.get_max_simd_tflops(dtype, 1000) == pytest.approx(132 * 4 * 1000 * others * 1e-9)
    assert testing.get_max_tensorcore_tflops(torch.int8, 1) == pytest.approx(132 * 4 * 1024 * 1e-9)
    rates = (testing.get_max_simd_tflops, torch.int8), (testing.get_max_tensorcore_tflops, torch.int64)
    for function, dtype in rates:
        with pytest.raises(RuntimeError, match="dtype not supported"):
            function(dtype, 1)
    properties = driver.active.utils.get_device_properties(0)
    assert properties == {
        "max_shared_mem": 232448, "max_num_regs": 65536, "multiprocessor_count": 132, "warpSize": 32,
        "sm_clock_rate": 1980000, "mem_clock_rate": 2619000, "mem_bus_width": 5120,
    }  # fmt: skip
    properties["warpSize"] = 64
    assert driver.active.utils.get_device_properties(0)["warpSize"] == 32
    assert triton.compiler.compiler.max_shared_mem(0) == 232448


def test_figures_of_a_gpu_are_those_of_its_driver(gpu):
    attributes = {
        "MEMORY_CLOCK_RATE": 1000, "GLOBAL_MEMORY_BUS_WIDTH": 4096, "MULTIPROCESSOR_COUNT": 7, "WARP_SIZE": 32,
        "CLOCK_RATE": 2000, "MAX_REGISTERS_PER_BLOCK": 65536, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 1 << 17,
    }  # fmt: skip
    gpu.attributes |= {f"CU_DEVICE_ATTRIBUTE_{name}": number for name, number in attributes.items()}
    assert testing.get_dram_gbps() == testing.get_dram_gbps(0) == 1000 * 4096 * 2 / 8 / 1e6
    assert testing.get_max_simd_tflops(np.dtype(np.float32), 1000) == pytest.approx(7 * 4 * 1000 * 32 * 1e-9)


# The machine.


def test_the_driver_of_a_machine_without_a_gpu(monkeypatch):
    torch = require("torch")
    host = HostDriver()
    assert host.get_current_target() == triton.backends.compiler.GPUTarget("cpu", 0, 32)
    assert host.get_active_torch_device() == torch.device("cpu") and host.get_current_device() == 0
    assert host.get_current_stream() == host.get_current_stream(0) == 0
    assert host.get_device_capability() == (0, 0) and host.set_current_device(1) is None
    interface = host.get_device_interface()
    first, second = (interface.Event(enable_timing=True) for _ in range(2))
    assert interface.current_device() == 0 and interface.synchronize() is first.synchronize() is None
    assert first.elapsed_time(second) == 0
    monkeypatch.setattr("time.perf_counter", iter([2.0, 2.5]).__next__)
    first.record()
    second.record("stream")
    assert first.elapsed_time(second) == 500.0
    assert host.get_benchmarker() is testing.do_bench
    cache = host.get_empty_cache_for_benchmark()
    assert cache.dtype == torch.int32 and cache.numel() * 4 == 256 << 20
    part = cache[:8].fill_(3)
    host.clear_cache(part)
    assert part.tolist() == [0] * 8


def test_the_driver_of_a_gpu(gpu, monkeypatch):
    own = CudaDriver()
    assert own.get_current_target() == triton.backends.compiler.GPUTarget("cuda", 90, 32)
    assert own.get_current_device() == 0 and own.get_current_stream() == 0
    assert own.get_device_capability() == own.get_device_capability(0) == (9, 0)
    assert own.is_active() and not HostDriver.is_active()
    calls = []
    cuda = SimpleNamespace(
        current_device=lambda: 0, set_device=calls.append, is_available=lambda: False,
        current_stream=lambda device: SimpleNamespace(cuda_stream=77 if device is None else device),
    )  # fmt: skip
    library = SimpleNamespace(cuda=cuda, device=lambda *place: place)
    monkeypatch.setitem(sys.modules, "torch", library)
    assert own.get_current_stream() == 77 and own.get_current_stream(5) == 5
    assert own.get_active_torch_device() == ("cuda", 0) and own.get_device_interface() is cuda
    own.set_current_device(1)
    assert calls == [1] and not own.is_active() and HostDriver.is_active()


def test_the_machine_is_chosen_at_its_first_use(monkeypatch):
    from ziggurat.codemodel.errors import LaunchError
    from ziggurat.triton.runtime import driver as module_of_active

    config = type(module_of_active)()
    monkeypatch.setitem(sys.modules, "torch", None)

    def without(count):
        if count is None:
            raise LaunchError("no driver")
        return count

    for count, kind in ((0, HostDriver), (1, CudaDriver), (None, HostDriver)):
        monkeypatch.setattr("ziggurat.backend.devices.driver.device_count", lambda count=count: without(count))
        assert type(type(config)().active) is kind
    own = HostDriver()
    config.set_active(own)
    assert config.active is own
    config.reset_active()
    assert config.active is config.default
