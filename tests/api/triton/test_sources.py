"""Sources with signatures, the accesses that PyTorch asks for, options, and tensors that stand for others."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from libraries import require

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.codemodel.errors import LaunchError, ZigguratWarning
from ziggurat.codemodel.types import DescriptorType, PtrType, TupleType
from ziggurat.triton import knobs
from ziggurat.triton._C import libtriton
from ziggurat.triton.backends.compiler import GPUTarget
from ziggurat.triton.compiler.accesses import AccessModule
from ziggurat.triton.compiler.signatures import declared_of, scalar_of, type_of
from ziggurat.triton.runtime import triton_options
from ziggurat.triton.runtime.tensors import MockTensor, TensorWrapper, is_host_tensor, reinterpret
from ziggurat.triton.tools.tensor_descriptor import TensorDescriptor

H100 = GPUTarget("cuda", 90, 32)


@triton.jit
def scale(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) * factor, mask=at < n)


TYPES = {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "factor": "fp32", "BLOCK": "constexpr"}


def source(kernel=scale, types=TYPES, constants=(("BLOCK", 16),), attributes=()):
    return triton.compiler.ASTSource(kernel, types, dict(constants), dict(attributes))


# Sources.


def test_a_signature_of_texts():
    attributes = {
        (0,): [["tt.divisibility", 16], ["tt.other", 64]],
        (2,): [["tt.divisibility", 4], ["tt.divisibility", 8]],
    }
    signature = source(attributes=attributes, constants={"BLOCK": 16, (3,): 2.0}).compiled_signature()
    assert list(map(str, signature.types[:3])) == ["ptr<f32>", "ptr<f32>", "i32"]
    assert signature.divisibility == (16, 1, 8)  # A constant has none.
    assert [str(type_) for type_ in signature.types[3:]] == ['constant<f32, "2.0">', "constant<i32, c16>"]


def test_tuples_in_signatures():
    @triton.jit
    def first(pair, out):
        tl.store(out, pair[0])

    types = {"pair": ("i32", ("fp32", "constexpr")), "out": "*i32"}
    own = source(first, types, {(0, 1, 1): 7}, {(0, 0): [["tt.divisibility", 16]]})
    signature = own.compiled_signature()
    assert str(signature.types[0]) == "Tuple<i32, Tuple<f32, constant<i32, c7>>>" or "c7" in str(signature.types[0])
    assert signature.divisibility == (16, 1, 1) and own.constants == {(0, 1, 1): 7}


class Pair(NamedTuple):
    x: Any
    out: Any


def test_named_tuples_in_signatures():
    @triton.jit
    def copy(pair):
        tl.store(pair.out, tl.load(pair.x))

    types = Pair("*fp32", "*fp32")
    compiled = triton.compile(source(copy, {"pair": types}, {}), target=GPUTarget("cpu", 0, 32))
    assert compiled.src.signature == {"pair": types} and type(compiled.src.signature["pair"]) is Pair
    assert str(type_of(types)) == "Pair<ptr<f32>, ptr<f32>>"


def test_the_source_of_a_compiled_kernel():
    compiled = scale.warmup(np.zeros(16, np.float32), MockTensor(np.dtype("f4")), 48, 2.0, BLOCK=16, grid=(1,))
    own = compiled.src
    assert own.attrs == {(place,): [["tt.divisibility", 16]] for place in (0, 1, 2)}
    assert own.constants == {(4,): 16} and own.signature == TYPES and own.ext == "ttir"
    odd = scale.warmup(np.zeros(16, np.float32), MockTensor(np.dtype("f4")), 7, 2.0, BLOCK=16, grid=(1,)).src
    assert (2,) not in odd.attrs


def test_hashes_of_sources_tell_them_apart():
    own = source().hash()
    assert own == source().hash() and len(own) == 64
    others = [
        source(constants={"BLOCK": 32}), source(types={**TYPES, "n": "i64"}), source(kernel=triton.jit(stored)),
        source(attributes={(0,): [["tt.divisibility", 16]]}),
    ]  # fmt: skip
    assert len({own, *(other.hash() for other in others)}) == 5


def stored(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    tl.store(out_ptr + n, factor)


def test_names_in_signatures():
    with pytest.raises(TypeError, match="Signature keys must be string"):
        source(types={None: "*fp32"})
    own = source(constants={"BLOCK": 16, (3,): None})
    assert own.constants == {(4,): 16, (3,): None} and own.parse_options() == {}


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("fp32", zg.f32), (" tl.float32 ", zg.f32), ("int32_t", zg.i32), ("float", zg.f32), ("*i8", PtrType(zg.i8)),
        ("const *fp32", PtrType(zg.f32, const=True)), ("*kfp32", PtrType(zg.f32, const=True)),
        ("float *", PtrType(zg.f32)), ("tensordesc<fp16[16, 32]>", DescriptorType((16, 32), zg.f16)),
        (["i32", ("*fp16",)], TupleType((zg.i32, TupleType((PtrType(zg.f16),))))),
    ],
)  # fmt: skip
def test_texts_of_types(text, type_):
    assert type_of(text) == type_


@pytest.mark.parametrize("text", ["fp33", "", "*", "tensordesc<fp16>", "pointer"])
def test_texts_that_are_no_types(text):
    with pytest.raises(LaunchError, match=r"the type of an argument must be one of .*fp32.*; got"):
        type_of(text)


def test_annotations_that_declare_dtypes():
    for annotation in ("tl.int64", "'int64'", "int64_t", " triton.language.int64", tl.int64, zg.i64):
        assert declared_of(annotation) == zg.i64
    assert declared_of(np.float64) == scalar_of("double") == zg.f64
    for annotation in (tl.constexpr, "tl.constexpr", "tensor", "", object(), None):
        assert declared_of(annotation) is None


# The accesses.


@triton.jit
def accesses_both(x, described, z, n):
    described.store([0, 0], tl.zeros([16, 16], tl.float32))
    tl.store(x + n, tl.load(z))


@triton.jit
def copies(x, out):
    tl.store(out, tl.load(x))


def visited(own):
    """The ops of a module of accesses: the name, and the number of the parameter that it accesses."""
    ops = []
    own.walk(ops.append)
    return [(op.get_name(), *(op.get_operand(place).id() for place in range(op.get_num_operands()))) for op in ops], ops


def test_accesses_by_parameters():
    """A descriptor is a pointer, two sizes and two strides in Triton's functions."""
    types = {"x": "*fp32", "described": "tensordesc<fp32[16, 16]>", "z": "*fp32", "n": "i32"}
    own = source(accesses_both, types, {}).make_ir(H100, None, None, None, None)
    assert isinstance(own, AccessModule) and own.verify() and own.name == "accesses_both"
    names, ops = visited(own)
    stores = [("tt.store", 0), ("tt.store", 1)]
    assert names == [("tt.load", 6), *stores, *stores, ("tt.return",), ("tt.func",)]
    load, function = ops[0], ops[-1]
    block = load.get_block()
    assert block.get_num_arguments() == 8 and [block.get_argument(n).id() for n in range(8)] == [*range(8)]
    assert function.get_block() is None and function.get_num_regions() == 1 and load.get_num_regions() == 0
    assert function.get_region(0).id() == block.get_parent().id() == block.id() == 0
    assert function.get_str_attr("sym_name") == "accesses_both" and load.get_num_results() == 0


