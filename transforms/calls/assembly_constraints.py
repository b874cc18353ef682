"""Checks of the constraints of inline assembly against its results and operands.

A result or an operand takes as many registers as hold `pack` elements: elements of fewer than 32 bits share one, up to
32 bits of them. Each register has a constraint, those of the results first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import attrs

from ziggurat.codemodel.assembly import LETTERS, parts_of, template_error
from ziggurat.codemodel.errors import KernelValueError
from ziggurat.codemodel.messages import say
from ziggurat.codemodel.types import ConstantType, PtrType, ScalarType, Type, element_bytes, element_of
from ziggurat.transforms.calls.constant_arguments import describe, show
from ziggurat.transforms.calls.promotion import scalar_type

_KNOWN = "b (a predicate), c (8 bits), h (16), r (32), l (64), f (f32), d (f64) and n (a constant)"
# The largest number of elements for which one run of the instructions has registers.
MAX_PACK = 64


def per_register(type_: Type, pack: int) -> int:
    """The number of elements, at most `pack`, that one register holds."""
    return max(1, min(pack, 4 // element_bytes(type_)))


@attrs.frozen
class _Register:
    """A register of a "result" or an "operand" (`what`), made of `source_type`, in assembly for `pack` elements."""

    what: str
    source_type: Type
    pack: int

    @property
    def type(self) -> Type:
        """The type of the elements; that of a constant is its dtype."""
        return scalar_type(self.source_type) if isinstance(self.source_type, ConstantType) else self.source_type

    @property
    def element_count(self) -> int:
        """The number of elements in the register."""
        return per_register(self.type, self.pack)

    @property
    def bits(self) -> int:
        """The bits of these elements."""
        return 8 * element_bytes(self.type) * self.element_count

    @property
    def letters(self) -> str:
        """The letters that fit; the first is the plainest."""
        element = element_of(self.type)
        if isinstance(element, PtrType):
            return "l"
        assert isinstance(element, ScalarType)
        if self.bits == 64:
            return "dl" if element.is_float else "ld"
        if self.bits == 32:
            return "fr" if element.is_float and element.bits == 32 else "rf"
        letters = {8: "rhc", 16: "hr"}[self.bits]
        return f"{letters}b" if element.kind == "bool" else letters


def check_assembly(
    call: str, text: str, constraints: str, arguments: Sequence[Type], results: Sequence[Type], pack: int
) -> None:
    """Raises `KernelValueError`, for the call of this name, where the constraints are not those of the results and
    operands."""
    parts = parts_of(constraints)
    for part in parts:
        if part.startswith("~") and not re.fullmatch(r"~\{\w+\}", part):
            raise KernelValueError(
                say("{}: '{}' is no clobber", call, part), hint="write '~{memory}' for assembly that changes memory"
            )
    registers = [part for part in parts if not part.startswith("~")]
    values = [_Register("result", type_, pack) for type_ in results]
    values += [_Register("operand", type_, pack) for type_ in arguments]
    required = [register for register in values for _ in range(-(-pack // register.element_count))]
    fitting = ",".join(("=" if register.what == "result" else "") + register.letters[0] for register in required)
    hint = f"{fitting!r} fits these types{f' with pack={pack}' if pack > 1 else ''}"
    if len(registers) != len(required):
        outputs = sum(register.what == "result" for register in required)
        raise KernelValueError(
            say(
                "{}: the constraints {!r} name {}; {} of results and {} of operands are needed",
                call,
                constraints,
                _count(len(registers), "register"),
                _count(outputs, "register"),
                len(required) - outputs,
            ),
            hint=hint,
        )
    for part, register in zip(registers, required, strict=True):
        if part.startswith("+"):
            raise KernelValueError(
                say("{}: '{}' is no constraint here: what is read and written is a result and an operand", call, part),
                hint="give the operand the number of the result: '=r,0'",
            )
        if (wrong := _objection(part, register, registers)) is not None:
            raise KernelValueError(say("{}: {}", call, wrong), hint=hint)
    if wrong := template_error(text, len(registers)):
        raise KernelValueError(say("{}: {}", call, wrong[0]), hint=wrong[1])


def _objection(part: str, register: _Register, names: Sequence[str]) -> str | None:
    """The reason why a constraint, one of `names`, does not fit its register; None where it does."""
    type_, letter = register.source_type, part
    if register.what == "result":
        if not part.startswith("="):
            return f"results come first, and begin with '='; got '{part}'"
        letter = part.removeprefix("=").removeprefix("&")
    elif part.startswith("="):
        return f"'{part}' is a result's constraint, and stands for an operand"
    elif part.isdecimal():
        if int(part) >= len(names) or not names[int(part)].startswith("="):
            return f"the constraint '{part}' is the number of no result"
        letter = names[int(part)].lstrip("=&")
    elif part == "n":
        fits = isinstance(type_, ConstantType) and not scalar_type(type_).is_float and register.pack == 1
        return None if fits else f"'n' must be an integer known at compile time; got {describe(type_)}"
    if letter not in LETTERS:
        return f"the constraint {show(part)} is none of PTX's: {_KNOWN}"
    if letter in register.letters:
        return None
    content = describe(type_) if isinstance(type_, ConstantType) else str(element_of(type_))
    several = f"{register.element_count} elements of " if register.element_count > 1 else ""
    width = _count(LETTERS[letter], "bit")
    return f"'{part}' is a register of {width}; the {register.what} has {register.bits} in one, {several}{content}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
