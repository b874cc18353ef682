"""Emission of prints and assertions."""

from __future__ import annotations

import math
from collections.abc import Callable

from ziggurat.backend.llvm.routines import encoded, escaped
from ziggurat.backend.ptx.casts import widen
from ziggurat.backend.ptx.emitter import Argument, Emitted, PtxEmitter, emits
from ziggurat.backend.ptx.tensors import special_register
from ziggurat.codemodel.dialects import cf, tt
from ziggurat.codemodel.layout import bits_of
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.printed import before_value, hex_digits, index_widths, literals
from ziggurat.codemodel.types import PtrType, ScalarType, Type, element_of, f64, i1, shape_of
from ziggurat.transforms.analysis.queries import function_of

_BUFFER = 64  # Bytes for the arguments of a print: the program, an index along up to nine axes, and a value.


def text_constant(emitter: PtxEmitter, text: str) -> str:
    """A string in global memory, ended by a zero, as a generic pointer."""
    raw = encoded(text) + b"\0"

    def make() -> str:
        name = f"zg_text_{len(emitter.variables)}"
        kind = f"[{len(raw)} x i8]"
        emitter.variables[name] = f'@{name} = internal addrspace(1) constant {kind} c"{escaped(raw)}"'
        return f"addrspacecast (ptr addrspace(1) @{name} to ptr)"

    return emitter.once(("text", raw), make)


