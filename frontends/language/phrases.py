"""The sentences of messages that name what an author writes, in each language; see `ziggurat.codemodel.messages`."""

from __future__ import annotations

from typing import Final

from ziggurat.codemodel.messages import Phrase

# Hints: casts.
CAST_OPERANDS: Final = Phrase(
    zg="convert the operands with zg.cast",
    tl="convert the operands: x.to(tl.float16)",
    c="convert the operands: (half)x",
)
CAST_TENSOR: Final = Phrase(
    zg="convert tensors with zg.cast(x, {dtype})",
    tl="convert tensors with x.to({dtype})",
    c="convert arrays with ({dtype})x",
)
CAST_BITS: Final = Phrase(
    zg="use zg.cast to convert the value",
    tl="use x.to({dtype}) without bitcast=True to convert the value",
    c="use ({dtype})x to convert the value",
)
CAST_OFFSET: Final = Phrase(
    zg="compute the offset in integers, or cast it with zg.cast(offset, zg.i32)",
    tl="compute the offset in integers, or cast it: offset.to(tl.int32)",
    c="compute the offset in integers, or cast it: (int)offset",
)
CAST_COUNT: Final = Phrase(
    zg="convert it with zg.cast(n, zg.i32)", tl="convert it: n.to(tl.int32)", c="convert it: (int)n"
)
GIVE_WIDTH: Final = Phrase(
    zg="give it a width with zg.cast", tl="give it a width: tl.cast(x, tl.int32)", c="give it a width: (int)x"
)

# Hints: operators.
DIVIDE: Final = Phrase(zg="use zg.div", tl="use a / b", c="use a / b")
DIVIDE_FLOATS: Final = Phrase(
    zg="for floats, zg.floor(zg.div(a, b))", tl="for floats, tl.floor(a / b)", c="for floats, floor(a / b)"
)
MULTIPLY_ADD: Final = Phrase(zg="use zg.add(zg.mul(a, b), c)", tl="use a * b + c", c="use a * b + c")
INVERT: Final = Phrase(
    zg="use zg.invert to exchange true and false", tl="use ~x to exchange true and false",
    c="use !x to exchange true and false",
)  # fmt: skip
POWER: Final = Phrase(
    zg="use zg.mul for small powers, zg.exp2(zg.mul(b, zg.log2(a))) otherwise",
    tl="use a * a for small powers, tl.exp2(b * tl.log2(a)) otherwise",
    c="use a * a for small powers, exp2(b * log2(a)) otherwise",
)
COMPARE: Final = Phrase(
    zg="make a condition with zg.compare", tl="make a condition by comparing: x != 0", c="compare numbers: x != 0"
)
COMPARE_OFFSETS: Final = Phrase(
    zg="make a mask with zg.compare", tl="make a mask by comparing: offsets < n",
    c="make a mask by comparing: offsets < n",
)  # fmt: skip
CHOOSE: Final = Phrase(
    zg="use zg.where to choose element by element, or reduce it to a scalar first (zg.any, zg.all)",
    tl="use tl.where to choose element by element, or reduce it to a scalar first (tl.max)",
    c="choose element by element with c ? x : y, or reduce it to a scalar first: any(x), all(x)",
)

# Hints: shapes.
ADD_AXIS: Final = Phrase(
    zg="make the sizes equal, or one of them 1; add an axis of size 1 with zg.expand",
    tl="make the sizes equal, or one of them 1; add an axis of size 1 with x[:, None]",
    c="make the sizes equal, or one of them 1; add an axis of size 1 with x[:, newaxis]",
)
INDEX_TENSOR: Final = Phrase(
    zg="use zg.expand to add an axis, zg.gather to pick elements",
    tl="use x[:, None] to add an axis, tl.gather to pick elements",
    c="use x[:, newaxis] to add an axis, gather to pick elements",
)
TRANSPOSE: Final = Phrase(zg="exchange rows and columns with zg.trans", c="exchange rows and columns with ^x")
AXIS_LAST: Final = Phrase(zg="move the axis to the end with zg.trans")
POWER_OF_TWO: Final = Phrase(
    zg="use {power} (zg.next_power_of_2({size})) and mask what is beyond",
    tl="use {power} (triton.next_power_of_2({size})) and mask what is beyond",
    c="use {power} and mask what is beyond",
)
RANGE_OF_TWO: Final = Phrase(
    zg="use {call}({start}, {end}) and mask what is beyond", c="use {start} ... {end} and mask what is beyond"
)
MOVE_RANGE: Final = Phrase(
    zg="add the start to smaller numbers: zg.add(zg.cast(zg.arange(0, {count}), zg.i64), {start})",
    tl="add the start to smaller numbers: tl.arange(0, {count}).to(tl.int64) + {start}",
    c="add the start to smaller numbers: (long)(0 ... {count}) + {start}",
)
FIRST_SUM: Final = Phrase(zg="begin with zg.zeros({shape}, {dtype})", c="begin with {dtype} c{sizes} = 0")
FINAL_TYPE: Final = Phrase(
    zg="give it its final type before the loop: {name} = zg.full({shape}, {value}, {dtype})",
    c="give it its final type before the loop: {dtype} {name}{sizes} = {value}",
)
ANY_OF_BITS: Final = Phrase(
    zg="use zg.any for a test of non-zero elements, zg.xor_sum for the parity of the true ones",
    tl="use tl.max for a test of non-zero elements, tl.xor_sum for the parity of the true ones",
    c="use any(x) for a test of non-zero elements, xor_sum(x, 0) for the parity of the true ones",
)

