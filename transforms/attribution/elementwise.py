"""Type rules of the calls that work element by element, and of Python's operators on scalars. One method a call."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ziggurat.codemodel.errors import KernelTypeError, KernelValueError
from ziggurat.codemodel.types import (
    ConstantType,
    PtrType,
    ScalarType,
    TensorType,
    Type,
    element_of,
    f32,
    i1,
    i32,
    shaped,
    with_element,
)
from ziggurat.frontends.language import host
from ziggurat.transforms.attribution.promotion import (
    common_shape,
    constant,
    is_number,
    is_pointer,
    promote,
    promote_types,
    require_fits,
    scalar_type,
)
from ziggurat.transforms.attribution.wording import describe, show

_PYTHON: Any = operator  # The stubs of `operator` leave types unknown.

FOLDS: dict[str, Callable[..., Any]] = {
    "add": _PYTHON.add,
    "sub": _PYTHON.sub,
    "mul": _PYTHON.mul,
    "div": _PYTHON.truediv,
    "floordiv": _PYTHON.floordiv,
    "mod": _PYTHON.mod,
    "pow": _PYTHON.pow,
    "and_": _PYTHON.and_,
    "or_": _PYTHON.or_,
    "xor": _PYTHON.xor,
    "shl": _PYTHON.lshift,
    "shr": _PYTHON.rshift,
    "minimum": min,
    "maximum": max,
    "neg": _PYTHON.neg,
    "invert": _PYTHON.invert,
    "eq": _PYTHON.eq,
    "ne": _PYTHON.ne,
    "lt": _PYTHON.lt,
    "le": _PYTHON.le,
    "gt": _PYTHON.gt,
    "ge": _PYTHON.ge,
}

COMPARISONS = {
    "EQUAL": "eq",
    "NOT_EQUAL": "ne",
    "LESS_THAN": "lt",
    "LESS_THAN_OR_EQUAL": "le",
    "GREATER_THAN": "gt",
    "GREATER_THAN_OR_EQUAL": "ge",
}


# How a fold is written in Python; the others are functions.
_WRITTEN = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "pow": "**", "and_": "&", "or_": "|",
    "xor": "^", "shl": "<<", "shr": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "minimum": "min", "maximum": "max", "neg": "-", "invert": "~",
}  # fmt: skip
_MAX_BITS = 64


def folded(name: str, *values: Any) -> ConstantType:
    """The constant that Python computes. Raises `KernelTypeError` or `KernelValueError` where Python raises."""
    sign = _WRITTEN[name]
    shown = [f"({text})" if text.startswith("-") else text for text in map(show, values)]
    text = f" {sign} ".join(shown) if len(values) == 2 and not sign.isalpha() else f"{sign}({', '.join(shown)})"
    if _is_too_large(name, *values):
        raise KernelValueError(f"cannot compute {text}: the integer does not fit in {_MAX_BITS} bits")
    try:
        result = FOLDS[name](*values)
    except TypeError:
        kinds = " and ".join(describe(constant(value)) for value in values)
        raise KernelTypeError(f"'{sign}' does not work on {kinds}") from None
    except (ValueError, ZeroDivisionError, OverflowError, MemoryError) as error:
        raise KernelValueError(f"cannot compute {text}: {error}") from None
    if isinstance(result, complex):
        raise KernelValueError(f"cannot compute {text}: the result is a complex number, which kernels do not have")
    if result is NotImplemented:
        raise KernelTypeError(f"'{sign}' does not work on {' and '.join(shown)}")
    try:
        return constant(result)
    except KernelValueError as error:
        raise KernelValueError(f"cannot compute {text}: {error.summary}") from None


def _is_too_large(name: str, *values: Any) -> bool:
    """True of integers that Python should not even try to compute."""
    if name not in ("pow", "shl") or not all(isinstance(value, int) for value in values):
        return False
    left, right = values
    return right > _MAX_BITS and (abs(left) > 1 if name == "pow" else left != 0)


class ElementwiseTypes:
    """Arithmetic, comparisons, casts and functions of numbers."""

    def _constants(self, *types: Type) -> bool:
        return all(isinstance(type_, ConstantType) for type_ in types)

    def _numbers(self, name: str, *types: Type) -> None:
        for type_ in types:
            if not is_number(type_):
                what = "a pointer" if is_pointer(type_) else describe(type_)
                raise KernelTypeError(f"zg.{name} takes numbers, got {what}")

    def _arithmetic(self, name: str, a: Type, b: Type) -> Type:
        self._numbers(name, a, b)
        if isinstance(a, ConstantType) and isinstance(b, ConstantType):
            return folded(name, a.value, b.value)
        element = promote(a, b)
        if element == i1 and name in ("add", "sub", "mul"):
            element = i32
        return shaped(common_shape(f"zg.{name}", a, b), element)

    def _pointer_offset(self, name: str, pointer: Type, offset: Type) -> Type:
        if is_pointer(offset):
            raise KernelTypeError(
                f"zg.{name} of two pointers, {pointer} and {offset}", hint="a pointer moves by integers"
            )
        if not is_number(offset) or not scalar_type(offset).is_int:
            raise KernelTypeError(
                f"zg.{name} moves the pointer {pointer} by {describe(offset)}: an offset is an integer",
                hint="compute the offset in integers, or cast it with zg.cast(offset, zg.i32)",
            )
        shape = common_shape(f"zg.{name}", pointer, offset)
        element = pointer.element if isinstance(pointer, TensorType) else pointer
        assert isinstance(element, PtrType)
        return shaped(shape, element)

    def add(self, a: Type, b: Type) -> Type:
        if is_pointer(a):
            return self._pointer_offset("add", a, b)
        if is_pointer(b):
            return self._pointer_offset("add", b, a)
        return self._arithmetic("add", a, b)

    def sub(self, a: Type, b: Type) -> Type:
        if is_pointer(a):
            return self._pointer_offset("sub", a, b)
        return self._arithmetic("sub", a, b)

    def mul(self, a: Type, b: Type) -> Type:
        return self._arithmetic("mul", a, b)

    def _quotient(self, name: str, a: Type, b: Type) -> Type:
        self._numbers(name, a, b)
        if isinstance(a, ConstantType) and isinstance(b, ConstantType):
            return folded("div", a.value, b.value)
        element = promote(a, b)
        return shaped(common_shape(f"zg.{name}", a, b), element if element.is_float else f32)

    def div(self, a: Type, b: Type) -> Type:
        return self._quotient("div", a, b)

    def div_rn(self, a: Type, b: Type) -> Type:
        return self._quotient("div_rn", a, b)

    def _integers(self, name: str, a: Type, b: Type, hint: str | None = None) -> Type:
        self._numbers(name, a, b)
        for type_ in (a, b):
            if scalar_type(type_).is_float and not self._constants(a, b):
                raise KernelTypeError(f"zg.{name} takes integers, got {describe(type_)}", hint=hint)
        if isinstance(a, ConstantType) and isinstance(b, ConstantType):
            return folded(name, a.value, b.value)
        return shaped(common_shape(f"zg.{name}", a, b), promote(a, b))

    def floordiv(self, a: Type, b: Type) -> Type:
        return self._integers("floordiv", a, b, "for floats, zg.floor(zg.div(a, b))")

    def mod(self, a: Type, b: Type) -> Type:
        return self._arithmetic("mod", a, b)

    def and_(self, a: Type, b: Type) -> Type:
        return self._integers("and_", a, b)

    def or_(self, a: Type, b: Type) -> Type:
        return self._integers("or_", a, b)

    def xor(self, a: Type, b: Type) -> Type:
        return self._integers("xor", a, b)

    def shl(self, a: Type, b: Type) -> Type:
        return self._integers("shl", a, b)

    def shr(self, a: Type, b: Type) -> Type:
        return self._integers("shr", a, b)

    def minimum(self, a: Type, b: Type, *_options: Any) -> Type:
        return self._arithmetic("minimum", a, b)

    def maximum(self, a: Type, b: Type, *_options: Any) -> Type:
        return self._arithmetic("maximum", a, b)

    def clamp(self, x: Type, low: Type, high: Type, *_options: Any) -> Type:
        self._numbers("clamp", x, low, high)
        if isinstance(x, ConstantType) and isinstance(low, ConstantType) and isinstance(high, ConstantType):
            return folded("minimum", folded("maximum", x.value, low.value).value, high.value)
        return self._common("clamp", x, low, high)

    def fma(self, a: Type, b: Type, c: Type) -> Type:
        self._numbers("fma", a, b, c)
        if self._constants(a, b, c):
            return self.add(self.mul(a, b), c)
        result = self._common("fma", a, b, c)
        if not scalar_type(result).is_float:
            raise KernelTypeError(f"zg.fma takes floats, got {result}", hint="zg.add(zg.mul(a, b), c)")
        return result

    def _common(self, name: str, *types: Type) -> Type:
        """The type of all operands after promotion: those that are typed first, then the literals."""
        typed = [type_ for type_ in types if not isinstance(type_, ConstantType)]
        element = scalar_type(typed[0])
        for type_ in typed[1:]:
            element = promote_types(element, scalar_type(type_))
        for type_ in types:
            if isinstance(type_, ConstantType):
                element = promote(element, type_)
        return shaped(common_shape(f"zg.{name}", *types), element)

    def neg(self, x: Type) -> Type:
        self._numbers("neg", x)
        if isinstance(x, ConstantType):
            return folded("neg", x.value)
        if scalar_type(x) == i1:
            raise KernelTypeError(f"zg.neg takes integers or floats, got {x}", hint="zg.invert changes true and false")
        return x

    def invert(self, x: Type) -> Type:
        self._numbers("invert", x)
        if isinstance(x, ConstantType):
            return constant(not x.value) if isinstance(x.value, bool) else folded("invert", x.value)
        if scalar_type(x).is_float:
            raise KernelTypeError(f"zg.invert takes integers, got {x}")
        return x

    # Comparisons.

    def _comparison(self, name: str, a: Type, b: Type) -> Type:
        if isinstance(a, ConstantType) and isinstance(b, ConstantType):
            return folded(name, a.value, b.value)
        if is_pointer(a) and a == b:
            return with_element(a, i1)
        self._numbers("compare", a, b)
        promote(a, b)
        return shaped(common_shape("zg.compare", a, b), i1)

    def compare(self, a: Type, b: Type, kind: Any) -> Type:
        return self._comparison(COMPARISONS[kind.name], a, b)

    def where(self, condition: Type, x: Type, y: Type) -> Type:
        if not is_number(condition) or scalar_type(condition) != i1:
            raise KernelTypeError(
                f"zg.where: the condition holds i1 (true and false), got {describe(condition)}",
                hint="zg.compare gives a condition",
            )
        if isinstance(condition, ConstantType) and isinstance(x, ConstantType) and isinstance(y, ConstantType):
            return x if condition.value else y
        if is_pointer(x) and is_pointer(y):
            element = element_of(x)
            assert isinstance(element, PtrType)
            if element != element_of(y):
                raise KernelTypeError(f"zg.where chooses between unlike pointers, {x} and {y}")
            return shaped(common_shape("zg.where", condition, x, y), element)
        self._numbers("where", x, y)
        if isinstance(x, ConstantType) and isinstance(y, ConstantType):
            element = promote_types(scalar_type(x), scalar_type(y))
        else:
            element = promote(x, y)
        return shaped(common_shape("zg.where", condition, x, y), element)

    # Casts.

    def cast(self, x: Type, dtype: Any, rounding: Any = None, bitcast: bool = False) -> Type:
        if isinstance(dtype, PtrType):
            return self._pointer_cast(x, dtype)
        if not isinstance(dtype, ScalarType):
            raise KernelTypeError(f"zg.cast takes a dtype such as zg.f16, got {show(dtype)}")
        if bitcast:
            return self.bitcast(x, dtype)
        if is_pointer(x):
            if dtype.name != "i64":
                raise KernelTypeError(f"the pointer {x} casts to zg.i64 or to another pointer, not to {dtype}")
            return with_element(x, dtype)
        self._numbers("cast", x)
        if rounding not in (None, "rtne", "rtz"):
            raise KernelValueError(f"fp_downcast_rounding is 'rtne' or 'rtz', not {show(rounding)}")
        if rounding is not None and not (
            dtype.is_float and scalar_type(x).is_float and dtype.bits < scalar_type(x).bits
        ):
            raise KernelValueError("fp_downcast_rounding is for a cast from a float to a narrower float")
        if isinstance(x, ConstantType):
            if dtype.is_int and dtype != i1 and not isinstance(x.value, float):
                require_fits(int(x.value), dtype)
            return dtype
        return with_element(x, dtype)

    def bitcast(self, x: Type, dtype: Any) -> Type:
        if isinstance(dtype, PtrType):
            return self._pointer_cast(x, dtype)
        if not isinstance(dtype, ScalarType):
            raise KernelTypeError(f"zg.bitcast takes a dtype such as zg.i32, got {show(dtype)}")
        self._numbers("bitcast", x)
        if scalar_type(x).bits != dtype.bits:
            raise KernelTypeError(
                f"zg.bitcast keeps the width: {scalar_type(x)} has {scalar_type(x).bits} bits, "
                f"{dtype} has {dtype.bits}",
                hint="zg.cast converts the value",
            )
        return with_element(x if not isinstance(x, ConstantType) else scalar_type(x), dtype)

    def _pointer_cast(self, x: Type, target: PtrType) -> Type:
        if is_pointer(x) or (not isinstance(x, ConstantType) and is_number(x) and scalar_type(x).name == "i64"):
            return with_element(x, target)
        raise KernelTypeError(f"only pointers and i64 cast to {target}, not {describe(x)}")

    # Functions of floats.

    def _float_function(self, name: str, x: Type) -> Type:
        self._numbers(name, x)
        if isinstance(x, ConstantType):
            return constant(getattr(host, name)(x=x.value))
        return x if scalar_type(x).is_float else with_element(x, f32)

    def exp(self, x: Type) -> Type:
        return self._float_function("exp", x)

    def exp2(self, x: Type) -> Type:
        return self._float_function("exp2", x)

    def log(self, x: Type) -> Type:
        return self._float_function("log", x)

    def log2(self, x: Type) -> Type:
        return self._float_function("log2", x)

    def sqrt(self, x: Type) -> Type:
        return self._float_function("sqrt", x)

    def sqrt_rn(self, x: Type) -> Type:
        return self._float_function("sqrt_rn", x)

    def rsqrt(self, x: Type) -> Type:
        return self._float_function("rsqrt", x)

    def sin(self, x: Type) -> Type:
        return self._float_function("sin", x)

    def cos(self, x: Type) -> Type:
        return self._float_function("cos", x)

    def tanh(self, x: Type) -> Type:
        return self._float_function("tanh", x)

    def erf(self, x: Type) -> Type:
        return self._float_function("erf", x)

    def floor(self, x: Type) -> Type:
        return self._float_function("floor", x)

    def ceil(self, x: Type) -> Type:
        return self._float_function("ceil", x)

    def abs(self, x: Type) -> Type:
        if isinstance(x, ConstantType):
            self._numbers("abs", x)
            return constant(abs(x.value))
        self._numbers("abs", x)
        return x

    def umulhi(self, a: Type, b: Type) -> Type:
        result = self._integers("umulhi", a, b) if not self._constants(a, b) else None
        if result is None or scalar_type(result).bits not in (32, 64):
            raise KernelTypeError(f"zg.umulhi takes 32- or 64-bit integers, got {describe(a)} and {describe(b)}")
        return with_element(result, scalar_type(result).unsigned)

    def cdiv_constants(self, x: ConstantType, div: ConstantType) -> Type:
        """`zg.cdiv` of constants, as Python computes it; of run-time values it is a function of the library."""
        return folded("floordiv", folded("add", x.value, div.value - 1).value, div.value)

    def next_power_of_2(self, n: Any) -> Type:
        if type(n) is not int:
            raise KernelTypeError(f"zg.next_power_of_2 takes an integer, got {show(n)}")
        return constant(1 << max(0, n - 1).bit_length())
