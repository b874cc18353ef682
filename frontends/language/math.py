"""Functions of floats, element by element, and random numbers."""

from __future__ import annotations

from ziggurat.frontends.language import host
from ziggurat.frontends.language.kinds import ConstBool, ConstInt, ConstStr, Value
from ziggurat.frontends.language.signature import call

__all__ = [
    "abs", "acos", "approximate", "asin", "atan", "atan2", "ceil", "cos", "cosh", "erf", "exp", "exp2", "expm1",
    "floor", "isfinite", "isinf", "isnan", "log", "log1p", "log2", "philox", "pow", "rand", "rand4x", "randint",
    "randint4x", "randn", "randn4x", "rint", "round", "rsqrt", "sigmoid", "sin", "sinh", "softmax", "sqrt", "sqrt_rn",
    "tan", "tanh", "trunc",
]  # fmt: skip


@call("Math", host=host.abs)
def abs(x: Value) -> Value:
    """The magnitude.

    - `x`: a scalar or a tensor of numbers.

    Result: as `x`; the smallest integer stays as it is.
    Errors: pointers.
    """


@call("Math", host=host.exp)
def exp(x: Value) -> Value:
    """e to the power of `x`.

    - `x`: a scalar or a tensor of numbers; integers are cast to f32.

    Result: as `x`, or f32.
    Errors: pointers.
    """


@call("Math", host=host.exp2)
def exp2(x: Value) -> Value:
    """2 to the power of `x`.

    - `x`: a scalar or a tensor of numbers; integers are cast to f32.

    Result: as `x`, or f32.
    Errors: pointers.
    """


@call("Math", host=host.log)
def log(x: Value) -> Value:
    """The natural logarithm; NaN for negative numbers.

    - `x`: a scalar or a tensor of numbers; integers are cast to f32.

    Result: as `x`, or f32.
    Errors: pointers.
    """


@call("Math", host=host.log2)
def log2(x: Value) -> Value:
    """The logarithm to the base 2; NaN for negative numbers.

    - `x`: a scalar or a tensor of numbers; integers are cast to f32.

    Result: as `x`, or f32.
    Errors: pointers.
    """


@call("Math")
def approximate(function: ConstStr, x: Value) -> Value:
    """A function of f32 by one instruction of a GPU, with a small absolute error; elsewhere as the call of its name.

    - `function`: "log2", "sin", "cos" or "tanh".
    - `x`: a scalar or a tensor of f32.

    Result: as `x`.
    Errors: other dtypes.
    """


@call("Math", host=host.sqrt)
def sqrt(x: Value) -> Value:
    """The square root; NaN for negative numbers.

    - `x`: a scalar or a tensor of numbers; integers are cast to f32.

    Result: as `x`, or f32.
    Errors: pointers.
    """


@call("Math", host=host.sqrt_rn)
def sqrt_rn(x: Value) -> Value:
    """The square root, rounded correctly on every target; `sqrt` may be the fast one. NaN for negative numbers.

    - `x`: a scalar or a tensor of numbers; integers are cast to f32.

    Result: as `x`, or f32.
    Errors: pointers.
    """


@call("Math", host=host.rsqrt)
def rsqrt(x: Value) -> Value:
    """1 over the square root; NaN for negative numbers.

    - `x`: a scalar or a tensor of numbers; integers are cast to f32.

    Result: as `x`, or f32.
    Errors: pointers.
    """


@call("Math", host=host.sin)
def sin(x: Value) -> Value:
    """The sine of an angle in radians.

    - `x`: a scalar or a tensor of numbers; integers are cast to f32.

    Result: as `x`, or f32.
    Errors: pointers.
    """


@call("Math", host=host.cos)
def cos(x: Value) -> Value:
    """The cosine of an angle in radians.

    - `x`: a scalar or a tensor of numbers; integers are cast to f32.

    Result: as `x`, or f32.
    Errors: pointers.
    """


@call("Math", host=host.tanh)
def tanh(x: Value) -> Value:
    """The hyperbolic tangent.

    - `x`: a scalar or a tensor of numbers; integers are cast to f32.

    Result: as `x`, or f32.
    Errors: pointers.
    """


@call("Math", host=host.erf)
def erf(x: Value) -> Value:
    """The error function.

    - `x`: a scalar or a tensor of numbers; integers are cast to f32.

    Result: as `x`, or f32.
    Errors: pointers.
    """


@call("Math", host=host.sigmoid)
def sigmoid(x: Value) -> Value:
    """The logistic function `1 / (1 + exp(-x))`.

    - `x`: a scalar or a tensor of numbers; integers are cast to f32.

    Result: as `x`, or f32.
    Errors: pointers.
    """


