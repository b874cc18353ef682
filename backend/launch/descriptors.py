"""Descriptors made on the host: a tensor, wherever it is, that a kernel takes as an argument and moves in blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from ziggurat.backend.launch.arrays import ELEMENTS, address, as_array, is_array
from ziggurat.codemodel.dialects.tt import MAX_NUMEL
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.gpu.fragments import Tile
from ziggurat.codemodel.types import DescriptorType, ScalarType

NO_TILE: Tile = ((), 0)  # of a kernel that has no use for the map
_LARGEST = (1 << 31) - 1  # Sizes are i32 in kernels.
_UNIT = 16  # The copy engine counts strides in units of so many bytes.


def descriptor_type(block: Sequence[int], element: ScalarType, padding: str = "zero") -> DescriptorType:
    """The type of descriptors of such blocks, which are as `zg.make_tensor_descriptor` has them.

    A block has 1 to 5 sizes, powers of two, and rows of 16 bytes or more. Raises `LaunchError` for any other.
    """
    if not isinstance(element, ScalarType):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise LaunchError(f"a descriptor's elements have a dtype such as zg.f32, got {element!r}")
    sizes: tuple[Any, ...] = tuple(block) if isinstance(block, (tuple, list)) else (block,)
    if not 1 <= len(sizes) <= 5 or any(type(size) is not int for size in sizes):
        raise LaunchError(f"the block of a descriptor is a tuple of 1 to 5 integers, got {block!r}")
    for size in sizes:
        if size < 1 or size & (size - 1):
            raise LaunchError(
                f"the size {size} in the block {list(sizes)} is not a power of two",
                hint=f"use {1 << (size - 1).bit_length()}: what is outside of the tensor is padding"
                if size > 0
                else None,
            )
    if math.prod(sizes) > MAX_NUMEL:
        raise LaunchError(f"a block of {list(sizes)} has more than {MAX_NUMEL} elements")
    row = sizes[-1] * element.bytes
    if row < _UNIT:
        raise LaunchError(
            f"a row of the block {list(sizes)} of {element} has {row} bytes; it needs {_UNIT}",
            hint=f"make the last size {_UNIT // element.bytes} or more",
        )
    if padding not in DescriptorType.PADDINGS or (padding == "nan" and not element.is_float):
        raise LaunchError(f'padding is "zero", or "nan" for floats; got {padding!r} for {element}')
    return DescriptorType(sizes, element, padding)


@attrs.frozen(eq=False)
class _Seen:
    """What an array says of itself: strides in elements; `host` the array for NumPy, where it is in memory."""

    element: ScalarType
    address: int
    device: int | None
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    host: np.ndarray[Any, Any] | None


class _Maps(dict[Tile, bytes]):
    """The encoded descriptor by box and swizzle, made when first asked for."""

    def __init__(self, descriptor: TensorDescriptor) -> None:
        super().__init__()
        self.descriptor = descriptor

    def __missing__(self, tile: Tile) -> bytes:
        from ziggurat.backend.cuda.tensormap import encode

        made = self[tile] = bytes(128) if tile == NO_TILE else encode(self.descriptor, *tile)
        return made


class TensorDescriptor:
    """A tensor that a kernel takes as an argument, and loads and stores in blocks.

        scale[(4, 2)](zg.TensorDescriptor(x, (16, 32)), zg.TensorDescriptor(out, (16, 32)))

    `array` is an array of any library, on a GPU or in memory; the kernel sees its elements as they are when it runs.
    `shape` and `strides` (in elements; the last is 1) are the array's where they are not given, and `block` is what is
    moved at once. `padding` is "zero" or "nan": what a block holds outside of the tensor.

    The copy engine of a GPU cannot address every tensor: strides are multiples of 16 bytes but for the last, sizes less
    than 2^31. The same is asked of arrays in memory, so that what runs there runs on a GPU. Only the address of the
    first element, which is a multiple of 16 on a GPU, is any in memory: allocations differ in that. Raises
    `LaunchError` for what does not fit.
    """

    def __init__(
        self,
        array: Any,
        block: Sequence[int],
        *,
        shape: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        padding: str = "zero",
    ) -> None:
        seen = _seen(array)
        self.array = array
        self.element = seen.element
        self.address = seen.address
        self.device = seen.device
        self.host = seen.host
        self.is_cuda = seen.host is None  # as torch's arrays say it: launches ask all their arguments for it
        self.shape = seen.shape if shape is None else tuple(map(int, shape))
        self.strides = _settled(self.shape, seen) if strides is None else tuple(map(int, strides))
        self.type = descriptor_type(block, self.element, padding)
        self.block = self.type.block
        self.padding = padding
        _demand(self)
        self.row_bytes = self.shape[-1] * self.element.bytes
        # Launches on a GPU that look alike have equal keys; none has that of a tensor in memory.
        whole = "" if self.row_bytes % _UNIT else " in whole rows"
        self.key = f"{self.type}{whole}" if self.host is None else f"{self.type} in memory"
        self.numbers = (self.address, *self.shape, *self.strides)
        self.maps: dict[Tile, bytes] = _Maps(self)

    def part(self, part: str, tile: Tile) -> Any:
        """What a parameter takes that asks for this part: the bytes of the map, an address, or a number.

        Raises `LaunchError` for a tensor that is not on a GPU.
        """
        if self.host is not None:
            raise LaunchError(
                f"{self!r} is not on a GPU", hint="describe the array there: zg.TensorDescriptor(zg.to_device(x), …)"
            )
        field = field_of(part, len(self.shape))
        return self.maps[tile] if field == 0 else self.numbers[field - 1]

    def __repr__(self) -> str:
        return f"<TensorDescriptor of {self.element} {list(self.shape)} in blocks of {list(self.block)}>"


def field_of(part: str, rank: int) -> int:
    """Which of a descriptor's fields a part is. The fields are the map, the base, the shape and the strides."""
    if part in ("", "map", "base"):
        return int(part == "base")
    return 2 + int(part[-1]) + (rank if part.startswith("stride") else 0)


