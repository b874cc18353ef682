"""One program of the simulation: the values of its threads, its memory, and the instructions that need no unit."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from ziggurat.backend.simulator.shared import Array, Shared, SimulationError
from ziggurat.backend.simulator.text import (
    Function,
    called,
    dtype_of,
    elements_of,
    incoming,
    instruction,
    odd_width,
    size_of,
    split,
    targets,
    typed,
)
from ziggurat.backend.simulator.values import (
    BINARY,
    binary,
    broken,
    cast_to,
    chosen,
    compared,
    function_named,
    over,
    signed,
)

_SHIFT = 40  # The array of an argument is the upper bits of an address.
# An expression that stands in the place of a constant, as `ptrtoint (ptr addrspace(3) @smem to i32)`.
_EXPRESSION = re.compile(r"([a-z]+) (?:(?:inbounds|nuw|nsw|nusw|disjoint|exact) )*\((.*)\)", re.DOTALL)


# What runs a piece of assembly as a whole, by a word in it: gives what it gives. The units add to it.
UNITS: dict[str, Callable[[Any, str, list[Any]], list[Array]]] = {}

_WORDS = {"true": 1, "false": 0, "null": 0, "poison": 0, "undef": 0, "zeroinitializer": 0, "@smem": 0}

# What looks at a program when all of its threads have returned.
ENDS: list[Callable[[Any], None]] = []


class Blocked(Exception):
    """Some threads cannot go on from where they are before others have done something."""

    def __init__(self, threads: Array, reason: str) -> None:
        super().__init__(reason)
        self.threads = threads
        self.line = 0  # Of the block, filled in where the line is known.


_APPROXIMATE: dict[str, Callable[[Array], Array]] = {
    "ex2": np.exp2, "lg2": np.log2, "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "rcp": np.reciprocal,
    "sqrt": np.sqrt, "rsqrt": lambda a: np.reciprocal(np.sqrt(a)),
}  # fmt: skip


class Program:
    """One program: its threads' values, and the memory."""

    def __init__(self, function: Function, threads: int, shared: int, arrays: list[Array], seed: int = 0) -> None:
        self.blocks = function.blocks
        self.promises = True  # Whether the flags of instructions have to hold.
        self.seed = seed
        self.maps: dict[int, Any] = {}  # Tensor maps, by what stands for their address.
        self.threads = threads
        self.random = np.random.default_rng(seed)
        self.roles = np.zeros(threads, np.int64)  # By number, since the program's warps parted ways.
        self.registers: Array | None = None  # Of each thread, where the launch says how many.
        self.pool = 0  # How many there are in all.
        self.numbers = np.arange(threads)
        self.shared = Shared(shared, 0, threads)
        self.memory: list[Array] = [np.asarray(array).reshape(-1).view(np.uint8) for array in arrays]
        self.values: dict[str, Any] = {}
        self.active = np.ones(threads, bool)
        self.program: tuple[int, ...] = (0, 0, 0)
        self.grid: tuple[int, ...] = (1, 1, 1)

    # Values.

    def get(self, kind: str, token: str) -> Any:
        """An operand: one array, or a list of arrays for a vector or a struct."""
        if token.startswith("%"):
            return self.values[token]
        elements = elements_of(kind)
        if elements is not None:
            if token.startswith("splat ("):
                return [self.operand(token[len("splat (") : -1])] * len(elements)
            if token[0] in "<{[":
                return [self.operand(part) for part in split(token[1:-1])]
            if token in ("poison", "undef", "zeroinitializer"):
                return [self.get(element, token) for element in elements]
        expression = _EXPRESSION.fullmatch(token)
        if expression is not None:
            return self._value(expression[1], expression[2])
        dtype = dtype_of(kind)
        if token.startswith("0xH") or token.startswith("0xR"):
            number: Any = np.array([int(token[3:], 16)], np.uint16).view(dtype)[0]
        elif token.startswith("0x"):
            number = np.array([int(token, 16)], np.uint64).view(np.float64)[0]
        elif token in _WORDS:
            number = _WORDS[token]
        elif token.startswith("@"):
            raise NotImplementedError(token)
        elif np.dtype(dtype).kind in "uib":
            number = int(token)
            if np.dtype(dtype).kind == "u":
                number %= 1 << (odd_width(kind) or 8 * np.dtype(dtype).itemsize)
        else:
            number = float(token)
        return np.full(self.threads, number, dtype)

    def operand(self, text: str) -> Any:
        return self.get(*typed(text))

    # Memory.

    def load(
        self, space: str, addresses: Array, dtype: Any, count: int, mask: Array, old: list[Array], align: int = 0
    ) -> list[Array]:
        """What lies there, and what was in the registers where the mask is not. `align` is that of the whole if 0."""
        size = np.dtype(dtype).itemsize
        chosen = np.flatnonzero(mask)
        where = addresses[chosen]
        self._aligned(where, size * count, align)
        if space == "shared":
            found = self.shared.load(where, self.numbers[chosen], size * count)
        else:
            found = np.empty((len(chosen), size * count), np.uint8)
            for number, rows, places in self._global(where, size * count):
                found[rows] = self.memory[number][places]
        result = [array.copy() for array in old]
        for index, array in enumerate(result):
            array[chosen] = np.ascontiguousarray(found[:, index * size : (index + 1) * size]).view(dtype)[:, 0]
        return result

    def store(self, space: str, addresses: Array, values: list[Array], mask: Array, align: int = 0) -> None:
        chosen = np.flatnonzero(mask)
        if not len(chosen):
            return
        parts = [np.ascontiguousarray(value[chosen]).view(np.uint8).reshape(len(chosen), -1) for value in values]
        given = np.concatenate(parts, axis=1)
        where = addresses[chosen]
        self._aligned(where, given.shape[1], align)
        if space == "shared":
            self.shared.store(where, self.numbers[chosen], given)
            return
        for number, rows, places in self._global(where, given.shape[1]):
            self.memory[number][places] = given[rows]

    def _aligned(self, addresses: Array, size: int, align: int) -> None:
        if (addresses % (align or size)).any():
            raise SimulationError(f"an access of {size} bytes is not aligned")

    def _global(self, addresses: Array, size: int) -> Any:
        for number in map(int, np.unique(addresses >> _SHIFT)):
            rows = np.flatnonzero(addresses >> _SHIFT == number)
            places = (addresses[rows] & ((1 << _SHIFT) - 1))[:, None] + np.arange(size)
            if not 1 <= number <= len(self.memory) or places.max() >= len(self.memory[number - 1]):
                raise SimulationError("an access outside of the arrays")
            yield number - 1, rows, places

    # Control.

    def run(self) -> None:
        """Run the threads of a role that are in the earliest block, until all have returned. Where paths part, they
        meet again in the first block that all come to."""
        labels = list(self.blocks)
        numbers = {label: number for number, label in enumerate(labels)}
        at, line = np.zeros(self.threads, np.int64), np.zeros(self.threads, np.int64)
        before = np.full(self.threads, -1)
        stuck, reason = np.zeros(self.threads, bool), ""  # Who cannot go on before others have, and why.
        while (at < len(labels)).any():
            able = (at < len(labels)) & ~stuck
            if not able.any():
                raise SimulationError(reason)
            able &= self.roles == self._turn(np.unique(self.roles[able]))
            current = int(at[able].min())
            able &= at == current
            first = int(line[able].min())
            self.active = able & (line == first)
            came: Array = np.unique(before[self.active])
            sources = [labels[int(number)] for number in came if number >= 0]
            try:
                following = self._block(labels[current], sources, before, first)
            except Blocked as blocked:
                line[self.active] = blocked.line
                stuck = blocked.threads | stuck if blocked.line == first else np.zeros(self.threads, bool)
                reason = str(blocked)
                continue
            stuck[:] = False
            before = np.where(self.active, current, before)
            at, line = np.where(self.active, following(numbers), at), np.where(self.active, 0, line)
        for end in ENDS:
            end(self)

    def _turn(self, roles: Array) -> int:
        """Which of these roles goes on: the first, the last, or any, by the seed."""
        return int(roles[0] if self.seed == 0 else roles[-1] if self.seed == 1 else self.random.choice(roles))

    def _block(self, label: str, sources: list[str], before: Array, first: int) -> Callable[[dict[str, int]], Array]:
        """Run a block from its line `first`. `sources` are the blocks that the active threads come from. Gives where
        each goes, by number."""
        names = list(self.blocks)
        arriving: dict[str, Any] = {}
        for number, line in enumerate(self.blocks[label][first:], first):
            if " = phi " in line:
                name, kind, ways = incoming(line)
                value: Any = None
                for source in sources:
                    found = self.get(kind, ways[source])
                    value = found if value is None else chosen(before == names.index(source), found, value)
                arriving[name] = value
                continue
            for name, value in arriving.items():
                self._set(name, value)
            arriving = {}
            if line.startswith(("br ", "switch ")):
                return self._following(line)
            if line == "ret void":
                return lambda numbers: np.array(len(numbers))
            if line == "unreachable":
                raise SimulationError("a thread comes to where it cannot")
            try:
                self._instruction(line)
            except Blocked as blocked:
                blocked.line = number
                raise
        raise AssertionError("a block without an end")

    def _following(self, line: str) -> Callable[[dict[str, int]], Array]:
        """Where each thread goes from a branch, by number."""
        ways = targets(line)
        if len(ways) == 1 and line.startswith("br "):
            return lambda numbers: np.array(numbers[ways[0]])
        condition, *_ = split(line.partition(" ")[2])
        if line.startswith("br "):
            taken = self.operand(condition)
            return lambda numbers: np.where(taken, numbers[ways[0]], numbers[ways[1]])
        value = self.operand(condition)
        cases = [self.operand(case) for case in re.findall(r"(i\d+ \S+), label", line.partition("[")[2])]
        conditions = [value == case for case in cases]
        return lambda numbers: np.select(conditions, [numbers[way] for way in ways[1:]], numbers[ways[0]])

    def _set(self, name: str, value: Any) -> None:
        """Give a name its value in the active threads."""
        old = self.values.get(name)
        self.values[name] = value if old is None or self.active.all() else chosen(self.active, value, old)

    def together(self, what: str) -> None:
        """Raise unless all threads of the role that is here are here."""
        if not np.array_equal(self.active, np.isin(self.roles, self.roles[self.active])):
            raise SimulationError(f"not all threads come to {what}")

    def warps(self) -> list[int]:
        """The first threads of the warps that are here."""
        return [32 * int(warp) for warp in np.flatnonzero(self.active.reshape(-1, 32).any(1))]

    def _barrier(self, count: int | None) -> None:
        """The active threads come to a barrier: of so many threads, or of all."""
        here = int(self.active.sum())
        wanted = self.threads if count is None else count
        if here > wanted or wanted % 32 or self.active.reshape(-1, 32).any(1).sum() * 32 != here:
            raise SimulationError(f"{here} threads come to a barrier for {wanted}")
        if here < wanted:
            raise Blocked(self.active, "not all threads come to a barrier")
        self.shared.barrier(self.active)

    def _instruction(self, line: str) -> None:
        name, opcode, rest, flags = instruction(line)
        made = self._value(opcode, rest)
        if flags and self.promises and opcode in BINARY and not isinstance(made, list):
            wrong = broken(opcode, flags, *self._two(rest), made)
            if wrong[self.active].any():
                raise SimulationError(f"an instruction says what does not hold: {line}")
        if name:
            self._set(name, made)

    def _value(self, opcode: str, rest: str) -> Any:
        """What an instruction gives, or an expression that is written like one."""
        if opcode in BINARY:
            made = binary(opcode, *self._two(rest))
            width = odd_width(rest.partition(" ")[0])
            return made & made.dtype.type((1 << width) - 1) if width else made
        method = getattr(self, f"_{opcode}", None)
        if method is not None:
            return method(rest)
        if " to " in rest:
            source, _, target = rest.rpartition(" to ")
            return cast_to(opcode, self.operand(source), typed(source)[0], target)
        raise NotImplementedError(f"{opcode} {rest}")

    def _two(self, rest: str) -> tuple[Any, Any]:
        """Two operands of one type, which is said once; in an expression, twice."""
        first, second = split(rest)
        kind, a = typed(first)
        return self.get(kind, a), self.get(kind, second.removeprefix(f"{kind} "))

    def _icmp(self, rest: str) -> Any:
        predicate, _, rest = rest.partition(" ")
        return compared("icmp", predicate, *self._two(rest))

    def _fcmp(self, rest: str) -> Any:
        predicate, _, rest = rest.partition(" ")
        return compared("fcmp", predicate, *self._two(rest))

    def _fneg(self, rest: str) -> Any:
        return over(np.negative, self.operand(rest))

    def _freeze(self, rest: str) -> Any:
        return self.operand(rest)

    def _select(self, rest: str) -> Any:
        condition, a, b = map(self.operand, split(rest))
        return chosen(condition, a, b)

    def _getelementptr(self, rest: str) -> Array:
        kind, pointer, *indices = split(rest)
        address = self.operand(pointer)
        for number, index in enumerate(indices):
            if number:
                elements = elements_of(kind)
                if elements is None or kind.startswith("{"):
                    raise NotImplementedError(f"getelementptr {rest}")
                kind = elements[0]
            address = address + signed(self.operand(index)).astype(np.int64) * size_of(kind)
        return address

    def _space(self, pointer: str) -> str:
        return "shared" if "addrspace(3)" in pointer else "global"

    def _load(self, rest: str) -> Any:
        kind, pointer, align = split(rest)
        elements = elements_of(kind)
        count, dtype = (len(elements), dtype_of(elements[0])) if elements else (1, dtype_of(kind))
        blank = [np.zeros(self.threads, dtype)] * count
        where = self.operand(pointer)
        found = self.load(self._space(pointer), where, dtype, count, self.active, blank, _alignment(align))
        return found if elements else found[0]

    def _store(self, rest: str) -> None:
        value, pointer, align = split(rest)
        given = self.operand(value)
        values = cast("list[Array]", given if isinstance(given, list) else [given])
        self.store(self._space(pointer), self.operand(pointer), values, self.active, _alignment(align))

    def _insertelement(self, rest: str) -> Any:
        vector, value, index = split(rest)
        made = list(self.operand(vector))
        made[_index(typed(index)[1])] = self.operand(value)
        return made

    def _extractelement(self, rest: str) -> Any:
        vector, index = split(rest)
        return self.operand(vector)[_index(typed(index)[1])]

    def _shufflevector(self, rest: str) -> Any:
        first, second, mask = split(rest)
        from_both = [*self.operand(first), *self.operand(second)]
        return [from_both[int(number[0])] for number in self.operand(mask)]

    def _extractvalue(self, rest: str) -> Any:
        vector, index = split(rest)
        return self.operand(vector)[_index(index)]

    def _insertvalue(self, rest: str) -> Any:
        return self._insertelement(rest.rpartition(", ")[0] + ", i32 " + rest.rpartition(", ")[2])

    # Functions and assembly.

    def _call(self, rest: str) -> Any:
        if " asm " in rest:
            return self._asm(rest)
        name, given = called(rest)
        short = name.removeprefix("llvm.").removeprefix("nvvm.")
        if short.startswith("read.ptx.sreg."):
            _, _, _, register, axis = short.split(".")
            if register == "tid":
                return self.numbers.astype(np.uint32)
            source = self.program if register == "ctaid" else self.grid
            return np.full(self.threads, source["xyz".index(axis)], np.uint32)
        function = function_named(name)
        if function is None and not short.startswith(("shfl.sync.", "assume")):
            raise NotImplementedError(f"call {rest}")
        arguments = [self.operand(argument) for argument in given]
        if function is not None:
            return function(*arguments)
        if short == "assume":
            assert arguments[0][self.active].all()
            return None
        return self._shuffle(short.split(".")[2], arguments[1], arguments[2].astype(np.int64))

    def _shuffle(self, how: str, word: Array, by: Array) -> Array:
        self.together("a shuffle")
        lane, warp = self.numbers % 32, self.numbers & ~31
        source = {"bfly": lane ^ by, "idx": by & 31, "up": lane - by, "down": lane + by}[how]
        source = np.where((source < 0) | (source > 31), lane, source)
        return word[warp + source]

    def _asm(self, rest: str) -> Any:
        match = re.match(r'.*? asm (?:sideeffect )?"(.*?)", "(.*?)"\((.*)\)', rest)
        assert match is not None, rest
        outputs = sum(part.startswith("=") for part in match[2].split(","))
        operands: list[Any] = [None] * outputs + [self.operand(argument) for argument in split(match[3])]
        result = typed(rest.partition(" asm ")[0])[0]
        kinds = list(elements_of(result) or (result,))
        unit = next((unit for word, unit in UNITS.items() if word in match[1]), None)
        if unit is not None:
            made = unit(self, match[1].replace("\\0A", " "), operands)
            return made[0] if len(made) == 1 else made
        for statement in match[1].replace("\\0A", " ").split(";"):
            if statement.strip():
                self._statement(statement.strip(), operands, kinds)
        return None if not outputs else operands[0] if outputs == 1 else operands[:outputs]

    def _statement(self, text: str, operands: list[Any], kinds: list[str]) -> None:
        mask = self.active
        if text.startswith("@"):
            guard, _, text = text.partition(" ")
            mask = mask & operands[int(guard[2:])]
        opcode, _, rest = text.partition(" ")
        numbers = [int(number) for number in re.findall(r"\$(\d+)", rest)]
        part = opcode.split(".")
        space = "shared" if "shared" in part else "global"
        offset = re.search(r"\$\d+ \+ (\d+) \]", rest)
        shift = int(offset[1]) if offset else 0
        if part[0] == "bar":
            match = re.fullmatch(r"bar\.sync (\d+)(?:, (\d+))?", text)
            assert match is not None, text
            self._barrier(int(match[2]) if match[2] else None)
        elif text.endswith(", %globaltimer"):
            operands[numbers[0]] = np.full(self.threads, time.monotonic_ns(), np.uint64)
        elif part[0] == "mov" and len(numbers) == 2:
            operands[numbers[0]] = operands[numbers[1]]
        elif part[0] == "div":
            operands[numbers[0]] = operands[numbers[1]] / operands[numbers[2]]
        elif part[0] in _APPROXIMATE:
            operands[numbers[0]] = _APPROXIMATE[part[0]](operands[numbers[1]])
        elif part[0] == "ld":
            *targets, pointer = numbers
            dtype = dtype_of(kinds[0])
            old = [np.zeros(self.threads, dtype) if operands[t] is None else operands[t] for t in targets]
            size = np.dtype(dtype).itemsize
            if part[-1] == "b8":  # A byte in a register of 16 bits.
                (byte,) = self.load(space, operands[pointer] + shift, np.uint8, 1, mask, [old[0].astype(np.uint8)])
                operands[targets[0]] = byte.astype(dtype)
                return
            assert part[-1] == f"b{8 * size}", text
            found = self.load(space, operands[pointer] + shift, dtype, len(targets), mask, old)
            for target, value in zip(targets, found, strict=True):
                operands[target] = value
        elif part[0] == "st":
            pointer, *sources = numbers
            values = [operands[source] for source in sources]
            if part[-1] == "b8":
                values = [value.astype(np.uint8) for value in values]
            self.store(space, operands[pointer].astype(np.int64) + shift, values, mask)
        elif opcode == "red.shared.add.u32":
            self.shared.add(operands[numbers[0]].astype(np.int64)[mask], self.numbers[mask], 1)
        else:
            raise NotImplementedError(text)


def _alignment(text: str) -> int:
    """What an access says its address is aligned to."""
    match = re.fullmatch(r"align (\d+)", text)
    if match is None:
        raise NotImplementedError(f"an access {text}")
    return int(match[1])


def _index(text: str) -> int:
    if not text.isdigit():
        raise NotImplementedError(f"an element by the index {text}")
    return int(text)
