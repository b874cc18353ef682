"""Triton's dtypes and types of values: `tl.float16`, `tl.pointer_type(tl.float32)`, the type of a tensor.

One class each for scalars, pointers and blocks. Each wraps a type of the models, `.value`, and is a constant of a
kernel. On the host they answer as Triton's do; a kernel asks the same classes at compile time (see `property_of`).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from ziggurat.codemodel.types import SCALARS, NamedType, PtrType, ScalarType, TensorType, Type, element_of
from ziggurat.codemodel.types import void as void_type
from ziggurat.frontends.language.wording import TRITON_NAMES, long_name

# The bits of the mantissa, and the bias of the exponent.
_FOREIGN: Final = {"fp8e4b15": (3, 15), "fp8e4b8": (3, 8), "fp8e5b16": (2, 16)}
E4B15, *UNSUPPORTED = (
    ScalarType(name, "float", 8, numpy="uint8", llvm="i8", mlir="i8", tensor_map="UINT8", dlpack=1) for name in _FOREIGN
)
_BY_NAME: Final[dict[str, Type]] = {
    "void": void_type,
    **{TRITON_NAMES[name]: scalar for name, scalar in SCALARS.items()},
    **{scalar.name: scalar for scalar in (E4B15, *UNSUPPORTED)},
}


class dtype:
    """A dtype: `tl.dtype("fp16")` is `tl.float16`. Raises `AssertionError` for another name, as Triton does."""

    class SIGNEDNESS(enum.Enum):
        """Whether an integer has a sign."""

        SIGNED = 0
        UNSIGNED = 1

    class KIND(enum.Enum):
        """The kinds of numbers, in the order of promotion."""

        BOOLEAN = 0
        INTEGRAL = 1
        FLOATING = 2

    value: Type
    SINT_TYPES: ClassVar = ["int8", "int16", "int32", "int64"]
    UINT_TYPES: ClassVar = ["int1", "uint8", "uint16", "uint32", "uint64"]
    FP_TYPES: ClassVar = ["fp8e4b15", "fp8e4nv", "fp8e4b8", "fp8e5", "fp8e5b16", "fp16", "bf16", "fp32", "fp64"]
    STANDARD_FP_TYPES: ClassVar = ["fp16", "bf16", "fp32", "fp64"]
    OTHER_TYPES: ClassVar = ["void"]

    def __init__(self, name: Any) -> None:
        self.name: str = getattr(name, "value", name)
        assert self.is_dtype(self.name), self.name
        self.value = _BY_NAME[self.name]

    @classmethod
    def is_dtype(cls, type_str: str) -> bool:
        """Whether there is a dtype of this name."""
        return type_str in _BY_NAME

    @property
    def ziggurat_constant(self) -> bool:
        """Whether a kernel can use it as the constant `value`; read by `ziggurat.frontends.language.constants`."""
        return True

    @property
    def primitive_bitwidth(self) -> int:
        """The number of bits; 64 of pointers."""
        element = element_of(self.value)
        return 64 if isinstance(element, PtrType) else element.bits if isinstance(element, ScalarType) else 0

    @property
    def itemsize(self) -> int:
        """The size in bytes; 0 of int1."""
        return self.primitive_bitwidth // 8

    @property
    def int_bitwidth(self) -> int:
        """The number of bits of an integer."""
        return self._scalar(is_float=False).bits

    @property
    def int_signedness(self) -> SIGNEDNESS:
        """Whether an integer has a sign. int1 has none."""
        return self.SIGNEDNESS.SIGNED if self._scalar(is_float=False).signed else self.SIGNEDNESS.UNSIGNED

    @property
    def fp_mantissa_width(self) -> int:
        """The number of bits of a float's mantissa, without the leading one."""
        return _FOREIGN[self.name][0] if self.name in _FOREIGN else self._scalar(is_float=True).format.mantissa_bits

    @property
    def exponent_bias(self) -> int:
        """The bias of a float's exponent."""
        return _FOREIGN[self.name][1] if self.name in _FOREIGN else self._scalar(is_float=True).format.bias

    def _scalar(self, is_float: bool) -> ScalarType:
        if not isinstance(self.value, ScalarType) or (self.value.is_int if is_float else self.value.is_float):
            raise AttributeError(f"'{self}' is not {'a floating-point' if is_float else 'an integer'} type")
        return self.value

    def is_fp8(self) -> bool:
        """Whether it is one of the 8-bit floats."""
        return self.is_floating() and self.primitive_bitwidth == 8

    def is_floating(self) -> bool:
        """Whether it is a float."""
        return self.name in self.FP_TYPES

    def is_standard_floating(self) -> bool:
        """Whether it is a float of 16 bits or more."""
        return self.name in self.STANDARD_FP_TYPES

    def is_int_signed(self) -> bool:
        """Whether it is a signed integer."""
        return self.name in self.SINT_TYPES

    def is_int_unsigned(self) -> bool:
        """Whether it is an unsigned integer, or int1."""
        return self.name in self.UINT_TYPES

    def is_int(self) -> bool:
        """Whether it is an integer, or int1."""
        return self.is_int_signed() or self.is_int_unsigned()

    def is_bool(self) -> bool:
        """Whether it is int1."""
        return self.name == "int1"

    def kind(self) -> KIND:
        """The kind of number."""
        return self.KIND.BOOLEAN if self.is_bool() else self.KIND.INTEGRAL if self.is_int() else self.KIND.FLOATING

    def get_int_max_value(self) -> int:
        """The largest integer of the type."""
        return self._scalar(is_float=False).limits[1]

    def get_int_min_value(self) -> int:
        """The smallest integer of the type."""
        return self._scalar(is_float=False).limits[0]

    def is_block(self) -> bool:
        """Whether it is the type of a tensor."""
        return isinstance(self, block_type)

    def is_ptr(self) -> bool:
        """Whether it is the type of a pointer."""
        return isinstance(self, pointer_type)

    def is_const(self) -> bool:
        """Whether it is the type of a pointer that is not written through."""
        return isinstance(self, pointer_type) and self.const

    def is_void(self) -> bool:
        """Whether it is the type of no value."""
        return self.name == "void"

    def is_tuple(self) -> bool:
        """Whether it is the type of a tuple."""
        return False

    @property
    def scalar(self) -> dtype:
        """The type of one element."""
        return self

    def with_element_ty(self, element_ty: dtype) -> dtype:
        """The type of the same shape with other elements."""
        return element_ty

    def codegen_name(self) -> str:
        """The name in `tl`: `float16`."""
        return long_name(self.name)

    @property
    def cache_key_part(self) -> str:
        """The name in keys of caches."""
        return self.name

    def mangle(self) -> str:
        """The name in symbols: `i32`, `u8`, `fp16`."""
        return f"{'i' if self.is_int_signed() else 'u'}{self.int_bitwidth}" if self.is_int() else self.name

    def __eq__(self, other: object) -> bool:
        return self.value == getattr(other, "value", other)

    def __hash__(self) -> int:
        return hash(self.value)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name if self.is_block() or self.is_ptr() else f"triton.language.{self.codegen_name()}"

    def __reduce__(self) -> Any:
        return type_of, (self.value,)


