"""`triton.autotune` and `triton.heuristics` on a machine without a GPU, with functions that measure."""

from typing import Any

import numpy as np
import pytest

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.codemodel.errors import StaticAssertionError, ZigguratWarning
from ziggurat.triton.compiler.compiled import compile_ahead
from ziggurat.triton.tools.tensor_descriptor import TensorDescriptor


class Tensor(np.ndarray):
    """An array with the methods of tensors that the tuner calls."""

    def zero_(self):
        self[...] = 0

    def clone(self):
        return self.copy()

    def copy_(self, other):
        self[...] = other


def zeros(n: int) -> Tensor:
    return np.zeros(n, np.float32).view(Tensor)


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
    told: list[BaseException | None] = []
    configs = [triton.Config({"BLOCK": 16}, num_warps=128), triton.Config({"BLOCK": 16})]
    tuned, x = (
        kernel(configs=configs, do_bench=measured, post_hook=lambda args, exception: told.append(exception)),
        zeros(40),
    )
    tuned[grid](x, 40)
    assert tuned.best_config is configs[1] and isinstance(told[0], triton.OutOfResources) and told[1] is None
    assert "out of resource: threads, Required: 4096, Hardware limit: 1024" in str(told[0])


def measured(call, quantiles):
    call()
    return [1.0] * 3


def test_a_configuration_that_the_assembler_rejects_is_left_out_with_a_warning(gpu, failed):
    asked: list[int] = []

    def do_bench(call, quantiles):
        asked.append(1)
        gpu.load_failure = (failed("CUDA_ERROR_INVALID_PTX"), b"(C7602) setmaxnreg") if len(asked) == 1 else None
        return measured(call, quantiles)

    tuned = kernel(do_bench=do_bench, configs=[triton.Config({"BLOCK": 16}, num_warps=warps) for warps in (1, 2, 4)])
    with pytest.warns(ZigguratWarning, match=r"'increment' is not launched with BLOCK: 16, num_warps: 1.*\n.*C7602"):
        tuned[grid](zg.empty(40), 40)
    assert tuned.best_config.num_warps == 2 and len(asked) == 3


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


def test_hooks_are_called_around_measured_launches():
    told: list[str] = []

    def do_bench(call, quantiles):
        call()
        return [1.0] * 3

    configs = [
        triton.Config({"BLOCK": 16}, pre_hook=lambda given: told.append(f"config {given['BLOCK']}")),
        triton.Config({"BLOCK": 32}),
    ]
    tuned = kernel(
        configs=configs,
        do_bench=do_bench,
        pre_hook=lambda given, reset_only=False: told.append(f"before {reset_only}"),
        post_hook=lambda given, exception: told.append(f"after {exception}"),
    )
    tuned[grid](zeros(40), 40)
    one = ["before False", "after None"]
    assert told == ["config 16", *one, *one, "before True", "config 16"]


def test_pruning():
    seen: list[int] = []

    def do_bench(call, quantiles):
        call()
        return [1.0] * 3

    def early(configs, named, **keywords):
        assert named["n"] == 40
        return configs[1:]

    def model(**given):
        seen.append(given["BLOCK"])
        return -given["BLOCK"]

    tuned = kernel(do_bench=do_bench, prune_configs_by={"early_config_prune": early})
    tuned[grid](zeros(40), 40)
    assert tuned.best_config.kwargs == {"BLOCK": 32}
    tuned = kernel(do_bench=do_bench, prune_configs_by={"perf_model": model, "top_k": 1})
    tuned[grid](zeros(40), 40)
    assert tuned.best_config.kwargs == {"BLOCK": 32} and seen == [16, 32]
    tuned = kernel(do_bench=do_bench, prune_configs_by={"early_config_prune": lambda configs, named, **more: []})
    with pytest.raises(triton.TritonError, match="Autotuner error: No valid autotuner configs after pruning"):
        tuned[grid](zeros(40), 40)


@pytest.mark.parametrize("settings", [{}, {"do_bench": lambda call, quantiles: call()}])
def test_a_tuned_parameter_is_not_given_as_well(settings):
    tuned = kernel(**settings)
    with pytest.raises(ValueError, match="Conflicting meta-parameters: BLOCK"):
        tuned[grid](zeros(40), 40, BLOCK=16)
    for given in ({"BLOCK": 16}, {"num_warps": 8}):
        tuned = kernel(configs=[triton.Config({"BLOCK": 16})], **settings)
        with pytest.raises(ValueError, match=f"Conflicting meta-parameters: {next(iter(given))}"):
            tuned[grid](zeros(40), 40, **given)


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


def test_heuristics_compute_parameters():
    @triton.heuristics({"EVEN": lambda given: given["n"] % given["BLOCK"] == 0, "WIDE": lambda given: given["EVEN"]})
    @triton.jit
    def keep(out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr, WIDE: tl.constexpr):
        tl.store(out_ptr, EVEN + 2 * WIDE)

    out = np.zeros(1, np.int32)
    keep[(1,)](out, 32, BLOCK=16)
    assert out[0] == 3
    keep[(1,)](out, 33, BLOCK=16)
    assert out[0] == 0


def test_configurations_are_values():
    one = triton.Config({"BLOCK": 16}, num_stages=2)
    assert one == triton.Config({"BLOCK": 16}, num_stages=2) != triton.Config({"BLOCK": 16})
    assert str(one) == "BLOCK: 16, num_warps: 4, num_ctas: 1, num_stages: 2, maxnreg: None"
    assert one.all_kwargs() == {"BLOCK": 16, "num_warps": 4, "num_ctas": 1, "num_stages": 2}


def test_a_hook_sets_the_blocks_of_descriptors():
    def set_blocks(named: dict[str, Any]) -> None:
        for name in ("x", "out"):
            named[name].block_shape = [named["ROWS"], 64]

    @triton.autotune(configs=[triton.Config({"ROWS": rows}, pre_hook=set_blocks) for rows in (16, 32)], key=["n"])
    @triton.jit
    def doubled(x, out, n, ROWS: tl.constexpr):
        first = tl.program_id(0) * ROWS
        out.store([first, 0], x.load([first, 0]) * 2)

    x = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    out = np.zeros_like(x)
    given = [TensorDescriptor(array, [64, 64], [64, 1], block_shape=[1, 1]) for array in (x, out)]
    assert not hasattr(given[0], "dtype")
    doubled[lambda named: (64 // named["ROWS"],)](*given, 64)
    np.testing.assert_array_equal(out, 2 * x)


def test_a_configuration_that_fails_is_not_compiled_ahead():
    class Failing:
        @property
        def is_compiled(self) -> bool:
            raise StaticAssertionError("static assertion failed")

    compile_ahead([Failing(), Failing(), Failing()])
