"""What calls mean for plain Python numbers: outside of kernels, and when the Python code model is executed.

A function here gives `NotImplemented` for what is not a number; the call is an error then. Integers are Python's,
without a width.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from numbers import Real
from typing import Any

from ziggurat.codemodel.errors import KernelRuntimeError, KernelValueError
from ziggurat.codemodel.types import ScalarType


def _on_numbers(compute: Callable[..., Any]) -> Callable[..., Any]:
    """`compute` of the arguments in their order, unless one of them is not a number."""

    def meaning(**arguments: Any) -> Any:
        values = arguments.values()
        if not all(isinstance(value, Real) for value in values):
            return NotImplemented
        return compute(*values)

    return meaning


def _on_floats(compute: Callable[[float], float]) -> Callable[..., Any]:
    """As `_on_numbers`, with IEEE 754's results where Python raises."""

    def total(x: float) -> float:
        try:
            return float(compute(x))
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return _on_numbers(total)


def _smaller(a: Any, b: Any) -> Any:
    return a if b != b or a <= b else b


def _larger(a: Any, b: Any) -> Any:
    return a if b != b or a >= b else b


def _log(x: float) -> float:
    return math.log(x) if x else -math.inf


def _log2(x: float) -> float:
    return math.log2(x) if x else -math.inf


def _rsqrt(x: float) -> float:
    return 1.0 / math.sqrt(x) if x else math.copysign(math.inf, x)


def _whole(rounding: Callable[[float], int]) -> Callable[[float], float]:
    return lambda x: math.copysign(float(rounding(x)), x) if math.isfinite(x) else x


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0 else math.exp(x) / (1.0 + math.exp(x))


def _exp2(x: float) -> float:
    return math.pow(2.0, x)


_python: Any = operator  # its functions take more than numbers, and say so in types that a checker can't follow

add, sub, mul, div = map(_on_numbers, (_python.add, _python.sub, _python.mul, _python.truediv))
floordiv, mod, neg = map(_on_numbers, (_python.floordiv, _python.mod, _python.neg))
and_, or_, xor = map(_on_numbers, (_python.and_, _python.or_, _python.xor))
shl, shr, abs = map(_on_numbers, (_python.lshift, _python.rshift, _python.abs))
minimum, maximum = map(_on_numbers, (_smaller, _larger))

exp, exp2, log, log2 = map(_on_floats, (math.exp, _exp2, _log, _log2))
sqrt, rsqrt, sin, cos = map(_on_floats, (math.sqrt, _rsqrt, math.sin, math.cos))
sqrt_rn = sqrt
tanh, erf, sigmoid = map(_on_floats, (math.tanh, math.erf, _sigmoid))
floor, ceil = map(_on_floats, (_whole(math.floor), _whole(math.ceil)))


@_on_numbers
def invert(x: int) -> int:
    """Every bit turned over; of a bool, not."""
    return not x if isinstance(x, bool) else ~x


@_on_numbers
def clamp(x: Any, low: Any, high: Any) -> Any:
    """Between the bounds."""
    return _smaller(_larger(x, low), high)


@_on_numbers
def fma(a: Any, b: Any, c: Any) -> Any:
    """Of floats, rounded twice."""
    return a * b + c


@_on_numbers
def cdiv(x: int, div: int) -> int:
    """Rounded up."""
    return -(-x // div)


@_on_numbers
def next_power_of_2(n: int) -> int:
    """1, 2, 4, 8, …"""
    return 1 << max(0, n - 1).bit_length()


def compare(a: Any, b: Any, kind: Any) -> Any:
    """Python's comparison of that name."""
    if not (isinstance(a, Real) and isinstance(b, Real)):
        return NotImplemented
    return getattr(operator, kind.value)(a, b)


def where(condition: Any, x: Any, y: Any) -> Any:
    """One of the two."""
    if not all(isinstance(value, Real) for value in (condition, x, y)):
        return NotImplemented
    return x if condition else y


# Of each float: the bits of its significand, the exponent of its smallest number, its largest number.
_FORMATS = {
    "f32": (24, -149, (2 - 2.0**-23) * 2.0**127),
    "f16": (11, -24, 65504.0),
    "bf16": (8, -133, (2 - 2.0**-7) * 2.0**127),
}


def _rounded(x: float, name: str) -> float:
    """`x` as a float of the format, to nearest, ties to even."""
    if x == 0 or not math.isfinite(x):
        return x
    bits, smallest, largest = _FORMATS[name]
    if operator.abs(x) > 2 * largest:  # far enough out for the scaling below to overflow
        return math.copysign(math.inf, x)
    unit = max(math.frexp(x)[1] - bits, smallest)
    y = math.ldexp(round(math.ldexp(x, -unit)), unit)
    return math.copysign(y if operator.abs(y) <= largest else math.inf, x)


def cast(x: Any, dtype: Any, fp_downcast_rounding: Any, bitcast: Any) -> Any:
    """A number as one of the dtype, for all dtypes but the 8-bit floats."""
    if not (isinstance(x, Real) and isinstance(dtype, ScalarType)) or bitcast or fp_downcast_rounding == "rtz":
        return NotImplemented
    return _cast(x, dtype)


def _cast(x: Any, dtype: ScalarType) -> Any:
    if dtype.kind == "bool":
        return bool(x)
    if dtype.kind == "int":
        if isinstance(x, float) and not math.isfinite(x):
            return NotImplemented
        low, _ = dtype.limits
        return (int(x) - low) % (1 << dtype.bits) + low
    if dtype.name == "f64":
        return float(x)
    return _rounded(float(x), dtype.name) if dtype.name in _FORMATS else NotImplemented


def hint(x: Any, values: Any) -> Any:
    """A hint changes nothing."""
    return x if isinstance(x, Real) else NotImplemented


def assume(cond: Any) -> None:
    """Nothing to compute."""


def static_assert(cond: Any, msg: Any) -> None:
    """Raises `KernelValueError` for a false condition."""
    if not cond:
        raise KernelValueError(f"static assertion failed: {msg}" if msg else "static assertion failed")


def static_print(values: tuple[Any, ...]) -> None:
    """Python's print."""
    print(*values)


def device_print(prefix: str, args: tuple[Any, ...], hex: bool) -> None:
    """Python's print, integers in hexadecimal where asked."""
    print(prefix, *(f"{x:#x}" if hex and isinstance(x, int) else x for x in args))


def device_assert(cond: Any, msg: str) -> None:
    """Raises `KernelRuntimeError` for a false condition."""
    if not cond:
        raise KernelRuntimeError(f"device assertion failed: {msg}" if msg else "device assertion failed")


def debug_barrier() -> None:
    """Nothing to wait for."""


def range_(arg1: Any, arg2: Any, step: Any, **options: Any) -> Any:
    """Python's range."""
    return static_range(arg1, arg2, step)


def static_range(arg1: Any, arg2: Any, step: Any) -> Any:
    """Python's range."""
    if step == 0:
        raise KernelValueError("the step of a range is zero")
    start, stop = (0, arg1) if arg2 is None else (arg1, arg2)
    return range(start, stop, 1 if step is None else step)