def _is(name: str) -> Callable[[dtype], bool]:
    return lambda self: self.name == name


for _name in (*dtype.SINT_TYPES, *dtype.UINT_TYPES, *dtype.FP_TYPES):
    setattr(dtype, f"is_{_name}", _is(_name))


class pointer_type(dtype):
    """The type of a pointer to elements of a dtype, or of a block pointer."""

    def __init__(self, element_ty: Any, address_space: int = 1, const: bool = False) -> None:
        if not isinstance(element_ty, dtype):
            element = getattr(element_ty, "value", element_ty)
            if not isinstance(element, Type):
                raise TypeError(f"element_ty has type `{type(element_ty).__name__}`; expected `dtype`.")
            element_ty = type_of(element)
        self.element_ty = element_ty
        self.address_space = getattr(address_space, "value", address_space)
        self.const = bool(const)
        self.name = f"{'const_' * self.const}pointer<{element_ty}>"
        inner: Any = element_ty.value
        self.value = PtrType(inner, self.const)

    def mangle(self) -> str:
        return f"P{self.element_ty.mangle()}"


class block_type(dtype):
    """The type of a tensor."""

    def __init__(self, element_ty: Any, shape: Sequence[Any]) -> None:
        self.element_ty: dtype = element_ty if isinstance(element_ty, dtype) else type_of(element_ty)
        self.shape = tuple(getattr(size, "value", size) for size in shape)
        if not self.shape:
            raise TypeError("0d block_type is forbidden")
        self.numel = math.prod(self.shape)
        self.name = f"<{self.shape}, {self.element_ty}>"
        inner: Any = self.element_ty.value
        self.value = TensorType(self.shape, inner)

    @property
    def scalar(self) -> dtype:
        return self.element_ty

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return self.numel * self.element_ty.itemsize

    def get_block_shapes(self) -> tuple[int, ...]:
        """The shape."""
        return self.shape

    def with_element_ty(self, element_ty: dtype) -> dtype:
        return block_type(element_ty, self.shape)

    def mangle(self) -> str:
        return f"{self.element_ty.mangle()}S{'_'.join(map(str, self.shape))}S"


