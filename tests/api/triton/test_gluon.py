"""Gluon's names: what a library needs to be imported, and the refusal of its kernels."""

import numpy as np
import pytest

import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.triton.experimental import gluon
from ziggurat.triton.experimental.gluon import language as gl
from ziggurat.triton.language.core import _aggregate as aggregate
from ziggurat.triton.language.extra import libdevice

LAYOUT: gl.constexpr = gl.constexpr(gl.BlockedLayout([1], [32], warps_per_cta=[4], order=[0]))


@gluon.constexpr_function
def sliced(axis):
    return gl.SliceLayout(axis, LAYOUT.value)


@aggregate
class Buffers:
    memory: gl.shared_memory_descriptor
    layout: gl.constexpr

    @gluon.constexpr_function
    def __init__(self, memory, layout):
        self.memory = memory
        self.layout = gl.constexpr(layout)

    @gluon.jit
    def first(self):
        return self.memory.index(0)


@gluon.jit
def filled(x_ptr, n, layout: gl.constexpr, memory: gl.shared_memory_descriptor = None):
    i = gl.arange(0, 32, layout=layout)
    shared = gl.allocate_shared_memory(gl.float32, [32], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    gl.store(x_ptr + i, 1.0)


@gluon.jit(do_not_specialize=["n"])
def plain(x_ptr, n):
    gl.store(x_ptr, n)


@triton.jit
def calling(x_ptr, n):
    plain(x_ptr, n)


def test_values_of_modules():
    assert repr(LAYOUT.value) == "BlockedLayout([1], [32], warps_per_cta=[4], order=[0])"
    assert isinstance(LAYOUT.value, gl.BlockedLayout) and isinstance(sliced(0), gl.SliceLayout)
    assert (gl.constexpr, gl.float32, gl.program_id) == (tl.constexpr, tl.float32, tl.program_id)
    assert gl.extra.libdevice.tanh is libdevice.tanh
    assert filled.is_gluon() and not calling.is_gluon() and isinstance(filled, triton.JITFunction)
    assert filled.__globals__ is globals() and filled.src.startswith("def filled(")
    assert [name for name in filled.arg_names if name in ("layout", "n")] == ["n", "layout"]


@pytest.mark.parametrize(
    "use",
    [
        lambda x: filled[(1,)](x, 3, LAYOUT),
        lambda x: filled[(1,)](x, 3, LAYOUT, interpret=True),
        lambda x: filled[(1,)](x, 3, LAYOUT, strict=True),
        lambda x: filled.warmup(x, 3, LAYOUT, grid=(1,)),
        lambda x: triton.autotune([triton.Config({}), triton.Config({}, num_warps=8)], key=[])(filled)[(1,)](x, 3, 1),
        lambda x: filled.compile(),
        lambda x: filled.model,
        lambda x: filled.cache_key,
    ],
)
def test_a_kernel_is_refused_when_it_is_needed(use):
    with pytest.raises(triton.CompilationError, match="'filled' is a function in Gluon") as info:
        use(np.zeros(32, np.float32))
    assert "it uses allocate_shared_memory, SwizzledSharedLayout" in str(info.value)
    assert "under @triton.jit" in str(info.value) and __file__ in str(info.value)


def test_a_call_from_a_kernel_is_refused():
    x = np.zeros(32, np.float32)
    with pytest.raises(triton.CompilationError, match="'plain' is a function in Gluon"):
        calling[(1,)](x, 3)
    with pytest.raises(triton.CompilationError, match="'plain' is a function in Gluon"):
        plain[(1,)](x, 3)


def test_an_op_is_refused_outside_of_a_kernel():
    with pytest.raises(TypeError, match="ziggurat does not have Gluon's op 'warp_specialize'"):
        gl.warp_specialize([])
    with pytest.raises(AttributeError, match=r"ziggurat has no 'gluon\.language\.absent'"):
        gl.absent


def test_modules_of_one_maker_s_gpus():
    from ziggurat.triton.experimental.gluon.language.nvidia import blackwell
    from ziggurat.triton.experimental.gluon.language.nvidia.ampere import async_copy
    from ziggurat.triton.experimental.gluon.language.nvidia.blackwell import TensorMemoryLayout, tcgen05_mma

    assert repr(TensorMemoryLayout([128, 64], col_stride=1)) == "TensorMemoryLayout([128, 64], col_stride=1)"
    assert gl.nvidia.blackwell is blackwell and blackwell.TensorMemoryLayout is TensorMemoryLayout
    for call in (tcgen05_mma, async_copy.wait_group, gl.amd.cdna4.mfma):
        with pytest.raises(TypeError, match="ziggurat does not have Gluon's op"):
            call(0)


def test_functions_of_cuda_are_those_of_tl():
    from ziggurat.triton.experimental.gluon.language import extra
    from ziggurat.triton.experimental.gluon.language.extra import libdevice

    assert extra is gl.extra and extra.libdevice is libdevice is triton.language.extra.libdevice


def test_a_name_of_one_makers_gpus_can_be_a_module():
    with pytest.raises(TypeError, match=r"Gluon's op 'nvidia\.hopper\.cluster\.arrive'"):
        gl.nvidia.hopper.cluster.arrive(relaxed=True)
