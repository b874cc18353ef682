"""Names of Triton's modules that libraries ask for."""

import os

import numpy as np
import pytest

import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.codemodel.types import SCALARS, DescriptorType, PtrType, TupleType
from ziggurat.triton import knobs
from ziggurat.triton._C.libtriton import get_cache_invalidating_env_vars
from ziggurat.triton._utils import canonicalize_dtype, canonicalize_ptr_dtype, find_paths_if, get_iterable_path
from ziggurat.triton.backends.nvidia.compiler import get_ptxas
from ziggurat.triton.backends.nvidia.driver import libcuda_dirs
from ziggurat.triton.compiler.signatures import type_of, type_text
from ziggurat.triton.runtime.cache import _base32, get_cache_manager, get_dump_manager, get_override_manager
from ziggurat.triton.runtime.jit import compute_cache_key, native_specialize_impl
from ziggurat.triton.tools.disasm import extract, get_sass


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
        "sanitize_overflow": True, "ir_override": None, "ptx_options": None, "arch": None, "backend_name": "cuda",
        "warp_size": 32, "ptx_version": None, "enable_reflect_ftz": True, "supported_fp8_dtypes": (),
        "deprecated_fp8_dot_operand_dtypes": (), "default_dot_input_precision": "tf32",
        "allowed_dot_input_precisions": (), "max_num_imprecise_acc_default": None, "instrumentation_mode": "",
        "waves_per_eu": 0, "matrix_instr_nonkdim": 0, "kpack": 1,
    }  # fmt: skip


def test_types_and_divisibility_of_arguments():
    kinds = triton.runtime.jit.native_specialize_impl
    assert kinds(None, 1, False, True, True) == ("constexpr", None) == kinds(None, None, False, True, True)
    assert kinds(None, 1, False, False, True) == ("i32", None) and kinds(None, 16, False, False, True)[0] == "i32"
    x = np.zeros(16, np.float32)
    assert kinds(None, x, False, True, True)[0] == "*fp32" and kinds(None, x, True, True, True)[0] == "*kfp32"
    assert kinds(None, 5, True, True, True) == ("i32", None)
    assert kinds(None, (x, 5), True, True, True)[0] == ("*kfp32", "i32")
    assert kinds(None, (32, 5), False, True, True) == (("i32", "i32"), "D")
    assert (
        triton.runtime.jit.mangle_type(1) == "i32" and triton.runtime.jit.mangle_type(1, specialize=True) == "constexpr"
    )
