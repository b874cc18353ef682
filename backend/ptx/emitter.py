"""The emitter: a GPU model, op by op, as LLVM text for one thread.

A scalar is one LLVM value. A tensor is a list of them, one for each register number of its layout; registers that hold
copies share the value. A function registered with `@emits` emits the ops of a class: it takes the emitter and the op,
and returns the value (a str, a list, or a tuple of these for a Tuple).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache, partial, reduce
from typing import TYPE_CHECKING, Any, cast

from ziggurat.backend.llvm.routines import Code, Number, escaped, llvm_type
from ziggurat.backend.ptx.lines import LineInfo, first_place
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.codemodel.layout import Layout, replicated
from ziggurat.codemodel.op import Block, Op, Value
from ziggurat.codemodel.types import PtrType, ScalarType, TensorType, Type, bf16, component_types, element_of, f16
from ziggurat.transforms.analysis.queries import function_of, layout_of

if TYPE_CHECKING:
    from ziggurat.backend.ptx.control import ValueJoin

Emitted = Any  # str, list[str], or a tuple of these; None for an op without a value.
Emission = Callable[["PtxEmitter", Any], Emitted]
Argument = tuple[str, str]  # An LLVM type and a value of it.

# The constraint of inline assembly for a value of an LLVM type.
_CONSTRAINTS = {
    "i1": "b", "i16": "h", "i32": "r", "i64": "l", "float": "f", "double": "d", "ptr": "l", "ptr addrspace(1)": "l",
    "ptr addrspace(3)": "r",
}  # fmt: skip
# The effects of inline assembly: numbers of LLVM's attributes (`assemble.py`). Without any, LLVM may move and merge it.
EFFECT = "#1"  # It stays in place, and runs in the same threads.
PURE = "#2"  # It runs in the same threads, and accesses no memory.
READS = "#3"  # It stays between the writes around it, and is dropped without uses.
EFFECT_OF_THREAD = "#4"  # It stays in place; each thread runs it for itself.

_BOOLEANS = {"true": 1, "false": 0}  # The literals of LLVM's i1.

# A function from the registers of one to three operands to a register of the result.
Make = (
    Callable[[Number], Number | str]
    | Callable[[Number, Number], Number | str]
    | Callable[[Number, Number, Number], Number | str]
)

EMITTERS: OpTable[Emission] = OpTable("PTX emitter")
emits = EMITTERS.of


class PtxEmitter(Code):
    """The LLVM text of one kernel while it is written. `values` has the LLVM values for each value of the model."""

    def __init__(self, module: gpu.Module, options: CompileOptions) -> None:
        super().__init__()
        self.module = module
        self.options = options
        (self.scope,) = module.scopes  # The threads that run the current ops.
        self.target = TARGETS[module.target]
        self.values: dict[Value, Emitted] = {}
        self.preamble: list[str] = []
        self.offsets: dict[str, tuple[str, int]] = {}  # Integers that are another plus a constant.
        self.metadata: list[str] = []
        self.types: dict[str, str] = {}
        self.early: set[Op] = set()  # Ops that have been emitted before their place.
        self.joins: dict[Block, ValueJoin] = {}  # All blocks but the first, in a function with several.
        self._slots: dict[str, int] = {}  # The sizes of `@zg_slot` and so on, which `allocate` does not count.
        self._entry: dict[tuple[int, Any], str] = {}
        # The words of 32 bits that values of 8 and 16 bits are pieces of, and the index of the piece.
        self.pieces: dict[str, tuple[str, int]] = {}
        self.products: dict[str, tuple[str, str]] = {}  # The factors of products that a sum need not round.
        func = function_of(module)
        self.places: LineInfo | None = None
        if options.line_info:
            self.places = LineInfo(func.sym_name, symbol_of(func.sym_name), first_place(func))

    # Text.

    def of(self, kind: str, name: str, lanes: int = 0) -> Number:
        """A value with the operators of its LLVM type."""
        return Number(self, kind, name, lanes)

    def slot(self, size: int) -> str:
        """The name of shared memory of at least `size` bytes, in which threads pass values within one op.

        All ops of a scope share it: each has a barrier after its writes, and one after its reads.
        """
        name = f"zg_slot_{self.scope.first}" if self.scope.first else "zg_slot"
        self._slots[name] = most = max(self._slots.get(name, 0), size, 16)
        self.variables[name] = f"@{name} = internal addrspace(3) global [{most} x i8] undef, align 16"
        return f"@{name}"

    @property
    def slot_bytes(self) -> int:
        """The bytes of all these slots."""
        return sum(self._slots.values())

    def call(self, result: str, function: str, *arguments: Argument) -> str:
        """Call an external function, declaring it."""
        text = self.called(result, function, *arguments)
        if result == "void":
            self.line(text)
            return ""
        return self.emit(text)

    def asm(
        self,
        results: Sequence[str],
        text: str,
        *arguments: Argument,
        effect: str = "",
        mask: str | None = None,
        early: bool = False,
        tied: bool = False,
        constraints: Sequence[str] | None = None,
    ) -> list[str]:
        """Append inline assembly; its results, given their types. Results and then arguments are `$0`, `$1` and so on.

        An instruction after "@mask " runs where the mask holds. With `early`, results do not share registers with
        arguments; with `tied`, each shares that of the argument of the same index. The types give the constraints if
        there are none.
        """
        guard = "" if mask is None else f"@${len(results) + len(arguments)} "
        text = _escaped(text.replace("@mask ", guard))
        if mask is not None:
            arguments = (*arguments, ("i1", mask))
        if constraints is None:
            constraints = [f"=&{_CONSTRAINTS[kind]}" if early else f"={_CONSTRAINTS[kind]}" for kind in results]
            for index, (kind, _) in enumerate(arguments):
                constraints.append(str(index) if tied and index < len(results) else _CONSTRAINTS[kind])
            if effect in (EFFECT, EFFECT_OF_THREAD, READS):
                # Without the clobber, LLVM's alias analysis for NVPTX assumes that assembly touches no memory, whatever
                # its attributes say, and merges two reads of one address across barriers and writes.
                constraints.append("~{memory}")
        side = " sideeffect" if effect in (EFFECT, EFFECT_OF_THREAD) else ""
        operands = ", ".join(map(" ".join, arguments))
        result = self._struct(results)
        line = f'call {result} asm{side} "{text}", "{",".join(constraints)}"({operands}) {effect}'.rstrip()
        if not results:
            self.line(line)
            return []
        name = self.emit(line)
        if len(results) == 1:
            return [name]
        return [self.emit(f"extractvalue {result} {name}, {at}") for at in range(len(results))]

    def _struct(self, kinds: Sequence[str]) -> str:
        """The type of the results of assembly. A long struct is named, so that the text spells it once."""
        if len(kinds) < 2:
            return kinds[0] if kinds else "void"
        text = f"{{ {', '.join(kinds)} }}"
        if len(kinds) <= 8:
            return text
        name = f"%zg.{len(kinds)}.{kinds[0]}"
        self.types.setdefault(name, f"{name} = type {text}")
        return name

    def barrier(self) -> None:
        """Append a barrier of the threads that run the current ops."""
        number, threads = self.scope.barrier, self.scope.threads
        if not number and self.scope.warps != self.module.num_warps:
            raise InternalError("a role without a barrier comes to one", str(self.module))
        if threads == 32:  # The warp is in step there, so that ptxas makes no instruction of this.
            self.asm((), "bar.warp.sync -1;", effect=EFFECT)
        else:
            self.asm((), f"bar.sync {number}, {threads};" if number else "bar.sync 0;", effect=EFFECT)

    def once(self, key: Any, make: Callable[[], str]) -> str:
        """A value of the entry block, which dominates all others, emitted at the first request.

        It is another one for scopes with another first warp.
        """
        key = self.scope.first, key
        if key not in self._entry:
            outer, place = self._into, self._place
            self._into, self._place = self.preamble, ""
            self._entry[key] = make()
            self._into, self._place = outer, place
        return self._entry[key]

    # Threads.

    def thread(self) -> str:
        """The number of the thread in its scope, as i32."""

        def make() -> str:
            thread = self.call("i32", "llvm.nvvm.read.ptx.sreg.tid.x")
            return self.emit(f"sub nsw i32 {thread}, {32 * self.scope.first}") if self.scope.first else thread

        return self.once("thread", make)

    def linear(self, bits: Sequence[int]) -> str:
        """The xor of `bits[i]` over the bits i set in the thread's number: a linear map of threads to numbers."""

        def make() -> str:
            thread, result, result_bits, position = self.thread(), "0", 0, 0
            while position < len(bits):
                first, basis, position = position, bits[position], position + 1
                if not basis:
                    continue
                if basis & (basis - 1):
                    bit = self.emit(f"and i32 {thread}, {1 << first}")
                    test = self.emit(f"icmp ne i32 {bit}, 0")
                    part, part_bits = self.emit(f"select i1 {test}, i32 {basis}, i32 0"), basis
                else:
                    # One shift moves a run of bits that move by the same distance.
                    while position < len(bits) and bits[position] == basis << position - first:
                        position += 1
                    run = (1 << position - first) - 1
                    part, part_bits = self.emit(f"and i32 {thread}, {run << first}"), run * basis
                    shift = basis.bit_length() - 1 - first
                    if shift:
                        opcode = "shl nuw nsw" if shift > 0 else "lshr exact"
                        part = self.emit(f"{opcode} i32 {part}, {abs(shift)}")
                if result_bits:
                    part = self.emit(f"{'xor' if result_bits & part_bits else 'or disjoint'} i32 {result}, {part}")
                result, result_bits = part, result_bits | part_bits
            return result

        return self.once(("linear", tuple(bits)), make)

    def moved(self, number: str, constant: int) -> str:
        """The xor of a number and a constant."""
        return self.emit(f"xor i32 {number}, {constant}") if constant else number

    def element(self, layout: Layout, register: int) -> str:
        """The number of the element that a register of this thread holds."""
        return self.moved(self.linear(layout.threads), layout.element(register))

    def owner(self, type_: Type) -> str | None:
        """A condition that holds in one of the threads that hold copies of an element; None where there are no copies.

        Every thread holds a scalar.
        """
        mask = (1 << (self.scope.threads - 1).bit_length()) - 1
        if isinstance(type_, TensorType):
            _, lanes, warps = layout_of(type_).free
            mask = lanes | warps << 5
        if mask == 0:
            return None

        def make() -> str:
            masked = self.emit(f"and i32 {self.thread()}, {mask}")
            return self.emit(f"icmp eq i32 {masked}, 0")

        return self.once(("owner", mask), make)

    # Values.

    @cached_property
    def _has_both_halves(self) -> bool:
        """Whether values of both f16 and bf16 are in the kernel."""
        halves: set[Any] = set()
        for op in self.module.walk():
            for value in (op.result, *(parameter for body in op.bodies for parameter in body.parameters)):
                halves.update(element_of(part) for part in component_types(value.type))
        return {f16, bf16} <= halves

    def parts(self, value: str) -> tuple[str, int]:
        """An integer as a value plus a constant; the value is "" for a constant."""
        if value[0] == "%" or value == "poison":
            return self.offsets.get(value, (value, 0))
        return "", int(_BOOLEANS.get(value, value))

    def offset(self, kind: str, value: str, by: int, flags: str = "") -> str:
        """The sum of a value and a constant, modulo the size of the type, with these parts."""
        half = 1 << int(kind[1:]) - 1
        by = (by + half) % (2 * half) - half
        if not value or not by:
            return value or str(by)
        name = self.emit(f"add {flags}{kind} {value}, {by}")
        self.offsets[name] = value, by
        return name

    def bits(self, value: str, scalar: ScalarType | PtrType) -> str:
        """The bits of a number, or of an address, as an LLVM integer."""
        kind = llvm_type(scalar)
        if kind[0] == "i":
            return value
        if isinstance(scalar, PtrType):
            return self.emit(f"ptrtoint {kind} {value} to i64")
        number = self.emit(f"bitcast {kind} {value} to i{scalar.bits}")
        if scalar.bits == 16 and self._has_both_halves:
            # LLVM 22 joins half → i16 → bfloat to one bitcast, and aborts where its result is compared with 0: it takes
            # the bitcast's operand for an integer ("fcmp oeq (bitcast X), 0" in InstCombine). ptxas drops the move.
            (number,) = self.asm(("i16",), "mov.b16 $0, $1;", ("i16", number))
        return self.same_piece(value, number)

    def number(self, bits: str, scalar: ScalarType | PtrType) -> str:
        """The number, or the address, that has these bits."""
        kind = llvm_type(scalar)
        if isinstance(scalar, PtrType):
            return self.emit(f"inttoptr i64 {bits} to {kind}")
        return bits if kind[0] == "i" else self.same_piece(bits, self.emit(f"bitcast i{scalar.bits} {bits} to {kind}"))

    def same_piece(self, value: str, other: str) -> str:
        """Another value with the bits of a value: the same piece of a word, if it is one."""
        if value in self.pieces:
            self.pieces[other] = self.pieces[value]
        return other

    def scalar(self, value: Value) -> str:
        """The LLVM value of a scalar."""
        register = self.values[value]
        assert isinstance(register, str), f"{value!r} is not a scalar"
        return register

    def tensor(self, value: Value) -> list[str]:
        """The LLVM values of a tensor, one for each register."""
        registers = self.values[value]
        assert isinstance(registers, list), f"{value!r} is not a tensor"
        return registers  # pyright: ignore[reportUnknownVariableType]

    def at(self, value: Value, register: int) -> str:
        """The LLVM value of a scalar, or of a register of a tensor."""
        registers = self.values[value]
        return registers if isinstance(registers, str) else registers[register]

    def mask(self, value: Value | None, register: int) -> str | None:
        """The mask of a register; None for no mask."""
        return None if value is None else self.at(value, register)

    def both(self, *conditions: str | None) -> str | None:
        """The conjunction of the conditions that are not None; None for none."""
        result, *others = [condition for condition in conditions if condition is not None] or [None]
        for condition in others:
            result = self.emit(f"and i1 {result}, {condition}")
        return result

    def layout(self, type_: Type) -> Layout:
        """The layout of a tensor, or of a scalar: one element that every thread holds."""
        return layout_of(type_) if isinstance(type_, TensorType) else replicated(1, self.scope.warps)

    def value(self, type_: Type, registers: Mapping[int, str]) -> Emitted:
        """A tensor or a scalar from the values of the registers that are not copies."""
        if not isinstance(type_, TensorType):
            return registers[0]
        layout = layout_of(type_)
        mask = ~layout.free[0]
        return [registers[register & mask] for register in range(layout.num_registers)]

    def all(self, type_: Type, values: Sequence[Value], make: Callable[..., Iterable[str]]) -> Emitted:
        """Apply `make` to scalars, or to all registers of tensors at once: to a list for each operand. Copies are
        left out."""
        registers = layout_of(type_).unique_registers if isinstance(type_, TensorType) else (0,)
        results = make(*([self.at(value, register) for register in registers] for value in values))
        return self.value(type_, dict(zip(registers, results, strict=True)))

    def each(self, type_: Type, values: Sequence[Value], make: Make) -> Emitted:
        """Apply `make` to scalars, or to tensors register by register; copies are made once."""
        kinds, of = [llvm_type(value.type) for value in values], partial(Number, self)
        call = cast("Callable[..., Number | str]", make)

        def apply(*columns: Sequence[str]) -> list[str]:
            return [str(call(*map(of, kinds, row))) for row in zip(*columns, strict=True)]

        return self.all(type_, values, apply)

    def ops(self, ops: Iterable[Op]) -> None:
        """Emit ops in order."""
        outer = self._place
        for op in ops:
            if op in self.early:
                continue
            self._place = self.places.suffix(op.location) if self.places is not None else ""
            results = EMITTERS[op](self, op)
            if results is not None:
                self.values[op.result] = results
        self._place = outer


@lru_cache(maxsize=1024)
def _escaped(text: str) -> str:
    """An instruction's text as LLVM quotes it. The same few are written again and again."""
    return escaped(text.encode())


def canonical(layout: Layout, register: int) -> int:
    """The first register that holds the same element."""
    return register & ~layout.free[0]


def spread(bases: Sequence[int]) -> int:
    """The bits that are set in at least one basis."""
    return reduce(int.__or__, bases, 0)


# Names that emission uses itself, and one that PTX reserves.
_RESERVED = re.compile(r"smem|zg_slot(?:_\d+)?|zg_text_\d+|vprintf|__assertfail|WARP_SZ")
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_$]*|[_$][A-Za-z0-9_$]+")


def symbol_of(name: str) -> str:
    """A function's name, changed where PTX cannot have it."""
    symbol = re.sub(r"[^A-Za-z0-9_$]", "_", name)
    return symbol if _IDENTIFIER.fullmatch(symbol) and not _RESERVED.fullmatch(symbol) else f"kernel_{symbol}"
