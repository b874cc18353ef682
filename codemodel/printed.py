"""The texts that prints of a kernel write, in Triton's form: `pid (0, 0, 0) idx ( 7, 12) x: (operand 1) 3`.

Indices along an axis have equal widths. The number of an operand stands there if a print has several. The emission of
PTX (`backend/ptx/debug.py`) has the same form in the language of C's printf.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable, Sequence
from typing import Any

from ziggurat.codemodel.errors import ForeignError
from ziggurat.codemodel.types import ScalarType

# The array of an operand, and the type of its numbers: None for addresses.
Column = tuple[Any, ScalarType | None]


def show(text: str) -> None:
    """Print a text as it is. Raises `ForeignError` if the output cannot take it: a closed pipe, for example."""
    try:
        print(text, end="")
    except Exception as error:
        raise ForeignError(error) from error


def literals(whole: str) -> list[str]:
    """The texts before, between and after the values of a whole text of `tt.print`."""
    texts = [""]
    for text, field, _, _ in string.Formatter().parse(whole):
        texts[-1] += text
        texts += [""] if field is not None else []
    return texts


def index_widths(shape: Sequence[int]) -> list[int]:
    """The digits of the largest index along each axis."""
    return [len(str(size - 1)) for size in shape]


def before_value(prefix: str, operand: int, operands: int) -> str:
    """The text between the index of an element and its value: ` x: (operand 0) `."""
    label = f" {prefix}" if prefix else ""
    return f"{label}: (operand {operand}) " if operands > 1 else f"{label}: "


def hex_digits(bits: int) -> int:
    """The digits of a number of this width that is printed in hexadecimal, with leading zeros."""
    return max(1, bits // 4)


def number_text(number: Any, type_: ScalarType | None, hexadecimal: bool, c_form: bool) -> str:
    """A number as a line has it: of a scalar type, or an address if that is None. It is the number's bits if it is to
    be hexadecimal. `c_form` is that of `tt.print`."""
    if type_ is None or hexadecimal:
        return f"0x{int(number):0{1 if type_ is None else hex_digits(type_.bits)}x}"
    if not c_form:
        return str(number)
    return f"{float(number):f}" if type_.is_float else str(int(number))


def printed_text(
    pid: tuple[int, ...], prefix: str, columns: Sequence[Column], hexadecimal: bool, c_form: bool, whole: bool
) -> str:
    """The text of a `tt.print` for one program. `columns` has the operands."""
    from ziggurat.codemodel.scalars import bits_of  # It needs NumPy, which compilation does without.

    if whole:
        texts = [_text_of(array, type_, bits_of) for array, type_ in columns]
        return prefix.format(*texts)
    lines = [] if columns else [f"pid {pid} {prefix}\n"]
    for number, (array, type_) in enumerate(columns):
        is_bits = (hexadecimal or type_ is None) and array.dtype != bool
        values = bits_of(array).reshape(array.shape) if is_bits else array
        before = before_value(prefix, number, len(columns))
        for place in itertools.product(*map(range, array.shape)):
            text = number_text(values[place], type_, hexadecimal, c_form)
            index = ", ".join(f"{at:{width}}" for at, width in zip(place, index_widths(array.shape), strict=True))
            lines.append(f"pid {pid} idx ({index}){before}{text}\n")
    return "".join(lines)


def _text_of(array: Any, type_: ScalarType | None, bits_of: Callable[[Any], Any]) -> str:
    """A value as Python prints it: a number, or an array of NumPy; addresses in hexadecimal."""
    if type_ is not None:
        return str(array if array.shape else array[()])
    texts = [number_text(place, None, True, False) for place in bits_of(array).flat]
    return str(texts if array.shape else texts[0]).replace("'", "")
