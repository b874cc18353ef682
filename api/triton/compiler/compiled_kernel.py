"""The result of a launch or of `warmup`: a compiled kernel, with the text of every stage."""

from __future__ import annotations

import functools
import hashlib
import itertools
import operator
import re
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from ziggurat.backend.launch.arrays import on_gpu
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import TargetError, warn
from ziggurat.codemodel.gpu.fragments import MAP_BYTES
from ziggurat.codemodel.gpu.options import MAX_WARPS, CompileOptions, boolean
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import ConstantType, TupleType
from ziggurat.compiler.builds import KernelBuild
from ziggurat.kernels.arguments import KernelSignature, leaves
from ziggurat.kernels.kernel import run_time_names
from ziggurat.transforms.simplify.demand import first_kernel
from ziggurat.triton import RELEASE, knobs
from ziggurat.triton.backends.compiler import GPUTarget
from ziggurat.triton.compiler import dumps
from ziggurat.triton.compiler.sources import ASTSource
from ziggurat.triton.runtime.driver import CudaDriver, HostDriver, driver
from ziggurat.triton.runtime.triton_options import DEFAULTS

if TYPE_CHECKING:
    from ziggurat.backend.cuda.binary import Binary
    from ziggurat.backend.cuda.cache import Cache
    from ziggurat.backend.cuda.launch import Launcher
    from ziggurat.backend.cuda.loaded import Loaded
    from ziggurat.compiler.compiled import Compiled
    from ziggurat.triton.compiler.files import FileFunction
    from ziggurat.triton.compiler.overrides import Override
    from ziggurat.triton.runtime.jit import JITFunction


