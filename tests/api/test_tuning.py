"""Tuning, with times that are made up and a driver that writes down what it is asked."""

import json

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.cuda.records import Records

LESS = zg.CompareKind.LESS_THAN


def scale(x_ptr, out_ptr, n, BLOCK: zg.constexpr):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    mask = zg.compare(at, n, LESS)
    zg.store(zg.add(out_ptr, at), zg.mul(zg.load(zg.add(x_ptr, at), mask), 2.0), mask)


CONFIGS = [
    zg.Config({"BLOCK": 64}, num_warps=2),
    zg.Config({"BLOCK": 128}),
    zg.Config({"BLOCK": 256}, num_warps=8),
]
TIMES = {64: 3.0, 128: 1.01, 256: 1.0}  # by threads: 128 and 256 differ by less than the noise


def tuned(fake, configs=CONFIGS, key=("n",), kernel=scale, **options):
    return zg.autotune(configs, key, measure=fake.measure(TIMES), **options)(zg.kernel(kernel))


def grid(meta):
    return (zg.cdiv(1000, meta["BLOCK"]),)


def arrays(dtype=np.float32):
    return zg.empty(1000, dtype), zg.empty(1000, dtype)


def test_the_first_of_those_that_are_as_fast_is_taken_and_kept(gpu):
    kernel = tuned(gpu)
    x, out = arrays()
    for _ in range(3):
        kernel[grid](x, out, 1000)
    assert gpu.measured == [64, 128, 256]
    assert [launch["threads"] for launch in gpu.launches[3:]] == [128] * 3
    assert gpu.launches[-1]["grid"] == (8, 1, 1)
    assert list(kernel.choices.values()) == [CONFIGS[1]]
    assert kernel.last.times == {str(config): TIMES[32 * config.num_warps] for config in CONFIGS}


def test_each_key_and_each_dtype_is_tuned(gpu):
    kernel = tuned(gpu)
    kernel[grid](*arrays(), 1000)
    kernel[grid](*arrays(), 999)
    kernel[grid](*arrays(), n=1000)
    kernel[grid](*arrays(np.float64), 1000)
    assert len(gpu.measured) == 9 and len(kernel.choices) == 3


def test_a_list_may_be_a_value_of_the_key(gpu):
    def shaped(x_ptr, out_ptr, n, SHAPE: zg.constexpr, BLOCK: zg.constexpr):
        at = zg.add(zg.program_id(0) * BLOCK, zg.ravel(zg.broadcast(zg.arange(0, BLOCK), SHAPE)))
        mask = zg.compare(at, n, LESS)
        zg.store(zg.add(out_ptr, at), zg.load(zg.add(x_ptr, at), mask), mask)

    kernel = tuned(gpu, [zg.Config({"BLOCK": 64}, num_warps=2), zg.Config({"BLOCK": 64})], ["SHAPE"], shaped)
    for shape in ([1, 64], [1, 64], [2, 64]):
        kernel[grid](*arrays(), 1000, shape)
    assert len(gpu.measured) == 4 and len(kernel.choices) == 2


def test_the_choice_is_read_from_disk(gpu):
    tuned(gpu)[grid](*arrays(), 1000)
    other = tuned(gpu)
    other[grid](*arrays(), 1000)
    assert len(gpu.measured) == 3 and gpu.launches[-1]["threads"] == 128
    tuned(gpu, CONFIGS[::-1])[grid](*arrays(), 1000)  # another list of configurations is another question
    assert len(gpu.measured) == 6 and gpu.launches[-1]["threads"] == 256
    tuned(gpu, cache_results=False)[grid](*arrays(), 1000)
    assert len(gpu.measured) == 9


