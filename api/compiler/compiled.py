"""Compiled kernels as values: `Compiled`, for a GPU or for this machine's CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import attrs

from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.gpu.fragments import STORED, box_and_swizzle
from ziggurat.codemodel.gpu.options import DEFAULT_OPTIONS, CompileOptions
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.passes import Snapshot
from ziggurat.codemodel.recent import Recent
from ziggurat.codemodel.types import DescriptorType, PtrType, ScalarType, Type

if TYPE_CHECKING:
    from ziggurat.backend.cpu.code import CpuCode
    from ziggurat.backend.cuda.binary import Binary, LaunchMap, PtxParameter
    from ziggurat.exploring.origins import LineUse, Origin
    from ziggurat.launches.simulated import Simulation


@attrs.frozen
class Argument:
    """A run-time argument of a compiled kernel: its type, a number that is known to divide its value, and whether it
    is known to be an integer from 0 to 2^15 - 1.

    That value is the address of a pointer in bytes, and the size of a row of a descriptor in bytes. `type` is None for
    a descriptor when the model that was compiled holds only the descriptor's parts.
    """

    type: Type | None
    divisibility: int = 1
    name: str = ""
    small: bool = False

    def __str__(self) -> str:
        return f"{self.name}{': ' if self.name else ''}{'descriptor' if self.type is None else self.type}"


class Stages(Mapping[str, Any]):
    """The models and texts of a kernel by stage, in order. A stage that is given as a function is made when it is read.

    Without llvmlite "ptx" is absent, and raises the error.
    """

    def __init__(self, stages: Mapping[str, Any]) -> None:
        self._stages = dict(stages)

    def __getitem__(self, name: str) -> Any:
        if name == "ptx" and name not in self._stages and "gpu" in self._stages:
            from ziggurat.backend.ptx.assemble import to_ptx

            return to_ptx(self["llvm"], self["gpu"].target)
        if isinstance(self._stages[name], functools.partial):
            self._stages[name] = self._stages[name]()
        return self._stages[name]

    def __contains__(self, name: object) -> bool:
        return name in self._stages

    def __iter__(self) -> Iterator[str]:
        return iter(self._stages)

    def __len__(self) -> int:
        return len(self._stages)


@attrs.frozen(repr=False)
class Compiled:
    """A kernel compiled for a target: a GPU's, or "cpu" for this machine's CPU.

        compiled[grid](x, y, n)

    runs it there: see `__getitem__`. `stages` holds its models and texts in order: python (where it is known), triton,
    and gpu, llvm and ptx, or cpu, llvm and asm. `arguments` are those of a launch.

    For a CPU, `code` is its machine code, and the fields that follow have their defaults. For a GPU, a CTA has
    `num_warps` warps, producer warps included, and `shared` bytes of shared memory. `parameters` has the types of the
    PTX kernel's parameters. `parts` names the argument, or the part of an argument, that each parameter takes, as
    `tt.func` does; it is empty where the parameters are the arguments. `disjoint` is that of `tt.func`. If `scratch` is
    not 0, a launch provides so many bytes of global memory for each program, for tensor maps; the last parameter of the
    PTX kernel points to them, and is not in `parameters`. Nor are `maps`, the types and parts of the tensor maps that a
    launch makes: the parameters before that one. With `persistent`, three parameters before those are the sizes of the
    grid, and CTAs take the programs in turn. A program is a cluster of `num_ctas` CTAs.
    """

    symbol: str
    target: str
    stages: Mapping[str, Any] = attrs.field(hash=False)
    arguments: tuple[Argument, ...] = ()
    name: str = ""
    options: CompileOptions = DEFAULT_OPTIONS
    code: CpuCode | None = attrs.field(default=None, kw_only=True, hash=False)
    num_warps: int = attrs.field(default=0, kw_only=True)
    shared: int = attrs.field(default=0, kw_only=True)
    parameters: tuple[Type, ...] = attrs.field(default=(), kw_only=True)
    parts: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    disjoint: tuple[int, ...] = attrs.field(default=(), kw_only=True)
    scratch: int = attrs.field(default=0, kw_only=True)
    maps: tuple[tuple[Type, str], ...] = attrs.field(default=(), kw_only=True)
    persistent: bool = attrs.field(default=False, kw_only=True)
    num_ctas: int = attrs.field(default=1, kw_only=True)

    def __repr__(self) -> str:
        takes = ", ".join(map(str, self.arguments))
        if self.code is not None:
            size = f"{len(self.code.object)} bytes of object code"
            return f"<{self.title}({takes}) compiled for {self.code.cpu}: {size}>"
        ctas = f"{self.num_ctas} CTAs of " if self.num_ctas > 1 else ""
        size = f"{ctas}{self.num_warps} warps, {self.shared} bytes of shared memory"
        return f"<{self.title}({takes}) compiled for {self.target}: {size}>"

    def _repr_html_(self) -> str:
        import html

        from ziggurat.codemodel.text.html import side_by_side

        return f"<p>{html.escape(repr(self))}</p>" + side_by_side(self.stages)

    @functools.cached_property
    def passes(self) -> tuple[Snapshot, ...]:
        """The model after each pass from the Triton model on, by the names of the passes, which run again.

        The tuple is empty if a GPU model was compiled."""
        self._require_gpu("passes")
        from ziggurat.transforms.gpu.gpu_passes import place

        snapshots: list[Snapshot] = []
        if "triton" in self.stages:
            place(self.stages["triton"], self.options, snapshots)
        return tuple(snapshots)

    @property
    def ptx(self) -> str:
        """The text for the driver of a GPU."""
        self._require_gpu("ptx")
        return str(self.stages["ptx"])

    @property
    def cpu(self) -> Op:
        """The CPU model of a kernel that is compiled for a CPU."""
        self._require_cpu("cpu")
        return self.stages["cpu"]

    @property
    def llvm(self) -> str:
        """The LLVM text."""
        return str(self.stages["llvm"])

    @property
    def asm(self) -> str:
        """The assembly of this machine, of a kernel that is compiled for a CPU."""
        self._require_cpu("asm")
        return self.stages["asm"]

    @property
    def title(self) -> str:
        """The kernel's name for messages."""
        return self.name or self.symbol

    __iter__ = None  # Otherwise `for` would launch the grids 0, 1, … by `__getitem__`.

    def __call__(self, *arguments: Any, **keywords: Any) -> NoReturn:
        raise LaunchError(f"'{self.title}' must be launched over a grid", hint="compiled[grid](…)")

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        """`compiled[grid](arguments…, stream=None, check=False)` runs it once for each program of the grid.

        The arguments are the run-time ones, in their order, without those that were compiled in. Arrays are of any
        library: on a GPU, or in memory for a CPU, where there is neither `stream` nor `check`. Raises `LaunchError` for
        arguments that it was not compiled for, for their number, their types, and the divisibility of their values; and
        the errors of programs.
        """
        from ziggurat.launches.compiled_launches import host_launcher, launch_on_gpu

        return functools.partial(launch_on_gpu, self, grid) if self.code is None else host_launcher(self, grid)

    @functools.cached_property
    def binary(self) -> Binary:
        """The code for a GPU, which the driver loads and the cache keeps."""
        self._require_gpu("binary")
        return _binary_of(self)

    @functools.cached_property
    def launcher(self) -> Any:
        """The code, ready for launches: a `Launcher` on GPUs, a `NativeKernel` on this machine."""
        if self.code is None:
            from ziggurat.backend.cuda.launch import Launcher

            return Launcher(self.binary)
        from ziggurat.backend.cpu.runtime.kernels import NativeKernel

        return NativeKernel(self.code, self.title, self.stages.get("triton"))

    @functools.cached_property
    def launchers(self) -> Recent[Any, Callable[..., None]]:
        """The launchers on this machine by their grids, which share the list of `plans`."""
        from ziggurat.backend.launch.grids import MAX_LAUNCHERS

        return Recent(MAX_LAUNCHERS)

    @functools.cached_property
    def plans(self) -> list[Any]:
        """The tables of launches on this machine: see `plan_of`."""
        return []

    @functools.cached_property
    def names(self) -> list[str]:
        """The names of the arguments, for launches."""
        return [argument.name or f"argument {number}" for number, argument in enumerate(self.arguments)]

    @functools.cached_property
    def simulate(self) -> Simulation:
        """`compiled.simulate[grid](arguments…, seed=0, optimized=False)` runs it thread by thread on the host.

        No GPU is needed. Arrays are NumPy's, or others in memory. Races, stray and misaligned accesses, deadlocks and
        missing waits are errors with the line of the kernel: see docs/guides/simulating.md.
        """
        self._require_gpu("simulate")
        from ziggurat.launches.simulated import Simulation

        return Simulation(self)

    def save(self, path: str | Path) -> list[Path]:
        """Write it for C programs, with a header beside it; the files.

            kernel.compile(types…, target="cpu").save("softmax.a")

        `path` ends in .ptx or .cubin for the code of a GPU alone, whose header has the facts of a launch; and in .o,
        .a or .so for an object with a function that launches the kernel, and the kernel in it. Raises `LaunchError`
        for another end and where the file cannot be written, and `TargetError` for a .so elsewhere than on Linux.
        docs/guides/shipping.md has libraries of several kernels.
        """
        from ziggurat.shipping.saving import save

        return save(self, path)

    def origin(self, line: int) -> Origin:
        """Where a line of the PTX, or of a CPU's assembly, comes from: place in the source, ops, and passes.

        Lines count from 1. Raises `LaunchError` for a line that the text does not have.
        """
        from ziggurat.exploring.origins import origin

        return origin(self, line)

    def lines(self, line: int, file: str | None = None) -> LineUse:
        """What became of a line of the source: its ops in each model and its instructions.

        `file` is the kernel's own by default; helper functions may stand in others.
        """
        from ziggurat.exploring.origins import lines

        return lines(self, line, file)

    def explain(self) -> str:
        """The cost of each line, the limits of an SM, and why an access is not better: docs/guides/explaining.md.

        Raises `LaunchError` if a GPU model was compiled.
        """
        self._require_gpu("explain")
        from ziggurat.compiler.explanation import explanation

        return explanation(self)

    @property
    def registers(self) -> int:
        """Registers of a thread, from the driver's assembler, or from ptxas where no GPU can load the code.

        Raises `LaunchError` where there is neither. So do `local_bytes` and `max_threads`.
        """
        return self._of_gpu[0]

    @property
    def local_bytes(self) -> int:
        """Local memory of a thread in bytes: spilled registers, and the stack."""
        return self._of_gpu[1]

    @property
    def max_threads(self) -> int:
        """The largest number of threads that a CTA can have with `registers` registers."""
        return self._of_gpu[2]

    @functools.cached_property
    def _of_gpu(self) -> tuple[int, int, int]:
        """Registers and bytes of local memory of a thread, and the largest number of threads of a CTA."""
        from ziggurat.launches.compiled_launches import resources

        self._require_gpu("registers")
        return resources(self)

    def _require_gpu(self, name: str) -> None:
        """Raise `AttributeError` for an attribute of kernels that are compiled for a GPU."""
        if self.code is not None:
            raise self._missing(name, 'without target="cpu", kernel.compile is for a GPU')

    def _require_cpu(self, name: str) -> None:
        """Raise `AttributeError` for an attribute of kernels that are compiled for a CPU."""
        if self.code is None:
            raise self._missing(name, 'kernel.compile(…, target="cpu") is for a CPU')

    def _missing(self, name: str, hint: str) -> AttributeError:
        target = "a GPU" if self.code is None else "a CPU"
        *stages, last = self.stages
        hint = f"its stages are {', '.join(stages)} and {last}; {hint}"
        return AttributeError(f"a kernel that is compiled for {target} has no '{name}'\n  hint: {hint}")


