"""The specialization of a kernel for the arguments of a launch.

A pointer or an integer that is divisible by 16 is known to be divisible, and an integer from 0 to 2^15 - 1 to be small
(`tt.func`). The integer 1 and values that are no numbers are compiled in. An integer has the first of i32, i64 and u64
that holds it. `specialize=False` turns this off for a parameter.
"""

from __future__ import annotations

import inspect
import struct
from typing import Any, Final, cast

import attrs

from ziggurat.backend.cuda.binary import POINTER, TENSOR_MAP
from ziggurat.backend.launch.arrays import is_array, no_argument, number_type
from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.backend.launch.device_arrays import ArrayReader, reader_of, view
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.types import NUMPY, SMALL, DescriptorType, PtrType, ScalarType, constant_key, i1

MISSING: Final = inspect.Parameter.empty
DIVISOR: Final = 16


def takes_any_width(type_: type | None) -> bool:
    """Whether integers of a Python type get the first of i32, i64 and u64 that holds them."""
    return type_ is int or type_ is NUMPY.int64


@attrs.frozen
class KernelParameter:
    """A parameter as the kernel's author declared it. With `specialize` False, one kernel serves all its values.

    A float is passed as one of the float type that the source declares, if it does. `align` says whether divisibility
    is used. With `as_triton`, 1 is a constexpr, other things than arrays and numbers are compiled in, and every number
    has the declared type. With `typed` it has that too, and must fit in it.
    """

    name: str
    constexpr: bool = False
    specialize: bool = True
    default: Any = MISSING
    declared: ScalarType | None = None
    align: bool = True
    as_triton: bool = False
    typed: bool = False

    @property
    def limits(self) -> tuple[int, int] | None:
        """The least and the largest integer that a launch takes, where the source declares a type for it."""
        declared = self.declared if self.typed else None
        return declared.limits if declared is not None and declared.is_int else None

    def compiles_in(self, value: Any, scalar: ScalarType | None) -> bool:
        """Whether an argument that is no array is compiled in as a constexpr. `scalar` is its type as a number."""
        if scalar is None or not self.as_triton:
            return self.as_triton
        return self.specialize and scalar.is_int and scalar != i1 and value == 1

    def divisor(self, number: int) -> int:
        """The number, 1 or 16, that is known to divide an argument."""
        return DIVISOR if self.specialize and self.align and number % DIVISOR == 0 else 1

    def is_small(self, number: int) -> bool:
        """Whether an integer argument is known to be small: not negative, and below 2^15."""
        return self.specialize and 0 <= number < SMALL

    def type_of(self, value: Any, owner: str = "") -> ScalarType | None:
        """The type that a number is passed as; None for anything but a number. `owner` is that of `number_type`."""
        scalar = number_type(value, owner)
        if scalar is None or self.declared is None:
            return scalar
        are_floats = scalar.is_float and self.declared.is_float
        return self.declared if self.as_triton or self.typed or are_floats else scalar


@attrs.frozen
class RunTime:
    """An argument that is passed to the kernel: its type, a number that divides it, 1 or 16, and whether it is an
    integer that is known to be small. The value of a pointer is its address in bytes."""

    name: str
    type: ScalarType | PtrType | DescriptorType
    divisibility: int = 1
    small: bool = False

    @property
    def field(self) -> str:
        """The kind of its parameter in the PTX kernel."""
        if isinstance(self.type, PtrType):
            return POINTER
        return TENSOR_MAP if isinstance(self.type, DescriptorType) else self.type.name


@attrs.frozen
class ConstantArgument:
    """An argument that is compiled into the kernel. `type` is the type of a run-time parameter with a known value, and
    None for a constexpr, which has Python's arithmetic. `key` is that of the contents when the launch was made."""

    name: str
    value: Any = attrs.field(eq=False)
    type: ScalarType | None = None
    key: Any = attrs.field(init=False, repr=False, hash=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "key", constant_key(self.value))


@attrs.frozen
class Specialization:
    """The arguments that a kernel is compiled for, in the order of the parameters, the target, and the options of the
    launch."""

    arguments: tuple[RunTime | ConstantArgument, ...]
    target: str
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def run_time(self) -> tuple[RunTime, ...]:
        """The arguments that are passed."""
        return tuple(argument for argument in self.arguments if isinstance(argument, RunTime))


