"""`triton.knobs`: Triton's settings by name, each with its environment variable.

A setting that was assigned counts; otherwise its environment variable, which is read at each use, and then its default.
An assignment also sets the environment variable, for child processes, unless `propagate_env` is False. Each setting of
Triton 3.4 to 3.9 says what it does here: it has an `effect`, or a compilation warns that it has none, or there is
nothing for it to do, as the group says.
"""

from __future__ import annotations

import importlib
import os
import re
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

import attrs

from ziggurat.codemodel.errors import ZigguratWarning, warn

propagate_env: bool = True
# Whether launches have hooks, or may be refused by one, or are debugged: launches ask for this first.
watched: bool = False

_TRUE = frozenset(("1", "true", "on", "yes", "y"))


def getenv(key: str, default: str | None = None) -> str | None:
    """An environment variable; the default for one that is not set."""
    return os.environ.get(key, default)


def getenv_bool(key: str, default: bool | None) -> bool | None:
    """Whether an environment variable says true; the default for one that is not set."""
    value = os.environ.get(key)
    return default if value is None else value.lower() in _TRUE


def setenv(key: str, value: str | None) -> None:
    """Set an environment variable, or remove it for None, unless `propagate_env` is False."""
    if propagate_env:
        _put(key, value)


def _put(key: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(key, None)
    else:
        os.environ[key] = value


def toenv(value: Any) -> tuple[str | None] | None:
    """The text of a setting in an environment variable, as a tuple of one; None for a value that has no text."""
    if value is None or type(value) is str:
        return (value,)
    if type(value) in (bool, int):
        return (str(int(value)),)
    return None


class Env:
    """The type of `env`: a setting that is assigned it has the value of its environment variable again."""


env = Env()


class env_base:
    """A setting with an environment variable, as a descriptor of a class of settings."""

    DEFAULT: Any = None  # Unless the setting has another one.

    def __init__(
        self, key: str, default: Any = None, *, effect: str = "", instead: str = "", is_key: bool = False
    ) -> None:
        """`effect` says what the setting does; or `instead`, what to do in its place, as it does nothing. `is_key` is
        true of a setting that changes what kernels are compiled to."""
        self.key = key
        self.default = self.DEFAULT if default is None else default
        self.effect, self.instead, self.is_key = effect, instead, is_key

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self.name = name

    def __get__(self, settings: Any, owner: type[Any] | None = None) -> Any:
        if settings is None:
            return self
        assigned: dict[str, Any] = settings.__dict__
        return self.transform(assigned[self.name]) if self.name in assigned else self.get()

    def __set__(self, settings: object, value: Any) -> None:
        if isinstance(value, Env):
            vars(settings).pop(self.name, None)
            return
        vars(settings)[self.name] = value
        text = toenv(value)
        if text is not None:
            setenv(self.key, text[0])

    def __delete__(self, settings: object) -> None:
        vars(settings).pop(self.name, None)

    def get(self) -> Any:
        """The value that the environment variable gives, or the default."""
        text = getenv(self.key)
        return self.default if text is None else self.read(text)

    def read(self, text: str) -> Any:
        """The value for the text of the environment variable."""
        return text

    def transform(self, value: Any) -> Any:
        """The value of the setting for a value that was assigned."""
        return value


class env_str(env_base):
    """A text."""


class env_opt_str(env_base):
    """A text, or None."""


class env_str_callable_default(env_base):
    """A text whose default is computed."""

    def get(self) -> str:
        text = getenv(self.key)
        return self.default() if text is None else text


class env_bool(env_base):
    """A bool."""

    DEFAULT = False

    def get(self) -> bool | None:
        return getenv_bool(self.key, self.default)


class env_opt_bool(env_bool):
    """A bool, or None."""

    DEFAULT = None


class env_int(env_base):
    """An integer."""

    DEFAULT = 0

    def read(self, text: str) -> int:
        try:
            return int(text)
        except ValueError:
            raise RuntimeError(f"{self.key} must be an integer; got {text!r}") from None


class env_class(env_base):
    """A class, which the environment variable names as `module:Class`. It must derive from a class of the given
    name."""

    def __init__(self, key: str, type: str, *, instead: str = "") -> None:
        super().__init__(key, instead=instead)
        self.type = type

    def read(self, text: str) -> Any:
        module, colon, name = text.partition(":")
        if not colon:
            raise RuntimeError(f"{self.key} must be of the form MODULE:CLASS; got {text!r}")
        value = getattr(importlib.import_module(module), name)
        if not any(base.__name__ == self.type for base in value.mro()):
            raise RuntimeError(f"{self.key} must name a class derived from {self.type}; got {text!r}")
        return value


@attrs.frozen
class NvidiaTool:
    """A program of NVIDIA's toolkit: its path, and its release, such as 12.8."""

    path: str
    version: str

    @staticmethod
    def from_path(path: str) -> NvidiaTool | None:
        """The tool of a path; None if it cannot be run."""
        import subprocess

        try:
            output = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            return None
        release = re.search(r"release (\d+\.\d+)", output)
        return None if release is None else NvidiaTool(path, release[1])


class env_nvidia_tool(env_base):
    """A program of NVIDIA's toolkit, whose path may be assigned."""

    def __init__(self, binary: str) -> None:
        effect = (
            f"the path of {binary} for programs that ask for it; ziggurat takes that of $PATH, or of NVIDIA's packages"
        )
        super().__init__(f"TRITON_{binary.upper().replace('-', '_')}_PATH", effect=effect)
        self.binary = binary

    def get(self) -> NvidiaTool:
        return self.transform(getenv(self.key))

    def transform(self, value: str | None) -> NvidiaTool:
        from ziggurat.backend.ptx.sass import tool

        for path in (value, str(tool(self.binary))):
            program = NvidiaTool.from_path(path) if path else None
            if program is not None:
                return program
        raise RuntimeError(f"cannot find {self.binary}")


@attrs.frozen
class CompileTimes:
    """The times of one compilation in microseconds: making the first model, each later stage by name, and storing."""

    ir_initialization: int
    lowering_stages: list[tuple[str, int]]
    store_results: int

    @property
    def total_lowering(self) -> int:
        return sum(time for _, time in self.lowering_stages)

    @property
    def total(self) -> int:
        return self.ir_initialization + self.total_lowering + self.store_results


class HookChain:
    """Functions that are called in the order in which they were added, or in reverse."""

    def __init__(self, reversed: bool = False) -> None:
        self.calls: list[Callable[..., Any]] = []
        self.reversed = reversed

    def add(self, func: Callable[..., Any]) -> None:
        if func not in self.calls:
            self.calls.append(func)
        note_hooks()

    def remove(self, func: Callable[..., Any]) -> None:
        if func in self.calls:
            self.calls.remove(func)
        note_hooks()

    def __bool__(self) -> bool:
        return bool(self.calls)

    def __call__(self, *arguments: Any, **keywords: Any) -> None:
        for call in self.calls[:: -1 if self.reversed else 1]:
            call(*arguments, **keywords)


class base_knobs:
    """A group of settings."""

    NEEDLESS: ClassVar[str] = ""  # The reason why settings of the group without an effect have nothing to do.

    @property
    def knob_descriptors(self) -> dict[str, env_base]:
        """The settings with environment variables, by name."""
        return {name: knob for name, knob in vars(type(self)).items() if isinstance(knob, env_base)}

    @property
    def knobs(self) -> dict[str, Any]:
        """The values of the settings with environment variables, by name."""
        return {name: getattr(self, name) for name in self.knob_descriptors}

    def copy(self) -> Self:
        """Settings with the same assigned values."""
        copy = type(self)()
        vars(copy).update(vars(self))
        return copy

    def reset(self) -> Self:
        """Forget the assigned values of settings with environment variables."""
        for name in self.knob_descriptors:
            delattr(self, name)
        return self

    @contextmanager
    def scope(self) -> Generator[None, None, None]:
        """On leaving, give the settings and their environment variables the values that they had."""
        variables = {knob.key: getenv(knob.key) for knob in self.knob_descriptors.values()}
        assigned = dict(vars(self))
        try:
            yield
        finally:
            vars(self).clear()
            vars(self).update(assigned)
            for key, value in variables.items():
                _put(key, value)
            note_hooks()


class build_knobs(base_knobs):
    """Settings of the C compiler."""

    NEEDLESS = "nothing is compiled in C"

    cc = env_opt_str("CC")
    cudacrt_path = env_opt_str("TRITON_CUDACRT_PATH")
    cudart_path = env_opt_str("TRITON_CUDART_PATH")
    impl: Any = None

    @property
    def backend_dirs(self) -> set[str]:
        return {path for path in (self.cudacrt_path, self.cudart_path) if path is not None}


# The types of functions that settings hold, for annotations.
BuildImpl = CompilationListener = AutotuneListener = LaunchHook = InitHandleHook = Callable[..., Any]
JITHook = PipelineStagesHook = Callable[..., Any]


class redis_knobs(base_knobs):
    NEEDLESS = "kernels are kept in files"

    key_format = env_str("TRITON_REDIS_KEY_FORMAT", "triton:{key}:{filename}")
    host = env_str("TRITON_REDIS_HOST", "localhost")
    port = env_int("TRITON_REDIS_PORT", 6379)


class cache_knobs(base_knobs):
    """The folders in which things are kept."""

    home_dir = env_str("TRITON_HOME", os.path.expanduser("~/"), effect="the folder of `.triton`, in which others are")
    dump_dir = env_str_callable_default(
        "TRITON_DUMP_DIR", lambda: cache.get_triton_dir("dump"), effect="the folder of TRITON_KERNEL_DUMP"
    )
    override_dir = env_str_callable_default(
        "TRITON_OVERRIDE_DIR", lambda: cache.get_triton_dir("override"), effect="the folder of TRITON_KERNEL_OVERRIDE"
    )
    dir = env_str_callable_default(
        "TRITON_CACHE_DIR", lambda: cache.get_triton_dir("cache"), effect="the folder of kept kernels and choices"
    )
    manager_class = env_class(
        "TRITON_CACHE_MANAGER", "CacheManager", instead="kernels are kept in files; get_cache_manager uses the class"
    )
    remote_manager_class = env_class(
        "TRITON_REMOTE_CACHE_BACKEND", "RemoteCacheBackend", instead="kernels are kept in files: copy TRITON_CACHE_DIR"
    )

    def get_triton_dir(self, dirname: str) -> str:
        """The folder of a name in `.triton` of the home folder."""
        return os.path.join(self.home_dir, ".triton", dirname)


class compilation_knobs(base_knobs):
    NEEDLESS = "it is always so"

    override = env_bool("TRITON_KERNEL_OVERRIDE", effect="stages of kernels are read from TRITON_OVERRIDE_DIR")
    dump_ir = env_bool("TRITON_KERNEL_DUMP", effect="stages of kernels are written to TRITON_DUMP_DIR")
    dump_ir_extract_di_local_variables = env_bool(
        "LLVM_EXTRACT_DI_LOCAL_VARIABLES", instead="machine code has lines, and no variables"
    )
    store_binary_only = env_bool("TRITON_STORE_BINARY_ONLY")
    always_compile = env_bool("TRITON_ALWAYS_COMPILE", effect="no kernel is taken from the folder of kept ones")
    use_ir_loc = env_opt_str("USE_IR_LOC", instead="lines are those of the Python source")
    enable_asan = env_bool("TRITON_ENABLE_ASAN", instead="launch on this machine with strict=True")
    disable_line_info = env_bool(
        "TRITON_DISABLE_LINE_INFO", effect="machine code has no lines of the source", is_key=True
    )
    front_end_debugging = env_bool(
        "TRITON_FRONT_END_DEBUGGING", instead="errors name the kernel's line; a fault of the compiler has its traceback"
    )
    allow_non_constexpr_globals = env_bool(
        "TRITON_ALLOW_NON_CONSTEXPR_GLOBALS", effect="kernels, when they are defined, may read every global"
    )
    instrumentation_mode = env_str("TRITON_INSTRUMENTATION_MODE", "", instead="instrument the model by a transform")
    enable_experimental_consan = env_bool("TRITON_ENABLE_EXPERIMENTAL_CONSAN", instead="simulate the kernel")
    fpsan_homomorphic_casts = env_bool("TRITON_FPSAN_HOMOMORPHIC_CASTS", instead="prove the models equal")
    listener: Any = None


class autotuning_knobs(base_knobs):
    cache = env_bool("TRITON_CACHE_AUTOTUNING", effect="choices of tuning are kept on disk")
    print = env_bool("TRITON_PRINT_AUTOTUNING", effect="tuning prints the times and the choice")
    listener: Any = None


class runtime_knobs(base_knobs):
    """Settings of launches, and the hooks of launches and compilations."""

    interpret = env_bool("TRITON_INTERPRET", effect="kernels, when they are defined, are for the reference interpreter")
    debug: bool = bool(getenv_bool("TRITON_DEBUG", False))
    override_arch = env_opt_str(
        "TRITON_OVERRIDE_ARCH", effect="kernels are compiled for this target, `sm80`, unless a launch has `arch`",
        is_key=True,
    )  # fmt: skip
    launch_enter_hook: HookChain = HookChain()
    launch_exit_hook: HookChain = HookChain(reversed=True)
    kernel_load_start_hook: HookChain = HookChain()
    kernel_load_end_hook: HookChain = HookChain(reversed=True)
    kernel_unload_hook: HookChain = HookChain()  # Not called: kernels stay loaded.
    jit_cache_hook: Any = None
    jit_post_compile_hook: Any = None
    add_stages_inspection_hook: Any = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "add_stages_inspection_hook" and value is not None:
            message = (
                "knobs.runtime.add_stages_inspection_hook is not called: stages are not passes of Triton's; give a "
                "launch the file of a stage, ir_override=, or transform its models (docs/guides/triton.md)"
            )
            warnings.warn(message, ZigguratWarning, stacklevel=2)
        super().__setattr__(name, value)
        if self is runtime:
            note_hooks()


class language_knobs(base_knobs):
    fp32_default = env_opt_str(
        "TRITON_F32_DEFAULT", effect="the precision of dots of f32 that name none: `tf32`, `ieee` …", is_key=True
    )
    default_fp_fusion = env_bool(
        "TRITON_DEFAULT_FP_FUSION", True, effect="sums and differences with products become fma, unless a launch "
        "has `enable_fp_fusion`", is_key=True,
    )  # fmt: skip
    force_disable_fp_fusion = env_bool(
        "TRITON_FORCE_DISABLE_FP_FUSION", effect="no sum or difference becomes fma, whatever a launch has", is_key=True
    )

    def fp_fusion_enabled(self, requested: bool | None) -> bool:
        """Whether sums and differences with products become fma, for the option of a launch."""
        is_default = bool(self.default_fp_fusion)
        return not self.force_disable_fp_fusion and (is_default if requested is None else bool(requested))


class nvidia_knobs(base_knobs):
    NEEDLESS = "the driver is that which the process has loaded"

    cuobjdump = env_nvidia_tool("cuobjdump")
    nvdisasm = env_nvidia_tool("nvdisasm")
    ptxas = env_nvidia_tool("ptxas")
    ptxas_blackwell = env_nvidia_tool("ptxas-blackwell")
    dump_nvptx = env_bool("NVPTX_ENABLE_DUMP", effect="a compilation prints the PTX")
    disable_ptxas_opt = env_bool(
        "DISABLE_PTXAS_OPT", effect="ptxas assembles the kernel, with --opt-level 0", is_key=True
    )
    ptxas_options = env_opt_str("PTXAS_OPTIONS", effect="ptxas assembles the kernel, with these options", is_key=True)
    mock_ptx_version = env_opt_str("TRITON_MOCK_PTX_VERSION", instead="the version of PTX is that of the target")
    dump_ptxas_log = env_bool(
        "TRITON_DUMP_PTXAS_LOG", instead="a launch's result has n_regs and n_spills, and compiled.explain() the rest"
    )
    libdevice_path = env_opt_str("TRITON_LIBDEVICE_PATH", instead="the language has libdevice's functions itself")
    libcuda_path = env_opt_str("TRITON_LIBCUDA_PATH")


class amd_knobs(base_knobs):
    NEEDLESS = "it concerns AMD's GPUs, as in Triton"

    codegen_path = env_opt_str("TRITON_AMD_CODEGEN_PATH")
    use_buffer_ops = env_bool("AMDGCN_USE_BUFFER_OPS", True)
    use_buffer_atomics = env_bool("AMDGCN_USE_BUFFER_ATOMICS", True)
    buffer_ops_analyze_small_tensor_range = env_bool("AMDGCN_ANALYZE_SMALL_TENSOR_RANGE")
    dump_amdgcn = env_bool("AMDGCN_ENABLE_DUMP")
    dump_mir = env_opt_str("TRITON_DUMP_MIR")
    swap_mir = env_opt_str("TRITON_SWAP_MIR")
    swap_mir_enable_misched = env_bool("TRITON_SWAP_MIR_ENABLE_MISCHED")
    lld_path = env_opt_str("TRITON_HIP_LLD_PATH")
    libhip_path = env_opt_str("TRITON_LIBHIP_PATH")
    global_prefetch = env_int("TRITON_HIP_GLOBAL_PREFETCH")
    local_prefetch = env_int("TRITON_HIP_LOCAL_PREFETCH")
    use_block_pingpong = env_opt_bool("TRITON_HIP_USE_BLOCK_PINGPONG")
    use_coexec_scheduler = env_opt_bool("TRITON_HIP_USE_COEXEC_SCHEDULER")
    use_expert_scheduling = env_opt_bool("TRITON_HIP_USE_EXPERT_SCHEDULING")
    use_in_thread_transpose = env_opt_bool("TRITON_HIP_USE_IN_THREAD_TRANSPOSE")
    use_async_copy = env_bool("TRITON_HIP_USE_ASYNC_COPY")
    scalarize_packed_fops = env_bool("AMDGCN_SCALARIZE_PACKED_FOPS")


class proton_knobs(base_knobs):
    NEEDLESS = "the profiler measures launches by events"

    disable = env_bool("TRITON_PROTON_DISABLE", effect="profiler.start starts nothing")
    cupti_dir = env_opt_str("TRITON_CUPTI_LIB_PATH")
    cupti_lib_dir = env_str("TRITON_CUPTI_LIB_PATH", str(Path(__file__).parent / "backends" / "nvidia" / "lib"))
    cupti_lib_blackwell_dir = env_str(
        "TRITON_CUPTI_LIB_BLACKWELL_PATH", str(Path(__file__).parent / "backends" / "nvidia" / "lib")
    )
    enable_nvtx = env_bool("TRITON_ENABLE_NVTX", True)
    enable_hw_trace = env_bool("TRITON_ENABLE_HW_TRACE")
    profile_buffer_size = env_int("TRITON_PROFILE_BUFFER_SIZE", 64 << 20)
    profile_metric_buffer_size = env_int("TRITON_PROFILE_METRIC_BUFFER_SIZE", 64 << 20)
    hsa_runtime_path = env_opt_str("TRITON_HSA_RUNTIME_PATH")
    hsa_runtime_library = env_opt_str("TRITON_HSA_RUNTIME_LIBRARY")
    rocprofiler_sdk_include_path = env_opt_str("TRITON_ROCPROFILER_SDK_INCLUDE_PATH")
    rocprofiler_sdk_lib_path = env_opt_str("TRITON_ROCPROFILER_SDK_LIB_PATH")
    rocprofiler_sdk_library = env_opt_str("TRITON_ROCPROFILER_SDK_LIBRARY")
    roctracer_lib_path = env_opt_str("TRITON_ROCTRACER_LIB_PATH")
    roctracer_library = env_opt_str("TRITON_ROCTRACER_LIBRARY")
    roctx_lib_path = env_opt_str("TRITON_ROCTX_LIB_PATH")
    roctx_library = env_str("TRITON_ROCTX_LIBRARY", "libroctx64.so")


class _compiler_knobs(base_knobs):
    """Variables that Triton's C++ code reads, and others that have no name in `triton.knobs`."""

    NEEDLESS = "it concerns threads or pictures of passes that ziggurat does not have"
    PASSES = "the passes are ziggurat's; print models by MLIR_ENABLE_DUMP, or compiled.passes"
    LLVM = "LLVM is that of llvmlite"
    OPTIONS = "the compiler chooses; options of a launch are in docs/guides/compiling.md"

    debug = env_bool("TRITON_DEBUG", effect="from the import on, kernels are compiled with assertions: runtime.debug")
    dump = env_str("MLIR_ENABLE_DUMP", "", effect="1, or a kernel's name: the model before each pass is printed")
    default_backend = env_opt_str("TRITON_DEFAULT_BACKEND", instead="arrays are where a launch runs")
    dump_path = env_opt_str("MLIR_DUMP_PATH", instead="models are printed on the standard error")
    diagnostics = env_opt_str("MLIR_ENABLE_DIAGNOSTICS", instead=PASSES)
    timing = env_bool("MLIR_ENABLE_TIMING", instead=PASSES)
    reproducer = env_opt_str("TRITON_REPRODUCER_PATH", instead=PASSES)
    python_stacktrace = env_bool("TRITON_ENABLE_PYTHON_STACKTRACE", instead="warnings name the kernel's line")
    multithreading = env_bool("MLIR_DISABLE_MULTITHREADING")
    dot_dump = env_bool("TRITON_PARTITION_SCHEDULING_ENABLE_DUMP_DOT")
    data_dump = env_bool("TRITON_PARTITION_SCHEDULING_DUMP_DATA_ONLY")
    loop_dump = env_bool("TRITON_PARTITION_SCHEDULING_DUMP_LOOP_ONLY")
    plugins = env_opt_str("TRITON_PLUGIN_PATHS", instead="plugins are written against Triton's C++; use zg.kit")
    plugin_version = env_opt_str("TRITON_PLUGIN_VERSION_CHECK")
    llvm_options = env_opt_str("DISABLE_LLVM_OPT", instead=LLVM)
    llvm_timing = env_bool("LLVM_ENABLE_TIMING", instead=LLVM)
    llvm_dump = env_bool("LLVM_IR_ENABLE_DUMP", instead="TRITON_KERNEL_DUMP=1 writes the stage llir")
    llvm_plugin = env_opt_str("LLVM_PASS_PLUGIN_PATH", instead=LLVM)
    llvm_debug = env_bool("TRITON_ENABLE_LLVM_DEBUG", instead=LLVM)
    llvm_debug_only = env_opt_str("TRITON_LLVM_DEBUG_ONLY", instead=LLVM)
    mma_v3 = env_bool("DISABLE_MMA_V3", instead="compile for target sm_90, which has no wgmma")
    mma_v5 = env_bool("DISABLE_MMA_V5", instead=OPTIONS)
    mma_v5_attention = env_bool("ENABLE_MMA_V5_ATT_PIPELINE", instead=OPTIONS)
    attention_warps = env_bool("WARP_SPECIALIZE_ATTENTION_FLAG", instead=OPTIONS)
    fast_reduction = env_bool("DISABLE_FAST_REDUCTION", instead=OPTIONS)
    reshape_encoding = env_bool("TRITON_DISABLE_RESHAPE_ENCODING_INFERENCE", instead=OPTIONS)
    tmem_bypass = env_bool("STORE_TMEM_TO_GLOBAL_BYPASS_SMEM", instead=OPTIONS)
    tmem_layout = env_bool("ALLOW_LHS_TMEM_LAYOUT_CONVERSION", instead=OPTIONS)
    consan_allocations = env_bool("TRITON_CONSAN_INIT_ALLOCATIONS", instead="simulate the kernel")


build = build_knobs()
redis = redis_knobs()
cache = cache_knobs()
compilation = compilation_knobs()
autotuning = autotuning_knobs()
runtime = runtime_knobs()
language = language_knobs()
nvidia = nvidia_knobs()
amd = amd_knobs()
proton = proton_knobs()
_compiler = _compiler_knobs()


def settings() -> Iterator[tuple[base_knobs, str, env_base]]:
    """Each setting: its group, its name as in `triton.knobs`, "cache.dir", or "" for a variable alone, and itself."""
    for group_name, group in globals().items():
        if isinstance(group, base_knobs):
            for name, knob in group.knob_descriptors.items():
                yield group, "" if group is _compiler else f"{group_name}.{name}", knob


def effect_of(group: base_knobs, knob: env_base) -> str:
    """The effect of a setting, or the reason why it has none."""
    return knob.effect or (f"none, with a warning: {knob.instead}" if knob.instead else f"none: {group.NEEDLESS}")


_warned: set[str] = set()


def warn_of_ignored() -> None:
    """Warn, once a process, of each setting that has another value than its default, and would change what a
    compilation does, but has no effect."""
    for group, _, knob in settings():
        if not knob.instead or knob.key in _warned or not (knob.name in vars(group) or knob.key in os.environ):
            continue
        if getattr(group, knob.name) not in (knob.default, None, ""):
            _warned.add(knob.key)
            warn(f"{knob.key} has no effect: {knob.instead}", None)


def note_hooks() -> None:
    """Note whether launches have hooks or are debugged."""
    global watched
    hooks = (runtime.debug, runtime.launch_enter_hook, runtime.launch_exit_hook, runtime.jit_cache_hook)
    watched = any(map(bool, hooks))


note_hooks()


def refresh_knobs() -> None:
    """Read the environment variable of `runtime.debug` again, which is read at the import otherwise."""
    runtime.debug = bool(getenv_bool("TRITON_DEBUG", False))
