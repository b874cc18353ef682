"""Tensor descriptors made on the host: arguments that a kernel moves in blocks.

`TensorDescriptor` checks addresses, sizes and strides as `cuTensorMapEncodeTiled` does, by which the driver encodes a
descriptor into the 128 bytes that TMA (sm_90 and later) takes, for a box and a swizzle that the compiler has chosen.
"""

from __future__ import annotations

import ctypes
import functools
import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs

from ziggurat.backend.devices.driver import check, cuda
from ziggurat.backend.launch.arrays import address, as_array, elements, is_array
from ziggurat.backend.launch.device_arrays import layout, reader_of, view
from ziggurat.codemodel.errors import LaunchError, shown
from ziggurat.codemodel.gpu.fragments import Tile
from ziggurat.codemodel.types import MAX_ELEMENTS, DescriptorType, ScalarType

if TYPE_CHECKING:
    import numpy as np

_SWIZZLES = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}
NO_TILE: Tile = ((), 0)  # of a kernel that does not use the map
_MAX_SIZE = (1 << 31) - 1  # Sizes are i32 in kernels.
_UNIT = 16  # Bytes: strides for TMA are multiples of this.


def descriptor_type(block: Sequence[int], element: ScalarType, padding: str = "zero") -> DescriptorType:
    """The type of descriptors of such blocks, as `zg.make_tensor_descriptor` makes them.

    A block has 1 to 5 sizes, powers of two, and rows of 16 bytes or more. Raises `LaunchError` for any other.
    """
    if not isinstance(element, ScalarType):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise LaunchError(f"the elements of a descriptor must have a dtype such as zg.f32; got {shown(element)}")
    sizes: tuple[Any, ...] = tuple(block) if isinstance(block, (tuple, list)) else (block,)
    if not 1 <= len(sizes) <= 5 or any(type(size) is not int for size in sizes):
        raise LaunchError(f"the block of a descriptor must be a tuple of 1 to 5 integers; got {shown(block)}")
    for size in sizes:
        if size < 1 or size & (size - 1):
            raise LaunchError(
                f"the sizes of a block must be powers of two; got {shown(size)} in {shown(list(sizes))}",
                hint=f"use {1 << (size - 1).bit_length()}: elements outside of the tensor are padding"
                if 0 < size < MAX_ELEMENTS
                else None,
            )
    if math.prod(sizes) > MAX_ELEMENTS:
        raise LaunchError(f"a block must have at most {MAX_ELEMENTS} elements; got {shown(list(sizes))}")
    row = sizes[-1] * element.bytes
    if row < _UNIT:
        raise LaunchError(
            f"a row of a block must have at least {_UNIT} bytes; a row of {list(sizes)} of {element} has {row}",
            hint=f"make the last size {_UNIT // element.bytes} or more",
        )
    if padding not in DescriptorType.PADDINGS or (padding == "nan" and not element.is_float):
        raise LaunchError(f'padding must be "zero", or "nan" for floats; got {shown(padding)} for {element}')
    return DescriptorType(sizes, element, padding)


class _Maps(dict[Tile, bytes]):
    """The encoded descriptors by box and swizzle, each made at its first use."""

    def __init__(self, descriptor: TensorDescriptor) -> None:
        super().__init__()
        self.descriptor = descriptor

    def __missing__(self, tile: Tile) -> bytes:
        encoded = self[tile] = bytes(128) if tile == NO_TILE else encode(self.descriptor, *tile)
        return encoded