def _binary_of(compiled: Compiled) -> Binary:
    from ziggurat.backend.cuda.binary import Binary
    from ziggurat.backend.cuda.places import source_map

    parts = compiled.parts or ("",) * len(compiled.parameters)
    parameters = tuple(map(parameter_of, compiled.parameters, parts))
    attributes = {"pdl": compiled.options.launch_pdl, "cooperative": compiled.options.launch_cooperative_grid}
    launched = tuple(name for name, is_asked in attributes.items() if is_asked)
    places = source_map(compiled.stages["triton"], compiled.ptx) if "triton" in compiled.stages else []
    return Binary(
        compiled.symbol, compiled.ptx, compiled.num_warps, compiled.shared, parameters, compiled.target, compiled.title,
        {"places": places} if places else {}, compiled.disjoint, launched, compiled.scratch,
        tuple(_map_of(type_, part) for type_, part in compiled.maps), compiled.persistent,
        compiled.num_ctas,
    )  # fmt: skip


def _map_of(type_: Type, part: str) -> LaunchMap:
    """A tensor map that a launch makes, for the runtime."""
    from ziggurat.backend.cuda.binary import LaunchMap

    assert isinstance(type_, DescriptorType)
    _, *sources = part.removesuffix(STORED).split()
    is_stored = part.endswith(STORED)
    return LaunchMap(type_.element.name, *box_and_swizzle(type_), tuple(sources), is_stored)


def parameter_of(type_: Type, part: str = "") -> PtxParameter:
    """A parameter of the PTX kernel for the runtime.

    `part` names its argument, or the part of one, as in `tt.func`; an empty part is the argument of the parameter's own
    index.
    """
    from ziggurat.backend.cuda.binary import PtxParameter

    number, _, field = part.partition(".")
    argument = int(number) if number else None
    if isinstance(type_, DescriptorType):
        return PtxParameter("tensormap", *box_and_swizzle(type_), "map", argument)
    assert isinstance(type_, PtrType | ScalarType), f"a kernel has no parameter of type {type_}"
    return PtxParameter("ptr" if isinstance(type_, PtrType) else type_.name, part=field, argument=argument)
