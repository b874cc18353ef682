"""Emitted text on a machine without a GPU: all threads of a program run in step, and each value is an array over them.

    simulate(to_llvm(model), num_warps=4, shared=model.shared, grid=(2,), arguments=[x, y, 1024])

The text is that of the emitters, or what LLVM's passes make of it (`assemble.optimized`), with its inline assembly. The
simulation is strict: all threads must reach a barrier or a shuffle together; accesses must be aligned as the text
promises, and inside their arrays; shared memory begins as noise; and an access that conflicts with one of another
thread since the last barrier is a `SimulationError`. A promise of the text that does not hold becomes another program
in LLVM's passes, which shows in the results.

With warp specialisation (`registers`), "all threads" are those of a role, a barrier orders the accesses of its own
threads only, and the seed chooses the role that runs next.

The text is read by regular expressions, not by llvmlite's iterators: these give opcodes and operands, but flags,
alignments, types, constants and assembly only as the text of each instruction, and LLVM numbers a whole function anew
to print one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs
import numpy as np

from ziggurat.backend.launch.races import MAX_PROGRAMS, Races
from ziggurat.backend.simulator import MAX_STEPS, assembly, clusters, matrix_units, tma
from ziggurat.backend.simulator.clusters import Cluster
from ziggurat.backend.simulator.program import Program
from ziggurat.backend.simulator.shared import Array, SimulationError
from ziggurat.backend.simulator.simulated_memory import SimulatedMemory
from ziggurat.backend.simulator.text import TextPlaces, dtype_of, module_of
from ziggurat.codemodel.location import Location

# Each of these modules registers the instructions of one unit.
UNITS = (assembly, clusters, matrix_units, tma)


@attrs.frozen(eq=False)
class Simulated:
    """A launch of emitted text that is ready to run. `cta` makes the program of a CTA by its number, on a memory that
    has the arrays; `programs` has the sizes of the grid in clusters of `ctas` CTAs."""

    programs: tuple[int, ...]
    ctas: int
    arrays: list[Array]
    titles: list[str]
    places: TextPlaces
    cta: Callable[[tuple[int, ...], SimulatedMemory], Program]


def simulate(
    llvm: str, *, num_warps: int, shared: int, grid: Sequence[int] = (1,), arguments: Sequence[Any] = (), seed: int = 0,
    promises: bool = True, max_steps: int = MAX_STEPS, names: Sequence[str] = (), locations: Iterable[Location] = (),
) -> None:  # fmt: skip
    """Run emitted LLVM text for every program of a grid, one after the other. Arrays are changed in place.

    Asynchronous work happens as late as it may with the seed 0, as early as it may with 1, and at any time between with
    others. An argument may be a `tma.TensorMap`. `names` are those of the arguments, for messages. A place in
    `locations` gives the span that a message underlines.

    With `promises`, the flags of instructions (nuw, nsw, exact, disjoint) must hold, as they do in emitted text. LLVM's
    passes leave some that do not hold, where nothing depends on the value.

    The grid is that of CTAs. The CTAs of a cluster run at once, each until it waits for others.

    The text may ask for more warps than `num_warps`: the producers. A program that runs `max_steps` instructions
    exceeds the loop limit; instructions that diverged threads run one after the other count apart.

    Raises `SimulationError` for faults of the program, and `TargetError` for instructions that are not known.
    """
    launch = launch_of(
        llvm, num_warps=num_warps, shared=shared, grid=grid, arguments=arguments, seed=seed, promises=promises,
        max_steps=max_steps, names=names, locations=locations,
    )  # fmt: skip
    programs, ctas = launch.programs, launch.ctas
    memory = SimulatedMemory(launch.arrays, launch.titles)
    if 1 < math.prod(programs) <= MAX_PROGRAMS:
        memory.races = Races(programs, launch.places.of, SimulationError)
    with np.errstate(all="ignore"):
        for number, (z, y, x) in enumerate(np.ndindex(programs[::-1])):
            memory.program = number
            ranks = range(ctas * x, ctas * x + ctas)
            memories = [memory] if ctas == 1 else memory.of_ctas(ctas)
            Cluster([launch.cta((rank, y, z), own) for rank, own in zip(ranks, memories, strict=True)]).run(seed)


def launch_of(
    llvm: str, *, num_warps: int, shared: int, grid: Sequence[int], arguments: Sequence[Any], seed: int, promises: bool,
    max_steps: int, names: Sequence[str], locations: Iterable[Location],
) -> Simulated:  # fmt: skip
    """A launch with the parameters of `simulate`, before it runs."""
    module = module_of(llvm)
    threads = max(32 * num_warps, module.numbers.get("nvvm.reqntid", 0))
    # The array that a tensor map describes is memory as well.
    values = [getattr(argument, "array", argument) for argument in arguments]
    arrays: list[Array] = [argument for argument in values if isinstance(argument, np.ndarray)]
    titles = [
        names[at] if names else f"argument {at}" for at, array in enumerate(values) if isinstance(array, np.ndarray)
    ]
    places = TextPlaces(module.metadata, locations)
    sizes = (*grid, 1, 1)[:3]
    ctas = module.numbers.get("nvvm.cluster_dim", 1)

    def cta(number: tuple[int, ...], memory: SimulatedMemory) -> Program:
        program = Program(module, threads, shared, memory, seed, max_steps)
        program.promises, program.places = promises, places
        program.program, program.grid = number, sizes
        count = 0
        for (kind, name), argument, array in zip(module.kernel.parameters, arguments, values, strict=True):
            if isinstance(array, np.ndarray):
                pointer = memory.pointers[count]
                if argument is not array:
                    pointer = tma.MAPS + count
                    program.maps[pointer] = argument
                count += 1
                value: Any = np.full(threads, pointer, np.int64)
            else:
                value = _number(kind, argument, threads)
            program.frame.values[name] = value
        return program

    return Simulated((sizes[0] // ctas, *sizes[1:]), ctas, arrays, titles, places, cta)


def _number(kind: str, argument: Any, threads: int) -> Array:
    """A number for a parameter; 8-bit floats are their bits."""
    dtype = np.dtype(dtype_of(kind))
    value = np.asarray(argument)
    if value.dtype.itemsize == 1 and value.dtype.kind not in "biu":
        value = value.view(np.uint8)
    if dtype.kind in "biu" and dtype != np.bool_:
        value = np.asarray(int(value) % (1 << 8 * dtype.itemsize))
    return np.full(threads, value).astype(dtype)
