"""Kernels with passes of one's own: launches and everything else are of the models after them."""

import pickle

import ml_dtypes
import numpy as np
import pytest

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat import kit
from ziggurat.backend.cache.records import Records
from ziggurat.codemodel.dialects import arith, py, tt
from ziggurat.codemodel.gpu.options import DEFAULT_OPTIONS

X = np.linspace(-2, 2, 100).astype(np.float32)
FACTOR = 2.0


@zg.kernel
def square(x, out, n, BLOCK: zg.constexpr):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    mask = zg.compare(at, n, zg.CompareKind.LESS_THAN)
    value = zg.load(zg.add(x, at), mask)
    zg.store(zg.add(out, at), zg.mul(value, value), mask)


@triton.jit
def in_triton(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.device_assert(at >= 0)
    value = tl.load(x + at, at < n)
    tl.store(out + at, value * value, at < n)


def scaled(model):
    """What is stored, times a factor."""

    def change(builder, op, operands):
        if isinstance(op, tt.Store):
            pointer, value, *mask = operands
            factor = builder.add(arith.ConstantOp(FACTOR, value.type))
            return builder.copy(op, [pointer, builder.add(arith.MulF(value, factor)), *mask])
        return None

    return zg.transform(model, change)


def adding(model):
    return kit.replace_calls(model, "zg.mul", lambda builder, values: builder.add(py.Invoke(values, "zg.add")))


twice = square.with_passes(scaled)


def result(kernel, x=X, grid=(2,), **options):
    out = np.zeros_like(x)
    kernel[grid](x, out, len(x), **options)
    return out


def test_every_way_to_run_a_kernel_has_its_passes():
    expected = 2 * X * X
    for kernel in (twice, in_triton.with_passes(scaled)):
        for options in ({}, {"interpret": True}, {"strict": True}):
            np.testing.assert_allclose(result(kernel, BLOCK=64, **options), expected, rtol=1e-6)
    np.testing.assert_allclose(result(in_triton.with_passes(scaled), BLOCK=64, debug=True), expected, rtol=1e-6)
    np.testing.assert_allclose(result(square, BLOCK=64), X * X, rtol=1e-6)  # It is what it was.
    np.testing.assert_allclose(result(twice.with_passes(scaled), BLOCK=64), 2 * expected, rtol=1e-6)
    np.testing.assert_allclose(result(square.with_passes(adding, at="python"), BLOCK=64), X + X, rtol=1e-6)
    np.testing.assert_allclose(result(twice.with_passes(adding, at="python"), BLOCK=64), 4 * X, rtol=1e-6)
    types = zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, 64
    assert str(twice.triton(*types)) == str(scaled(square.triton(*types)))
    compiled = twice.compile(*types)
    assert compiled.ptx.count(".f32") > square.compile(*types).ptx.count(".f32")
    assert str(compiled.stages["triton"]) == str(twice.triton(*types))
    narrow = X.astype(ml_dtypes.bfloat16)
    np.testing.assert_allclose(result(twice, narrow, BLOCK=64).astype(np.float32), expected, rtol=2e-2, atol=1e-2)
    warmed = in_triton.with_passes(scaled).warmup(X, X, 100, BLOCK=64, grid=(2,))
    assert warmed.asm["ttir"].count("arith.mulf") == 2


def test_gradients_of_kernels_with_passes():
    gradient = np.zeros_like(X)
    zg.grad(twice, "x", "out")[(2,)](X, gradient, X, np.ones_like(X), 100, 64)
    np.testing.assert_allclose(gradient, 4 * X, rtol=1e-5)
    gradient[:] = 0
    d_square = zg.grad(square, "x", "out").with_passes(lambda model: model)
    d_square[(2,)](X, gradient, X, np.ones_like(X), 100, 64)
    np.testing.assert_allclose(gradient, 2 * X, rtol=1e-5)


def test_tuned_kernels_with_passes(monkeypatch, tmp_path):
    monkeypatch.setenv("ZIGGURAT_CACHE_DIR", str(tmp_path))
    calls, unknown = [], object()

    def measure(run):
        calls.append(run())
        return 1.0

    configs = [zg.Config({"BLOCK": 32}), zg.Config({"BLOCK": 64})]
    tuned = zg.autotune(configs, key=["n"], measure=measure)(square)

    def grid(meta):
        return (zg.cdiv(100, meta["BLOCK"]),)

    np.testing.assert_allclose(result(tuned, grid=grid), X * X, rtol=1e-6)
    for pass_, measures in ((scaled, True), (scaled, False), (lambda model: scaled(model), True)):
        kernel, count = tuned.with_passes(pass_), len(calls)
        np.testing.assert_allclose(result(kernel, grid=grid), 2 * X * X, rtol=1e-6)
        assert (len(calls) > count) == measures and [*kernel.choices] != []  # Equal passes share the choices on disk.
    with_object = tuned.with_passes(lambda model: unknown and model)
    assert with_object.identity is None
    count = len(list(Records().all()))
    result(with_object, grid=grid)
    assert len(list(Records().all())) == count  # Nothing says that another process has the same object.
    of_triton = triton.autotune([triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64})], key=["n"])(in_triton)
    np.testing.assert_allclose(result(of_triton.with_passes(scaled), grid=grid), 2 * X * X, rtol=1e-6)


