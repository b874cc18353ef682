"""The names of types in signatures: `fp32`, `i32`, `u1`, `*bf16`; and items of nested tuples by their paths."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from ziggurat.codemodel.types import MAX_ELEMENTS

# The short name by each name that programs use.
type_canonicalisation_dict: Final[dict[str, str]] = {
    **dict.fromkeys(("bool", "int1", "uint1", "i1"), "u1"),
    "float8e4nv": "fp8e4nv", "float8_e4m3fn": "fp8e4nv",
    "float8e5": "fp8e5", "float8_e5m2": "fp8e5",
    "float8e4b15": "fp8e4b15",
    "float8e4b8": "fp8e4b8", "float8_e4m3fnuz": "fp8e4b8",
    "float8e5b16": "fp8e5b16", "float8_e5m2fnuz": "fp8e5b16",
    "half": "fp16", "float16": "fp16",
    "bfloat16": "bf16",
    "float": "fp32", "float32": "fp32",
    "double": "fp64", "float64": "fp64",
    "int": "i32",
    **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
    "void": "void",
}  # fmt: skip
type_canonicalisation_dict.update({name: name for name in [*type_canonicalisation_dict.values()]})
BITWIDTH_DICT: Final[dict[str, int]] = {
    name: 8 if name.startswith("fp8") else int(name.lstrip("bfpiu"))
    for name in {*type_canonicalisation_dict.values()} - {"void"}
}
TRITON_MAX_TENSOR_NUMEL: Final = MAX_ELEMENTS


def canonicalize_dtype(dtype: Any) -> str:
    """The short name of a dtype of any library, or of its name."""
    return type_canonicalisation_dict[str(dtype).rpartition(".")[2]]


def canonicalize_ptr_dtype(dtype: Any, is_const: bool) -> str:
    """The short name of the type of pointers to a dtype."""
    return f"{'*k' if is_const else '*'}{canonicalize_dtype(dtype)}"


def is_namedtuple(val: Any) -> bool:
    """Whether a thing is a class of named tuples."""
    return isinstance(val, type) and issubclass(val, tuple) and hasattr(val, "_fields")  # pyright: ignore[reportUnknownArgumentType]


def get_iterable_path(iterable: Any, path: Sequence[int]) -> Any:
    """The item of nested tuples and lists at a path: `(1, 0)` is the first item of the second one."""
    return functools.reduce(operator.getitem, path, iterable)


def set_iterable_path(iterable: Any, path: Sequence[int], val: Any) -> None:
    """Set the item of nested lists at a path."""
    get_iterable_path(iterable, path[:-1])[path[-1]] = val


def is_iterable(x: Any) -> bool:
    """Whether a thing has items: a list or a tuple."""
    return isinstance(x, (list, tuple))


def is_power_of_two(x: int) -> bool:
    """Whether a number is a power of two. 0 counts as one, as in Triton."""
    return x & (x - 1) == 0


def get_primitive_bitwidth(dtype: str) -> int:
    """The number of bits of an element, by its short name: 16 of "bf16"."""
    return BITWIDTH_DICT[dtype]


def validate_block_shape(shape: Sequence[int]) -> int:
    """The number of elements of a block. Raises `TypeError` or `ValueError` for a shape that blocks do not have."""
    for place, size in enumerate(shape):
        if not isinstance(size, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"Shape element {place} must have type `constexpr[int]`, got `constexpr[{type(size)}]")
        if not is_power_of_two(size):
            raise ValueError(f"Shape element {place} must be a power of 2")
    elements = math.prod(shape)
    if elements > TRITON_MAX_TENSOR_NUMEL:
        raise ValueError(f"numel ({elements}) exceeds triton maximum tensor numel ({TRITON_MAX_TENSOR_NUMEL})")
    return elements


def find_paths_if(iterable: Any, pred: Callable[[tuple[int, ...], Any], bool]) -> list[tuple[int, ...]]:
    """The paths of the items of nested tuples and lists for which `pred(path, item)` holds."""

    def paths(path: tuple[int, ...], item: Any) -> Iterator[tuple[int, ...]]:
        if isinstance(item, (list, tuple)):
            for place, part in enumerate(item):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
                yield from paths((*path, place), part)
        elif pred(path, item):
            yield path

    return list(paths((), iterable))
