"""One program of the simulation: the values of its threads, its memory, and LLVM's instructions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import lru_cache, partial
from typing import Any, TypeVar, cast

import numpy as np

from ziggurat.backend.launch.races import READ
from ziggurat.backend.simulator import text, values
from ziggurat.backend.simulator.host_calls import HOST_CALLS
from ziggurat.backend.simulator.shared import Array, Shared, SimulationError
from ziggurat.backend.simulator.simulated_memory import SHIFT, USED, SimulatedMemory
from ziggurat.codemodel.errors import KernelRuntimeError, ZigguratError
from ziggurat.codemodel.location import Location

_T = TypeVar("_T")
# A constant expression, as `ptrtoint (ptr addrspace(3) @smem to i32)`.
_EXPRESSION = re.compile(r"([a-z]+) (?:(?:inbounds|nuw|nsw|nusw|disjoint|exact) )*\((.*)\)", re.DOTALL)

_NONE = frozenset[int]()
_REDUX: dict[str, np.ufunc] = {
    "add": np.add, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "min": np.minimum,
    "max": np.maximum,
}  # fmt: skip

Unit = Callable[[Any, re.Match[str], list[Any]], None]
_UNITS: list[tuple[re.Pattern[str], Unit]] = []


def unit(pattern: str) -> Callable[[Unit], Unit]:
    """Register the function of an instruction in assembly, or of a whole piece of it, whose text matches.

    It gets the program, the match, and the operands; it replaces those of the results, which come first.
    """

    def register(function: Unit) -> Unit:
        _UNITS.append((re.compile(pattern), function))
        return function

    return register


@lru_cache(maxsize=1 << 12)
def _unit_for(assembly: str) -> tuple[Unit, re.Match[str]] | None:
    return next(((function, match) for pattern, function in _UNITS if (match := pattern.fullmatch(assembly))), None)


@lru_cache(maxsize=1 << 12)
def _assembly(rest: str) -> tuple[tuple[str, ...], list[str], list[str]]:
    """The types of the results of a call of assembly, its operands, and its statements."""
    match = re.match(r'.*? asm (?:sideeffect )?"(.*?)", "(.*?)"\((.*)\)', rest)
    assert match is not None, rest
    result = text.typed(rest.partition(" asm ")[0])[0]
    kinds = () if result == "void" else text.elements_of(result) or (result,)
    assembly = text.unquoted(match[1]).decode().replace("\n", " ").strip().removesuffix(";")
    statements = [assembly] if _unit_for(assembly) else [*filter(None, map(str.strip, assembly.split(";")))]
    return kinds, text.split(match[3]), statements


_WORDS = {"true": 1, "false": 0, "null": 0, "poison": 0, "undef": 0, "zeroinitializer": 0}


TURN = "other devices have a turn"


class Blocked(SimulationError):
    """Some threads cannot continue before others have arrived."""

    def __init__(self, threads: Array, reason: str) -> None:
        super().__init__(reason)
        self.threads = threads
        self.line = 0  # The line in the block, filled in where it is known.


class CallFrame:
    """A call of a function: its values by name."""

    def __init__(self, function: text.TextFunction, arguments: dict[str, Any]) -> None:
        self.function = function
        self.labels = list(function.blocks)
        self.numbers = {label: number for number, label in enumerate(self.labels)}
        self.values = arguments
        self.loads: dict[str, frozenset[int]] = {}  # The loads that each value depends on, by number.
        self.result: Any = None


class Program:
    """One program: the values of its threads, its memory, and its units."""

    def __init__(
        self, module: text.TextModule, threads: int, shared: int, memory: SimulatedMemory, seed: int, max_steps: int
    ) -> None:
        self.module = module
        self.memory = memory
        self.promises = True  # Whether the flags of instructions have to hold.
        self.seed = seed
        self.max_steps = max_steps
        self.maps: dict[int, Any] = {}  # Tensor maps by address.
        self.threads = threads
        self.random = np.random.default_rng(seed)
        self.roles = np.zeros(threads, np.int64)  # The number of each thread's role; 0 before warps specialise.
        self.pool = threads * module.numbers.get("nvvm.maxnreg", 0)  # The registers of the CTA; 0 without a limit.
        self.registers = np.full(threads, self.pool // threads)  # Those of each thread.
        self.numbers = np.arange(threads)
        self.active = self.mask = np.ones(threads, bool)  # The threads of a block, and those under a predicate.
        self.program: tuple[int, ...] = (0, 0, 0)
        self.grid: tuple[int, ...] = (1, 1, 1)
        self.cluster: Any = None  # The cluster that this CTA belongs to, and its rank there.
        self.rank = 0
        self.frame = CallFrame(module.kernel, {})
        self.places = text.TextPlaces(module.metadata)
        self.steps = 0
        self.requests = 0  # Counts copies and requests for the state of a unit, which may change it.
        self.loads: frozenset[int] = _NONE  # The loads that the current instruction depends on.
        # The groups of cp.async copies in flight, oldest first; the last is not committed. A copy has places in shared
        # memory, the threads that write there, and the bytes.
        self.copies: list[list[tuple[Array, Array, Array]]] = [[]]
        self.at_end: list[Callable[[], None]] = []
        self.results = 0  # The number of results of the current assembly.
        self._numbers: dict[str, int] = {}  # The number of each load instruction.
        self._constants: dict[tuple[str, str], Any] = {}  # Operands by type and spelling.
        self._line = ""
        self._units: dict[type, Any] = {}
        self._symbols = self._variables(shared)
        self.shared = Shared(self._shared, 0, threads)
        self.shared.roles = self.roles

    def _variables(self, shared: int) -> dict[str, int]:
        """The addresses of the module's variables. Those in shared memory follow that of the launch."""
        symbols, self._shared = {"@smem": 0}, -(-shared // 16) * 16
        for name, (space, kind, value) in self.module.variables.items():
            if f"@{name}" in symbols:
                continue
            if space == 3:
                symbols[f"@{name}"] = self._shared
                self._shared += -(-text.size_of(kind) // 16) * 16
            else:
                symbols[f"@{name}"] = self.memory.variable(
                    name, f"the constant '{name}'", partial(self._data, kind, value)
                )
        return symbols

    def _data(self, kind: str, value: str) -> Array:
        """The elements of a variable's initial value."""
        elements = self.get(kind, value) if text.elements_of(kind) else [self.get(kind, value)]
        return np.array([np.ravel(element)[0] for element in elements])

    @property
    def active(self) -> Array:
        """A mask of the threads that run the current instruction; `everyone` says whether these are all."""
        return self._active

    @active.setter
    def active(self, threads: Array) -> None:
        self._active, self.everyone = threads, bool(threads.all())

    def unit(self, kind: type[_T]) -> _T:
        """The state of a unit in this program, made at the first request."""
        self.requests += 1
        if kind not in self._units:
            self._units[kind] = kind(self)  # pyright: ignore[reportCallIssue]
        return self._units[kind]

    # Values.

    def get(self, kind: str, token: str) -> Any:
        """An operand: one array, or a list of arrays for a vector or a struct. Arrays of constants are read-only."""
        if token.startswith("%"):
            return self.frame.values[token]
        if "%" in token:  # A vector of values.
            return self._literal(kind, token)
        constant = self._constants.get((kind, token))
        if constant is None:
            constant = self._constants[kind, token] = self._literal(kind, token)
        return constant

    def _literal(self, kind: str, token: str) -> Any:
        """The value of an operand that is spelled out."""
        elements = text.elements_of(kind)
        if elements is not None:
            if token.startswith("splat ("):
                return [self.operand(token[len("splat (") : -1])] * len(elements)
            if token.startswith('c"'):
                return list(np.frombuffer(text.unquoted(token[2:-1]), np.uint8))
            if token[0] in "<{[":
                return [self.operand(part) for part in text.split(token[1:-1])]
            if token in ("poison", "undef", "zeroinitializer"):
                return [self.get(element, token) for element in elements]
        expression = _EXPRESSION.fullmatch(token)
        if expression is not None:
            return self._value(expression[1], expression[2])
        dtype = text.dtype_of(kind)
        if token.startswith("0xH") or token.startswith("0xR"):
            number: Any = np.array([int(token[3:], 16)], np.uint16).view(dtype)[0]
        elif token.startswith("0x"):
            number = np.array([int(token, 16)], np.uint64).view(np.float64)[0]
        elif token in _WORDS:
            number = _WORDS[token]
        elif token.startswith("@"):
            number = self._symbols.get(token.replace('"', ""))
            if number is None:
                raise text.unknown(token)
        elif kind.startswith("i"):
            number = int(token) % (1 << int(kind[1:]))
        else:
            number = float(token)
        result = np.full(self.threads, number, dtype)
        result.flags.writeable = False
        return result

    def operand(self, spelling: str) -> Any:
        return self.get(*text.typed(spelling))

    # Memory.

    def load(
        self, space: str, addresses: Array, dtype: Any, mask: Array, old: Sequence[Array], align: int = 0,
        kind: int = READ,
    ) -> list[Array]:  # fmt: skip
        """Load vectors where the mask holds; `old` elsewhere. An `align` of 0 is the size of the vector."""
        size = np.dtype(dtype).itemsize
        width = size * len(old)
        threads = np.flatnonzero(mask)
        where = addresses[threads]
        self._aligned(where, threads, "reads", width, align)
        if space == "shared":
            data = self.shared.load(where, threads, width)
        else:
            data = self.memory.load(where, width, threads, self._load_number(), kind)
        result = [array.copy() for array in old]
        for index, array in enumerate(result):
            array[threads] = np.ascontiguousarray(data[:, index * size : (index + 1) * size]).view(dtype)[:, 0]
        return result

    def _load_number(self) -> int:
        """The number of the current instruction, a load; a further one if another warp has overwritten the bytes."""
        number = self._numbers.get(self._line, USED)
        if number == USED or self.memory.stale[number]:
            number = self._numbers[self._line] = self.memory.new_load()
        self.loads |= {number}
        return number

    def use(self, mask: Array) -> None:
        """Note that the instruction has an effect in these threads, which depends on its operands."""
        if self.loads:
            self.memory.use(self.loads, np.flatnonzero(mask))

    def store(self, space: str, addresses: Array, last_state: Sequence[Array], mask: Array, align: int = 0) -> None:
        """Write the values of vectors where the mask holds."""
        threads = np.flatnonzero(mask)
        if not len(threads):
            return
        self.use(mask)
        parts = [np.ascontiguousarray(value[threads]).view(np.uint8).reshape(len(threads), -1) for value in last_state]
        data = np.concatenate(parts, axis=1)
        where = addresses[threads]
        self._aligned(where, threads, "writes", data.shape[1], align)
        if space == "shared":
            self.shared.store(where, threads, data)
        else:
            self.memory.store(where, data, threads)

    def _aligned(self, addresses: Array, threads: Array, verb: str, size: int, align: int) -> None:
        wrong = addresses % (align or size) != 0
        if wrong.any():
            at = int(addresses[wrong][0]) & ((1 << SHIFT - 1) - 1)
            raise SimulationError(
                f"an access must be aligned to {align or size} bytes; "
                f"thread {threads[wrong][0]} {verb} {size} bytes at {at:#x}"
            )

    # Control.

    def run(self) -> Iterator[Blocked]:
        """Run the kernel in all threads. Gives the reason wherever all of them wait for another CTA of the cluster."""
        self.memory.start()
        yield from self._run(self.active.copy())
        for end in self.at_end:
            end()

    def _run(self, within: Array) -> Iterator[Blocked]:
        """Run the function of the frame in some threads until all have returned, as `run` does.

        The threads of one role that are in the earliest block run first, so that paths that diverge meet again in the
        first block that all reach."""
        labels = self.frame.labels
        at = np.where(within, 0, len(labels))
        line = np.zeros(self.threads, np.int64)
        before = np.full(self.threads, -1)
        stuck, blocked = np.zeros(self.threads, bool), Blocked(within, "")  # Threads that wait, and the last reason.
        rounds, last_state = 0, None
        while (at < len(labels)).any():
            able = (at < len(labels)) & ~stuck
            if not able.any():
                yield blocked
                stuck[:] = False
                continue
            able &= self.roles == self._next_role(values.distinct(self.roles[able]))
            current = int(at[able].min())
            able &= at == current
            first = int(line[able].min())
            self.active = able & (line == first)
            came: Array = values.distinct(before[self.active])
            sources = [labels[int(number)] for number in came if number >= 0]
            try:
                following = self._block(labels[current], sources, before, first)
            except Blocked as error:
                blocked = error
                line[self.active] = blocked.line
                stuck = blocked.threads | stuck if blocked.line == first else np.zeros(self.threads, bool)
                continue
            stuck[:] = False
            before = np.where(self.active, current, before)
            at, line = np.where(self.active, following, at), np.where(self.active, 0, line)
            # A state that comes again is a loop without an end (Brent 1980): compare with the state 2^n rounds ago.
            memory = [self.memory.changes, self.shared.bytes]
            state = [current, self.requests, at, line, before, self.frame.values, *memory]
            # A routine of the module has no turns.
            if (is_outside := self.frame.function is self.module.kernel) and self.memory.takes_turns():
                yield Blocked(within, TURN)
            if last_state is not None and not self.roles.any() and _same(last_state, state):
                if is_outside and self.memory.waits():
                    yield Blocked(within, TURN)
                    last_state = None
                    continue
                raise SimulationError(
                    "loop limit exceeded: a loop waits for a change of memory that nothing makes",
                    self._place(labels[current], -1),
                    hint="programs run one after the other, so none can wait for a later one; steps must not be zero",
                )
            rounds += 1
            if rounds & rounds - 1 == 0:
                last_state = list(map(copy, state))

    def _invoke(self, function: text.TextFunction, *arguments: Any) -> Any:
        """Call a routine of the module in the active threads."""
        outer, active = self.frame, self.active
        names = [name for _, name in function.parameters]
        self.frame = inner = CallFrame(function, dict(zip(names, arguments, strict=True)))
        inner.loads = dict.fromkeys([*names, ""], self.loads)  # The name of the result is empty.
        try:
            for blocked in self._run(active):
                raise SimulationError(blocked.summary, blocked.location)
        finally:
            self.frame, self.active, self.loads = outer, active, inner.loads[""]
        return inner.result

    def _next_role(self, roles: Array) -> int:
        """The role that runs next: the first with seed 0, the last with 1, and a random one with others."""
        return int(roles[0] if self.seed == 0 else roles[-1] if self.seed == 1 else self.random.choice(roles))

    def _block(self, label: str, sources: list[str], before: Array, first: int) -> Array | int:
        """Run a block from its line `first`; the number of the next block of each active thread.

        `sources` are the blocks that the threads come from."""
        frame = self.frame
        lines = frame.function.blocks[label]
        self.steps += len(lines) - first
        if self.steps > self.max_steps:
            raise SimulationError(
                f"loop limit exceeded: a program ran {self.max_steps} instructions (max_steps) without an end",
                self._place(label, -1),
                hint="see whether the step of a range may be zero; a larger max_steps lets a long loop end",
            )
        arriving: dict[str, tuple[Any, frozenset[int]]] = {}
        for number, line in enumerate(lines[first:], first):
            if " = phi " in line:
                name, kind, ways = text.incoming(line)
                value: Any = None
                for source in sources:
                    incoming = self.get(kind, ways[source])
                    value = (
                        incoming if value is None else values.chosen(before == frame.numbers[source], incoming, value)
                    )
                arriving[name] = value, self._dependences(line)
                continue
            for name, (value, self.loads) in arriving.items():
                self._set(name, value)
            arriving = {}
            self._line, self.loads = line, self._dependences(line)
            self.memory.line = frame.function.places[label][number]
            try:
                if line.startswith(("br ", "switch ")):
                    return self._following(line)
                if line.startswith("ret "):
                    if line != "ret void":
                        result, old = self.operand(line[len("ret ") :]), frame.result
                        frame.result = result if old is None else values.chosen(self.active, result, old)
                        frame.loads[""] |= self.loads
                    return len(frame.labels)
                if line == "unreachable":
                    raise SimulationError("a thread must not come to a place that the kernel says is unreachable")
                self._instruction(line)
            except ZigguratError as error:
                if isinstance(error, KernelRuntimeError) and error.location is None and self.grid != (1, 1, 1):
                    error.summary += f"; in program {self.program}"
                error.location = error.location or self._place(label, number)
                if isinstance(error, Blocked):
                    error.line = number
                raise
        raise AssertionError("a block without an end")

    def _place(self, label: str, line: int) -> Location | None:
        """The place of a line of the current function in the kernel's source."""
        return self.places.of(self.frame.function.places[label][line])

    def _dependences(self, line: str) -> frozenset[int]:
        """The loads that the operands of an instruction depend on."""
        loads = self.frame.loads
        return _NONE.union(*(loads[name] for name in text.operands_of(line) if name in loads)) if loads else _NONE

    def _following(self, line: str) -> Array | int:
        """The number of the next block of each thread, from a branch."""
        numbers = [self.frame.numbers[label] for label in text.targets(line)]
        if len(numbers) == 1 and line.startswith("br "):
            return numbers[0]
        self.use(self.active)
        condition, *_ = text.split(line.partition(" ")[2])
        value = self.operand(condition)
        if line.startswith("br "):
            return np.where(value, numbers[0], numbers[1])
        cases = [self.operand(case) for case in re.findall(r"(i\d+ \S+), label", line.partition("[")[2])]
        return np.select([value == case for case in cases], numbers[1:], numbers[0])

    def _set(self, name: str, value: Any) -> None:
        """Bind a name in the active threads."""
        frame, old, everyone = self.frame, self.frame.values.get(name), self.everyone
        frame.values[name] = value if old is None or everyone else values.chosen(self.active, value, old)
        if self.loads or name in frame.loads:
            frame.loads[name] = self.loads if everyone else self.loads | frame.loads.get(name, _NONE)

    def together(self, what: str) -> None:
        """Raise `SimulationError` unless all threads of the current role are active."""
        if not self.everyone and not np.array_equal(self.active, np.isin(self.roles, self.roles[self.active])):
            here = int(self.active.sum())
            raise SimulationError(f"all threads must come to {what} together; {here} of {self.threads} do")

    def warps(self) -> list[int]:
        """The first threads of the active warps."""
        return [32 * int(warp) for warp in np.flatnonzero(self.active.reshape(-1, 32).any(1))]

    def warp_groups(self, what: str) -> list[int]:
        """The active warp groups. Raises `SimulationError` for a part of one."""
        active = self.active.reshape(-1, 128)
        if (active.any(1) != active.all(1)).any():
            raise SimulationError(f"all threads of a warp group must come to {what} together")
        return [int(group) for group in np.flatnonzero(active.all(1))]

    def barrier(self, count: int | None) -> None:
        """Run a barrier of `count` threads, or of all."""
        here = int(self.active.sum())
        expected = self.threads if count is None else count
        if here > expected or expected % 32 or self.active.reshape(-1, 32).any(1).sum() * 32 != here:
            raise SimulationError(f"{expected} threads must come to a barrier together; {here} do")
        if here < expected:
            raise Blocked(self.active, f"deadlock: a barrier is for {expected} threads, and {here} come to it")
        self.shared.barrier(self.active)
        self.memory.barrier(self.active)

    def _instruction(self, line: str) -> None:
        name, opcode, rest, flags = text.instruction(line)
        value = self._value(opcode, rest)
        if flags and self.promises and opcode in values.BINARY and not isinstance(value, list):
            wrong = values.broken(opcode, flags, *self._two(rest), value)
            if wrong[self.active].any():
                raise SimulationError(f"an instruction promises what must hold, and does not: {line}")
        if name:
            self._set(name, value)

    def _value(self, opcode: str, rest: str) -> Any:
        """The result of an instruction or of a constant expression."""
        if opcode in values.BINARY:
            value = values.binary(opcode, *self._two(rest))
            width = text.odd_width(rest.partition(" ")[0])
            return value & value.dtype.type((1 << width) - 1) if width else value
        if opcode in ("icmp", "fcmp"):
            predicate, _, rest = rest.partition(" ")
            return values.compared(opcode, predicate, *self._two(rest))
        method = getattr(self, f"_{opcode}", None)
        if method is not None:
            return method(rest)
        if " to " in rest:
            source, _, target = rest.rpartition(" to ")
            return values.cast_to(opcode, self.operand(source), text.typed(source)[0], target)
        raise text.unknown(f"{opcode} {rest}")

    def _two(self, rest: str) -> tuple[Any, Any]:
        """Two operands of one type, which an instruction names once and an expression twice."""
        first, second = text.split(rest)
        kind, a = text.typed(first)
        return self.get(kind, a), self.get(kind, second.removeprefix(f"{kind} "))

    def _fneg(self, rest: str) -> Any:
        return values.over(np.negative, self.operand(rest))

    def _freeze(self, rest: str) -> Any:
        return self.operand(rest)

    def _select(self, rest: str) -> Any:
        condition, a, b = map(self.operand, text.split(rest))
        return values.chosen(condition, a, b)

    def _getelementptr(self, rest: str) -> Array:
        kind, pointer, *indices = text.split(rest)
        address = self.operand(pointer)
        for number, index in enumerate(indices):
            if number:
                elements = text.elements_of(kind)
                if elements is None or kind.startswith("{"):
                    raise text.unknown(f"getelementptr {rest}")
                kind = elements[0]
            address = address + values.signed(self.operand(index)).astype(np.int64) * text.size_of(kind)
        return address

    def _space(self, pointer: str) -> str:
        return "shared" if "addrspace(3)" in pointer else "global"

    def _load(self, rest: str) -> Any:
        kind, pointer, *align = text.split(rest)
        elements = text.elements_of(kind)
        dtype = text.dtype_of(elements[0] if elements else kind)
        blank = [np.zeros(self.threads, dtype)] * len(elements or (kind,))
        where = self.operand(pointer)
        values = self.load(self._space(pointer), where, dtype, self.active, blank, _alignment(align))
        return values if elements else values[0]

    def _store(self, rest: str) -> None:
        value, pointer, *align = text.split(rest)
        values = self.operand(value)
        parts = cast("list[Array]", values if isinstance(values, list) else [values])
        self.store(self._space(pointer), self.operand(pointer), parts, self.active, _alignment(align))

    def _insertelement(self, rest: str) -> Any:
        vector, value, index = text.split(rest)
        elements = list(self.operand(vector))
        elements[_index(index)] = self.operand(value)
        return elements

    def _extractelement(self, rest: str) -> Any:
        vector, index = text.split(rest)
        return self.operand(vector)[_index(index)]

    _insertvalue, _extractvalue = _insertelement, _extractelement

    def _shufflevector(self, rest: str) -> Any:
        first, second, mask = text.split(rest)
        from_both = [*self.operand(first), *self.operand(second)]
        return [from_both[int(number[0])] for number in self.operand(mask)]

    # Functions and assembly.

    def _call(self, rest: str) -> Any:
        if " asm " in rest:
            return self._asm(rest)
        name, callee = text.called(rest)
        short = name.removeprefix("llvm.").removeprefix("nvvm.")
        if short.startswith("read.ptx.sreg."):
            return self._special(short.removeprefix("read.ptx.sreg."))
        function = values.function_named(name)
        if short.startswith("shfl.sync."):
            function = partial(self._shuffle, short.split(".")[2])
        elif short.startswith("redux.sync."):
            function = partial(self._redux, short.removeprefix("redux.sync."))
        elif short in HOST_CALLS:
            function = partial(HOST_CALLS[short], self)
        elif short.startswith(("masked.load.", "masked.store.")):
            function = partial(self._masked, rest)
        elif name in self.module.functions:
            function = partial(self._invoke, self.module.functions[name])
        if function is None:
            raise text.unknown(f"call {rest}")
        return function(*(self.operand(argument) for argument in callee))

    def _masked(self, rest: str, *operands: Any) -> Any:
        """A load or a store of a vector of which a mask leaves elements out. LLVM fills gaps between accesses so."""
        _, arguments = text.called(rest)
        pointers = [at for at, argument in enumerate(arguments) if argument.startswith("ptr")]
        (at,) = pointers
        where, space, mask = operands[at], self._space(arguments[at]), operands[at + 1]
        vector = operands[-1] if at == 0 else operands[0]  # Of a load, the elements that it leaves out.
        align = re.search(r"\balign (\d+)", arguments[at])
        size, width = vector[0].dtype.itemsize, vector[0].dtype.itemsize * len(vector)
        self._aligned(where[self.active], np.flatnonzero(self.active), "accesses", width, int(align[1]) if align else 0)
        result: list[Array] = []
        for index, (element, bit) in enumerate(zip(vector, mask, strict=True)):
            place, active = where + index * size, self.active & bit
            if at:
                self.store(space, place, [element], active)
            else:
                result += self.load(space, place, element.dtype, active, [element])
        return None if at else result

    def _special(self, register: str) -> Array:
        """A special register, as "tid.x"."""
        if register == "smid":
            return np.zeros(self.threads, np.uint32)
        name, _, axis = register.partition(".")
        if name == "tid":
            return self.numbers.astype(np.uint32)
        if register == "cluster.ctarank":
            return np.full(self.threads, self.rank, np.uint32)
        source = self.program if name in ("ctaid", "clusterid") else self.grid
        number = source["xyz".index(axis)]
        if name in ("clusterid", "nclusterid") and axis == "x":
            number //= len(self.cluster.programs)
        return np.full(self.threads, number, np.uint32)

    def _alloca(self, rest: str) -> Array:
        """The address of each thread's local memory."""
        size = -(-text.size_of(text.split(rest)[0]) // 16) * 16
        make = partial(np.zeros, self.threads * size, np.uint8)
        key = (id(self.frame.function), self._line)
        return self.memory.variable(key, "local memory", make) + self.numbers * size

    def _shuffle(self, how: str, _mask: Array, word: Array, by: Array, _clamp: Array) -> Array:
        self.together("a shuffle")
        by = by.astype(np.int64)
        lane, warp = self.numbers % 32, self.numbers & ~31
        source = {"bfly": lane ^ by, "idx": by & 31, "up": lane - by, "down": lane + by}[how]
        source = np.where((source < 0) | (source > 31), lane, source)
        return word[warp + source]

    def _redux(self, how: str, word: Array, _mask: Array) -> Array:
        self.together("a reduction of a warp")
        words = word.astype(np.uint32) if how.startswith("u") else word.astype(np.uint32).view(np.int32)
        combined = _REDUX[how.removeprefix("u")].reduce(words.reshape(-1, 32), axis=1, dtype=words.dtype)
        return np.repeat(combined, 32).astype(words.dtype).view(word.dtype)

    def _asm(self, rest: str) -> Any:
        kinds, inputs, statements = _assembly(rest)
        operands: list[Any] = [np.zeros(self.threads, text.dtype_of(kind)) for kind in kinds]
        self.results = len(kinds)
        operands += map(self.operand, inputs)
        for statement in statements:
            self._statement(statement, operands)
        return operands[0] if len(kinds) == 1 else operands[: len(kinds)]

    def _statement(self, statement: str, operands: list[Any]) -> None:
        """Run an instruction of assembly, in the threads where its predicate holds."""
        guard = re.match(r"@\$(\d+) ", statement)
        self.mask = self.active & operands[int(guard[1])] if guard else self.active
        unit = _unit_for(statement[guard.end() :] if guard else statement)
        if unit is None:
            raise text.unknown(statement)
        unit[0](self, unit[1], operands)


def _same(value: Any, other: Any) -> bool:
    """Whether states, or values of a state, are equal."""
    if value is other:
        return True
    if isinstance(value, dict):
        old, new = cast("dict[str, Any]", value), cast("dict[str, Any]", other)
        return old.keys() == new.keys() and all(_same(value, new[name]) for name, value in old.items())
    if isinstance(value, list):
        return all(map(_same, cast("list[Any]", value), other))
    return np.array_equal(value, other)


def _alignment(parts: Sequence[str]) -> int:
    """The alignment that an access promises; 0 for that of its type."""
    if parts and not parts[0].startswith("align "):
        raise text.unknown(f"an access {parts[0]}")
    return int(parts[0].split()[1]) if parts else 0


def _index(operand: str) -> int:
    number = operand.rpartition(" ")[2]
    if not number.isdigit():
        raise text.unknown(f"an element by the index {operand}")
    return int(number)
