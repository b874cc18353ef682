"""Random numbers from a counter: the same seed and offset give the same number, on every target.

The generator is Philox 4x32 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011).
"""

from __future__ import annotations

from ziggurat.frontends.language.kinds import ConstInt, Value
from ziggurat.frontends.language.signature import call

__all__ = ["philox", "rand", "rand4x", "randint", "randint4x", "randn", "randn4x"]


@call("Random numbers", results=4)
def philox(seed: Value, c0: Value, c1: Value, c2: Value, c3: Value, n_rounds: ConstInt = 10) -> Value:
    """Four random words for a counter of four words.

    - `seed`: a scalar integer; its 64 bits are the key.
    - `c0`, `c1`, `c2`, `c3`: the words of the counter, integers; their low 32 bits count. They are broadcast to one
      shape.
    - `n_rounds`: of mixing; fewer than 7 are not random enough.

    Result: a tuple of four values in u32.
    """


@call("Random numbers")
def rand(seed: Value, offset: Value, n_rounds: ConstInt = 10) -> Value:
    """Uniform random floats.

    - `seed`: a scalar integer; its 64 bits count.
    - `offset`: integers, a scalar or a tensor: the place in the stream. No two numbers of a stream share one.
    - `n_rounds`: of mixing, see `philox`.

    Result: the shape of `offset`, in f32, at least 0 and less than 1.
    Errors: an offset of floats.
    """


@call("Random numbers")
def randn(seed: Value, offset: Value, n_rounds: ConstInt = 10) -> Value:
    """Random floats of the standard normal distribution (Box–Muller).

    - `seed`: a scalar integer; its 64 bits count.
    - `offset`: integers, a scalar or a tensor: the place in the stream. No two numbers of a stream share one.
    - `n_rounds`: of mixing, see `philox`.

    Result: the shape of `offset`, in f32.
    Errors: an offset of floats.
    """


@call("Random numbers")
def randint(seed: Value, offset: Value, n_rounds: ConstInt = 10) -> Value:
    """Random words.

    - `seed`: a scalar integer; its 64 bits count.
    - `offset`: integers, a scalar or a tensor: the place in the stream. No two numbers of a stream share one.
    - `n_rounds`: of mixing, see `philox`.

    Result: the shape of `offset`, in u32, each number equally likely.
    Errors: an offset of floats.
    """


@call("Random numbers", results=4)
def rand4x(seed: Value, offset: Value, n_rounds: ConstInt = 10) -> Value:
    """Four streams of uniform random floats for the cost of one.

    - `seed`: a scalar integer; its 64 bits count.
    - `offset`: integers, a scalar or a tensor: the place in the stream. No two numbers of a stream share one.
    - `n_rounds`: of mixing, see `philox`.

    Result: a tuple of four values as `rand` gives.
    Errors: an offset of floats.
    """


@call("Random numbers", results=4)
def randn4x(seed: Value, offset: Value, n_rounds: ConstInt = 10) -> Value:
    """Four streams of normal random floats for the cost of one.

    - `seed`: a scalar integer; its 64 bits count.
    - `offset`: integers, a scalar or a tensor: the place in the stream. No two numbers of a stream share one.
    - `n_rounds`: of mixing, see `philox`.

    Result: a tuple of four values as `randn` gives.
    Errors: an offset of floats.
    """


@call("Random numbers", results=4)
def randint4x(seed: Value, offset: Value, n_rounds: ConstInt = 10) -> Value:
    """Four streams of random words for the cost of one.

    - `seed`: a scalar integer; its 64 bits count.
    - `offset`: integers, a scalar or a tensor: the place in the stream. No two numbers of a stream share one.
    - `n_rounds`: of mixing, see `philox`.

    Result: a tuple of four values as `randint` gives.
    Errors: an offset of floats.
    """
