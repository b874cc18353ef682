"""Names of Triton's modules that libraries ask for."""

import dataclasses
import json
import os
from types import SimpleNamespace

import numpy as np
import pytest

import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.types import SCALARS, DescriptorType, PtrType, TupleType
from ziggurat.triton import _utils, knobs
from ziggurat.triton._C import libtriton
from ziggurat.triton._C.libtriton import get_cache_invalidating_env_vars
from ziggurat.triton._utils import canonicalize_dtype, canonicalize_ptr_dtype, find_paths_if, get_iterable_path
from ziggurat.triton.backends.compiler import GPUTarget
from ziggurat.triton.backends.nvidia.compiler import get_ptxas, min_dot_size, sm_arch_from_capability
from ziggurat.triton.backends.nvidia.driver import libcuda_dirs
from ziggurat.triton.compiler.signatures import type_of, type_text
from ziggurat.triton.language.extra.cuda import gdc, utils
from ziggurat.triton.runtime import cache
from ziggurat.triton.runtime.cache import _base32, get_cache_manager, get_dump_manager, get_override_manager
from ziggurat.triton.runtime.driver import DriverConfig
from ziggurat.triton.runtime.jit import (
    compute_cache_key,
    get_full_name,
    get_jit_fn_file_line,
    native_specialize_impl,
    serialize_specialization_data,
)
from ziggurat.triton.tools.disasm import extract, get_sass

# The facts about a kernel that Triton 3.6 has.
FACTS_OF_TRITON = (
    "allowed_dot_input_precisions arch backend_name debug default_dot_input_precision "
    "deprecated_fp8_dot_operand_dtypes enable_fp_fusion enable_reflect_ftz extern_libs global_scratch_align "
    "global_scratch_size hash instrumentation_mode ir_override launch_cooperative_grid launch_pdl "
    "max_num_imprecise_acc_default maxnreg name num_ctas num_stages num_warps profile_scratch_align "
    "profile_scratch_size ptx_options ptx_version sanitize_overflow shared supported_fp8_dtypes target "
    "tensordesc_meta tmem_size triton_version warp_size"
)


def test_paths_in_nested_tuples():
    nested = ["i32", ("constexpr", ["*fp32", "constexpr"]), "constexpr"]
    paths = find_paths_if(nested, lambda path, item: item == "constexpr" and path != (2,))
    assert paths == [(1, 0), (1, 1, 1)]
    assert [get_iterable_path(nested, path) for path in ((0,), (1, 1, 0))] == ["i32", "*fp32"]


def test_values_of_constants():
    assert tl.core._unwrap_if_constexpr([tl.constexpr(3), (tl.constexpr("a"), 5)]) == [3, ("a", 5)]
    assert tl.core._unwrap_if_constexpr(tl.constexpr(None)) is None


def test_variables_that_change_kernels(monkeypatch):
    monkeypatch.delenv("PTXAS_OPTIONS", raising=False)
    monkeypatch.setenv("TRITON_F32_DEFAULT", "ieee")
    monkeypatch.setenv("TRITON_PRINT_AUTOTUNING", "1")
    variables = get_cache_invalidating_env_vars()
    assert variables["TRITON_F32_DEFAULT"] == "ieee" and not {"PTXAS_OPTIONS", "TRITON_PRINT_AUTOTUNING"} & {*variables}


def test_the_driver_s_folders(monkeypatch, tmp_path):
    with knobs.nvidia.scope():
        knobs.nvidia.libcuda_path = "/drivers"
        assert libcuda_dirs() == ["/drivers"]
    monkeypatch.setattr("subprocess.run", lambda *command, **settings: type("Done", (), {"stdout": "libc.so.6 => /x"}))
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/absent:{tmp_path}")
    with pytest.raises(AssertionError, match=r"libcuda\.so\.1 is in no folder"):
        libcuda_dirs()
    (tmp_path / "libcuda.so.1").touch()
    assert libcuda_dirs() == [str(tmp_path)]