@attrs.frozen
class Kind:
    """The treatment of a parameter's arguments by a launch: the same source text serves all arguments of one kind.

    `way` is "array", "descriptor", "integer" (its value selects the kernel), "number" (only its type does), "constant",
    or "host" for an array, or the descriptor of one, that is not on a GPU. `type` is the exact Python type if it
    matters, `field` the name of the type that the argument is passed as, `rank` the number of axes of a descriptor.
    """

    way: str
    type: type | None = None
    field: str = ""
    reader: ArrayReader | None = None
    rank: int = 0


def kind_of(value: Any, parameter: KernelParameter, kernel: str) -> Kind:
    """The kind of an argument. Raises `LaunchError` for a value that no kernel takes."""
    if parameter.constexpr or value is None:
        return Kind("constant", _exact_type(value))
    if isinstance(value, TensorDescriptor):
        if value.host is not None:
            return Kind("host")
        return Kind("descriptor", reader=reader_of(value.array), rank=len(value.shape))
    if isinstance(value, (bool, int, float, NUMPY.generic)):
        return _kind_of_number(value, parameter, kernel)
    reader = reader_of(value)
    if reader is not None:
        return Kind("array", reader=reader)
    if is_array(value):
        return Kind("host")
    if parameter.as_triton:
        return Kind("constant", _exact_type(value))
    raise no_argument(parameter.name, kernel, value)


def _exact_type(value: Any) -> type[Any]:
    return cast(type[Any], type(value))


def _kind_of_number(value: Any, parameter: KernelParameter, kernel: str) -> Kind:
    scalar = parameter.type_of(value, f"'{parameter.name}' of '{kernel}': ")
    if scalar is None:
        raise LaunchError(
            f"'{parameter.name}' of '{kernel}' must be a number of a type that kernels have; got {value!r}"
        )
    limits = parameter.limits
    if limits and not (isinstance(value, int | NUMPY.integer) and limits[0] <= int(value) <= limits[1]):
        low, high = limits
        what = f"'{parameter.name}' of '{kernel}' is declared as {scalar}"
        raise LaunchError(f"{what}, which holds {low} … {high}; got {value}")
    # Integers are written with 64 bits and a sign, except those that need 64 bits without one.
    field = "i64" if takes_any_width(_exact_type(value)) and scalar.is_int and scalar.signed else scalar.name
    return Kind(
        "integer" if scalar.is_int and scalar != i1 and parameter.specialize else "number", _exact_type(value), field
    )


def described(value: Any, kind: Kind, parameter: KernelParameter) -> RunTime | ConstantArgument:
    """The part of a specialization that follows from one argument."""
    name = parameter.name
    if kind.way == "constant":
        return ConstantArgument(name, value)
    if kind.way == "descriptor":
        return RunTime(name, value.type, parameter.divisor(value.row_bytes))
    if kind.way == "array":
        array = view(value, name)
        return RunTime(name, PtrType(array.element), parameter.divisor(array.address))
    scalar = parameter.type_of(value)
    assert scalar is not None
    if kind.way == "integer":
        if int(value) == 1:
            return ConstantArgument(name, 1, None if parameter.as_triton else scalar)
        return RunTime(name, scalar, parameter.divisor(int(value)), parameter.is_small(int(value)))
    return RunTime(name, scalar)


def integer_class(value: int) -> tuple[int, int]:
    """The class of integers that share a kernel: (1, 0) for 1; otherwise whether 16 divides it, and its width, which
    is 15 of a small one."""
    if value == 1:
        return 1, 0
    return (
        16 if value % DIVISOR == 0 else 0,
        15
        if 0 <= value < SMALL
        else 32
        if -(1 << 31) <= value < 1 << 31
        else 64
        if -(1 << 63) <= value < 1 << 63
        else 65,
    )


def constant_class(value: Any) -> Any:
    """A hashable key, different for constants that lead to different kernels: 1, 1.0 and True; 0.0 and -0.0."""
    if type(value) is float:
        return struct.pack("d", value)
    return constant_key(value)
