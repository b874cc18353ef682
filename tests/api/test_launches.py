"""Launches of kernels through the compiler, the cache on disk and the runtime, without a GPU."""

from __future__ import annotations

import pytest

import ziggurat as zg
from ziggurat.backend.cuda import cache
from ziggurat.backend.cuda.launch import Dispatcher
from ziggurat.backend.cuda.specialize import MISSING, ConstantArgument, RunTime, Specialization
from ziggurat.launches.gpu import GpuKernel


@pytest.fixture
def kernel():
    @zg.kernel(do_not_specialize="m")
    def shift(x_ptr, n, m, BLOCK: zg.constexpr = 32):
        at = zg.add(zg.add(x_ptr, zg.arange(0, BLOCK)), n)
        zg.store(at, zg.add(zg.load(at), m))

    return shift


@pytest.fixture
def store(tmp_path, monkeypatch):
    """The cache on disk, in a folder of the test."""
    store = cache.Cache(tmp_path)
    monkeypatch.setattr(cache, "Cache", lambda: store)
    return store


def spec(n=None, block=32, **options):
    argument = RunTime("n", zg.i32) if n is None else ConstantArgument("n", n, zg.i32)
    arguments = (RunTime("x_ptr", zg.ptr(zg.f32), 16), argument, RunTime("m", zg.f32), ConstantArgument("BLOCK", block))
    return Specialization(arguments, "sm_80", tuple(options.items()))


def test_a_kernel_is_compiled_for_the_arguments_and_the_options(kernel, store):
    binary = GpuKernel(kernel).built(spec(num_warps=2))
    assert (binary.name, binary.target, binary.num_warps) == ("shift", "sm_80", 2)
    assert [parameter.kind for parameter in binary.parameters] == ["ptr", "i32", "f32"]
    (signature,) = kernel._models
    assert signature.divisibility == (16, 1, 1)


def test_what_is_on_disk_is_not_compiled_again(kernel, store, monkeypatch):
    first = GpuKernel(kernel).built(spec())
    assert len(store.entries()) == 1

    def compiles(*_, **__):
        raise AssertionError("it was compiled again")

    monkeypatch.setattr("ziggurat.compiler.pipeline.compile_model", compiles)
    assert GpuKernel(kernel).built(spec()) == first
    with pytest.raises(AssertionError, match="compiled again"):
        GpuKernel(kernel).built(spec(num_warps=8))


def test_an_integer_whose_value_is_known_keeps_its_type_and_its_place(kernel, store):
    binary = GpuKernel(kernel).built(spec(n=1))
    signatures = list(kernel._models)
    assert signatures[0].types[1] == zg.i32, "the model is that of any integer"
    assert binary.code != GpuKernel(kernel).built(spec()).code


def test_the_dispatcher_knows_the_parameters(kernel):
    dispatcher = Dispatcher(GpuKernel(kernel))
    assert [(p.name, p.constexpr, p.specialize) for p in dispatcher.parameters] == [
        ("x_ptr", False, True),
        ("n", False, True),
        ("m", False, False),
        ("BLOCK", True, True),
    ]
    assert dispatcher.parameters[0].default is MISSING and dispatcher.parameters[3].default == 32
    assert dispatcher.name == "shift"


def test_components_of_tuples_have_names_of_their_own(fake):
    """None is that of a parameter or of another component."""

    def both(pair, pair_0, pair_1_):
        zg.store(pair_0, pair[0])
        zg.store(pair_1_, pair[1][0])

    own = GpuKernel(zg.kernel(both), ((None, (None, None)), None, None))
    assert [p.name for p in own.parameters] == ["pair_0_", "pair_1", "pair_2", "pair_0", "pair_1_"]
