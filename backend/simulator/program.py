"""One program of the simulation: the values of its threads, its memory, and the instructions that need no unit."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import numpy as np

from ziggurat.backend.simulator.memory import SHIFT, Memory
from ziggurat.backend.simulator.places import Places, unquoted
from ziggurat.backend.simulator.shared import Array, Shared, SimulationError
from ziggurat.backend.simulator.text import (
    Function,
    Module,
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
from ziggurat.codemodel.errors import KernelRuntimeError
from ziggurat.codemodel.location import Location

_T = TypeVar("_T")
_LOCAL = 1 << 61  # Addresses from here on are in the local memory of threads.
# The limit of blocks of instructions in a program. A loop that waits for another program exceeds it.
MAX_STEPS = 1_000_000
# A constant expression, as `ptrtoint (ptr addrspace(3) @smem to i32)`.
_EXPRESSION = re.compile(r"([a-z]+) (?:(?:inbounds|nuw|nsw|nusw|disjoint|exact) )*\((.*)\)", re.DOTALL)

# Functions for assembly that contains a word, from the program, the text and the operands to the results.
UNITS: dict[str, Callable[[Any, str, list[Any]], list[Array]]] = {}
# Checks of a program whose threads have all returned.
ENDS: list[Callable[[Any], None]] = []

_WORDS = {"true": 1, "false": 0, "null": 0, "poison": 0, "undef": 0, "zeroinitializer": 0}


class Blocked(Exception):
    """Some threads cannot continue before others have arrived."""

    def __init__(self, threads: Array, reason: str) -> None:
        super().__init__(reason)
        self.threads = threads
        self.line = 0  # The line in the block and the place are filled in where they are known.
        self.location: Location | None = None

    def deadlock(self) -> SimulationError:
        """The error for threads that wait forever."""
        return SimulationError(str(self), self.location)


def _data(kind: str, value: str) -> Array:
    """The bytes of a variable's initial value."""
    elements = elements_of(kind) or (kind,)
    if value.startswith('c"'):
        return np.frombuffer(unquoted(value[2:-1]), np.uint8)
    numbers = [int(typed(part)[1]) for part in split(value[1:-1])] if value.startswith("[") else [0] * len(elements)
    dtype = np.dtype(dtype_of(elements[0]))
    return np.array([number % (1 << 8 * dtype.itemsize) for number in numbers], np.uint64).astype(dtype)


_APPROXIMATE: dict[str, Callable[[Array], Array]] = {
    "ex2": np.exp2, "lg2": np.log2, "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "rcp": np.reciprocal,
    "sqrt": np.sqrt, "rsqrt": lambda a: np.reciprocal(np.sqrt(a)),
}  # fmt: skip


class Frame:
    """A call of a function: its values by name."""

    def __init__(self, function: Function, values: dict[str, Any]) -> None:
        self.function = function
        self.labels = list(function.blocks)
        self.numbers = {label: number for number, label in enumerate(self.labels)}
        self.values = values
        self.result: Any = None


