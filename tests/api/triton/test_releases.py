"""The names of Triton's modules and host classes, release by release: each is here, or its reason is.

`names.json` has them by module or class and by the releases that have them: "3.6" from 3.6 on, "3.4-3.7" until 3.7. The
names without an underscore that `triton`'s sources of releases 3.4.0, 3.5.1, 3.6.0, 3.7.1, 3.8.0 and 3.9.0 bind at the
top of a module, and those of `__all__`; of a class, its functions and the attributes of `self`.
Of releases before 3.4, names that programs use.
"""

import importlib
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.triton.compiler.compiler import LazyDict
from ziggurat.triton.runtime import jit

NAMES = json.loads(Path(__file__).with_name("names.json").read_text())
# The names that are not here, by the reason.
ABSENT = {
    "they make or hold IR of Triton's C++ compiler": {
        "triton.language.core": (
            "TRITON_BUILTIN async_task base_type binary_op_type_legalization builtin_max builtin_min check_bit_width "
            "dataclass_transform dispatch is_negative_zero slice_type "
            "tensor_descriptor_base tensor_descriptor_base_type tensor_descriptor_type"
        ),
        "triton.language.core.block_type": "to_ir", "triton.language.core.pointer_type": "to_ir",
        "triton.language.core.dtype": "to_ir int_bitwidth int_signedness",
        "triton.language.extra.cuda": "convert_custom_float8_sm70 convert_custom_float8_sm80",
        "triton.compiler.compiler.ASTSource": "language", "triton.backends.compiler": "Language",
        "triton.compiler.compiler": (
            "AsmDict CompileTimer arg_type_pattern convert_type_repr filter_traceback parse prototype_pattern "
            "ptx_arg_type_pattern ptx_prototype_pattern"
        ),
        "triton.backends.nvidia.compiler": (
            "CUDAOptions file_hash get_features get_llvm_flags get_ptx_version_from_options instrument ptx_get_version"
        ),
    },
    "they generate C, or code in Python, for Triton's launcher": {
        "triton.runtime.jit": (
            "BoundConstexprFunction DependenciesFinder GLUON_MODULE INDENT_PATTERN TRITON_MODULE "
            "convert_to_tuple_if_list create_function_from_signature create_specialize_impl dtype2str "
            "get_def_col_number get_def_line_number specialize_impl_cache"
        ),
        "triton.runtime.jit.JITFunction": "ASTSource CompiledKernel create_binder",
        "triton.runtime.jit.MockTensor": "ptr_range",
        "triton.runtime.cache": "RedisRemoteCacheBackend make_so_cache_key",
        "triton.runtime.driver": "LazyProxy", "triton.runtime.autotuner.Autotuner": "check_disk_cache restore_copies",
        "triton.backends.driver": "decompose_descriptor expand_signature wrap_handle_tensordesc_impl",
        "triton.backends.nvidia.driver": (
            "ARG_CONSTEXPR ARG_KERNEL ARG_TUPLE CudaLauncher CudaUtils FLOAT_PACK_FUNCTION FLOAT_STORAGE_TYPE "
            "GSAN_PER_DEVICE_STATE_STRIDE PyCUtensorMap PyKernelArg TMA_DTYPE_DEVICE_TO_HOST TMA_TF32 "
            "TmaDescKernelParam annotate_arguments dirname expand_signature include_dirs libdevice_dir libraries "
            "library_dirs make_kernel_signature make_launcher make_tensordesc_arg ty_to_cpp wrap_handle_tensordesc"
        ),
        "triton.runtime._allocation": "Buffer has_profile_allocator set_profile_allocator",
    },
    "they are of Triton's own tests and documents, or of other makers": {
        "triton": "max_shared_mem", "triton.runtime": "RedisRemoteCacheBackend",
        "triton.language": "async_task",
        "triton.testing": (
            "cublas cuda_graph_without_gc cuda_memcheck do_bench_cudagraph_proton do_bench_proton set_gpu_clock"
        ),
        "triton.knobs": "ClassType GetType JITHookCompileInfo KernelAttr SetType env_opt_base knobs_type",
        "triton.tools.mxfp": "fp8e8m0_to_float32", "triton.tools.ragged_tma": "to_ragged_indices",
        "triton.tools.disasm": (
            "BRA_RE FLINE_RE FNAME_RE SLINE_RE parseCtrl path_to_cuobjdump processSassLines"
        ),
        "triton._utils": (
            "CAT_CAN_REORDER_WARNING FP_FUSION_DEFAULT_WARNING IterableType ObjPath RESHAPE_CAN_REORDER_WARNING "
            "apply_with_path prewarm_deprecation_warnings warn_once"
        ),
    },
}  # fmt: skip


TENSOR = SimpleNamespace(shape=(1,), data=0, device="cpu", is_cuda=False)


@triton.jit
def kernel(x_ptr, B: tl.constexpr):
    tl.store(x_ptr, 1.0)


def thing_of(path):
    """The module of a path, or an object of the class that it names."""
    compiled = kernel.warmup(jit.MockTensor(tl.float32), 1, grid=(1,))
    objects = {
        "JITFunction": kernel, "JITCallable": kernel, "KernelParam": kernel.params[0], "Config": triton.Config({}),
        "MockTensor": jit.MockTensor(tl.float32), "CompiledKernel": compiled, "ASTSource": compiled.src,
        "TensorWrapper": jit.TensorWrapper(TENSOR, tl.float32), "LazyDict": LazyDict({}),
        "Autotuner": triton.autotune([triton.Config({"B": 1})], key=[])(kernel),
        "Heuristics": triton.heuristics({"B": lambda arguments: 1})(kernel), "dtype": tl.float32,
        "pointer_type": tl.pointer_type(tl.float32), "block_type": tl.block_type(tl.float32, [4]),
    }  # fmt: skip
    name = path.rpartition(".")[2]
    return objects[name] if name in objects else importlib.import_module(f"ziggurat.{path}")


@pytest.mark.parametrize("path", NAMES)
def test_names_of_releases(path):
    thing = thing_of(path)
    names = {name for group in NAMES[path].values() for name in group.split()}
    absent = {name for groups in ABSENT.values() for name in groups.get(path, "").split()}
    assert names and {name for name in names if not hasattr(thing, name)} == absent


def test_reasons_are_for_names_that_releases_have():
    for groups in ABSENT.values():
        for path, text in groups.items():
            assert {*text.split()} <= {name for group in NAMES[path].values() for name in group.split()}, path