# Hints: memory.
ADD_OFFSETS: Final = Phrase(
    zg="make the pointers to the elements: zg.add(pointer, offsets)",
    tl="make the pointers to the elements: pointer + offsets",
    c="make the pointers to the elements: pointer + offsets",
)
POINTER_TENSOR: Final = Phrase(
    zg="make a tensor of pointers: zg.add(pointer, offsets)", tl="make a tensor of pointers: pointer + offsets",
    c="make an array of pointers: pointer + offsets",
)  # fmt: skip
BLOCK_POINTER: Final = Phrase(
    zg="make one with zg.make_block_ptr, or add to a pointer: zg.add(pointer, offset)",
    tl="make one with tl.make_block_ptr, or add to a pointer: pointer + offset",
    c="make one with make_block_ptr, or add to a pointer: pointer + offset",
)
CHECK_BY_MASK: Final = Phrase(
    zg="use a mask, and `other` for what it leaves out; or a block pointer (zg.make_block_ptr)",
    c="use a mask, *?(mask) p; or a block pointer (make_block_ptr)",
)
INDEX_POINTER: Final = Phrase(
    zg="write zg.load(p + i) to read an element, zg.store(p + i, x) to write one",
    c="write *(p + i) to read or write an element",
)
LOAD_POINTER: Final = Phrase(
    zg="call zg.{name}(…) instead; for blocks of a descriptor, launch with zg.TensorDescriptor(array, block)",
    tl="call tl.{name}(…) instead; for blocks of a descriptor, launch with TensorDescriptor.from_tensor(array, block)",
    c="call {name}(…) instead",
)
GET_DESCRIPTOR: Final = Phrase(
    zg="launch with zg.TensorDescriptor(array, block), or make one with zg.make_tensor_descriptor",
    tl="launch with TensorDescriptor.from_tensor(array, block), or make one with tl.make_tensor_descriptor",
    c="make one with make_tensor_descriptor",
)
ATOMIC_ON_POINTERS: Final = Phrase(zg="use zg.atomic_… on pointers to the elements")
STORE_RESULTS: Final = Phrase(zg="store results with zg.store", c="store results: *p = x")

# Hints: constants, functions and loops.
MAKE_CONSTANT: Final = Phrase(zg="pass a literal, or make it a zg.constexpr parameter", c="write a number, or a macro")
CONSTANT_BOUND: Final = Phrase(
    zg="use range, or make the bound a zg.constexpr parameter", tl="use range, or make the bound a tl.constexpr",
    c="write a number, or a macro",
)  # fmt: skip
CALL_FUNCTION: Final = Phrase(
    zg="call a function under @zg.function that is known at compile time",
    tl="call a function under @triton.jit that is known at compile time",
    c="call a function of the source",
)
NAME_FUNCTION: Final = Phrase(
    zg="decorate the function with @zg.function, and give it by its name",
    tl="decorate the function with @triton.jit, and give it by its name",
    c="define the function in the source, and give it by its name",
)
LOOP_BOUNDS: Final = Phrase(
    zg="use range(…), zg.range(…) or zg.static_range(…) to count, or a tuple to run over its items",
    c="write for (int i = 0; i < n; i += 1)",
)
STATIC_ASSERT: Final = Phrase(
    zg="write zg.static_assert(condition, message), without a tuple", c="write static_assert(condition, message)"
)
PRINT_CONSTANTS: Final = Phrase(zg="use zg.static_print to print constants while the kernel is compiled")
PROPERTIES: Final = Phrase(
    zg="values have .shape and .dtype, dtypes of pointers have .element_ty; calls are zg.<name>(x)",
    c="a value has no members",
)

# Constructs of Python.
NO_EXCEPTIONS: Final = Phrase(zg="kernels have no exceptions; check with zg.device_assert or zg.static_assert")
RETURN_RESULT: Final = Phrase(zg="return the value, or store it through a pointer with zg.store")
NAME_TYPE: Final = Phrase(
    zg="name a type alone: zg.f32, zg.ptr(zg.f32) …", tl="name a type alone: tl.float32", c="name a type alone: float"
)
BY_INDEX: Final = Phrase(zg="loop over the index: for i in zg.static_range(len(a)), with the items a[i]")

