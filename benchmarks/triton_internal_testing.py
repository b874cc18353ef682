"""The functions that Triton's own tests import: which machine it is, and arrays of random numbers."""

# pyright: reportUnusedFunction=false

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from ziggurat.triton import knobs, language, runtime
from ziggurat.triton._utils import type_canonicalisation_dict
from ziggurat.triton.runtime.tensors import TensorWrapper, reinterpret

torch: Any = importlib.import_module("torch")
pytest: Any = importlib.import_module("pytest")

int_dtypes = ["int8", "int16", "int32", "int64"]
uint_dtypes = ["uint8", "uint16", "uint32", "uint64"]
integral_dtypes = int_dtypes + uint_dtypes
float_dtypes = ["float16", "float32", "float64"]
float_dtypes_with_bfloat16 = [*float_dtypes, "bfloat16"]
dtypes = integral_dtypes + float_dtypes
dtypes_with_bfloat16 = [*dtypes, "bfloat16"]
torch_float8_dtypes = ["float8_e4m3fn", "float8_e5m2"]
torch_dtypes = ["bool", *int_dtypes, "uint8", *float_dtypes, "bfloat16"]
tma_dtypes = sorted({*dtypes_with_bfloat16} - {"int64", "uint64", "float64"})


def is_interpreter() -> bool:
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def get_current_target() -> Any:
    """The target of the machine; None where kernels are interpreted."""
    return None if is_interpreter() else runtime.driver.active.get_current_target()


def _capability() -> int:
    """The compute capability of the GPU, such as 90; 0 without one."""
    target = get_current_target()
    return target.arch if target is not None and target.backend == "cuda" else 0


def is_cuda() -> bool:
    return _capability() > 0


def is_ampere_or_newer() -> bool:
    return _capability() >= 80


def is_hopper_or_newer() -> bool:
    return _capability() >= 90


def is_hopper() -> bool:
    return _capability() // 10 == 9


def is_blackwell() -> bool:
    return _capability() // 10 == 10


def is_blackwell_ultra() -> bool:
    return _capability() == 103


def is_rubin() -> bool:
    return _capability() == 107


def is_sm12x() -> bool:
    return _capability() // 10 == 12


def _never() -> bool:
    """The answer for GPUs of other makers, and for runs that only compile."""
    return False


is_hip = is_hip_cdna = is_hip_cdna2 = is_hip_cdna3 = is_hip_cdna4 = is_xpu = _never
is_hip_gfx11 = is_hip_gfx12 = is_hip_gfx1250 = is_hip_rdna = is_hip_rdna3 = is_hip_rdna4 = is_hip_rdna4m = _never
is_hip_cdna3_or_newer = is_compile_warmup = _never


def random_int(low: int, high: int, *, warmup_value: int | None = None, **keywords: Any) -> int:
    return int(torch.randint(low, high, size=(), **keywords).item())


def random_float(*, warmup_value: float = 0.5, **keywords: Any) -> float:
    return float(torch.rand((), **keywords).item())


def get_hip_lds_size() -> int:
    return 65536


def get_arch() -> str:
    target = get_current_target()
    return "" if target is None else str(target.arch)


