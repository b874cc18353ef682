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
    good, constant = as_constant(value)
    if isinstance(constant, bool) and good:
        return str(int(constant))
    if isinstance(constant, int) and good:
        return str(constant) if constant >= 0 else f"({constant})"
    if isinstance(constant, float) and good:
        text = repr(constant) if math.isfinite(constant) else "NAN" if math.isnan(constant) else "INFINITY"
        return f"(-{text.lstrip('-')})" if constant < 0 else text
    if isinstance(constant, ScalarType) and good:
        return SPELLINGS[constant]
    if isinstance(constant, PtrType) and good:
        return spelled(constant)
    if isinstance(constant, str) and good:
        return constant
    is_list = isinstance(value, list | tuple)
    raise LaunchError(
        f"the macro '{name}' must be a number, a bool, a text of C or a dtype; got {type(value).__name__}",
        hint=f"give values to choose among to zg.triton_c: zg.triton_c(source, {name}=[32, 64])"
        if is_list
        else "write TYPE='float', TM=64 or TYPE=zg.f16",
    )


def check_type(kernel: str, name: str, declaration: ScalarType | PtrType, type_: Type) -> None:
    """Raise `LaunchError` unless an argument of this type can be converted to the declared one without loss."""
    if isinstance(type_, ConstantType):
        number = isinstance(type_.value, bool | int | float)
        fits = (
            number and isinstance(declaration, ScalarType) and (declaration.is_float or type(type_.value) is not float)
        )
    elif isinstance(type_, ScalarType) and isinstance(declaration, ScalarType) and type_.is_int:
        # A launch gives the first of i32, i64 and u64 that holds the integer.
        wide = 32 if declaration.is_float or declaration.bits < 32 else declaration.bits if declaration.signed else 64
        fits = declaration.is_float or type_.bits <= wide
    elif isinstance(type_, ScalarType) and isinstance(declaration, ScalarType):
        fits = type_ == declaration or (declaration.is_float and type_ == f32 and declaration.bits < 32)
    else:
        fits = type_ == declaration
    if not fits:
        got = repr(type_.value) if isinstance(type_, ConstantType) else spelled(type_)
        raise LaunchError(f"'{name}' of '{kernel}' is declared as {spelled(declaration)}; got {got}")
