"""The grid of programs, ranges of loops, hints to the compiler, debugging and inline assembly."""

from __future__ import annotations

from ziggurat.frontends.language import host
from ziggurat.frontends.language.kinds import (
    ConstAny,
    ConstBool,
    ConstDtypes,
    ConstFunction,
    ConstInt,
    ConstInts,
    ConstStr,
    Value,
    Values,
)
from ziggurat.frontends.language.signature import call

__all__ = [
    "assume", "debug_barrier", "device_assert", "device_print", "gdc_launch_dependents", "gdc_wait", "globaltimer",
    "inline_asm_elementwise", "map_elementwise", "max_constancy", "max_contiguous", "multiple_of", "num_programs",
    "program_id", "range", "smid", "static_assert", "static_print", "static_range", "swizzle2d",
]  # fmt: skip

# The calls that state a fact about their first argument, which may be written as statements about a variable.
HINTS = ("max_constancy", "max_contiguous", "multiple_of")


@call("Programs")
def program_id(axis: ConstInt) -> Value:
    """The index of the program along an axis of the grid.

    - `axis`: 0, 1 or 2.

    Result: an i32 scalar, 0 to `num_programs(axis)` - 1.
    Errors: another axis.
    """


@call("Programs")
def num_programs(axis: ConstInt) -> Value:
    """The number of programs that were launched along an axis of the grid.

    - `axis`: 0, 1 or 2.

    Result: an i32 scalar, at least 1.
    Errors: another axis.
    """


@call("Programs")
def smid() -> Value:
    """The number of the multiprocessor that runs the program, as it is when the program starts.

    Result: an i32 scalar; 0 on a CPU.
    """


@call("Programs")
def globaltimer() -> Value:
    """The time in nanoseconds, by a clock that the whole device shares. The read is not moved across loads and stores.

    Its resolution depends on the machine, and may be a microsecond. Each thread reads it when it gets there, so threads
    may have different numbers: store it, or a difference of two, but do not branch on it.

    Result: an i64 scalar; in the interpreter the host's clock, which is greater at each call; in native code for CPUs
    the system's clock (on Windows the processor's cycle counter, not nanoseconds).
    """


@call("Programs")
def gdc_wait() -> None:
    """Wait until the launches before this one have ended, and their stores can be read (PTX: griddepcontrol.wait).

    Only a launch with the option `launch_pdl` begins earlier. Before this call, its kernel must not load what the
    launch before it stores, nor store to what that launch loads. Elsewhere the call has no effect, nor on targets
    before sm_90, where no launch begins earlier.

    Result: none.
    """


@call("Programs")
def gdc_launch_dependents() -> None:
    """Let the next launch begin, if it has the option `launch_pdl` (PTX: griddepcontrol.launch_dependents).

    It begins once all programs have made this call or ended, and waits for the end of this launch in `gdc_wait`.

    Result: none.
    """


@call("Programs", results=2)
def swizzle2d(i: Value, j: Value, size_i: Value, size_j: Value, size_g: Value) -> Value:
    """A place in a grid that is walked by groups of rows, column by column within a group, for the reuse of caches.

    - `i`, `j`: the row and the column in row-major order; integers.
    - `size_i`, `size_j`: the numbers of rows and columns.
    - `size_g`: the number of rows of a group; the last group may have fewer.

    Result: a tuple of the row and the column in the new order.
    Errors: floats or pointers; shapes that do not broadcast.
    """