def test_the_assembler_and_machine_code(tmp_path):
    try:
        assert get_ptxas(90) == knobs.nvidia.ptxas
    except RuntimeError as error:
        pytest.skip(str(error))
    cubin = stored.warmup(triton.runtime.jit.MockTensor(tl.float32), grid=(1,)).asm["cubin"]
    (tmp_path / "kernel.cubin").write_bytes(cubin)
    text = get_sass(cubin)
    assert extract(str(tmp_path / "kernel.cubin")) == text and "EXIT" in text
    assert extract(str(tmp_path / "kernel.cubin"), "stored") in text


def test_the_machine_code_of_one_function(monkeypatch):
    one, two = ("\t.section\t.text.one,ax\nEXIT\n", "\t.section\t.text.two,ax\nRET\n")
    monkeypatch.setattr("ziggurat.triton.tools.disasm.disassembled", lambda cubin: f"head\n{one}{two}")
    assert get_sass(b"", "one") == one and get_sass(b"", "two") == two and get_sass(b"", "on") == ""
    assert get_sass(b"") == f"head\n{one}{two}"


@triton.jit
def stored(x_ptr):
    tl.store(x_ptr, 1.0)


def test_keys_in_names_of_files():
    assert _base32("00ff") == "AD7Q"


def test_names_of_kernels_and_of_their_parameters():
    @triton.jit(do_not_specialize_on_alignment=["x"])
    def kernel(x: tl.int64, y: "*fp32", z, B: tl.constexpr):  # noqa: F722
        pass

    assert kernel.do_not_specialize_on_alignment == ["x"] and triton._C.libtriton.ir.context()
    with kernel._hash_lock:
        assert [parameter.annotation_type for parameter in kernel.params] == ["i64", "*fp32", "", ""]
    keys = {}
    text = compute_cache_key(keys, [("i32", "D"), (kernel, 1)], {"num_warps": 4})
    assert kernel.cache_key in text and text.endswith("{'num_warps': 4}") and [*keys.values()] == [text]
    assert compute_cache_key(keys, [("i32", "D"), (kernel, 1)], {"num_warps": 4}) is text
    assert compute_cache_key(keys, [("i32", ""), (kernel, 1)], {"num_warps": 4}) != text
    assert native_specialize_impl(None, 32, False, True, True) == ("i32", "D")
    assert native_specialize_impl(None, 32, False, True, False) == ("i32", None)
    assert native_specialize_impl(None, 7, False, True, True) == ("i32", None)
    assert native_specialize_impl(None, 1, False, True, True) == ("constexpr", 1)
    assert native_specialize_impl(None, (1, 32), False, True, True) == (("constexpr", "i32"), (1, "D"))
    assert libtriton.native_specialize_impl is native_specialize_impl


def test_texts_of_types():
    texts = "u1 i8 i16 i32 i64 u8 u16 u32 u64 fp16 bf16 fp32 fp64 fp8e5 fp8e4nv".split()
    scalars = "i1 i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 f8e5m2 f8e4m3".split()
    for text, scalar in zip(texts, (SCALARS[name] for name in scalars), strict=True):
        table = {
            text: scalar,
            f"*{text}": PtrType(scalar),
            f"*k{text}": PtrType(scalar, const=True),
            f"tensordesc<{text}[16, 32]>": DescriptorType((16, 32), scalar),
            (text, f"*{text}"): TupleType((scalar, PtrType(scalar))),
        }
        for written, type_ in table.items():
            assert type_text(type_) == written and type_of(written) == type_


@pytest.mark.parametrize(("major", "minor", "holds"), [(8, 9, True), (9, 0, True), (9, 1, False), (10, 0, False)])
def test_the_capability_of_the_target(monkeypatch, major, minor, holds):
    monkeypatch.setattr(tl.target_info, "current_target", lambda: triton.backends.GPUTarget("cuda", 90, 32))
    assert tl.target_info.cuda_capability_geq(major, minor) == holds
    monkeypatch.setattr(tl.target_info, "current_target", lambda: triton.backends.GPUTarget("cpu", 0, 32))
    assert not tl.target_info.cuda_capability_geq(0, 0) and not tl.target_info.is_cuda()


