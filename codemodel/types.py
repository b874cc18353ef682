"""Types of all tiers. A type is an immutable value: equal when its text is equal, usable as a dictionary key.

The text of a type is a tree, `name<argument, ...>`, held as `TypeSyntax`; `type_reader` gives the type of a tree.
"""

from __future__ import annotations

import ast
import functools
import math
import sys
import warnings
from typing import TYPE_CHECKING, Any, ClassVar, Final

import attrs

from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.codemodel.layout import Layout

if TYPE_CHECKING:
    import numpy as np


@attrs.frozen
class TypeSyntax:
    """The spelling of a type: an identifier and its arguments. A leaf may be a quoted string."""

    name: str
    arguments: tuple[TypeSyntax, ...] = ()
    quoted: bool = False

    def __str__(self) -> str:
        if self.quoted:
            return '"' + self.name.replace("\\", "\\\\").replace('"', '\\"') + '"'
        if not self.arguments:
            return self.name
        return f"{self.name}<{', '.join(map(str, self.arguments))}>"


class Type:
    """Base of all types."""

    __slots__ = ("_text",)

    _text: str

    def syntax(self) -> TypeSyntax:
        """The spelling of this type as a tree."""
        raise NotImplementedError

    def __str__(self) -> str:
        try:
            return self._text
        except AttributeError:
            text = str(self.syntax())
            object.__setattr__(self, "_text", text)
            return text


@attrs.frozen(str=False, cache_hash=True)
class NamedType(Type):
    """A type without arguments."""

    name: str

    def syntax(self) -> TypeSyntax:
        return TypeSyntax(self.name)


SMALL: Final = 1 << 15  # A small integer argument is from 0 to below this: its product with another fits in i32.


@attrs.frozen
class FloatFormat:
    """The layout of a float type: a sign bit, `exponent_bits`, `mantissa_bits`.

    Without `has_infinity`, the largest exponent holds numbers too, and only its last mantissa is NaN.

    >>> f16.format.largest, f16.format.bias, f8e4m3.format.largest
    (65504.0, 15, 448.0)
    """

    exponent_bits: int
    mantissa_bits: int
    has_infinity: bool = True

    @property
    def precision(self) -> int:
        """Number of significant bits, the implicit leading one included."""
        return self.mantissa_bits + 1

    @property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def codes(self) -> int:
        """The number of codes, without the sign bit, that are finite numbers: the code of infinity, else of NaN."""
        top = (1 << self.exponent_bits) - 1 << self.mantissa_bits
        return top if self.has_infinity else top | (1 << self.mantissa_bits) - 1

    @property
    def smallest_exponent(self) -> int:
        """Exponent of the smallest normal number."""
        return 1 - self.bias

    @property
    def largest(self) -> float:
        """The largest finite number."""
        if self.has_infinity:
            return (2.0 - self.epsilon) * 2.0**self.bias
        return (2.0 - 2.0 * self.epsilon) * 2.0 ** (self.bias + 1)

    @property
    def smallest_normal(self) -> float:
        return 2.0**self.smallest_exponent

    @property
    def epsilon(self) -> float:
        """Distance from 1 to the next larger number."""
        return 2.0**-self.mantissa_bits

    @property
    def digits(self) -> int:
        """Number of decimal digits from which every number of the format is read back as it was."""
        return math.ceil(1 + self.precision * math.log10(2))