@call("Loops", host=host.range_)
def range(
    arg1: Value,
    arg2: Value = None,
    step: Value = None,
    num_stages: ConstInt | None = None,
    loop_unroll_factor: ConstInt | None = None,
    disallow_acc_multi_buffer: ConstBool = False,
    flatten: ConstBool = False,
    warp_specialize: ConstBool = False,
    disable_licm: ConstBool = False,
) -> Value:
    """The numbers of a loop that is counted while the kernel runs, with options for the compiler.

    - `arg1`: the end, exclusive, of a loop from 0; with `arg2` the start.
    - `arg2`: the end, exclusive.
    - `step`: 1 where it is None; a negative one counts down, and one of zero is an error when the kernel runs.
    - `num_stages`: the number of pipeline stages; None takes that of the launch, which is for loops with `dot` only.
      With n >= 2, the loop begins its loads up to n - 1 iterations ahead: also before stores of earlier iterations
      through other arguments, unless a `debug_barrier` stands in the loop. Two arguments count as apart, even if they
      are one array.
    - `loop_unroll_factor`: the number of iterations to unroll. Only `to_mlir` passes it on; compiling warns of it.
    - `disallow_acc_multi_buffer`: keep one buffer for the accumulator of a dot. Only `to_mlir` passes it on;
      compiling warns of it.
    - `flatten`: make one loop of this and the loop inside it. It is a hint for the C++ Triton, to which `to_mlir`
      passes it on, without effect here.
    - `warp_specialize`: split the warps into a producer and consumers, on targets with TMA (sm_90a): a warp group of
      four more warps with few registers loads ahead of the consumers, across iterations of outer loops as well. The
      loop must load the operands of its `dot` from descriptors that are arguments of the kernel. Their offsets must be
      computed from scalars without a load. The kernel must have 4, 8 or 16 warps and at least two stages, and the loop
      must not be in an `if` or `while`. If one loop that asks for it does not qualify, no loop of the kernel is
      specialised. Dots that no store needs together get consumers of their own, each with so many warps.
    - `disable_licm`: do not hoist loop-invariant ops out of the loop.

    Result: integers in the promoted dtype of the bounds and the step, i32 for literals.
    Errors: bounds that are no scalar integers; use outside of a `for`.
    """


@call("Loops", host=host.range_)
def static_range(arg1: ConstInt, arg2: ConstInt | None = None, step: ConstInt | None = None) -> Value:
    """The numbers of a loop that is unrolled while the kernel is compiled; they are constants.

    - `arg1`: the end, exclusive, of a loop from 0; with `arg2` the start.
    - `arg2`: the end, exclusive.
    - `step`: 1 where it is None; not zero.

    Result: constants.
    Errors: a bound that is not known at compile time; use outside of a `for`.
    """


@call("Hints", host=host.hint)
def multiple_of(x: Value, values: ConstInts) -> Value:
    """State that the first element of each run of consecutive elements is divisible by a number.

    - `x`: a scalar or a tensor of integers or pointers (whose addresses in bytes are meant).
    - `values`: a power of two for each axis; one number for a scalar or a single axis.

    Result: `x`.
    Errors: another number of values than axes.
    """


@call("Hints", host=host.hint)
def max_contiguous(x: Value, values: ConstInts) -> Value:
    """State that the elements come in runs of consecutive numbers.

    - `x`: a scalar or a tensor of integers or pointers.
    - `values`: the length of the runs along each axis; one number for a scalar or a single axis.

    Result: `x`.
    Errors: another number of values than axes.
    """


@call("Hints", host=host.hint)
def max_constancy(x: Value, values: ConstInts) -> Value:
    """State that the elements come in runs of equal numbers.

    - `x`: a scalar or a tensor.
    - `values`: the length of the runs along each axis; one number for a scalar or a single axis.

    Result: `x`.
    Errors: another number of values than axes.
    """


@call("Hints", host=host.assume)
def assume(cond: Value) -> None:
    """State that a condition holds; the compiler may rely on it.

    - `cond`: an i1 scalar.

    Result: none.
    Errors: a tensor.
    """


@call("Debugging", host=host.static_assert)
def static_assert(cond: ConstAny, msg: ConstStr = "") -> None:
    """Stop compiling, with a message, unless the condition holds.

    - `cond`: known at compile time.
    - `msg`: the message.

    Result: none.
    Errors: a condition that is false, or not known.
    """


