"""Compiled kernels as values: `Compiled`, and the binary that the CUDA runtime loads."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import attrs

from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.gpu.fragments import STORED, box_and_swizzle
from ziggurat.codemodel.gpu.options import DEFAULT_OPTIONS, CompileOptions
from ziggurat.codemodel.passes import Snapshot
from ziggurat.codemodel.types import DescriptorType, PtrType, ScalarType, Type

if TYPE_CHECKING:
    from ziggurat.backend.cuda.binary import Binary, LaunchMap, Parameter
    from ziggurat.launches.compiled import Executable
    from ziggurat.launches.simulated import Simulation


@attrs.frozen
class Argument:
    """A run-time argument of a compiled kernel: its type, and a number that is known to divide its value.

    That value is the address of a pointer in bytes, and the size of a row of a descriptor in bytes. `type` is None for
    a descriptor when the model that was compiled holds only the descriptor's parts.
    """

    type: Type | None
    divisibility: int = 1
    name: str = ""

    def __str__(self) -> str:
        return f"{self.name}{': ' if self.name else ''}{'descriptor' if self.type is None else self.type}"


class Stages(dict[str, Any]):
    """The models and texts of a kernel by stage, in order. Without llvmlite "ptx" is absent, and raises the error."""

    def __missing__(self, name: str) -> str:
        if name != "ptx":
            raise KeyError(name)
        from ziggurat.backend.ptx.assemble import to_ptx

        return to_ptx(self["llvm"], self["gpu"].target)


@attrs.frozen(repr=False)
class Compiled:
    """A kernel compiled for a target. `stages` holds its models and texts in order; `ptx` is the last.

    A CTA has `num_warps` warps, producer warps included, and `shared` bytes of shared memory. `parameters` has the
    types of the PTX kernel's parameters. `parts` names the argument, or the part of an argument, that each parameter
    takes, as `tt.func` does; it is empty where the parameters are the arguments. `arguments` are those of a launch;
    `disjoint` is that of `tt.func`. If `scratch` is not 0, a launch provides so many bytes of global memory for each
    program, for tensor maps; the last parameter of the PTX kernel points to them, and is not in `parameters`. Nor are
    `maps`, the types and parts of the tensor maps that a launch makes: the parameters before that one. With
    `persistent`, three parameters before those are the sizes of the grid, and CTAs take the programs in turn. A program
    is a cluster of `num_ctas` CTAs.

        compiled[grid](x, y, n)

    runs it on a GPU of its target: see `__getitem__`.
    """

    symbol: str
    target: str
    num_warps: int
    shared: int
    parameters: tuple[Type, ...]
    stages: Mapping[str, Any]
    parts: tuple[str, ...] = ()
    arguments: tuple[Argument, ...] = ()
    name: str = ""
    disjoint: tuple[int, ...] = ()
    options: CompileOptions = DEFAULT_OPTIONS
    scratch: int = 0
    maps: tuple[tuple[Type, str], ...] = ()
    persistent: bool = False
    num_ctas: int = 1

    def __repr__(self) -> str:
        takes = ", ".join(map(str, self.arguments))
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
        from ziggurat.transforms.place.passes import place

        snapshots: list[Snapshot] = []
        if "triton" in self.stages:
            place(self.stages["triton"], self.options, snapshots)
        return tuple(snapshots)

    @property
    def ptx(self) -> str:
        """The text for the driver."""
        return str(self.stages["ptx"])

    @property
    def title(self) -> str:
        """The kernel's name for messages."""
        return self.name or self.symbol

    __iter__ = None  # Python would ask for the items 0, 1, …: each is a launch.

    def __call__(self, *arguments: Any, **keywords: Any) -> NoReturn:
        raise LaunchError(f"'{self.title}' must be launched over a grid", hint="compiled[grid](…)")

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        """`compiled[grid](arguments…, stream=None, check=False)` runs it once for each program of the grid, on a GPU.

        The arguments are the run-time ones, in their order, without those that were compiled in. Arrays are on a
        GPU, of any library. Raises `LaunchError` for arguments that it was not compiled for: for their
        number, their types, and the divisibility of their values.
        """
        return functools.partial(self._executable.launch, grid)

    @functools.cached_property
    def _executable(self) -> Executable:
        from ziggurat.launches.compiled import Executable

        return Executable(self)

    @functools.cached_property
    def simulate(self) -> Simulation:
        """`compiled.simulate[grid](arguments…, seed=0, optimized=False)` runs it thread by thread on the host.

        No GPU is needed. Arrays are NumPy's, or others in memory. Races, stray and misaligned accesses, deadlocks and
        missing waits are errors with the line of the kernel: see docs/guides/simulating.md.
        """
        from ziggurat.launches.simulated import Simulation

        return Simulation(self)

    def explain(self) -> str:
        """The cost of each line, the limits of an SM, and why an access is not better: docs/guides/explaining.md.

        Raises `LaunchError` if a GPU model was compiled.
        """
        from ziggurat.compiler.explanation import explanation

        return explanation(self)

    @property
    def registers(self) -> int:
        """Registers of a thread, from the driver's assembler, or from ptxas where no GPU can load the code.

        Raises `LaunchError` where there is neither. So do `local_bytes` and `max_threads`.
        """
        return self._executable.resources[0]

    @property
    def local_bytes(self) -> int:
        """Local memory of a thread in bytes: spilled registers, and the stack."""
        return self._executable.resources[1]

    @property
    def max_threads(self) -> int:
        """The largest number of threads that a CTA can have with `registers` registers."""
        return self._executable.resources[2]


