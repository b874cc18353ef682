"""The emitted text on a machine without a GPU: all threads of a program in step, each value an array over the threads.

    simulate(to_llvm(model), num_warps=4, shared=model.shared, grid=(2,), arguments=[x, y, 1024])

It reads the LLVM text that our emitters write (not all of LLVM), inline assembly included, and it is strict: all
threads must come to a barrier or a shuffle together, accesses must be aligned and inside the arrays, shared memory
begins as noise, and an access that conflicts with one of another thread since the last barrier is a `SimulationError`.
It is slow, and it is a judge: what it gives is compared with what the reference gives.

Where warps part ways (`simulate_roles`), all threads are those of a role, a barrier orders what its threads have done
and nothing else, and which role goes on is the adversary's choice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, cast

import ml_dtypes
import numpy as np

from ziggurat.backend.ptx.simulate_shared import Array, Shared, SimulationError

_DTYPES: dict[str, Any] = {
    "i1": np.bool_, "i8": np.uint8, "i16": np.uint16, "i32": np.uint32, "i64": np.uint64, "ptr": np.int64,
    "half": np.float16, "bfloat": ml_dtypes.bfloat16, "float": np.float32, "double": np.float64,
}  # fmt: skip
_SIGNED = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
_FLAGS = {"nuw", "nsw", "exact", "disjoint", "inbounds", "fast", "contract", "nnan", "ninf", "nsz", "tail", "nneg"}
_SHIFT = 40  # The array of an argument is the upper bits of an address.


# What runs a piece of assembly as a whole, by a word in it: gives what it gives. `simulate_matrix` adds to it.
UNITS: dict[str, Callable[[Any, str, list[Any]], list[Array]]] = {}

# What looks at a program when all of its threads have returned.
ENDS: list[Callable[[Any], None]] = []


class Blocked(Exception):
    """Some threads cannot go on from where they are before others have done something."""

    def __init__(self, threads: Array, reason: str) -> None:
        super().__init__(reason)
        self.threads = threads
        self.line = 0  # Of the block, filled in where the line is known.


def _split(text: str) -> list[str]:
    """The parts between commas that stand in no brackets or quotes."""
    parts: list[str] = []
    depth, start, quoted = 0, 0, False
    for at, character in enumerate(text):
        if character == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif character in "([{<":
            depth += 1
        elif character in ")]}>":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


def _typed(text: str) -> tuple[str, str]:
    """A type and the value after it."""
    kind, _, value = text.strip().rpartition(" ")
    return kind.strip(), value


def _dtype(kind: str) -> Any:
    if kind not in _DTYPES and not kind.startswith("ptr"):
        raise NotImplementedError(f"the type {kind}")
    return _DTYPES["ptr" if kind.startswith("ptr") else kind]


def _vector(kind: str) -> tuple[int, str]:
    """How many values a type has, and their type."""
    match = re.fullmatch(r"<(\d+) x (\S+)>", kind)
    return (int(match[1]), match[2]) if match else (1, kind)


def _chosen(condition: Array, then: Any, otherwise: Any) -> Any:
    """The one value where the condition holds, the other elsewhere; vectors element by element."""
    if isinstance(then, list):
        pairs = zip(cast("list[Array]", then), otherwise, strict=True)
        return [_chosen(condition, part, other) for part, other in pairs]
    return cast(Array, np.where(condition, then, otherwise))


def _signed(array: Array) -> Array:
    return array.view(_SIGNED[array.dtype.itemsize]) if array.dtype != np.bool_ else -array.astype(np.int8)


def _quotient(a: Array, b: Array) -> Array:
    """Rounded to zero, as the machine divides."""
    return a // b + ((a % b != 0) & ((a < 0) != (b < 0)))


def _larger(a: Array, b: Array) -> Array:
    """Of a number and a NaN the number, of the zeros the positive one."""
    return np.where((a == 0) & (b == 0), np.where(np.signbit(a), b, a), np.fmax(a, b))


def _smaller(a: Array, b: Array) -> Array:
    return np.where((a == 0) & (b == 0), np.where(np.signbit(a), a, b), np.fmin(a, b))


_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "shl": np.left_shift, "lshr": np.right_shift,
    "ashr": lambda a, b: (_signed(a) >> _signed(b)).view(a.dtype), "udiv": np.floor_divide, "urem": np.remainder,
    "fadd": lambda a, b: a + b, "fsub": lambda a, b: a - b, "fmul": lambda a, b: a * b, "fdiv": lambda a, b: a / b,
    "sdiv": lambda a, b: _quotient(_signed(a), _signed(b)).view(a.dtype),
    "srem": lambda a, b: np.fmod(_signed(a), _signed(b)).view(a.dtype),
}  # fmt: skip
_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "umax": np.maximum, "umin": np.minimum, "maximum": np.maximum, "minimum": np.minimum, "maxnum": _larger,
    "minnum": _smaller, "fabs": np.abs, "sqrt": np.sqrt, "exp2": np.exp2, "floor": np.floor, "ceil": np.ceil,
}  # fmt: skip
_APPROXIMATE: dict[str, Callable[[Array], Array]] = {
    "ex2": np.exp2, "lg2": np.log2, "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "rcp": np.reciprocal,
    "sqrt": np.sqrt, "rsqrt": lambda a: np.reciprocal(np.sqrt(a)),
}  # fmt: skip
_SIGNED_FUNCTIONS: dict[str, Callable[[Array, Array], Array]] = {"smax": np.maximum, "smin": np.minimum}


class _Program:
    """One program: its threads' values, and the memory."""

    def __init__(
        self, blocks: dict[str, list[str]], threads: int, shared: int, arrays: list[Array], seed: int = 0
    ) -> None:
        self.blocks = blocks
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
        """An operand: one array, or a list of arrays for a vector."""
        if token.startswith("%"):
            return self.values[token]
        count, element = _vector(kind)
        if token in ("poison", "undef", "zeroinitializer") and count > 1:
            return [self.get(element, "0")] * count
        dtype = _dtype(element)
        if token.startswith("0xH") or token.startswith("0xR"):
            number: Any = np.array([int(token[3:], 16)], np.uint16).view(dtype)[0]
        elif token.startswith("0x"):
            number = np.array([int(token, 16)], np.uint64).view(np.float64)[0]
        else:
            words = {"true": 1, "false": 0, "null": 0, "poison": 0, "undef": 0, "@smem": 0}
            number = words[token] if token in words else int(token)
            if np.dtype(dtype).kind == "u":
                number %= 1 << 8 * np.dtype(dtype).itemsize
        return np.full(self.threads, number, dtype)

    def operand(self, text: str) -> Any:
        return self.get(*_typed(text))

    # Memory.

    def load(self, space: str, addresses: Array, dtype: Any, count: int, mask: Array, old: list[Array]) -> list[Array]:
        size = np.dtype(dtype).itemsize
        chosen = np.flatnonzero(mask)
        where = addresses[chosen]
        self._aligned(where, size * count)
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

    def store(self, space: str, addresses: Array, values: list[Array], mask: Array) -> None:
        chosen = np.flatnonzero(mask)
        if not len(chosen):
            return
        parts = [np.ascontiguousarray(value[chosen]).view(np.uint8).reshape(len(chosen), -1) for value in values]
        given = np.concatenate(parts, axis=1)
        where = addresses[chosen]
        self._aligned(where, given.shape[1])
        if space == "shared":
            self.shared.store(where, self.numbers[chosen], given)
            return
        for number, rows, places in self._global(where, given.shape[1]):
            self.memory[number][places] = given[rows]

    def _aligned(self, addresses: Array, size: int) -> None:
        if (addresses % size).any():
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
                name, _, rest = line.partition(" = phi ")
                kind = rest[: rest.index(" [")]
                value: Any = None
                for source in sources:
                    token = re.search(rf"\[ (\S+), %{re.escape(source)} \]", rest)
                    assert token is not None, line
                    found = self.get(kind, token[1])
                    value = found if value is None else _chosen(before == names.index(source), found, value)
                arriving[name] = value
                continue
            for name, value in arriving.items():
                self._set(name, value)
            arriving = {}
            if line.startswith("br label"):
                target = line.split("%")[1]
                return lambda numbers: np.array(numbers[target])
            if line.startswith("br i1"):
                condition, *ways = _split(line[3:])
                taken = self.operand(condition)
                then, otherwise = (way.split("%")[1] for way in ways)
                return lambda numbers: np.where(taken, numbers[then], numbers[otherwise])
            if line == "ret void":
                return lambda numbers: np.array(len(numbers))
            try:
                self._instruction(line)
            except Blocked as blocked:
                blocked.line = number
                raise
        raise AssertionError("a block without an end")

    def _set(self, name: str, value: Any) -> None:
        """Give a name its value in the active threads."""
        old = self.values.get(name)
        self.values[name] = value if old is None or self.active.all() else _chosen(self.active, value, old)

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
        name, _, text = line.partition(" = ") if line.startswith("%") else ("", "", line)
        opcode, _, rest = text.partition(" ")
        words = rest.split(" ")
        while words[0] in _FLAGS:
            words = words[1:]
        rest = " ".join(words)
        method = getattr(self, f"_{opcode}", None)
        if opcode in _BINARY:
            first, second = _split(rest)
            kind, a = _typed(first)
            made = _BINARY[opcode](self.get(kind, a), self.get(kind, second))
        elif method is not None:
            made = method(rest)
        elif " to " in rest:
            made = self._cast(opcode, rest)
        else:
            raise NotImplementedError(line)
        if name:
            self._set(name, made)

    def _icmp(self, rest: str) -> Array:
        predicate, _, rest = rest.partition(" ")
        first, second = _split(rest)
        kind, a = _typed(first)
        x, y = self.get(kind, a), self.get(kind, second)
        if predicate[0] == "s":
            x, y = _signed(x), _signed(y)
        return _COMPARE[predicate if predicate in ("eq", "ne") else predicate[1:]](x, y)

    def _fcmp(self, rest: str) -> Array:
        predicate, _, rest = rest.partition(" ")
        first, second = _split(rest)
        kind, a = _typed(first)
        x, y = self.get(kind, a), self.get(kind, second)
        unordered = np.isnan(x) | np.isnan(y)
        if predicate in ("ord", "uno"):
            return unordered if predicate == "uno" else ~unordered
        found = _COMPARE[predicate[1:]](x, y)
        return found | unordered if predicate[0] == "u" else found & ~unordered

    def _fneg(self, rest: str) -> Array:
        return -self.operand(rest)

    def _select(self, rest: str) -> Array:
        condition, a, b = map(self.operand, _split(rest))
        return _chosen(condition, a, b)

    def _cast(self, opcode: str, rest: str) -> Any:
        source, _, target = rest.partition(" to ")
        value, (count, element) = self.operand(source), _vector(target)
        dtype = _dtype(element)
        if opcode == "bitcast":
            if count > 1:
                return list(np.ascontiguousarray(value).view(dtype).reshape(len(value), count).T)
            if source.startswith("<"):  # A vector becomes one number, its first element in the low bits.
                together: Array = np.stack(value, axis=1)
                return np.ascontiguousarray(together).view(dtype)[:, 0]
            return value.view(dtype)
        if count > 1:
            return [part.astype(dtype) for part in value]
        if opcode in ("sext", "sitofp"):
            return _signed(value).astype(dtype)
        if opcode == "trunc" and target == "i1":
            return (value & 1).astype(np.bool_)
        return value.astype(dtype)

    def _getelementptr(self, rest: str) -> Array:
        element, pointer, index = _split(rest)
        match = re.fullmatch(r"\[(\d+) x i8\]", element)
        size = int(match[1]) if match else np.dtype(_dtype(element)).itemsize
        return self.operand(pointer) + _signed(self.operand(index)).astype(np.int64) * size

    def _space(self, pointer: str) -> str:
        return "shared" if "addrspace(3)" in pointer else "global"

    def _load(self, rest: str) -> Any:
        kind, pointer, _ = _split(rest)
        count, element = _vector(kind)
        dtype = _dtype(element)
        blank = [np.zeros(self.threads, dtype)] * count
        found = self.load(self._space(pointer), self.operand(pointer), dtype, count, self.active, blank)
        return found if count > 1 else found[0]

    def _store(self, rest: str) -> None:
        value, pointer, _ = _split(rest)
        given: list[Array] = self.operand(value) if value.startswith("<") else [self.operand(value)]
        self.store(self._space(pointer), self.operand(pointer), given, self.active)

    def _insertelement(self, rest: str) -> Any:
        vector, value, index = _split(rest)
        made = list(self.operand(vector))
        made[int(_typed(index)[1])] = self.operand(value)
        return made

    def _extractelement(self, rest: str) -> Any:
        vector, index = _split(rest)
        return self.operand(vector)[int(_typed(index)[1])]

    def _extractvalue(self, rest: str) -> Any:
        vector, index = _split(rest)
        return self.operand(vector)[int(index)]

    # Functions and assembly.

    def _call(self, rest: str) -> Any:
        if " asm " in rest:
            return self._asm(rest)
        match = re.match(r"(.*?) @([\w.]+)\((.*)\)", rest)
        assert match is not None, rest
        name = match[2].removeprefix("llvm.").removeprefix("nvvm.")
        arguments = [self.operand(argument) for argument in _split(match[3])]
        if name.startswith("read.ptx.sreg."):
            _, _, _, register, axis = name.split(".")
            if register == "tid":
                return self.numbers.astype(np.uint32)
            source = self.program if register == "ctaid" else self.grid
            return np.full(self.threads, source["xyz".index(axis)], np.uint32)
        if name.startswith("shfl.sync."):
            return self._shuffle(name.split(".")[2], arguments[1], arguments[2].astype(np.int64))
        if name == "assume":
            assert arguments[0][self.active].all()
            return None
        name = name.split(".")[0]
        if name == "abs":
            return np.abs(_signed(arguments[0])).view(arguments[0].dtype)
        if name in _SIGNED_FUNCTIONS:
            return _SIGNED_FUNCTIONS[name](*map(_signed, arguments)).view(arguments[0].dtype)
        if name == "f2i":
            return np.trunc(arguments[0]).astype(np.int32).view(np.uint32)
        if name == "fma":
            a, b, c = (argument.astype(np.float64) for argument in arguments)
            return (a * b + c).astype(arguments[0].dtype)  # Rounded once, but for what is rounded in f64.
        if name not in _FUNCTIONS:
            raise NotImplementedError(rest)
        return _FUNCTIONS[name](*arguments)

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
        operands: list[Any] = [None] * outputs + [self.operand(argument) for argument in _split(match[3])]
        kinds = re.findall(r"\w+", rest.partition(" asm ")[0])
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
        elif part[0] == "mov":
            operands[numbers[0]] = operands[numbers[1]]
        elif part[0] == "div":
            operands[numbers[0]] = operands[numbers[1]] / operands[numbers[2]]
        elif part[0] in _APPROXIMATE:
            operands[numbers[0]] = _APPROXIMATE[part[0]](operands[numbers[1]])
        elif part[0] == "ld":
            *targets, pointer = numbers
            dtype = _dtype(kinds[0])
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


