"""Type rules of program ids, ranges, hints, debugging, inline assembly, Python's builtins and properties of values."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

from ziggurat.codemodel.errors import KernelTypeError, KernelValueError
from ziggurat.codemodel.types import (
    ConstantType,
    DescriptorType,
    PtrType,
    ScalarType,
    TensorType,
    TupleType,
    Type,
    element_of,
    f32,
    i1,
    i32,
    i64,
    shape_of,
    shaped,
)
from ziggurat.frontends.language.spellings import of_attribute
from ziggurat.transforms.attribution.assembly import MAX_PACK, check_assembly
from ziggurat.transforms.attribution.lattice import RangeType, components
from ziggurat.transforms.attribution.promotion import (
    NONE,
    common_shape,
    constant,
    is_number,
    scalar_type,
)
from ziggurat.transforms.attribution.shapes import is_power_of_two
from ziggurat.transforms.attribution.wording import describe, show

# The classes that `isinstance` knows, by their names in the Python code model.
_CLASSES = {f"builtins.{cls.__name__}": cls for cls in (bool, int, float, str, tuple)}


class ProgramTypes:
    """What is neither arithmetic, memory nor shape."""

    def program_id(self, axis: int) -> Type:
        return self._grid_axis("program_id", axis)

    def num_programs(self, axis: int) -> Type:
        return self._grid_axis("num_programs", axis)

    def _grid_axis(self, name: str, axis: int) -> Type:
        if axis not in (0, 1, 2):
            raise KernelValueError(f"zg.{name}: the axis of the grid is 0, 1 or 2, got {show(axis)}")
        return i32

    def smid(self) -> Type:
        return i32

    def globaltimer(self) -> Type:
        return i64

    # Loops.

    def _range(self, name: str, bounds: Sequence[Type], static: bool, options: tuple[tuple[str, object], ...]) -> Type:
        bounds = [bound for bound in bounds if bound != NONE]
        if not bounds or len(bounds) > 3:
            raise KernelTypeError(f"{name} takes one to three bounds, got {len(bounds)}")
        for bound in bounds:
            if not is_number(bound) or shape_of(bound) or scalar_type(bound).kind != "int":
                raise KernelTypeError(f"{name} counts with integers, got {describe(bound)}")
            if static and not isinstance(bound, ConstantType):
                raise KernelTypeError(
                    f"{name} is unrolled, so its bounds are known at compile time, got {describe(bound)}",
                    hint="use range, or make the bound a zg.constexpr parameter",
                )
        if len(bounds) == 1:
            bounds = [constant(0), *bounds]
        if len(bounds) == 2:
            bounds = [*bounds, constant(1)]
        step = bounds[2]
        if isinstance(step, ConstantType) and step.value == 0:
            raise KernelValueError(f"{name}: the step is zero")
        return RangeType(bounds[0], bounds[1], step, static, options)

    def range(self, first: Type, second: Type | None, step: Type | None, *options: Any) -> Type:
        names = (
            "num_stages",
            "loop_unroll_factor",
            "disallow_acc_multi_buffer",
            "flatten",
            "warp_specialize",
            "disable_licm",
        )
        for option, value in zip(names, options, strict=False):
            if value is not None and not 0 <= value < 1 << 31:
                raise KernelValueError(f"zg.range: '{option}' is zero or more, got {show(value)}")
        chosen = tuple((n, o) for n, o in zip(names, options, strict=False) if o is not None and o is not False)
        return self._range("zg.range", [first, second or NONE, step or NONE], False, chosen)

    def static_range(self, first: Any, second: Any, step: Any) -> Type:
        return self._range("zg.static_range", [constant(bound) for bound in (first, second, step)], True, ())

    # Hints.

    def _hint(self, name: str, x: Type, values: Any) -> Type:
        if not is_number(x) and not isinstance(element_of(x), PtrType):
            raise KernelTypeError(f"zg.{name} speaks of integers or pointers, got {describe(x)}")
        numbers = (values,) if isinstance(values, int) else tuple(values)
        rank = max(1, len(shape_of(x)))
        if not all(type(n) is int and n > 0 for n in numbers) or len(numbers) != rank:
            raise KernelValueError(f"zg.{name} takes {rank} positive integer(s), one for each axis, got {show(values)}")
        if is_number(x) and scalar_type(x).is_float and name != "max_constancy":
            raise KernelTypeError(f"zg.{name} speaks of integers or pointers, got {describe(x)}")
        if name == "multiple_of" and not all(map(is_power_of_two, numbers)):
            raise KernelValueError(f"zg.multiple_of takes powers of two, got {show(values)}")
        return x

    def multiple_of(self, x: Type, values: Any) -> Type:
        return self._hint("multiple_of", x, values)

    def max_contiguous(self, x: Type, values: Any) -> Type:
        return self._hint("max_contiguous", x, values)

    def max_constancy(self, x: Type, values: Any) -> Type:
        return self._hint("max_constancy", x, values)

    def _condition(self, name: str, condition: Type) -> None:
        if not is_number(condition) or scalar_type(condition).is_float:
            raise KernelTypeError(f"zg.{name} takes a condition, got {describe(condition)}")

    def assume(self, condition: Type) -> Type:
        self._condition("assume", condition)
        if shape_of(condition):
            raise KernelTypeError(f"zg.assume takes a scalar condition, got {condition}")
        if isinstance(condition, ConstantType) and not condition.value:
            raise KernelValueError("zg.assume of a condition that is false")
        return NONE

    # Debugging.

    def static_assert(self, condition: Any, message: Any = "") -> Type:
        if not isinstance(condition, bool | int):
            hint = (
                "write zg.static_assert(condition, message), without a tuple" if isinstance(condition, tuple) else None
            )
            raise KernelTypeError(f"a static assertion takes True or False, got {show(condition)}", hint=hint)
        if not condition:
            raise KernelValueError(f"static assertion failed{f': {message}' if message else ''}")
        return NONE

    def static_print(self, values: Sequence[Type]) -> Type:
        shown = [str(v.value) if isinstance(v, ConstantType) else str(v) for v in values]
        print(*shown, file=sys.stdout)
        return NONE

    def device_print(self, prefix: Any, values: Sequence[Type], *_options: Any) -> Type:
        if not isinstance(prefix, str):
            raise KernelTypeError(f"zg.device_print begins with a constant string, got {show(prefix)}")
        for value in values:
            if not is_number(value) and not isinstance(element_of(value), PtrType):
                raise KernelTypeError(f"zg.device_print prints numbers and pointers, got {describe(value)}")
        return NONE

    def device_assert(self, condition: Type, message: Any = "", *_options: Any) -> Type:
        self._condition("device_assert", condition)
        if not isinstance(message, str):
            raise KernelTypeError(f"zg.device_assert: the message is a constant string, got {show(message)}")
        return NONE

    def debug_barrier(self) -> Type:
        return NONE

    def inline_asm_elementwise(self, asm: Any, constraints: Any, args: Type, dtype: Any, pure: Any, pack: Any) -> Type:
        several = components(args)
        parts = (args,) if several is None else several
        for part in parts:
            if not is_number(part) and not isinstance(element_of(part), PtrType):
                raise KernelTypeError(f"zg.inline_asm_elementwise takes tensors and numbers, got {describe(part)}")
        shape = common_shape("zg.inline_asm_elementwise", *parts) if parts else ()
        if not isinstance(asm, str) or not isinstance(constraints, str):
            raise KernelTypeError("zg.inline_asm_elementwise takes the assembly and the constraints as strings")
        if not is_power_of_two(pack) or pack > MAX_PACK:
            raise KernelValueError(
                f"zg.inline_asm_elementwise: 'pack' is a power of two up to {MAX_PACK}, got {show(pack)}"
            )
        dtypes: Sequence[Any] = cast(Any, dtype) if isinstance(dtype, tuple) else (dtype,)
        results: list[Type] = []
        for one in dtypes:
            if not isinstance(one, ScalarType):
                raise KernelTypeError(f"zg.inline_asm_elementwise gives dtypes such as zg.i32, got {show(one)}")
            results.append(shaped(shape, one))
        check_assembly(asm, constraints, parts, results, pack)
        return TupleType(tuple(results)) if isinstance(dtype, tuple) else results[0]


class BuiltinTypes(ProgramTypes):
    """Python's builtins, and properties of values."""

    def builtin_range(self, *bounds: Type) -> Type:
        return self._range("range", bounds, False, ())

    def builtin_len(self, x: Type) -> Type:
        parts = components(x)
        if parts is not None:
            return constant(len(parts))
        if isinstance(x, ConstantType) and isinstance(x.value, str):
            return constant(len(x.value))
        if isinstance(x, TensorType):
            return constant(x.shape[0])
        raise KernelTypeError(f"{describe(x)} has no length")

    def builtin_int(self, x: Type) -> Type:
        if isinstance(x, ConstantType):
            return self._converted("int", int, x)
        self._scalar("int", x)
        return x if scalar_type(x).kind == "int" else i32

    def builtin_float(self, x: Type) -> Type:
        if isinstance(x, ConstantType):
            return self._converted("float", float, x)
        self._scalar("float", x)
        return x if scalar_type(x).is_float else f32

    def builtin_bool(self, x: Type) -> Type:
        if isinstance(x, ConstantType):
            return constant(bool(x.value))
        self._scalar("bool", x)
        return i1

    def _converted(self, name: str, convert: Callable[[Any], Any], x: ConstantType) -> Type:
        if not isinstance(x.value, bool | int | float | str):
            raise KernelTypeError(f"{name}() takes a number, got {describe(x)}")
        try:
            return constant(convert(x.value))
        except (ValueError, OverflowError) as error:
            raise KernelValueError(f"cannot compute {name}({show(x.value)}): {error}") from None

    def _scalar(self, name: str, x: Type) -> None:
        if not is_number(x) or shape_of(x):
            raise KernelTypeError(f"{name}() takes a scalar, got {describe(x)}", hint="zg.cast converts tensors")

    def builtin_isinstance(self, x: Type, cls: Type) -> Type:
        """Classes are the names of builtins (`builtins.int`), or a tuple of such names."""
        if isinstance(x, ConstantType) and isinstance(cls, ConstantType):
            known: Any = cls.value
            names = cast(tuple[str, ...], known if isinstance(known, tuple) else (known,))
            return constant(isinstance(x.value, tuple(_CLASSES[name] for name in names)))
        raise KernelTypeError("isinstance() is for constants in a kernel")

    def property(self, x: Type, name: str) -> Type:
        """`x.name`."""
        if name == "shape" and (isinstance(x, TensorType) or is_number(x)):
            return constant(shape_of(x))
        if name == "element_ty" and isinstance(x, ConstantType) and isinstance(x.value, PtrType):
            return constant(x.value.pointee)
        if name == "dtype" and not isinstance(x, TupleType):
            if isinstance(x, ConstantType):
                return constant(scalar_type(x))
            element = x.element if isinstance(x, DescriptorType) else element_of(x)
            if isinstance(element, ScalarType | PtrType):
                return constant(element)
        if name == "numel" and isinstance(x, TensorType):
            return constant(x.numel)
        if (
            isinstance(x, ConstantType)
            and isinstance(x.value, ScalarType)
            and name in ("bits", "name", "is_float", "signed")
        ):
            return constant(getattr(x.value, name))
        raise KernelTypeError(
            f"{describe(x)} has no property '{name}' in a kernel",
            hint=of_attribute(name)
            or "values have .shape and .dtype, dtypes of pointers have .element_ty; calls are zg.<name>(x)",
        )
