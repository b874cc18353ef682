"""`triton.autotune` and `triton.heuristics` on a machine without a GPU, with functions that measure."""

import pickle
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from libraries import require

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.codemodel.errors import LaunchError, ZigguratError, ZigguratWarning
from ziggurat.triton.tools.tensor_descriptor import TensorDescriptor


def zeros(n: int) -> np.ndarray:
    return np.zeros(n, np.float32)


def kernel(**settings):
    settings.setdefault("configs", [triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32}, num_warps=8)])

    @triton.autotune(key=["n"], **settings)
    @triton.jit
    def increment(x_ptr, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)

    return increment


def grid(meta):
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def test_the_fastest_is_chosen_once_for_each_key():
    calls: list[int] = []

    def do_bench(call, quantiles):
        call()
        calls.append(len(calls))
        return [10.0 - len(calls)] * 3

    tuned, x = kernel(do_bench=do_bench), zeros(40)
    tuned[grid](x, 40)
    assert x.tolist() == [3.0] * 40  # Two measured launches, and the launch itself.
    assert tuned.best_config == triton.Config({"BLOCK": 32}, num_warps=8)
    assert tuned.cache == {(40, "float32"): tuned.best_config}
    tuned[grid](x, n=40)
    tuned[grid](x, 20)
    assert len(calls) == 4 and list(tuned.cache) == [(40, "float32"), (20, "float32")]


def test_more_warps_than_a_gpu_has_are_left_out():
    errors: list[BaseException | None] = []
    configs = [triton.Config({"BLOCK": 16}, num_warps=128), triton.Config({"BLOCK": 16})]
    tuned, x = (
        kernel(configs=configs, do_bench=measured, post_hook=lambda args, exception: errors.append(exception)),
        zeros(40),
    )
    tuned[grid](x, 40)
    assert tuned.best_config is configs[1] and isinstance(errors[0], triton.OutOfResources) and errors[1] is None
    assert "out of resource: threads, Required: 4096, Hardware limit: 1024" in str(errors[0])


def measured(call, quantiles):
    call()
    return [1.0] * 3


def test_a_configuration_that_the_assembler_rejects_is_left_out_with_a_warning(gpu, failed):
    numbers: list[int] = []

    def do_bench(call, quantiles):
        numbers.append(1)
        gpu.load_failure = (failed("CUDA_ERROR_INVALID_PTX"), b"(C7602) setmaxnreg") if len(numbers) == 1 else None
        return measured(call, quantiles)

    tuned = kernel(do_bench=do_bench, configs=[triton.Config({"BLOCK": 16}, num_warps=warps) for warps in (1, 2, 4)])
    with pytest.warns(ZigguratWarning, match=r"'increment' is not launched with BLOCK: 16, num_warps: 1.*\n.*C7602"):
        tuned[grid](zg.empty(40), 40)
    assert tuned.best_config.num_warps == 2 and len(numbers) == 3


def test_an_interpreted_launch_takes_the_first():
    tuned, x = kernel(), zeros(40)
    tuned[grid](x, 40, interpret=True)
    assert x.tolist() == [1.0] * 40 and tuned.best_config.kwargs == {"BLOCK": 16}


@pytest.mark.parametrize(("setting", "expected"), [("reset_to_zero", 1.0), ("restore_value", 6.0)])
def test_measured_launches_leave_the_tensors(setting: str, expected: float):
    def do_bench(call, quantiles):
        call()
        return [1.0] * 3

    tuned, x = kernel(do_bench=do_bench, **{setting: ["x_ptr"]}), zeros(40)
    x += 5
    tuned[grid](x, 40)
    assert x.tolist() == [expected] * 40


