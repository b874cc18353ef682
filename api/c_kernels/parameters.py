"""The parameters of kernels in Triton-C: their names in Python, the texts of macros, and the types of arguments."""

from __future__ import annotations

import keyword
import math
from typing import Any

from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.types import ConstantType, PtrType, ScalarType, Type, f32
from ziggurat.frontends.language.constants import as_constant
from ziggurat.frontends.triton_c.declared import SPELLINGS, spelled


def python_name(name: str) -> str:
    """The name of a parameter of C in Python."""
    return f"{name}_" if keyword.iskeyword(name) else name


def macro_text(name: str, value: Any) -> str:
    """The replacement of a macro. Raises `LaunchError` for a value that has no text in C."""
    good, known = as_constant(value)
    if isinstance(known, bool) and good:
        return str(int(known))
    if isinstance(known, int) and good:
        return str(known) if known >= 0 else f"({known})"
    if isinstance(known, float) and good:
        text = repr(known) if math.isfinite(known) else "NAN" if math.isnan(known) else "INFINITY"
        return f"(-{text.lstrip('-')})" if known < 0 else text
    if isinstance(known, ScalarType) and good:
        return SPELLINGS[known]
    if isinstance(known, PtrType) and good:
        return spelled(known)
    if isinstance(known, str) and good:
        return known
    listed = isinstance(value, list | tuple)
    raise LaunchError(
        f"the macro '{name}' must be a number, a bool, a text of C or a dtype; got {type(value).__name__}",
        hint=f"give values to choose among to zg.triton_c: zg.triton_c(source, {name}=[32, 64])"
        if listed
        else "write TYPE='float', TM=64 or TYPE=zg.f16",
    )


def check_type(kernel: str, name: str, declared: ScalarType | PtrType, given: Type) -> None:
    """Raise `LaunchError` unless an argument of this type can be converted to the declared one without loss."""
    if isinstance(given, ConstantType):
        number = isinstance(given.value, bool | int | float)
        fits = number and isinstance(declared, ScalarType) and (declared.is_float or not isinstance(given.value, float))
    elif isinstance(given, ScalarType) and isinstance(declared, ScalarType) and given.is_int:
        # A launch gives the first of i32, i64 and u64 that holds the integer.
        wide = 32 if declared.is_float or declared.bits < 32 else declared.bits if declared.signed else 64
        fits = declared.is_float or given.bits <= wide
    elif isinstance(given, ScalarType) and isinstance(declared, ScalarType):
        fits = given == declared or (declared.is_float and given == f32 and declared.bits < 32)
    else:
        fits = given == declared
    if not fits:
        got = repr(given.value) if isinstance(given, ConstantType) else spelled(given)
        raise LaunchError(f"'{name}' of '{kernel}' is declared as {spelled(declared)}; got {got}")
