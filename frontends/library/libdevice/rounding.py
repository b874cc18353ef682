"""Arithmetic and conversions with a rounding: `_rn` to nearest, `_rz` toward zero, `_rd` down, `_ru` up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ziggurat.codemodel.types import f32, f64, i32, i64, u32, u64
from ziggurat.frontends import language as zg
from ziggurat.frontends.library.libdevice.table import add_function, helper, libdevice

DIRECTIONS = ("rz", "rd", "ru")


# Arithmetic: an op in each direction; to nearest, the ordinary calls.


def _binary(operation: str, rounding: str) -> Callable[..., Any]:
    def binary(x: Any, y: Any) -> Any:
        return zg.directed(operation, rounding, x, y)

    return binary


def _difference(rounding: str) -> Callable[..., Any]:
    def difference(x: Any, y: Any) -> Any:
        return zg.directed("add", rounding, x, zg.neg(y))

    return difference


def _root(rounding: str) -> Callable[..., Any]:
    def root(x: Any) -> Any:
        return zg.directed("sqrt", rounding, x)

    return root


def _reciprocal(rounding: str) -> Callable[..., Any]:
    def reciprocal(x: Any) -> Any:
        return zg.directed("div", rounding, 1.0, x)

    return reciprocal


def _fused(rounding: str) -> Callable[..., Any]:
    def fused(x: Any, y: Any, z: Any) -> Any:
        return zg.directed("fma", rounding, x, y, z)

    return fused


for _direction in DIRECTIONS:
    for _operation in ("add", "mul", "div"):
        add_function(f"{_operation}_{_direction}", _binary(_operation, _direction))
    add_function(f"sub_{_direction}", _difference(_direction))
    add_function(f"sqrt_{_direction}", _root(_direction))
    add_function(f"rcp_{_direction}", _reciprocal(_direction))
    add_function(f"fma_{_direction}", _fused(_direction))


@libdevice
def rcp_rn(x: Any) -> Any:
    """1 / x."""
    return zg.div_rn(1.0, x)


@libdevice
def rsqrt_rn(x: Any) -> Any:
    """1 / √x, computed in f64."""
    return zg.cast(zg.div_rn(1.0, zg.sqrt_rn(zg.cast(x, f64))), x.dtype)


@libdevice
def rcp64h(x: Any) -> Any:
    """The upper word of 1 / x; the lower one is zero."""
    return zg.bitcast(zg.and_(zg.bitcast(zg.div_rn(1.0, x), i64), -(1 << 32)), f64)


# Floats to integers: a whole number first, which converts exactly.


def _to_integer(dtype: Any, signed: Any) -> dict[str, Callable[..., Any]]:
    """By the rounding. An unsigned number is given as the signed one of its bits, the type that Triton declares."""

    def nearest(x: Any) -> Any:
        return zg.cast(zg.cast(zg.rint(x), dtype), signed)

    def zero(x: Any) -> Any:
        return zg.cast(zg.cast(x, dtype), signed)

    def down(x: Any) -> Any:
        return zg.cast(zg.cast(zg.floor(x), dtype), signed)

    def up(x: Any) -> Any:
        return zg.cast(zg.cast(zg.ceil(x), dtype), signed)

    return {"rn": nearest, "rz": zero, "rd": down, "ru": up}


for _target, _dtype, _signed in (("int", i32, i32), ("uint", u32, i32), ("ll", i64, i64), ("ull", u64, i64)):
    for _source in ("float", "double"):
        for _rounding, _fn in _to_integer(_dtype, _signed).items():
            add_function(f"{_source}2{_target}_{_rounding}", _fn)


@libdevice
def llrint(x: Any) -> Any:
    """The nearest whole number, ties to even."""
    return zg.cast(zg.rint(x), i64)


@libdevice
def llround(x: Any) -> Any:
    """The nearest whole number, ties away from zero."""
    return zg.cast(zg.round(x), i64)


# Numbers to floats: the nearest one, or its neighbour in the direction of the number.


@helper
def neighbour(x: Any, up: zg.constexpr) -> Any:
    """The next float up or down, for a number or an infinity on the other side."""
    least = 5e-324 if x.dtype == f64 else 1.401298464324817e-45
    wide = x.dtype == f64
    integer = i64 if wide else i32
    away = zg.greater_equal(x, 0.0) if up else zg.less(x, 0.0)
    result = zg.bitcast(zg.add(zg.bitcast(x, integer), zg.where(away, 1, -1)), x.dtype)
    return zg.where(zg.equal(x, 0.0), least if up else -least, result)


@helper
def moved(near: Any, below: Any, above: Any, rounding: zg.constexpr) -> Any:
    """The float next to an exact number that is `below` or `above` the nearest float."""
    if rounding == "rd":
        return zg.where(below, neighbour(near, False), near)
    if rounding == "ru":
        return zg.where(above, neighbour(near, True), near)
    smaller = zg.where(zg.and_(below, zg.greater(near, 0.0)), neighbour(near, False), near)
    return zg.where(zg.and_(above, zg.less(near, 0.0)), neighbour(near, True), smaller)


@helper
def from_integer(n: Any, target: zg.constexpr, rounding: zg.constexpr) -> Any:
    """An integer as a float."""
    near = zg.cast(n, target)
    back = zg.cast(near, n.dtype)
    # The float above the largest integer converts back to that integer.
    beyond = zg.greater_equal(near, 2.0 ** (n.dtype.bits - 1) if n.dtype.signed else 2.0**n.dtype.bits)
    above = zg.and_(zg.greater(n, back), zg.invert(beyond))
    return moved(near, zg.or_(beyond, zg.less(n, back)), above, rounding)


def _from_integer(target: Any, rounding: str) -> Callable[..., Any]:
    def converted(n: Any) -> Any:
        return from_integer(n, target, rounding)

    return converted


def _nearest(target: Any) -> Callable[..., Any]:
    def nearest(x: Any) -> Any:
        return zg.cast(x, target)

    return nearest


def _narrowed(rounding: str) -> Callable[..., Any]:
    def narrowed(x: Any) -> Any:
        near = zg.cast(x, f32)
        back = zg.cast(near, f64)
        return moved(near, zg.less(x, back), zg.greater(x, back), rounding)

    return narrowed


for _name, _target in (("float", f32), ("double", f64)):
    for _kind in ("int", "uint", "ll", "ull"):
        add_function(f"{_kind}2{_name}_rn", _nearest(_target))
        for _rounding in DIRECTIONS:
            if _name == "float" or _kind in ("ll", "ull"):
                add_function(f"{_kind}2{_name}_{_rounding}", _from_integer(_target, _rounding))
add_function("double2float_rn", _nearest(f32))
for _rounding in DIRECTIONS:
    add_function(f"double2float_{_rounding}", _narrowed(_rounding))