@pytest.mark.parametrize("library", ["numpy", "torch", "wrapper", "descriptor"])
@pytest.mark.parametrize(("setting", "expected"), [("reset_to_zero", 1.0), ("restore_value", 6.0)])
def test_arrays_of_every_library_are_left(library: str, setting: str, expected: float):
    x = np.full((8, 16), 5, np.float32)
    argument: Any = x
    if library != "numpy":
        torch = require("torch")
        tensor = torch.from_numpy(x)
        argument = {
            "torch": tensor,
            "wrapper": triton.reinterpret(tensor.view(torch.int32), torch.float32),
            "descriptor": TensorDescriptor(tensor, [8, 16], [16, 1], [8, 16]),
        }[library]
    configs = [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})]

    @triton.autotune(configs=configs, key=[], do_bench=measured, **{setting: ["x", "unused", "left_out"]})
    @triton.jit
    def increment(x, unused, BLOCK: tl.constexpr, IS_DESCRIPTOR: tl.constexpr, left_out=None):
        if IS_DESCRIPTOR:
            x.store([0, 0], x.load([0, 0]) + 1)
        else:
            at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            tl.store(x + at, tl.load(x + at) + 1)

    def grid(meta):
        return (1 if library == "descriptor" else 128 // meta["BLOCK"],)

    increment[grid](argument, None, IS_DESCRIPTOR=library == "descriptor")
    assert (x == expected).all()
    increment[grid](argument, None, IS_DESCRIPTOR=library == "descriptor")
    assert (x == expected + 1).all()  # A later launch resets nothing.


@pytest.mark.parametrize("setting", ["reset_to_zero", "restore_value"])
def test_what_is_reset_must_be_an_array_of_the_launch(setting: str):
    tuned = kernel(do_bench=measured, **{setting: ["n"]})
    with pytest.raises(LaunchError, match="'n' must be an array, as reset_to_zero or restore_value names it; got 40"):
        tuned[grid](zeros(40), 40)
    tuned = kernel(do_bench=measured, **{setting: ["m"]})
    with pytest.raises(KeyError, match="'m'"):  # As in Triton.
        tuned[grid](zeros(40), 40)


def test_an_array_that_is_read_only():
    x = zeros(40)
    x.flags.writeable = False
    with pytest.raises(LaunchError, match="'x_ptr' must be an array that can be written, to be set to zero"):
        kernel(do_bench=measured, reset_to_zero=["x_ptr"])[grid](x, 40)
    with pytest.raises(ZigguratError, match="writes x_ptr, but its array is read-only"):
        kernel(do_bench=measured, restore_value=["x_ptr"])[grid](x, 40)


def test_hooks_are_called_around_measured_launches():
    calls: list[str] = []

    def do_bench(call, quantiles):
        call()
        return [1.0] * 3

    configs = [
        triton.Config({"BLOCK": 16}, pre_hook=lambda arguments: calls.append(f"config {arguments['BLOCK']}")),
        triton.Config({"BLOCK": 32}),
    ]
    tuned = kernel(
        configs=configs,
        do_bench=do_bench,
        pre_hook=lambda arguments, reset_only=False: calls.append(f"before {reset_only}"),
        post_hook=lambda arguments, exception: calls.append(f"after {exception}"),
    )
    tuned[grid](zeros(40), 40)
    launch = ["before False", "after None"]
    assert calls == ["config 16", *launch, *launch, "before True", "config 16"]


def test_pruning():
    calls: list[int] = []

    def do_bench(call, quantiles):
        call()
        return [1.0] * 3

    def early(configs, arguments, **keywords):
        assert arguments["n"] == 40
        return configs[1:]

    def model(**arguments):
        calls.append(arguments["BLOCK"])
        return -arguments["BLOCK"]

    tuned = kernel(do_bench=do_bench, prune_configs_by={"early_config_prune": early})
    tuned[grid](zeros(40), 40)
    assert tuned.best_config.kwargs == {"BLOCK": 32}
    tuned = kernel(do_bench=do_bench, prune_configs_by={"perf_model": model, "top_k": 1})
    tuned[grid](zeros(40), 40)
    assert tuned.best_config.kwargs == {"BLOCK": 32} and calls == [16, 32]
    tuned = kernel(do_bench=do_bench, prune_configs_by={"early_config_prune": lambda configs, arguments, **more: []})
    with pytest.raises(triton.TritonError, match="Autotuner error: No valid autotuner configs after pruning"):
        tuned[grid](zeros(40), 40)


@pytest.mark.parametrize("top_k", [0, -1, -0.5, 0.0, 1.5, 3.0, float("nan"), True, None, "2"])
def test_a_top_k_that_is_refused(top_k):
    with pytest.raises(
        triton.TritonError, match=r"triton\.autotune: 'top_k' must be a number of configurations"
    ) as info:
        kernel(prune_configs_by={"perf_model": lambda BLOCK, **rest: BLOCK, "top_k": top_k})
    assert isinstance(info.value, TypeError)
    kernel(prune_configs_by={"top_k": top_k})  # It is not used, and Triton accepts it.


@pytest.mark.parametrize(
    ("top_k", "count"), [(0.1, 1), (0.5, 1), (0.7, 2), (1.0, 3), (1, 1), (np.int64(2), 2), (np.float32(0.7), 2), (9, 3)]
)
def test_how_many_the_best_are(top_k, count: int):
    configs = [triton.Config({"BLOCK": size}) for size in (64, 16, 32)]
    calls: list[int] = []
    model = lambda BLOCK, **rest: calls.append(BLOCK) or BLOCK  # noqa: E731
    tuned = kernel(configs=configs, prune_configs_by={"perf_model": model, "top_k": top_k})
    tuned.nargs = {"x_ptr": None, "n": 40}
    blocks = [config.kwargs["BLOCK"] for config in tuned.prune_configs({})]
    assert blocks == ([64, 16, 32] if count == 3 else [16, 32][:count])
    assert calls == ([] if count == 3 else [64, 16, 32])  # Where all are kept, nothing is estimated.


@pytest.mark.parametrize("settings", [{}, {"do_bench": lambda call, quantiles: call()}])
def test_a_tuned_parameter_is_not_given_as_well(settings):
    tuned = kernel(**settings)
    with pytest.raises(ValueError, match="Conflicting meta-parameters: BLOCK"):
        tuned[grid](zeros(40), 40, BLOCK=16)
    for keywords in ({"BLOCK": 16}, {"num_warps": 8}):
        tuned = kernel(configs=[triton.Config({"BLOCK": 16})], **settings)
        with pytest.raises(ValueError, match=f"Conflicting meta-parameters: {next(iter(keywords))}"):
            tuned[grid](zeros(40), 40, **keywords)


def test_choices_are_kept_on_disk(tmp_path):
    calls: list[int] = []

    def do_bench(call, quantiles):
        calls.append(1)
        return [1.0 / len(calls)] * 3

    with triton.knobs.cache.scope():
        triton.knobs.cache.dir = str(tmp_path)
        for _ in range(2):
            tuned = kernel(do_bench=do_bench, cache_results=True)
            tuned[grid](zeros(40), 40)
            assert tuned.best_config.kwargs == {"BLOCK": 32}
    assert len(calls) == 2
    assert tuned.configs_timings == {} and tuned.bench_time == 0.0  # The second one has measured nothing.


def test_heuristics_compute_parameters():
    @triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0, "WIDE": lambda args: args["EVEN"]})
    @triton.jit
    def keep(out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr, WIDE: tl.constexpr):
        tl.store(out_ptr, EVEN + 2 * WIDE)

    out = np.zeros(1, np.int32)
    keep[(1,)](out, 32, BLOCK=16)
    assert out[0] == 3
    keep[(1,)](out, 33, BLOCK=16)
    assert out[0] == 0


