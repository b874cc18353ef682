"""Tuning, with made-up times and a fake driver that records its calls."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.backend.cache.records import Records
from ziggurat.compiler.workers import Job
from ziggurat.tuning import tuner

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
    assert kernel.last.times == {str(config): TIMES[32 * (config.num_warps or 4)] for config in CONFIGS}


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
    tuned(gpu, CONFIGS[::-1])[grid](*arrays(), 1000)  # another list of configurations has another record
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
    calls = {}

    def early(configs, arguments, **keywords):
        calls.update(arguments=arguments, keywords=keywords)
        return [config for config in configs if config.kwargs["BLOCK"] != 128]

    kernel = tuned(gpu, prune_configs_by={"early_config_prune": early})
    x, out = arrays()
    kernel[grid](x, out, n=1000)
    assert gpu.measured == [64, 256] and set(calls["arguments"]) == {"x_ptr", "out_ptr"}
    assert calls["keywords"] == {"n": 1000}
    gpu.measured.clear()
    model = tuned(gpu, prune_configs_by={"perf_model": lambda BLOCK, n, **rest: -BLOCK, "top_k": np.int64(2)})
    model[grid](x, out, 1000)
    assert gpu.measured == [128, 256]
    gpu.measured.clear()
    share = tuned(gpu, prune_configs_by={"perf_model": lambda BLOCK, **rest: BLOCK, "top_k": 0.4})
    share[grid](x, out, 1000)
    assert gpu.measured == [] and gpu.launches[-1]["threads"] == 64  # one is left: nothing to measure


@pytest.mark.parametrize("top_k", [0, -1, -0.5, 0.0, 1.5, 3.0, float("nan"), True, None, "2"])
def test_a_top_k_that_is_refused(gpu, top_k):
    with pytest.raises(TypeError, match=r"zg\.autotune: 'top_k' must be a number of configurations, 1 or more") as info:
        tuned(gpu, prune_configs_by={"perf_model": lambda BLOCK, **rest: BLOCK, "top_k": top_k})
    assert isinstance(info.value, zg.ZigguratError)


def test_hooks_see_all_arguments(gpu):
    calls = []
    configs = [zg.Config({"BLOCK": 64}, pre_hook=calls.append), zg.Config({"BLOCK": 128}, num_warps=8)]
    kernel = zg.autotune(configs, measure=gpu.measure({128: 1.0, 256: 2.0}))(zg.kernel(scale))
    x, out = arrays()
    kernel[grid](x, out, 1000)
    assert len(calls) == 2  # measured once, launched once
    assert all(call["BLOCK"] == 64 and call["n"] == 1000 and call["x_ptr"] is x for call in calls)


def test_below_the_kernel_as_well(gpu):
    kernel = zg.kernel(zg.autotune(CONFIGS, "n", measure=gpu.measure(TIMES))(scale))
    kernel[grid](*arrays(), 1000)
    assert isinstance(kernel, zg.TunedKernel) and isinstance(kernel.kernel, zg.Kernel)
    assert gpu.launches[-1]["threads"] == 128


def test_processes_give_what_one_gives(gpu):
    here, there = tuned(gpu, processes=1), tuned(gpu, processes=2, cache_results=False)
    here[grid](*arrays(), 1000)
    loads = list(gpu.loads)
    from ziggurat.backend.cuda.cache import Cache

    Cache().clear()
    gpu.loads.clear()
    there[grid](*arrays(), 1000)
    assert len(loads) == 3 and gpu.loads == loads


def interface(pointer):
    """An array that has CUDA's array interface alone: no dtype, no size."""
    facts = {"shape": (1000,), "typestr": "<f4", "data": (pointer, False), "version": 3, "strides": None}
    return SimpleNamespace(__cuda_array_interface__=facts)


def test_arrays_without_a_dtype_are_tuned_as_others_are(gpu):
    """Tuning finds out as launches do that such an array is on a GPU."""
    kernel = tuned(gpu, restore_value=["out_ptr"], reset_to_zero=["x_ptr"])
    for _ in range(2):
        kernel[grid](interface(0x1000), interface(0x2000), 1000)
    assert gpu.measured == [64, 128, 256] and len(kernel.choices) == 1
    assert kernel.last.about["types"] == {"x_ptr": "f32", "out_ptr": "f32"}
    assert [done for done in gpu.done if done[0] == "set"] == [("set", 0x1000, 0, 4000)] * 4
    assert gpu.launches[-1]["threads"] == 128


