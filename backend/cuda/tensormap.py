"""Tensor maps: descriptors made on the host as TMA (sm_90 and later) takes them.

The driver encodes a descriptor into 128 bytes, for a box and a swizzle that the compiler has chosen.
`TensorDescriptor` checks addresses, sizes and strides as `cuTensorMapEncodeTiled` does.
"""

from __future__ import annotations

import ctypes

from ziggurat.backend.cuda.driver import check, cuda
from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.codemodel.errors import LaunchError

_SWIZZLES = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}


def encode(descriptor: TensorDescriptor, box: tuple[int, ...], swizzle: int) -> bytes:
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
    made = check(result, f"describing {descriptor!r}")
    return ctypes.string_at(made.getPtr(), 128)
