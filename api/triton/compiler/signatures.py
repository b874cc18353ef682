"""The types of arguments as Triton writes them: `*fp32`, `i64`, `constexpr`, `tensordesc<fp16[64,64]>`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, cast

from ziggurat.codemodel import types
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.types import SCALARS, ConstantType, DescriptorType, PtrType, ScalarType, TupleType, Type, i1
from ziggurat.frontends.language.dtypes import E4B15, UNSUPPORTED
from ziggurat.frontends.language.dtypes import type_of as dtype_of
from ziggurat.triton._utils import type_canonicalisation_dict

_SHORT: Final = {
    scalar: dtype_of(scalar).name if scalar.is_float else scalar.name
    for scalar in (*SCALARS.values(), E4B15, *UNSUPPORTED)
} | {i1: "u1"}
_SCALARS: Final = {name: scalar for scalar, name in _SHORT.items()}
_DESCRIPTOR = re.compile(r"tensordesc<([^\[]*)\[([^\]]*)\]")


def type_text(type_: Type) -> Any:
    """The text of an argument's type; a tuple of them for a tuple."""
    if isinstance(type_, ScalarType):
        return _SHORT[type_]
    if isinstance(type_, PtrType):
        return f"*{'k' * type_.const}{type_text(type_.pointee)}"
    if isinstance(type_, DescriptorType):
        return f"tensordesc<{type_text(type_.element)}{list(type_.block)}>"
    if isinstance(type_, TupleType):
        texts, record = tuple(map(type_text, type_.components)), getattr(type_, "record", None)
        return texts if record is None or record.is_aggregate else record.cls(*texts)
    assert isinstance(type_, ConstantType), f"no argument has the type {type_}"
    return "constexpr"


def type_of(text: Any) -> Type:
    """The type of an argument for its text. Raises `LaunchError` for a text that is none."""
    if isinstance(text, (tuple, list)):
        from ziggurat.transforms.calls.lattice import type_of_tuple

        return type_of_tuple(text, tuple(map(type_of, cast("Sequence[Any]", text))))
    text_of_type = str(text).strip()
    name = text_of_type.removeprefix("const ").strip()
    if name.startswith("*") or name.endswith("*"):
        inner = name.removeprefix("*").removesuffix("*")
        return PtrType(scalar_of(inner.removeprefix("k")), const=name != text_of_type or inner.startswith("k"))
    match = _DESCRIPTOR.match(name)
    if match is not None:
        block = tuple(int(size) for size in match[2].split(",") if size.strip())
        return DescriptorType(block, scalar_of(match[1]), "zero")
    return scalar_of(name)


def scalar_of(text: str) -> ScalarType:
    """The dtype of a text: `fp32`, `tl.float32`, `float32`."""
    name = text.strip().removeprefix("tl.").removesuffix("_t")
    scalar = _SCALARS.get(type_canonicalisation_dict.get(name, name))
    if scalar is None:
        raise LaunchError(f"the type of an argument must be one of {', '.join(_SCALARS)}, or *fp32 …; got {text!r}")
    return scalar


def declared_of(annotation: Any) -> ScalarType | None:
    """The dtype that a parameter's annotation declares for numbers; None for any other annotation."""
    if isinstance(annotation, str):
        text = annotation.strip().strip("'\"").strip()
    else:
        text = str(getattr(annotation, "name", getattr(annotation, "__name__", "")))
    name = text.removeprefix("tl.").removeprefix("triton.language.").removesuffix("_t")
    scalar = _SCALARS.get(type_canonicalisation_dict.get(name, ""))
    return scalar or types.find_scalar(text if isinstance(annotation, str) else annotation)
