"""`triton.knobs`: Triton's settings by name, each with its environment variable.

A setting that was assigned counts; otherwise its environment variable, which is read at each use, and then its default.
An assignment also sets the environment variable, for child processes, unless `propagate_env` is False. Settings of the
C++ compiler, of AMD's GPUs and of other tools are accepted, and have no effect.
"""

from __future__ import annotations

import importlib
import os
import re
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import attrs

from ziggurat.codemodel.errors import ZigguratWarning

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

    def __init__(self, key: str, default: Any = None) -> None:
        self.key = key
        self.default = self.DEFAULT if default is None else default

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

    def __init__(self, key: str, type: str) -> None:
        super().__init__(key)
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
        super().__init__(f"TRITON_{binary.upper().replace('-', '_')}_PATH")
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
    """Settings of the C compiler, which ziggurat does not use."""

    cc = env_opt_str("CC")
    cudacrt_path = env_opt_str("TRITON_CUDACRT_PATH")
    cudart_path = env_opt_str("TRITON_CUDART_PATH")
    impl: Any = None

    @property
    def backend_dirs(self) -> set[str]:
        return {path for path in (self.cudacrt_path, self.cudart_path) if path is not None}


class redis_knobs(base_knobs):
    key_format = env_str("TRITON_REDIS_KEY_FORMAT", "triton:{key}:{filename}")
    host = env_str("TRITON_REDIS_HOST", "localhost")
    port = env_int("TRITON_REDIS_PORT", 6379)


class cache_knobs(base_knobs):
    """The folders in which things are kept."""

    home_dir = env_str("TRITON_HOME", os.path.expanduser("~/"))
    dump_dir = env_str_callable_default("TRITON_DUMP_DIR", lambda: cache.get_triton_dir("dump"))
    override_dir = env_str_callable_default("TRITON_OVERRIDE_DIR", lambda: cache.get_triton_dir("override"))
    dir = env_str_callable_default("TRITON_CACHE_DIR", lambda: cache.get_triton_dir("cache"))
    manager_class = env_class("TRITON_CACHE_MANAGER", "CacheManager")
    remote_manager_class = env_class("TRITON_REMOTE_CACHE_BACKEND", "RemoteCacheBackend")

    def get_triton_dir(self, dirname: str) -> str:
        """The folder of a name in `.triton` of the home folder."""
        return os.path.join(self.home_dir, ".triton", dirname)


class compilation_knobs(base_knobs):
    override = env_bool("TRITON_KERNEL_OVERRIDE")
    dump_ir = env_bool("TRITON_KERNEL_DUMP")
    dump_ir_extract_di_local_variables = env_bool("LLVM_EXTRACT_DI_LOCAL_VARIABLES")
    store_binary_only = env_bool("TRITON_STORE_BINARY_ONLY")
    always_compile = env_bool("TRITON_ALWAYS_COMPILE")
    use_ir_loc = env_opt_str("USE_IR_LOC")
    enable_asan = env_bool("TRITON_ENABLE_ASAN")
    disable_line_info = env_bool("TRITON_DISABLE_LINE_INFO")
    front_end_debugging = env_bool("TRITON_FRONT_END_DEBUGGING")
    allow_non_constexpr_globals = env_bool("TRITON_ALLOW_NON_CONSTEXPR_GLOBALS")
    instrumentation_mode: str = getenv("TRITON_INSTRUMENTATION_MODE", "") or ""
    listener: Any = None


class autotuning_knobs(base_knobs):
    cache = env_bool("TRITON_CACHE_AUTOTUNING")
    print = env_bool("TRITON_PRINT_AUTOTUNING")


class runtime_knobs(base_knobs):
    """Settings of launches, and the hooks of launches and compilations."""

    interpret = env_bool("TRITON_INTERPRET")
    debug: bool = bool(getenv_bool("TRITON_DEBUG", False))
    override_arch = env_opt_str("TRITON_OVERRIDE_ARCH")
    launch_enter_hook: HookChain = HookChain()
    launch_exit_hook: HookChain = HookChain(reversed=True)
    kernel_load_start_hook: HookChain = HookChain()
    kernel_load_end_hook: HookChain = HookChain(reversed=True)
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
    fp32_default = env_opt_str("TRITON_F32_DEFAULT")
    default_fp_fusion = env_bool("TRITON_DEFAULT_FP_FUSION", True)


class nvidia_knobs(base_knobs):
    cuobjdump = env_nvidia_tool("cuobjdump")
    nvdisasm = env_nvidia_tool("nvdisasm")
    ptxas = env_nvidia_tool("ptxas")
    ptxas_blackwell = env_nvidia_tool("ptxas-blackwell")
    dump_nvptx = env_bool("NVPTX_ENABLE_DUMP")
    disable_ptxas_opt = env_bool("DISABLE_PTXAS_OPT")
    ptxas_options = env_opt_str("PTXAS_OPTIONS")
    mock_ptx_version = env_opt_str("TRITON_MOCK_PTX_VERSION")
    dump_ptxas_log = env_bool("TRITON_DUMP_PTXAS_LOG")
    libdevice_path = env_opt_str("TRITON_LIBDEVICE_PATH")
    libcuda_path = env_opt_str("TRITON_LIBCUDA_PATH")


class amd_knobs(base_knobs):
    use_buffer_ops = env_bool("AMDGCN_USE_BUFFER_OPS", True)
    use_buffer_atomics = env_bool("AMDGCN_USE_BUFFER_ATOMICS", True)
    buffer_ops_analyze_small_tensor_range = env_bool("AMDGCN_ANALYZE_SMALL_TENSOR_RANGE")
    dump_amdgcn = env_bool("AMDGCN_ENABLE_DUMP")
    libhip_path = env_opt_str("TRITON_LIBHIP_PATH")
    use_block_pingpong = env_opt_bool("TRITON_HIP_USE_BLOCK_PINGPONG")
    use_in_thread_transpose = env_opt_bool("TRITON_HIP_USE_IN_THREAD_TRANSPOSE")
    use_async_copy = env_bool("TRITON_HIP_USE_ASYNC_COPY")
    scalarize_packed_fops = env_bool("AMDGCN_SCALARIZE_PACKED_FOPS")


class proton_knobs(base_knobs):
    disable = env_bool("TRITON_PROTON_DISABLE")
    cupti_lib_dir = env_str("TRITON_CUPTI_LIB_PATH", str(Path(__file__).parent / "backends" / "nvidia" / "lib"))
    enable_nvtx = env_bool("TRITON_ENABLE_NVTX", True)


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


def note_hooks() -> None:
    """Note whether launches have hooks or are debugged."""
    global watched
    hooks = (runtime.debug, runtime.launch_enter_hook, runtime.launch_exit_hook, runtime.jit_cache_hook)
    watched = any(map(bool, hooks))


note_hooks()


def refresh_knobs() -> None:
    """Read the environment variables of `runtime.debug` and `compilation.instrumentation_mode` again."""
    runtime.debug = bool(getenv_bool("TRITON_DEBUG", False))
    compilation.instrumentation_mode = getenv("TRITON_INSTRUMENTATION_MODE", "") or ""