@attrs.frozen(str=False, cache_hash=True)
class ScalarType(NamedType):
    """A number of fixed width: one record for each dtype of the language, with its names elsewhere.

    `kind` is "bool", "int" or "float"; the order of kinds is the order of promotion. Two types are equal when their
    name, kind, width and sign are.
    """

    kind: str
    bits: int
    signed: bool = True
    numpy: str = attrs.field(default="", kw_only=True, eq=False, repr=False)
    """Name of the dtype in NumPy (with ml_dtypes), torch and JAX."""
    llvm: str = attrs.field(default="", kw_only=True, eq=False, repr=False)
    """LLVM's type; an integer of the width where LLVM has no such float."""
    mlir: str = attrs.field(default="", kw_only=True, eq=False, repr=False)
    """MLIR's type; its integers have no sign."""
    ptx: str = attrs.field(default="", kw_only=True, eq=False, repr=False)
    """Name of the type in PTX instructions that read elements, such as mma."""
    tensor_map: str = attrs.field(default="", kw_only=True, eq=False, repr=False)
    """Suffix of the driver's CU_TENSOR_MAP_DATA_TYPE_…"""
    dlpack: int = attrs.field(default=-1, kw_only=True, eq=False, repr=False)
    """DLPack's DLDataTypeCode."""
    format: FloatFormat = attrs.field(default=FloatFormat(0, 0), kw_only=True, eq=False, repr=False)
    """Layout of a float; unused for other kinds."""

    KINDS: ClassVar[tuple[str, ...]] = ("bool", "int", "float")

    @property
    def rank(self) -> int:
        """Place of the kind in the order of promotion: bool 0, int 1, float 2."""
        return self.KINDS.index(self.kind)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_int(self) -> bool:
        """True for the integers and i1."""
        return self.kind != "float"

    @property
    def is_fp8(self) -> bool:
        return self.kind == "float" and self.bits == 8

    @property
    def saturates(self) -> bool:
        """Whether rounding to this float turns numbers that are too large, and infinities, into its largest number, as
        PTX's `cvt.satfinite` does. The 8-bit floats do."""
        return self.is_fp8

    @property
    def bytes(self) -> int:
        """Size in memory. i1 takes a byte there."""
        return max(1, self.bits // 8)

    @property
    def zero(self) -> float | bool | int:
        """Zero, as an attribute of a constant has it."""
        return 0.0 if self.is_float else False if self.bits == 1 else 0

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest value of an integer type."""
        if self.kind == "float":
            raise ValueError(f"{self.name} is not an integer type")
        if self.signed and self.kind == "int":
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        return 0, (1 << self.bits) - 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype of an array of such numbers."""
        return _dtype(self.numpy)

    @property
    def unsigned(self) -> ScalarType:
        """The unsigned integer type of this width; of i1 itself."""
        return self if self.kind == "bool" else SCALARS[f"u{self.bits}"]


class _Classes:
    """NumPy's classes, for `isinstance`: `NUMPY.ndarray`. NumPy is not imported for them, as that takes longer than to
    compile a kernel; nothing is an instance of its classes before."""

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.modules.get("numpy"), name, ())


NUMPY = _Classes()


@functools.cache
def _dtype(name: str) -> np.dtype[Any]:
    import ml_dtypes
    import numpy as np

    return np.dtype(getattr(ml_dtypes, name, name))


def _integer(name: str, bits: int, signed: bool, numpy: str, tensor_map: str, ptx: str = "") -> ScalarType:
    return ScalarType(
        name, "int", bits, signed, numpy=numpy, llvm=f"i{bits}", mlir=f"i{bits}", ptx=ptx, tensor_map=tensor_map,
        dlpack=0 if signed else 1,
    )  # fmt: skip


def _float(
    name: str, bits: int, format: FloatFormat, numpy: str, llvm: str, mlir: str, ptx: str, tensor_map: str, dlpack: int
) -> ScalarType:
    return ScalarType(
        name, "float", bits, numpy=numpy, llvm=llvm, mlir=mlir, ptx=ptx, tensor_map=tensor_map, dlpack=dlpack,
        format=format,
    )  # fmt: skip


void = NamedType("void")  # The type of an op without a result.
channel = NamedType("channel")  # A ring of slots in shared memory, filled and read in order, in a GPU model.
i1 = ScalarType("i1", "bool", 1, False, numpy="bool", llvm="i1", mlir="i1", tensor_map="UINT8", dlpack=6)
i8 = _integer("i8", 8, True, "int8", "UINT8", "s8")
i16 = _integer("i16", 16, True, "int16", "UINT16")
i32 = _integer("i32", 32, True, "int32", "INT32", "s32")
i64 = _integer("i64", 64, True, "int64", "INT64")
u8 = _integer("u8", 8, False, "uint8", "UINT8", "u8")
u16 = _integer("u16", 16, False, "uint16", "UINT16")
u32 = _integer("u32", 32, False, "uint32", "UINT32")
u64 = _integer("u64", 64, False, "uint64", "UINT64")
f16 = _float("f16", 16, FloatFormat(5, 10), "float16", "half", "f16", "f16", "FLOAT16", 2)
bf16 = _float("bf16", 16, FloatFormat(8, 7), "bfloat16", "bfloat", "bf16", "bf16", "BFLOAT16", 4)
f32 = _float("f32", 32, FloatFormat(8, 23), "float32", "float", "f32", "tf32", "FLOAT32", 2)
f64 = _float("f64", 64, FloatFormat(11, 52), "float64", "double", "f64", "f64", "FLOAT64", 2)
f8e4m3 = _float("f8e4m3", 8, FloatFormat(4, 3, False), "float8_e4m3fn", "i8", "f8E4M3FN", "e4m3", "UINT8", 10)
f8e5m2 = _float("f8e5m2", 8, FloatFormat(5, 2), "float8_e5m2", "i8", "f8E5M2", "e5m2", "UINT8", 12)