def test_the_identity_of_passes_follows_what_they_name(monkeypatch):
    identity = twice.identity
    assert square.with_passes(scaled).identity == identity != square.identity
    assert square.with_passes(("scaled", adding)).identity != identity
    key = in_triton.with_passes(scaled).cache_key
    assert key == in_triton.with_passes(scaled).cache_key != in_triton.cache_key
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert square.with_passes(scaled).identity != identity
    copies = [pickle.loads(pickle.dumps(kernel)) for kernel in (twice, in_triton.with_passes(scaled))]
    assert [copy.passes[0].function for copy in copies] == [scaled, scaled]


class Adding:
    """A pass with a number, to the stores of a model of any tier."""

    SIGN = 1

    def __init__(self, number):
        self.number = number

    def __call__(self, model):
        def change(builder, op, operands):
            if isinstance(op, tt.Store):
                pointer, value, *mask = operands
                number = builder.add(arith.ConstantOp(self.SIGN * self.number, value.type))
                return builder.copy(op, [pointer, builder.add(arith.AddF(value, number)), *mask])
            return None

        return zg.transform(model, change)


def test_passes_on_the_way_to_a_gpu(monkeypatch, tmp_path):
    monkeypatch.setenv("ZIGGURAT_CACHE_DIR", str(tmp_path))
    types = zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, 64
    for kernel, at in ((square, "layouts"), (in_triton, "schedule.expand")):
        assert "Adding" in zg.bisect(kernel.with_passes(Adding(3.0), at=at), 2, X, np.zeros_like(X), len(X), 64).steps
        kernel = kernel.with_passes(Adding(3.0), at=at).with_passes(scaled)
        compiled = kernel.compile(*types)
        out = np.zeros_like(X)
        compiled.simulate[2](X, out, len(X))
        np.testing.assert_allclose(out, 2 * X * X + 3, rtol=1e-6)
        assert [snapshot.name for snapshot in compiled.passes].count("Adding") == 1
        with pytest.warns(zg.ZigguratWarning, match=f"runs here without its pass 'Adding', which is at '{at}'"):
            np.testing.assert_allclose(result(kernel, BLOCK=64), 2 * X * X, rtol=1e-6)
        assert pickle.loads(pickle.dumps(kernel)).passes[0].function.number == 3
    assert zg.grad(square.with_passes(Adding(3.0), at="layouts"), "x", "out").passes[0].at == "layouts"
    with pytest.raises(zg.KernelTypeError, match="must leave the parameters of 'square'"):
        square.with_passes(lambda model: kit.retype(model, {zg.f32: zg.bf16}), at="tiles").compile(*types)
    with pytest.raises(zg.LaunchError, match="has passes on the way to a GPU, which a library is built without"):
        zg.variant(square.with_passes(Adding(3.0), at="layouts"), *types)


def test_code_is_kept_by_the_later_passes(monkeypatch):
    unknown = object()
    same, other = Adding(3.0), Adding(4.0)
    options = [
        square.with_passes(function, at=at).settings(DEFAULT_OPTIONS)
        for function, at in (
            (Adding(3.0), "layouts"), (same, "layouts"), (other, "layouts"), (same, "memory"),
            (lambda model: unknown and model, "layouts"),
        )
    ]  # fmt: skip
    keys = [settings.key for settings in options]
    assert keys[0] == keys[1] and len(set(keys)) == 4
    assert [settings.is_kept for settings in options] == [True] * 4 + [False]
    assert options[0].plain.key == square.settings(options[0].plain).key
    monkeypatch.setattr(Adding, "SIGN", -1)
    assert square.with_passes(same, at="layouts").identity != square.with_passes(same).identity
    assert square.with_passes(Adding(3.0), at="layouts").settings(options[0].plain).key != keys[0]
    rules = [kit.Rules("zeros") for _ in range(3)]
    for group, rule in zip(rules, (lambda builder, x: x, lambda builder, x: x, lambda builder, x: None), strict=True):
        group.add(kit.op_(arith.AddI, kit.capture("x"), kit.constant(value=0)), rule)
    first, second, third = (square.with_passes(group).identity for group in rules)
    assert first is not None and first != third


def test_passes_that_are_refused():
    cases = [
        ((3,), {}, "a pass must be a function from model to model"),
        ((scaled,), {"at": "gpu"}, "'at' must be one of python, triton, tiles, layouts, .*; got 'gpu'"),
        ((scaled,), {"at": "expand"}, r"(?s)got 'expand'.*did you mean 'schedule.expand'?"),
    ]
    for passes, options, message in cases:
        with pytest.raises((zg.LaunchError, TypeError), match=message):
            square.with_passes(*passes, **options)
    for pass_, message in (
        (lambda model: None, "must give a model, the module that the kernel is in; got None"),
        (
            lambda model: kit.retype(model, {zg.f32: zg.bf16}),
            r"must leave the parameters of 'square' .*; got \(ptr<bf16>",
        ),
        (lambda model: kit.kernel_of(model), "the module that the kernel is in; got"),
    ):
        with pytest.raises(zg.KernelTypeError, match=message):
            result(square.with_passes(pass_), BLOCK=64)
    with pytest.raises(ZeroDivisionError):  # The error of a pass is that of its author.
        result(square.with_passes(lambda model: 1 / 0), BLOCK=64)
    with pytest.raises(zg.LaunchError, match="'calling' calls 'square', whose passes are of launches of it alone"):
        result(calling, BLOCK=64)
    with pytest.raises(zg.LaunchError, match="is no Python function; got at='python'"):
        zg.grad(square, "x", "out").with_passes(adding, at="python")


@zg.kernel
def calling(x, out, n, BLOCK: zg.constexpr):
    twice(x, out, n, BLOCK)