def test_one_store_is_one():
    own = source(copies, {"x": "*fp32", "out": "*fp32"}, {}).make_ir(H100, None, None, None, None)
    assert visited(own)[0] == [("tt.load", 0), ("tt.store", 1), ("tt.return",), ("tt.func",)]
    twice = triton.jit(stores_twice)
    own = source(twice, {"x": "*fp32", "out": "*fp32"}, {}).make_ir(H100, None, None, None, None)
    assert visited(own)[0][:2] == [("tt.store", 1)] * 2
    nothing = source(triton.jit(does_nothing), {"x": "*fp32"}, {}).make_ir(H100, None, None, None, None)
    assert visited(nothing)[0] == [("tt.return",), ("tt.func",)]


def stores_twice(x, out):
    tl.store(out, 1.0)
    tl.store(out + 1, 2.0)
    tl.store(out + 2, 2.0)


def does_nothing(x):
    pass


# Compiling for targets.


def test_targets():
    compiled = triton.compile(source(), target=GPUTarget("cpu", 0, 32))
    assert compiled.options.target == "sm_90a"
    assert triton.compile(source()).options.target == "sm_90a"
    with pytest.raises(LaunchError, match=r"the target must be a GPU of NVIDIA's, GPUTarget.*; got"):
        triton.compile(source(), target=GPUTarget("hip", 90, 32))
    assert triton.compile(source(), target=H100, options={"arch": "sm80"}).options.target == "sm_80"
    with pytest.warns(ZigguratWarning, match="there is no option of_another_backend"):
        compiled = triton.compile(source(), target=H100, options={"arch": 89, "of_another_backend": 3})
    assert compiled.options.target == "sm_89" and [*compiled.asm][:2] == ["source", "ttir"]