class LazyDict:
    """A dict, to which functions add entries when it is first read by `get`."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.extras: list[tuple[Callable[..., dict[str, Any]], tuple[Any, ...]]] = []

    def add(self, func: Callable[..., dict[str, Any]], args: tuple[Any, ...]) -> None:
        self.extras.append((func, args))

    def get(self) -> dict[str, Any]:
        for func, args in self.extras:
            self.data = self.data | func(*args)
        self.extras.clear()
        return self.data


class TritonStages(Mapping[str, Any]):
    """The text of each stage of a kernel by Triton's name for it, made when it is first read; the bytes of "cubin"."""

    def __init__(self, kernel: CompiledKernel) -> None:
        self._kernel = kernel
        self._texts: dict[str, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_kernel": self._kernel, "_texts": {}}  # They are made again where they are read.

    def __repr__(self) -> str:
        return f"<stages of {self._kernel.src.name}: {', '.join(self)}>"

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(f"Unknown key: '{name}'")
        if name not in self._texts:
            stages = _STAGES if name in _STAGES else _LIBRARIES
            self._texts[name] = stages[name](self._kernel)
        return self._texts[name]

    def __contains__(self, name: object) -> bool:
        return name in _STAGES or (self._kernel.on_host and name in _LIBRARIES)

    def __iter__(self) -> Iterator[str]:
        return iter([*_STAGES][:6])

    def __len__(self) -> int:
        return 6


def _ttir(kernel: CompiledKernel) -> str:
    """Triton's MLIR, with the names of the kernel's parameters."""
    from ziggurat.backend.mlir import to_mlir

    text = to_mlir(kernel.model, release=RELEASE)
    before, public, rest = text.partition("tt.func public")
    own, private, after = rest.partition("tt.func private")
    names = dict(enumerate(kernel.run_time_names))
    own = re.sub(r"%arg(\d+)", lambda match: f"%{names.get(int(match[1]), match[0][1:])}", own)
    return "".join((before, public, own, private, after))


def _ptx(kernel: CompiledKernel) -> str:
    code = kernel.binary.code
    return code if isinstance(code, str) else kernel.stages.ptx


def _cubin(kernel: CompiledKernel) -> bytes:
    from ziggurat.backend.ptx.sass import machine_code

    code = kernel.binary.code
    return code if isinstance(code, bytes) else machine_code(code, kernel.binary.target, kernel.binary.shared)


def _library(kernel: CompiledKernel) -> bytes:
    from ziggurat.triton.compiler.shared_libraries import shared_library

    return shared_library(kernel)


def _sass(kernel: CompiledKernel) -> str:
    from ziggurat.backend.ptx.sass import sass

    return sass(kernel.asm["ptx"], kernel.binary.target)


# The first six are those that iteration gives.
_STAGES: Final[dict[str, Callable[[CompiledKernel], Any]]] = {
    "source": _ttir,
    "ttir": _ttir,
    "ttgir": lambda kernel: str(kernel.stages.stages["gpu"]),
    "llir": lambda kernel: kernel.stages.llvm,
    "ptx": _ptx,
    "cubin": _cubin,
    "sass": _sass,
}
# The names by which PyTorch's `cpp_wrapper` asks for a kernel of a CPU, and for its launcher: one library has both.
_LIBRARIES: Final[dict[str, Callable[[CompiledKernel], Any]]] = {
    "so": _library,
    "launcher.so": lambda kernel: kernel.asm["so"],
}


# The facts about a compiled kernel, with the defaults of those that no kernel has otherwise. `shared` is in bytes.
_CONSTANT_FACTS: Final = {
    "cluster_dims": (1, 1, 1), "tmem_size": 0, "global_scratch_size": 0, "global_scratch_align": 1,
    "profile_scratch_size": 0, "profile_scratch_align": 1, "triton_version": RELEASE, "extern_libs": (),
    "ir_override": None, "ptx_options": None, "ptx_version": None, "instrumentation_mode": "", "tensordesc_meta": (),
    "default_dot_input_precision": "tf32", "max_num_imprecise_acc_default": 2**30, "enable_reflect_ftz": True,
    "allowed_dot_input_precisions": ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6"),
    "supported_fp8_dtypes": ("fp8e4b15", "fp8e4nv", "fp8e5"), "deprecated_fp8_dot_operand_dtypes": ("fp8e4b15",),
}  # fmt: skip
_SETTINGS: Final = (
    "maxnreg", "launch_pdl", "launch_cooperative_grid", "debug", "sanitize_overflow", "warp_size", "backend_name",
)  # fmt: skip
_OWN_FACTS: Final = (
    "name", "hash", "target", "num_warps", "num_stages", "num_ctas", "shared", "enable_fp_fusion", "arch",
)  # fmt: skip
_REMADE: Final = (
    "stages",
    "_launcher",
    "_native",
    "_quick",
    "_constants",
    "_forms",
    "_picks",
)  # Attributes that no pickle has.
# The places of the arguments of a launch among all arguments, and which of the given ones are run-time ones.
Form = tuple[Sequence[int], list[int]]
_FACTS: Final = (*_OWN_FACTS, *_SETTINGS, *_CONSTANT_FACTS)
KernelMetadata: Any = namedtuple("KernelMetadata", _FACTS, defaults=_CONSTANT_FACTS.values())  # pyright: ignore[reportUntypedNamedTuple]


class CompiledKernel(KernelBuild):
    """A kernel that is compiled for the types of its arguments and for options, as far as it is asked for.

    `asm` has the text of each stage: "ttir" (Triton's MLIR), "ttgir" (our GPU model), "llir", "ptx", "cubin" and
    "sass". `compiled[grid](…)` launches it with all arguments of the kernel.
    """

    code: Loaded | None = None
    # Whether it is compiled for this machine's CPU. PyTorch makes kernels of pickles by their attributes.
    on_host = False
    announced = False  # Whether the hooks of loading were told.
    cluster_dims = (1, 1, 1)

    def __init__(
        self,
        fn: JITFunction | FileFunction,
        signature: KernelSignature,
        options: CompileOptions,
        launch_options: Mapping[str, Any],
    ) -> None:
        self.src = ASTSource.of(fn, signature)
        self.options, self.launch_options = options, dict(launch_options)
        self.asm = TritonStages(self)
        self.signature = signature
        self._fn, self.title = fn, fn.name

    def __getstate__(self) -> dict[str, Any]:
        """A pickle has no stages and no launcher: they are made again where they are used."""
        return {name: value for name, value in vars(self).items() if name not in _REMADE}

    @functools.cached_property
    def model(self) -> Op:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The Triton model, with the assertions that its options ask for; or the model of `ir_override`."""
        return self._own_model if self.override is None else self.override.model(self._own_model)

    @property
    def python(self) -> Op | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return None if self._fn.fn is None else self._fn.model

    @property
    def model_to_run(self) -> core.Module:
        """The Triton model that runs on arrays in memory. A warning says that a later stage of `ir_override` does
        not."""
        late = self.override is not None and self.override.is_late
        if late or not isinstance(self.model, core.Module):
            assert self.override is not None
            warn(f"{self.override.path} is not run on arrays in memory: the kernel itself is", self._fn.place)
            return self._own_model
        return self.model

    @functools.cached_property
    def _own_model(self) -> core.Module:
        from ziggurat.triton.runtime.launches import own_model

        return own_model(self._fn, self.signature, {**self.launch_options, "num_warps": self.options.num_warps})

    @functools.cached_property
    def override(self) -> Override | None:
        path = self.launch_options.get("ir_override")
        if path is None and not knobs.compilation.override:
            return None
        from ziggurat.triton.compiler.overrides import Override

        if path is not None:
            return Override.read(path)
        return Override.in_folder(Path(knobs.cache.override_dir) / self.base_hash, self.src.name)

    @functools.cached_property
    def stages(self) -> Compiled:
        return super().stages if self.override is None else self.override.applied(super().stages)

    @property
    def cache(self) -> Cache:
        """The kernels on disk: in Triton's folder if a program names one, else in that of ziggurat."""
        return cache_of_knobs()

    def kept(self) -> Binary | None:
        return None if knobs.compilation.always_compile else super().kept()

    def compiled(self) -> Binary:
        binary = super().compiled()
        dumps.write(self)
        if not self._assembler:
            return binary
        from ziggurat.backend.ptx.sass import assembled

        return attrs.evolve(binary, code=assembled(self.stages.ptx, binary.target, self._assembler)[0])

    @property
    def _assembler(self) -> tuple[str, ...]:
        """The options of NVIDIA's assembler. Without them the driver assembles the code when it loads it."""
        level = "--opt-level 0" if knobs.nvidia.disable_ptxas_opt else None
        texts = (self.launch_options.get("ptx_options"), knobs.nvidia.ptxas_options, level)
        return tuple(" ".join(text for text in texts if text).split())

    @property
    def is_own(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return super().is_own and not self._assembler and self.override is None

    def demand(self) -> None:
        """Compile now. Raises the errors of the kernel."""
        _ = self._native if self.on_host else self.binary

    def _init_handles(self) -> None:
        """Load the kernel on the current GPU, if there is one. Programs call this before they read `n_regs`."""
        vars(self).pop("run", None)  # PyTorch's pickles have None there, and say that this call makes it.
        self.demand()
        if self.code is None and not self.on_host and isinstance(driver.active, CudaDriver):
            self.code = self._launcher.in_context()

    def run(
        self,
        x: int,
        y: int,
        z: int,
        stream: int,
        function: Any,
        metadata: Any,
        launch_metadata: Any,
        enter: Callable[[Any], Any] | None,
        exit: Callable[[Any], Any] | None,
        *args: Any,
    ) -> None:
        """Launch over a grid with all arguments of the kernel, or without the constants, with functions that are called
        before and after."""
        if enter:
            enter(launch_metadata)
        quick = self._quick
        if quick is not None:
            (quick.launchers.get((x, y, z)) or quick[x, y, z])(*self._passed(args))
        elif self.code is None:
            self[x, y, z](*args)
        else:
            self._launcher.start(x, y, z, stream, self._passed(args))
        if exit:
            exit(launch_metadata)

    @functools.cached_property
    def _quick(self) -> Compiled | None:
        """The code that a launch on this machine calls at once: that of a kernel which is compiled for its CPU."""
        return self._native if self.on_host and not knobs.runtime.interpret else None

    def _passed(self, args: Sequence[Any]) -> Sequence[Any]:
        """The run-time arguments among those of a launch, with the components of tuples in their places."""
        pick = self._picks.get(len(args))
        if pick is not None:
            return pick(args)
        form = self._form(args)
        # A launch with too many arguments, or too few, is refused where the code is launched.
        values = args if form is None else [args[at] for at in form[1]]
        return [*leaves(values)] if self._places[1] else values

    def _complete(self, args: Sequence[Any]) -> Sequence[Any]:
        """All arguments of a launch, with the constants of the code."""
        form = self._form(args)
        if form is None:
            return args  # The launch is refused.
        complete = list(self._constants)
        for place, at in zip(self._places[0], form[1], strict=True):
            complete[place] = args[at]
        return complete

    def _form(self, args: Sequence[Any]) -> Form | None:
        """The form of a launch: of two with as many arguments, the one whose constants are those of the code."""
        forms = self._forms.get(len(args), ())
        if len(forms) > 1:
            for form in forms:
                pairs = [(args[at], self._constants[place]) for at, place in enumerate(form[0]) if at not in form[1]]
                if all(type(value) is type(constant) and value == constant for value, constant in pairs):
                    return form
        return forms[0] if forms else None

    @functools.cached_property
    def _forms(self) -> dict[int, list[Form]]:
        """The forms of a launch by the number of arguments.

        Libraries leave out constants at the end, all constexprs, or all that the launch of the code does not read, such
        as strides of 1: the launchers of Triton 3.7 and later do not need them.
        """
        places, _, least = self._places
        count = len(self.signature.types)
        constexprs = {p.num for p in getattr(self._fn, "params", ()) if p.is_constexpr}  # A file does not tell them.
        forms: list[Sequence[int]] = [[place for place in range(count) if place not in constexprs], places]
        forms += [range(number) for number in range(least, count + 1)]
        by_length: dict[int, list[Form]] = {}
        for form in forms:
            run_time = [form.index(place) for place in places]
            others = by_length.setdefault(len(form), [])
            if run_time not in [other for _, other in others]:
                others.append((form, run_time))
        return by_length

    @functools.cached_property
    def _picks(self) -> dict[int, Callable[[Sequence[Any]], tuple[Any, ...]]]:
        """What gives the run-time arguments, by the number of all, where that number has one form and no tuples."""
        forms = {} if self._places[1] else self._forms
        single = {count: form for count, ((_, form), *others) in forms.items() if not others and len(form) > 1}
        return {count: tuple if count == len(form) else operator.itemgetter(*form) for count, form in single.items()}

    @functools.cached_property
    def _constants(self) -> list[Any]:
        """The values of constants at the places of all arguments; None for run-time ones."""
        return [type_.value if isinstance(type_, ConstantType) else None for type_ in self.signature.types]

    @property
    def run_time_names(self) -> list[str]:
        """The names of the arguments that are passed, those of the components of tuples too, as MLIR can have them."""
        typed = zip(self.src.fn.arg_names, self.signature.types, strict=True)
        names = [name for parameter, type_ in typed for name in run_time_names(parameter, type_)]
        return [re.sub(r"\W", "_", name) for name in names]

    @property
    def run_time_places(self) -> list[int]:
        """The places of the run-time arguments among all arguments."""
        return self._places[0]

    @functools.cached_property
    def _places(self) -> tuple[list[int], bool, int]:
        """The places of the run-time arguments, whether there are tuples among them, and the number of arguments up to
        the last of them."""
        types = self.signature.types
        places = [place for place, type_ in enumerate(types) if not isinstance(type_, ConstantType)]
        return places, any(isinstance(types[place], TupleType) for place in places), max(places, default=-1) + 1

    @functools.cached_property
    def _launcher(self) -> Launcher:
        from ziggurat.backend.cuda.launch import Launcher

        return Launcher(self.binary)

    def note(self, times: Sequence[float], is_kept: bool) -> None:
        """Tell the listener of compilations how long the steps took."""
        listener = knobs.compilation.listener
        if listener is None:
            return
        steps = [round(1e6 * (end - start)) for start, end in itertools.pairwise(times)]
        listener(
            src=self.src,
            metadata={"hash": self.hash, "name": self.src.name, "target": _target(self.options.target)},
            metadata_group=self.metadata_group,
            times=knobs.CompileTimes(steps[0], [] if is_kept else [("ptx", steps[1])], 0 if is_kept else steps[2]),
            cache_hit=is_kept,
        )

    @functools.cached_property
    def hash(self) -> str:
        """64 hexadecimal digits for the model, the options, the compiler, and stages that are replaced."""
        late = [*self._assembler, *([] if self.override is None else [self.override.digest])]
        return hashlib.sha256(f"{self.base_hash} {late}".encode()).hexdigest() if late else self.base_hash

    @functools.cached_property
    def base_hash(self) -> str:
        """The hash of the kernel with its own stages: the folder of its files in `dump_dir` and `override_dir`."""
        from ziggurat.backend.cache.keys import key

        return key(self._own_model, self.options)

    @property
    def name(self) -> str:
        """The name of the kernel in its machine code."""
        return self.metadata.name

    @functools.cached_property
    def metadata(self) -> Any:
        """The name, the options, and the shared memory of the kernel."""
        if self.on_host:
            target, name = HostDriver().get_current_target(), first_kernel(self.model_to_run).sym_name
            return self._metadata(
                name=name, target=target, num_warps=self.options.warps, num_ctas=1, shared=0, arch=target.backend
            )
        binary = self.binary
        return self._metadata(
            name=binary.symbol,
            target=_target(binary.target),
            num_warps=min(MAX_WARPS, self.options.warps * ((self.options.num_ctas or 1) // binary.num_ctas)),
            num_ctas=binary.num_ctas,
            shared=binary.shared,
            global_scratch_size=binary.scratch,
            global_scratch_align=MAP_BYTES if binary.scratch else 1,
            arch=binary.target.removesuffix("a").replace("_", ""),
        )

    def _metadata(self, **facts: Any) -> Any:
        """The metadata with these facts, and those that the options give."""
        settings = {**DEFAULTS, **self.launch_options}
        return KernelMetadata(
            hash=self.hash,
            num_stages=self.options.num_stages or 0,
            enable_fp_fusion=self.options.contract,
            **{name: settings[name] for name in _SETTINGS},
            **facts,
        )

    @property
    def num_warps(self) -> int:
        """The warps of a CTA that a launch starts, those that only load included: `metadata` has those of the options.
        PyTorch reads it for programs in C++."""
        return self.metadata.num_warps if self.on_host else self.binary.num_warps

    @property
    def num_ctas(self) -> int:
        """The CTAs of a cluster. Releases of PyTorch read this and `cluster_dims`, and libraries add both to the class
        where they are missing."""
        return self.metadata.num_ctas

    @property
    def launch_metadata_schema(self) -> dict[str, Any] | None:
        """The facts by which PyTorch's programs in C++ launch the cubin (`cpp_wrapper`, AOTInductor); None on a CPU.

        Raises `TargetError` for a kernel that they cannot launch."""
        if self.on_host:
            return None
        from ziggurat.triton.compiler.cubins import obstacle

        reason = obstacle(self.binary)
        if reason is not None:
            raise TargetError(
                f"PyTorch's programs in C++ cannot launch '{self.src.name}': it {reason}",
                hint="compile without cpp_wrapper and AOTInductor",
            )
        return {"entry_name": self.binary.symbol, "num_warps": self.num_warps, "shared_mem": self.binary.shared}

    @property
    def packed_metadata(self) -> tuple[Any, ...]:
        """The part of the metadata that a launch needs: warps, CTAs, and bytes of shared memory."""
        metadata = self.metadata
        return metadata.num_warps, metadata.num_ctas, metadata.shared

    @property
    def metadata_group(self) -> dict[str, str]:
        """The files of the kernel in the cache on disk, by name."""
        path = self.cache.path(self.hash)
        return {f"{self.src.name}.kernel": str(path)} if path.exists() else {}

    @property
    def kernel(self) -> bytes:
        """The machine code."""
        return self.asm["cubin"]

    @property
    def n_regs(self) -> int:
        """Registers of a thread; 0 on a CPU."""
        return 0 if self.on_host else (self.code or self.stages).registers

    @property
    def n_spills(self) -> int:
        """Registers of a thread that are spilled to local memory; 0 on a CPU."""
        return 0 if self.on_host else (self.code or self.stages).local_bytes // 4

    @property
    def n_max_threads(self) -> int:
        """The largest number of threads that a CTA can have."""
        return (self.code or self.stages).max_threads

    @property
    def function(self) -> int | None:
        """The driver's handle of the kernel on the current GPU; None where it is not loaded."""
        return None if self.code is None else int(self.code.function)

    @property
    def module(self) -> int | None:
        """The driver's handle of the module; None where it is not loaded."""
        return None if self.code is None else int(self.code.module)

    def result(self) -> CompiledKernel:
        """The kernel itself: see `AsyncCompileMode`."""
        return self

    def launch_metadata(self, grid: Any, stream: int, *args: Any) -> LazyDict:
        """The record for hooks of a launch: its name, function and stream, and what the kernel's own function adds."""
        record = LazyDict({"name": self._fn.name, "function": self.function, "stream": stream})
        if self._fn.launch_metadata is not None:
            arguments = dict(zip(self._fn.arg_names, args, strict=False))
            record.add(self._fn.launch_metadata, (grid, self.metadata, arguments))
        return record

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """`compiled[grid](…)` launches the kernel with all its arguments, or without the constants."""

        def launch(*args: Any, stream: Any = None, **options: Any) -> Any:
            on = {} if stream is None else {"stream": stream}
            kernel: Any = self._fn
            if kernel.fn is not None and not self.on_host:
                return kernel[grid](*self._complete(args), **self.launch_options, **on, **options)
            values = self._passed(args)
            if any(map(on_gpu, values)):
                return self._launcher.at(grid)(*values, **on)
            return self._run_here(grid, values, **options)

        return launch

    def _run_here(self, grid: Any, values: Sequence[Any], *, interpret: bool = False, **options: Any) -> None:
        """Launch a kernel that is compiled for the CPU, or that of a file or a pickle, on arrays in memory."""
        if options:
            from ziggurat.triton.compiler.files import require_options

            require_options(self._fn.name, options)
        if boolean("interpret", interpret) or knobs.runtime.interpret or self._native is None:
            from ziggurat.launches.host import run

            run(self.model_to_run, grid, *values)
        else:
            self._native[grid](*values)

    @functools.cached_property
    def _native(self) -> Compiled | None:
        from ziggurat.triton.compiler.files import native_code

        return native_code(self.model_to_run, self._fn.name, self.options.fast_math)

    def __repr__(self) -> str:
        return f"<compiled kernel {self._fn.name}({', '.join(map(str, self.src.signature.values()))})>"


def _target(name: str) -> GPUTarget:
    """The target of a name, `sm_90a`."""
    return GPUTarget("cuda", int("".join(filter(str.isdigit, name))), 32)


def cache_of_knobs() -> Cache:
    """The cache of compiled kernels on disk: in Triton's folder if a program names one, else in that of ziggurat."""
    from ziggurat.backend.cuda.cache import Cache

    is_named = "dir" in vars(knobs.cache) or knobs.getenv("TRITON_CACHE_DIR") is not None
    return Cache(Path(knobs.cache.dir)) if is_named else Cache()
