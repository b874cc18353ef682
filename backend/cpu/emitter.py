"""The emitter: a CPU model as LLVM text for one thread.

Code is written at levels. Level 0 is that of the function; each loop of a region opens another one. An instruction is
appended at the deepest level of its operands, so that a loop computes only what changes in it. An op of a region is
computed *at an index*: one `Coord` for each axis, which is a number, or a run of neighbours, one for each lane.

A function registered with `@emits` emits the ops of a class on numbers: it takes the emitter, the op and the operands.
One registered with `@indexed` emits a tensor op at an index.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import attrs

from ziggurat.backend.cpu import outline
from ziggurat.backend.cpu.code import CpuOptions
from ziggurat.backend.cpu.folding import folded
from ziggurat.backend.cpu.sites import Site
from ziggurat.backend.llvm.routines import Code, Number, literal
from ziggurat.backend.ptx.lines import LineInfo, first_place
from ziggurat.codemodel.dialects import cpu, tt
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.op import Op, OpResult, Value
from ziggurat.codemodel.types import PtrType, ScalarType, TensorType, Type, bf16, element_of, i1, scalar_element
from ziggurat.transforms.cpu.traffic import CACHE_LINE

T = TypeVar("T")

EMITTERS: OpTable[Callable[..., Any]] = OpTable("CPU emitter")
emits = EMITTERS.of
INDEXED: OpTable[Callable[..., Any]] = OpTable("CPU emitter at an index")
indexed = INDEXED.of

INTERRUPTED = 10  # The code that a kernel returns when the host wants its end.
# Nodes that instructions name, in their order: !0 is for branches to rare code, !2 for those around it, !3 for stores
# around the caches.
METADATA = (
    '!{!"branch_weights", i32 1, i32 1000000}',
    "!{}",
    '!{!"branch_weights", i32 1000000, i32 1}',
    "!{i32 1}",
)
_NAMES = re.compile(r"%[\w.]+")

# Fills in the record of an error, of i64s.
_FIELDS = ("code", "program", "site", "address", "value")
_FAILED = "\n".join(
    (
        f"define internal void @zg_failed(ptr %record, {', '.join(f'i64 %{name}' for name in _FIELDS)}) "
        "noinline cold nounwind {",
        *(f"  %{name}.at = getelementptr i64, ptr %record, i64 {at}" for at, name in enumerate(_FIELDS)),
        *(f"  store i64 %{name}, ptr %{name}.at" for name in _FIELDS),
        "  ret void\n}",
    )
)


def symbol_of(func: tt.Func) -> str:
    """The name of a kernel's entry in its object."""
    return re.sub(r"[^A-Za-z0-9]+", "_", f"zg_{func.sym_name}")  # gdb reads two underscores as Ada's dot.


def kind_of(type_: Type) -> str:
    """The LLVM type of a number in a register: bf16 and 8-bit floats are their bits, pointers their addresses."""
    element = element_of(type_)
    if isinstance(element, PtrType):
        return "i64"
    assert isinstance(element, ScalarType), f"{type_} has no LLVM type"
    return "i16" if element == bf16 else element.llvm


def memory_kind(type_: Type) -> str:
    """The LLVM type of a number in memory: an i1 takes a byte."""
    return "i8" if element_of(type_) == i1 else kind_of(type_)


@attrs.frozen(eq=False)
class Coord:
    """The index along an axis: an i64, or with `run` the neighbours from it on, one for each lane.

    With a `limit`, accesses at this index are masked: their elements are those below their counts, and at this axis
    below the limit. Without one, all lanes of all affine accesses are inside.
    """

    base: Number
    run: bool = False
    limit: Number | None = None

    @property
    def key(self) -> tuple[str, bool, bool]:
        """Equal for equal coordinates."""
        return self.base.name, self.run, self.limit is not None


Index = tuple[Coord, ...]


@attrs.define(eq=False)
class Level:
    """The text of a level, the label of its present block, and the values that are known there."""

    lines: list[str]
    label: str
    memo: dict[Any, Any] = attrs.field(factory=dict[Any, Any])


