"""The values of a kernel's parameters, from the arguments of a launch.

A parameter of a Triton model is an argument. One of a model on its way to a GPU may be a part of an argument, such as
the base of a descriptor, or what the launch provides (`tt.Func.parts`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import attrs
import numpy as np

from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.backend.reference.argument_memory import ArrayArgument
from ziggurat.backend.reference.values import POINTER, Array, descriptor, is_array
from ziggurat.codemodel import scalars
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.errors import LaunchError, shown
from ziggurat.codemodel.gpu.fragments import GRID, MAP, SCRATCH, STORED
from ziggurat.codemodel.messages import Phrase, say
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import DescriptorType, PtrType, ScalarType, Type, i32, i64

_DESCRIBE = Phrase(zg="zg.TensorDescriptor({name}, {block})", tl="TensorDescriptor.from_tensor({name}, {block})")


def values_of_parameters(
    kernel: Op, objects: Sequence[object], names: Sequence[str] | None, memory: Callable[[Array], Array],
    grid: Sequence[int],
) -> tuple[list[ArrayArgument], list[Any]]:  # fmt: skip
    """The arrays of a launch with the memory of each, and the value of each parameter.

    `grid` has three sizes. Raises `LaunchError` for arguments that do not fit.
    """
    parameters = kernel.bodies[0].parameters
    parts = kernel.parts if isinstance(kernel, tt.Func) else ()
    parts = parts or tuple(map(str, range(len(parameters))))
    count = len({part.partition(".")[0] for part in parts if part[0].isdigit()})
    if names is None:
        names = [f"arg{index}" for index in range(count)]
    if len(names) != count:
        raise LaunchError(f"the kernel has {count} parameters, but {len(names)} names are given")
    if len(objects) != count:
        raise LaunchError(f"the kernel takes {count} argument(s); got {len(objects)}")
    divided = isinstance(kernel, tt.Func) and (kernel.num_ctas > 1 or bool(kernel.parts))
    arguments = _Arguments(objects, names, memory, divided)
    values: list[Any] = []
    for parameter, part in zip(parameters, parts, strict=True):
        word, *rest = part.removesuffix(STORED).split()
        if word == SCRATCH:
            values.append(np.zeros(1, POINTER))  # No op reads or writes it here.
        elif word == GRID:
            values.append(np.full(1, grid[int(rest[0])], np.int32))
        elif word == MAP:
            base, *numbers = (np.full(1, int(s[1:])) if s.startswith("=") else values[int(s)] for s in rest)
            rows, columns, pitch = (number.astype(np.int64) for number in numbers)
            values.append((base, rows.astype(np.int32), columns.astype(np.int32), pitch, np.ones(1, np.int64)))
        else:
            number, _, field = part.partition(".")
            values.append(arguments.value(int(number), field, parameter.type))
    return [arguments.arrays[number] for number in sorted(arguments.arrays)], values


@attrs.frozen(eq=False)
class _Arguments:
    """The arguments of a launch, and the arrays among them by number. Blocks of descriptors may be `divided`."""

    objects: Sequence[object]
    names: Sequence[str]
    memory: Callable[[Array], Array]
    divided: bool
    arrays: dict[int, ArrayArgument] = attrs.field(factory=dict[int, ArrayArgument])

    def value(self, number: int, field: str, type_: Type) -> Any:
        """The value of a parameter of a type: an argument, or a field of a descriptor."""
        value, name = self.objects[number], self.names[number]
        if field not in ("", "map"):
            description, array = _described(value, type_, name)
            if field == "base":
                return np.full(1, self._array(number, array).pointer, POINTER)
            numbers = description.shape if field.startswith("shape") else description.strides
            return _number(int(numbers[int(field[-1])]), i32 if field.startswith("shape") else i64, name)
        if isinstance(type_, PtrType):
            return np.full(1, self._array(number, _array(value, type_, name)).pointer, POINTER)
        if isinstance(type_, DescriptorType):
            description, array = _described(value, type_, name, exactly=not self.divided)
            return descriptor(self._array(number, array).pointer, description.shape, description.strides)
        if isinstance(type_, ScalarType):
            return _number(value, type_, name)
        raise LaunchError(f"{name} is of type {type_}, which cannot be passed to a kernel")

    def _array(self, number: int, array: Array) -> ArrayArgument:
        if number not in self.arrays:
            self.arrays[number] = ArrayArgument(number, self.names[number], array, self.memory(array))
        return self.arrays[number]


def _described(value: object, type_: Type, name: str, *, exactly: bool = False) -> tuple[TensorDescriptor, Array]:
    """A descriptor and its array. `exactly` says that its blocks must be those of the parameter."""
    if not isinstance(value, TensorDescriptor):
        raise LaunchError(
            say("{} must be a {TensorDescriptor} for {}; got {}", name, str(type_), type(value).__name__),
            hint=_DESCRIBE(name=name, block=list(getattr(type_, "block", ()))) if is_array(value) else None,
        )
    if exactly and value.type != type_:
        raise LaunchError(f"{name} must be of type {type_}; got {value.type}")
    if value.host is None:
        raise LaunchError(
            f"{name} must describe an array in memory, as the kernel runs on the CPU; its array is on a GPU",
            hint="copy the array to the CPU first: .cpu() or .get()",
        )
    return value, value.host


def _array(value: object, type_: PtrType, name: str) -> Array:
    expected = type_.pointee.dtype
    if not is_array(value):
        raise LaunchError(f"{name} must be a NumPy array of {expected} for {type_}; got {type(value).__name__}")
    if value.dtype != expected or not value.dtype.isnative:
        raise LaunchError(f"{name} must be an array of {expected} for {type_}; got {value.dtype}")
    return value


def _number(value: object, type_: ScalarType, name: str) -> Array:
    if isinstance(value, np.generic):
        is_plain = isinstance(value, np.number | np.bool_)  # bf16 and the 8-bit floats are not.
        value = cast(object, value.item()) if is_plain else float(cast(Any, value))
    if not isinstance(value, int | float if type_.is_float else int):
        raise LaunchError(f"{name} must be a number of type {type_}; got {shown(value)}")
    low, high = (-(1 << 1023), 1 << 1023) if type_.is_float else type_.limits
    if isinstance(value, int) and not low <= value <= high:
        raise LaunchError(f"{name} must fit in {type_}; got {shown(value)}")
    return scalars.array_of(value, type_)