def test_the_compiler_of_a_target():
    backend = triton.compiler.make_backend(H100)
    options = backend.parse_options({"num_warps": 8, "unknown": 3})
    assert (
        options.arch == "sm90"
        and options.num_warps == 8
        and options.num_stages == 3
        and not hasattr(options, "unknown")
    )
    assert options.enable_fp_fusion is True and options.debug is False and options.sanitize_overflow is True
    assert backend.parse_attr("D") == [["tt.divisibility", 16]] and backend.parse_attr("") == []
    assert backend.binary_ext == "cubin" and backend.get_module_map() == backend.get_codegen_implementation(None) == {}
    assert backend.hash() != triton.compiler.make_backend(GPUTarget("cuda", 80, 32)).hash()
    assert triton.compiler.make_backend(GPUTarget("cpu", 0, 32)).target.backend == "cpu"
    with pytest.raises(RuntimeError, match=r"0 compatible backends for target \(hip\)"):
        triton.compiler.make_backend(GPUTarget("hip", 90, 32))


# Options.


@pytest.fixture
def unwarned(monkeypatch):
    monkeypatch.setattr(triton_options, "_warned", set())
    monkeypatch.setattr(knobs, "_warned", set())


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_warps": 0}, AssertionError, "num_warps must be a power of 2"),
        ({"num_warps": 2.0}, AssertionError, "num_warps must be a power of 2"),
        ({"num_warps": 64}, triton.OutOfResources, "Required: 2048, Hardware limit: 1024"),
        ({"device_type": "cuda"}, AssertionError, "device_type option is deprecated; current target will be used"),
        ({"num_wraps": 4}, KeyError, r"num_wraps was specified but unrecognised \(did you mean num_warps\?\)"),
        ({"x_pt": 4}, KeyError, r"x_pt was specified but unrecognised \(did you mean x_ptr\?\)"),
        ({"zzzzzz": 4}, KeyError, "zzzzzz was specified but unrecognised'$"),
        ({"num_stages": -1}, LaunchError, "num_stages must be an integer"),
        ({"maxnreg": "many"}, LaunchError, "maxnreg must be an integer"),
        ({"extern_libs": {"libdevice": "a", "mine": "b"}}, LaunchError, "can only name libdevice; got 'mine', 'b'"),
    ],
)  # fmt: skip
def test_options_that_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        triton_options.check(options, scale)


def test_options_that_are_accepted(recwarn):
    triton_options.check(
        {"num_warps": 32, "maxnreg": 256, "extern_libs": None, "num_stages": None, "kpack": 1, "ptx_version": None,
         "waves_per_eu": 0, "supported_fp8_dtypes": (), "enable_fp_fusion": False}, None,
    )  # fmt: skip
    assert not recwarn.list


