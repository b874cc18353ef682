"""Uses of tuners and heuristics by libraries, each in a few lines: derived, patched, gone around, asked for facts."""

import functools
import inspect
import json
import sys

import numpy as np
import pytest
from libraries import require

import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.triton.runtime.autotuner import Autotuner, Heuristics
from ziggurat.triton.runtime.errors import OutOfResources
from ziggurat.triton.tools.tensor_descriptor import TensorDescriptor


def by_calls(call, quantiles=None):
    """A benchmark that prefers the first configuration of those whose launch succeeds."""
    call()
    by_calls.count += 1
    return [float(by_calls.count)] * 3 if quantiles else float(by_calls.count)


by_calls.count = 0


@triton.jit
def added(x_ptr, y_ptr, n, BLOCK: tl.constexpr, TWICE: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x_ptr + at, at < n)
    if TWICE:
        value *= 2
    tl.store(y_ptr + at, value + tl.load(y_ptr + at, at < n), at < n)


CONFIGS = [triton.Config({"BLOCK": size}, num_warps=warps) for size in (16, 32) for warps in (1, 2)]


def grid(meta):
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def arrays(n=40):
    return np.arange(n, dtype=np.float32), np.zeros(n, np.float32)


def stack(**settings):
    """The usual stack: heuristics above a tuner above a kernel."""
    tuned = triton.autotune(CONFIGS, key=["n"], do_bench=by_calls, **settings)(added)
    return triton.heuristics({"TWICE": lambda args: args["n"] > 20})(tuned)


@pytest.mark.parametrize("is_tuner_above", [False, True])
def test_heuristics_and_a_tuner_in_both_orders(is_tuner_above):
    heuristics = triton.heuristics({"TWICE": lambda args: args["n"] > 20 and args["x_ptr"] is not None})
    tune = triton.autotune(CONFIGS, key=["n"], do_bench=by_calls, restore_value=["y_ptr"])
    kernel = tune(heuristics(added)) if is_tuner_above else heuristics(tune(added))
    for n, factor in ((40, 2), (10, 1), (40, 2)):
        x, y = arrays(n)
        kernel[grid](x, y, n)
        np.testing.assert_array_equal(y, factor * x)
    assert isinstance(kernel, Autotuner if is_tuner_above else Heuristics)


def test_a_launch_goes_around_tuner_and_heuristics():
    kernel, (x, y) = stack(), arrays()
    kernel.fn.fn[(3,)](x, y, 40, BLOCK=16, TWICE=False, num_warps=1)
    np.testing.assert_array_equal(y, x)
    functions = []
    while not isinstance(kernel, triton.runtime.JITFunction):
        functions.append(type(kernel).__name__)
        kernel = kernel.fn
    assert functions == ["Heuristics", "Autotuner"] and kernel is added
    assert stack().arg_names == added.arg_names == [p.name for p in kernel.params]


def test_what_launches_change_is_reset_and_restored():
    for settings in ({"reset_to_zero": ["y_ptr"]}, {"restore_value": ["y_ptr"]}):
        kernel, (x, y) = stack(**settings), arrays()
        kernel[grid](x, y, 40)
        np.testing.assert_array_equal(y, 2 * x)
        kernel[grid](x, y, 40)  # They are only while it tunes.
        np.testing.assert_array_equal(y, 4 * x)


def test_configurations_are_pruned():
    prunings = []

    def early(configs, named_args, **kwargs):
        prunings.append((len(configs), named_args["n"], kwargs))
        return [config for config in configs if config.kwargs["BLOCK"] < 32]

    def model(x_ptr, y_ptr, n, BLOCK, TWICE, num_warps, **rest):
        return num_warps

    tuned = triton.autotune(
        CONFIGS, key=["n"], do_bench=by_calls,
        prune_configs_by={"early_config_prune": early, "perf_model": model, "top_k": 1},
    )(added)  # fmt: skip
    x, y = arrays()
    tuned[grid](x, y, 40, TWICE=True)
    assert prunings == [(4, 40, {"TWICE": True})]
    assert tuned.best_config.all_kwargs() | {"BLOCK": 16, "num_warps": 1} == tuned.best_config.all_kwargs()


def test_pruning_gets_arguments_by_place_and_by_keyword_apart():
    """A function may hand both on as keywords."""
    names = []

    def early(configs, named_args, **kwargs):
        names.append((*dict(**named_args, **kwargs),))
        return configs[:1]

    tuned = triton.autotune(CONFIGS, key=["n"], do_bench=by_calls, prune_configs_by={"early_config_prune": early})(
        added
    )
    x, y = arrays()
    tuned[grid](x, y, n=40, TWICE=True)
    assert names == [("x_ptr", "y_ptr", "n", "TWICE")]


