"""Ranges of `for` loops. Python's own `range` is the same as `zg.range` without options."""

from __future__ import annotations

from ziggurat.frontends.language import host
from ziggurat.frontends.language.kinds import ConstBool, ConstInt, Value
from ziggurat.frontends.language.signature import call

__all__ = ["range", "static_range"]


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
    - `num_stages`: the number of pipeline stages; None takes that of the launch.
    - `loop_unroll_factor`: the number of iterations to unroll.
    - `disallow_acc_multi_buffer`: keep one buffer for the accumulator of a dot.
    - `flatten`: make one loop of this and the loop inside it.
    - `warp_specialize`: split the warps into a producer and consumers, on targets with TMA (sm_90a): a warp group of
      four more warps with few registers loads ahead of the consumers, across iterations of outer loops as well. It is
      for loops that `dot` blocks of descriptors that are arguments of the kernel, at offsets that are computed from
      scalars without a load; with 4, 8 or 16 warps, two stages or more, and in no `if` or `while`. Unless all loops of
      a kernel that ask for it are such, none is specialised.
    - `disable_licm`: move nothing out of the loop.

    Result: integers in the promoted dtype of the bounds and the step, i32 for literals.
    Errors: bounds that are no scalar integers; use outside of a `for`.
    """


@call("Loops", host=host.static_range)
def static_range(arg1: ConstInt, arg2: ConstInt | None = None, step: ConstInt | None = None) -> Value:
    """The numbers of a loop that is unrolled while the kernel is compiled; they are constants.

    - `arg1`: the end, exclusive, of a loop from 0; with `arg2` the start.
    - `arg2`: the end, exclusive.
    - `step`: 1 where it is None; not zero.

    Result: constants.
    Errors: a bound that is not known at compile time; use outside of a `for`.
    """
