"""Emission of `tt.elementwise_inline_asm`: the author's PTX on the elements that a thread holds, `pack` at a time.

Elements of fewer than 32 bits are packed into registers of 32 bits as far as `pack` goes, the first in the lowest bits.
Each register has a constraint, the results first. Copies of elements are computed again.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from ziggurat.backend.ptx.emitter import EFFECT, Argument, Emitted, PtxEmitter, emits
from ziggurat.backend.ptx.packed_words import from_words, to_words
from ziggurat.codemodel.assembly import LETTERS, parts_of
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.types import TensorType, Type, component_types, value_element
from ziggurat.transforms.calls.assembly_constraints import per_register

_WIDTHS = {"float": 32, "double": 64}
_KINDS = {**{letter: f"i{bits}" for letter, bits in LETTERS.items()}, "f": "float", "d": "double"}


def _as(emitter: PtxEmitter, value: str, source: str, target: str) -> str:
    """A value as another type, widened by zeros or cut as an integer."""
    before, after = (_WIDTHS.get(kind) or int(kind[1:]) for kind in (source, target))
    x = emitter.of(source, value)
    if source in _WIDTHS:
        x = x.bits()
    if before != after:
        x = x.to("trunc" if before > after else "zext", f"i{after}")
    return (x.to("bitcast", target) if target in _WIDTHS else x).name


def _number(types: Iterable[Type], pack: int) -> int:
    """The number of registers of `pack` elements of each type."""
    return sum(-(-pack // per_register(type_, pack)) for type_ in types)


@emits(tt.InlineAsm)
def _inline(emitter: PtxEmitter, op: tt.InlineAsm) -> Emitted:
    types = component_types(op.type)
    constraints = parts_of(op.constraints)
    outputs = [part for part in constraints if part.startswith("=")]
    inputs = [part for part in constraints if not part.startswith(("=", "~"))]
    counts = _number(types, op.pack), _number((value.type for value in op.values), op.pack)
    if (len(outputs), len(inputs)) != counts:
        message = f"{op.NAME} has {counts[0]} registers of results and {counts[1]} of operands, unlike its constraints"
        raise InternalError(f"{message} '{op.constraints}'", str(op.root()))
    kinds = [_KINDS[part.lstrip("=&")] for part in outputs]
    count = emitter.layout(types[0]).num_registers
    results: list[list[str]] = [[] for _ in types]
    for first in range(0, count, op.pack):
        places = [min(first + index, count - 1) for index in range(op.pack)]
        arguments: list[Argument] = []
        for value in op.values:
            element = value_element(value.type)
            word = element.bytes * per_register(value.type, op.pack)
            for item in to_words(emitter, [emitter.at(value, place) for place in places], element, word):
                letter = inputs[len(arguments)]
                letter = outputs[int(letter)].lstrip("=&") if letter.isdecimal() else letter
                kind = _KINDS.get(letter, f"i{8 * word}")  # "n" is a constant, which is written into the text.
                arguments.append((kind, _as(emitter, item, f"i{8 * word}", kind)))
        effect = "" if op.is_pure else EFFECT
        kinds_and_names = zip(
            kinds, emitter.asm(kinds, op.asm, *arguments, effect=effect, constraints=constraints), strict=True
        )
        for type_, into in zip(types, results, strict=True):
            element = value_element(type_)
            word = element.bytes * per_register(type_, op.pack)
            own = islice(kinds_and_names, _number([type_], op.pack))
            words = [_as(emitter, register, kind, f"i{8 * word}") for kind, register in own]
            into += from_words(emitter, words, element, word)
    tensor = isinstance(types[0], TensorType)
    registers = [values[:count] if tensor else values[0] for values in results]
    return registers[0] if len(registers) == 1 else tuple(registers)