class CpuEmitter(Code):
    """The LLVM text of one kernel while it is written. `values` has what stands for each value outside of regions: a
    number, or a tuple of them."""

    def __init__(self, module: cpu.Module, func: tt.Func, options: CpuOptions) -> None:
        super().__init__()
        self.module = module
        self.func = func
        self.places: LineInfo | None = None
        if options.line_info:
            name, place, first = symbol_of(func), first_place(func), len(METADATA)
            self.places = LineInfo(func.sym_name, name, place, kind="LineTablesOnly", first=first)
        self.check = options.check
        self.tolerant = options.tolerant
        self.makes_pointers = func.holds(tt.IntToPtr)
        self.fast_math = options.fast_math
        self.features = options.features.split(",")
        self.values: dict[Value, Any] = {}
        self.levels = [Level([], "start")]
        self.level_of: dict[str, int] = {}
        self.lanes = 0  # Of the present region; 0 where its elements are computed one by one.
        self.slots: list[str] = []  # Memory that lasts for all programs of a call.
        self.restarts: list[str] = []  # Stores to it with which each program begins.
        self.parts: list[list[str]] = []  # The lines of functions that the kernel calls; see `outline`.
        self.sites: list[Site] = []
        self._numbers: dict[tuple[Value, Site], int] = {}
        self.bounds: list[int] = []  # The parameters whose bounds the entry gets.
        self.joins: dict[Any, Any] = {}
        self.rounds: dict[Any, Number] = {}  # By block: how often it was branched back to.
        self.scratch = module.scratch  # Bytes of scratch memory, with those of the emitter's own.
        self.reserved: list[tuple[str, int]] = []  # The addresses of memory that lasts, and the bytes there.
        self._temporary = module.scratch
        self.ordered = any(isinstance(op, cpu.Waits) and op.memory for op in func.walk())
        self.loaded: dict[Value, Any] = {}  # The matrices that dots may read where they are in memory.
        self.offsets: dict[str, tuple[Number, int]] = {}  # Indices that are others and a constant, by name.
        self.steps: dict[Value, Number] = {}  # The distances of rows of accesses, which may be prefetched.
        self.varying: dict[Value, bool] = {}  # Whether a scalar may differ between programs.
        self.nest: Any = None  # The region that is emitted.
        self._facts: dict[Any, Any] = {}  # What is found out once.
        self.pinned = False  # Whether code stays at its level: within branches.

    # Text.

    @property
    def depth(self) -> int:
        """The number of the present level."""
        return len(self.levels) - 1

    def level(self, text: str) -> int:
        """The deepest level of the values that a text names."""
        depth = len(self.levels) - 1
        if self.pinned or not depth:
            return depth
        level, level_of = 0, self.level_of
        for name in _NAMES.findall(text):
            if level_of.get(name, 0) > level:
                level = level_of[name]
        return level

    def emit(self, text: str) -> str:
        """Append an instruction without effects at the level of its operands; the name of its value, or a constant."""
        constant = folded(text)
        if constant is not None:
            return constant
        level = self.level(text)
        name = f"%{self.name()}"
        self.level_of[name] = level
        self.levels[level].lines.append(f"  {name} = {text}{self._place}")
        return name

    def effect(self, text: str) -> str:
        """Append an instruction with effects at the present level; the name of its value."""
        name = f"%{self.name()}"
        self.level_of[name] = self.depth
        self.levels[-1].lines.append(f"  {name} = {text}{self._place}")
        return name

    def line(self, text: str) -> None:
        self.levels[-1].lines.append(f"  {text}{self._place}")

    def start(self, label: str) -> None:
        self.levels[-1].lines.append(f"{label}:")
        self.levels[-1].label = label

    @property
    def here(self) -> str:
        return self.levels[-1].label

    @property
    def into(self) -> list[str]:
        return self.levels[-1].lines

    @contextmanager
    def inside(self, label: str) -> Generator[Level]:
        """A level whose text begins with this label, and is appended by the caller."""
        level = Level([], label)
        self.levels.append(level)
        try:
            yield level
        finally:
            self.levels.pop()

    def aside(
        self, condition: Number, make: Callable[[], T], *, when: bool = True, rare: bool = False, name: str = "then"
    ) -> tuple[str, T, str]:
        """Append code for where a condition is true, or with `when` false where it is false; `rare` code is seldom run.

        Gives the result of `make`, between the labels from which control comes to what follows: of the block before the
        code, and of its last block.
        """
        before, label, after = self.here, self.name(name), self.name("after")
        with self.inside(label) as level:
            values = make()
            self.line(f"br label %{after}")
        first, second = (label, after) if when else (after, label)
        weights = f", !prof !{0 if when else 2}" if rare else ""
        self.line(f"br i1 {condition}, label %{first}, label %{second}{weights}")
        self.levels[-1].lines += [f"{label}:", *level.lines]
        self.start(after)
        return before, values, level.label

    def either(
        self, condition: Number, then: Callable[[], Number], otherwise: Callable[[], Number], *, name: str
    ) -> Number:
        """One of two vectors, of which only that one is computed: the code of both stays in branches."""
        labels, after = (self.name(name), self.name("else")), self.name("after")
        values, ends, lines = list[Number](), list[str](), list[str]()
        for label, make in zip(labels, (then, otherwise), strict=True):
            with self.inside(label) as level, self.staying():
                values.append(make().spread(self.lanes))
                self.line(f"br label %{after}")
            lines += [f"{label}:", *level.lines]
            ends.append(level.label)
        self.line(f"br i1 {condition}, label %{labels[0]}, label %{labels[1]}")
        self.into.extend(lines)
        self.start(after)
        sources = ", ".join(f"[ {value}, %{label} ]" for value, label in zip(values, ends, strict=True))
        return self.number(values[0].kind, self.effect(f"phi {values[0].type} {sources}"), self.lanes)

    @contextmanager
    def staying(self) -> Generator[None]:
        """Code stays at its level, also where its operands are known before."""
        outer, self.pinned = self.pinned, True
        try:
            yield
        finally:
            self.pinned = outer

    @contextmanager
    def at_level(self, level: int) -> Generator[None]:
        """Append at an outer level, whose inner ones are not yet part of its text."""
        inner = self.levels[level + 1 :]
        del self.levels[level + 1 :]
        try:
            yield
        finally:
            self.levels += inner

    def loop(self, start: Number | int, stop: Number | int, step: int, body: Callable[[Number], None]) -> None:
        """Append a loop over i64s from `start` to before `stop`; `body` gets the index."""

        def once(index: Number, parameters: list[Number]) -> list[Number]:
            body(index)
            return parameters

        self.folding_loop(stop, once, (), start, step)

    def folding_loop(
        self,
        stop: Number | int,
        body: Callable[[Number, list[Number]], list[Number]],
        first: Sequence[Number],
        start: Number | int = 0,
        step: int = 1,
    ) -> list[Number]:
        """Append a loop over i64s from `start` to before `stop`; `body` gets the index and numbers, and gives the next
        ones. The last ones are returned."""
        outer = self.levels[-1]
        head, after = self.name("loop"), self.name("after")
        index, following = (f"%{self.name('i')}" for _ in range(2))
        names = [f"%{self.name('carried')}" for _ in first]
        for name in (index, *names):
            self.level_of[name] = self.depth + 1
        with self.inside(head) as level:
            phis = [self.number(value.kind, name, value.lanes) for name, value in zip(names, first, strict=True)]
            last = body(self.number("i64", index), phis)
            self.line(f"{following} = add nuw nsw i64 {index}, {step}")
            more = f"%{self.name()}"
            self.line(f"{more} = icmp ult i64 {following}, {stop}")
            self.line(f"br i1 {more}, label %{head}, label %{after}")
        before = outer.label
        if isinstance(start, int) and isinstance(stop, int):
            assert start < stop
            outer.lines.append(f"  br label %{head}")
        else:
            some = f"%{self.name()}"
            outer.lines.append(f"  {some} = icmp ult i64 {start}, {stop}")
            outer.lines.append(f"  br i1 {some}, label %{head}, label %{after}")
        outer.lines += [f"{head}:", f"  {index} = phi i64 [ {start}, %{before} ], [ {following}, %{level.label} ]"]
        for name, begin, end in zip(names, first, last, strict=True):
            outer.lines.append(f"  {name} = phi {begin.type} [ {begin}, %{before} ], [ {end}, %{level.label} ]")
        outer.lines += level.lines
        self.start(after)
        if not isinstance(start, int) or not isinstance(stop, int):
            for at, (x, y) in enumerate(zip(first, last, strict=True)):
                text = f"phi {x.type} [ {x}, %{before} ], [ {y}, %{level.label} ]"
                last[at] = self.number(x.kind, self.effect(text), x.lanes)
        for value in last:  # They are known after the loop.
            self.level_of[value.name] = self.depth
        return last

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """The value of this key, made where none is known. The level of its name keeps it."""
        for level in reversed(self.levels):
            if key in level.memo:
                return level.memo[key]
        values = make()
        self.levels[self.level(" ".join(map(str, values_of(values))))].memo[key] = values
        return values

    def once_for_all(self, key: Any, make: Callable[[], T]) -> T:
        """A fact of the kernel, which is found out once."""
        if key not in self._facts:
            self._facts[key] = make()
        return self._facts[key]

    def forget(self) -> None:
        """Forget the values at indices: the region ends."""
        self.levels[0].memo.clear()

    # Numbers.

    def number(self, kind: str, name: object, lanes: int = 0) -> Number:
        """A value with the operators of its LLVM type."""
        return Number(self, kind, str(name), lanes)

    def i64(self, value: int) -> Number:
        """A constant."""
        return Number(self, "i64", str(value))

    def made(self, kind: str, text: str, lanes: int = 0) -> Number:
        """The value of an instruction without effects."""
        return Number(self, kind, self.emit(text), lanes)

    def constant(self, value: Any, type_: Type) -> Number:
        """A constant of an element type."""
        element = scalar_element(type_)
        text = literal(value, element)
        return Number(self, kind_of(type_), str(int(text[3:], 16)) if element == bf16 else text)

    # Memory of the thread.

    def temporary(self, size: int) -> int:
        """The offset of scratch memory for the present region."""
        offset = self._temporary
        self._temporary += -(-size // 64) * 64
        self.scratch = max(self.scratch, self._temporary)
        return offset

    def release(self) -> None:
        """The present region needs its scratch memory no longer."""
        self._temporary = self.module.scratch

    def previous(self, value: Number) -> Number:
        """The i64 that was given here before, in this program or an earlier one; at first 0."""
        slot = f"%{self.name('slot')}"
        self.slots += [f"  {slot} = alloca i64", f"  store i64 0, ptr {slot}"]
        previous = self.number("i64", self.effect(f"load i64, ptr {slot}"))
        self.line(f"store {value.typed}, ptr {slot}")
        return previous

    def executions(self) -> Number:
        """The number of times that the program has executed this code before, as an i64."""
        slot = f"%{self.name('slot')}"
        self.slots.append(f"  {slot} = alloca i64")
        self.restarts.append(f"  store i64 0, ptr {slot}")
        count = self.number("i64", self.effect(f"load i64, ptr {slot}"))
        self.line(f"store {(count + 1).typed}, ptr {slot}")
        return count

    def zeros(self, count: int) -> Number:
        """The address of memory for i64s that lasts for all programs of a call, and has zeros before them."""
        table, address = f"%{self.name('slot')}", f"%{self.name('zeros')}"
        arguments = (("ptr", table), ("i8", "0"), ("i64", str(8 * count)), ("i1", "false"))
        clear = self.called("void", "llvm.memset.p0.i64", *arguments)
        self.slots += [
            f"  {table} = alloca [{count} x i64]",
            f"  {clear}",
            f"  {address} = ptrtoint ptr {table} to i64",
        ]
        return self.number("i64", address)

    def lasting(self, size: int) -> Number:
        """The address of scratch memory that lasts for all programs of a call."""
        address = f"%{self.name('lasting')}"
        self.reserved.append((address, -(-size // 64) * 64))
        return self.number("i64", address)

    def prefetch(self, address: Number, size: int, *, level: int, writes: bool = False) -> None:
        """Fetch the cache lines of the `size` bytes at an address, which need not be that of any memory, to the cache
        of a level."""
        for line in range(0, size, CACHE_LINE):
            arguments = [("i32", str(number)) for number in (int(writes), 4 - level, 1)]
            self.line(self.called("void", "llvm.prefetch.p0", ("ptr", self.address(address, line, 1)), *arguments))

    def address(self, base: Number, offset: Number | int, size: int) -> str:
        """A pointer to the element of `size` bytes at an offset in elements from an address (an i64)."""
        return self.emit(f"inttoptr i64 {self.moved(base, offset, size)} to ptr")

    def moved(self, base: Number, offset: Number | int, size: int) -> Number:
        """The address of the element of `size` bytes at an offset in elements. Constants are added last: they become
        part of the instruction that uses the address."""
        rest = 0
        if isinstance(offset, Number) and offset.name in self.offsets:
            offset, rest = self.offsets[offset.name]
        elif isinstance(offset, int):
            offset, rest = self.i64(0), offset
        moved = base if offset.name == "0" else base + self.scaled(offset, size)
        return moved + rest * size if rest else moved

    def behind(self, index: Number, count: int) -> Number:
        """The index that is so much larger than another one."""
        if not count:
            return index
        stop = index + count
        self.offsets[stop.name] = index, count
        return stop

    def scaled(self, offset: Number | int, size: int) -> Number:
        """A number of elements in bytes."""
        if isinstance(offset, int):
            return self.i64(offset * size)
        return offset if size == 1 else offset * size

    def scratch_address(self, offset: int) -> Number:
        """The address of scratch memory."""
        base = self.number("i64", "%scratch")
        return base + offset if offset else base

    def reservations(self) -> list[str]:
        """The lines that give memory that lasts its addresses, after all other scratch memory."""
        lines: list[str] = []
        for address, size in self.reserved:
            lines.append(f"  {address} = add i64 %scratch, {self.scratch}")
            self.scratch += size
        return lines

    # Values.

    def scalar(self, value: Value) -> Number:
        """The number that stands for a value outside of regions."""
        return self.values[value]

    def vector(self, coord: Coord, bits: int = 64) -> Number:
        """A coordinate as an integer of these bits: a vector if it differs between lanes."""
        kind = f"i{bits}"

        def make() -> Number:
            base = coord.base if bits == 64 else coord.base.to("trunc", kind)
            if not coord.run:
                return base
            numbers = ", ".join(f"{kind} {lane}" for lane in range(self.lanes))
            return base + Number(self, kind, f"<{numbers}>", self.lanes)

        return self.once(("coordinate", coord.key, bits), make)

    def at(self, value: Value, index: Index) -> Any:
        """A tensor at an index, or a scalar: a number, a vector of one for each lane, or a tuple of these."""
        if not index and value in self.values:
            return self.values[value]
        if not isinstance(value.type, TensorType) and value in self.values:
            return self.values[value]
        assert isinstance(value, OpResult), f"{value!r} has no value here"
        return self.once((value, *(coord.key for coord in index)), lambda: self._computed(value.op, index))

    def _computed(self, op: Op, index: Index) -> Any:
        outer, self._place = self._place, self.place(op)
        rule = INDEXED.get(type(op))
        if rule is not None:
            result = rule(self, op, index)
        else:
            result = EMITTERS[op](self, op, *(self.at(value, index) for value in op.operands))
        self._place = outer
        return result

    def place(self, op: Op) -> str:
        """The suffix of instructions that tells their source."""
        return self.places.suffix(op.location) if self.places is not None else ""

    def divisible(self, ops: Sequence[Op]) -> Generator[Op]:
        """The ops of a sequence in turn. Outside of regions, many lines of those before an op become a part."""
        begin = len(self.into)
        for op in ops:
            count = len(self.parts)
            if not self.depth and len(self.into) - begin >= outline.LONG:
                self.parts.append(self.into[begin:])
                self.into[begin:] = [outline.call_of(count)]
                begin, count = begin + 1, count + 1
            yield op
            if len(self.parts) > count:  # The op is divided itself.
                begin = len(self.into)

    # Failures.

    def poll(self, after: str = "") -> None:
        """End the kernel if the host wants it, or go on at the label `after`. A loop does this in each iteration."""
        word, quiet, function, answer, stops = (f"%{self.name()}" for _ in range(5))
        ask, ends, after = self.name("ask"), self.name("ends"), after or self.name("going")
        lines = [
            f"  {word} = load atomic i64, ptr %host monotonic, align 8",
            f"  {quiet} = icmp eq i64 {word}, 0",
            f"  br i1 {quiet}, label %{after}, label %{ask}, !prof !2",
            f"{ask}:",
            f"  {function}.at = getelementptr i64, ptr %host, i64 1",
            f"  {function} = load ptr, ptr {function}.at",
            f"  {answer} = call i64 {function}(ptr %launch)",
            f"  {stops} = icmp ne i64 {answer}, 0",
            f"  br i1 {stops}, label %{ends}, label %{after}, !prof !0",
            f"{ends}:",
            *self._end(INTERRUPTED),
        ]
        self.into.extend(lines)
        self.start(after)

    def _end(self, code: int, site: int = 0, address: str = "0", value: str = "0") -> list[str]:
        """The lines that end the kernel with a code."""
        self.definitions["zg_failed"] = _FAILED
        numbers = f"i64 {code}, i64 %program, i64 {site}, i64 {address}, i64 {value}"
        return [f"  call void @zg_failed(ptr %record, {numbers})", f"  ret i64 {code}"]

    def site(self, op: Op, verb: str, **more: Any) -> int:
        """The number of the place of a check."""
        site = Site.of(op, verb, **more)
        if (op.result, site) not in self._numbers:  # An op may be emitted for whole vectors and for masked ones.
            self._numbers[op.result, site] = len(self.sites)
            self.sites.append(site)
        return self._numbers[op.result, site]

    def fail(
        self, code: int, condition: Number, site: int, address: Number | None = None, value: Number | None = None
    ) -> None:
        """End the kernel with an error where the condition holds, in any lane: with the numbers of the first such lane,
        or 0."""
        numbers = address or self.i64(0), value or self.i64(0)
        self._where(condition, *numbers, lambda first, second, after: self._end(code, site, first, second))

    def note(self, condition: Number, site: int, address: Number, value: Number) -> None:
        """Note what a tolerant kernel leaves out where the condition holds, in any lane, and go on."""

        def lines(first: str, second: str, after: str) -> list[str]:
            arguments = f"i64 {site}, i64 %program, i64 {first}, i64 {second}, ptr %launch"
            return [f"  call void @zg_note({arguments})", f"  br label %{after}"]

        self._where(condition, address, value, lines)

    def _where(
        self, condition: Number, address: Number, value: Number, ending: Callable[[str, str, str], list[str]]
    ) -> None:
        """Append a block that is reached if the condition holds in any lane. `ending` gives its last lines, by the
        names of the address and the value of the first such lane, and the label after it."""
        condition = condition.spread(max(condition.lanes, address.lanes, value.lanes))
        level = max(map(self.level, (condition.name, address.name, value.name)))
        bad, good = self.name("bad"), self.name("good")
        with self.at_level(level):
            self.line(f"br i1 {condition.any()}, label %{bad}, label %{good}, !prof !0")
        lines = [f"{bad}:"]
        lane = ""
        if condition.lanes:
            bits = f"%{self.name()}"
            lane = f"%{self.name()}"
            count = condition.lanes
            self.declarations[f"declare i{count} @llvm.cttz.i{count}(i{count}, i1)"] = None
            lines.append(f"  {bits} = bitcast {condition.typed} to i{count}")
            lines.append(f"  {lane} = call i{count} @llvm.cttz.i{count}(i{count} {bits}, i1 false)")
        names: list[str] = []
        for number in (address, value):
            name = number.name
            if number.lanes:
                name = f"%{self.name()}"
                lines.append(f"  {name} = extractelement {number.typed}, i{number.lanes} {lane}")
            names.append(name)
        with self.at_level(level):
            self.into.extend([*lines, *ending(names[0], names[1], good)])
            self.start(good)


def values_of(values: Any) -> Sequence[Number]:
    """The numbers of a value that may be a tuple."""
    return cast("tuple[Number, ...]", values) if isinstance(values, tuple) else (values,)
