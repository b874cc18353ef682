"""`zg.grad`: the signature, launches, and errors."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.errors import KernelTypeError, LaunchError, ZigguratWarning

f32, i32 = zg.ptr(zg.f32), zg.i32
FACTOR = 2.0


@zg.kernel
def scale(x_ptr, w_ptr, out_ptr, n, BLOCK: zg.constexpr = 8, FORM: zg.constexpr = "product"):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    mask = zg.less(at, n)
    x = zg.load(zg.add(x_ptr, at), mask)
    w = zg.load(zg.add(w_ptr, at), mask)
    if FORM == "product":
        y = zg.mul(x, w)
    else:
        y = zg.mul(zg.add(x, w), FACTOR)
    zg.store(zg.add(out_ptr, at), y, mask)


def run(kernel: Any, **keywords: Any) -> tuple[np.ndarray, ...]:
    x, w, dout = np.random.default_rng(0).standard_normal((3, 20), np.float32)
    dx, dw = np.zeros((2, 20), np.float32)
    kernel[lambda meta: (zg.cdiv(meta["n"], 8),)](x, dx, w, dw, np.zeros_like(x), dout, 20, **keywords)
    return x, dx, w, dw, dout


def test_the_parameters_are_followed_by_their_gradients():
    kernel = zg.grad(scale, wrt=("x_ptr", "w_ptr"), of="out_ptr")
    assert list(kernel.signature.parameters) == [
        "x_ptr", "d_x_ptr", "w_ptr", "d_w_ptr", "out_ptr", "d_out_ptr", "n", "BLOCK", "FORM",
    ]  # fmt: skip
    assert kernel.name == "d_scale"
    gradient = zg.grad(scale, wrt="w_ptr", of=["out_ptr"])
    assert list(gradient.signature.parameters)[:5] == ["x_ptr", "w_ptr", "d_w_ptr", "out_ptr", "d_out_ptr"]


def test_launches():
    kernel = zg.grad(scale, wrt=("x_ptr", "w_ptr"), of="out_ptr")
    x, dx, w, dw, dout = run(kernel)
    np.testing.assert_array_equal(dx, dout * w)
    np.testing.assert_array_equal(dw, dout * x)
    x, dx, w, dw, dout = run(kernel, BLOCK=8, FORM="sum")
    np.testing.assert_array_equal(dx, dout * 2)


def test_models():
    kernel = zg.grad(scale, wrt="x_ptr", of="out_ptr")
    types = [zg.divisible(f32, 16), zg.divisible(f32, 8), f32, f32, zg.divisible(f32, 16), i32]
    model = kernel.triton(*types, 8)
    assert kernel.triton(*types, 8) is model
    zg.verify(model)
    (function,) = model.functions().values()
    assert function.attributes["divisibility"] == (16, 8, 1, 1, 16, 1)
    assert function.attributes["sym_name"].startswith("d_scale_")
    assert kernel.accumulates(*types, 8) == {"d_x_ptr": False}
    compiled = kernel.compile(*types, 8, target="sm_90a")
    assert [argument.name for argument in compiled.arguments][:3] == ["x_ptr", "d_x_ptr", "w_ptr"]
    zg.testing.assert_same(
        model, zg.simplify(model), [*np.random.default_rng(0).standard_normal((5, 20), np.float32), 20], grid=3
    )


def test_the_python_model_has_the_parameters_and_says_that_it_is_none():
    kernel = zg.grad(scale, wrt="x_ptr", of="out_ptr")
    assert [str(p.type) for p in kernel.model.bodies[0].parameters].count("constexpr") == 2
    assert "d_scale" in kernel.module.functions() and zg.same_model(zg.parse(str(kernel.model)), kernel.model)
    with pytest.raises(KernelTypeError, match="made of the Triton model"):
        zg.execute(kernel.model, *range(8))


def test_tuning_keeps_the_gradient():
    tuned = zg.autotune([zg.Config({"BLOCK": 8}), zg.Config({"BLOCK": 16})], key=["n"])(
        zg.grad(scale, wrt=("x_ptr", "w_ptr"), of="out_ptr")
    )
    x, dx, w, dw, dout = run(tuned)
    np.testing.assert_array_equal(dx, dout * w)


def test_the_gradient_of_a_tuned_kernel():
    tuned = zg.autotune([zg.Config({"BLOCK": 8})], key=["n"])(scale)
    x, dx, w, dw, dout = run(zg.grad(tuned, wrt=("x_ptr", "w_ptr"), of="out_ptr"), BLOCK=8)
    np.testing.assert_array_equal(dx, dout * w)


def test_the_gradient_of_a_tuned_kernel_has_the_choice_of_the_kernel():
    settings = {"early_config_prune": lambda configs, keywords, **more: configs[1:]}
    configs = [zg.Config({"BLOCK": 8}), zg.Config({"BLOCK": 16})]
    tuned = zg.autotune(configs, key=["n"], prune_configs_by=settings)(scale)
    d_scale = zg.grad(tuned, wrt="x_ptr", of="out_ptr")
    calls = []
    x, w, d_out, d_x = *np.random.default_rng(0).standard_normal((3, 20), np.float32), np.zeros(20, np.float32)
    d_scale[lambda meta: calls.append(meta["BLOCK"]) or (zg.cdiv(20, meta["BLOCK"]),)](
        x, d_x, w, x, d_out, 20, interpret=True
    )
    np.testing.assert_array_equal(d_x, d_out * w)
    tuned._key = lambda arguments, keywords: keywords["n"]  # The key of arrays on a GPU.
    tuned.choices[20] = tuned.tuning.configs[0]
    d_scale[lambda meta: calls.append(meta["BLOCK"]) or (3,)](x, d_x, w, x, d_out, 20, interpret=True)
    assert calls == [16, 8]


@pytest.mark.parametrize("name", ["round", "asin", "acos", "atan", "sinh", "cosh", "log1p", "expm1"])
def test_functions_of_the_library_have_no_divisibility(name):
    kernel = zg.triton_c(f"__global__ void k(double *x, double *y) {{ *y = *x * {name}(*x); }}")
    pointer = zg.divisible(zg.ptr(zg.f64), 16)
    model = zg.grad(kernel, wrt="x", of="y").triton(pointer, pointer, pointer, pointer)
    zg.verify(model)
    *functions, gradient = (function.attributes["divisibility"] for function in model.functions().values())
    assert gradient == (16,) * 4 and functions and not any(functions)


def test_the_gradient_of_a_gradient():
    once = zg.grad(scale, wrt="x_ptr", of="out_ptr")
    twice = zg.grad(once, wrt="w_ptr", of="d_x_ptr")
    assert "d_d_x_ptr" in twice.signature.parameters
    x, w, dout, ddx = np.random.default_rng(0).standard_normal((4, 20), np.float32)
    dw, unused = np.zeros((2, 20), np.float32)
    twice[(3,)](x, unused, ddx, w, dw, unused, dout, 20)  # d_x = d_out · w
    np.testing.assert_array_equal(dw, ddx * dout)


def test_a_change_of_a_global_is_seen():
    global FACTOR
    kernel = zg.grad(scale, wrt=("x_ptr", "w_ptr"), of="out_ptr")
    run(kernel, FORM="sum")
    FACTOR = 3.0
    try:
        with pytest.warns(ZigguratWarning, match="'FACTOR' was 2.0"):
            x, dx, w, dw, dout = run(kernel, FORM="sum")
        np.testing.assert_array_equal(dx, dout * 3)
    finally:
        FACTOR = 2.0
        scale.forget()


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"wrt": "y_ptr", "of": "out_ptr"}, r"'scale' has no parameter 'y_ptr' \(in 'wrt' of zg.grad\)"),
        ({"wrt": "x_ptr", "of": "out_prt"}, r"has no parameter 'out_prt' \(in 'of' of zg.grad\)\n  hint: .*out_ptr"),
        ({"wrt": "x_ptr", "of": "x_ptr"}, r"'x_ptr' must be in 'of' or in 'wrt' of zg.grad; got it in both"),
        ({"wrt": ["x_ptr", "x_ptr"], "of": "out_ptr"}, r"must name each parameter once; got 'x_ptr' twice"),
        ({"wrt": [], "of": "out_ptr"}, r"'wrt' of zg.grad must name a parameter of 'scale'; got none"),
        ({"wrt": "BLOCK", "of": "out_ptr"}, r"'BLOCK' of 'scale' must be an array; it is compiled in"),
        ({"wrt": [1], "of": "out_ptr"}, r"has no parameter 1"),
    ],
)
def test_wrong_names(keywords, message):
    with pytest.raises(LaunchError, match=message):
        zg.grad(scale, **keywords)


def test_other_wrong_arguments():
    with pytest.raises(LaunchError, match=r"zg\.grad takes a kernel; got 3"):
        zg.grad(3, wrt="x", of="y")  # type: ignore[arg-type]


def test_names_of_gradients_are_none_of_the_parameters():
    @zg.kernel
    def clash(x, d_x, d2_x, out):
        zg.store(out, zg.load(x) * zg.load(d_x))

    assert [*zg.grad(clash, wrt="x", of="out").signature.parameters] == ["x", "d3_x", "d_x", "d2_x", "out", "d_out"]


def test_the_second_derivative():
    cube = zg.triton_c("__global__ void cube(double *x, double *y) { *y = *x * *x * *x; }")
    twice = zg.grad(zg.grad(cube, wrt="x", of="y"), wrt="x", of="d_x")
    assert [*twice.signature.parameters] == ["x", "d2_x", "d_x", "d_d_x", "y", "d_y"]
    x, d2_x, d_x, d_d_x, y, d_y = (np.full(1, number) for number in (3.0, 0.0, 0.0, 5.0, 0.0, 2.0))
    twice[1](x, d2_x, d_x, d_d_x, y, d_y)
    assert d2_x[0] == 6 * 3.0 * 2.0 * 5.0


@pytest.mark.parametrize(
    ("wrt", "of", "message"),
    [
        ("n", "out_ptr", "'n' must be an array of floats; got i32"),
        ("out_ptr", "x_ptr", "'x_ptr' in 'of' must be an array that the kernel writes"),
        ("out_ptr", "w_ptr", "'w_ptr' in 'of' must be an array that the kernel writes"),
    ],
)
def test_parameters_that_do_not_fit(wrt, of, message):
    kernel = zg.grad(scale, wrt=wrt, of=of)
    types = {"x_ptr": f32, "w_ptr": f32, "out_ptr": f32, "n": i32, "BLOCK": 8}
    types |= {f"d_{name}": types[name] for name in (wrt, of)}
    with pytest.raises((KernelTypeError, LaunchError), match=message):
        kernel.triton(**types)


def test_arrays_of_integers_and_of_other_types():
    kernel = zg.grad(scale, wrt="x_ptr", of="out_ptr")
    with pytest.raises(KernelTypeError, match=r"'x_ptr' must be an array of floats; got ptr<i32>"):
        kernel.triton(zg.ptr(zg.i32), zg.ptr(zg.i32), f32, f32, f32, i32, 8)
    with pytest.raises(LaunchError, match=r"'d_x_ptr' of 'd_scale' must be of the type of 'x_ptr', ptr<f32>; got"):
        kernel.triton(f32, zg.ptr(zg.f64), f32, f32, f32, i32, 8)


def test_an_array_that_is_only_written_has_no_gradient_of_its_own():
    @zg.kernel
    def copy(x, rest, out):
        value = zg.load(x)
        zg.store(rest, value)
        zg.store(out, value)

    with pytest.raises(KernelTypeError, match="'rest' in 'wrt' must be an array that the kernel reads"):
        zg.grad(copy, wrt="rest", of="out").triton(f32, f32, f32, f32, f32)


def test_it_is_no_python_function():
    kernel = zg.grad(scale, wrt="x_ptr", of="out_ptr")
    with pytest.raises(LaunchError, match="is a kernel, which must be launched"):
        kernel(1)
    with pytest.raises(LaunchError, match="is not a Python function"):
        kernel.fn()
    assert repr(kernel).startswith("<kernel d_scale(x_ptr, d_x_ptr")


def test_a_pickle_is_not_offered():
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(zg.grad(scale, wrt="x_ptr", of="out_ptr"))


def test_names_must_be_names():
    with pytest.raises(zg.KernelTypeError, match=r"'wrt' of zg\.grad must name parameters; got 3"):
        zg.grad(scale, wrt=3, of="out_ptr")


def test_the_gradient_of_a_kernel_of_triton_c_has_its_declared_types():
    scale = zg.triton_c("""
    __global__ void scale(float *x, float *out, double s, half h, long n) {
      int i[SIZE] = 0 ... SIZE;
      *(out + i) = *(x + i) * s * h * n;
    }""")
    d_scale = zg.grad(scale, wrt="x", of="out")
    x, d_x = np.ones(8, np.float32), np.zeros(8, np.float32)
    d_scale[1](x, d_x, x, x, 0.1, 2.5, 3, SIZE=8)
    assert np.array_equal(d_x, np.full(8, 0.1 * 2.5 * 3, np.float32))
    compiled = d_scale.compile(SIZE=8, num_warps=1)
    assert [str(argument.type) for argument in compiled.arguments] == ["ptr<f32>"] * 4 + ["f64", "f16", "i64"]
    assert d_scale.accumulates(SIZE=8) == {"d_x": False}


def test_the_second_gradient_where_the_first_one_is_zero():
    """The derivative of dy · f'(x) by dy is f'(x), where dy is zero as well."""

    @zg.kernel
    def kernel(x, y, n, BLOCK: zg.constexpr):
        at = zg.arange(0, BLOCK)
        mask = zg.less(at, n)
        value = zg.load(zg.add(x, at), mask, 0.0)
        zg.store(zg.add(y, at), zg.mul(zg.exp(value), zg.log(value)), mask)

    twice = zg.grad(zg.grad(kernel, wrt="x", of="y"), wrt=("x", "d_y"), of="d_x")
    x, d_y, ones = np.linspace(0.5, 2.0, 5), np.array([0.0, 1.0, -2.0, 0.0, 3.0]), np.ones(5)
    d2_x, d_d_y = np.zeros((2, 5))
    twice[1](x, d2_x, np.zeros(5), ones, np.zeros(5), d_y, d_d_y, 5, BLOCK=8)
    np.testing.assert_allclose(d_d_y, np.exp(x) * (np.log(x) + 1 / x))
    np.testing.assert_allclose(d2_x, d_y * np.exp(x) * (np.log(x) + 2 / x - 1 / x**2), atol=1e-12)


def tuned_scale(configs, **settings):
    """A tuned kernel, and the values of BLOCK that launches of its gradient get, for arrays in memory."""
    blocks = []

    def grid(meta):
        blocks.append(meta["BLOCK"])
        return (zg.cdiv(20, meta["BLOCK"]),)

    tuned = zg.autotune([zg.Config({"BLOCK": size}) for size in configs], key=["n"], quiet=True, **settings)(scale)
    return tuned, blocks, grid


def test_a_launch_may_give_what_is_tuned_or_leave_it_to_the_choice():
    keeps = {"early_config_prune": lambda configs, arguments, **more: configs[1:]}
    tuned, blocks, grid = tuned_scale((8, 16), prune_configs_by=keeps)
    kernel = zg.grad(tuned, wrt="x_ptr", of="out_ptr")
    assert kernel.tuned is tuned and kernel.tuning is tuned.tuning
    x, w, d_out, d_x = *np.random.default_rng(0).standard_normal((3, 20), np.float32), np.zeros(20, np.float32)
    launch = kernel[grid]
    for arguments, keywords, block in (
        ((x, d_x, w, x, d_out, 20), {}, 16),
        ((x, d_x, w, x), {"d_out_ptr": d_out, "n": 20}, 16),
        ((x, d_x, w, x, d_out, 20), {"BLOCK": 4}, 4),
        ((x, d_x, w, x, d_out, 20, 32), {}, 32),
        ((x, d_x, w, x, d_out, 20), {"FORM": "product", "strict": True}, 16),
    ):
        blocks.clear()
        d_x[:] = 0
        launch(*arguments, **keywords)
        np.testing.assert_array_equal(d_x, d_out * w)
        assert set(blocks) == {block}


@pytest.mark.parametrize("size", [20, 32])
def test_heuristics_of_the_kernel_compute_for_its_gradient_as_well(size: int):
    """`SIZE` follows from the configuration and `EVEN` from both; a launch that gives them has its own values."""

    @zg.kernel
    def scaled(x, w, out, n, BLOCK: zg.constexpr, SIZE: zg.constexpr, EVEN: zg.constexpr):
        at = zg.program_id(0) * SIZE + zg.arange(0, SIZE)
        inside = None if EVEN else zg.less(at, n)
        zg.store(out + at, zg.load(x + at, inside) * zg.load(w + at, inside), inside)

    sizes: list[int] = []

    def size_of(arguments):
        sizes.append(2 * arguments["BLOCK"])
        return sizes[-1]

    computed = {"SIZE": size_of, "EVEN": lambda arguments: arguments["n"] % arguments["SIZE"] == 0}
    tuned = zg.autotune([zg.Config({"BLOCK": 8}), zg.Config({"BLOCK": 4})], key=["n"])(zg.heuristics(computed)(scaled))
    kernel = zg.grad(tuned, wrt="x", of="out")
    x, w, d_out = np.random.default_rng(0).standard_normal((3, size), np.float32)
    for keywords, expected in (({}, [16]), ({"BLOCK": 2}, [4]), ({"BLOCK": 2, "SIZE": 4, "EVEN": False}, [])):
        d_x = np.zeros(size, np.float32)
        sizes.clear()
        kernel[lambda meta: (zg.cdiv(size, meta["SIZE"]),)](x, d_x, w, x, d_out, size, **keywords)
        np.testing.assert_array_equal(d_x, d_out * w)
        assert sizes == expected


def test_the_options_of_the_choice_are_those_of_the_launch():
    """Its keywords decide, and the arguments that select it are the kernel's own and the launch's options."""
    calls, own = [], []
    tuned = zg.autotune([zg.Config({"BLOCK": 8}, num_warps=2)], key=["n"])(scale)
    kernel = zg.grad(tuned, wrt="x_ptr", of="out_ptr")
    choose = tuned.known_settings
    tuned.known_settings = lambda arguments: own.append(arguments) or choose(arguments)
    run = zg.Kernel.__getitem__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zg.Kernel, "__getitem__", lambda kernel, grid: lambda *a, **k: calls.append((grid, a, k)))
        kernel[(3,)]("x", "d_x", "w", "out", "d_out", 20)
        kernel[(3,)]("x", "d_x", "w", "out", "d_out", n=20, num_warps=8)
    arguments = ("x", "d_x", "w", "out", "d_out")
    assert calls == [
        ((3,), (*arguments, 20), {"BLOCK": 8, "num_warps": 2}),
        ((3,), arguments, {"BLOCK": 8, "n": 20, "num_warps": 8}),
    ]
    first = {"x_ptr": "x", "w_ptr": "w", "out_ptr": "out", "n": 20}
    assert own == [first, {**first, "num_warps": 8}] and zg.Kernel.__getitem__ is run


def test_gradients_of_arguments_that_are_not_specialized_are_not_either():
    kernel = zg.kernel(scale.fn, do_not_specialize=["x_ptr", "n"])
    assert zg.grad(kernel, wrt="x_ptr", of="out_ptr").do_not_specialize == {"x_ptr", "d_x_ptr", "n"}
    assert zg.grad(kernel, wrt="w_ptr", of="out_ptr").do_not_specialize == {"x_ptr", "n"}
    assert zg.grad(scale, wrt="x_ptr", of="out_ptr").do_not_specialize == frozenset()


def test_gradients_are_added_to_where_programs_share_elements():
    @zg.kernel
    def shared(x, w, out, n, BLOCK: zg.constexpr):
        at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
        zg.store(zg.add(out, at), zg.mul(zg.load(zg.add(x, at)), zg.load(w)))

    kernel = zg.grad(shared, wrt=("w", "x"), of="out")
    assert kernel.accumulates(f32, f32, f32, f32, f32, f32, i32, 8) == {"d_w": True, "d_x": False}
    assert kernel.gradient("w") == "d_w" and kernel.gradient("out") == "d_out"


def test_divisors_are_those_of_the_parameters_and_of_their_gradients():
    kernel = zg.grad(scale, wrt="x_ptr", of="out_ptr")
    plain = kernel.triton(f32, f32, f32, f32, f32, i32, 8)
    (function,) = plain.functions().values()
    assert not function.divisibility
    one = kernel.triton(f32, f32, f32, f32, f32, zg.divisible(i32, 16), 8)
    (function,) = one.functions().values()
    assert function.divisibility == (1, 1, 1, 1, 1, 16) and zg.verify(one) is None


def test_arrays_in_tuples_have_no_gradient():
    @zg.kernel
    def pairs(pair, out, B: zg.constexpr):
        zg.store(out, zg.load(pair[0]))

    kernel = zg.grad(pairs, wrt="pair", of="out")
    with pytest.raises(LaunchError, match=r"'pair' of 'pairs' must be an array; got"):
        kernel.triton((f32, f32), (f32, f32), f32, f32, 8)


@pytest.mark.parametrize("names", ["BLOCK", ("w_ptr", "BLOCK")])
def test_what_is_compiled_in_has_no_gradient(names):
    with pytest.raises(LaunchError, match="'BLOCK' of 'scale' must be an array; it is compiled in") as error:
        zg.grad(scale, wrt=names, of="out_ptr")
    assert error.value.hint.startswith("scale(x_ptr")
    for wrt in ([], ("x_ptr", "w_ptr", "x_ptr")):
        with pytest.raises(LaunchError, match=r"'wrt' of zg\.grad must name"):
            zg.grad(scale, wrt=wrt, of="out_ptr")