def test_the_text_of_a_configuration_names_the_file_that_overrides():
    first, second = (triton.Config({"BLOCK": 16}, ir_override=f"{name}.ttir") for name in ("a", "b"))
    assert str(first) != str(second) and "ir_override" not in str(triton.Config({"BLOCK": 16}))


def test_a_configuration_that_the_machine_cannot_run_is_left_out():
    def bench(call, quantiles):
        call()
        bench.count += 1
        if bench.count < 3:
            raise OutOfResources(300000, 232448, "shared memory")
        return [1.0] * 3

    bench.count = 0
    tuned = triton.autotune(CONFIGS, key=["n"], do_bench=bench)(added)
    tuned[grid](*arrays(), 40, TWICE=False)
    times = [tuned.configs_timings[config][0] for config in CONFIGS]
    assert times[:2] == [float("inf")] * 2 and tuned.best_config is CONFIGS[2]


class KeptOnDisk(Autotuner):
    """A tuner that keeps its choices in a file, by a key of its own, and overrides what it needs to."""

    def __init__(self, *args, file=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.file, self.reads = file, 0
        self.signature, self.arg_names = inspect.signature(self.base_fn), list(self.arg_names)

    def own_key(self, *args, **kwargs):
        names = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        return tuple(names[key] for key in self.keys) + tuple(
            str(v.dtype) for v in names.values() if hasattr(v, "dtype")
        )

    def run(self, *args, **kwargs):
        key = self.own_key(*args, **kwargs)
        if key not in self.cache and self.file.exists():
            record = json.loads(self.file.read_text())
            if record["key"] == list(key):
                self.reads += 1
                self.cache[key] = triton.Config(**record["config"])
        result = super().run(*args, **kwargs)
        config = self.best_config
        facts = {"kwargs": config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
        self.file.write_text(json.dumps({"key": list(key), "config": facts}))
        return result


def kept_on_disk(file, **settings):
    def decorate(fn):
        return KeptOnDisk(fn, fn.arg_names, CONFIGS, ["n"], None, None, do_bench=by_calls, file=file, **settings)

    return decorate


def test_a_derived_tuner_keeps_choices_in_a_file(tmp_path):
    file, counts = tmp_path / "choices.json", []
    for _ in range(2):
        before, kernel, (x, y) = by_calls.count, kept_on_disk(file)(added), arrays()
        kernel[grid](x, y, 40, TWICE=True)
        y[:] = 0
        kernel[grid](x, y, 40, TWICE=True)
        np.testing.assert_array_equal(y, 2 * x)
        counts.append((by_calls.count - before, kernel.reads))
    assert counts == [(4, 0), (0, 1)]


class Searching(Autotuner):
    """A tuner with a search of its own, which benches and prunes by the methods of the base."""

    def run(self, *args, **kwargs):
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        key = tuple(self.nargs[name] for name in self.keys)
        if key not in self.cache:
            pruned = self.prune_configs(kwargs)
            times = {config: self._bench(*args, config=config, **kwargs) for config in pruned[::-1]}
            self.cache[key], self.configs_timings = min(times, key=times.get), times
            self.pre_hook({**self.nargs, **self.cache[key].all_kwargs()}, reset_only=True)
        self.best_config = self.cache[key]
        self.nargs = None
        return self.fn.run(*args, **kwargs, **self.best_config.all_kwargs())


def test_a_derived_tuner_searches_by_itself():
    kernel = Searching(added, added.arg_names, CONFIGS, ["n"], ["y_ptr"], None, do_bench=by_calls)
    x, y = arrays()
    for _ in range(2):
        y[:] = 0
        kernel[grid](x, y, 40, TWICE=False)
        np.testing.assert_array_equal(y, x)
    assert kernel.best_config is CONFIGS[-1] and len(kernel.configs_timings) == 4


def test_a_tuner_s_method_is_wrapped_for_a_faster_launch(monkeypatch, tmp_path):
    """A program that found the choice launches by it, without the library's own tuner."""
    plain, slow = KeptOnDisk.run, []

    @functools.wraps(plain)
    def run(self, *args, **kwargs):
        config = self.cache.get(self.own_key(*args, **kwargs))
        if config is not None and config.pre_hook is None:
            return self.fn.run(*args, **kwargs, **config.all_kwargs())
        slow.append(args)
        return plain(self, *args, **kwargs)

    monkeypatch.setattr(KeptOnDisk, "run", run)
    kernel, (x, y) = kept_on_disk(tmp_path / "choices.json")(added), arrays()
    kernel[grid](x, y, 40, TWICE=True)
    for _ in range(2):
        y[:] = 0
        kernel[grid](x, y, 40, TWICE=True)
        np.testing.assert_array_equal(y, 2 * x)
    assert len(slow) == 1 and inspect.unwrap(KeptOnDisk.run) is plain


def test_tuners_of_a_module_are_found_and_cut_to_one_choice():
    module = sys.modules[__name__]
    module.found_by_test = triton.autotune(CONFIGS, key=["n"], do_bench=by_calls)(added)
    try:
        tuners = [v for v in vars(module).values() if isinstance(v, Autotuner) and len(getattr(v, "configs", ())) > 1]
        before = by_calls.count
        for tuner in tuners:
            tuner.configs = tuner.configs[-1:]
            tuner.cache.clear()
        x, y = arrays()
        module.found_by_test[grid](x, y, 40, TWICE=False)
        assert module.found_by_test in tuners and by_calls.count == before
        np.testing.assert_array_equal(y, x)
    finally:
        del module.found_by_test


@triton.jit
def copied(source, target, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = [tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS]
    target.store(at, source.load(at))


def test_a_hook_of_a_configuration_sets_the_blocks_of_descriptors():
    def set_blocks(arguments):
        for name in ("source", "target"):
            arguments[name].block_shape = [arguments["ROWS"], arguments["COLUMNS"]]

    configs = [triton.Config({"ROWS": r, "COLUMNS": c}, pre_hook=set_blocks) for r, c in ((4, 8), (8, 4))]
    kernel = triton.autotune(configs, key=[], do_bench=by_calls)(copied)
    x, y = np.arange(256, dtype=np.float32).reshape(16, 16), np.zeros((16, 16), np.float32)
    sizes = []

    def over(meta):
        sizes.append((16 // meta["ROWS"], 16 // meta["COLUMNS"]))
        return sizes[-1]

    kernel[over](TensorDescriptor(x, x.shape, [16, 1], [1, 1]), TensorDescriptor(y, y.shape, [16, 1], [1, 1]))
    np.testing.assert_array_equal(x, y)
    assert {(4, 2), (2, 4)} == set(sizes)


def test_configurations_from_a_file_of_json(tmp_path):
    """Programs that serve models keep them by device and shape, and give them as options of the launch."""
    (tmp_path / "E=8,N=64.json").write_text(json.dumps({"16": {"BLOCK": 16, "num_warps": 4, "num_stages": 3}}))
    table = {int(size): config for size, config in json.loads((tmp_path / "E=8,N=64.json").read_text()).items()}
    x, y = arrays()
    config = table[min(table, key=lambda size: abs(size - 40))]
    added[grid](x, y, 40, TWICE=True, **config)
    np.testing.assert_array_equal(y, 2 * x)
    with pytest.raises(Exception, match="num_wraps"):
        added[grid](x, y, 40, TWICE=True, BLOCK=16, num_wraps=4)


def test_benchmarks_of_functions():
    x, y = arrays()
    ms = triton.testing.do_bench(lambda: added[(3,)](x, y, 40, 16, False), warmup=1, rep=2)
    low, middle, high = triton.testing.do_bench(lambda: None, warmup=1, rep=2, quantiles=[0.2, 0.5, 0.8])
    assert ms > 0 and low <= middle <= high
    times = triton.testing.do_bench(lambda: None, warmup=1, rep=1, return_mode="all")
    assert len(times) >= 1 and triton.testing.do_bench(lambda: None, 1, 1, return_mode="min") >= 0


def test_a_report_of_speeds(tmp_path):
    require("matplotlib")
    require("pandas")

    @triton.testing.perf_report(
        triton.testing.Benchmark(
            x_names=["n"], x_vals=[8, 16], line_arg="provider", line_vals=["one", "two"], line_names=["One", "Two"],
            plot_name="speeds", args={"scale": 2}, ylabel="GB/s",
        )
    )  # fmt: skip
    def speed(n, provider, scale):
        return scale * n, n, 3 * scale * n

    speed.run(show_plots=False, print_data=False, save_path=str(tmp_path))
    assert (tmp_path / "speeds.csv").read_text().splitlines()[0].startswith("n,")