def test_configurations_are_values():
    config = triton.Config({"BLOCK": 16}, num_stages=2)
    assert config == triton.Config({"BLOCK": 16}, num_stages=2) != triton.Config({"BLOCK": 16})
    assert str(config) == "BLOCK: 16, num_warps: 4, num_ctas: 1, num_stages: 2, maxnreg: None"
    assert config.all_kwargs() == {"BLOCK": 16, "num_warps": 4, "num_ctas": 1, "num_stages": 2}


def test_a_hook_sets_the_blocks_of_descriptors():
    def set_blocks(arguments: dict[str, Any]) -> None:
        for name in ("x", "out"):
            arguments[name].block_shape = [arguments["ROWS"], 64]

    @triton.autotune(configs=[triton.Config({"ROWS": rows}, pre_hook=set_blocks) for rows in (16, 32)], key=["n"])
    @triton.jit
    def doubled(x, out, n, ROWS: tl.constexpr):
        first = tl.program_id(0) * ROWS
        out.store([first, 0], x.load([first, 0]) * 2)

    x = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    out = np.zeros_like(x)
    descriptors = [TensorDescriptor(array, [64, 64], [64, 1], block_shape=[1, 1]) for array in (x, out)]
    assert not hasattr(descriptors[0], "dtype")
    doubled[lambda keywords: (64 // keywords["ROWS"],)](*descriptors, 64)
    np.testing.assert_array_equal(out, 2 * x)


def test_a_configuration_that_cannot_be_compiled_is_left_out(gpu):
    @triton.autotune(configs=[triton.Config({"BLOCK": size}) for size in (8, 16, 32)], key=[], do_bench=measured)
    @triton.jit
    def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        tl.static_assert(BLOCK > 8, "a block of 8 is too small")
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)

    double[(1,)](zg.empty(8), zg.empty(8), 8)
    (reason,) = double.last.left_out.values()
    assert "a block of 8 is too small" in reason and double.best_config is double.configs[1]


@triton.autotune(configs=[triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})], key=[])
@triton.jit
def of_the_module(x_ptr, BLOCK: tl.constexpr):
    """A kernel that pickles."""
    tl.store(x_ptr, BLOCK)


