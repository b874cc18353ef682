"""A compiled kernel on a simulated GPU: `compiled.simulate[grid](…)` runs its code thread by thread on the host."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from ziggurat.backend.launch.arrays import as_array, is_array
from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.backend.launch.grids import gpu_sizes
from ziggurat.backend.simulator import MAX_STEPS
from ziggurat.boundary import public
from ziggurat.codemodel.errors import LaunchError, shown
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CPU, boolean
from ziggurat.codemodel.op import expect
from ziggurat.codemodel.subnormals import keep_subnormals
from ziggurat.codemodel.text.parser import parse_values
from ziggurat.codemodel.types import SCALARS, ScalarType, TensorType, Type
from ziggurat.compiler.compiled import Compiled
from ziggurat.kernels.arguments import bind
from ziggurat.kernels.kernel import Kernel
from ziggurat.launches.compiled_launches import checked


class Simulation:
    """Runs a `Compiled` without a GPU.

        compiled.simulate[grid](x, y, n, seed=0, optimized=False, max_steps=500_000, ctas=2)

    The arguments are those of a launch; arrays are NumPy's, or others in memory, and are changed in place. Programs run
    one after the other, the threads of each in step. Asynchronous copies happen as late as they may with `seed=0`, as
    early as they may with 1, and at any time between with others, which also decide which warps go first. With
    `optimized` the code is the emitted code after LLVM's passes. `max_steps` limits the instructions of a program. At
    most `ctas` CTAs run a kernel whose CTAs take programs in turn (`persistent`).

    Raises `SimulationError` for a race, a stray or misaligned access, a deadlock, a missing wait or barrier, with the
    line of the kernel; `KernelRuntimeError` for an assertion that fails; `LaunchError` for arguments that are not what
    the kernel was compiled for; and `TargetError` for instructions that the simulator does not know.
    """

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled

    __iter__ = None  # Otherwise `for` would launch the grids 0, 1, … by `__getitem__`.

    def __call__(self, *arguments: Any, **keywords: Any) -> NoReturn:
        raise LaunchError(f"'{self.compiled.title}' must be simulated over a grid", hint="compiled.simulate[grid](…)")

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        """A launch over this grid."""
        return functools.partial(_simulate, self.compiled, grid)


@public
@keep_subnormals()
def _simulate(
    compiled: Compiled, grid: Any, /, *arguments: Any, seed: int = 0, optimized: bool = False,
    max_steps: int = MAX_STEPS, ctas: int = 2, **keywords: Any,
) -> None:  # fmt: skip
    """Simulate the kernel for each program of the grid."""
    from ziggurat.backend.launch.descriptors import check_disjoint
    from ziggurat.backend.ptx.assemble import optimized as after_passes
    from ziggurat.backend.simulator.simulate import simulate
    from ziggurat.backend.simulator.tma import in_parts
    from ziggurat.transforms.analysis.queries import function_of

    for name, number, least in (("seed", seed, 0), ("max_steps", max_steps, 0), ("ctas", ctas, 1)):
        if not isinstance(number, int | np.integer) or number < least:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise LaunchError(f"{name} must be an integer of {least} or more; got {shown(number)}")
    model = expect(compiled.stages["gpu"], gpu.Module)
    sizes = gpu_sizes(grid, compiled.title)
    values_of_launch = [
        as_array(value, name) if is_array(value) else value
        for name, value in zip(compiled.names, checked(compiled, arguments, keywords, in_memory=True), strict=True)
    ]
    pairs = tuple(zip(compiled.disjoint[::2], compiled.disjoint[1::2], strict=True))
    check_disjoint(pairs, values_of_launch, compiled.names, compiled.title)
    parts = in_parts(function_of(model), values_of_launch, compiled.scratch * math.prod(sizes), sizes)
    if compiled.persistent:
        programs = math.prod(sizes)
        sizes = min(programs, ctas), 1, 1
        max_steps *= math.ceil(programs / ctas)  # A CTA runs as many programs, one after the other.
    sizes = sizes[0] * compiled.num_ctas, *sizes[1:]
    owners = [int(part.partition(".")[0]) for part in compiled.parts] or range(len(values_of_launch))
    names = [compiled.names[owner] for owner in owners]
    names += ["the grid"] * 3 * compiled.persistent
    names += [names[int(part.split()[1])] for _, part in compiled.maps] + ["scratch"] * bool(compiled.scratch)
    with np.errstate(over="ignore"):  # A float out of range becomes an infinity, as at a launch.
        values = [
            np.asarray(value).astype(type_.dtype)[()] if isinstance(type_, ScalarType) else value
            for value, type_ in zip(parts, compiled.parameters, strict=False)
        ]
        values += parts[len(values) :]  # The tensor maps that the launch makes, and the memory for others.
    text = compiled.stages["llvm"]
    if boolean("optimized", optimized):
        text = after_passes(text, compiled.target)
    launch = functools.partial(
        simulate, text, num_warps=compiled.num_warps, shared=compiled.shared, grid=sizes, arguments=values, seed=seed,
        promises=not optimized, max_steps=max_steps, names=names,
        locations=[op.location for op in model.walk() if op.location is not None],
    )  # fmt: skip
    if Kernel.queue is None:
        launch()
        return
    from ziggurat.backend.simulator.devices import QueuedSimulation

    Kernel.queue.add(QueuedSimulation(compiled.title, launch.args, launch.keywords))


# The command line: arrays of given shapes with drawn numbers.

_ARRAY = re.compile(r'"[^"]*"|(\w+)\[([^\]]*)\]|\b(?:True|False|None)\b|,?\s*\)|\(')
_PYTHON = {"True": "true", "False": "false", "None": "null", "(": "["}  # Texts of values that models write otherwise.


def report(
    kernel: Kernel, text: str, grid: Sequence[int], options: Mapping[str, Any], *, seed: int, optimized: bool
) -> str:
    """Simulate a kernel on drawn data, and compare with the interpreter; the changes of each array.

    `text` has the arguments: "f32[1024], 1000, 64" is an array of 1024 numbers from N(0, 1), and two values. Brackets
    around arguments make a tuple, and "f16[512, 256; 128, 64]" is a descriptor of an array, with blocks of 128×64.
    """
    arguments = drawn(text)
    bound = bind(kernel, arguments, {})
    signature, names, values = kernel.specialized(bound)
    compiled = kernel.compiled_for(signature, bound, options)
    if compiled.target == CPU:
        raise LaunchError("a simulation must be of a GPU; got the target 'cpu'")
    arrays = {name: array for name, value in zip(names, values, strict=True) if (array := array_of(value)) is not None}
    before = {name: array.copy() for name, array in arrays.items()}
    compiled.simulate[tuple(grid)](*values, seed=seed, optimized=optimized)
    after = {name: array.copy() for name, array in arrays.items()}
    for name, array in arrays.items():
        array[...] = before[name]
    kernel[tuple(grid)](*arguments, interpret=True)
    count, threads = int(np.prod(grid)), 32 * compiled.num_warps
    lines = [f"{kernel.name}: {count} program(s) of {threads} threads for {compiled.target}: no fault found"]
    lines += [f"  {name}: {_changes(before[name], after[name], array)}" for name, array in arrays.items()]
    return "\n".join(lines) + "\n"


def drawn(text: str) -> list[Any]:
    """The arguments of a text: arrays drawn by a fixed seed, the arrays of files, for strings that end in `.npy`, and
    values. Raises `LaunchError` for a file that cannot be read."""
    random = np.random.default_rng(0)
    blocks = list[list[int]]()  # Of each array, in the order of the text; empty for one without a descriptor.

    def as_type(match: re.Match[str]) -> str:
        """`f32[64, 64]` as the type of a tensor, which no argument of a kernel has; a string as it is."""
        if match[1] is None:
            return "]" if match[0].endswith(")") else _PYTHON.get(match[0], match[0])
        shape, _, of_block = match[2].partition(";")
        sizes, block = ([size.strip() for size in part.split(",") if size.strip()] for part in (shape, of_block))
        if match[1] not in SCALARS or not all(size.isdecimal() and int(size) for size in (*sizes, *block)):
            raise LaunchError(f"'{match[0]}' must be a dtype and a shape of sizes from 1 on, as f32[64, 64]")
        blocks.append(list(map(int, block)))
        return f"tensor<{''.join(f'x{size}, ' for size in sizes)}{match[1]}>"

    def draw(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(draw, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        if isinstance(value, TensorType) and isinstance(value.element, ScalarType):
            scalar, shape = value.element, value.shape
            try:
                drawn = random.standard_normal(shape) if scalar.is_float else random.integers(0, 2, shape)
                array, block = drawn.astype(scalar.dtype), blocks.pop(0)
                return TensorDescriptor(array, block) if block else array
            except (MemoryError, ValueError):  # NumPy's `ValueError` is for a number of bytes beyond an address.
                raise LaunchError(f"the array {scalar}{list(shape)} must fit in memory") from None
        if isinstance(value, str) and value.endswith(".npy"):
            try:
                return np.load(value, allow_pickle=False)
            except (OSError, ValueError, EOFError) as error:  # NumPy's `EOFError` is for an empty file.
                raise LaunchError(f"the array '{value}' cannot be read: {error}") from None
        if isinstance(value, Type) and not isinstance(value, ScalarType):
            raise LaunchError(f"an argument must be an array, as f32[1024], or a value; got the type {value}")
        return value

    return list(map(draw, parse_values(_ARRAY.sub(as_type, text), "arguments")))


def array_of(value: Any) -> Any:
    """The array of an argument: itself, or that of a descriptor; None for a number."""
    return value.array if isinstance(value, TensorDescriptor) else value if is_array(value) else None


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