def type_of(value: Type) -> dtype:
    """Triton's type for one of ours: a scalar, a pointer or a tensor. Raises `TypeError` for another one."""
    if isinstance(value, TensorType):
        return block_type(type_of(value.element), value.shape)
    if isinstance(value, PtrType):
        return pointer_type(type_of(value.pointee), const=value.const)
    if isinstance(value, NamedType):
        return dtype(TRITON_NAMES.get(value.name, value.name))
    raise TypeError(f"{value} is not a type of Triton's language")


def get_int_dtype(bitwidth: int, signed: bool) -> dtype:
    """The integer type of this width."""
    return dtype(f"{'' if signed or bitwidth == 1 else 'u'}int{bitwidth}")


void, int1 = dtype("void"), dtype("int1")
int8, int16, int32, int64 = (dtype(f"int{bits}") for bits in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (dtype(f"uint{bits}") for bits in (8, 16, 32, 64))
float16, bfloat16, float32, float64 = map(dtype, dtype.STANDARD_FP_TYPES)
float8e5, float8e4nv = dtype("fp8e5"), dtype("fp8e4nv")
float8e4b15, float8e4b8, float8e5b16 = (dtype(name) for name in _FOREIGN)
pi32_t = pointer_type(int32)


class nv_tma_desc_type(pointer_type):
    """The type of a descriptor by value in Triton 3.2 and 3.3."""

    def __init__(self, const: bool = True, address_space: int = 0) -> None:
        super().__init__(uint8, address_space, const)
        self.name = "nv_tma_desc_type"


DTYPES: Final[dict[str, dtype]] = {
    dtype_.codegen_name(): dtype_
    for dtype_ in (
        void, int1, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float8e5, float8e4nv, float8e4b15,
        float8e4b8, float8e5b16, float16, bfloat16, float32, float64,
    )
}  # fmt: skip


def str_to_ty(name: str, c: Any = None) -> dtype:
    """The type by its name in the signature of a kernel: "i32", "u8", "fp16", "*bf16", "*kfp32" (not written through).

    `c` is of no effect. Raises `AssertionError` for another name.
    """
    if name.startswith("*"):
        const = name.startswith("*k")
        return pointer_type(str_to_ty(name[1 + const :]), const=const)
    kinds = {"i": "int", "u": "uint", "B": "int1"}
    is_integer = name[0] in kinds and name[1:].isdigit()
    dtype_name = f"{kinds[name[0]]}{name[1:]}" if is_integer else kinds.get(name, name)
    return dtype("int1" if dtype_name == "uint1" else dtype_name)