@call("Debugging", host=host.static_print)
def static_print(*values: Value) -> None:
    """Print while the kernel is compiled.

    - `values`: constants; for other values, the type is printed.

    Result: none.
    """


@call("Debugging", host=host.device_print)
def device_print(prefix: ConstStr, *args: Value, hex: ConstBool = False) -> None:
    """Print while the kernel runs, each element with its program.

    - `prefix`: goes before each line.
    - `args`: scalars or tensors.
    - `hex`: print the bits.

    Result: none.
    """


@call("Debugging", host=host.device_assert)
def device_assert(cond: Value, msg: ConstStr = "", mask: Value = None) -> None:
    """Stop with an error that has the message if any element of the condition is false; `assert cond, msg` is the same.

    On a GPU the whole launch ends with an error, not only this program.

    - `cond`: i1, a scalar or a tensor.
    - `msg`: the message.
    - `mask`: i1; where it is false, the condition need not hold. Condition and mask are broadcast to one shape.

    Result: none.
    """


@call("Debugging", host=host.debug_barrier)
def debug_barrier() -> None:
    """All threads of the program wait for each other here.

    The compiler inserts barriers where they are needed: in shared memory, before a store over what another thread may
    have yet to load, and between accesses through the same pointers. What a program stores, it is sure to read through
    other pointers, or to store over, only after this call. A launch with `strict=True` asks for it as well before a
    store over an element that another position of a tensor has loaded, as in `first = zg.load(x); zg.store(zg.add(x,
    at), first)`, which other compilers may run in another order. An atomic that releases (`sem="acq_rel"`, the default,
    or `"release"`) is such a barrier too.

    Result: none.
    """


@call("Inline assembly", results="dtype")
def inline_asm_elementwise(
    asm: ConstStr, constraints: ConstStr, args: Values, dtype: ConstDtypes, is_pure: ConstBool, pack: ConstInt
) -> Value:
    """Run PTX on the elements of tensors. It needs a GPU.

    - `asm`: the instructions; `$0`, `$1`, … stand for results, then operands; `$$` is a dollar sign.
    - `constraints`: as LLVM writes them: "=r,r,r". One for each register of the results ("=", or "=&" for one that is
      written before the operands are read), then one for each of the operands: b of i1, h of 16 bits, r of 32, l of 64,
      f of f32, d of f64, n of an integer known at compile time, or the number of a result, which is then in its
      register. Clobbers come last: "~{memory}".
    - `args`: a tuple of scalars or tensors; they are broadcast to one shape. Without operands the results are scalars.
    - `dtype`: of the result, or a tuple of dtypes for several; for a pointer its type, such as `x_ptr.dtype`.
    - `is_pure`: the assembly has no effects, so that the compiler may move, share or remove it. Pass False for assembly
      that reads a clock: it is then not moved.
    - `pack`: the number of elements that one run of the instructions takes; elements of fewer than 32 bits
      share registers of 32 bits.

    Result: the broadcast shape, in `dtype`; a tuple for a tuple. A scalar is computed by each thread: where these
    differ, choose no branch by it.
    Errors: shapes that do not broadcast; constraints that are not those of the results and operands.
    """


@call("Functions of elements")
def map_elementwise(scalar_fn: ConstFunction, *args: Value, pack: ConstInt = 1) -> Value:
    """Apply a function of scalars to each element of tensors.

    The function may branch by the values of single elements: of its two sides only one is computed.

    - `scalar_fn`: a `@zg.function`. It takes `pack` elements of the first tensor, then `pack` of the second, and so on,
      and gives `pack` elements of each result, in the same order.
    - `args`: tensors and scalars; they are broadcast to one shape. At least one is a tensor.
    - `pack`: the number of elements that one call takes. Which elements come together is not defined.

    Result: a tensor of the broadcast shape; a tuple where the function gives elements of several results.
    Errors: shapes that do not broadcast; scalars alone; a function with another number of parameters.
    """
