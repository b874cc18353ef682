"""`zg.heuristics`: parameters that are computed at each launch, with and without tuning, in memory and on GPUs."""

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.cache.records import Records
from ziggurat.tuning.tuned import Tuned

LESS = zg.CompareKind.LESS_THAN


def scale(x_ptr, out_ptr, n, BLOCK: zg.constexpr, EVEN: zg.constexpr, FACTOR: zg.constexpr = 2):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    if EVEN:
        zg.store(zg.add(out_ptr, at), zg.mul(zg.load(zg.add(x_ptr, at)), FACTOR))
    else:
        mask = zg.compare(at, n, LESS)
        zg.store(zg.add(out_ptr, at), zg.mul(zg.load(zg.add(x_ptr, at), mask), FACTOR), mask)


def even(args):
    return args["n"] % args["BLOCK"] == 0


CONFIGS = [zg.Config({"BLOCK": 64}, num_warps=2), zg.Config({"BLOCK": 128})]
TIMES = {64: 3.0, 128: 1.0}  # by threads


def grid(meta):
    return (zg.cdiv(meta["n"], meta["BLOCK"]),)


def computed(**values):
    return zg.heuristics(values or {"EVEN": even})(zg.kernel(scale))


def hosted(n=1000):
    x = np.arange(n, dtype=np.float32)
    return x, np.zeros_like(x)


@pytest.mark.parametrize("n", [1000, 1024])
def test_in_memory(n):
    x, out = hosted(n)
    calls = []
    kernel = computed(EVEN=lambda args: calls.append(dict(args)) or even(args))
    kernel[grid](x, out, n, BLOCK=64)
    assert np.array_equal(out, 2 * x)
    (arguments,) = calls
    assert {name: arguments[name] for name in ("n", "BLOCK", "FACTOR")} == {"n": n, "BLOCK": 64, "FACTOR": 2}
    assert arguments["x_ptr"] is x and "EVEN" not in arguments


def test_on_a_gpu_each_value_is_a_kernel(gpu):
    kernel = computed()
    x, out = zg.empty(1024), zg.empty(1024)
    for n in (1024, 1000, 1088, 1000):
        kernel[grid](x, out, n, 64)
    assert [launch["grid"][0] for launch in gpu.launches] == [16, 16, 17, 16]
    even_one, other = (load.decode() for load in gpu.loads)
    assert even_one.count("setp") < other.count("setp")  # Only where it is not even are offsets compared.


def test_later_ones_see_earlier_ones(gpu):
    calls = []
    kernel = computed(
        BLOCK=lambda args: zg.next_power_of_2(args["n"]) // 2,
        EVEN=lambda args: calls.append(args["BLOCK"]) or even(args),
        num_warps=lambda args: 8 if args["EVEN"] else 2,
    )
    x, out = zg.empty(1024), zg.empty(1024)
    kernel[grid](x, out, 1024)
    kernel[grid](x, out, 1000)
    assert calls == [512, 512]
    assert [(launch["grid"][0], launch["threads"]) for launch in gpu.launches] == [(2, 256), (2, 64)]


def test_stacked_the_outer_is_first():
    x, out = hosted(128)
    kernel = zg.heuristics({"BLOCK": lambda args: 128})(computed())
    kernel[grid](x, out, 128)
    assert np.array_equal(out, 2 * x) and list(kernel.heuristics) == ["BLOCK", "EVEN"]


def decorations(gpu):
    tune = zg.autotune(CONFIGS, ["n"], measure=gpu.measure(TIMES), quiet=True)
    compute = zg.heuristics({"EVEN": even})
    return {
        "tuning, computing, kernel": lambda: tune(compute(zg.kernel(scale))),
        "computing, tuning, kernel": lambda: compute(tune(zg.kernel(scale))),
        "kernel, tuning, computing": lambda: zg.kernel(tune(compute(scale))),
        "kernel, computing, tuning": lambda: zg.kernel(compute(tune(scale))),
        "tuning, kernel, computing": lambda: tune(zg.kernel(compute(scale))),
        "computing, kernel, tuning": lambda: compute(zg.kernel(tune(scale))),
    }


@pytest.mark.parametrize("order", list(range(6)))
def test_tuned_in_any_order_of_decorators(gpu, order):
    kernel = list(decorations(gpu).values())[order]()
    assert isinstance(kernel, zg.TunedKernel) and isinstance(kernel, Tuned)
    x, out = zg.empty(1024), zg.empty(1024)
    for _ in range(2):
        kernel[grid](x, out, 1024)
    assert gpu.measured == [64, 128] and gpu.launches[-1]["threads"] == 128
    assert kernel.last.about["computed"] == [{"EVEN": "True"}] * 2
    # The measured kernels are launched: nothing is compiled or loaded for the launches.
    assert len(gpu.loads) == 2
    host, result = hosted(192)
    kernel[grid](host, result, 192)
    assert np.array_equal(result, 2 * host)


