"""Rules of programs, ranges, hints, debugging and inline assembly."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.errors import KernelTypeError, KernelValueError, StaticAssertionError
from ziggurat.codemodel.messages import say
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.structured import packed
from ziggurat.codemodel.types import (
    ConstantType,
    PtrType,
    ScalarType,
    TupleType,
    Type,
    component_types,
    element_of,
    i1,
    i32,
    i64,
    is_power_of_two,
    shape_of,
    shaped,
    with_element,
)
from ziggurat.frontends.language.dtypes import type_of
from ziggurat.frontends.language.phrases import CAST_COUNT, CONSTANT_BOUND, GRID_AXIS, STATIC_ASSERT
from ziggurat.transforms.calls.assembly_constraints import MAX_PACK, check_assembly
from ziggurat.transforms.calls.constant_arguments import describe, show
from ziggurat.transforms.calls.emit import Built, Emitter, Operand, as_given, packed_type, split_operand
from ziggurat.transforms.calls.lattice import RangeType, components
from ziggurat.transforms.calls.promotion import (
    NONE,
    common_shape,
    constant,
    is_number,
    is_pointer,
    promoted,
    run_time_type,
    scalar_type,
    to_load,
)
from ziggurat.transforms.calls.rule import Rule, Typing, condition


def _grid(call: Typing, along: int) -> Type:
    if along not in (0, 1, 2):
        raise KernelValueError(GRID_AXIS(call=str(call), axis=show(along), name=call.name))
    return i32


# Loops.

RANGE_OPTIONS = (
    "num_stages", "loop_unroll_factor", "disallow_acc_multi_buffer", "flatten", "warp_specialize", "disable_licm",
)  # fmt: skip


def range_of(name: str, bounds: Sequence[Type], static: bool = False, options: tuple[Any, ...] = ()) -> RangeType:
    """The range of one to three bounds."""
    bounds = [bound for bound in bounds if bound != NONE]
    if not bounds or len(bounds) > 3:
        raise KernelTypeError(say("{} takes one to three bounds; got {}", name, len(bounds)))
    for bound in bounds:
        if not is_number(bound) or shape_of(bound) or scalar_type(bound).kind != "int":
            hint = to_load(bound) or (CAST_COUNT() if is_number(bound) and not shape_of(bound) else None)
            raise KernelTypeError(say("{} counts with integers; got {}", name, describe(bound)), hint=hint)
        if static and not isinstance(bound, ConstantType):
            raise KernelTypeError(
                say("{} is unrolled, so its bounds must be known at compile time; got {}", name, describe(bound)),
                hint=CONSTANT_BOUND(),
            )
    if len(bounds) == 1:
        bounds = [constant(0), *bounds]
    start, stop, step = bounds if len(bounds) == 3 else (*bounds, constant(1))
    if isinstance(step, ConstantType) and step.value == 0:
        raise KernelValueError(f"{name}: the step is zero")
    return RangeType(start, stop, step, static, options)


def _range(call: Typing, first: Type, second: Type | None, step: Type | None, *options: Any) -> Type:
    values = dict(zip(RANGE_OPTIONS, options, strict=False))
    for option, value in values.items():
        if value is not None and not 0 <= value < 1 << 31:
            raise call.value_error("'{}' must be zero or more; got {}", option, show(value))
    settings = tuple((name, value) for name, value in values.items() if value is not None and value is not False)
    return range_of(str(call), [first, second or NONE, step or NONE], False, settings)


def _static_range(call: Typing, first: Any, second: Any, step: Any) -> Type:
    return range_of(str(call), [constant(bound) for bound in (first, second, step)], True)


# Hints.


def _hinted(call: Typing, x: Type, values: Any) -> Type:
    numbers = (values,) if isinstance(values, int) else tuple(values)
    rank = max(1, len(shape_of(x)))
    if not is_pointer(x) and (not is_number(x) or (scalar_type(x).is_float and call.name != "max_constancy")):
        raise call.error("the operands must be integers or pointers; got {}", x)
    if not all(type(n) is int and n > 0 for n in numbers) or len(numbers) != rank:
        raise call.value_error(
            "the values must be {} positive integer(s), one for each axis; got {}", rank, show(values)
        )
    if call.name == "multiple_of" and not all(map(is_power_of_two, numbers)):
        raise call.value_error("the values must be powers of two; got {}", show(values))
    return x


_HINTS = {"multiple_of": tt.MultipleOf, "max_contiguous": tt.MaxContiguous, "max_constancy": tt.MaxConstancy}


def _hint(cls: type[tt.Hint], emit: Emitter, result: Type, x: Operand, values: Any) -> Value:
    return emit.add(cls(x.value, (values,) if isinstance(values, int) else tuple(values)))


def _assumed(call: Typing, x: Type) -> Type:
    condition(call, x)
    if shape_of(x):
        raise call.error("the condition must be a scalar; got {}", x)
    if isinstance(x, ConstantType) and not x.value:
        raise KernelValueError(f"{call} of a condition that is false")
    return NONE


def _assume(emit: Emitter, result: Type, x: Operand) -> Built:
    return None if isinstance(x.type, ConstantType) else emit.add(tt.Assume(emit.truth(x)))


# Debugging.


def _asserted(call: Typing, holds: Any, message: Any = "") -> Type:
    if not isinstance(holds, bool | int):
        hint = STATIC_ASSERT() if isinstance(holds, tuple) else None
        raise KernelTypeError(
            say("the condition of a static assertion must be True or False; got {}", show(holds)), hint=hint
        )
    if not holds:
        raise StaticAssertionError(say("static assertion failed{}", f": {message}" if message else ""))
    return NONE


def _printed(call: Typing, values: Sequence[Type]) -> Type:
    print(*(_static_text(call, value) for value in values))
    return NONE


def _static_text(call: Typing, value: Type) -> Any:
    """The text of a print at compile time: a constant, or the type of a run-time value; both as the language writes
    them."""
    if isinstance(value, ConstantType):
        number = value.value
        return type_of(number) if call.language.is_triton and isinstance(number, ScalarType | PtrType) else number
    if not call.language.is_triton or not (is_number(value) or is_pointer(value)):
        return value
    sizes = ", ".join(f"constexpr[{size}]" for size in shape_of(value))
    return f"{type_of(element_of(value))}[{sizes}]"


def _printing(call: Typing, prefix: str, values: Sequence[Type], *_: Any) -> Type:
    for value in values:
        if not is_number(value) and not is_pointer(value):
            raise KernelTypeError(say("{} prints numbers and pointers; got {}", call, describe(value)))
        run_time_type(value)
    return NONE


def device_print(emit: Emitter, result: Type, prefix: str, values: Sequence[Operand], hex_: bool = False) -> Value:
    """Print a line for each element of the values."""
    label = prefix.strip().removesuffix(":") if values else prefix  # The printer writes a colon itself.
    return emit.add(tt.Print([emit.runtime(value) for value in values], label, hex=hex_, c_form=emit.language.c_prints))


def _checked(call: Typing, x: Type, message: Any = "", mask: Type | None = None) -> Type:
    for operand in (x,) if mask is None else (x, mask):
        condition(call, operand)
    if mask is not None:
        common_shape(str(call), x, mask)
    if not isinstance(message, str):
        raise call.error("the message must be a constant string; got {}", show(message))
    return NONE


def _check(emit: Emitter, result: Type, x: Operand, message: str = "", mask: Operand | None = None) -> Value:
    holds = emit.truth(x)
    if mask is not None:
        sizes = common_shape("", x.type, mask.type)
        left_out = emit.add(arith.XOrI(emit.truth(mask), emit.constant(True, with_element(mask.type, i1))))
        holds = emit.add(arith.OrI(emit.spread(holds, sizes), emit.spread(left_out, sizes)))
    return emit.add(tt.Assert(holds, message=message))


# Functions of elements, and inline assembly.


def _elements(call: Typing, args: Sequence[Type]) -> tuple[tuple[int, ...], list[ScalarType | PtrType]]:
    """The common shape of the operands, and the type of an element of each."""
    for part in args:
        if not is_number(part) and not is_pointer(part):
            raise call.error("the operands must be {tensors} and numbers; got {}", part)
    elements = [element_of(part.type if isinstance(part, ConstantType) else part) for part in args]
    return common_shape(str(call), *args), [x for x in elements if isinstance(x, ScalarType | PtrType)]


def _packing(call: Typing, pack: Any) -> None:
    if not is_power_of_two(pack) or pack > MAX_PACK:
        raise call.value_error("'pack' must be a power of two up to {}; got {}", MAX_PACK, show(pack))


def _mapped(call: Typing, function: Any, args: Sequence[Type], pack: Any) -> Type:
    sizes, elements = _elements(call, args)
    _packing(call, pack)
    if not sizes:
        raise call.error("an operand must be {a_tensor}; got scalars alone", hint="call the function")
    result = call.context.apply(call, function, [element for element in elements for _ in range(pack)])
    parts = components(result) or (result,)
    if len(parts) % pack or not all(is_number(part) and not shape_of(part) for part in parts):
        raise call.error(
            "'{}' must give {}; got {}",
            function.symbol,
            "numbers" if pack == 1 else f"{pack} numbers of each result",
            result,
        )
    results = [promoted(str(call), *parts[at : at + pack]) for at in range(0, len(parts), pack)]
    return packed([shaped(sizes, scalar_type(number)) for number in results])


def _map(emit: Emitter, result: Type, _function: Any, args: Sequence[Operand], pack: int) -> Built:
    tensors = component_types(result)
    types = [scalar_type(type_) for type_ in tensors for _ in range(pack)]
    values = [emit.spread(emit.runtime(part), shape_of(tensors[0])) for part in args]
    callee = emit.functions.callee()
    elements = [element_of(value.type) for value in values for _ in range(pack)]
    inner = Emitter(emit.builder.nested(elements, packed(types)))
    inner_result = Operand(callee.result, inner.call(callee.symbol, list(inner.builder.parameters), callee.result))
    parts = split_operand(inner_result) if components(callee.result) is not None else [inner_result]
    inner.add(tt.MapReturn([inner.convert(part, to) for part, to in zip(parts, types, strict=True)]))
    return emit.unpack(emit.add(tt.MapElementwise(values, inner.builder.finish(), pack=pack)), result)


def _assembled(call: Typing, asm: str, constraints: str, args: Type, dtype: Any, _pure: Any, pack: Any) -> Type:
    several = components(args)
    parts = (args,) if several is None else several
    sizes, _ = _elements(call, parts)
    _packing(call, pack)
    results: list[Type] = []
    for element in cast(Sequence[Any], dtype if isinstance(dtype, tuple) else (dtype,)):
        if not isinstance(element, ScalarType | PtrType):
            summary = "{} gives dtypes such as {}, or pointers; got {}"
            raise KernelTypeError(say(summary, call, show(i32), show(element)))
        results.append(shaped(sizes, element))
    check_assembly(str(call), asm, constraints, parts, results, pack)
    return TupleType(tuple(results)) if isinstance(dtype, tuple) else results[0]


def _assemble(
    emit: Emitter, result: Type, asm: str, constraints: str, args: Operand, dtype: Any, pure: bool, pack: int
) -> Built:
    parts = split_operand(args) if components(args.type) is not None else [args]
    sizes = common_shape("", *(part.type for part in parts))
    values = [emit.spread(emit.runtime(part), sizes) for part in parts]
    op = emit.add(tt.InlineAsm(values, asm, constraints, packed_type(result), is_pure=pure, pack=pack))
    return emit.unpack(op, result)


def _fixed(type_: Type, _: Typing) -> Type:
    """The type of a call without arguments."""
    return type_


RULES = {
    "program_id": Rule(_grid, as_given(tt.GetProgramId)),
    "num_programs": Rule(_grid, as_given(tt.GetNumPrograms)),
    "smid": Rule(partial(_fixed, i32), as_given(tt.SmId)),
    "globaltimer": Rule(partial(_fixed, i64), as_given(tt.GlobalTimer)),
    "range": Rule(_range),
    "static_range": Rule(_static_range),
    **{name: Rule(_hinted, partial(_hint, cls)) for name, cls in _HINTS.items()},
    "assume": Rule(_assumed, _assume),
    "static_assert": Rule(_asserted),
    "static_print": Rule(_printed),
    "device_print": Rule(_printing, device_print),
    "device_assert": Rule(_checked, _check),
    "gdc_wait": Rule(partial(_fixed, NONE), as_given(tt.GridDependencyWait)),
    "gdc_launch_dependents": Rule(partial(_fixed, NONE), as_given(tt.GridDependencyLaunch)),
    "debug_barrier": Rule(partial(_fixed, NONE), as_given(tt.Barrier)),
    "map_elementwise": Rule(_mapped, _map),
    "inline_asm_elementwise": Rule(_assembled, _assemble),
}