def test_short_names_of_dtypes():
    names = {
        "bool int1 uint1 i1 u1": "u1", "int i32 int32": "i32", "int8": "i8", "int16": "i16", "int64": "i64",
        "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "half float16 fp16": "fp16",
        "bfloat16 bf16": "bf16", "float float32 fp32": "fp32", "double float64 fp64": "fp64",
        "float8e4nv float8_e4m3fn": "fp8e4nv", "float8e5 float8_e5m2": "fp8e5", "float8e4b15": "fp8e4b15",
        "float8e4b8 float8_e4m3fnuz": "fp8e4b8", "float8e5b16 float8_e5m2fnuz": "fp8e5b16", "void": "void",
    }  # fmt: skip
    for written, short in names.items():
        for name in written.split():
            assert canonicalize_dtype(name) == canonicalize_dtype(f"torch.{name}") == short
            assert (
                canonicalize_ptr_dtype(name, False) == f"*{short}"
                and canonicalize_ptr_dtype(name, True) == f"*k{short}"
            )


def test_folders_of_files(tmp_path):
    with knobs.cache.scope():
        for name in ("dir", "dump_dir", "override_dir"):
            setattr(knobs.cache, name, str(tmp_path / name))
        managers = {"dir": get_cache_manager, "dump_dir": get_dump_manager}
        for name, manager in managers.items():
            path = manager("abcd").put(b"bytes", "kernel.bin")
            assert path.startswith(str(tmp_path / name)) and open(path, "rb").read() == b"bytes"
            path = manager("abcd").put("text", "kernel.txt", binary=False)
            assert manager("abcd").get_file("kernel.txt") == path and open(path).read() == "text"
        assert not get_override_manager("abcd").has_file("kernel.bin")


def test_what_variables_say_that_are_not_set(monkeypatch):
    for name in [name for name in os.environ if name.startswith("TRITON_")]:
        monkeypatch.delenv(name)
    assert knobs.language.default_fp_fusion and knobs.language.fp32_default is None
    assert not knobs.compilation.always_compile and not knobs.runtime.interpret and not knobs.autotuning.print


@triton.jit
def combined(x, out, COMBINE: tl.constexpr):
    tl.store(out, tl.reduce(tl.load(x + tl.arange(0, 4)), 0, COMBINE))


@pytest.mark.parametrize(
    ("name", "expected"), [("sum", 3 + 5 + 6 + 7), ("prod", 3 * 5 * 6 * 7), ("xor", 3 ^ 5 ^ 6 ^ 7), ("or", 7)]
)
def test_functions_of_reductions(name, expected):
    x, out = np.array([3, 5, 6, 7], np.int32), np.zeros(1, np.int32)
    combined[(1,)](x, out, getattr(tl.standard, f"_{name}_combine"))
    assert out[0] == expected


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (tl, "load store sum float16 constexpr"), (tl.core, "load store float16 tensor reduce"),
        (tl.math, "exp exp2 sqrt_rn fma"), (tl.random, "rand randn randint4x philox"),
        (tl.standard, "sum sort cdiv softmax"), (tl.extra.cuda, "num_threads num_warps globaltimer"),
    ],
)  # fmt: skip
def test_names_of_calls_by_module(module, names):
    for name in names.split():
        assert hasattr(module, name), name


def test_constants_of_the_language():
    assert tl.random.N_ROUNDS_DEFAULT.value == 10 and tl.core.CONSTEXPR_0.value == 0


def test_errors_of_resources_without_numbers():
    from ziggurat.codemodel.errors import ResourceError
    from ziggurat.triton.runtime.errors import OutOfResources, as_raised

    error = as_raised(ResourceError("too many registers"))
    assert isinstance(error, OutOfResources) and error.required == error.limit == 0 and error.name == "resources"