def _seen(array: Any) -> _Seen:
    from ziggurat.backend.cuda.arrays import reader_of, view

    reader = reader_of(array)
    if reader is None and not is_array(array):
        raise LaunchError(
            f"a descriptor describes an array, got {type(array).__name__}",
            hint="np.array(…) makes one" if isinstance(array, (list, tuple)) else None,
        )
    if reader is None:
        host = as_array(array, "array")
        element = ELEMENTS[host.dtype]
        if any(stride % element.bytes for stride in host.strides):
            raise LaunchError(f"the strides of a described array are whole elements; they are {host.strides} bytes")
        strides = tuple(stride // element.bytes for stride in host.strides)
        return _Seen(element, address(host), None, host.shape, strides, host)
    seen = view(array, "array")
    shape = tuple(map(int, array.shape))
    return _Seen(seen.element, seen.address, seen.device, shape, _strides(array, seen.element), None)


def _strides(array: Any, element: ScalarType) -> tuple[int, ...]:
    """The strides of an array on a GPU, in elements."""
    if callable(getattr(array, "stride", None)):  # torch's, in elements
        rank = len(array.shape)
        return tuple(int(array.stride(axis)) for axis in range(rank))
    in_bytes = getattr(array, "strides", None)
    if in_bytes is None:
        in_bytes = array.__cuda_array_interface__.get("strides")
    if in_bytes is not None:
        return tuple(int(stride) // element.bytes for stride in in_bytes)
    strides: list[int] = []
    step = 1
    for size in reversed(array.shape):
        strides.insert(0, step)
        step *= int(size)
    return tuple(strides)


def _settled(shape: tuple[int, ...], seen: _Seen) -> tuple[int, ...]:
    """The array's strides. Along an axis of size 1 no step is taken: where the copy engine would not take its stride,
    it gets another."""
    if len(shape) != len(seen.strides):
        return seen.strides
    strides: list[int] = []
    unit = _UNIT // seen.element.bytes
    extent = 1
    for axis, (size, stride) in reversed(list(enumerate(zip(shape, seen.strides, strict=True)))):
        if size == 1 and axis == len(shape) - 1:
            stride = 1
        elif size == 1 and (stride < 0 or stride % unit):
            stride = -(-extent // unit) * unit
        strides.insert(0, stride)
        extent = size * stride
    return tuple(strides)


def _demand(descriptor: TensorDescriptor) -> None:
    """Raise `LaunchError` unless the copy engine can address the tensor, or could if it were on a GPU."""
    rank, width = len(descriptor.shape), descriptor.element.bytes
    if not 1 <= rank <= 5 or len(descriptor.strides) != rank or len(descriptor.block) != rank:
        raise LaunchError(
            "a descriptor has 1 to 5 axes, and a size, a stride and a block size for each; got the shape "
            f"{descriptor.shape}, the strides {descriptor.strides} and the block {descriptor.block}"
        )
    if not all(1 <= size <= _LARGEST for size in descriptor.shape):
        raise LaunchError(f"the sizes of a descriptor are from 1 to 2^31 - 1; got {descriptor.shape}")
    if descriptor.strides[-1] != 1:
        raise LaunchError(
            f"the last stride of a descriptor is 1, not {descriptor.strides[-1]}",
            hint="make the array contiguous, or describe its transpose",
        )
    if descriptor.host is None and descriptor.address % _UNIT:
        raise LaunchError(f"a descriptor's tensor begins at a multiple of 16 bytes, not at {descriptor.address:#x}")
    for axis, stride in enumerate(descriptor.strides[:-1]):
        if stride * width % _UNIT or not 0 <= stride * width < 1 << 40:
            raise LaunchError(
                f"stride {axis} of a descriptor is a multiple of 16 bytes, not {stride} elements of {width} bytes",
                hint="pad the rows of the array: x = np.empty((rows, more), dtype)[:, :columns]",
            )