@pytest.mark.parametrize("by_descriptor", [False, True])
def test_arrays_here_and_there_are_the_launch_s_error(gpu, by_descriptor):
    x, host = zg.empty((64, 16)), np.zeros((64, 16), np.float32)
    other = zg.TensorDescriptor(host, (16, 16)) if by_descriptor else host
    for kernel in (zg.kernel(scale), tuned(gpu)):
        more = {} if isinstance(kernel, zg.TunedKernel) else {"BLOCK": 64}
        with pytest.raises(zg.LaunchError, match="'out_ptr' of 'scale' must be on a GPU, as 'x_ptr' is"):
            kernel[grid](x, other, 1000, **more)
    assert gpu.measured == gpu.launches == [] and kernel.choices == {}
    kernel[grid](*arrays(), 1000)  # where the choice is made as well
    with pytest.raises(zg.LaunchError, match="'out_ptr' of 'scale' must be on a GPU, as 'x_ptr' is"):
        kernel[grid](x, other, 1000)


def test_arrays_on_two_devices_are_the_launch_s_error(gpu):
    x, far = zg.empty(1000), zg.empty(1000, device=1)
    kernel = tuned(gpu)
    for _ in range(2):
        with pytest.raises(zg.LaunchError, match="on several devices: 'x_ptr' on 0, 'out_ptr' on 1"):
            kernel[grid](x, far, 1000)
        assert not any(launch["values"][1] == far.pointer for launch in gpu.launches)
        kernel[grid](x, x, 1000)


def test_a_choice_is_of_a_device(gpu, monkeypatch):
    monkeypatch.setattr(gpu, "cuDeviceGetName", lambda length, device: (gpu.cuInit(0)[0], b"CARD %d" % device))
    kernel = tuned(gpu)
    for device in (0, 1, 0, 1):
        kernel[grid](zg.empty(1000, device=device), zg.empty(1000, device=device), 1000)
    assert len(gpu.measured) == 6 and len(kernel.choices) == 2
    assert {record.about["device"] for record in Records().all()} == {"CARD 0", "CARD 1"}
    assert kernel.last.about["device"] == "CARD 1"


def test_options_of_the_compilation_are_another_question(gpu):
    kernel = tuned(gpu)
    for options in ({}, {"exact_math": True}, {}, {"exact_math": True}, {"stream": 7}):
        kernel[grid](*arrays(), 1000, **options)
    assert len(gpu.measured) == 6 and len(kernel.choices) == 2


def test_an_array_in_the_key_is_asked_for_by_its_type(gpu):
    kernel = tuned(gpu, key=("x_ptr", "n"))
    for _ in range(2):
        kernel[grid](*arrays(), 1000)
    assert len(gpu.measured) == 3 and kernel.last.about["key"] == {"n": "1000"}


def test_a_choice_that_is_made_is_not_asked_for_again(gpu, monkeypatch):
    kernel = tuned(gpu)
    x, out = arrays()
    kernel[grid](x, out, 1000)
    kernel[grid](x, out_ptr=out, n=1000)
    assert len(gpu.measured) == 3 and len(kernel.choices) == 1
    monkeypatch.setattr(kernel, "_first_launch", None)
    for launched in (
        lambda: kernel[grid](x, out, 1000),
        lambda: kernel[(8,)](out, x, 1000),
        lambda: kernel[grid](x, out_ptr=out, n=1000),
    ):
        gpu.launches.clear()
        launched()
        assert [launch["threads"] for launch in gpu.launches] == [128]


def test_a_choice_that_is_made_costs_a_launch_two_calls_of_python(gpu):
    """One that finds the choice, and one that asks for it; the others are those of any launch."""
    kernel, plain = tuned(gpu), zg.kernel(scale)
    x, out = arrays()

    def calls(launched):
        for _ in range(3):
            launched()
        calls = []
        sys.setprofile(lambda frame, event, argument: calls.append(frame.f_code) if event == "call" else None)
        try:
            launched()
        finally:
            sys.setprofile(None)
        return [code.co_name for code in calls if "fake_driver" not in code.co_filename]

    untuned = calls(lambda: plain[(8,)](x, out, 1000, BLOCK=128, num_warps=4, num_stages=3))
    assert len(calls(lambda: kernel[(8,)](x, out, 1000))) == len(untuned) + 3  # and `__getitem__` of its own


def test_arrays_of_two_libraries_share_a_choice(gpu, monkeypatch):
    """Launches with arrays of two kinds, alternately, find their choices without choosing again."""
    kernel = tuned(gpu)
    own, protocol = arrays(), (interface(0x1000), interface(0x2000))
    for array in (own, protocol):
        kernel[grid](*array, 1000)
    assert len(kernel.choices) == 1  # of the same types, on the same device
    monkeypatch.setattr(kernel, "_first_launch", None)
    for array in (own, protocol, protocol, own):
        kernel[grid](*array, 1000)
    assert [launch["threads"] for launch in gpu.launches[-4:]] == [128] * 4