def test_the_options_of_a_launch_and_their_defaults():
    defaults = triton.compiler.make_backend(triton.backends.GPUTarget("cuda", 90, 32)).parse_options({})
    assert vars(defaults) == {
        "num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None, "launch_pdl": False,
        "launch_cooperative_grid": False, "enable_fp_fusion": True, "extern_libs": None, "debug": False,
        "sanitize_overflow": True, "ir_override": None, "ptx_options": None, "arch": "sm90", "backend_name": "cuda",
        "warp_size": 32, "ptx_version": None, "enable_reflect_ftz": True, "supported_fp8_dtypes": (),
        "deprecated_fp8_dot_operand_dtypes": (), "default_dot_input_precision": "tf32",
        "allowed_dot_input_precisions": (), "max_num_imprecise_acc_default": None, "instrumentation_mode": "",
        "waves_per_eu": 0, "matrix_instr_nonkdim": 0, "kpack": 1,
    }  # fmt: skip


def test_the_driver_is_chosen_at_its_first_use():
    driver = DriverConfig()
    assert driver._active is None and driver._default is None
    assert driver.active is driver.default is driver._active is driver._default


def test_types_and_divisibility_of_arguments():
    kinds = triton.runtime.jit.native_specialize_impl
    assert kinds(None, 1, False, True, True) == ("constexpr", 1)
    assert kinds(None, None, False, True, True) == ("constexpr", None)
    assert kinds(None, 1, False, False, True) == ("i32", None) and kinds(None, 16, False, False, True)[0] == "i32"
    x = np.zeros(16, np.float32)
    assert kinds(None, x, False, True, True)[0] == "*fp32" and kinds(None, x, True, True, True)[0] == "*kfp32"
    assert kinds(None, 5, True, True, True) == ("i32", None)
    assert kinds(None, (x, 5), True, True, True)[0] == ("*fp32", "i32")  # As in Triton, parts are never constant.
    assert kinds(None, (32, 5), False, True, True) == (("i32", "i32"), ("D", None))
    assert (
        triton.runtime.jit.mangle_type(1) == "i32" and triton.runtime.jit.mangle_type(1, specialize=True) == "constexpr"
    )


def test_shapes_and_items_that_programs_check():
    nested = [1, [2, 3]]
    _utils.set_iterable_path(nested, (1, 0), 5)
    assert nested == [1, [5, 3]] and _utils.is_iterable(nested) and not _utils.is_iterable("ab")
    assert [_utils.get_primitive_bitwidth(name) for name in "u1 i64 bf16 fp8e4nv fp8e5b16".split()] == [1, 64, 16, 8, 8]
    assert _utils.validate_block_shape([4, 16]) == 64 and not _utils.is_power_of_two(12)
    for shape, error in (([3], "element 0 must be a power of 2"), ([1024, 2048], r"numel \(2097152\) exceeds")):
        with pytest.raises(ValueError, match=error):
            _utils.validate_block_shape(shape)
    with pytest.raises(TypeError, match="element 1 must have type"):
        _utils.validate_block_shape([2, 2.0])


def test_facts_of_targets():
    assert [sm_arch_from_capability(number) for number in (80, 90)] == ["sm_80", "sm_90a"]
    narrow, wide = tl.block_type(tl.float8e4nv, [16]), tl.block_type(tl.bfloat16, [16])
    assert [min_dot_size(None)(type_, type_) for type_ in (narrow, wide)] == [(1, 1, 32), (1, 1, 16)]