def test_options_without_effect_are_told_at_the_kernel(unwarned):
    with pytest.warns(ZigguratWarning, match="the option kpack=2 has no effect: it is an option for AMD") as records:
        triton_options.check({"kpack": 2}, scale)
    assert records[0].filename == __file__


@pytest.mark.parametrize(
    ("group", "name", "variable"),
    [
        (knobs.nvidia, "libdevice_path", "TRITON_LIBDEVICE_PATH"),
        (knobs.compilation, "enable_asan", "TRITON_ENABLE_ASAN"),
        (knobs.compilation, "instrumentation_mode", "TRITON_INSTRUMENTATION_MODE"),
    ],
)  # fmt: skip
def test_settings_without_effect_are_told_once(unwarned, group, name, variable, recwarn):
    with group.scope():
        setattr(group, name, "1")
        for _ in range(2):
            triton_options.compile_options({})
    assert [str(w.message).partition(":")[0] for w in recwarn.list] == [f"{variable} has no effect"]


def test_options_of_the_compiler_for_those_of_a_launch():
    options = triton_options.compile_options({"num_warps": 8, "maxnreg": 256, "debug": True, "arch": None})
    assert (options.num_warps, options.num_stages, options.num_ctas, options.maxnreg) == (8, 3, 1, 255)
    assert options.contract is True and options.line_info is True and options.target == "sm_90a"
    assert triton_options.compile_options({"maxnreg": None, "enable_fp_fusion": 0}).contract is False
    for arch, target in (("sm_90a", "sm_90a"), ("sm80", "sm_80"), (86, "sm_86"), ("sm89", "sm_89")):
        assert triton_options.compile_options({"arch": arch}).target == target
    with knobs.runtime.scope():
        knobs.runtime.override_arch = "sm80"
        assert triton_options.compile_options({"target": "sm_90a"}).target == "sm_80"
        assert triton_options.compile_options({"arch": "sm86"}).target == "sm_86"
    with knobs.compilation.scope(), knobs.language.scope():
        knobs.compilation.disable_line_info, knobs.language.default_fp_fusion = True, False
        assert triton_options.compile_options({}).line_info is triton_options.compile_options({}).contract is False
        assert triton_options.compile_options({"enable_fp_fusion": True, "line_info": True}).line_info is True


def test_errors_of_resources_have_their_numbers():
    import pickle

    error = triton.OutOfResources(5, 4, "shared memory")
    again = pickle.loads(pickle.dumps(error))
    assert (again.required, again.limit, again.name, str(again)) == (5, 4, "shared memory", str(error))


# Tensors.

torch = require("torch")


def test_a_tensor_that_is_read_as_another_dtype():
    base = torch.arange(6, dtype=torch.int32).reshape(2, 3)
    wrapped = reinterpret(base, torch.float32)
    assert isinstance(wrapped, TensorWrapper) and reinterpret(wrapped, torch.int32) is base
    assert reinterpret(base, torch.int32).dtype == torch.int32 and reinterpret(wrapped, tl.float32).base is base
    assert (wrapped.data_ptr(), wrapped.element_size(), wrapped.get_device()) == (base.data_ptr(), 4, -1)
    assert wrapped.stride() == (3, 1) and wrapped.stride(0) == 3 and wrapped.shape == base.shape
    assert wrapped.is_cuda is False and wrapped.device == base.device and repr(wrapped).startswith("TensorWrapper[")
    for copy in (wrapped.clone(), wrapped.cpu(), wrapped.to("cpu"), wrapped.new_empty([4])):
        assert isinstance(copy, TensorWrapper) and copy.dtype == torch.float32
    other = wrapped.clone()
    assert other.base is not base
    for source_of_copy in (torch.ones_like(base), TensorWrapper(torch.ones_like(base), torch.float32)):
        other.base.zero_()
        other.copy_(source_of_copy)
        assert other.base.tolist() == [[1] * 3] * 2
    array = wrapped.__host_array__()
    assert array.dtype == np.float32 and np.array_equal(array.view(np.int32), base.numpy())
    with pytest.raises(TypeError, match=r"kernels do not have the dtype torch\.complex64"):
        TensorWrapper(base, torch.complex64).__host_array__()
    with pytest.raises(TypeError, match="Cannot reinterpret a"):
        reinterpret(3, torch.int32)


