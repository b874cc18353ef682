"""Types in MLIR's spelling. A Tuple is several values in MLIR, with the components of nested Tuples in order.

MLIR's integers have no sign: `u32` and `i32` are one type there.
"""

from __future__ import annotations

import functools

from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.types import DescriptorType, PtrType, ScalarType, TensorType, TupleType, Type, void


@functools.cache
def mlir_type(type_: Type) -> str:
    """The spelling of a type of one value. Raises `TargetError` for a type that Triton's MLIR lacks."""
    if isinstance(type_, ScalarType):
        return type_.mlir
    if isinstance(type_, PtrType):
        return f"!tt.ptr<{mlir_type(type_.pointee)}>"
    if isinstance(type_, TensorType):
        return f"tensor<{_dimensions(type_.shape)}{mlir_type(type_.element)}>"
    if isinstance(type_, DescriptorType):
        return f"!tt.tensordesc<{_dimensions(type_.block)}{mlir_type(type_.element)}>"
    raise TargetError(f"a value of type {type_} has no form in Triton's MLIR")


@functools.cache
def mlir_types(type_: Type) -> tuple[str, ...]:
    """The spellings of the MLIR values for a value of this type: none for `void`, several for a Tuple."""
    return tuple(mlir_type(leaf) for leaf in leaves(type_))


@functools.cache
def leaves(type_: Type) -> tuple[Type, ...]:
    """The types of the MLIR values for a value of this type."""
    if type_ == void:
        return ()
    if isinstance(type_, TupleType):
        return tuple(leaf for component in type_.components for leaf in leaves(component))
    return (type_,)


def _dimensions(shape: tuple[int, ...]) -> str:
    return "".join(f"{size}x" for size in shape)


def result_list(types: tuple[str, ...]) -> str:
    """The result types after an arrow: `t` for one, `(t, u)` for several, `()` for none."""
    return types[0] if len(types) == 1 else f"({', '.join(types)})"