def test_places_and_facts_of_kernels():
    line = stored.fn.__code__.co_firstlineno + 1
    assert get_jit_fn_file_line(stored) == (__file__, line) and stored.def_file_col_number == 5
    assert get_full_name(stored) == f"{__name__}.stored" and stored.type.value is stored
    text = serialize_specialization_data(
        "f", {"x": "*fp32"}, {(1,): tl.constexpr(3), (2,): tl.float32, (3,): 4}, {(0,): [["d", 16]]},
        SimpleNamespace(num_warps=4), "key",
    )  # fmt: skip
    assert json.loads(text)["constant_vals"] == [{"constexpr": 3}, "fp32", 4]
    assert json.loads(text)["options"] == {"num_warps": 4} and json.loads(text)["attrs_keys"] == [[0]]


def test_calls_of_the_language_are_builtins():
    assert tl.core.is_builtin(tl.load) and tl.core.is_builtin(tl.standard._sum_combine)
    assert not tl.core.is_builtin(stored) and issubclass(tl.tensor, tl.core.base_value)


class InMemory(cache.RemoteCacheBackend):
    files: dict[tuple[str, str], bytes] = {}  # noqa: RUF012

    def __init__(self, key):
        self.key = key

    def get(self, filenames):
        return {name: self.files[self.key, name] for name in filenames if (self.key, name) in self.files}

    def put(self, filename, data):
        self.files[self.key, filename] = data


def test_files_of_another_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(InMemory, "files", {})
    with knobs.cache.scope():
        with pytest.raises(RuntimeError, match="TRITON_REMOTE_CACHE_BACKEND doesn't point to a valid class"):
            cache.RemoteCacheManager("AB")
        knobs.cache.remote_manager_class = InMemory
        knobs.cache.dir = str(tmp_path / "one")
        files = cache.RemoteCacheManager("AB")
        files.put_group("both", {name: files.put(name.encode(), name) for name in ("a", "b")})
        knobs.cache.dir = str(tmp_path / "two")  # That of a machine that has no files yet.
        files = cache.RemoteCacheManager("AB")
        assert files.get_file("c") is files.get_group("none") is None
        group = files.get_group("both")
        assert {name: open(path).read() for name, path in group.items()} == {"a": "a", "b": "b"}
        assert all(path.startswith(str(tmp_path / "two")) for path in group.values())
        knobs.cache.dump_dir = str(tmp_path / "dump")
        dumped = cache.RemoteCacheManager("AB", dump=True)
        assert dumped.get_file("a") is None and dumped.get_file(dumped.put("text", "a") and "a") is not None
        dumped.put_group("one", {"a": ""})
        assert InMemory.files["AB", "a"] == b"a" and ("AB", "__grp__one") not in InMemory.files


@tl.core.extern
def of_a_library(x, n, _semantic=None):
    return tl.core.extern_elementwise("", "", [x, n], {}, is_pure=False, _semantic=_semantic)


def test_functions_of_bitcode_are_refused_where_kernels_call_them():
    """PyTorch defines those of NVSHMEM when its module of symmetric memory is imported."""

    @triton.jit
    def kernel(x_ptr):
        of_a_library(x_ptr, 3)

    with pytest.raises(TargetError, match="'of_a_library' is a function of a library of bitcode"):
        kernel[(1,)](np.zeros(4, np.float32))


def test_names_of_earlier_and_later_releases():
    assert tl._experimental_make_tensor_descriptor is tl.make_tensor_descriptor
    assert tl.aggregate_replace is tl.core.aggregate_replace
    assert gdc.gdc_wait is tl.extra.cuda.gdc_wait and utils.smid is tl.extra.cuda.smid


def test_facts_of_a_kernel_are_written_as_json():
    """Triton's own files of metadata are written so."""

    @triton.jit
    def kernel(x_ptr):
        tl.store(x_ptr, 1.0)

    source = triton.compiler.ASTSource(kernel, {"x_ptr": "*fp32"})
    target = GPUTarget("cuda", 90, 32)
    facts = json.loads(json.dumps(triton.compile(source, target=target).metadata._asdict(), default=vars))
    assert facts["target"] == dataclasses.asdict(target) and facts["default_dot_input_precision"] == "tf32"
    assert {*facts} >= {*FACTS_OF_TRITON.split()}
