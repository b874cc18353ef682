"""Builder methods of the calls that work element by element: one a call, the operands in the order of the signature."""

from __future__ import annotations

from typing import Any

from ziggurat.codemodel.dialects import arith, math, tt
from ziggurat.codemodel.dialects.arith import FloatPredicate, IntPredicate
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import (
    ConstantType,
    PtrType,
    Type,
    f32,
    i1,
    i32,
    i64,
    shape_of,
    shaped,
    with_element,
)
from ziggurat.transforms.attribution.elementwise import COMPARISONS
from ziggurat.transforms.attribution.promotion import constant, is_pointer, promote, scalar_type
from ziggurat.transforms.mirror.emit import Emitter, Operand

# By call: the op for floats, for signed and for unsigned integers.
_BINARY: dict[str, tuple[type[Any] | None, type[Any] | None, type[Any] | None]] = {
    "add": (arith.AddF, arith.AddI, arith.AddI),
    "sub": (arith.SubF, arith.SubI, arith.SubI),
    "mul": (arith.MulF, arith.MulI, arith.MulI),
    "div": (arith.DivF, None, None),
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

_INT_PREDICATES = {
    "eq": (IntPredicate.EQ, IntPredicate.EQ),
    "ne": (IntPredicate.NE, IntPredicate.NE),
    "lt": (IntPredicate.SLT, IntPredicate.ULT),
    "le": (IntPredicate.SLE, IntPredicate.ULE),
    "gt": (IntPredicate.SGT, IntPredicate.UGT),
    "ge": (IntPredicate.SGE, IntPredicate.UGE),
}
_FLOAT_PREDICATES = {
    "eq": FloatPredicate.OEQ,
    "ne": FloatPredicate.UNE,
    "lt": FloatPredicate.OLT,
    "le": FloatPredicate.OLE,
    "gt": FloatPredicate.OGT,
    "ge": FloatPredicate.OGE,
}


class ElementwiseBuilder:
    """Arithmetic, comparisons, casts and functions of numbers."""

    emit: Emitter

    def binary(self, name: str, result: Type, a: Operand, b: Operand) -> Value:
        """A binary op on two operands brought to the result's type."""
        element = scalar_type(result)
        left, right = self.emit.convert(a, result), self.emit.convert(b, result)
        floats, signed, unsigned = _BINARY[name]
        cls = floats if element.is_float else signed if element.signed else unsigned
        assert cls is not None
        if not element.is_float or element.bits >= 16:
            return self.emit.add(cls(left, right))
        # Arithmetic of 8-bit floats is done in f32 and rounded.
        wide = self.emit.add(cls(self.emit.cast(left, f32), self.emit.cast(right, f32)))
        return self.emit.cast(wide, element)

    def offset(self, result: Type, pointer: Operand, offset: Operand, negative: bool = False) -> Value:
        """Pointers moved by offsets, both brought to the result's shape."""
        shape = shape_of(result)
        element = scalar_type(offset.type)
        if element == i1:
            element = i32
        if negative and isinstance(offset.type, ConstantType):
            offset = Operand(constant(-offset.type.value), None)
        elif negative:
            # An unsigned offset is widened first: its negative has no place in its own type.
            element = element if element.signed else i64
            wide = with_element(offset.type, element)
            value = self.emit.convert(offset, wide)
            offset = Operand(wide, self.emit.add(arith.SubI(self.emit.constant(0, wide), value)))
        base = self.emit.spread(pointer.value, shape)
        return self.emit.add(tt.AddPtr(base, self.emit.convert(offset, shaped(shape, element))))

    def add(self, result: Type, a: Operand, b: Operand) -> Value:
        if is_pointer(a.type):
            return self.offset(result, a, b)
        if is_pointer(b.type):
            return self.offset(result, b, a)
        return self.binary("add", result, a, b)

    def sub(self, result: Type, a: Operand, b: Operand) -> Value:
        if is_pointer(a.type):
            return self.offset(result, a, b, negative=True)
        return self.binary("sub", result, a, b)

    def mul(self, result: Type, a: Operand, b: Operand) -> Value:
        return self.binary("mul", result, a, b)

    def div(self, result: Type, a: Operand, b: Operand) -> Value:
        return self.binary("div", result, a, b)

    def div_rn(self, result: Type, a: Operand, b: Operand) -> Value:
        return self.emit.add(tt.PreciseDivF(self.emit.convert(a, result), self.emit.convert(b, result)))

    def floordiv(self, result: Type, a: Operand, b: Operand) -> Value:
        return self.binary("floordiv", result, a, b)

    def mod(self, result: Type, a: Operand, b: Operand) -> Value:
        return self.binary("mod", result, a, b)

    def and_(self, result: Type, a: Operand, b: Operand) -> Value:
        return self.binary("and_", result, a, b)

    def or_(self, result: Type, a: Operand, b: Operand) -> Value:
        return self.binary("or_", result, a, b)

    def xor(self, result: Type, a: Operand, b: Operand) -> Value:
        return self.binary("xor", result, a, b)

    def shl(self, result: Type, a: Operand, b: Operand) -> Value:
        return self.binary("shl", result, a, b)

    def shr(self, result: Type, a: Operand, b: Operand) -> Value:
        return self.binary("shr", result, a, b)

    def minimum(self, result: Type, a: Operand, b: Operand) -> Value:
        return self.binary("minimum", result, a, b)

    def maximum(self, result: Type, a: Operand, b: Operand) -> Value:
        return self.binary("maximum", result, a, b)

    def clamp(self, result: Type, x: Operand, low: Operand, high: Operand) -> Value:
        raised = self.binary("maximum", result, x, low)
        return self.binary("minimum", result, Operand(result, raised), high)

    def fma(self, result: Type, a: Operand, b: Operand, c: Operand) -> Value:
        element = scalar_type(result)
        # In the 16-bit types themselves: rounded to f32 first, f16 would be rounded twice.
        wide = with_element(result, f32) if element.is_fp8 else result
        made = self.emit.add(math.Fma(*(self.emit.convert(x, wide) for x in (a, b, c))))
        return self.emit.cast(made, element)

    def neg(self, result: Type, x: Operand) -> Value:
        element = scalar_type(result)
        value = self.emit.convert(x, result)
        if element.is_float:
            return self.emit.add(arith.NegF(value))
        return self.emit.add(arith.SubI(self.emit.constant(0, result), value))

    def invert(self, result: Type, x: Operand) -> Value:
        value = self.emit.convert(x, result)
        element = scalar_type(result)
        ones = True if element == i1 else -1
        return self.emit.add(arith.XOrI(value, self.emit.constant(ones, result)))

    # Comparisons.

    def comparison(self, name: str, result: Type, a: Operand, b: Operand) -> Value:
        """Compare two operands after promotion."""
        if is_pointer(a.type):
            signed, _ = _INT_PREDICATES[name]
            return self.emit.add(arith.CmpI(a.value, b.value, signed))
        element = promote(a.type, b.type)
        type_ = with_element(result, element)
        left, right = self.emit.convert(a, type_), self.emit.convert(b, type_)
        if element.is_fp8:
            # Promoted first, as all operands are; then compared in f32.
            left, right = self.emit.cast(left, f32), self.emit.cast(right, f32)
        if element.is_float:
            return self.emit.add(arith.CmpF(left, right, _FLOAT_PREDICATES[name]))
        signed, unsigned = _INT_PREDICATES[name]
        return self.emit.add(arith.CmpI(left, right, signed if element.signed else unsigned))

    def compare(self, result: Type, a: Operand, b: Operand, kind: Any) -> Value:
        return self.comparison(COMPARISONS[kind.name], result, a, b)

    def where(self, result: Type, condition: Operand, x: Operand, y: Operand) -> Value:
        if isinstance(condition.type, ConstantType):
            return self.emit.convert(x if condition.type.value else y, result)
        chosen = Operand(condition.type, self.emit.nonzero(condition.value))
        mask = self.emit.spread(chosen.value, shape_of(result)) if shape_of(condition.type) else chosen.value
        return self.emit.add(arith.Select(mask, self.emit.convert(x, result), self.emit.convert(y, result)))

    # Casts.

    def cast(self, result: Type, x: Operand, dtype: Any, rounding: Any = None, bitcast: bool = False) -> Value:
        if bitcast or isinstance(dtype, PtrType):
            return self.bitcast(result, x, dtype)
        if is_pointer(x.type):
            return self.emit.add(tt.PtrToInt(x.value))
        if isinstance(x.type, ConstantType):
            return self.emit.constant(x.type.value, result)
        mode = arith.Rounding.ZERO if rounding == "rtz" else arith.Rounding.NEAREST
        return self.emit.cast(x.value, scalar_type(result), mode)

    def bitcast(self, result: Type, x: Operand, dtype: Any) -> Value:
        if isinstance(dtype, PtrType):
            if is_pointer(x.type):
                return x.value if x.type == result else self.emit.add(tt.Bitcast(x.value, result))
            return self.emit.add(tt.IntToPtr(x.value, result))
        value = self.emit.convert(x, scalar_type(x.type)) if isinstance(x.type, ConstantType) else x.value
        return value if value.type == result else self.emit.add(arith.Bitcast(value, result))

    # Functions of floats.

    def float_function(self, cls: type[Any], result: Type, x: Operand) -> Value:
        """A function of a float; of one narrower than f32, computed in f32 and rounded."""
        element = scalar_type(result)
        wide = with_element(result, f32) if element.bits < 32 else result
        return self.emit.cast(self.emit.add(cls(self.emit.convert(x, wide))), element)

    def exp(self, result: Type, x: Operand) -> Value:
        return self.float_function(math.Exp, result, x)

    def exp2(self, result: Type, x: Operand) -> Value:
        return self.float_function(math.Exp2, result, x)

    def log(self, result: Type, x: Operand) -> Value:
        return self.float_function(math.Log, result, x)

    def log2(self, result: Type, x: Operand) -> Value:
        return self.float_function(math.Log2, result, x)

    def sqrt(self, result: Type, x: Operand) -> Value:
        return self.float_function(math.Sqrt, result, x)

    def sqrt_rn(self, result: Type, x: Operand) -> Value:
        return self.emit.add(tt.PreciseSqrt(self.emit.convert(x, result)))

    def rsqrt(self, result: Type, x: Operand) -> Value:
        return self.float_function(math.Rsqrt, result, x)

    def sin(self, result: Type, x: Operand) -> Value:
        return self.float_function(math.Sin, result, x)

    def cos(self, result: Type, x: Operand) -> Value:
        return self.float_function(math.Cos, result, x)

    def tanh(self, result: Type, x: Operand) -> Value:
        return self.float_function(math.Tanh, result, x)

    def erf(self, result: Type, x: Operand) -> Value:
        return self.float_function(math.Erf, result, x)

    def floor(self, result: Type, x: Operand) -> Value:
        return self.float_function(math.Floor, result, x)

    def ceil(self, result: Type, x: Operand) -> Value:
        return self.float_function(math.Ceil, result, x)

    def abs(self, result: Type, x: Operand) -> Value:
        element = scalar_type(result)
        if element.is_float:
            return self.emit.add(math.AbsF(x.value))
        return self.emit.add(math.AbsI(x.value)) if element.signed else x.value

    def umulhi(self, result: Type, a: Operand, b: Operand) -> Value:
        return self.emit.add(tt.MulHiUI(self.emit.convert(a, result), self.emit.convert(b, result)))
