"""The emitter: a GPU model, op by op, as LLVM text for one thread.

A scalar is one LLVM value. A tensor is a list of them, one for each register number of its layout; registers that hold
copies share the value. A function registered with `@emits` emits the ops of a class: it takes the emitter and the op,
and returns the value (a str, a list, or a tuple of these for a Tuple).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, cast

from ziggurat.backend.ptx.lines import LineInfo
from ziggurat.backend.ptx.numbers import escaped, llvm_type
from ziggurat.backend.ptx.routines import Routine
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.layout import Layout
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Block, Op, Value
from ziggurat.codemodel.types import ScalarType, SharedType, TensorType, TupleType, Type, bf16, element_of, f16

Emitted = Any  # str, list[str], or a tuple of these; None for an op without a value.
Emission = Callable[["Emitter", Any], Emitted]
# A function from the registers of one to three operands to a register of the result.
Make = Callable[[str], str] | Callable[[str, str], str] | Callable[[str, str, str], str]

EMITTERS: OpTable[Emission] = OpTable("PTX emitter")
emits = EMITTERS.of


class Emitter:
    """The LLVM text of one kernel while it is written. `values` has the LLVM values for each value of the model."""

    def __init__(self, module: gpu.Module, options: CompileOptions) -> None:
        self.module = module
        self.options = options
        self.num_warps = module.num_warps
        self.capability = int("".join(filter(str.isdigit, module.target)))
        self.values: dict[Value, Emitted] = {}
        self.preamble: list[str] = []
        self.lines: list[str] = []
        self.declarations: dict[str, None] = {}
        # The module's routines and variables, by name.
        self.definitions: dict[str, str] = {}
        self.metadata: list[str] = []
        self.variables: dict[str, str] = {}
        self.types: dict[str, str] = {}
        # The current block. In a function with several blocks: their labels, and the values from each predecessor.
        self.label = "entry"
        self.labels: dict[Block, str] = {}
        self.incoming: dict[Block, list[tuple[list[Emitted], str]]] = {}
        # The threads that run the current ops: their barrier, and the mask of the elected thread, whose number has
        # none of these bits.
        self.barrier_text = "bar.sync 0;"
        self.elected_mask = 32 * self.num_warps - 1
        self._count = 0
        self.slot_bytes = 0  # The size of `@zg_slot`, which `allocate` does not count.
        self._entry: dict[Any, str] = {}
        self._into = self.lines
        func = kernel_of(module)
        self.places: LineInfo | None = None
        if options.line_info:
            self.places = LineInfo(func.sym_name, symbol_of(func.sym_name), first_place(func))
        self._place = ""

    # Text.

    def name(self, hint: str = "v") -> str:
        """A fresh name for a value or a block, without its sigil."""
        self._count += 1
        return f"{hint}{self._count}"

    def line(self, text: str) -> None:
        """Append an instruction without a result."""
        self._into.append(f"  {text}{self._place}")

    def emit(self, text: str) -> str:
        """Append an instruction; the name of its value."""
        name = f"%{self.name()}"
        self._into.append(f"  {name} = {text}{self._place}")
        return name

    def start(self, label: str) -> None:
        """Begin a block."""
        self._into.append(f"{label}:")
        self.label = label

    def declare(self, text: str) -> None:
        """Declare an external function, once."""
        self.declarations.setdefault(f"declare {text}")

    def define(self, name: str, make: Callable[[], Routine]) -> None:
        """Put a routine into the module, once."""
        if name not in self.definitions:
            routine = make()
            self.declarations.update(routine.declared)
            self.variables.update(routine.variables)
            self.definitions[name] = routine.text

    def slot(self, size: int) -> str:
        """The name of shared memory of at least `size` bytes, in which threads pass values within one op.

        All ops share it: each has a barrier after its writes, and one after its reads.
        """
        self.slot_bytes = max(self.slot_bytes, size, 16)
        self.variables["zg_slot"] = f"@zg_slot = internal addrspace(3) global [{self.slot_bytes} x i8] undef, align 16"
        return "@zg_slot"

    def call(self, result: str, function: str, *arguments: tuple[str, str], attributes: str = "") -> str:
        """Call an external function, declaring it. `arguments` are (type, value)."""
        self.declare(f"{result} @{function}({', '.join(kind for kind, _ in arguments)})")
        text = f"call {result} @{function}({', '.join(f'{kind} {value}' for kind, value in arguments)}){attributes}"
        if result == "void":
            self.line(text)
            return ""
        return self.emit(text)

    def struct(self, kind: str, count: int) -> str:
        """The struct of `count` values of one type. A long one is named, so that the text spells it once."""
        if count <= 8:
            return f"{{ {', '.join([kind] * count)} }}"
        name = f"%zg.{count}.{kind}"
        self.types.setdefault(name, f"{name} = type {{ {', '.join([kind] * count)} }}")
        return name

    def parts(self, struct: str, value: str, count: int) -> list[str]:
        """The values of a struct; a single value is no struct."""
        return [value] if count == 1 else [self.emit(f"extractvalue {struct} {value}, {at}") for at in range(count)]

    def asm(
        self,
        result: str,
        text: str,
        constraints: str,
        *arguments: tuple[str, str],
        effect: bool = False,
        reads: bool = False,
        convergent: bool = True,
    ) -> str:
        """Append inline assembly. `effect` keeps it in place, and `convergent` with the same threads.

        Assembly without an effect that `reads` memory stays between the writes around it, and is dropped without uses.
        """
        text = escaped(text.encode())
        side = " sideeffect" if effect else ""
        if reads:
            # Without the clobber, LLVM's alias analysis for NVPTX assumes that it touches no memory, whatever its
            # attributes say, and merges two reads of one address across barriers and writes.
            constraints += ",~{memory}"
        given = ", ".join(f"{kind} {value}" for kind, value in arguments)
        line = f'call {result} asm{side} "{text}", "{constraints}"({given})'
        if effect:
            line += " #1" if convergent else " #4"
        elif reads:
            line += " #3"
        if result == "void":
            self.line(line)
            return ""
        return self.emit(line)

    @contextmanager
    def threads(self, barrier: str, elected_mask: int) -> Any:
        """Emit ops for other threads until the end of the `with`: their barrier, and the mask of their elected one."""
        outer = self.barrier_text, self.elected_mask
        self.barrier_text, self.elected_mask = barrier, elected_mask
        try:
            yield
        finally:
            self.barrier_text, self.elected_mask = outer

    def barrier(self) -> None:
        """Append a barrier of the threads that run the current ops."""
        self.asm("void", self.barrier_text, "~{memory}", effect=True)

    @contextmanager
    def at_entry(self) -> Any:
        """Append to the entry block, which dominates all others, until the end of the `with`."""
        outer, place = self._into, self._place
        self._into, self._place = self.preamble, ""
        try:
            yield
        finally:
            self._into, self._place = outer, place

    def once(self, key: Any, make: Callable[[], str]) -> str:
        """A value of the entry block, emitted at the first request."""
        found = self._entry.get(key)
        if found is None:
            with self.at_entry():
                found = self._entry[key] = make()
        return found

    # Threads.

    def thread(self) -> str:
        """The number of the thread in the CTA, as i32."""
        return self.once("thread", lambda: self.call("i32", "llvm.nvvm.read.ptx.sreg.tid.x"))

    def linear(self, bits: Sequence[int], key: Any = None) -> str:
        """The xor of `bits[i]` over the bits i set in the thread's number: a linear map of threads to numbers."""
        wanted = tuple(bits)
        return self.once(("linear", wanted), lambda: self._linear(wanted))

    def _linear(self, bits: tuple[int, ...]) -> str:
        thread = self.thread()
        result = "0"
        position = 0
        used = 0
        while position < len(bits):
            basis = bits[position]
            if basis == 0:
                position += 1
                continue
            # One shift moves a run of bits that move by the same distance.
            end = position + 1
            if basis & (basis - 1) == 0:
                while end < len(bits) and bits[end] == basis << (end - position):
                    end += 1
            count = end - position
            if basis & (basis - 1) == 0:
                mask = ((1 << count) - 1) << position
                part = self.emit(f"and i32 {thread}, {mask}")
                shift = basis.bit_length() - 1 - position
                if shift > 0:
                    part = self.emit(f"shl nuw nsw i32 {part}, {shift}")
                elif shift < 0:
                    part = self.emit(f"lshr exact i32 {part}, {-shift}")
                spread = ((1 << count) - 1) * basis
            else:
                bit = self.emit(f"and i32 {thread}, {1 << position}")
                test = self.emit(f"icmp ne i32 {bit}, 0")
                part = self.emit(f"select i1 {test}, i32 {basis}, i32 0")
                spread = basis
            if result == "0":
                result = part
            else:
                result = self.emit(f"{'xor' if used & spread else 'or disjoint'} i32 {result}, {part}")
            used |= spread
            position = end
        return result

    def thread_bases(self, layout: Layout) -> tuple[int, ...]:
        """The bases of a layout's lanes and warps: one for each bit of the thread's number."""
        return (*layout.lanes, *layout.warps)

    def owner(self, layout: Layout | None) -> str | None:
        """A condition that holds in one of the threads that hold copies of an element; None where there are no copies.

        No layout stands for a scalar, which every thread holds.
        """
        if layout is None:
            mask = self.elected_mask
        else:
            _, lanes, warps = layout.free
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
        found: set[Any] = set()
        for op in self.module.walk():
            for value in (op.result, *(parameter for body in op.bodies for parameter in body.parameters)):
                found.update(element_of(part) for part in components(value.type))
        return {f16, bf16} <= found

    def bits(self, value: str, scalar: ScalarType) -> str:
        """The bits of a number as an LLVM integer."""
        kind = llvm_type(scalar)
        if kind[0] == "i":
            return value
        number = self.emit(f"bitcast {kind} {value} to i{scalar.bits}")
        if scalar.bits == 16 and self._has_both_halves:
            # LLVM 22 joins half → i16 → bfloat to one bitcast, and aborts where its result is compared with 0: it takes
            # the bitcast's operand for an integer ("fcmp oeq (bitcast X), 0" in InstCombine). ptxas drops the move.
            number = self.asm("i16", "mov.b16 $0, $1;", "=h,h", ("i16", number))
        return number

    def number(self, bits: str, scalar: ScalarType) -> str:
        """The number that has these bits."""
        kind = llvm_type(scalar)
        return bits if kind[0] == "i" else self.emit(f"bitcast i{scalar.bits} {bits} to {kind}")

    def scalar(self, value: Value) -> str:
        """The LLVM value of a scalar."""
        found = self.values[value]
        assert isinstance(found, str), f"{value!r} is not a scalar"
        return found

    def tensor(self, value: Value) -> list[str]:
        """The LLVM values of a tensor, one for each register."""
        found = self.values[value]
        assert isinstance(found, list), f"{value!r} is not a tensor"
        return found  # pyright: ignore[reportUnknownVariableType]

    def each(self, type_: Type, values: Iterable[Value], make: Make) -> Emitted:
        """Apply `make` to scalars, or to tensors register by register; copies are made once."""
        given = list(values)
        apply = cast("Callable[..., str]", make)
        if not isinstance(type_, TensorType):
            return apply(*(self.scalar(value) for value in given))
        layout = layout_of(type_)
        operands = [self.values[value] for value in given]
        made: dict[int, str] = {}
        result: list[str] = []
        for register in range(layout.num_registers):
            first = canonical(layout, register)
            if first not in made:
                made[first] = apply(*(o if isinstance(o, str) else o[first] for o in operands))
            result.append(made[first])
        return result

    def ops(self, ops: Iterable[Op]) -> None:
        """Emit ops in order."""
        outer = self._place
        for op in ops:
            self._place = self.places.suffix(op.location) if self.places is not None else ""
            made = EMITTERS[op](self, op)
            if made is not None:
                self.values[op.result] = made
        self._place = outer