SCALARS: dict[str, ScalarType] = {
    type_.name: type_ for type_ in (i1, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64, f8e4m3, f8e5m2)
}
# Dtypes by their name in NumPy, torch and JAX.
BY_NUMPY_NAME: dict[str, ScalarType] = {type_.numpy: type_ for type_ in SCALARS.values()}


def find_scalar(dtype: object) -> ScalarType | None:
    """The dtype that a user names: ours, NumPy's, torch's or JAX's, or the name of one; None for anything else.

    >>> find_scalar("float32") is find_scalar("torch.float32") is find_scalar("f32") is f32
    True
    """
    if isinstance(dtype, ScalarType):
        return dtype
    if isinstance(dtype, str):
        library, _, name = dtype.rpartition(".")
        is_library = library in ("", "zg", "torch", "np", "numpy", "jnp", "ml_dtypes")
        return (SCALARS.get(name) or BY_NUMPY_NAME.get(name)) if is_library else None
    module = (dtype if isinstance(dtype, type) else type(dtype)).__module__.partition(".")[0]
    if module == "torch":
        return find_scalar(str(dtype)) if str(dtype).startswith("torch.") else None
    if module == "jax":  # jnp.float32 is an object of JAX that holds NumPy's dtype; an array holds one as well.
        dtype = None if hasattr(dtype, "shape") else getattr(dtype, "dtype", None)
    elif module not in ("numpy", "ml_dtypes"):
        wrapped = getattr(dtype, "value", None)  # A dtype of Triton's language wraps ours.
        return wrapped if isinstance(wrapped, ScalarType) else None
    return _of_numpy(dtype)


def _of_numpy(dtype: object) -> ScalarType | None:
    import numpy as np

    if not isinstance(dtype, np.dtype | type):
        return None
    try:
        native: np.dtype[Any] = np.dtype(dtype)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    except TypeError:
        return None
    scalar = BY_NUMPY_NAME.get(native.name)
    return (
        scalar if scalar is not None and scalar.dtype == native else None
    )  # A dtype of foreign byte order has the name.


pyobject = NamedType("object")  # Any Python object, before attribution.
constexpr_type = NamedType("constexpr")  # The type of a parameter that takes a value known at compile time.


@attrs.frozen(str=False, cache_hash=True)
class FunctionType(Type):
    """`func<result, parameter, ...>`."""

    result: Type
    parameters: tuple[Type, ...] = ()

    def syntax(self) -> TypeSyntax:
        return TypeSyntax("func", (self.result.syntax(), *(p.syntax() for p in self.parameters)))


@attrs.frozen(str=False, cache_hash=True)
class TupleType(Type):
    """`Tuple<component, ...>`: the type of an op with several results. `Tuple` alone is the empty tuple."""

    components: tuple[Type, ...] = ()

    def syntax(self) -> TypeSyntax:
        return TypeSyntax("Tuple", tuple(c.syntax() for c in self.components))


@attrs.frozen(str=False, cache_hash=True)
class VarType(Type):
    """`Var<type>`: the box of a variable, read by `var.load` and written by `var.store`."""

    value: Type

    def syntax(self) -> TypeSyntax:
        return TypeSyntax("Var", (self.value.syntax(),))


@attrs.frozen(str=False, cache_hash=True)
class PtrType(Type):
    """`ptr<scalar>`: the address of scalars in global memory.

    `ptr<scalar, const>` is the type that attribution gives to a pointer that a kernel must not write through. Models
    have no such types.
    """

    bytes: ClassVar[int] = 8
    pointee: ScalarType
    const: bool = False

    def syntax(self) -> TypeSyntax:
        return TypeSyntax("ptr", (self.pointee.syntax(), *[TypeSyntax("const")] * self.const))


# The limit of Triton: a larger tensor has no layout on any GPU.
MAX_ELEMENTS: Final = 1 << 20


