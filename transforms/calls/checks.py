"""Checks that the type rules of several calls share. Each raises an error in words for the kernel's author."""

from __future__ import annotations

from typing import Any

from ziggurat.codemodel.errors import KernelTypeError, KernelValueError
from ziggurat.codemodel.types import MAX_ELEMENTS, ScalarType, TensorType, Type
from ziggurat.transforms.calls.constants import describe, show
from ziggurat.transforms.calls.promotion import is_number, is_pointer, scalar_type
from ziggurat.transforms.calls.rule import Typing


def numbers(call: Typing, *types: Type) -> None:
    """Scalars and tensors of numbers, and constants."""
    for type_ in types:
        if not is_number(type_):
            given = f"a pointer, {type_}" if is_pointer(type_) else describe(type_)
            raise KernelTypeError(f"{call} takes numbers; got {given}")


def integers(call: Typing, **arguments: Type) -> None:
    """Arguments by name that hold integers."""
    for name, type_ in arguments.items():
        if not is_number(type_) or scalar_type(type_).is_float:
            raise KernelTypeError(f"{call}: '{name}' must be an integer or a tensor of integers; got {describe(type_)}")


def tensor(call: Typing, x: Type) -> TensorType:
    """A tensor of anything."""
    if not isinstance(x, TensorType):
        raise KernelTypeError(f"{call} takes a tensor; got {describe(x)}")
    return x


def number_tensor(call: Typing, x: Type) -> TensorType:
    """A tensor of numbers."""
    if not isinstance(x, TensorType) or not is_number(x):
        raise KernelTypeError(f"{call} takes a tensor of numbers; got {describe(x)}")
    return x


def condition(call: Typing, x: Type) -> None:
    """Something that is true or false."""
    if not is_number(x) or scalar_type(x).is_float:
        raise KernelTypeError(f"{call} takes a condition; got {describe(x)}")


def scalar_dtype(call: Typing, dtype: Any) -> ScalarType:
    """A dtype that is no pointer."""
    if not isinstance(dtype, ScalarType):
        raise KernelTypeError(f"{call} takes a dtype such as zg.f32; got {show(dtype)}")
    return dtype


def is_power_of_two(value: int) -> bool:
    """True of 1, 2, 4, 8 …"""
    return value > 0 and value & (value - 1) == 0


def shape(call: Typing, dims: Any) -> tuple[int, ...]:
    """A shape given as a constant: powers of two, at most 2²⁰ elements."""
    sizes: tuple[Any, ...] = (dims,) if isinstance(dims, int) else tuple(dims)
    count = 1
    for size in sizes:
        if type(size) is not int:
            raise KernelTypeError(f"{call}: a shape must be made of integers; got {show(size)}")
        if not is_power_of_two(size):
            raise KernelValueError(
                f"{call}: the size {size} in the shape {list(sizes)} is not a power of two",
                hint=f"use {1 << max(0, size - 1).bit_length()} (zg.next_power_of_2({size})) and mask what is beyond"
                if size > 0
                else None,
            )
        count *= size
    if count > MAX_ELEMENTS:
        raise KernelValueError(f"{call}: a tensor of shape {list(sizes)} has more than {MAX_ELEMENTS} elements")
    return sizes


def axis(call: object, number: int, rank: int) -> int:
    """An axis counted from 0; a negative one counts from the end."""
    if not -rank <= number < rank:
        raise KernelValueError(f"{call}: axis {number} is not one of the {rank} axes")
    return number % rank


def choice(name: str, value: Any, choices: dict[Any, Any]) -> None:
    """A constant that is one of a few."""
    if value not in choices:
        shown = ", ".join(repr(choice) for choice in choices)
        raise KernelValueError(f"{name} must be one of {shown}; got {show(value)}")