def test_tensors_in_host_memory(monkeypatch):
    assert is_host_tensor(torch.ones(1)) and is_host_tensor(reinterpret(torch.ones(1), torch.int32))
    assert not is_host_tensor(torch.ones(0)) and not is_host_tensor(np.ones(1)) and not is_host_tensor(3)
    assert not is_host_tensor(torch.ones(1, device="meta"))
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: True)
    assert not is_host_tensor(torch.ones(1))


def test_tensors_without_memory():
    mock = MockTensor(torch.float16, (2, 3, 4))
    assert mock.stride() == (12, 4, 1) and MockTensor(torch.float16).shape == [1] and mock.data_ptr() == 0
    assert MockTensor(torch.float16).stride() == (1,)
    assert MockTensor.wrap_dtype(torch.float16).dtype == torch.float16 and MockTensor.wrap_dtype(3) == 3


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"block_shape": [3, 16]}, ValueError, r"Shape element 0 must be a power of 2; got \[3, 16\]"),
        ({"block_shape": [4, 0]}, ValueError, "Shape element 1 must be a power of 2"),
        ({"block_shape": [4, -4]}, ValueError, "Shape element 1 must be a power of 2"),
        ({"block_shape": [4]}, AssertionError, "rank mismatch"), ({"strides": [1]}, AssertionError, "rank mismatch"),
        ({"shape": [], "strides": [], "block_shape": []}, AssertionError, "rank must be from 1 to 5"),
        ({"shape": [1] * 6, "strides": [4] * 5 + [1], "block_shape": [1] * 6}, AssertionError, "rank must be from 1"),
        ({"strides": [17, 1]}, AssertionError, "strides must be 16-byte aligned"),
        ({"strides": [16, 2]}, AssertionError, "Last dimension must be contiguous"),
        ({"shape": [0, 16]}, AssertionError, "shape must be positive"),
        ({"padding": "one"}, AssertionError, "Illegal value for padding"),
        ({"base": torch.zeros(8, 16, dtype=torch.int32), "padding": "nan"}, AssertionError, "only supported for"),
    ],
)  # fmt: skip
def test_descriptors_that_are_refused(changes, error, message):
    settings = {"base": torch.zeros(8, 16), "shape": [8, 16], "strides": [16, 1], "block_shape": [1, 4]}
    assert (
        TensorDescriptor(**settings, padding="nan").padding == "nan" and TensorDescriptor(**settings).is_cuda is False
    )
    with pytest.raises(error, match=message):
        TensorDescriptor(**{**settings, **changes})


def test_descriptors_of_a_gpu_have_aligned_bases():
    base = SimpleNamespace(dtype=torch.float32, is_cuda=True, data_ptr=lambda: 8)
    with pytest.raises(AssertionError, match="base must be 16-byte aligned"):
        TensorDescriptor(base, [4], [1], [4])
    base.data_ptr = lambda: 32
    assert TensorDescriptor(base, [4], [1], [4]).block_shape == [4]


def test_a_descriptor_is_made_anew_when_its_block_is_assigned():
    descriptor = TensorDescriptor.from_tensor(np.zeros((8, 16), np.float32), [1, 1], padding="nan")
    assert descriptor.strides == [16, 1] and descriptor.padding == "nan"
    with pytest.raises(LaunchError, match="a row of a block must have at least 16 bytes"):
        _ = descriptor.block
    assert not hasattr(descriptor, "nothing")
    descriptor.block_shape = [4, 16]
    assert descriptor.block == (4, 16) and descriptor.type == DescriptorType((4, 16), zg.f32, "nan")
    descriptor.block_shape = [8, 8]
    assert descriptor.block == (8, 8) and descriptor.block_shape == [8, 8]
    descriptor.note = 5
    assert descriptor.note == 5 and repr(descriptor).startswith(
        "TensorDescriptor(shape=(8, 16), strides=[16, 1], block"
    )