class TensorDescriptor:
    """A tensor as an argument of a kernel, which loads and stores it in blocks.

        scale[(4, 2)](zg.TensorDescriptor(x, (16, 32)), zg.TensorDescriptor(out, (16, 32)))

    `array` is an array of any library, on a GPU or in memory; the kernel sees its elements as they are when it runs.
    `shape` and `strides` (in elements; the last is 1) default to the array's. One load or store moves a `block`.
    `padding`, "zero" or "nan", is the value of a block's elements outside of the tensor.

    TMA cannot address every tensor: strides other than the last must be multiples of 16 bytes, sizes less than 2^31.
    Arrays in memory must fulfil the same, so that a launch that runs there runs on a GPU. The address of the first
    element must be a multiple of 16 on a GPU only, as allocations in memory differ. Raises `LaunchError` for any other
    tensor.
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
        self.array = array
        self.element, self.address, self.device, own_shape, own_strides, self.host = _facts(array)
        self.is_cuda = self.host is None  # torch's name for it: launches read it from all their arguments
        self.shape = own_shape if shape is None else _integers("shape", shape)
        self.strides = (
            _usable_strides(self.shape, own_strides, self.element) if strides is None else _integers("strides", strides)
        )
        self.type = descriptor_type(block, self.element, padding)
        self.block = self.type.block
        self.padding = padding
        _check(self)
        self.row_bytes = self.shape[-1] * self.element.bytes
        # Launches of one compiled kernel on a GPU have equal keys; a tensor in memory has another.
        whole = "" if self.row_bytes % _UNIT else " in whole rows"
        self.key = f"{self.type}{whole}" if self.host is None else f"{self.type} in memory"
        self.numbers = (self.address, *self.shape, *self.strides)
        self.maps: dict[Tile, bytes] = _Maps(self)

    @functools.cached_property
    def extent(self) -> tuple[int, tuple[int, ...], int]:
        """The first byte of the tensor, its strides but for the last in bytes, and the byte after its last."""
        width = self.element.bytes
        last = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return self.address, tuple(stride * width for stride in self.strides[:-1]), self.address + (last + 1) * width

    def part(self, part: str, tile: Tile) -> Any:
        """The argument for a parameter that takes one part: the bytes of the map, an address, or a number.

        Raises `LaunchError` for a tensor that is not on a GPU.
        """
        if self.host is not None:
            raise LaunchError(
                f"{self!r} must describe an array on a GPU; its array is in the memory of this machine",
                hint="describe a copy on the GPU: zg.TensorDescriptor(zg.to_device(x), …)",
            )
        field = field_of(part, len(self.shape))
        return self.maps[tile] if field == 0 else self.numbers[field - 1]

    def __repr__(self) -> str:
        return f"<TensorDescriptor of {self.element} {list(self.shape)} in blocks of {list(self.block)}>"


@attrs.frozen
class TensorMapMatrix:
    """A matrix in memory, with the fields of a descriptor that `encode` reads."""

    element: ScalarType
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    padding: str = "zero"


def encode(descriptor: TensorDescriptor | TensorMapMatrix, box: tuple[int, ...], swizzle: int) -> bytes:
    """The 128 bytes that stand for a descriptor in the machine, for a box (outermost axis first) and a swizzle in
    bytes."""
    width, rank = descriptor.element.bytes, len(descriptor.shape)
    row = box[-1] * width
    if len(box) != rank or not all(1 <= size <= 256 for size in box) or row % 16 or (swizzle and row > swizzle):
        raise LaunchError(
            f"TMA cannot move boxes of {box} {descriptor.element} with a swizzle of {swizzle} bytes: "
            "sides are at most 256, rows a multiple of 16 bytes, and no longer than the swizzle",
            hint="make the last block size larger" if row % 16 else None,
        )
    if descriptor.padding == "nan" and descriptor.element.is_fp8:
        raise LaunchError(
            f"TMA cannot pad {descriptor.element} with NaN: it treats floats of 8 bits as integers",
            hint='padding="zero"',
        )
    driver = cuda()
    wide, narrow = driver.cuuint64_t, driver.cuuint32_t
    fill = "NAN_REQUEST_ZERO_FMA" if descriptor.padding == "nan" else "NONE"
    result = driver.cuTensorMapEncodeTiled(
        getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{descriptor.element.tensor_map}"),
        rank,
        descriptor.address,
        [wide(size) for size in reversed(descriptor.shape)],
        [wide(stride * width) for stride in reversed(descriptor.strides[:-1])],
        [narrow(size) for size in reversed(box)],
        [narrow(1)] * rank,
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{_SWIZZLES[swizzle]}"),
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        getattr(driver.CUtensorMapFloatOOBfill, f"CU_TENSOR_MAP_FLOAT_OOB_FILL_{fill}"),
    )
    encoded = check(result, f"describing {descriptor!r}")
    return ctypes.string_at(encoded.getPtr(), 128)


def field_of(part: str, rank: int) -> int:
    """The number of a part among a descriptor's fields: the map, the base, the shape and the strides."""
    if part in ("", "map", "base"):
        return int(part == "base")
    return 2 + int(part[-1]) + (rank if part.startswith("stride") else 0)


