"""Checks of the constraints of inline assembly against its results and operands.

A result or an operand takes as many registers as hold `pack` elements: elements of fewer than 32 bits share one, up to
32 bits of them. Each register has a constraint, those of the results first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ziggurat.codemodel.assembly import LETTERS, parts_of, template_error
from ziggurat.codemodel.errors import KernelValueError
from ziggurat.codemodel.types import ConstantType, PtrType, ScalarType, Type, element_of
from ziggurat.transforms.calls.constants import describe, show
from ziggurat.transforms.calls.promotion import scalar_type

_CALL = "zg.inline_asm_elementwise"

_KNOWN = "b (a predicate), c (8 bits), h (16), r (32), l (64), f (f32), d (f64) and n (a constant)"
# The largest number of elements for which one run of the instructions has registers.
MAX_PACK = 64


def element_bytes(type_: Type) -> int:
    """Bytes of an element; an i1 is a byte, a pointer has 8."""
    element = element_of(type_)
    return element.bytes if isinstance(element, ScalarType) else 8


def per_register(type_: Type, pack: int) -> int:
    """The number of elements, at most `pack`, that one register holds."""
    return max(1, min(pack, 4 // element_bytes(type_)))


def check_assembly(text: str, constraints: str, arguments: Sequence[Type], results: Sequence[Type], pack: int) -> None:
    """Raises `KernelValueError` where the constraints are not those of the results and operands."""
    parts = parts_of(constraints)
    clobbers = [part for part in parts if part.startswith("~")]
    for part in clobbers:
        if not re.fullmatch(r"~\{\w+\}", part):
            raise KernelValueError(
                f"{_CALL}: '{part}' is no clobber", hint="write '~{memory}' for assembly that changes memory"
            )
    registers = [part for part in parts if not part.startswith("~")]
    typed = [_typed(argument) for argument in arguments]
    wanted = [*(("result", r) for r in results for _ in _registers(r, pack))]
    wanted += [("operand", a) for a in typed for _ in _registers(a, pack)]
    fitting = ",".join(_fitting(what, type_, pack) for what, type_ in wanted)
    hint = f"{fitting!r} fits these types{f' with pack={pack}' if pack > 1 else ''}"
    if len(registers) != len(wanted):
        outputs = sum(what == "result" for what, _ in wanted)
        inputs = len(wanted) - outputs
        raise KernelValueError(
            f"{_CALL}: the constraints {constraints!r} name {_count(len(registers), 'register')}; "
            f"{_count(outputs, 'register')} of results and {inputs} of operands are needed",
            hint=hint,
        )
    known = [argument for argument, type_ in zip(arguments, typed, strict=True) for _ in _registers(type_, pack)]
    for index, (part, (what, type_)) in enumerate(zip(registers, wanted, strict=True)):
        argument = None if what == "result" else known[index - sum(w == "result" for w, _ in wanted)]
        _check_one(part, what, type_, argument, registers, pack, hint)
    if wrong := template_error(text, len(registers)):
        raise KernelValueError(f"{_CALL}: {wrong[0]}", hint=wrong[1])


def _typed(argument: Type) -> Type:
    return scalar_type(argument) if isinstance(argument, ConstantType) else argument


def _registers(type_: Type, pack: int) -> range:
    return range(-(-pack // per_register(type_, pack)))


def _bits(type_: Type, pack: int) -> int:
    """The bits that one register holds of elements of a type."""
    return 8 * element_bytes(type_) * per_register(type_, pack)


def _allowed(type_: Type, pack: int) -> str:
    """The letters for registers of elements of a type; the first is the plainest."""
    element, bits = element_of(type_), _bits(type_, pack)
    if isinstance(element, PtrType):
        return "l"
    assert isinstance(element, ScalarType)
    if bits == 64:
        return "dl" if element.is_float else "ld"
    if bits == 32:
        return "fr" if element.is_float and element.bits == 32 else "rf"
    letters = {8: "rhc", 16: "hr"}[bits]
    return f"{letters}b" if element.kind == "bool" else letters


def _fitting(what: str, type_: Type, pack: int) -> str:
    return ("=" if what == "result" else "") + _allowed(type_, pack)[0]


def _check_one(
    part: str, what: str, type_: Type, argument: Type | None, registers: Sequence[str], pack: int, hint: str
) -> None:
    """One constraint of a result, or of an operand, whose type as it was given is `argument`."""
    letter = part
    if part.startswith("+"):
        raise KernelValueError(
            f"{_CALL}: '{part}' is no constraint here: what is read and written is a result and an operand",
            hint="give the operand the number of the result: '=r,0'",
        )
    if what == "result":
        if not part.startswith("="):
            raise KernelValueError(f"{_CALL}: results come first, and begin with '='; got '{part}'", hint=hint)
        letter = part.removeprefix("=").removeprefix("&")
    elif part.startswith("="):
        raise KernelValueError(f"{_CALL}: '{part}' is a result's constraint, and stands for an operand", hint=hint)
    elif part.isdecimal():
        number = int(part)
        if number >= len(registers) or not registers[number].startswith("="):
            raise KernelValueError(f"{_CALL}: the constraint '{part}' is the number of no result", hint=hint)
        letter = registers[number].lstrip("=&")
    elif part == "n":
        element = _typed(argument) if argument is not None else type_
        if not isinstance(argument, ConstantType) or scalar_type(element).is_float or pack > 1:
            raise KernelValueError(
                f"{_CALL}: 'n' takes an integer known at compile time; got {describe(argument or type_)}", hint=hint
            )
        return
    if letter not in LETTERS:
        raise KernelValueError(f"{_CALL}: the constraint {show(part)} is none of PTX's: {_KNOWN}", hint=hint)
    if letter not in _allowed(type_, pack):
        bits = _bits(type_, pack)
        held = f"{describe(argument)}" if isinstance(argument, ConstantType) else str(element_of(type_))
        several = f"{per_register(type_, pack)} elements of " if per_register(type_, pack) > 1 else ""
        raise KernelValueError(
            f"{_CALL}: '{part}' is a register of {_count(LETTERS[letter], 'bit')}; "
            f"the {what} has {bits} in one, {several}{held}",
            hint=hint,
        )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