@triton.heuristics({"BLOCK": lambda arguments: 16})
@triton.jit
def computed_of_the_module(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr, BLOCK)


@pytest.mark.parametrize("decorated", [of_the_module, computed_of_the_module])
def test_a_decorated_kernel_is_pickled_by_its_name(decorated):
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    assert decorated.__module__ == __name__ and decorated.__qualname__ == decorated.__name__


def in_threads(work: Callable[[int], Any], count: int = 12) -> list[Any]:
    """The results of `work(1)`, `work(2)` … in threads that start together."""
    start = threading.Barrier(count)

    def started(number: int) -> Any:
        start.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(started, range(1, count + 1)))


def accumulating(**settings):
    """A tuned kernel that adds a number to an array."""
    settings.setdefault("configs", [triton.Config({"BLOCK": size}, num_warps=w) for size in (16, 32) for w in (1, 2)])

    @triton.autotune(key=["n"], **settings)
    @triton.jit
    def accumulate(x_ptr, n, amount, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.atomic_add(x_ptr + at, amount, mask=at < n)

    return accumulate


class Measuring:
    """A function that measures, and notes how many calls of it run at once, and for what."""

    def __init__(self) -> None:
        self.running = self.most = self.calls = 0
        self.lock = threading.Lock()

    def __call__(self, call, quantiles):
        with self.lock:
            self.running += 1
            self.calls += 1
            self.most = max(self.most, self.running)
        time.sleep(0.001)
        call()
        with self.lock:
            self.running -= 1
        return [1.0] * 3


@pytest.mark.parametrize("sizes", [(100,), (100, 200)])
@pytest.mark.parametrize("setting", ["reset_to_zero", "restore_value"])
def test_threads_that_tune_a_kernel(setting: str, sizes: tuple[int, ...]):
    do_bench = Measuring()
    tuned = accumulating(do_bench=do_bench, **{setting: ["x_ptr"]})

    def work(number: int) -> list[float]:
        results = []
        for n in sizes:
            x = zeros(n)
            tuned[grid](x, n, float(number))
            assert (x == x[0]).all()
            results.append(float(x[0]))
        return results

    assert in_threads(work) == [[float(number)] * len(sizes) for number in range(1, 13)]
    assert do_bench.most == 1 and do_bench.calls == 4 * len(sizes)  # Once a key, and never two at once.


def test_threads_with_keys_of_their_own():
    do_bench = Measuring()
    tuned = accumulating(do_bench=do_bench, restore_value=["x_ptr"], pre_hook=None)

    def work(number: int) -> tuple[float, triton.Config, Any]:
        x = zeros(10 * number)
        tuned[grid](x, 10 * number, 1.0)
        return float(x.sum()), tuned.best_config, tuned.nargs

    results = in_threads(work)
    assert [total for total, _, _ in results] == [10.0 * number for number in range(1, 13)]
    assert do_bench.most == 1 and len(tuned.cache) == 12
    assert {nargs for *_, nargs in results} == {None} and tuned.best_config == tuned.configs[0]


def test_arrays_are_restored_beside_a_hook():
    """Triton's own hook would then raise an error."""
    calls, x = [], zeros(64)
    tuned = accumulating(do_bench=Measuring(), restore_value=["x_ptr"], pre_hook=lambda *a, **k: calls.append(x[0]))
    tuned[grid](x, 64, 1.0)
    assert (x == 1).all() and len(calls) > 2 and {*calls} == {0.0}


def test_threads_that_share_an_array():
    tuned, x = accumulating(do_bench=Measuring(), restore_value=["x_ptr"]), zeros(64)
    in_threads(lambda number: tuned[grid](x, 65 - number, 1.0))
    assert (x[:53] == 12).all() and len(tuned.cache) == 12


def test_hooks_of_threads_see_their_own_arguments():
    faults: list[Any] = []

    def before(arguments, reset_only=False):
        time.sleep(0.001)
        if tuned.nargs["x_ptr"] is not arguments["x_ptr"] or arguments["x_ptr"][0] < 0:
            faults.append(arguments)
        arguments["x_ptr"][...] = 0

    def after(arguments, exception):
        time.sleep(0.001)
        if tuned.nargs["x_ptr"] is not arguments["x_ptr"] or arguments["x_ptr"][0] != arguments["amount"]:
            faults.append((arguments, exception))

    tuned = accumulating(do_bench=Measuring(), pre_hook=before, post_hook=after)

    def work(number: int) -> float:
        x = zeros(16 * number)
        tuned[grid](x, 16 * number, amount=number)
        return float(x[0])

    assert in_threads(work, 8) == [1, 2, 3, 4, 5, 6, 7, 8] and not faults


def test_an_exception_in_one_thread_leaves_the_others():
    tuned = accumulating(do_bench=Measuring(), restore_value=["x_ptr"])

    def work(number: int) -> Any:
        x = zeros(42)
        try:
            tuned[grid]("no array" if number % 3 == 0 else x, 40 + number % 3, 2.0)
        except Exception as error:
            return type(error)
        return float(x[0])

    results = in_threads(work)
    assert [result for number, result in enumerate(results, 1) if number % 3] == [2.0] * 8
    assert all(issubclass(result, ZigguratError) for result in results[2::3])
    assert tuned.nargs is None


def test_threads_that_warm_up_and_compute_parameters():
    names: list[Any] = []

    @triton.heuristics({"EVEN": lambda arguments: arguments["n"] % 2 == 0})
    @triton.autotune(
        configs=[triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})],
        key=["n"],
        do_bench=Measuring(),
        restore_value=["x_ptr"],
        prune_configs_by={"early_config_prune": lambda configs, args, **rest: names.append(args["n"]) or configs},
    )
    @triton.jit
    def kernel(x_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.atomic_add(x_ptr + at, 1.0 + EVEN, mask=at < n)

    def work(number: int) -> float:
        x = zeros(number)
        assert len(kernel.fn.warmup(x, number, EVEN=number % 2 == 0, grid=(1,))) == 2
        kernel[grid](x, number)
        return float(x.sum())

    assert in_threads(work, 8) == [1, 4, 3, 8, 5, 12, 7, 16]
    assert sorted(names) == sorted([*range(1, 9), *range(1, 9)])


def test_a_tuned_kernel_that_a_hook_launches():
    """The arguments by name of the launch around it stay."""
    inner, contents = accumulating(do_bench=measured), list[Any]()

    def before(arguments, reset_only=False):
        inner[grid](zeros(8), 8, 1.0)
        contents.append(outer.nargs)
        if arguments["n"] == 40:
            outer[grid](zeros(20), 20, 1.0)
            contents.append(outer.nargs["n"])

    outer = accumulating(do_bench=measured, pre_hook=before)
    outer[grid](zeros(40), 40, 1.0)
    assert all(contents == 40 or contents["n"] in (20, 40) for contents in contents)


def test_choices_on_disk_serve_threads(tmp_path):
    with triton.knobs.cache.scope():
        triton.knobs.cache.dir = str(tmp_path)
        for calls in (4 * 3, 0):
            do_bench = Measuring()
            tuned = accumulating(do_bench=do_bench, cache_results=True, reset_to_zero=["x_ptr"])

            def work(number: int, tuned=tuned) -> float:
                n = 40 + number % 3
                x = np.full(n, 5, np.float32)
                tuned[grid](x, n, 1.0)
                return float(x[0])

            # The first launch with a key finds zero, measured or not.
            assert sorted(in_threads(work)) == [1.0] * 3 + [6.0] * 9
            assert do_bench.calls == calls


def test_a_subclass_that_tunes_itself_is_used_by_threads():
    """Libraries override `run`, and call what Triton's class has."""

    class Own(triton.runtime.Autotuner):
        def run(self, *args, **kwargs):
            self.nargs = dict(zip(self.arg_names, args, strict=False))
            key = self.nargs["n"]
            if key not in self.cache:
                timings = {config: self._bench(*args, config=config, **kwargs) for config in self.prune_configs(kwargs)}
                best = min(timings, key=timings.__getitem__)
                self.pre_hook({**self.nargs, **kwargs, **best.all_kwargs()}, reset_only=True)
                self.cache[key] = best
            self.best_config = self.cache[key]
            result = self.fn.run(*args, **kwargs, **self.best_config.all_kwargs())
            self.nargs = None
            return result

    plain = accumulating(do_bench=Measuring())
    tuned = Own(plain.fn, plain.arg_names, plain.configs, ["n"], ["x_ptr"], None, do_bench=Measuring())

    def work(number: int) -> float:
        x = zeros(40)
        tuned[grid](x, 40, float(number))
        return float(x[0])

    assert in_threads(work, 8) == [1, 2, 3, 4, 5, 6, 7, 8]


# Configurations that cannot win.


@triton.jit
def products(x_ptr, y_ptr, out_ptr, K, M: tl.constexpr, INNER: tl.constexpr):
    at, inner = tl.arange(0, M), tl.arange(0, INNER)
    total = tl.zeros((M, M), tl.float32)
    for k in range(0, K, INNER):
        x = tl.load(x_ptr + at[:, None] * K + k + inner[None, :])
        y = tl.load(y_ptr + (k + inner)[:, None] * M + at[None, :])
        total = tl.dot(x, y, total)
    tl.store(out_ptr + at[:, None] * M + at[None, :], total)


def test_what_takes_longer_at_least_is_not_measured(gpu, monkeypatch, capsys):
    """The bound is that of the model of the GPU's costs, for this launch."""
    gpu.parameters = 4
    of_one = {"MULTIPROCESSOR_COUNT": 1, "CLOCK_RATE": 1000}  # A microsecond a cycle.
    gpu.attributes |= {f"CU_DEVICE_ATTRIBUTE_{name}": number for name, number in of_one.items()}
    threads: list[int] = []

    def bench(call, quantiles):
        call()
        threads.append(gpu.launches[-1]["threads"])
        return [5.0, 4.0, 6.0]

    monkeypatch.setattr(triton.runtime.Autotuner, "do_bench", property(lambda tuned: bench))
    monkeypatch.setattr(triton.knobs.autotuning, "print", True)
    # 64 steps of 64×64×16, and as many of 16×16×16.
    configs = [triton.Config({"M": m, "INNER": 16}, num_warps=warps) for m, warps in ((64, 8), (16, 4))]
    tuned = triton.autotune(configs=configs, key=["K"])(products)
    x, y, out = (zg.empty(256 * 256, dtype) for dtype in (np.float16, np.float16, np.float32))
    tuned[(100,)](x, y, out, 1024)
    assert threads == [128] and tuned.best_config is configs[1]
    assert tuned.configs_timings == {configs[0]: [float("inf")] * 3, configs[1]: [5.0, 4.0, 6.0]}
    (reason,) = tuned.last.left_out.values()
    assert re.fullmatch(r"it takes \S+ ms at least, and another 5 ms", reason)
    output = capsys.readouterr()
    assert f"products: without {configs[0]}: {reason}" in output.err and "best config selected: M: 16" in output.out


def test_configurations_that_cannot_be_launched_here_are_left_out_with_the_reason():
    @triton.autotune(
        configs=[
            triton.Config({"BLOCK": 16}, num_warps=128),
            triton.Config({"BLOCK": 8}),
            triton.Config({"BLOCK": 128}),
            triton.Config({"BLOCK": 64}),
        ],
        key=["n"],
        warmup=1,
        rep=1,
    )
    @triton.jit
    def increment(x_ptr, n, BLOCK: tl.constexpr):
        tl.static_assert(BLOCK > 8, "a block of 8 is too small")
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)

    x = zeros(1000)
    increment[lambda meta: (1000 // meta["BLOCK"] if meta["BLOCK"] < 128 else 0,)](x, 1000)
    assert increment.best_config.kwargs == {"BLOCK": 64}
    reasons = [*increment.last.left_out.values()]
    assert reasons[0] == "its grid (0,) is empty" and "a block of 8 is too small" in reasons[1]
    assert "out of resource: threads, Required: 4096" in reasons[2]


def test_the_first_of_those_that_are_as_fast_is_chosen():
    times = iter([1.01, 1.0])
    tuned = kernel(do_bench=lambda call, quantiles: [next(times)] * 3)
    tuned[grid](zeros(40), 40)
    assert tuned.best_config is tuned.configs[0]


def test_a_program_may_forget_the_choices_and_change_the_settings():
    do_bench = Measuring()
    tuned = kernel(do_bench=do_bench)
    for _ in range(2):
        tuned[grid](zeros(40), 40)
    assert do_bench.calls == 2
    tuned.cache.clear()
    tuned.configs.append(triton.Config({"BLOCK": 64}))
    tuned[grid](zeros(40), 40)
    assert do_bench.calls == 5
    tuned.configs = tuned.configs[2:]
    tuned[grid](zeros(40), 40)
    assert tuned.best_config.kwargs == {"BLOCK": 64} and do_bench.calls == 5


def test_each_thread_has_its_best_configuration():
    configs = [triton.Config({"BLOCK": size}) for size in (16, 32)]
    tuned = kernel(configs=configs, do_bench=lambda call, quantiles: [1.0] * 3)
    tuned.cache |= {(n, "float32"): configs[n % 2] for n in range(1, 13)}
    barrier = threading.Barrier(12)

    def work(number: int) -> Any:
        tuned[grid](zeros(number), number)
        barrier.wait()
        return tuned.best_config

    assert in_threads(work) == [configs[number % 2] for number in range(1, 13)]
    assert tuned.best_config in configs  # This thread has launched nothing: the last launch of any.


def test_an_error_of_all_configurations_is_that_of_the_launch():
    tuned = kernel(configs=[triton.Config({"BLOCK": size}, num_warps=128) for size in (16, 32)], do_bench=measured)
    with pytest.raises(triton.OutOfResources, match="out of resource: threads"):
        tuned[grid](zeros(40), 40)


def test_a_choice_on_disk_is_one_for_the_functions_that_compute_constants():
    """A change of a `constexpr_function`, of a function it calls or of a constant it reads makes another kernel."""

    def identity(factor: int, more: Callable[[int], int]) -> str:
        @triton.constexpr_function
        def scaled(size):
            return more(size) * factor

        @triton.jit
        def fill(x_ptr, BLOCK: tl.constexpr):
            tl.store(x_ptr + tl.arange(0, BLOCK), scaled(BLOCK))

        return fill.models.identity(fill)

    def doubled(size: int) -> int:
        return 2 * size

    def tripled(size: int) -> int:
        return 3 * size

    assert identity(2, doubled) == identity(2, doubled)
    assert len({identity(2, doubled), identity(3, doubled), identity(2, tripled)}) == 3


@triton.jit
def never_called(x_ptr, **more):
    with missing:  # noqa: F821  # pyright: ignore[reportUndefinedVariable]
        tl.store(x_ptr, 1)


@triton.jit
def in_a_context(x_ptr):
    with tl.static_range:  # pyright: ignore
        never_called(x_ptr)


def test_functions_that_no_launch_calls_may_be_wrong():
    @triton.autotune([triton.Config({"CONTEXT": False}), triton.Config({"CONTEXT": None})], [], cache_results=True)
    @triton.jit
    def fill(x_ptr, CONTEXT: tl.constexpr):
        if CONTEXT:
            in_a_context(x_ptr)
        tl.store(x_ptr, 2)

    x = zeros(1)
    fill[(1,)](x)
    assert x[0] == 2 and fill.fn.models.identity(fill.fn)
    with pytest.raises(triton.CompilationError, match="a kernel cannot use with"):
        fill.fn[(1,)](x, CONTEXT=True)
    with pytest.raises(triton.CompilationError, match="takes any number of arguments"):
        never_called[(1,)](x, more=1)


# Settings and attributes.


def test_the_time_of_a_tuning_and_its_timings(capsys, monkeypatch):
    times = iter([[2.0, 1.0, 3.0], [1.0, 0.5, 9.0]])
    tuned = kernel(do_bench=lambda call, quantiles: next(times))
    assert tuned.configs_timings == {} and tuned.bench_time == 0.0
    start = time.perf_counter()
    tuned[grid](zeros(40), 40)
    assert 0 < tuned.bench_time <= time.perf_counter() - start
    first, second = tuned.configs
    assert tuned.configs_timings == {first: [2.0, 1.0, 3.0], second: [1.0, 0.5, 9.0]}
    assert tuned.best_config is second and capsys.readouterr().out == ""
    monkeypatch.setattr(triton.knobs.autotuning, "print", True)
    times = iter([[2.0, 1.0, 3.0], [1.0, 0.5, 9.0]])
    tuned[grid](zeros(50), 50)
    output = capsys.readouterr().out
    assert output.startswith(
        f"Autotuning kernel increment with config {first}\nAutotuning kernel increment with config"
    )
    summary = output.partition("Triton autotuning for ")[2]
    assert summary.startswith("function increment,\nwith key as (50, 'float32'),\nfinished after ")
    assert re.search(rf"after \d\.\d\ds,\nbest config selected: {re.escape(str(second))};\n$", summary)


@pytest.mark.parametrize("knob", [False, True])
@pytest.mark.parametrize("setting", [False, True])
def test_the_process_may_have_choices_kept(monkeypatch, knob, setting):
    monkeypatch.setattr(triton.knobs.autotuning, "cache", knob)
    assert kernel(cache_results=setting).cache_results is (knob or setting)


def test_settings_can_be_read_and_changed():
    tuned = kernel(warmup=3, rep=4, use_cuda_graph=True, reset_to_zero=["x_ptr"], restore_value=["n"])
    assert (tuned.num_warmups, tuned.num_reps, tuned.use_cuda_graph) == (3, 4, True)
    assert (tuned.keys, tuned.reset_to_zero, tuned.restore_value) == (["n"], ["x_ptr"], ["n"])
    assert tuned.perf_model is tuned.early_config_prune is None and tuned.configs_top_k == 1.0
    assert not tuned.has_hooks and tuned.arg_names == ["x_ptr", "n", "BLOCK"]
    tuned.num_reps, tuned.keys, tuned.configs_top_k = 9, ["x_ptr"], 2
    assert (tuned.num_reps, tuned.keys, tuned.configs_top_k) == (9, ["x_ptr"], 2)
    assert tuned.tuning.rep == 9 and tuned.tuning.prune_configs_by == {"top_k": 2}
    assert kernel(pre_hook=print).has_hooks and kernel(post_hook=print).has_hooks
    (config,) = kernel(configs=[]).configs
    assert config == triton.Config({}) and kernel(configs=[]).num_warmups is None


def test_the_function_that_measures_has_the_settings(monkeypatch):
    calls = []

    def do_bench(call, **settings):
        calls.append(settings)
        return [1.0] * 3

    monkeypatch.setattr(triton.testing, "do_bench", do_bench)
    monkeypatch.setattr(
        triton.testing, "do_bench_cudagraph", lambda call, **settings: do_bench(call, graph=1, **settings)
    )
    quantiles = {"quantiles": (0.5, 0.2, 0.8)}
    for settings, expected in (
        ({}, {}), ({"warmup": 3}, {"warmup": 3, "rep": 100}), ({"rep": 7}, {"warmup": 25, "rep": 7}),
        ({"use_cuda_graph": True}, {"graph": 1, "rep": 100}),
        ({"use_cuda_graph": True, "warmup": 3, "rep": 7}, {"graph": 1, "rep": 7}),
    ):  # fmt: skip
        calls.clear()
        kernel(**settings)[grid](zeros(40), 40)
        assert calls == [{**expected, **quantiles}] * 2


def test_heuristics_see_what_tuning_decides():
    @triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0, "TWICE": lambda args: 2 * args["EVEN"]})
    @triton.jit
    def keep(out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr, TWICE: tl.constexpr):
        tl.store(out_ptr, n + TWICE)

    out = np.zeros(1, np.int32)
    assert keep.computed((out, 32), {}, {"BLOCK": 16}) == {"EVEN": True, "TWICE": 2}
    assert keep.computed((out,), {"n": 33, "BLOCK": 1}, {"BLOCK": 16}) == {"EVEN": False, "TWICE": 0}
    assert list(keep.values) == ["EVEN", "TWICE"]
    compiled = keep.warmup(out, 32, BLOCK=16, grid=(1,), EVEN=False)
    assert compiled.src.constants == {(2,): 16, (3,): True, (4,): 2}
    tuned = triton.autotune([triton.Config({"BLOCK": size}) for size in (16, 32)], key=["n"], do_bench=measured)(keep)
    tuned[(1,)](out, 48)
    assert out[0] == 50 and tuned.last.about["computed"] if tuned.heuristics else out[0] == 50


