"""Descriptors made on the host: tensors that the bulk copy engine (TMA, sm_90 and up) moves in blocks.

A descriptor is encoded by the driver into 128 bytes, for a box and a swizzle that the compiler has chosen for the
kernel; `box_and_swizzle` is the usual choice. What is asked of addresses, sizes and strides is that of
`cuTensorMapEncodeTiled`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from ziggurat.backend.cuda.arrays import view
from ziggurat.backend.cuda.driver import check, cuda
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.fragments import Tile
from ziggurat.codemodel.fragments import box_and_swizzle as box_and_swizzle
from ziggurat.codemodel.types import DescriptorType, ScalarType

NO_TILE: Tile = ((), 0)  # of a kernel that has no use for the map

_DATA_TYPES = {
    **dict.fromkeys(("i1", "i8", "u8", "f8e4m3", "f8e5m2"), "UINT8"),
    **dict.fromkeys(("i16", "u16"), "UINT16"),
    "i32": "INT32",
    "u32": "UINT32",
    "i64": "INT64",
    "u64": "UINT64",
    "f16": "FLOAT16",
    "bf16": "BFLOAT16",
    "f32": "FLOAT32",
    "f64": "FLOAT64",
}
_SWIZZLES = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}


def field_of(part: str, rank: int) -> int:
    """Which of a descriptor's fields a part is. The fields are the map, the base, the shape and the strides."""
    if part in ("", "map", "base"):
        return int(part == "base")
    return 2 + int(part[-1]) + (rank if part.startswith("stride") else 0)


class _Maps(dict[Tile, bytes]):
    """The encoded descriptor by box and swizzle, made when first asked for."""

    def __init__(self, descriptor: TensorDescriptor) -> None:
        super().__init__()
        self.descriptor = descriptor

    def __missing__(self, tile: Tile) -> bytes:
        made = self[tile] = bytes(128) if tile == NO_TILE else encode(self.descriptor, *tile)
        return made


class TensorDescriptor:
    """A tensor in a GPU's memory that a kernel loads and stores in blocks.

    `array` is an array on a GPU of any library. `shape` and `strides` (in elements; the last is 1) are the array's
    where they are not given, and `block` is what is moved at once. `padding` is "zero" or "nan": what a block holds
    outside of the tensor. Raises `LaunchError` for what the copy engine cannot address.
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
        seen = view(array, "array")
        self.array = array
        self.block = tuple(block)
        self.element = seen.element
        self.address = seen.address
        self.device = seen.device
        self.shape = tuple(map(int, array.shape if shape is None else shape))
        self.strides = _strides(array, self.element) if strides is None else tuple(map(int, strides))
        self.padding = padding
        _demand(self)
        self.type = DescriptorType(self.block, self.element)
        self.key = f"{self.type} {padding}"
        self.numbers = (self.address, *self.shape, *self.strides)
        self.maps: dict[Tile, bytes] = _Maps(self)

    def part(self, part: str, tile: Tile) -> Any:
        """What a parameter takes that asks for this part: the bytes of the map, an address, or a number."""
        field = field_of(part, len(self.shape))
        return self.maps[tile] if field == 0 else self.numbers[field - 1]

    def __repr__(self) -> str:
        return f"<TensorDescriptor of {self.element} {list(self.shape)} in blocks of {list(self.block)}>"


def _strides(array: Any, element: ScalarType) -> tuple[int, ...]:
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


def _demand(descriptor: TensorDescriptor) -> None:
    """Raise `LaunchError` unless the copy engine can address the tensor."""
    rank, width = len(descriptor.shape), descriptor.element.bytes
    if not 1 <= rank <= 5 or len(descriptor.strides) != rank or len(descriptor.block) != rank:
        raise LaunchError(
            "a descriptor has 1 to 5 axes, and a size, a stride and a block size for each; got the shape "
            f"{descriptor.shape}, the strides {descriptor.strides} and the block {descriptor.block}"
        )
    if descriptor.padding not in ("zero", "nan") or (descriptor.padding == "nan" and not descriptor.element.is_float):
        raise LaunchError(
            f'padding is "zero", or "nan" for floats; got "{descriptor.padding}" for {descriptor.element}'
        )
    if descriptor.strides[-1] != 1:
        raise LaunchError(
            f"the last stride of a descriptor is 1, not {descriptor.strides[-1]}",
            hint="make the array contiguous, or describe its transpose",
        )
    if descriptor.address % 16:
        raise LaunchError(f"a descriptor's tensor begins at a multiple of 16 bytes, not at {descriptor.address:#x}")
    for axis, stride in enumerate(descriptor.strides[:-1]):
        if stride * width % 16 or not 0 <= stride * width < 1 << 40:
            raise LaunchError(
                f"stride {axis} of a descriptor is a multiple of 16 bytes, not {stride} elements of {width} bytes",
                hint="pad the rows of the array",
            )
    if not all(1 <= size <= 1 << 32 for size in descriptor.shape):
        raise LaunchError(f"the sizes of a descriptor are from 1 to 2^32; got {descriptor.shape}")


def encode(descriptor: TensorDescriptor, box: tuple[int, ...], swizzle: int) -> bytes:
    """The 128 bytes that stand for a descriptor in the machine, for a box (outermost axis first) and a swizzle in
    bytes."""
    width, rank = descriptor.element.bytes, len(descriptor.shape)
    row = box[-1] * width
    if len(box) != rank or not all(1 <= size <= 256 for size in box) or row % 16 or (swizzle and row > swizzle):
        raise LaunchError(
            f"the copy engine cannot move boxes of {box} {descriptor.element} with a swizzle of {swizzle} bytes: "
            "sides are at most 256, rows a multiple of 16 bytes, and no longer than the swizzle",
            hint="make the last block size larger" if row % 16 else None,
        )
    driver = cuda()
    wide, narrow = driver.cuuint64_t, driver.cuuint32_t
    fill = "NAN_REQUEST_ZERO_FMA" if descriptor.padding == "nan" else "NONE"
    result = driver.cuTensorMapEncodeTiled(
        getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_DATA_TYPES[descriptor.element.name]}"),
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
    made = check(result, f"describing {descriptor!r}")
    return ctypes.string_at(made.getPtr(), 128)