# cuBLAS.


def test_products_of_cublas():
    lt = libtriton.nvidia.cublas.CublasLt(torch.zeros(1))
    a, b = torch.randn(2, 3), torch.randn(4, 3)
    c, d = torch.zeros(2, 4), torch.zeros(2, 4)
    lt.matmul(a, b, c)
    torch.testing.assert_close(c, a @ b.T)
    lt.gemm(a, b, c, d, 2.0, 3.0)
    torch.testing.assert_close(d, 2 * (a @ b.T) + 3 * c)


def test_products_of_eight_bit_floats(monkeypatch):
    calls = []
    monkeypatch.setattr(torch, "_scaled_mm", lambda *arguments, **keywords: calls.append((arguments, keywords)))
    a, b = (torch.zeros(16, 16, dtype=torch.float8_e4m3fn) for _ in range(2))
    c = torch.zeros(16, 16, dtype=torch.float16)
    libtriton.CublasLt(None).matmul(a, b, c)
    (((x, y, *units), keywords),) = calls
    assert x is a and y.data_ptr() == b.data_ptr() and y.stride() == (1, 16)
    assert [unit.item() for unit in units] == [1.0, 1.0] and units[0].dtype == torch.float32
    assert keywords == {"out_dtype": torch.float16, "out": c}


def test_the_rest_of_the_compiler_is_absent():
    with pytest.raises(AttributeError, match=r"ziggurat has no 'triton\._C\.libtriton\.llvm'"):
        _ = libtriton.llvm


# Functions of the language that programs give to reductions of their own.


@triton.jit
def best(x, index, out, place, COMBINE: tl.constexpr):
    at = tl.arange(0, 8)
    value, where = tl.reduce((tl.load(x + at), tl.load(index + at)), 0, COMBINE)
    tl.store(out, value)
    tl.store(place, where)


@pytest.mark.parametrize(("what", "value", "first"), [("max", 7, 3), ("min", 0, 1)])
@pytest.mark.parametrize("order", [1, -1])
def test_places_of_the_largest_and_the_smallest(what, value, first, order):
    """Ties go to the smaller index, in whatever order the elements come; without the rule, any of them is right."""
    x, index = np.array([5, 0, 3, 7, 0, 7, 1, 7], np.int32), np.arange(8, dtype=np.int32)
    x, index = (np.ascontiguousarray(array[::order]) for array in (x, index))
    for tie in ("left", "fast"):
        out, place = np.zeros(1, np.int32), np.zeros(1, np.int32)
        best[(1,)](x, index, out, place, getattr(tl.standard, f"_arg{what}_combine_tie_break_{tie}"))
        assert out[0] == value and (place[0] == first if tie == "left" else x[list(index).index(place[0])] == value)


@triton.jit
def of_two(x, y, out, where, COMBINE: tl.constexpr):
    value, index = COMBINE(tl.load(x), 5, tl.load(y), 3)
    tl.store(out, value)
    tl.store(where, index)


@pytest.mark.parametrize(("tie", "index"), [("left", 3), ("fast", 3)])
def test_a_tie_without_a_rule_goes_to_the_second(tie, index):
    for what in ("max", "min"):
        out, where = np.zeros(1, np.int32), np.zeros(1, np.int32)
        one = np.ones(1, np.int32)
        of_two[(1,)](one, one, out, where, getattr(tl.standard, f"_arg{what}_combine_tie_break_{tie}"))
        assert where[0] == index and out[0] == 1


def test_functions_of_compile_time():
    assert [tl.standard._is_power_of_two(number) for number in (-4, -1, 0, 1, 2, 3, 64)] == [
        False, False, False, True, True, False, True,
    ]  # fmt: skip
    assert [tl.standard._log2(number) for number in (0, 1, 2, 64)] == [0, 0, 1, 6]
    assert tl.target_info.is_hip() is False
