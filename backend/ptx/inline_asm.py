"""Emission of `tt.elementwise_inline_asm`: the author's PTX on the elements that a thread holds, `pack` at a time.

Elements of fewer than 32 bits are packed into registers of 32 bits as far as `pack` goes, the first in the lowest bits.
Each register has a constraint, the results first. Copies of elements are computed again.
"""

from __future__ import annotations

from ziggurat.backend.ptx.emitter import EFFECT, Argument, Emitted, Emitter, emits
from ziggurat.backend.ptx.words import from_words, to_words
from ziggurat.codemodel.assembly import LETTERS, parts_of
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.types import PtrType, ScalarType, TensorType, Type, element_of
from ziggurat.transforms.calls.assembly import element_bytes as _size
from ziggurat.transforms.calls.assembly import per_register as _per_register
from ziggurat.transforms.place.components import component_types

_KINDS = {**{letter: f"i{bits}" for letter, bits in LETTERS.items()}, "f": "float", "d": "double"}


def _registers(emitter: Emitter, values: list[str], type_: Type) -> list[str]:
    """Elements as packed integers."""
    element, size = element_of(type_), _size(type_)
    if isinstance(element, PtrType):
        return [emitter.emit(f"ptrtoint ptr addrspace(1) {value} to i64") for value in values]
    assert isinstance(element, ScalarType)
    return to_words(emitter, values, element, size * _per_register(type_, len(values)))


def _elements(emitter: Emitter, registers: list[str], type_: Type, count: int) -> list[str]:
    """The inverse of `_registers`."""
    element, size = element_of(type_), _size(type_)
    if isinstance(element, PtrType):
        return [emitter.emit(f"inttoptr i64 {value} to ptr addrspace(1)") for value in registers]
    assert isinstance(element, ScalarType)
    return from_words(emitter, registers, element, size * _per_register(type_, count))


def _as(emitter: Emitter, value: str, bits: int, kind: str, back: bool) -> str:
    """An integer of `bits` bits as a register of a constraint's type, or the reverse with `back`."""
    width = {"float": 32, "double": 64}.get(kind) or int(kind[1:])
    whole, number = f"i{width}", f"i{bits}"
    if back:
        if kind[0] != "i":
            value = emitter.emit(f"bitcast {kind} {value} to {whole}")
        if width == bits:
            return value
        return emitter.emit(f"{'trunc' if width > bits else 'zext'} {whole} {value} to {number}")
    if width != bits:
        value = emitter.emit(f"{'zext' if width > bits else 'trunc'} {number} {value} to {whole}")
    return value if kind[0] == "i" else emitter.emit(f"bitcast {whole} {value} to {kind}")


def _kind(constraint: str, bits: int = 32) -> str:
    letter = constraint.lstrip("=&")
    if letter == "n":
        return f"i{bits}"  # A constant is written into the text.
    return _KINDS[letter]


@emits(tt.InlineAsm)
def _inline(emitter: Emitter, op: tt.InlineAsm) -> Emitted:
    types = component_types(op.type)
    constraints = parts_of(op.constraints)
    outputs = [part for part in constraints if part.startswith("=")]
    inputs = [part for part in constraints if not part.startswith(("=", "~"))]
    count = emitter.layout(types[0]).num_registers
    results: list[list[str]] = [[] for _ in types]
    for first in range(0, count, op.pack):
        places = [min(first + index, count - 1) for index in range(op.pack)]
        arguments: list[Argument] = []
        for value in op.values:
            given = [emitter.at(value, place) for place in places]
            bits = 8 * _size(value.type) * _per_register(value.type, op.pack)
            for register in _registers(emitter, given, value.type):
                _expect(op, len(arguments) < len(inputs), f"more operands than its constraints '{op.constraints}' name")
                letter = inputs[len(arguments)]
                kind = _kind(outputs[int(letter)] if letter.isdecimal() else letter, bits)
                arguments.append((kind, _as(emitter, register, bits, kind, False)))
        kinds = [_kind(part) for part in outputs]
        _expect(op, len(arguments) == len(inputs), f"fewer operands than its constraints '{op.constraints}' name")
        effect = "" if op.is_pure else EFFECT
        registers = emitter.asm(kinds, op.asm, *arguments, effect=effect, constraints=constraints)
        for type_, into in zip(types, results, strict=True):
            per = _per_register(type_, op.pack)
            number = -(-op.pack // per)
            _expect(op, len(registers) >= number, f"more results than its constraints '{op.constraints}' name")
            mine, registers = registers[:number], registers[number:]
            at = len(kinds) - len(registers) - number
            words = [
                _as(emitter, register, 8 * _size(type_) * per, kinds[at + index], True)
                for index, register in enumerate(mine)
            ]
            into += _elements(emitter, words, type_, op.pack)
        _expect(op, not registers, f"fewer results than its constraints '{op.constraints}' name")
    tensor = isinstance(types[0], TensorType)
    emitted = [values[:count] if tensor else values[0] for values in results]
    return emitted[0] if len(emitted) == 1 else tuple(emitted)


def _expect(op: tt.InlineAsm, good: bool, message: str) -> None:
    if not good:
        raise InternalError(f"{op.NAME} has {message}", str(op.root()))