def binary_of(compiled: Compiled, name: str) -> Binary:
    """The binary of a compiled kernel, which the runtime loads and the cache keeps."""
    from ziggurat.backend.cuda.binary import Binary
    from ziggurat.backend.cuda.places import source_map

    parts = compiled.parts or ("",) * len(compiled.parameters)
    parameters = tuple(map(parameter_of, compiled.parameters, parts))
    asked = {"pdl": compiled.options.launch_pdl, "cooperative": compiled.options.launch_cooperative_grid}
    launched = tuple(name for name, is_asked in asked.items() if is_asked)
    places = source_map(compiled.stages["triton"], compiled.ptx) if "triton" in compiled.stages else []
    return Binary(
        compiled.symbol, compiled.ptx, compiled.num_warps, compiled.shared, parameters, compiled.target, name,
        {"places": places} if places else {}, compiled.disjoint, launched, compiled.scratch,
        tuple(_map_of(type_, part) for type_, part in compiled.maps), compiled.persistent,
        compiled.num_ctas,
    )  # fmt: skip


def _map_of(type_: Type, part: str) -> LaunchMap:
    """A tensor map that a launch makes, for the runtime."""
    from ziggurat.backend.cuda.binary import LaunchMap

    assert isinstance(type_, DescriptorType)
    _, *sources = part.removesuffix(STORED).split()
    stored = part.endswith(STORED)
    return LaunchMap(type_.element.name, *box_and_swizzle(type_), tuple(sources), stored)


def parameter_of(type_: Type, part: str = "") -> Parameter:
    """A parameter of the PTX kernel for the runtime.

    `part` names its argument, or the part of one, as in `tt.func`; an empty part is the argument of the parameter's own
    index.
    """
    from ziggurat.backend.cuda.binary import Parameter

    number, _, field = part.partition(".")
    argument = int(number) if number else None
    if isinstance(type_, DescriptorType):
        return Parameter("tensormap", *box_and_swizzle(type_), "map", argument)
    assert isinstance(type_, PtrType | ScalarType), f"a kernel has no parameter of type {type_}"
    return Parameter("ptr" if isinstance(type_, PtrType) else type_.name, part=field, argument=argument)