def _parsed(llvm: str) -> tuple[list[tuple[str, str]], dict[str, list[str]]]:
    """The parameters (type, name) and the blocks of the one function of a text."""
    lines = re.sub(r", !(dbg|llvm\.loop) !\d+", "", llvm).split("\n")
    start = next(at for at, line in enumerate(lines) if line.startswith("define "))
    inside = lines[start][lines[start].index("(") + 1 : lines[start].rindex(")")]
    parameters = [_typed(re.sub(r" align \d+", "", part)) for part in _split(inside)]
    blocks: dict[str, list[str]] = {}
    current: list[str] = []
    for line in lines[start + 1 :]:
        if line == "}":
            break
        if line.endswith(":") and not line.startswith(" "):
            blocks[line[:-1]] = current = []
        else:
            current.append(line.strip())
    return parameters, blocks


def simulate(
    llvm: str, *, num_warps: int, shared: int, grid: Sequence[int] = (1,), arguments: Sequence[Any] = (), seed: int = 0
) -> None:
    """Run emitted LLVM text for every program of a grid, one after the other. Arrays are changed in place.

    What is asynchronous happens as late as it may with the seed 0, as early as it may with 1, and anywhere between with
    others. An argument may be a `simulate_engine.TensorMap`.

    There are more warps than `num_warps` where the text says so: those that only fetch.

    Raises `SimulationError` for what no program may do, `NotImplementedError` for text that is not known here.
    """
    parameters, blocks = _parsed(llvm)
    said = {key: int(value) for key, value in re.findall(r'"nvvm\.(reqntid|maxnreg)"="(\d+)"', llvm)}
    threads = max(32 * num_warps, said.get("reqntid", 0))
    # The array that a tensor map describes is memory as well.
    given = [getattr(argument, "array", argument) for argument in arguments]
    arrays: list[Array] = [argument for argument in given if isinstance(argument, np.ndarray)]
    sizes = (*grid, 1, 1)[:3]
    with np.errstate(all="ignore"):
        for index in np.ndindex(*sizes[::-1]):
            program = _Program(blocks, threads, -(-shared // 8) * 8, arrays, seed)
            if "maxnreg" in said:
                program.registers, program.pool = np.full(threads, said["maxnreg"]), threads * said["maxnreg"]
            program.program, program.grid = index[::-1], sizes
            count = 0
            for (kind, name), argument, array in zip(parameters, arguments, given, strict=True):
                if isinstance(array, np.ndarray):
                    count += 1
                    program.maps[count << _SHIFT] = argument
                    program.values[name] = np.full(program.threads, count << _SHIFT, np.int64)
                else:
                    number = argument if kind in ("half", "bfloat", "float", "double") else int(argument)
                    program.values[name] = np.full(program.threads, number).astype(_dtype(kind))
            program.run()