def test_an_empty_grid_is_not_measured_and_nothing_is_kept(gpu):
    kernel = tuned(gpu)
    for nothing in ((0,), 0, (3, 0), lambda meta: (meta["n"],)):
        kernel[nothing](*arrays(), 0)
    assert gpu.measured == gpu.launches == [] and kernel.choices == {} and kernel.last is None
    assert Records().all() == []
    kernel[lambda meta: (8 - meta["n"],)](*arrays(), 0)
    assert len(gpu.measured) == 3 and len(kernel.choices) == 1


def test_configurations_with_an_empty_grid_are_left_out(gpu, capsys):
    kernel = tuned(gpu)
    kernel[lambda meta: (meta["n"] // meta["BLOCK"],)](*arrays(), 130)
    assert gpu.measured == [64, 128] and list(kernel.choices.values()) == [CONFIGS[1]]
    assert kernel.last.left_out == {str(CONFIGS[2]): "its grid (0,) is empty"}
    assert "without BLOCK=256, num_warps=8: its grid (0,) is empty" in capsys.readouterr().err


def test_hooks_see_defaults(gpu):
    def doubled(x_ptr, out_ptr, n, BLOCK: zg.constexpr, FACTOR: zg.constexpr = 2):
        at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
        mask = zg.compare(at, n, LESS)
        zg.store(zg.add(out_ptr, at), zg.mul(zg.load(zg.add(x_ptr, at), mask), FACTOR), mask)

    calls = []
    kernel = tuned(gpu, [zg.Config({"BLOCK": 64}, pre_hook=calls.append)], kernel=doubled)
    x, out = arrays()
    kernel[grid](x, out, n=1000)
    (arguments,) = calls
    # The compiler chooses the warps and the stages: they are no arguments.
    assert arguments == {"x_ptr": x, "out_ptr": out, "n": 1000, "BLOCK": 64, "FACTOR": 2}


def test_a_parameter_that_is_an_option(gpu):
    """Its value is the configuration's, and so is the number of warps."""

    def wide(x_ptr, out_ptr, n, BLOCK: zg.constexpr, num_warps: zg.constexpr):
        at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
        zg.store(zg.add(out_ptr, at), num_warps, zg.compare(at, n, LESS))

    gpu.parameters = 2  # It does not read x.
    gpu.sizes = [8, 8, 4]
    kernel = tuned(gpu, kernel=wide)
    kernel[grid](*arrays(), 1000)
    assert gpu.measured == [64, 128, 256] and gpu.launches[-1]["threads"] == 128
    assert len(gpu.loads) == 3  # The measured kernels are launched.


@pytest.mark.parametrize("gives", [None, 3, [CONFIGS[0], "BLOCK=64"], lambda: None])
def test_pruning_gives_configurations(gpu, gives):
    kernel = tuned(gpu, prune_configs_by={"early_config_prune": lambda configs, arguments, **keywords: gives})
    with pytest.raises(zg.LaunchError, match="must give a list of configurations; got"):
        kernel[grid](*arrays(), 1000)
    kernel = tuned(gpu, prune_configs_by={"early_config_prune": lambda configs, arguments, **keywords: []})
    with pytest.raises(zg.LaunchError, match="leaves no configuration"):
        kernel[grid](*arrays(), 1000)


@pytest.mark.parametrize(("name", "value"), [("num_warps", 3), ("num_stages", -1)])
def test_options_of_a_configuration_are_checked(name, value):
    with pytest.raises(zg.LaunchError, match=f"{name} must be an integer.*; got {value}"):
        zg.Config({"BLOCK": 64}, **{name: value})


def test_configurations_as_triton_writes_them():
    assert zg.Config({"BLOCK": 64}, 8, 2) == zg.Config({"BLOCK": 64}, num_warps=8, num_stages=2)
    for wrong in (None, 64, ["BLOCK"]):
        with pytest.raises(zg.LaunchError, match=r"zg\.Config: 'kwargs' must be a dict of values by parameter; got"):
            zg.Config(wrong)
    with pytest.raises(zg.LaunchError, match=r"zg\.Config has no 'num_warp'\n  hint: did you mean num_warps\?"):
        zg.Config({"BLOCK": 64}, num_warp=3)
    with pytest.raises(zg.LaunchError, match=r'zg\.Config has no \'BLOCK\'\n  hint: zg\.Config\(\{"BLOCK": …\}\)'):
        zg.Config(BLOCK=64)


def test_only_kernels_are_tuned():
    for wrong in (3, None, zg.function(grid)):
        with pytest.raises(zg.LaunchError, match=r"zg\.autotune must decorate a kernel;"):
            zg.autotune(CONFIGS)(wrong)


def test_what_a_tuned_launch_lacks_or_has_too_much(gpu):
    x, out = arrays()
    for arguments, keywords, message in (
        ((x, out), {}, "'scale' needs 'n'"),
        ((x, out, 1000), {"blok": 3}, "'scale' has no parameter 'blok'"),
        ((x, out, 1000), {"n": 3}, "'scale' got 'n' twice"),
    ):
        with pytest.raises(zg.LaunchError, match=message):
            tuned(gpu)[grid](*arguments, **keywords)
    assert gpu.launches == []


def test_interpreted_launches_take_the_first(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ZIGGURAT_CACHE_DIR", raising=False)
    kernel = zg.autotune(CONFIGS, ["n"])(zg.kernel(scale))
    x = np.arange(1000, dtype=np.float32)
    out = np.zeros_like(x)
    grids = []
    kernel[lambda meta: grids.append(meta["BLOCK"]) or grid(meta)](x, out, 1000, interpret=True)
    assert np.array_equal(out, 2 * x) and grids == [64] and kernel.choices == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"configs": []}, "must have configurations"),
        ({"configs": [{"BLOCK": 4}]}, r"must be a zg\.Config; got"),
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


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("configs", 3, "'configs' must be a list"),
        *((name, 3, "must be names of parameters") for name in ("key", "reset_to_zero", "restore_value")),
        ("prune_configs_by", 3, "'prune_configs_by' must be a dict"),
        *((name, "3", f"'{name}' must be a number") for name in ("warmup", "rep", "processes")),
        ("measure", 3, "'measure' must be a function"),
        ("prune_configs_by", {"perf_model": 3}, "'perf_model' must be a function"),
        ("prune_configs_by", {"early_config_prune": 3}, "'early_config_prune' must be a function"),
    ],
)
def test_arguments_of_other_types(name, value, message):
    with pytest.raises(zg.KernelTypeError, match=message):
        zg.autotune(**{"configs": CONFIGS, name: value})(zg.kernel(scale))


