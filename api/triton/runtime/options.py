"""The options of a launch of a Triton kernel, `num_warps=8, launch_pdl=True`, as options of our compiler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ziggurat.codemodel.errors import LaunchError, shown
from ziggurat.codemodel.gpu.options import DEFAULT_OPTIONS, LAUNCH_OPTIONS, MAX_WARPS, CompileOptions, checked_option
from ziggurat.codemodel.gpu.targets import target_for

# The options that only the C++ compiler has, some for other GPUs, with their defaults: accepted, and told to hooks.
_ACCEPTED: Final[dict[str, Any]] = {
    "warp_size": 32, "ptx_version": None, "ptx_options": None, "ir_override": None, "enable_fp_fusion": True,
    "enable_reflect_ftz": True, "supported_fp8_dtypes": (), "deprecated_fp8_dot_operand_dtypes": (),
    "default_dot_input_precision": "tf32", "allowed_dot_input_precisions": (), "max_num_imprecise_acc_default": None,
    "extern_libs": None, "debug": False, "backend_name": "cuda", "sanitize_overflow": True, "instrumentation_mode": "",
    "arch": None, "waves_per_eu": 0, "matrix_instr_nonkdim": 0, "kpack": 1,
}  # fmt: skip
_SHARED: Final = ("num_warps", "num_stages", "num_ctas", "maxnreg", "launch_pdl", "launch_cooperative_grid")
DEFAULTS: Final[dict[str, Any]] = {**_ACCEPTED, **{name: getattr(DEFAULT_OPTIONS, name) for name in _SHARED}}
_CTAS: Final = (1, 2, 4, 8, 16)
_DEPRECATED: Final = {"device_type": "target", "device": "device"}


def check(given: Mapping[str, Any]) -> None:
    """Raise `KeyError`, in Triton's words, for a keyword that is no option, and `LaunchError` for a value that an
    option cannot have."""
    for name, value in given.items():
        if name in _DEPRECATED:
            raise AssertionError(f"{name} option is deprecated; current {_DEPRECATED[name]} will be used")
        if name not in _ACCEPTED and name not in LAUNCH_OPTIONS:
            raise KeyError(f"Keyword argument {name} was specified but unrecognised")
        if name == "num_warps":
            assert isinstance(value, int) and value > 0 and value & (value - 1) == 0, "num_warps must be a power of 2"
        if name == "num_ctas" and value not in (None, *_CTAS):
            raise LaunchError(f"num_ctas must be one of {', '.join(map(str, _CTAS))}; got {shown(value)}")
        if name != "num_ctas" and value is not None:
            checked_option(name, value)


def compile_options(given: Mapping[str, Any]) -> CompileOptions:
    """The options of our compiler for those of a launch. `arch="sm90"` is a target.

    A program is one CTA: it has the warps of all the CTAs that `num_ctas` asks for.
    """
    ours = {name: value for name, value in given.items() if name not in _ACCEPTED}
    ctas = ours.pop("num_ctas", None) or 1
    if ctas > 1:
        ours["num_warps"] = min(MAX_WARPS, ctas * (ours.get("num_warps") or DEFAULTS["num_warps"]))
    if given.get("arch") is not None:
        number = int(str(given["arch"]).removeprefix("sm_").removeprefix("sm").rstrip("a"))
        ours["target"] = target_for(number // 10, number % 10)
    return CompileOptions.of(ours)