def layout_of(type_: Type) -> Layout:
    """The layout of a tensor of a GPU model."""
    assert isinstance(type_, TensorType) and type_.layout is not None, f"{type_} has no layout"
    return type_.layout


def canonical(layout: Layout, register: int) -> int:
    """The first register that holds the same element."""
    return register & ~layout.free[0]


def is_tensor(type_: Type) -> bool:
    """True of tensors."""
    return isinstance(type_, TensorType)


def components(type_: Type) -> Sequence[Type]:
    """The types of the components of a packed value."""
    return type_.components if isinstance(type_, TupleType) else (type_,)


def emitted_type(type_: Type) -> str:
    """The LLVM type of a scalar, of a tensor's register, or of a buffer's address."""
    return "ptr addrspace(3)" if isinstance(type_, SharedType) else llvm_type(type_)


# Names that emission uses itself, and one that PTX reserves.
_RESERVED = re.compile(r"smem|zg_slot|zg_text_\d+|vprintf|__assertfail|WARP_SZ")
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_$]*|[_$][A-Za-z0-9_$]+")


def symbol_of(name: str) -> str:
    """A function's name, changed where PTX cannot have it."""
    symbol = re.sub(r"[^A-Za-z0-9_$]", "_", name)
    return symbol if _IDENTIFIER.fullmatch(symbol) and not _RESERVED.fullmatch(symbol) else f"kernel_{symbol}"


def first_place(func: tt.Func) -> Location | None:
    """The place of a kernel's source: that of the function, or of the first op that has one."""
    if func.location is not None:
        return func.location
    places = (op.location for op in func.body.entry.ops if op.location is not None and op.location.caller is None)
    return next(places, None)


def kernel_of(module: gpu.Module) -> tt.Func:
    """The one function of a GPU model."""
    functions = [op for op in module.body.entry.ops if isinstance(op, tt.Func)]
    if len(functions) != 1:
        raise InternalError(f"a GPU model has one function, this one has {len(functions)}", str(module))
    return functions[0]