def numpy_random(
    shape: int | tuple[int, ...], dtype_str: str, rs: Any = None, low: int | None = None, high: int | None = None
) -> np.ndarray[Any, Any]:
    """An array of random numbers of a dtype: N(0, 1) for floats, integers from `low` to `high` that are not zero.

    The numbers of bfloat16 are in an array of float32, those of float8 are codes in one of int8.
    """
    generator: Any = np.random.RandomState(17) if rs is None else rs
    shape = (shape,) if isinstance(shape, int) else shape
    if dtype_str in integral_dtypes:
        limits = np.iinfo(dtype_str)
        first = limits.min if low is None else max(low, limits.min)
        last = limits.max if high is None else min(high, limits.max)
        integers = generator.randint(first, last, shape, dtype=dtype_str)
        integers[integers == 0] = 1  # A divisor must not be zero.
        return integers
    if "float8" in dtype_str:
        return generator.randint(20, 40, shape, dtype=np.int8)
    normal = generator.normal(0, 1, shape)
    if dtype_str in ("bool", "int1", "bool_"):
        return normal > 0.0
    if dtype_str == "bfloat16":
        return (normal.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    if dtype_str in float_dtypes:
        return normal.astype(dtype_str)
    raise RuntimeError(f"Unknown dtype {dtype_str}")


def to_triton(x: np.ndarray[Any, Any], device: Any, dst_type: str | None = None) -> Any:
    """A tensor of an array's numbers. `dst_type` is the dtype where NumPy has none: bfloat16, float8…"""
    name = x.dtype.name
    if name in uint_dtypes:
        return reinterpret(torch.tensor(x.view(name.removeprefix("u")), device=device), getattr(language, name))
    tensor = torch.tensor(x, device=device)
    if dst_type is not None and "float8" in dst_type:
        return reinterpret(tensor, getattr(language, dst_type))
    return tensor.bfloat16() if name == "float32" and dst_type == "bfloat16" else tensor


def str_to_triton_dtype(x: str) -> Any:
    return language.str_to_ty(type_canonicalisation_dict[x], None)


def torch_dtype_name(dtype: Any) -> str:
    """The name of a dtype of PyTorch or of the language, such as float32."""
    if isinstance(dtype, torch.dtype):
        return str(dtype).removeprefix("torch.")
    if isinstance(dtype, language.dtype):
        return str(dtype.name)
    raise TypeError(f"not a triton or torch dtype: {type(dtype)}")


def to_numpy(x: Any) -> np.ndarray[Any, Any]:
    """The numbers of a tensor; those of bfloat16 as float32."""
    if isinstance(x, TensorWrapper):
        return x.base.cpu().numpy().astype(torch_dtype_name(x.dtype))
    if not isinstance(x, torch.Tensor):
        raise ValueError(f"Not a triton-compatible tensor: {x}")
    return (x.float() if x.dtype is torch.bfloat16 else x).cpu().numpy()


def unwrap_tensor(t: Any) -> Any:
    """The tensor of PyTorch."""
    return t.base if isinstance(t, TensorWrapper) else t


def default_alloc_fn(size: int, align: int, _: Any) -> Any:
    return torch.empty(size, dtype=torch.int8, device="cuda")


def supports_tma(byval_only: bool = False) -> bool:
    return is_interpreter() or is_hopper_or_newer()


def supports_ws() -> bool:
    return is_interpreter() or is_hopper_or_newer()


def supports_clc() -> bool:
    return _capability() >= 100


def skip_if_unsupported_cluster_size(num_ctas: int) -> None:
    if num_ctas > 8:
        pytest.skip("larger clusters than every GPU with clusters has")


def tma_skip_msg(byval_only: bool = False) -> str:
    return "Requires TMA (NVIDIA Hopper or newer)"


requires_tma = pytest.mark.skipif(not supports_tma(), reason=tma_skip_msg())


def _fresh_knobs_impl(skipped_attr: set[str] | None = None) -> tuple[Callable[[], Any], Callable[[], None]]:
    """A function that gives all groups of settings their defaults, but for some by name, and one that undoes it."""
    groups = {
        name: group
        for name, group in vars(knobs).items()
        if isinstance(group, knobs.base_knobs) and name not in (skipped_attr or ())
    }
    variables = dict(os.environ)
    propagate = knobs.propagate_env

    def fresh() -> Any:
        for name, group in groups.items():
            setattr(knobs, name, group.copy().reset())
            for knob in group.knob_descriptors.values():
                os.environ.pop(knob.key, None)
        knobs.propagate_env = True
        knobs.note_hooks()
        return knobs

    def reset() -> None:
        for name, group in groups.items():
            setattr(knobs, name, group)
        knobs.note_hooks()
        keys = {knob.key for group in groups.values() for knob in group.knob_descriptors.values()}
        for key in keys:
            os.environ.pop(key, None)
        os.environ.update({key: value for key, value in variables.items() if key in keys})
        knobs.propagate_env = propagate

    return fresh, reset
