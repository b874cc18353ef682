"""A compiled kernel on a simulated GPU: `compiled.simulate[grid](…)` runs its code thread by thread on the host."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ziggurat.backend.launch.arrays import ELEMENTS, address, as_array, is_array, number_type, on_gpu
from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.backend.launch.grids import gpu_sizes
from ziggurat.boundary import public
from ziggurat.codemodel.errors import LaunchError, TargetError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.text.parser import parse_values
from ziggurat.codemodel.types import SCALARS, PtrType, ScalarType
from ziggurat.compiler.compiled import Argument, Compiled
from ziggurat.kernels.arguments import constexpr_names, divisible, leaves
from ziggurat.launches.checked import Checked

if TYPE_CHECKING:
    from ziggurat.kernels.kernel import Kernel


class Simulation(Checked):
    """Runs a `Compiled` without a GPU.

        compiled.simulate[grid](x, y, n, seed=0, optimized=False)

    The arguments are those of a launch; arrays are NumPy's, or others in memory, and are changed in place. Programs run
    one after the other, the threads of each in step. Asynchronous copies happen as late as they may with `seed=0`, as
    early as they may with 1, and at any time between with others, which also decide which warps go first. With
    `optimized` the code is what LLVM's passes make of the emitted code.

    Raises `SimulationError` for a race, a stray or misaligned access, a deadlock, a missing wait or barrier, with the
    line of the kernel; `KernelRuntimeError` for an assertion that fails; `LaunchError` for arguments that are not what
    the kernel was compiled for; and `TargetError` for instructions that the simulator does not know.
    """

    def __init__(self, compiled: Compiled) -> None:
        super().__init__(compiled, compiled.title)

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        """A launch over this grid."""
        return functools.partial(self.run, grid)

    @public
    def run(self, grid: Any, /, *arguments: Any, seed: int = 0, optimized: bool = False) -> None:
        """Simulate the kernel for each program of the grid."""
        from ziggurat.backend.ptx.assemble import optimized as after_passes
        from ziggurat.backend.ptx.emitter import kernel_of
        from ziggurat.backend.simulator.simulate import simulate
        from ziggurat.backend.simulator.tma import in_parts

        compiled = self.compiled
        model: Op = compiled.stages["gpu"]
        assert isinstance(model, gpu.Module)
        sizes = gpu_sizes(grid, self.title)
        arguments = tuple(leaves(arguments))
        names = self.check(arguments)
        given = [_on_host(value, name) for value, name in zip(arguments, names, strict=True)]
        parts = in_parts(kernel_of(model), given)
        owners = [int(part.partition(".")[0]) for part in compiled.parts] or range(len(given))
        values = [_number(value, type_) for value, type_ in zip(parts, compiled.parameters, strict=True)]
        text = compiled.stages["llvm"]
        if optimized:
            text = after_passes(text, compiled.target)
        try:
            simulate(
                text, num_warps=compiled.num_warps, shared=compiled.shared, grid=sizes, arguments=values, seed=seed,
                promises=not optimized, names=[names[owner] for owner in owners],
                known=(op.location for op in model.walk() if op.location is not None),
            )  # fmt: skip
        except NotImplementedError as error:
            raise TargetError(f"the simulator does not know {error}") from None

    def fits_pointer(self, argument: Argument, type_: PtrType, name: str, given: Any) -> None:
        """Raise `LaunchError` unless the argument is such an array in memory."""
        if isinstance(given, TensorDescriptor) or not is_array(given):
            raise self.other(name, f"an array of {type_.pointee}", type(given).__name__)
        array = _on_host(given, name)
        if array.dtype != type_.pointee.dtype:
            raise self.other(name, f"an array of {type_.pointee}", f"an array of {array.dtype}")
        if address(array) % argument.divisibility:
            raise self.divided(argument, name, f"an address divisible by {argument.divisibility}", hex(address(array)))

    def fits_descriptor(self, argument: Argument, name: str, given: Any) -> None:
        """Raise `LaunchError` unless the argument is such a descriptor of an array in memory."""
        self.fits_described(argument, name, given)
        if given.host is None:
            raise LaunchError(
                f"'{name}' of '{self.title}' describes an array on a GPU, and the simulation runs on the host",
                hint="describe a copy of the array in memory",
            )


def _on_host(given: Any, name: str) -> Any:
    """Arrays as NumPy's; other arguments as they are."""
    if isinstance(given, TensorDescriptor) or not is_array(given):
        return given
    if on_gpu(given):
        raise LaunchError(
            f"'{name}' is an array on a GPU, and the simulation runs on the host", hint="pass a copy: .cpu() or .get()"
        )
    return as_array(given, name)