@call("Math", host=host.floor)
def floor(x: Value) -> Value:
    """The largest whole number not above `x`.

    - `x`: a scalar or a tensor of numbers; integers are cast to f32.

    Result: as `x`, or f32; a float.
    Errors: pointers.
    """


@call("Math", host=host.ceil)
def ceil(x: Value) -> Value:
    """The smallest whole number not below `x`.

    - `x`: a scalar or a tensor of numbers; integers are cast to f32.

    Result: as `x`, or f32; a float.
    Errors: pointers.
    """


@call("Math")
def tan(x: Value) -> Value:
    """The tangent of an angle in radians.

    - `x`: a scalar or a tensor of numbers; integers are cast to f32.

    Result: as `x`, or f32.
    Errors: pointers.
    """


@call("Math")
def asin(x: Value) -> Value:
    """The angle, from -π/2 to π/2, whose sine `x` is; NaN beyond -1 and 1.

    - `x`: a scalar or a tensor of numbers; integers are cast to f32.

    Result: as `x`, or f32.
    Errors: pointers.
    """


@call("Math")
def acos(x: Value) -> Value:
    """The angle, from 0 to π, whose cosine `x` is; NaN beyond -1 and 1.

    - `x`: a scalar or a tensor of numbers; integers are cast to f32.

    Result: as `x`, or f32.
    Errors: pointers.
    """


@call("Math")
def atan(x: Value) -> Value:
    """The angle, from -π/2 to π/2, whose tangent `x` is.

    - `x`: a scalar or a tensor of numbers; integers are cast to f32.

    Result: as `x`, or f32.
    Errors: pointers.
    """


@call("Math")
def atan2(y: Value, x: Value) -> Value:
    """The angle, from -π to π, of the point (x, y), as C's: the signs of zeros count.

    - `y`, `x`: scalars or tensors of numbers; two integers are cast to f32.

    Result: the broadcast shape, in the promoted dtype where that is a float, and f32 for two integers.
    Errors: pointers.
    """


@call("Math")
def pow(x: Value, y: Value) -> Value:
    """`x` to the power of `y`, with C's special cases.

    - `x`, `y`: scalars or tensors of numbers; two integers are cast to f32.

    Result: the broadcast shape, in the promoted dtype where that is a float, and f32 for two integers. A negative `x`
    has powers with whole numbers only, otherwise NaN. `pow(x, 0)` and `pow(1, y)` are 1, even of NaN.
    Errors: pointers.
    """


@call("Math")
def sinh(x: Value) -> Value:
    """The hyperbolic sine.

    - `x`: a scalar or a tensor of numbers; integers are cast to f32.

    Result: as `x`, or f32.
    Errors: pointers.
    """


@call("Math")
def cosh(x: Value) -> Value:
    """The hyperbolic cosine.

    - `x`: a scalar or a tensor of numbers; integers are cast to f32.

    Result: as `x`, or f32.
    Errors: pointers.
    """


@call("Math")
def expm1(x: Value) -> Value:
    """`exp(x) - 1`, accurate near 0 as well.

    - `x`: a scalar or a tensor of numbers; integers are cast to f32.

    Result: as `x`, or f32.
    Errors: pointers.
    """


@call("Math")
def log1p(x: Value) -> Value:
    """The natural logarithm of `1 + x`, accurate near 0 as well; NaN below -1.

    - `x`: a scalar or a tensor of numbers; integers are cast to f32.

    Result: as `x`, or f32.
    Errors: pointers.
    """


@call("Math", host=host.trunc)
def trunc(x: Value) -> Value:
    """The whole number nearest to `x` toward zero.

    - `x`: a scalar or a tensor of numbers; integers are cast to f32.

    Result: as `x`, or f32; a float.
    Errors: pointers.
    """


@call("Math", host=host.rint)
def rint(x: Value) -> Value:
    """The whole number nearest to `x`; of two equally near ones the even one.

    - `x`: a scalar or a tensor of numbers; integers are cast to f32.

    Result: as `x`, or f32; a float.
    Errors: pointers.
    """


@call("Math")
def round(x: Value) -> Value:
    """The whole number nearest to `x`; of two equally near ones the one away from zero, as in C. (`rint` is Python's.)

    - `x`: a scalar or a tensor of numbers; integers are cast to f32.

    Result: as `x`, or f32; a float.
    Errors: pointers.
    """


@call("Math")
def isnan(x: Value) -> Value:
    """True where the number is NaN.

    - `x`: a scalar or a tensor of numbers; integers are cast to f32.

    Result: i1, in the shape of `x`; false for integers.
    Errors: pointers.
    """


@call("Math")
def isinf(x: Value) -> Value:
    """True where the number is infinite.

    - `x`: a scalar or a tensor of numbers; integers are cast to f32.

    Result: i1, in the shape of `x`; false for integers.
    Errors: pointers.
    """