@attrs.frozen(str=False, cache_hash=True)
class TensorType(Type):
    """`tensor<x32, x64, f32>`: a block of constant shape, of scalars or of pointers.

    In a GPU model, `layout` (see `layout.py`) maps registers, lanes and warps to elements:
    `tensor<x64, f32, "1 | 2 4 8 16 32 | 0 0">`.
    """

    shape: tuple[int, ...]
    element: ScalarType | PtrType
    layout: Layout | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def syntax(self) -> TypeSyntax:
        layout = () if self.layout is None else (TypeSyntax(str(self.layout), quoted=True),)
        return TypeSyntax("tensor", (*(TypeSyntax(f"x{d}") for d in self.shape), self.element.syntax(), *layout))

    def without_layout(self) -> TensorType:
        """The type without its layout, as a Triton model has it."""
        return self if self.layout is None else TensorType(self.shape, self.element)


@attrs.frozen(str=False, cache_hash=True)
class SharedType(Type):
    """`shared<n3, x128, x64, f16, "1 2 4 …">`: `count` (here 3) buffers in shared memory, each for one such tensor.

    `offsets` are the bases that map the bits of an element's place in the buffer to the bits of its row-major number: a
    swizzle is such a map.
    """

    shape: tuple[int, ...]
    element: ScalarType
    offsets: tuple[int, ...]
    count: int = 1

    @property
    def numel(self) -> int:
        """Number of elements of one buffer."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Size of all buffers."""
        return self.numel * self.element.bytes * self.count

    def syntax(self) -> TypeSyntax:
        count = () if self.count == 1 else (TypeSyntax(f"n{self.count}"),)
        dims = (TypeSyntax(f"x{d}") for d in self.shape)
        bases = TypeSyntax(" ".join(map(str, self.offsets)), quoted=True)
        return TypeSyntax("shared", (*count, *dims, self.element.syntax(), bases))


@attrs.frozen(str=False, cache_hash=True)
class DescriptorType(Type):
    """`descriptor<x64, x64, f16>`: a tensor in global memory that is moved in blocks of this shape.

    `padding` is the content of a block outside of the tensor: "zero", or (of floats) "nan", which the text shows:
    `descriptor<x64, x64, f16, nan>`. It is "either" where control flow chooses between descriptors of unlike padding:
    the descriptor then bears its padding at run time. No argument of a kernel is such.

    Where a block is loaded in several `parts`, by one CTA of a cluster each, the text begins with their number:
    `descriptor<n2, x64, x64, f16>`.
    """

    block: tuple[int, ...]
    element: ScalarType
    padding: str = "zero"
    parts: int = 1

    PADDINGS: ClassVar[tuple[str, ...]] = ("zero", "nan")

    @property
    def rows(self) -> tuple[int, int]:
        """The shape of a block as a matrix, all axes but the last joined."""
        return math.prod(self.block[:-1]), self.block[-1]

    @property
    def of_either_padding(self) -> DescriptorType:
        """The type above the two that differ from this one in their padding alone."""
        return attrs.evolve(self, padding="either")

    def syntax(self) -> TypeSyntax:
        padding = () if self.padding == "zero" else (TypeSyntax(self.padding),)
        parts = () if self.parts == 1 else (TypeSyntax(f"n{self.parts}"),)
        dims = (TypeSyntax(f"x{d}") for d in self.block)
        return TypeSyntax("descriptor", (*parts, *dims, self.element.syntax(), *padding))


@attrs.frozen(str=False, eq=False)
class ConstantType(Type):
    """`constant<i32, c64>`: a value known at compile time, below its type in the lattice of attribution.

    `value` is the Python object; `type` is what it decays to (`object` for what has no run-time form: a shape, a
    dtype). Equality tells 1 from True and 0.0 from -0.0, and takes NaN to be equal to itself. Numbers, strings, None,
    types, and tuples of finite numbers and strings are read back from the text; of other objects the text only shows
    what they are.
    """

    value: Any
    type: Type

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConstantType):
            return NotImplemented
        return self.type == other.type and constant_key(self.value) == constant_key(other.value)

    def __hash__(self) -> int:
        return hash((self.type, constant_key(self.value)))

    def syntax(self) -> TypeSyntax:
        value = self.value
        if type(value) is int and value >= 0:
            leaf = TypeSyntax(f"c{value}")
        elif isinstance(value, Type):
            leaf = value.syntax()
        else:
            # A string stands for itself, unless it would be read as something else.
            text = repr(value)
            if isinstance(value, str) and value.isprintable() and read_value(value) == value:
                text = value
            leaf = TypeSyntax(text, quoted=True)
        return TypeSyntax("constant", (self.type.syntax(), leaf))


