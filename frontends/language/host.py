"""The meaning of calls on plain Python numbers: called from Python, on constants in a kernel, and in `zg.execute`.

It is the meaning at run time (`codemodel/numbers.py`), for numbers of these types: a bool is an i1, a float an f64, and
an integer has no width. Python's operators on constants are Python's own instead: `-7 // 2` is -4, `zg.floordiv(-7, 2)`
is -3.

A function returns `NotImplemented` for an argument that is not a number, and where the width of an integer matters.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Final

from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.errors import KernelRuntimeError, KernelTypeError, KernelValueError, reason_of, shown
from ziggurat.codemodel.messages import applied_text, call_text, say
from ziggurat.codemodel.numbers import COMPARISONS, FLOATS, integer, rounded_number, wrapped
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import ScalarType, f64, i1
from ziggurat.frontends.language.constants import as_constant
from ziggurat.frontends.language.phrases import DIVIDE_FLOATS, INVERT

# The op of a call on floats, on signed and on unsigned integers; None where the call does not take them.
OPS: Final[dict[str, tuple[type[Op] | None, type[Op] | None, type[Op] | None]]] = {
    "add": (arith.AddF, arith.AddI, arith.AddI),
    "sub": (arith.SubF, arith.SubI, arith.SubI),
    "mul": (arith.MulF, arith.MulI, arith.MulI),
    "div": (arith.DivF, None, None),
    "div_rn": (tt.PreciseDivF, None, None),
    "floordiv": (None, arith.DivSI, arith.DivUI),
    "mod": (arith.RemF, arith.RemSI, arith.RemUI),
    "and_": (None, arith.AndI, arith.AndI),
    "or_": (None, arith.OrI, arith.OrI),
    "xor": (None, arith.XOrI, arith.XOrI),
    "shl": (None, arith.ShlI, arith.ShlI),
    "shr": (None, arith.ShrSI, arith.ShrUI),
    "minimum": (arith.MinNumF, arith.MinSI, arith.MinUI),
    "maximum": (arith.MaxNumF, arith.MaxSI, arith.MaxUI),
}
# The op of a call on a float; integers are converted first.
OPS_OF_FLOATS: Final[dict[str, type[Op]]] = {
    "exp": maths.Exp, "exp2": maths.Exp2, "log": maths.Log, "log2": maths.Log2, "sqrt": maths.Sqrt,
    "sqrt_rn": tt.PreciseSqrt, "rsqrt": maths.Rsqrt, "sin": maths.Sin, "cos": maths.Cos, "tanh": maths.Tanh,
    "erf": maths.Erf, "floor": maths.Floor, "ceil": maths.Ceil, "trunc": maths.Trunc, "rint": maths.RoundEven,
}  # fmt: skip
_SUMS = ("add", "sub", "mul")  # The result for two bools is an integer.
_TYPES: Final[dict[type, ScalarType | None]] = {bool: i1, int: None, float: f64}
MAX_BITS = 14_000  # The size of a constant integer. Python writes integers of at most 4300 digits.


@functools.cache
def _scalars() -> Any:
    """The module of meanings on arrays, imported at the first use: it imports NumPy."""
    from ziggurat.codemodel import scalars

    return scalars


def plain(value: Any) -> Any:
    """A number as one of Python; None for anything else."""
    if type(value) not in _TYPES:
        value = as_constant(value)[1]  # A number of NumPy.
    return value if type(value) in _TYPES else None


def _promote(*values: Any) -> list[Any]:
    """Numbers converted to the highest kind among them: bool, int, float."""
    kind = max(map(type, values), key=list(_TYPES).index)
    return [kind(value) for value in values]


def _on_numbers(compute: Callable[..., Any]) -> Callable[..., Any]:
    """`compute` on the arguments in their order; `NotImplemented` unless all of them are numbers."""

    def meaning(**arguments: Any) -> Any:
        values = tuple(map(plain, arguments.values()))
        return NotImplemented if None in values else compute(*values)

    return meaning


def _result(name: str, function: Callable[..., Any], *values: Any) -> Any:
    """The number that a function of arrays gives for arrays of one number each."""
    import numpy as np

    scalars = _scalars()
    with np.errstate(all="ignore"):
        arrays = [scalars.array_of(value, _TYPES[type(value)]) for value in values]
        return _checked(name, lambda *_: scalars.number_of(function(*arrays)), *values)


def _checked(name: str, function: Callable[..., Any], *values: Any) -> Any:
    """The result of a function of numbers. Raises `KernelValueError` where it is undefined."""
    try:
        return function(*values)
    except (ValueError, ZeroDivisionError) as error:
        call = applied_text(name, [*map(shown, values)])
        reason = reason_of(error).rpartition(": ")[2]  # Of a call that this one consists of, the reason alone.
        raise KernelValueError(say("cannot compute {}: {}", call, reason)) from None


def _combine(name: str, a: Any, b: Any) -> Any:
    """A call of two operands, by its op."""
    floats, signed, unsigned = OPS[name]
    if floats is None and (isinstance(a, float) or isinstance(b, float)):
        hint = DIVIDE_FLOATS() if name == "floordiv" else None
        raise KernelTypeError(
            say("{}: the operands must be integers; got {!r} and {!r}", call_text(name), a, b), hint=hint
        )
    a, b = _promote(a, b)
    if signed is None:
        a, b = float(a), float(b)
    elif name in _SUMS and isinstance(a, bool):
        a, b = int(a), int(b)
    if name == "shl" and a and a.bit_length() + b > MAX_BITS:
        text = applied_text("shl", (shown(a), shown(b)))
        raise KernelValueError(say("cannot compute {}: a constant integer must have at most {} bits", text, MAX_BITS))
    cls = floats if isinstance(a, float) else unsigned if isinstance(a, bool) else signed
    assert cls is not None
    if cls in FLOATS:
        return _checked(name, FLOATS[cls], a, b)
    if not isinstance(a, float):
        combined = _checked(name, functools.partial(integer, cls), a, b)
        return wrapped(combined, i1) if isinstance(a, bool) else combined
    return _result(name, functools.partial(_scalars().float_binary, cls, scalar=f64), a, b)


def _binary(name: str) -> Callable[..., Any]:
    return _on_numbers(functools.partial(_combine, name))


def _function(name: str) -> Callable[..., Any]:
    """The meaning of a function of one float."""

    def meaning(x: Any) -> Any:
        return _result(name, _scalars().FUNCTIONS[OPS_OF_FLOATS[name]], float(x))

    return _on_numbers(meaning)


add, sub, mul, div, div_rn = map(_binary, ("add", "sub", "mul", "div", "div_rn"))
floordiv, mod, and_, or_, xor = map(_binary, ("floordiv", "mod", "and_", "or_", "xor"))
shl, shr = map(_binary, ("shl", "shr"))
exp, exp2, log, log2, sqrt = map(_function, ("exp", "exp2", "log", "log2", "sqrt"))
sqrt_rn, rsqrt, sin, cos, tanh = map(_function, ("sqrt_rn", "rsqrt", "sin", "cos", "tanh"))
erf, floor, ceil, trunc, rint = map(_function, ("erf", "floor", "ceil", "trunc", "rint"))


@_on_numbers
def fdiv(a: Any, b: Any, ieee_rounding: bool = False) -> Any:
    """`a / b` of floats."""
    return _combine("div", a, b)


@_on_numbers
def neg(x: Any) -> Any:
    """The number with its sign changed."""
    if isinstance(x, bool):
        raise KernelTypeError(
            say("{}: the operands must be integers or floats; got {}", call_text("neg"), x), hint=INVERT()
        )
    return -x


@_on_numbers
def abs(x: Any) -> Any:
    """The magnitude."""
    return math.fabs(x) if isinstance(x, float) else x if x >= 0 else -x


@_on_numbers
def invert(x: Any) -> Any:
    """Every bit inverted; the negation of a bool."""
    if isinstance(x, float):
        raise KernelTypeError(say("{}: the operands must be integers; got {}", call_text("invert"), x))
    return not x if isinstance(x, bool) else ~x


def _extreme(name: str, a: Any, b: Any, propagate_nan: bool = False) -> Any:
    """The smaller or the larger of two numbers."""
    extreme = _combine(name, a, b)
    return math.nan if propagate_nan and (a != a or b != b) else extreme


minimum, maximum = (_on_numbers(functools.partial(_extreme, name)) for name in ("minimum", "maximum"))


@_on_numbers
def clamp(x: Any, low: Any, high: Any, propagate_nan: bool = False) -> Any:
    """The number, kept between the bounds."""
    x, low, high = _promote(x, low, high)
    return _extreme("minimum", _extreme("maximum", x, low, propagate_nan), high, propagate_nan)


@_on_numbers
def fma(a: Any, b: Any, c: Any) -> Any:
    """`a * b + c`, rounded once."""
    a, b, c = _promote(a, b, c)
    return _result("fma", functools.partial(_scalars().fma, scalar=f64), a, b, c) if isinstance(a, float) else a * b + c


@_on_numbers
def sigmoid(x: Any) -> float:
    """1 / (1 + e^-x)."""
    return div(a=1.0, b=add(a=1.0, b=exp(x=-float(x))))


@_on_numbers
def next_power_of_2(n: int) -> int:
    """1, 2, 4, 8, …"""
    if isinstance(n, float):
        raise KernelTypeError(say("{}: 'n' must be an integer; got {}", call_text("next_power_of_2"), n))
    return 1 << max(0, n - 1).bit_length()


def run_body(body: Callable[..., Any]) -> Callable[..., Any]:
    """The meaning of a call of integers whose declaration has a body: the body, run in Python.

    The last results are cached, since every launch computes its grid again.
    """
    run = functools.lru_cache(typed=True)(body)

    @_on_numbers
    def meaning(*values: Any) -> Any:
        if any(isinstance(value, float) for value in values):
            raise KernelTypeError(
                say(
                    "{}: the operands must be integers; got {}",
                    call_text(body.__name__),
                    " and ".join(map(repr, values)),
                )
            )
        return _checked(body.__name__, run, *values)

    return meaning


def compare(a: Any, b: Any, kind: Any) -> Any:
    """The comparison of two numbers."""
    values, expected = (plain(a), plain(b)), say("a member of {}, or a sign such as '<'", call_text("CompareKind"))
    if getattr(kind, "value", None) not in COMPARISONS:
        raise KernelTypeError(say("{}: 'kind' must be {}; got {}", call_text("compare"), expected, shown(kind)))
    return NotImplemented if None in values else bool(COMPARISONS[kind.value](*_promote(*values)))


@_on_numbers
def where(condition: Any, x: Any, y: Any) -> Any:
    """The first number where the condition holds, else the second."""
    if not isinstance(condition, bool):
        raise KernelTypeError(
            say("{}: the condition must be {} (true or false); got {}", call_text("where"), i1, condition)
        )
    x, y = _promote(x, y)
    return x if condition else y


def cast(x: Any, dtype: Any, fp_downcast_rounding: Any, bitcast: Any) -> Any:
    """A number as one of the dtype."""
    value = plain(x)
    if value is None or not isinstance(dtype, ScalarType) or bitcast:
        return NotImplemented
    if dtype.kind == "bool":
        return bool(value)
    if dtype.kind == "int" and isinstance(value, int):
        return wrapped(value, dtype)
    if dtype.kind == "int":
        return _result("cast", functools.partial(_scalars().float_to_int, target=dtype), value)
    if isinstance(value, float) and fp_downcast_rounding == "rtz" and dtype != f64:
        return _result("cast", functools.partial(_scalars().truncated, scalar=dtype), value)
    return rounded_number(value, dtype)


def hint(x: Any, values: Any) -> Any:
    """The value itself: a hint is only for the compiler."""
    return NotImplemented if plain(x) is None else x


def assume(cond: Any) -> None:
    """Do nothing: an assumption is only for the compiler."""


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


def device_assert(cond: Any, msg: str, mask: Any = None) -> None:
    """Raises `KernelRuntimeError` for a false condition, unless the mask is false."""
    if not cond and (mask is None or mask):
        raise KernelRuntimeError(f"device-side assertion failed: {msg}" if msg else "device-side assertion failed")


def debug_barrier() -> None:
    """Do nothing: Python runs one program."""


def range_(arg1: Any, arg2: Any, step: Any, **_options: Any) -> Any:
    """Python's range."""
    if step == 0:
        raise KernelValueError("the step of a range is zero")
    start, stop = (0, arg1) if arg2 is None else (arg1, arg2)
    return range(start, stop, 1 if step is None else step)
