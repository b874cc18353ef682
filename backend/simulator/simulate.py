"""The emitted text on a machine without a GPU: all threads of a program in step, each value an array over the threads.

    simulate(to_llvm(model), num_warps=4, shared=model.shared, grid=(2,), arguments=[x, y, 1024])

The text is what our emitters write, or what LLVM's passes have made of that (`assemble.optimized`), inline assembly
included; `text` reads it. The simulation is strict: all threads must come to a barrier or a shuffle together,
accesses must be as aligned as the text says and inside the arrays, shared memory begins as noise, and an access that
conflicts with one of another thread since the last barrier is a `SimulationError`. Where our text says what does not
hold, LLVM's passes make another program of it, and that is seen in the same way.

It is slow, and it is a judge: what it gives is compared with what the reference gives.

Where warps part ways (`registers`), all threads are those of a role, a barrier orders what its threads have done
and nothing else, and which role goes on is the adversary's choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ziggurat.backend.simulator import atomics, copies, matrix, registers, tma
from ziggurat.backend.simulator.program import Program
from ziggurat.backend.simulator.shared import Array
from ziggurat.backend.simulator.text import dtype_of, function_of

# Each of these modules registers the instructions of one unit.
UNITS = (atomics, copies, matrix, registers, tma)

_SHIFT = 40  # The array of an argument is the upper bits of an address.


def simulate(
    llvm: str, *, num_warps: int, shared: int, grid: Sequence[int] = (1,), arguments: Sequence[Any] = (), seed: int = 0,
    promises: bool = True,
) -> None:  # fmt: skip
    """Run emitted LLVM text for every program of a grid, one after the other. Arrays are changed in place.

    What is asynchronous happens as late as it may with the seed 0, as early as it may with 1, and anywhere between with
    others. An argument may be a `tma.TensorMap`.

    What instructions say of themselves (nuw, nsw, exact, disjoint) has to hold with `promises`: so for what we emit.
    LLVM's passes leave some that do not hold, where nothing depends on the value.

    There are more warps than `num_warps` where the text says so: those that only fetch.

    Raises `SimulationError` for what no program may do, `NotImplementedError` for text that is not known here.
    """
    function = function_of(llvm)
    said = function.numbers
    threads = max(32 * num_warps, said.get("nvvm.reqntid", 0))
    # The array that a tensor map describes is memory as well.
    given = [getattr(argument, "array", argument) for argument in arguments]
    arrays: list[Array] = [argument for argument in given if isinstance(argument, np.ndarray)]
    sizes = (*grid, 1, 1)[:3]
    with np.errstate(all="ignore"):
        for index in np.ndindex(*sizes[::-1]):
            program = Program(function, threads, -(-shared // 8) * 8, arrays, seed)
            program.promises = promises
            if registers := said.get("nvvm.maxnreg"):
                program.registers, program.pool = np.full(threads, registers), threads * registers
            program.program, program.grid = index[::-1], sizes
            count = 0
            for (kind, name), argument, array in zip(function.parameters, arguments, given, strict=True):
                if isinstance(array, np.ndarray):
                    count += 1
                    program.maps[count << _SHIFT] = argument
                    program.values[name] = np.full(program.threads, count << _SHIFT, np.int64)
                else:
                    number = argument if kind in ("half", "bfloat", "float", "double") else int(argument)
                    program.values[name] = np.full(program.threads, number).astype(dtype_of(kind))
            program.run()