def test_a_parameter_is_given_once(gpu):
    for extra in ({"BLOCK": 64}, {"num_warps": 4}):
        with pytest.raises(zg.LaunchError, match=r"is chosen by zg\.autotune"):
            tuned(gpu)[grid](*arrays(), 1000, **extra)


def test_a_keyword_that_nothing_knows_is_named(gpu):
    kernel = zg.kernel(scale)
    x, out = arrays()
    with pytest.raises(zg.LaunchError, match="'scale' has no parameter 'num_warp'") as error:
        kernel[(1,)](x, out, 1000, BLOCK=64, num_warp=4)
    assert "did you mean num_warps?" in str(error.value)
    kernel[(1,)](x, out, 1000, BLOCK=64, num_warps=2, strict=True)
    assert gpu.launches[-1]["threads"] == 64


@pytest.mark.parametrize("as_triton", [False, True])
def test_kernels_with_tuples_are_compiled_ahead(gpu, monkeypatch, as_triton):
    """All configurations are compiled before the first is launched, and the launches find what was compiled."""

    def add(pair, out_ptr, BLOCK: zg.constexpr):
        at = zg.arange(0, BLOCK)
        zg.store(zg.add(out_ptr, at), zg.add(zg.load(zg.add(pair[0], at)), zg.load(zg.add(pair[1], at))))

    def add_in_triton(pair, out_ptr, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.store(out_ptr + at, tl.load(pair[0] + at) + tl.load(pair[1] + at))

    jobs: list[Job] = []
    original = tuner.compile_all
    monkeypatch.setattr(tuner, "compile_all", lambda work, *rest: jobs.extend(work) or original(work, *rest))
    if as_triton:
        monkeypatch.setitem(sys.modules, "torch", None)  # It would be asked for the current device.
        monkeypatch.setattr(triton.runtime.driver, "active", triton.backends.backends["nvidia"].driver())
        configs = [triton.Config({"BLOCK": size}) for size in (64, 128)]
        kernel = triton.autotune(configs, [], do_bench=lambda run, quantiles: run() or [1.0] * 3)(
            triton.jit(add_in_triton)
        )
    else:
        kernel = tuned(gpu, [zg.Config({"BLOCK": size}) for size in (64, 128)], (), add)
    monkeypatch.setattr("ziggurat.compiler.pipeline.compile_model", None)  # The child processes have their own.
    x, out = arrays()
    kernel[(1,)]((x, x), out)
    kernel[(1,)]((x, x), out)
    assert len(jobs) == 2 and len(gpu.launches) == 4
    assert all(job.launch is None for job in jobs)  # The times of a measure need not be milliseconds.


@pytest.mark.parametrize("setting", ["reset_to_zero", "restore_value"])
def test_what_cannot_be_set_back_is_the_error_of_the_launch(gpu, setting):
    kernel = tuned(gpu, quiet=True, **{setting: ["n"]})
    with pytest.raises(zg.LaunchError, match="'n' must be an array, as reset_to_zero or restore_value names it; got"):
        kernel[grid](*arrays(), 1000)
    assert gpu.measured == gpu.launches == []
