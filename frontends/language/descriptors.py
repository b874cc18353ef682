"""Tensors in global memory that are loaded and stored in blocks.

A kernel makes a descriptor of a pointer, or takes one as an argument: `zg.TensorDescriptor(array, (64, 64))` makes it
at a launch, and `zg.descriptor((64, 64), zg.f16)` is its type. It holds the shape and the strides. The last stride
must be 1, and the other strides of an argument must be multiples of 16 bytes, as TMA requires. TMA loads the blocks
that are operands of a dot. It stores to tensors whose rows are multiples of 16 bytes (`zg.divisible(zg.descriptor(…))`;
a launch finds out by itself), where the first column of a block is known to be at a multiple of 16 bytes. Other blocks
are moved through pointers.
"""

from __future__ import annotations

from typing import Final

from ziggurat.frontends.language.kinds import ConstShape, ConstStr, Value, Values
from ziggurat.frontends.language.signature import call

__all__ = ["load_tensor_descriptor", "make_tensor_descriptor", "store_tensor_descriptor"]


@call("Tensor descriptors")
def make_tensor_descriptor(
    base: Value, shape: Values, strides: Values, block_shape: ConstShape, padding_option: ConstStr = "zero"
) -> Value:
    """Describe a tensor in global memory.

    - `base`: a pointer to its first element, 16-byte aligned.
    - `shape`: its sizes, a tuple of integers; cast to i32.
    - `strides`: along each axis from one element to the next, counted in elements; a tuple of integers, cast to i64.
      The last is 1.
    - `block_shape`: a tuple of powers of two: what is loaded or stored at once.
    - `padding_option`: "zero" or (of floats) "nan": what a block holds outside of the tensor.

    Result: a descriptor.
    Errors: tuples of unequal length; a base that is not a scalar pointer; a last stride known not to be 1.
    """


@call("Tensor descriptors")
def load_tensor_descriptor(desc: Value, offsets: Values) -> Value:
    """Read a block: `desc.load(offsets)`.

    - `desc`: a descriptor.
    - `offsets`: where the block starts, a tuple of integers, one an axis; cast to i32.

    Result: a tensor of the block's shape; outside of the tensor it holds the descriptor's padding.
    Errors: another number of offsets than axes.
    """


@call("Tensor descriptors")
def store_tensor_descriptor(desc: Value, offsets: Values, value: Value) -> None:
    """Write a block: `desc.store(offsets, value)`.

    - `desc`: a descriptor.
    - `offsets`: where the block starts, a tuple of integers, one an axis; cast to i32.
    - `value`: a tensor of the block's shape; cast to the descriptor's dtype.

    Result: none. What is outside of the tensor is not written.
    Errors: another number of offsets than axes; a value of another shape.
    """


# The call that a method of a value stands for; the value is its first argument.
METHODS: Final[dict[str, str]] = {"load": "load_tensor_descriptor", "store": "store_tensor_descriptor"}