class Program:
    """One program: the values of its threads, its memory, and its units."""

    def __init__(self, module: Module, threads: int, shared: int, memory: Memory, seed: int = 0) -> None:
        self.module = module
        self.memory = memory
        self.promises = True  # Whether the flags of instructions have to hold.
        self.seed = seed
        self.maps: dict[int, Any] = {}  # Tensor maps by address.
        self.threads = threads
        self.random = np.random.default_rng(seed)
        self.roles = np.zeros(threads, np.int64)  # The number of each thread's role; 0 before warps specialise.
        self.registers: Array | None = None  # Registers of each thread, if the launch limits them.
        self.pool = 0  # The registers of the CTA.
        self.numbers = np.arange(threads)
        self.active = np.ones(threads, bool)
        self.program: tuple[int, ...] = (0, 0, 0)
        self.grid: tuple[int, ...] = (1, 1, 1)
        self.frame = Frame(module.kernel, {})
        self.places = Places(module.metadata)
        self.local = np.zeros((threads, 0), np.uint8)
        self.steps = 0
        self._units: dict[type, Any] = {}
        self._symbols = self._variables(shared)
        self.shared = Shared(self._shared, 0, threads)

    def _variables(self, shared: int) -> dict[str, int]:
        """The addresses of the module's variables. Those in shared memory follow that of the launch."""
        symbols, self._shared = {"@smem": 0}, -(-shared // 16) * 16
        for name, (space, kind, value) in self.module.variables.items():
            if f"@{name}" in symbols:
                continue
            if space == 3:
                symbols[f"@{name}"] = self._shared
                self._shared += -(-size_of(kind) // 16) * 16
            else:
                symbols[f"@{name}"] = self.memory.constant(name, lambda kind=kind, value=value: _data(kind, value))
        return symbols

    def unit(self, kind: type[_T]) -> _T:
        """The state of a unit in this program, made at the first request."""
        if kind not in self._units:
            self._units[kind] = kind(self)  # pyright: ignore[reportCallIssue]
        return self._units[kind]

    # Values.

    def get(self, kind: str, token: str) -> Any:
        """An operand: one array, or a list of arrays for a vector or a struct."""
        if token.startswith("%"):
            return self.frame.values[token]
        elements = elements_of(kind)
        if elements is not None:
            if token.startswith("splat ("):
                return [self.operand(token[len("splat (") : -1])] * len(elements)
            if token.startswith('c"'):
                return list(np.frombuffer(unquoted(token[2:-1]), np.uint8))
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
            number = self._symbols.get(token.replace('"', ""))
            if number is None:
                raise NotImplementedError(token)
        elif dtype is object:
            number = int(token) % (1 << 128)
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
        """Load vectors where the mask holds; `old` elsewhere. An `align` of 0 is the size of the vector."""
        size = np.dtype(dtype).itemsize
        chosen = np.flatnonzero(mask)
        where = addresses[chosen]
        self._aligned(where, self.numbers[chosen], "reads", size * count, align)
        if space == "shared":
            found = self.shared.load(where, self.numbers[chosen], size * count)
        elif len(chosen) and where.min() >= _LOCAL:
            found = self.local[self.numbers[chosen][:, None], (where - _LOCAL)[:, None] + np.arange(size * count)]
        else:
            found = self.memory.load(where, size * count, self.numbers[chosen])
        result = [array.copy() for array in old]
        for index, array in enumerate(result):
            array[chosen] = np.ascontiguousarray(found[:, index * size : (index + 1) * size]).view(dtype)[:, 0]
        return result

    def store(self, space: str, addresses: Array, values: list[Array], mask: Array, align: int = 0) -> None:
        """Write the values of vectors where the mask holds."""
        chosen = np.flatnonzero(mask)
        if not len(chosen):
            return
        parts = [np.ascontiguousarray(value[chosen]).view(np.uint8).reshape(len(chosen), -1) for value in values]
        given = np.concatenate(parts, axis=1)
        where, threads = addresses[chosen], self.numbers[chosen]
        self._aligned(where, threads, "writes", given.shape[1], align)
        if space == "shared":
            self.shared.store(where, threads, given)
        elif where.min() >= _LOCAL:
            self.local[threads[:, None], (where - _LOCAL)[:, None] + np.arange(given.shape[1])] = given
        else:
            self.memory.store(where, given, threads)

    def _aligned(self, addresses: Array, threads: Array, verb: str, size: int, align: int) -> None:
        wrong = addresses % (align or size) != 0
        if wrong.any():
            at = int(addresses[wrong][0]) & ((1 << SHIFT) - 1)
            raise SimulationError(
                f"an access must be aligned to {align or size} bytes; "
                f"thread {threads[wrong][0]} {verb} {size} bytes at {at:#x}"
            )

    # Control.

    def run(self) -> None:
        """Run the kernel in all threads."""
        self.memory.start()
        self._run(self.active.copy())
        for end in ENDS:
            end(self)

    def _run(self, within: Array) -> None:
        """Run the function of the frame in some threads until all have returned.

        The threads of one role that are in the earliest block run first, so that paths that diverge meet again in the
        first block that all reach."""
        labels = self.frame.labels
        at = np.where(within, 0, len(labels))
        line = np.zeros(self.threads, np.int64)
        before = np.full(self.threads, -1)
        stuck, blocked = np.zeros(self.threads, bool), Blocked(within, "")  # Threads that wait, and the last reason.
        while (at < len(labels)).any():
            able = (at < len(labels)) & ~stuck
            if not able.any():
                raise blocked.deadlock()
            able &= self.roles == self._next_role(np.unique(self.roles[able]))
            current = int(at[able].min())
            able &= at == current
            first = int(line[able].min())
            self.active = able & (line == first)
            came: Array = np.unique(before[self.active])
            sources = [labels[int(number)] for number in came if number >= 0]
            try:
                following = self._block(labels[current], sources, before, first)
            except Blocked as found:
                blocked = found
                line[self.active] = blocked.line
                stuck = blocked.threads | stuck if blocked.line == first else np.zeros(self.threads, bool)
                continue
            stuck[:] = False
            before = np.where(self.active, current, before)
            at, line = np.where(self.active, following, at), np.where(self.active, 0, line)

    def _invoke(self, function: Function, arguments: list[Any]) -> Any:
        """Call a routine of the module in the active threads."""
        outer, active = self.frame, self.active
        names = [name for _, name in function.parameters]
        self.frame = inner = Frame(function, dict(zip(names, arguments, strict=True)))
        try:
            self._run(active)
        finally:
            self.frame, self.active = outer, active
        return inner.result

    def _next_role(self, roles: Array) -> int:
        """The role that runs next: the first with seed 0, the last with 1, and a random one with others."""
        return int(roles[0] if self.seed == 0 else roles[-1] if self.seed == 1 else self.random.choice(roles))

    def _block(self, label: str, sources: list[str], before: Array, first: int) -> Array | int:
        """Run a block from its line `first`; the number of the next block of each active thread.

        `sources` are the blocks that the threads come from."""
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise SimulationError(
                f"loop limit exceeded: a program ran {MAX_STEPS} blocks of instructions without an end"
            )
        frame = self.frame
        arriving: dict[str, Any] = {}
        for number, line in enumerate(frame.function.blocks[label][first:], first):
            if " = phi " in line:
                name, kind, ways = incoming(line)
                value: Any = None
                for source in sources:
                    found = self.get(kind, ways[source])
                    value = found if value is None else chosen(before == frame.numbers[source], found, value)
                arriving[name] = value
                continue
            for name, value in arriving.items():
                self._set(name, value)
            arriving = {}
            with self._located(label, number):
                if line.startswith(("br ", "switch ")):
                    return self._following(line)
                if line.startswith("ret "):
                    if line != "ret void":
                        made, old = self.operand(line[len("ret ") :]), frame.result
                        frame.result = made if old is None else chosen(self.active, made, old)
                    return len(frame.labels)
                if line == "unreachable":
                    raise SimulationError("a thread must not come to a place that the kernel says is unreachable")
                self._instruction(line)
        raise AssertionError("a block without an end")

    @contextmanager
    def _located(self, label: str, number: int) -> Generator[None]:
        """Add the place of a line and the program to errors without a place."""
        try:
            yield
        except (KernelRuntimeError, Blocked) as error:
            if isinstance(error, KernelRuntimeError) and error.location is None and self.grid != (1, 1, 1):
                error.summary += f"; in program {self.program}"
            error.location = error.location or self.places.of(self.frame.function.places[label][number])
            if isinstance(error, Blocked):
                error.line = number
            raise

    def _following(self, line: str) -> Array | int:
        """The number of the next block of each thread, from a branch."""
        numbers = [self.frame.numbers[label] for label in targets(line)]
        if len(numbers) == 1 and line.startswith("br "):
            return numbers[0]
        condition, *_ = split(line.partition(" ")[2])
        value = self.operand(condition)
        if line.startswith("br "):
            return np.where(value, numbers[0], numbers[1])
        cases = [self.operand(case) for case in re.findall(r"(i\d+ \S+), label", line.partition("[")[2])]
        return np.select([value == case for case in cases], numbers[1:], numbers[0])

    def _set(self, name: str, value: Any) -> None:
        """Bind a name in the active threads."""
        old = self.frame.values.get(name)
        self.frame.values[name] = value if old is None or self.active.all() else chosen(self.active, value, old)

    def together(self, what: str) -> None:
        """Raise `SimulationError` unless all threads of the current role are active."""
        if not np.array_equal(self.active, np.isin(self.roles, self.roles[self.active])):
            here = int(self.active.sum())
            raise SimulationError(f"all threads must come to {what} together; {here} of {self.threads} do")

    def warps(self) -> list[int]:
        """The first threads of the active warps."""
        return [32 * int(warp) for warp in np.flatnonzero(self.active.reshape(-1, 32).any(1))]

    def _barrier(self, count: int | None) -> None:
        """Run a barrier of `count` threads, or of all."""
        here = int(self.active.sum())
        wanted = self.threads if count is None else count
        if here > wanted or wanted % 32 or self.active.reshape(-1, 32).any(1).sum() * 32 != here:
            raise SimulationError(f"{wanted} threads must come to a barrier together; {here} do")
        if here < wanted:
            raise Blocked(self.active, f"deadlock: a barrier is for {wanted} threads, and {here} come to it")
        self.shared.barrier(self.active)
        self.memory.barrier(self.active)

    def _instruction(self, line: str) -> None:
        name, opcode, rest, flags = instruction(line)
        made = self._value(opcode, rest)
        if flags and self.promises and opcode in BINARY and not isinstance(made, list):
            wrong = broken(opcode, flags, *self._two(rest), made)
            if wrong[self.active].any():
                raise SimulationError(f"an instruction promises what must hold, and does not: {line}")
        if name:
            self._set(name, made)

    def _value(self, opcode: str, rest: str) -> Any:
        """The result of an instruction or of a constant expression."""
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
        """Two operands of one type, which an instruction names once and an expression twice."""
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
        kind, pointer, *align = split(rest)
        elements = elements_of(kind)
        count, dtype = (len(elements), dtype_of(elements[0])) if elements else (1, dtype_of(kind))
        blank = [np.zeros(self.threads, dtype)] * count
        where = self.operand(pointer)
        found = self.load(self._space(pointer), where, dtype, count, self.active, blank, _alignment(align))
        return found if elements else found[0]

    def _store(self, rest: str) -> None:
        value, pointer, *align = split(rest)
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
            return self._special(short.removeprefix("read.ptx.sreg."))
        function = function_named(name)
        method = _CALLS.get(short.rpartition(".")[0] if short.startswith("shfl.") else short)
        if function is None and method is None and name not in self.module.functions:
            raise NotImplementedError(f"call {rest}")
        arguments = [self.operand(argument) for argument in given]
        if function is not None:
            return function(*arguments)
        return method(self, short, *arguments) if method else self._invoke(self.module.functions[name], arguments)

    def _special(self, register: str) -> Array:
        """A special register, as "tid.x"."""
        if register == "smid":
            return np.zeros(self.threads, np.uint32)
        name, _, axis = register.partition(".")
        if name == "tid":
            return self.numbers.astype(np.uint32)
        source = {"ctaid": self.program, "nctaid": self.grid}[name]
        return np.full(self.threads, source["xyz".index(axis)], np.uint32)

    def _assume(self, _: str, condition: Array) -> None:
        if not condition[self.active].all():
            raise SimulationError("a condition that the kernel assumes must hold")

    def _alloca(self, rest: str) -> Array:
        """The address of local memory, the same for all threads."""
        kind, *_ = split(rest)
        start = -(-self.local.shape[1] // 16) * 16
        self.local = np.pad(self.local, ((0, 0), (0, start + size_of(kind) - self.local.shape[1])))
        return np.full(self.threads, _LOCAL + start, np.int64)

    def _text(self, address: int) -> str:
        """A string that ends with a zero."""
        region = self.memory.region(address)
        raw = region.bytes[address - region.base :].tobytes()
        return raw.partition(b"\0")[0].decode(errors="replace")

    def _printed(self, _: str, form: Array, buffer: Array) -> Array:
        """Run CUDA's vprintf: the threads print one after the other."""
        for thread in np.flatnonzero(self.active):
            at = int(buffer[thread]) - _LOCAL
            parts: list[str] = []
            for text, conversion in re.findall(r"([^%]*)(%(?:%|[.\d]*(?:ll)?[a-z])|$)", self._text(int(form[thread]))):
                parts.append(text)
                if conversion in ("", "%%"):
                    parts.append(conversion[:1])
                    continue
                size = 8 if "ll" in conversion or conversion[-1] in "gs" else 4
                at = -(-at // size) * size
                dtype = {"g": np.float64, "d": f"i{size}"}.get(conversion[-1], f"u{size}")
                number: Any = self.local[thread, at : at + size].view(dtype)[0].item()
                at += size
                given = self._text(number) if conversion[-1] == "s" else number
                parts.append(conversion.replace("ll", "").replace("u", "d") % given)
            print("".join(parts), end="")
        return np.zeros(self.threads, np.uint32)

    def _failed(self, _: str, message: Array, *where: Array) -> None:
        thread = int(np.flatnonzero(self.active)[0])
        raise KernelRuntimeError(f"assertion failed: {self._text(int(message[thread]))}")

    def _shuffle(self, name: str, _mask: Array, word: Array, by: Array, _clamp: Array) -> Array:
        self.together("a shuffle")
        how, by = name.split(".")[2], by.astype(np.int64)
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
        text = unquoted(match[1]).decode().replace("\n", " ")
        unit = next((unit for word, unit in UNITS.items() if word in text), None)
        if unit is not None:
            made = unit(self, text, operands)
            return made[0] if len(made) == 1 else made
        for statement in text.split(";"):
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


def _alignment(parts: Sequence[str]) -> int:
    """The alignment that an access promises; 0 for that of its type."""
    if not parts:
        return 0
    match = re.fullmatch(r"align (\d+)", parts[0])
    if match is None:
        raise NotImplementedError(f"an access {parts[0]}")
    return int(match[1])


def _index(text: str) -> int:
    if not text.isdigit():
        raise NotImplementedError(f"an element by the index {text}")
    return int(text)


# Functions with effects or of the whole program, by name without "llvm." and "nvvm.".
_CALLS: dict[str, Callable[..., Any]] = {
    **{f"shfl.sync.{how}": Program._shuffle for how in ("bfly", "idx", "up", "down")},  # pyright: ignore[reportPrivateUsage]
    "assume": Program._assume,  # pyright: ignore[reportPrivateUsage]
    "vprintf": Program._printed,  # pyright: ignore[reportPrivateUsage]
    "__assertfail": Program._failed,  # pyright: ignore[reportPrivateUsage]
}