def _facts(
    array: Any,
) -> tuple[ScalarType, int, int | None, tuple[int, ...], tuple[int, ...], np.ndarray[Any, Any] | None]:
    """The element type, address, device, shape and strides in elements of an array, and the NumPy array of one in
    memory."""
    reader = reader_of(array)
    if reader is None and not is_array(array):
        raise LaunchError(
            f"the first argument of a descriptor must be an array; got {type(array).__name__}",
            hint="make one: np.array(…)" if isinstance(array, (list, tuple)) else None,
        )
    if reader is None:
        host = as_array(array, "array")
        element = elements()[host.dtype]
        if any(stride % element.bytes for stride in host.strides):
            raise LaunchError(f"the strides of a described array must be whole elements; got {host.strides} bytes")
        strides = tuple(stride // element.bytes for stride in host.strides)
        return element, address(host), None, host.shape, strides, host
    facts = view(array, "array")
    geometry = layout(array, facts.element.bytes)
    if geometry is None:
        raise LaunchError("the array of a descriptor must tell its shape", hint="give it __cuda_array_interface__")
    return facts.element, facts.address, facts.device, *geometry, None


def _integers(name: str, values: Any) -> tuple[int, ...]:
    """A shape or strides as a tuple of ints. Raises `LaunchError` for anything but 1 to 5 integers."""
    try:
        integers = tuple(values)
        numbers = tuple(operator.index(number) for number in integers if not isinstance(number, bool))
    except TypeError:
        integers = numbers = ()
    if not 1 <= len(numbers) <= 5 or len(numbers) != len(integers) or any(abs(number) >= 1 << 63 for number in numbers):
        raise LaunchError(f"the {name} of a descriptor must be 1 to 5 integers; got {shown(values)}")
    return numbers


def _usable_strides(shape: tuple[int, ...], strides_in: tuple[int, ...], element: ScalarType) -> tuple[int, ...]:
    """The array's strides; a stride that TMA cannot use is replaced where the size is 1, as no step is taken there."""
    if len(shape) != len(strides_in):
        return strides_in
    strides: list[int] = []
    unit = _UNIT // element.bytes
    extent = 1
    for axis, (size, stride) in reversed(list(enumerate(zip(shape, strides_in, strict=True)))):
        if size == 1 and axis == len(shape) - 1:
            stride = 1
        elif size == 1 and (stride < 0 or stride % unit):
            stride = -(-extent // unit) * unit
        strides.insert(0, stride)
        extent = size * stride
    return tuple(strides)


def _check(descriptor: TensorDescriptor) -> None:
    """Raise `LaunchError` unless TMA can address the tensor, or could if it were on a GPU."""
    rank, width = len(descriptor.shape), descriptor.element.bytes
    if not 1 <= rank <= 5 or len(descriptor.strides) != rank or len(descriptor.block) != rank:
        raise LaunchError(
            "a descriptor must have 1 to 5 axes, and a size, a stride and a block size for each; got the shape "
            f"{descriptor.shape}, the strides {descriptor.strides} and the block {descriptor.block}"
        )
    if not all(1 <= size <= _MAX_SIZE for size in descriptor.shape):
        raise LaunchError(f"the sizes of a descriptor must be from 1 to 2^31 - 1; got {descriptor.shape}")
    if descriptor.strides[-1] != 1:
        raise LaunchError(
            f"the last stride of a descriptor must be 1; got {descriptor.strides[-1]}",
            hint="make the array contiguous, or describe its transpose",
        )
    if descriptor.host is None and descriptor.address % _UNIT:
        raise LaunchError(f"the address of a descriptor's tensor must be a multiple of 16; got {descriptor.address:#x}")
    for axis, stride in enumerate(descriptor.strides[:-1]):
        if stride * width % _UNIT or not 0 <= stride * width < 1 << 40:
            raise LaunchError(
                f"stride {axis} of a descriptor must be a multiple of 16 bytes; got {stride} elements of {width} bytes",
                hint="pad the rows of the array: x = np.empty((rows, more), dtype)[:, :columns]",
            )


def check_disjoint(
    pairs: Sequence[tuple[int, int]], arguments: Sequence[Any], names: Sequence[str], kernel: str
) -> None:
    """Raise `LaunchError` where a kernel would load elements through one descriptor that it stores through another.

    `pairs` are numbers of parameters. The kernel stores through the first, and its pipelined loads through the second
    run before stores that precede them in the program.
    """
    for store, load in pairs:
        if share_memory(arguments[store], arguments[load]):
            raise LaunchError(
                f"'{names[store]}' and '{names[load]}' of '{kernel}' must not share memory: a loop stores through "
                "one and loads through the other, and pipelined loads run before earlier stores",
                hint="pass one descriptor for both, or copy the array",
            )


def share_memory(descriptor: TensorDescriptor, other: TensorDescriptor) -> bool:
    """Whether tensors may share elements: their bytes overlap, and they are not different columns of one matrix."""
    (low, one_rows, high), (other_low, other_rows, other_high) = descriptor.extent, other.extent
    if high <= other_low or other_high <= low:
        return False
    pitch = one_rows[-1] if one_rows == other_rows and one_rows else 0
    if not pitch or any(step % pitch for step in one_rows):
        return True
    column = (other_low - low) % pitch
    return column < descriptor.row_bytes or column + other.row_bytes > pitch