def print_text(emitter: PtxEmitter, form: str, arguments: list[Argument]) -> None:
    """Call CUDA's vprintf; arguments are of 4 or 8 bytes, as C's variadic functions take them."""
    size = 0
    places: list[int] = []
    for kind, _ in arguments:
        width = 4 if kind == "i32" else 8
        size = -(-size // width) * width
        places.append(size)
        size += width
    buffer = "null"
    if arguments:
        room = max(size, _BUFFER)
        buffer = emitter.once(("vprintf", room), lambda: emitter.emit(f"alloca [{room} x i8], align 8"))
    for (kind, value), place in zip(arguments, places, strict=True):
        at = emitter.emit(f"getelementptr i8, ptr {buffer}, i32 {place}")
        emitter.line(f"store {kind} {value}, ptr {at}")
    emitter.call("i32", "vprintf", ("ptr", text_constant(emitter, form)), ("ptr", buffer))


def _shown(emitter: PtxEmitter, op: tt.Print, value: str, type_: Type) -> tuple[str, Argument]:
    """The conversion of C's printf for a value, and the argument."""
    hexadecimal = op.hex
    element = element_of(type_)
    if isinstance(element, PtrType):
        return "0x%llx", ("i64", emitter.emit(f"ptrtoint ptr addrspace(1) {value} to i64"))
    assert isinstance(element, ScalarType)
    if element == i1 and not hexadecimal and not op.c_form:
        true, false = (text_constant(emitter, text) for text in ("True", "False"))
        return "%s", ("ptr", emitter.emit(f"select i1 {value}, ptr {true}, ptr {false}"))
    if element.is_float and not hexadecimal:
        return "%f" if op.c_form else f"%.{element.format.digits}g", (
            "double",
            widen(emitter, [value], element, f64)[0],
        )
    if element.is_float and not element.is_fp8:
        value = emitter.bits(value, element)
    wide = 64 if element.bits == 64 else 32
    signed = element.signed and not hexadecimal
    if element.bits < wide:
        value = emitter.emit(f"{'sext' if signed else 'zext'} i{element.bits} {value} to i{wide}")
    width, long = f"0{hex_digits(element.bits)}" if hexadecimal else "", "ll" if wide == 64 else ""
    conversion = "x" if hexadecimal else "d" if signed else "u"
    return f"{'0x' if hexadecimal else ''}%{width}{long}{conversion}", (f"i{wide}", value)


def _coordinates(emitter: PtxEmitter, number: str, shape: tuple[int, ...]) -> list[Argument]:
    """The index of an element along each axis, given its number."""
    arguments: list[Argument] = []
    index, shift = emitter.of("i32", number), bits_of(math.prod(shape))
    for size in shape:
        shift -= bits_of(size)
        arguments.append(("i32", ((index >> shift if shift else index) & size - 1).name))
    return arguments


@emits(tt.Print)
def _print(emitter: PtxEmitter, op: tt.Print) -> Emitted:
    """Print a line for each element, as the reference does, by the thread that owns it; in C's form a scalar, or the
    prefix alone, by each thread."""
    program = [("i32", special_register(emitter, f"ctaid.{axis}")) for axis in "xyz"]
    prefix = op.prefix.replace("%", "%%")
    if op.whole and any(shape_of(value.type) for value in op.values):
        _print_parts(emitter, op, prefix, program)
        return
    if op.whole:
        _guarded(emitter, emitter.owner(i1), lambda: _print_scalars(emitter, op, prefix))
        return
    if not op.values:
        owner = None if op.c_form else emitter.owner(i1)
        _guarded(emitter, owner, lambda: print_text(emitter, f"pid (%u, %u, %u) {prefix}\n", program))
    for position, value in enumerate(op.values):
        _print_value(emitter, op, value, program, before_value(prefix, position, len(op.values)))


def _print_parts(emitter: PtxEmitter, op: tt.Print, prefix: str, program: list[Argument]) -> None:
    """Print a text with tensors in it: lines for each value, after the part of the text before it."""
    for position, text in enumerate(literals(prefix)):
        if position < len(op.values):
            before = before_value(text.strip().removesuffix(":"), 0, 1)
            _print_value(emitter, op, op.values[position], program, before)
        elif text.strip():
            line = f"pid (%u, %u, %u) {text.strip()}\n"
            _guarded(emitter, emitter.owner(i1), lambda line=line: print_text(emitter, line, program))


def _print_scalars(emitter: PtxEmitter, op: tt.Print, prefix: str) -> None:
    texts = [_shown(emitter, op, emitter.at(value, 0), value.type) for value in op.values]
    print_text(emitter, prefix.format(*(form for form, _ in texts)), [argument for _, argument in texts])


def _print_value(emitter: PtxEmitter, op: tt.Print, value: Value, program: list[Argument], before: str) -> None:
    type_, shape = value.type, shape_of(value.type)
    index = ", ".join(f"%{width}u" for width in index_widths(shape))

    def show_all() -> None:
        layout = emitter.layout(type_)
        for register in layout.unique_registers:
            number = emitter.element(layout, register) if shape else "0"
            conversion, argument = _shown(emitter, op, emitter.at(value, register), type_)
            form = f"pid (%u, %u, %u) idx ({index}){before}{conversion}\n"
            print_text(emitter, form, [*program, *_coordinates(emitter, number, shape), argument])

    _guarded(emitter, None if op.c_form and not shape else emitter.owner(type_), show_all)


def _guarded(emitter: PtxEmitter, condition: str | None, emit: Callable[[], None]) -> None:
    """Put what `emit` emits under a condition; None is no condition."""
    if condition is None:
        emit()
        return
    then, after = emitter.name("then"), emitter.name("after")
    emitter.line(f"br i1 {condition}, label %{then}, label %{after}")
    emitter.start(then)
    emit()
    emitter.line(f"br label %{after}")
    emitter.start(after)


@emits(tt.Assert, cf.AssertOp)
def _assert(emitter: PtxEmitter, op: tt.Assert | cf.AssertOp) -> Emitted:
    """Call CUDA's handler of assertions: it prints file, line and message, and ends the launch with an error."""
    registers = emitter.layout(op.condition.type).unique_registers
    holds = emitter.both(*(emitter.at(op.condition, register) for register in registers))
    failed = emitter.emit(f"xor i1 {holds}, true")
    place = op.location
    source, file, line = (None, "<unknown>", 0) if place is None else (place.source_line(), place.file, place.line)
    message = "; ".join(part for part in (op.message, (source or "").strip()) if part) or "device assertion"

    def fail() -> None:
        texts = (message, file, function_of(emitter.module).sym_name)
        arguments, where, name = (("ptr", text_constant(emitter, text)) for text in texts)
        emitter.call("void", "__assertfail", arguments, where, ("i32", str(line)), name, ("i64", "1"))

    _guarded(emitter, failed, fail)
