"""Instructions in inline assembly: accesses, barriers, approximations, atomics, cp.async and setmaxnreg.

Importing this module registers them. Atomics run one thread after the other. A copy of cp.async reads its bytes when it
is issued and writes them when its group has been waited for. No thread may touch the destination before that; after it,
up to a barrier, only the thread that issued the copy may. Threads that reach setmaxnreg together are a role from then
on (`roles` of the program); a warp group that asks for more registers waits until others have released enough.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from ziggurat.backend.launch.races import POLL, READ, UPDATE
from ziggurat.backend.simulator.program import Blocked, unit
from ziggurat.backend.simulator.shared import Array, SimulationError
from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import math
from ziggurat.codemodel.scalars import directed
from ziggurat.codemodel.types import SCALARS

_APPROXIMATE: dict[str, Callable[[Array], Array]] = {
    "ex2": np.exp2, "lg2": np.log2, "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "rcp": np.reciprocal,
    "sqrt": np.sqrt, "rsqrt": lambda a: np.reciprocal(np.sqrt(a)),
}  # fmt: skip
_ADDRESS = r"\[ ?\$(\d+)(?: \+ (\d+))? ?\]"


@unit(r"bar\.sync \d+(?:, (\d+))?")
def _barrier(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    program.barrier(int(match[1]) if match[1] else None)


@unit(r"mov\.\w+ \$(\d+), (?:\$(\d+)|%globaltimer)")
def _move(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    # The time that this process has computed for: a wait must not end early because other processes have the machine.
    now = np.full(program.threads, time.process_time_ns(), np.uint64)
    target = operands[int(match[2])] if match[2] else now
    operands[int(match[1])] = np.where(program.mask, target, operands[int(match[1])])


@unit(r"mov\.b32 \$0, \{\$1, \$2\}")
def _join(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    """Two words of 16 bits as one, the lower first."""
    operands[0] = operands[1].astype(np.uint32) | operands[2].astype(np.uint32) << np.uint32(16)


@unit(r"mul\.f32 \$(\d+), \$(\d+), \$(\d+)")
def _multiply(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    """The result has the register of the first operand, which stays where the predicate does not hold."""
    a, b = operands[int(match[2])], operands[int(match[3])]
    operands[int(match[1])] = np.where(program.mask, a * b, a)


@unit(rf"({'|'.join(_APPROXIMATE)}|div)\.(?:approx|full)[\w.]* \$(\d+), \$(\d+)(?:, \$(\d+))?")
def _approximate(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    a = operands[int(match[3])]
    operands[int(match[2])] = _APPROXIMATE[match[1]](a) if match[4] is None else a / operands[int(match[4])]


_DIRECTIONS = {"rz": math.Direction.ZERO, "rm": math.Direction.DOWN, "rp": math.Direction.UP}


@unit(rf"(add|mul|div|sqrt|fma)\.({'|'.join(_DIRECTIONS)})\.(f32|f64) \$(\d+), (.*)")
def _directed(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    values = [operands[number] for number in _numbers(match[5])]
    b = Builder.root([SCALARS[match[3]]] * len(values))
    op = math.Directed(b.parameters, math.Operation(match[1]), _DIRECTIONS[match[2]])
    operands[int(match[4])] = directed(op, *values)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\$(\d+)", text)]


def _address(match: re.Match[str], operands: list[Any], first: int) -> Array:
    """The addresses of an access, from the two groups of `_ADDRESS`."""
    return operands[int(match[first])].astype(np.int64) + int(match[first + 1] or 0)


@unit(rf"ld(?:\.volatile|\.(?:relaxed|acquire)\.\w+)?\.(global|shared)[\w.:]*\.b(\d+) ([^\[]*), {_ADDRESS}")
def _load(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    words = match[0].split(".")
    if is_strong := words[1] in ("volatile", "relaxed", "acquire"):
        program.memory.order = ("relaxed", "sys") if words[1] == "volatile" else (words[1], words[2])
    targets, size = _numbers(match[3]), int(match[2]) // 8
    old = [operands[target] for target in targets]
    dtype = old[0].dtype if old[0].dtype.itemsize == size else np.dtype(f"u{size}")  # A byte has a register of 16 bits.
    values = program.load(
        match[1], _address(match, operands, 4), dtype, program.mask, [value.astype(dtype) for value in old],
        kind=POLL if is_strong else READ,
    )  # fmt: skip
    program.memory.order = None
    for target, value in zip(targets, values, strict=True):
        operands[target] = value.astype(operands[target].dtype)


@unit(rf"st\.(global|shared)[\w.:]*\.b(\d+) {_ADDRESS}, (.*)")
def _store(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    size, values = int(match[2]) // 8, [operands[source] for source in _numbers(match[5])]
    fitting = [value if value.dtype.itemsize == size else value.astype(f"u{size}") for value in values]
    program.store(match[1], _address(match, operands, 3), fitting, program.mask)


@unit(rf"red\.shared\.add\.u32 {_ADDRESS}, 1")
def _count(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    program.use(program.mask)
    program.shared.add(_address(match, operands, 1)[program.mask], program.numbers[program.mask], 1)


# Atomics of global memory: vectors and packed pairs included.

_ELEMENTS: dict[str, Any] = {
    **{f"{kind}{bits}": np.dtype(f"uint{bits}") for kind in "ub" for bits in (16, 32, 64)},
    "s32": np.int32, "s64": np.int64, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32,
    "f64": np.float64, "f16x2": np.float16, "bf16x2": ml_dtypes.bfloat16,
}  # fmt: skip
# The new value from the old one and the operands; compare-and-swap has two operands.
_NEW: dict[str, Callable[[Array, Array], Array]] = {
    "add": lambda old, match: old + match, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "exch": lambda old, match: match,
    "cas": lambda old, match: np.where(old == match[: len(match) // 2], match[len(match) // 2 :], old),
}  # fmt: skip


_ATOMIC = (
    rf"(?:atom|red)\.\w+\.\w+\.global\.({'|'.join(_NEW)})(?:\.noftz)?(?:\.v[24])?\.({'|'.join(_ELEMENTS)})"
    r" (?:([^\[]*), )?\[ \$(\d+) \+ 0 \], ([^;]*)"
)


@unit(_ATOMIC)
def _atomic(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    element, memory = np.dtype(_ELEMENTS[match[2]]), program.memory
    values = [np.ascontiguousarray(operands[number]) for number in _numbers(match[5])]
    step = values[0].dtype.itemsize
    size = step * (1 if match[1] == "cas" else len(values))
    olds = [operands[number] for number in _numbers(match[3] or "")]
    program.use(program.mask)
    for thread in np.flatnonzero(program.mask):
        where = operands[int(match[4])][thread : thread + 1]
        if (where % size).any():
            raise SimulationError(f"an atomic access of {size} bytes must be aligned; that of thread {thread} is not")
        for region, _, places in memory.places(where, size, np.array([thread]), "updates"):
            old = region.bytes[places[0]].copy()
            data = np.concatenate([value[thread : thread + 1].view(np.uint8) for value in values])
            new = _NEW[match[1]](old.view(element), data.view(element)).view(np.uint8)
            region.bytes[places[0]] = new
            name, order, scope = match[0].split(".")[:3]
            releases = order in ("release", "acq_rel") or int(thread) in memory.fenced
            memory.order = order, scope
            is_load = match[1] == "cas" and not np.array_equal(old, data[:size])
            memory.note(region, places, UPDATE, acquires=name == "atom", releases=releases, is_load=is_load)
            memory.order = None
            memory.changes += not np.array_equal(old, new)
            for at, value in enumerate(olds):
                value.view(np.uint8).reshape(len(value), step)[thread] = old[at * step : (at + 1) * step]


@unit(rf"st\.(relaxed|release)\.(\w+)\.global\.(b\d+) {_ADDRESS}, \$(\d+)")
def _ordered_store(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    """An exchange whose result nothing uses."""
    text = f"red.{match[1]}.{match[2]}.global.exch.{match[3]} [ ${match[4]} + 0 ], ${match[6]}"
    exchange = re.fullmatch(_ATOMIC, text)
    assert exchange is not None
    _atomic(program, exchange, operands)


@unit(r"nanosleep\.u32 \d+")
def _sleep(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    """Time goes on by itself."""


@unit(r"fence\.acq_rel\.(cta|gpu|sys)")
def _fence(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    """The atomics of these threads that follow release, whatever their own order is."""
    program.memory.fence(np.flatnonzero(program.mask), match[1])


# Asynchronous copies.


@unit(r"cp\.async\.(?:ca|cg)\.shared\.global \[ \$0 \+ (\d+) \], \[ \$1 \+ 0 \], (4|8|16)(, \$2)?")
def _copy(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    size = int(match[2])
    program.together("a copy")
    program.use(program.mask)
    threads = np.flatnonzero(program.mask)
    targets = (operands[0].astype(np.int64) + int(match[1]))[threads]
    sources = operands[1][threads]
    if (targets % size).any():
        raise SimulationError("a copy must be aligned to its size")
    data = np.zeros((len(threads), size), np.uint8)
    real = np.flatnonzero(~operands[2][threads].astype(bool)) if match[3] else np.arange(len(threads))
    if (sources[real] % size).any():
        raise SimulationError("the source of a copy must be aligned to its size")
    data[real] = program.memory.load(sources[real], size, threads[real])
    shared = program.shared
    places = shared.places(targets, size)
    who = np.broadcast_to(threads[:, None], places.shape)
    shared.check_free(places, who, "a copy writes")
    if len(np.unique(places)) != places.size:
        raise SimulationError("two threads must not copy to the same place")
    shared.writer[places] = shared.stamp(shared.in_flight)
    program.copies[-1].append((places, who, data))
    program.requests += 1


@unit(r"griddepcontrol\.(wait|launch_dependents)")
def _grid_dependency(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    """A launch begins here when the one before it has ended."""


@unit(r"cp\.async\.commit_group")
def _commit(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    program.together("a commit")
    program.copies.append([])


@unit(r"cp\.async\.wait_group (\d+)")
def _wait(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    program.together("a wait")
    groups, shared = program.copies, program.shared
    while len(groups) - 1 > int(match[1]):
        for places, who, data in groups.pop(0):
            shared.write(places, who, data)


@unit(r"setmaxnreg\.(inc|dec)\.sync\.aligned\.u32 (\d+)")
def _setmaxnreg(program: Any, match: re.Match[str], operands: list[Any]) -> None:
    """As in the PTX manual."""
    count, active = int(match[2]), program.active
    registers: Array = program.registers
    if not program.pool:
        raise SimulationError("a kernel with setmaxnreg must say how many registers a thread has at its launch")
    if count % 8 or not 24 <= count <= 256:
        raise SimulationError(f"setmaxnreg must be to a multiple of 8 from 24 to 256; got {count}")
    program.warp_groups("setmaxnreg")
    if (registers[active] > count if match[1] == "inc" else registers[active] < count).any():
        raise SimulationError(f"setmaxnreg.{match[1]} to {count} from {sorted(set(registers[active].tolist()))}")
    total = int(registers[~active].sum()) + count * int(active.sum())
    if total > program.pool:
        raise Blocked(active, "deadlock: threads wait for registers that nobody gives back")
    registers[active] = count
    program.roles[active] = program.roles.max() + 1
