"""Plans of launches: tables by which `zg_launch` recognises the arguments of a kernel that was launched before."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, cast

import attrs
import numpy as np

from ziggurat.backend.cpu.runtime import fitting, launcher
from ziggurat.backend.cpu.runtime.kernels import NativeKernel
from ziggurat.backend.launch import checks
from ziggurat.codemodel.types import PtrType, ScalarType, Type, f32, f64, i1, i32, is_hashable

# A constant of these types may be another object with an equal value.
_COMPARED: Final = (int, str, bool)
_FLOATS: Final = {f32: checks.F32, f64: checks.F64}
_DTYPE: Final = sys.intern("dtype")


@attrs.frozen
class Given:
    """An argument of a launch: the type that the kernel is compiled for, or None for a value that is compiled in.

    `rules` say which other values are divisible alike (`checks.DIVISIBLE` …). An argument that the launch leaves out
    is not `passed`; `declared` says that the source declares the type of a number. `stride` has the last three fields
    of the entry of an array.
    """

    name: str
    value: Any
    type: Type | None
    rules: int = 0
    passed: bool = True
    declared: bool = False
    stride: tuple[int, int, int] = (-1, -1, 0)


def plan_of(
    kernel: NativeKernel,
    arguments: Sequence[Given],
    options: Mapping[str, Any],
    result: Any,
    failed: Callable[..., Any],
) -> tuple[Any, ...] | None:
    """The plan for launches with such arguments, one for each parameter, and these options. None where a table cannot
    express them, and for kernels that `run_beside` runs.

    `failed(record, grid, values, names)` is called if a program fails: with bytes, and the values of the call.
    """
    every = [*arguments, *(Given(name, value, None) for name, value in options.items())]
    code = kernel.code
    slots = {parameter.argument: slot for slot, parameter in enumerate(code.parameters)}
    typed = [argument for argument in arguments if argument.type is not None]
    if kernel.prints or kernel.waits or len(every) > fitting.MAX_ENTRIES or len(slots) < len(code.parameters):
        return None
    if sum(isinstance(argument.type, PtrType) for argument in typed) > fitting.MAX_ARRAYS:
        return None
    rows: list[bytes] = []
    # The objects whose addresses the table has. An array that a launch gives must not live as long as the plan.
    values = (argument.value for argument in every if argument.type is None or not argument.passed)
    objects: list[Any] = [kernel, *values]
    number = 0
    for argument in every:
        if argument.type is None:
            row = _constant(argument)
            places = launcher.UNUSED, -1
        else:
            row = _run_time(argument, objects)
            places = slots.get(number, launcher.UNUSED), code.bounds.index(number) if number in code.bounds else -1
            number += 1
        if row is None:
            return None
        name = sys.intern(argument.name)
        objects.append(name)
        rows.append(
            fitting.ENTRY.packer.pack(
                id(name), 0 if argument.passed else id(argument.value), *row, *places, argument.rules, *argument.stride
            )
        )
    methods = _methods(sys.modules.get("torch"))
    head = fitting.TABLE.packer.pack(
        kernel.entry, code.scratch, code.ordered, len(arguments), len(every), code.tolerant, id(True),
        *map(id, (_DTYPE, *methods)),
    )  # fmt: skip
    return head + b"".join(rows), result, failed, [*objects, methods]


def _methods(torch: Any) -> list[Any]:
    """The functions of tensors and storages that a table names; `None` in the places of torch's methods without it."""
    owners = (None, None) if torch is None else (torch.Tensor, torch.UntypedStorage)
    names = (fitting.METHODS, fitting.STORAGE_METHODS)
    methods = [getattr(owner, name, None) for owner, each in zip(owners, names, strict=True) for name in each]
    return [*methods, *map(attrgetter, fitting.ATTRIBUTES), _layout]


def _layout(tensor: Any) -> tuple[int, ...]:
    """The number of elements from the first to the last of a tensor in memory, and its strides."""
    strides = tensor.stride()
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, strides, strict=True)), *strides


_Row = tuple[int, int, int, int, int]  # The kind, the type, the constant or dtype, the least and the largest integer.


def _constant(argument: Given) -> _Row | None:
    if not is_hashable(argument.value):
        return None  # The same object may have other contents at the next launch.
    type_ = cast(Any, type(argument.value))
    return checks.CONSTANT, id(type_) if type_ in _COMPARED else 0, id(argument.value), 0, 0


def _run_time(argument: Given, objects: list[Any]) -> _Row | None:
    value, type_ = argument.value, argument.type
    kind = cast(Any, type(value))
    objects.append(kind)
    if isinstance(type_, PtrType):
        dtype: Any = getattr(value, "dtype", None)
        objects.append(dtype)
        row = id(kind), id(dtype), type_.pointee.bytes, 0
        if kind is np.ndarray:
            return fitting.NUMPY, *row
        torch = sys.modules.get("torch")
        is_tensor = torch is not None and kind in (torch.Tensor, torch.nn.Parameter)
        return (fitting.TORCH, *row) if is_tensor else None
    if not isinstance(type_, ScalarType):
        return None
    if kind is bool:
        return (checks.BOOLEAN, id(kind), 0, 0, 0) if type_ == i1 else None
    if isinstance(value, float | np.floating):
        return (_FLOATS[type_], id(kind), 0, 0, 0) if type_ in _FLOATS else None
    if not isinstance(value, int | np.integer) or not type_.is_int or type_ == i1:
        return None
    low, high = _class(argument.value, type_, argument.declared or kind not in (int, np.int64))
    return (checks.INTEGER, id(kind), 0, low, high) if high < 1 << 63 else None


def _class(value: int, type_: ScalarType, is_declared: bool) -> tuple[int, int]:
    """The least and the largest integer that has the same type in a launch: the first of i32, i64 and u64 that holds
    it, unless the source declares it."""
    low, high = type_.limits
    if is_declared or type_ == i32:
        return low, high
    return (i32.limits[1] + 1, high) if value > 0 else (low, i32.limits[0] - 1)