# Messages that programs of Triton look for by their words.
AXIS_OUTSIDE: Final = Phrase(
    zg="{call}: axis {axis} is not one of the {rank} axes",
    tl="{call}: invalid axis {axis}. Expected -{rank} <= axis < {rank}",
)
AXES_REPEATED: Final = Phrase(
    zg="{call}: {axes} does not name different axes",
    tl="expand_dims received duplicate axes, normalized axes = {places}",
)
DESCRIPTOR_ROW: Final = Phrase(
    zg="{call}: a row of the block has {row} bytes; it needs 16",
    tl="Descriptor block shape must have at least 16 bytes in the last dimension, but got {size} * {bytes} = {row} "
    "bytes",
)
DESCRIPTOR_DTYPE: Final = Phrase(
    zg="{call}: the elements for '{kind}' must be {dtypes}; got {dtype}",
    tl="Unsupported dtype: the elements for '{kind}' must be {dtypes}; got {dtype}",
)
DOT_PRECISION: Final = Phrase(
    zg="{call}: 'max_num_imprecise_acc' must be from 0 to {depth}; got {number}",
    tl="max_num_imprecise_acc ({number}) must be <= K ({depth})",
)
GRID_AXIS: Final = Phrase(
    zg="{call}: the axis of the grid must be 0, 1 or 2; got {axis}",
    tl="{name} axis must be 0, 1, or 2 but got {axis}",
)
LITERAL_RANGE: Final = Phrase(
    zg="the constant {value} does not fit in {type} ({low} … {high})",
    tl="Scalar {value} is out of range for type {type}",
)
NEGATIVE_LITERAL: Final = Phrase(
    zg="the constant {value} does not fit in {type} ({low} … {high})",
    tl="Cannot perform a binary operation between an unsigned tensor and a negative scalar. Perform a explicit cast on "
    "one of them.",
)
NOT_A_POINTER: Final = Phrase(
    zg="{call}: 'ptr' must be a pointer or {a_tensor} of pointers; got {type}",
    tl="Unsupported ptr type {type} in `{call}`: it must be a pointer or a tensor of pointers",
)
NOT_INTEGERS: Final = Phrase(
    zg="{call}: the operands must be integers; got {type}",
    tl="{call}: invalid operands of type {first} and {second}; they must be integers",
)
OTHER_WITHOUT_MASK: Final = Phrase(
    zg="{call}: `other` stands for what a mask leaves out, but there is no mask",
    tl="`other` cannot be provided without `mask`",
)
RANGE_COUNT: Final = Phrase(
    zg="{call}({start}, {end}) must give a power of two of numbers; got {count}",
    tl="arange's range must be a power of 2",
    c="{start} ... {end} must give a power of two of numbers; got {count}",
)
RANGE_ORDER: Final = Phrase(
    zg="{call}({start}, {end}) must give a power of two of numbers; got {count}",
    tl="arange's end argument must be greater than the start argument",
    c="{start} ... {end} must give a power of two of numbers; got {count}",
)
SCALE_SHAPE: Final = Phrase(
    zg="{call}: '{name}' must be {a_tensor} of shape {shape}; got {type}",
    tl="{name} must be a tensor of shape [..., {last}]. Got {sizes}",
)
SHAPE_SIZE: Final = Phrase(
    zg="{call}: the size {size} in the shape {shape} is not a power of two",
    tl="Shape element {place} must be a power of 2",
)
UNASSIGNED: Final = Phrase(
    zg="'{name}' is used before it is assigned", tl="'{name}' is not defined: it is used before it is assigned"
)
UNLIKE_CHOICES: Final = Phrase(
    zg="the values of 'if … else' must have one type; got {first} and {second}",
    tl="Ternary expression with dynamic condition has inconsistent types {first} and {second}: the values of "
    "'if … else' must have one type",
)
UNLIKE_IN_LOOP: Final = Phrase(
    zg="'{name}' must keep its type in the loop; got {first} before it and {second} after an iteration",
    tl="Loop-carried variable {name} has initial type {first} but is re-assigned to {second} in loop! Please make sure "
    "that the type stays consistent.",
)
UNLIKE_IN_BRANCHES: Final = Phrase(
    zg="'{name}' must have one type on both paths; got {first} on one and {second} on the other",
    tl="Mismatched type for {name} between then block ({first}) and else block ({second})",
)
UNLIKE_POINTER: Final = Phrase(
    zg="{call}: {what} must be a scalar for a single pointer; got the shape {shape}",
    tl="{argument} argument cannot be block type if pointer argument is not a block: it has the shape {shape}",
)
