"""The options of a launch of a Triton kernel, `num_warps=8, launch_pdl=True`, as options of our compiler."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from ziggurat.codemodel.errors import LaunchError, warn
from ziggurat.codemodel.gpu.options import (
    LAUNCH_OPTIONS,
    MAX_REGISTERS,
    MAX_WARPS,
    USUAL_STAGES,
    USUAL_WARPS,
    CompileOptions,
    checked_option,
    default_of,
)
from ziggurat.codemodel.gpu.targets import target_for
from ziggurat.triton import knobs
from ziggurat.triton.runtime.errors import OutOfResources

if TYPE_CHECKING:
    from ziggurat.kernels.kernel import Kernel

# The options that our compiler has under another name, or that the host side heeds, with their defaults.
_HEEDED: Final[dict[str, Any]] = {
    "enable_fp_fusion": True, "extern_libs": None, "debug": False, "sanitize_overflow": True, "ir_override": None,
    "ptx_options": None, "arch": None, "backend_name": "cuda", "warp_size": 32,
}  # fmt: skip
# The options without a counterpart, with their defaults and the reason.
_WITHOUT_EFFECT: Final[dict[str, tuple[Any, str]]] = {
    "ptx_version": (None, "the version of PTX is that of the target"),
    "enable_reflect_ftz": (True, "the functions of libdevice keep subnormal numbers or not by their own rules"),
    "supported_fp8_dtypes": ((), "the target decides"),
    "deprecated_fp8_dot_operand_dtypes": ((), "the target decides"),
    "default_dot_input_precision": ("tf32", "name it in the dot: tl.dot(…, input_precision=…)"),
    "allowed_dot_input_precisions": ((), "all precisions are allowed"),
    "max_num_imprecise_acc_default": (None, "name it in the dot: tl.dot(…, max_num_imprecise_acc=…)"),
    "instrumentation_mode": ("", "instrument the model by a transform"),
    **dict.fromkeys(("waves_per_eu", "matrix_instr_nonkdim"), (0, "it is an option for AMD's GPUs")),
    "kpack": (1, "it is an option for AMD's GPUs"),
}
# Those of Triton 2.1 to 3.3, in the same form.
_ROLES: Final = "the compiler decides which warps load and which compute"
OF_EARLIER_RELEASES: Final[dict[str, tuple[Any, str]]] = {
    **dict.fromkeys(("num_buffers_warp_spec", "num_consumer_groups"), (0, _ROLES)),
    **dict.fromkeys(("reg_dec_producer", "reg_inc_consumer"), (0, _ROLES)),
    "enable_warp_specialization": (False, _ROLES),
    "enable_persistent": (False, "write the loop over blocks in the kernel"),
    "optimize_epilogue": (False, "the compiler decides how results are stored"),
    "cluster_dims": ((1, 1, 1), "num_ctas is the size of a cluster"),
    **dict.fromkeys(("allow_fp8e4nv", "allow_fp8e4b15"), (False, "the target decides")),
    "deprecated_fp8_dtypes": ((), "the target decides"),
}  # fmt: skip
_SHARED: Final = ("num_warps", "num_stages", "num_ctas", "maxnreg", "launch_pdl", "launch_cooperative_grid")
DEFAULTS: Final[dict[str, Any]] = {
    **_HEEDED, **{name: default for name, (default, _) in _WITHOUT_EFFECT.items()},
    **{name: default_of(name) for name in _SHARED},
}  # fmt: skip
_IGNORED: Final = {**_WITHOUT_EFFECT, **OF_EARLIER_RELEASES}
_OWN: Final = frozenset({*_HEEDED, *_IGNORED})
# Triton's programs are tuned for its numbers. With these given, the compiler chooses no roles.
_BASE: Final = CompileOptions(num_warps=USUAL_WARPS, num_stages=USUAL_STAGES, num_ctas=1)
_DEPRECATED: Final = {"device_type": "target", "device": "device"}
_warned: set[str] = set()


def check(launch_options: Mapping[str, Any], kernel: Kernel | None) -> None:
    """Raise `KeyError`, in Triton's words, for a keyword that is no option, `OutOfResources` for more warps than a
    GPU has, and `LaunchError` for another value that an option cannot have. Warn, once a process, of each option
    without effect."""
    for name, value in launch_options.items():
        if name in _DEPRECATED:
            raise AssertionError(f"{name} option is deprecated; current {_DEPRECATED[name]} will be used")
        if name not in _OWN and name not in LAUNCH_OPTIONS:
            names = (*(() if kernel is None else kernel.signature.parameters), *DEFAULTS)
            near = get_close_matches(name, names, 1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise KeyError(f"Keyword argument {name} was specified but unrecognised{hint}")
        if name == "num_warps":
            assert isinstance(value, int) and value > 0 and value & (value - 1) == 0, "num_warps must be a power of 2"
            if value > MAX_WARPS:
                raise OutOfResources(32 * value, 32 * MAX_WARPS, "threads")
        if name == "extern_libs":
            _require_known(value)
        if value is not None:
            checked_option(name, _bounded(value) if name == "maxnreg" else value)
        if name in _IGNORED and value not in (None, _IGNORED[name][0]) and name not in _warned:
            _warned.add(name)
            warn(f"the option {name}={value!r} has no effect: {_IGNORED[name][1]}", kernel.place if kernel else None)


def without_unknown(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a compilation that there are. Triton reads no others, such as those of another backend: a warning
    names them."""
    unknown = [name for name in options if name not in _OWN and name not in LAUNCH_OPTIONS and name not in _DEPRECATED]
    if unknown:
        warn(f"there is no option {', '.join(unknown)}: it has no effect", None)
    return {name: value for name, value in options.items() if name not in unknown}


def _bounded(maxnreg: Any) -> Any:
    """A number of registers that a thread can have: programs write 256 for all of them."""
    return min(maxnreg, MAX_REGISTERS) if isinstance(maxnreg, int) else maxnreg


def _require_known(libraries: Any) -> None:
    """Raise `LaunchError` for a library to link besides libdevice, whose functions the language has itself."""
    for name, path in dict(libraries or {}).items():
        if name != "libdevice":
            raise LaunchError(
                f"extern_libs can only name libdevice; got {name!r}, {path!r}",
                hint="write its functions in the language, or as inline assembly: kernels call none of a library",
            )


def compile_options(launch_options: Mapping[str, Any]) -> CompileOptions:
    """The options of our compiler for those of a launch. `arch="sm90"` is a target."""
    ours = {name: value for name, value in launch_options.items() if name not in _OWN}
    if ours.get("maxnreg") is not None:
        ours["maxnreg"] = _bounded(ours["maxnreg"])
    knobs.warn_of_ignored()
    fused = launch_options.get("enable_fp_fusion")
    if knobs.compilation.disable_line_info:
        ours.setdefault("line_info", False)
    ours["contract"] = knobs.language.fp_fusion_enabled(fused)
    arch = launch_options.get("arch") or knobs.runtime.override_arch
    if arch is not None:
        number = int(str(arch).removeprefix("sm_").removeprefix("sm").rstrip("a"))
        ours["target"] = target_for(number // 10, number % 10)
    return CompileOptions.of(ours, _BASE)