@call("Math")
def isfinite(x: Value) -> Value:
    """True where the number is neither infinite nor NaN.

    - `x`: a scalar or a tensor of numbers; integers are cast to f32.

    Result: i1, in the shape of `x`; true for integers.
    Errors: pointers.
    """


@call("Math")
def softmax(
    x: Value, dim: ConstInt | None = None, keep_dims: ConstBool = False, ieee_rounding: ConstBool = False
) -> Value:
    """`exp(x)` divided by its sum along an axis, computed without overflow.

    - `x`: a tensor of numbers; integers are cast to f32.
    - `dim`: the axis; negative counts from the last, and None is the first.
    - `keep_dims`: accepted for Triton's sake; the result has the shape of `x` in either case.
    - `ieee_rounding`: divide with correct rounding, as `div_rn`.

    Result: as `x`, or f32; along `dim` it sums to 1.
    Errors: an axis that `x` does not have.
    """


@call("Random numbers", results=4)
def philox(seed: Value, c0: Value, c1: Value, c2: Value, c3: Value, n_rounds: ConstInt = 10) -> Value:
    """Four random words for a counter of four words.

    - `seed`: an integer, a scalar or a tensor; its 64 bits are the key.
    - `c0`, `c1`, `c2`, `c3`: the words of the counter, integers; their low 32 bits count, or all 64 bits where `c0` has
      64. They are broadcast, with the seed, to one shape.
    - `n_rounds`: the number of rounds of mixing; fewer than 7 are not random enough.

    Result: a tuple of four values in u32; in u64, by Philox 4x64, where `c0` has 64 bits.
    """


@call("Random numbers")
def rand(seed: Value, offset: Value, n_rounds: ConstInt = 10) -> Value:
    """Uniform random floats.

    - `seed`: an integer, a scalar or a tensor; its 64 bits count.
    - `offset`: integers, a scalar or a tensor: the place in the stream. No two numbers of a stream share one.
    - `n_rounds`: the number of rounds of mixing; see `philox`.

    Result: the broadcast shape of `seed` and `offset`, in f32, at least 0 and less than 1.
    Errors: an offset of floats.
    """


@call("Random numbers")
def randn(seed: Value, offset: Value, n_rounds: ConstInt = 10) -> Value:
    """Random floats of the standard normal distribution (Box–Muller).

    - `seed`: an integer, a scalar or a tensor; its 64 bits count.
    - `offset`: integers, a scalar or a tensor: the place in the stream. No two numbers of a stream share one.
    - `n_rounds`: the number of rounds of mixing; see `philox`.

    Result: the broadcast shape of `seed` and `offset`, in f32.
    Errors: an offset of floats.
    """


@call("Random numbers")
def randint(seed: Value, offset: Value, n_rounds: ConstInt = 10) -> Value:
    """Random words.

    - `seed`: an integer, a scalar or a tensor; its 64 bits count.
    - `offset`: integers, a scalar or a tensor: the place in the stream. No two numbers of a stream share one.
    - `n_rounds`: the number of rounds of mixing; see `philox`.

    Result: the broadcast shape of `seed` and `offset`, in u32, each number equally likely.
    Errors: an offset of floats.
    """


@call("Random numbers", results=4)
def rand4x(seed: Value, offset: Value, n_rounds: ConstInt = 10) -> Value:
    """Four streams of uniform random floats for the cost of one.

    - `seed`: an integer, a scalar or a tensor; its 64 bits count.
    - `offset`: integers, a scalar or a tensor: the place in the stream. No two numbers of a stream share one.
    - `n_rounds`: the number of rounds of mixing; see `philox`.

    Result: a tuple of four values as `rand` gives.
    Errors: an offset of floats.
    """


@call("Random numbers", results=4)
def randn4x(seed: Value, offset: Value, n_rounds: ConstInt = 10) -> Value:
    """Four streams of normal random floats for the cost of one.

    - `seed`: an integer, a scalar or a tensor; its 64 bits count.
    - `offset`: integers, a scalar or a tensor: the place in the stream. No two numbers of a stream share one.
    - `n_rounds`: the number of rounds of mixing; see `philox`.

    Result: a tuple of four values as `randn` gives.
    Errors: an offset of floats.
    """


@call("Random numbers", results=4)
def randint4x(seed: Value, offset: Value, n_rounds: ConstInt = 10) -> Value:
    """Four streams of random words for the cost of one.

    - `seed`: an integer, a scalar or a tensor; its 64 bits count.
    - `offset`: integers, a scalar or a tensor: the place in the stream. No two numbers of a stream share one.
    - `n_rounds`: the number of rounds of mixing; see `philox`.

    Result: a tuple of four values as `randint` gives.
    Errors: an offset of floats.
    """