def test_a_bench_of_a_subclass_is_infinite_where_nothing_can_be_launched(monkeypatch, capsys):
    tuned = kernel(do_bench=measured)
    assert tuned._bench(zeros(40), 40, grid=grid, config=triton.Config({"BLOCK": 16})) == [1.0] * 3
    wide = triton.Config({"BLOCK": 16}, num_warps=128)
    assert tuned._bench(zeros(40), 40, grid=grid, config=wide) == [float("inf")] * 3
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(triton.knobs.autotuning, "print", True)
    tuned._bench(zeros(40), 40, grid=grid, config=wide)
    assert "Autotuning failed with out of resource: threads" in capsys.readouterr().out


def test_warming_up_compiles_every_configuration_that_is_kept():
    keeps = {
        "early_config_prune": lambda configs, arguments, **keywords: configs[:1] if keywords["n"] == 40 else configs
    }
    tuned = kernel(prune_configs_by=keeps)
    (compiled,) = tuned.warmup(zeros(40), n=40, grid=grid)
    assert compiled.src.constants == {(2,): 16} and compiled.metadata.num_warps == 4
    assert [k.metadata.num_warps for k in tuned.run(zeros(20), n=20, grid=grid, warmup=True)] == [4, 8]
    assert tuned.nargs is None and tuned.cache == {}