def _number(value: Any, type_: Any) -> Any:
    """A number in the type of its parameter; arrays and tensor maps as they are."""
    if isinstance(type_, ScalarType):
        return np.asarray(value).astype(type_.dtype)[()]
    return value


# The command line: arrays of given shapes with drawn numbers.

_ARRAY = re.compile(r"(\w+)\[([\d\s,]*)\]")


def report(
    kernel: Kernel, text: str, grid: Sequence[int], options: Mapping[str, Any], *, seed: int, optimized: bool
) -> str:
    """Simulate a kernel on drawn data, and compare with the interpreter; what became of each array.

    `text` has the arguments: "f32[1024], 1000, 64" is an array of 1024 numbers from N(0, 1), and two values.
    """
    names = list(kernel.signature.parameters)
    values = _drawn(text)
    if len(values) > len(names):
        raise LaunchError(f"'{kernel.name}' takes {len(names)} arguments; got {len(values)}", hint=kernel.written)
    constexprs = constexpr_names(kernel)
    run_time = [at for at in range(len(values)) if names[at] not in constexprs]
    types = [_type_of(values[at]) if at in run_time else values[at] for at in range(len(values))]
    compiled = kernel.compile(*types, **options)
    before, expected = ([value.copy() if is_array(value) else value for value in values] for _ in range(2))
    compiled.simulate[tuple(grid)](*(values[at] for at in run_time), seed=seed, optimized=optimized)
    kernel[tuple(grid)](*expected)
    count, threads = int(np.prod(grid)), 32 * compiled.num_warps
    lines = [f"{kernel.name}: {count} program(s) of {threads} threads for {compiled.target}: no fault found"]
    for at in run_time:
        if is_array(values[at]):
            lines.append(f"  {names[at]}: {_changes(before[at], values[at], expected[at])}")
    return "\n".join(lines) + "\n"


def _drawn(text: str) -> list[Any]:
    """The arguments of a text, arrays drawn by a fixed seed."""
    random = np.random.default_rng(0)
    arrays: list[Any] = []

    def draw(found: re.Match[str]) -> str:
        scalar = SCALARS.get(found[1])
        shape = tuple(int(size) for size in found[2].split(",") if size.strip())
        if scalar is None:
            raise LaunchError(f"'{found[0]}' must be a dtype and a shape, as f32[64, 64]")
        normal = random.standard_normal(shape)
        drawn = normal if scalar.is_float else random.integers(0, 2, shape)
        arrays.append(drawn.astype(scalar.dtype))
        return f'"array {len(arrays) - 1}"'

    values = parse_values(_ARRAY.sub(draw, text), "arguments")
    return [arrays[int(v[6:])] if isinstance(v, str) and re.fullmatch(r"array \d+", v) else v for v in values]


def _type_of(value: Any) -> Any:
    """The type that a launch with this value compiles for."""
    if is_array(value):
        type_: Any = PtrType(ELEMENTS[value.dtype])
        return divisible(type_, 16) if address(value) % 16 == 0 else type_
    found = number_type(value)
    return value if found is None else found


def _changes(before: Any, after: Any, expected: Any) -> str:
    """The change of an array, for the report."""
    same = (before == after) | ((before != before) & (after != after))
    if same.all() and np.array_equal(after, expected, equal_nan=after.dtype.kind not in "biu"):
        return "unchanged"
    wide = [array.astype(np.float64) for array in (after, expected)]
    with np.errstate(all="ignore"):
        difference = np.abs(wide[0] - wide[1])
    worst = np.max(np.nan_to_num(np.where(wide[0] == wide[1], 0, difference), nan=0.0), initial=0.0)
    return (
        f"{int((~same).sum())} of {after.size} elements changed; largest difference from the interpreter: {worst:.3g}"
    )