@pytest.mark.parametrize("damage", [lambda text: text[: len(text) // 2], lambda text: text.replace("128", "256"), str])
def test_a_damaged_record_is_measured_again(gpu, damage):
    tuned(gpu)[grid](*arrays(), 1000)
    (path,) = Records().directory.iterdir()
    text = path.read_text()
    path.write_text(damage(text))
    tuned(gpu)[grid](*arrays(), 1000)
    assert len(gpu.measured) == (3 if damage is str else 6)
    assert path.read_text() == text


def test_choices_are_shared_through_a_file(gpu, tmp_path):
    tuned(gpu)[grid](*arrays(), 1000)
    assert Records().export(tmp_path / "choices.json") == 1
    assert Records().export(tmp_path / "none.json", "another") == 0
    (record,) = Records().all()
    assert record.about["device"] == "FAKE GPU" and record.about["key"] == {"n": "1000"}
    assert Records().clear() == 1 and Records().all() == []
    assert Records().import_(tmp_path / "choices.json") == 1
    tuned(gpu)[grid](*arrays(), 1000)
    assert len(gpu.measured) == 3
    data = json.loads((tmp_path / "choices.json").read_text())
    data["records"][0]["config"] = "BLOCK=1"
    (tmp_path / "bad.json").write_text(json.dumps(data))
    for name in ("bad.json", "missing.json"):
        with pytest.raises(zg.LaunchError, match="no choices that can be read"):
            Records().import_(tmp_path / name)


def test_pruning_by_the_user(gpu):
    seen = {}

    def early(configs, named, **keywords):
        seen.update(named=named, keywords=keywords)
        return [config for config in configs if config.values["BLOCK"] != 128]

    kernel = tuned(gpu, prune_configs_by={"early_config_prune": early})
    x, out = arrays()
    kernel[grid](x, out, n=1000)
    assert gpu.measured == [64, 256] and set(seen["named"]) == {"x_ptr", "out_ptr", "n"}
    assert seen["keywords"] == {"n": 1000}
    gpu.measured.clear()
    model = tuned(gpu, prune_configs_by={"perf_model": lambda BLOCK, n, **rest: -BLOCK, "top_k": 2})
    model[grid](x, out, 1000)
    assert gpu.measured == [128, 256]
    gpu.measured.clear()
    one = tuned(gpu, prune_configs_by={"perf_model": lambda BLOCK, **rest: BLOCK, "top_k": 0.4})
    one[grid](x, out, 1000)
    assert gpu.measured == [] and gpu.launches[-1]["threads"] == 64  # one is left: nothing to measure


def test_hooks_see_all_arguments(gpu):
    seen = []
    configs = [zg.Config({"BLOCK": 64}, pre_hook=seen.append), zg.Config({"BLOCK": 128}, num_warps=8)]
    kernel = zg.autotune(configs, measure=gpu.measure({128: 1.0, 256: 2.0}))(zg.kernel(scale))
    x, out = arrays()
    kernel[grid](x, out, 1000)
    assert len(seen) == 2  # measured once, launched once
    assert all(given["BLOCK"] == 64 and given["n"] == 1000 and given["x_ptr"] is x for given in seen)


def test_below_the_kernel_as_well(gpu):
    kernel = zg.kernel(zg.autotune(CONFIGS, "n", measure=gpu.measure(TIMES))(scale))
    try:
        kernel[grid](*arrays(), 1000)
        assert isinstance(kernel, zg.TunedKernel) and isinstance(kernel, zg.Kernel)
        assert gpu.launches[-1]["threads"] == 128
    finally:
        del scale.ziggurat_wrap


def test_processes_give_what_one_gives(gpu):
    here, there = tuned(gpu, processes=1), tuned(gpu, processes=2, cache_results=False)
    here[grid](*arrays(), 1000)
    loads = list(gpu.loads)
    from ziggurat.backend.cuda.cache import Cache

    Cache().clear()
    gpu.loads.clear()
    there[grid](*arrays(), 1000)
    assert len(loads) == 3 and gpu.loads == loads


def test_arrays_in_memory_take_the_first(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    kernel = zg.autotune(CONFIGS, ["n"])(zg.kernel(scale))
    x = np.arange(1000, dtype=np.float32)
    out = np.zeros_like(x)
    grids = []
    kernel[lambda meta: grids.append(meta["BLOCK"]) or grid(meta)](x, out, 1000)
    assert np.array_equal(out, 2 * x) and grids == [64] and kernel.choices == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"configs": []}, "no configurations"),
        ({"configs": [{"BLOCK": 4}]}, r"is a zg\.Config, got"),
        ({"configs": [zg.Config({"BLOK": 4})]}, r"no parameter 'BLOK' \(in a configuration\)"),
        ({"configs": [zg.Config({"BLOCK": 4}), zg.Config({})]}, "different parameters"),
        ({"configs": CONFIGS, "key": ["m"]}, r"no parameter 'm' \(in key\)"),
        ({"configs": CONFIGS, "restore_value": ["m"]}, "in restore_value"),
        ({"configs": CONFIGS, "reset_to_zero": ["m"]}, "in reset_to_zero"),
        ({"configs": CONFIGS, "prune_configs_by": {"top": 3}}, "prune_configs_by of 'scale' has 'top'"),
    ],
)
def test_what_does_not_fit_the_kernel(arguments, message):
    with pytest.raises(zg.LaunchError, match=message):
        zg.autotune(**arguments)(zg.kernel(scale))


def test_a_parameter_is_given_once(gpu):
    for extra in ({"BLOCK": 64}, {"num_warps": 4}):
        with pytest.raises(zg.LaunchError, match=r"is chosen by zg\.autotune"):
            tuned(gpu)[grid](*arrays(), 1000, **extra)


def test_a_keyword_that_nothing_knows_is_named(gpu):
    kernel = zg.kernel(scale)
    x, out = arrays()
    with pytest.raises(zg.LaunchError, match="'scale' has no parameter 'num_warp'") as caught:
        kernel[(1,)](x, out, 1000, BLOCK=64, num_warp=4)
    assert "did you mean 'num_warps'?" in str(caught.value)
    kernel[(1,)](x, out, 1000, BLOCK=64, num_warps=2, strict=True)
    assert gpu.launches[-1]["threads"] == 64