def test_configurations_are_computed_with_before_they_are_measured(gpu):
    calls, hooked = [], []
    kernel = zg.autotune(
        [zg.Config({"BLOCK": 64}, num_warps=2, pre_hook=hooked.append), zg.Config({"BLOCK": 512}, num_warps=4)],
        ["n"],
        measure=gpu.measure({64: 1.0, 128: 2.0}),
    )(computed(EVEN=lambda args: calls.append((args["BLOCK"], args["num_warps"])) or even(args)))
    kernel[grid](zg.empty(960), zg.empty(960), 960)
    assert set(calls) == {(64, 2), (512, 4)}
    assert kernel.last.about["computed"] == [{"EVEN": "True"}, {"EVEN": "False"}]
    assert [call["EVEN"] for call in hooked] == [True, True] and hooked[0]["FACTOR"] == 2
    assert Records().get(kernel.last.about) == kernel.last


def test_a_computed_kernel_is_a_kernel():
    types = (zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, 64, True)
    assert str(computed().triton(*types)) == str(zg.kernel(scale).triton(*types))
    assert "EVEN" in repr(computed())


def test_a_function_without_zg_kernel_is_told_so():
    pending = zg.heuristics({"EVEN": even})(scale)
    assert pending.__name__ == "scale" and not isinstance(pending, zg.Kernel)
    with pytest.raises(zg.LaunchError, match="'scale' must be a kernel to be launched") as error:
        pending[(1,)]
    assert "@zg.kernel" in error.value.hint
    assert not hasattr(scale, "ziggurat_wrap")  # The function may be decorated otherwise, elsewhere.
    assert type(zg.kernel(scale)) is zg.Kernel


@zg.function
def helper(x):
    return x


@pytest.mark.parametrize(
    ("values", "target", "message"),
    [
        ({"EVN": even}, zg.kernel(scale), r"'scale' has no parameter 'EVN' \(in zg\.heuristics\)"),
        ({"stream": even}, zg.kernel(scale), r"'scale' has no parameter 'stream'"),
        ({"EVEN": True}, zg.kernel(scale), "'EVEN' must be a function of the arguments; got True"),
        ([even], zg.kernel(scale), "'values' must be a dict of functions by parameter; got "),
        ({"EVEN": even}, 3, r"zg\.heuristics must decorate a kernel; got 3"),
        ({"EVEN": even}, helper, r"must decorate a kernel; 'helper' is a zg\.function"),
        ({"BLOCK": even}, zg.autotune(CONFIGS)(zg.kernel(scale)), "'BLOCK' of 'scale' is computed by .*configurations"),
        ({"num_warps": even}, zg.autotune(CONFIGS)(zg.kernel(scale)), "'num_warps' of 'scale' is computed by"),
        ({"EVEN": even}, zg.autotune(CONFIGS, ["EVEN"])(zg.kernel(scale)), "'EVEN' .* the key must name arguments"),
    ],
)
def test_what_cannot_be_computed(values, target, message):
    with pytest.raises(zg.LaunchError, match=message):
        zg.heuristics(values)(target)


def test_what_a_launch_does_wrong():
    x, out = hosted()
    kernel = computed()
    for arguments, keywords in (
        ((x, out, 1000, 64, True), {}), ((x, out, 1000, 64), {"EVEN": True}), ((x, out, 1000, 64, True, 2), {}),
    ):  # fmt: skip
        with pytest.raises(zg.LaunchError, match=r"'EVEN' of 'scale' is computed by zg\.heuristics") as error:
            kernel[grid](*arguments, **keywords)
        assert "leave it out" in error.value.hint
    with pytest.raises(zg.LaunchError, match="'scale' needs 'BLOCK'"):
        kernel[(1,)](x, out, 1000)
    with pytest.raises(zg.LaunchError, match="got 7"):
        kernel[(1,)](x, out, 1000, 64, True, 3, 4)
    with pytest.raises(zg.LaunchError, match="no parameter 'BLOK'"):
        kernel[(1,)](x, out, 1000, 64, BLOK=3)
    assert not out.any()


def test_what_a_heuristic_does_wrong():
    x, out = hosted()
    with pytest.raises(zg.LaunchError, match="the heuristic of 'EVEN' of 'scale' reads 'm', which is no arg") as error:
        computed(EVEN=lambda args: args["m"] == 0)[(1,)](x, out, 1000, 64)
    assert "'x_ptr', 'out_ptr', 'n', 'BLOCK'" in error.value.hint
    with pytest.raises(zg.LaunchError, match="reads 'FACTOR', which is not computed yet") as error:

        def odd(x_ptr, EVEN: zg.constexpr, FACTOR: zg.constexpr):
            zg.store(x_ptr, FACTOR)

        values = {"EVEN": lambda args: args["FACTOR"], "FACTOR": lambda args: 3}
        zg.heuristics(values)(zg.kernel(odd))[(1,)](x)
    assert error.value.hint == "write 'FACTOR' before 'EVEN'"
    with pytest.raises(ZeroDivisionError):
        computed(EVEN=lambda args: 1 / 0)[(1,)](x, out, 1000, 64)
    with pytest.raises(zg.LaunchError, match="'EVEN' of 'scale' is compiled in"):
        computed(EVEN=lambda args: x)[(1,)](x, out, 1000, 64)