def read_value(text: str) -> Any:
    """The Python value with this spelling, or the text itself."""
    special = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
    if text in special:
        return special[text]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in a string that only looks like a literal
            return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return text


def is_hashable(value: Any) -> bool:
    """Whether an object has a hash. A tuple has one if all its items have."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


def constant_key(value: Any) -> Any:
    """A hashable key by which constants are compared: by Python type as well as by value, floats by their text, and so
    are dicts and other objects that may change."""
    if isinstance(value, float):
        return ("float", repr(value))
    if isinstance(value, (tuple, list)):
        return (type(value).__name__, tuple(constant_key(item) for item in value))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return (type(value).__name__, value if is_hashable(value) else repr(value))


def element_of(type_: Type) -> Type:
    """The element type of a tensor; any other type itself."""
    return type_.element if isinstance(type_, TensorType) else type_


def scalar_element(type_: Type) -> ScalarType:
    """The scalar type of a number, or of the elements of a tensor of numbers."""
    element = element_of(type_)
    assert isinstance(element, ScalarType), f"{type_} is no number"
    return element


def value_element(type_: Type) -> ScalarType | PtrType:
    """The type of a number or a pointer, or of the elements of a tensor of these."""
    element = element_of(type_)
    assert isinstance(element, ScalarType | PtrType), f"{type_} is no number and no pointer"
    return element


def pointee_of(type_: Type) -> ScalarType:
    """The type of the numbers that a pointer, or each of a tensor of pointers, points to."""
    element = element_of(type_)
    assert isinstance(element, PtrType), f"{type_} is no pointer"
    return element.pointee


def element_bytes(type_: Type) -> int:
    """The size in memory of a number or a pointer, or of an element of a tensor: a byte of an i1, 8 of a pointer."""
    return value_element(type_).bytes


def shape_of(type_: Type) -> tuple[int, ...]:
    """The shape of a tensor; () of any other type."""
    return type_.shape if isinstance(type_, TensorType) else ()


def with_element(type_: Type, element: ScalarType | PtrType) -> Type:
    """`type_` with another element type and the same shape."""
    return TensorType(type_.shape, element, type_.layout) if isinstance(type_, TensorType) else element


def shaped(shape: tuple[int, ...], element: ScalarType | PtrType, layout: Layout | None = None) -> Type:
    """The tensor of this shape, or the scalar itself for the empty shape."""
    if not isinstance(shape, tuple) or not isinstance(element, Type):  # pyright: ignore[reportUnnecessaryIsInstance]
        got = f"{type(shape).__name__} and {type(element).__name__}"
        raise KernelTypeError(f"shaped: the arguments must be a shape and an element type; got {got}")
    return TensorType(shape, element, layout) if shape else element


def component_types(type_: Type) -> tuple[Type, ...]:
    """The types of the components of a value of this type: itself where it is no Tuple, and none of `void`."""
    if isinstance(type_, TupleType):
        return type_.components
    return () if type_ == void else (type_,)


def of_floats(type_: Type) -> bool:
    """Whether a type is one of floats, or of tensors of them."""
    element = element_of(type_)
    return isinstance(element, ScalarType) and element.is_float


def is_power_of_two(value: int) -> bool:
    """True of 1, 2, 4, 8 …"""
    return value > 0 and value & (value - 1) == 0


def size_error(type_: Type) -> str | None:
    """The reason why no value can be as large as this type, or None."""
    for part in component_types(type_):
        if isinstance(part, TensorType) and part.numel > MAX_ELEMENTS:
            return f"a tensor of shape {list(part.shape)} has more than {MAX_ELEMENTS} elements"
    return None


def admits(expected: Type, actual: Type) -> bool:
    """Whether a value of the actual type fits the expected one: the same type, or any layout where none is expected."""
    if expected == actual:
        return True
    if isinstance(expected, TupleType) and isinstance(actual, TupleType):
        pairs = zip(expected.components, actual.components, strict=False)
        return len(expected.components) == len(actual.components) and all(admits(e, a) for e, a in pairs)
    if isinstance(expected, TensorType) and isinstance(actual, TensorType):
        return expected.layout is None and expected == actual.without_layout()
    return False
