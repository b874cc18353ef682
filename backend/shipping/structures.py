"""The tables of a library, which the launcher reads: their fields, and the numbers in them.

An argument of a launch is a slot of 8 bytes: the bits of a number, an address, or the address of a `TENSOR`. A
parameter of code takes a slot (`offset` is `IN_SLOT`), the 8 bytes at an offset in the tensor whose address the slot
has, or the tensor map of that tensor.
"""

from __future__ import annotations

from typing import Final

from ziggurat.backend.llvm.functions import Struct

MAX_RANK: Final = 5
IN_SLOT: Final = -1
# Its address, its sizes and its strides in elements, outermost axis first.
TENSOR: Final = Struct(
    base="ptr",
    **{f"shape{axis}": "i64" for axis in range(MAX_RANK)},
    **{f"stride{axis}": "i64" for axis in range(MAX_RANK)},
)
FAMILY: Final = Struct(variants="ptr", count="i64", obstacle="ptr")  # `obstacle` says that no code is for this GPU.
VARIANT: Final = Struct(conditions="ptr", condition_count="i64", codes="ptr", code_count="i64", host="ptr")
# The value, times `bytes`, is a multiple of `divisor`; or it is 1 where that is 0.
CONDITION: Final = Struct(slot="i64", offset="i64", bytes="i64", divisor="i64", message="ptr")
PARAMETER: Final = Struct(slot="i64", offset="i64", map="ptr")
CODE: Final = Struct(
    image="ptr", symbol="ptr", low="i64", high="i64", threads="i64", shared="i64", ctas="i64", scratch="i64",
    flags="i64", parameters="ptr", count="i64", maps="ptr", map_count="i64", apart="ptr", apart_count="i64",
    other="ptr", loaded="ptr",
)  # fmt: skip
PERSISTENT, DEPENDENT, COOPERATIVE = 1, 2, 4  # Flags.
# The encoding of a tensor map, innermost axis first. Those that a launch makes of a matrix have four sources: its
# address, its rows, its columns and the elements from a row to the next. Each is a constant, or the number of a
# parameter, if that is not negative.
MAP: Final = Struct(
    element="i64", bytes="i64", rank="i64", swizzle="i64", fill="i64",
    **{f"box{axis}": "i64" for axis in range(MAX_RANK)},
    **{f"source{number}": "i64" for number in range(4)},
    **{f"constant{number}": "i64" for number in range(4)},
)  # fmt: skip
# Two descriptors that must share no memory: their slots, ranks and the bytes of their elements.
APART: Final = Struct(slot="i64", rank="i64", bytes="i64", other_slot="i64", other_rank="i64", other_bytes="i64")
LOADED: Final = Struct(following="ptr", context="ptr", function="ptr", most="i64")
# `features` are those that a processor must have, as bits: see `FEATURES`. `lacks` is the message for one without them.
HOST_CODE: Final = Struct(
    entry="ptr", parameters="ptr", count="i64", bounds="i64", scratch="i64", sites="ptr", features="i64", lacks="ptr"
)

# Statuses of the launcher itself, which are CUresults; programs that fail on a CPU give the code of their record.
INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED, NO_BINARY, NOT_FOUND, NOT_SUPPORTED = 1, 2, 3, 209, 500, 801

# Numbers of cuda.h.
TENSOR_MAP_TYPES: Final = (
    "UINT8", "UINT16", "UINT32", "INT32", "UINT64", "INT64", "FLOAT16", "FLOAT32", "FLOAT64", "BFLOAT16"
)  # fmt: skip
SWIZZLES: Final = {0: 0, 32: 1, 64: 2, 128: 3}
