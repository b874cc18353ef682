"""Programs and tensors: their making and shaping, dot, reductions and scans, hints, prints and assertions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ziggurat.backend.mlir.arithmetic import cast, compare
from ziggurat.backend.mlir.emitter import (
    Attributes,
    Emitter,
    Names,
    emits,
    leaves,
    mlir_type,
    mlir_types,
    quoted,
    result_list,
)
from ziggurat.codemodel.dialects import cf, tt
from ziggurat.codemodel.dialects.tt import InputPrecision
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import ScalarType, TensorType, Type, element_of, i1, i32, scalar_element, with_element


@emits(tt.GetProgramId, tt.GetNumPrograms)
def grid(e: Emitter, op: tt.Grid) -> Names:
    return e.line(f"{op.NAME} {'xyz'[op.axis]}", " : i32", 1)


@emits(tt.SmId, tt.GlobalTimer)
def special_register(e: Emitter, op: tt.SmId | tt.GlobalTimer) -> Names:
    """Inline assembly, as in Triton's own library."""
    wide = isinstance(op, tt.GlobalTimer)
    text = "mov.u64 $0, %globaltimer;" if wide else "mov.u32 $0, %smid;"
    return _assembly(e, text, "=l" if wide else "=r", "", mlir_types(op.result.type), pack=1, pure=not wide)


@emits(tt.GridDependencyWait, tt.GridDependencyLaunch)
def grid_dependency(e: Emitter, op: tt.GridDependencyWait | tt.GridDependencyLaunch) -> Names:
    """Inline assembly, which every release of Triton has. It must give a result, which is not used."""
    action = "wait" if isinstance(op, tt.GridDependencyWait) else "launch_dependents"
    text = f"griddepcontrol.{action}; // dummy $0"
    _assembly(e, text, "=r", "", ("i32",), pack=1, pure=False)
    return ()


def _assembly(
    e: Emitter, asm: str, constraints: str, operands: str, results: Sequence[str], *, pack: int, pure: bool
) -> Names:
    attributes: Attributes = {
        "constraints": quoted(constraints),
        "packed_element": f"{pack} : i32",
        "pure": _flag(pure),
    }
    after = f"{operands} -> {', '.join(results)}"
    return e.line(f"tt.elementwise_inline_asm {quoted(asm)}", after, len(results), attributes)


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _numbers(values: Sequence[int]) -> str:
    return f"array<i32: {', '.join(map(str, values))}>" if values else "array<i32>"


def _shaping(e: Emitter, op: str, name: str, source: Type, target: Type, attributes: Attributes | None = None) -> str:
    return e.value(f"{op} {name}", f" : {mlir_type(source)} -> {mlir_type(target)}", attributes)


# The types that follow an op, and the attributes that MLIR has too.
_PLAIN: dict[type[Op], tuple[str, tuple[str, ...]]] = {
    tt.MakeRange: ("{r}", ("end", "start")),
    tt.Splat: ("{0} -> {r}", ()),
    tt.Broadcast: ("{0} -> {r}", ()),
    tt.ExpandDims: ("{0} -> {r}", ("axis",)),
    tt.Trans: ("{0} -> {r}", ("order",)),
}


@emits(*_PLAIN)
def plain(e: Emitter, op: Op) -> Names:
    types, names = _PLAIN[type(op)]
    attributes: Attributes = {}
    for name in names:
        value: Any = op.attributes[name]
        attributes[name] = _numbers(value) if name == "order" else f"{value} : i32"
    return e.plain(op, types, attributes)


@emits(tt.Reshape)
def reshape(e: Emitter, op: tt.Reshape) -> Names:
    name = e.name(op.value) + (" allow_reorder" if op.allow_reorder else "")
    return (_shaping(e, op.NAME, name, op.value.type, op.type),)


def _tensor(type_: Type, shape: Sequence[int]) -> TensorType:
    element: Any = element_of(type_)
    return TensorType(tuple(shape), element)


def _join(e: Emitter, lhs: str, rhs: str, type_: TensorType) -> tuple[str, TensorType]:
    joined = _tensor(type_, (*type_.shape, 2))
    return e.value(f"tt.join {lhs}, {rhs}", f" : {mlir_type(type_)} -> {mlir_type(joined)}"), joined


@emits(tt.Join)
def join(e: Emitter, op: tt.Join) -> Names:
    """Triton joins tensors only, so scalars become tensors of one element first."""
    lhs, rhs, type_ = e.name(op.lhs), e.name(op.rhs), op.lhs.type
    if isinstance(type_, TensorType):
        return (_join(e, lhs, rhs, type_)[0],)
    one = _tensor(type_, (1,))
    lhs, rhs = (_shaping(e, "tt.splat", scalar, type_, one) for scalar in (lhs, rhs))
    name, joined = _join(e, lhs, rhs, one)
    return (_shaping(e, "tt.reshape", name, joined, op.result.type),)


@emits(tt.Split)
def split(e: Emitter, op: tt.Split) -> Names:
    """Triton splits into tensors only, so a tensor of two elements becomes two scalars by way of tensors of one."""
    name, source = e.name(op.value), op.value.type
    assert isinstance(source, TensorType)
    rank = source.rank
    if rank == 1:
        row = _tensor(source, (1, 2))
        name, source = _shaping(e, "tt.reshape", name, source, row), row
    half = _tensor(source, source.shape[:-1])
    halves = e.line(f"tt.split {name}", f" : {mlir_type(source)} -> {mlir_type(half)}", 2)
    if rank > 1:
        return halves
    return tuple(e.value(f"tt.unsplat {part}", f" : {mlir_type(half)}") for part in halves)


@emits(tt.Cat)
def cat(e: Emitter, op: tt.Cat) -> Names:
    """A join with the new axis moved to the front: Triton's own `tt.cat` may reorder the elements."""
    type_ = op.lhs.type
    assert isinstance(type_, TensorType)
    name, joined = _join(e, e.name(op.lhs), e.name(op.rhs), type_)
    front = _tensor(type_, (2, *type_.shape))
    order = (type_.rank, *range(type_.rank))
    name = _shaping(e, "tt.trans", name, joined, front, {"order": _numbers(order)})
    return (_shaping(e, "tt.reshape", name, front, op.result.type),)


@emits(tt.Gather)
def gather(e: Emitter, op: tt.Gather) -> Names:
    types = f"({mlir_type(op.source.type)}, {mlir_type(op.index.type)}) -> {mlir_type(op.result.type)}"
    return (e.value(f"{op.NAME} {e.name(op.source)}[{e.name(op.index)}]", f" : {types}", {"axis": f"{op.axis} : i32"}),)


@emits(tt.Histogram)
def histogram(e: Emitter, op: tt.Histogram) -> Names:
    """Triton counts by the low bits of an i32, so numbers out of range are masked off first."""
    name, type_ = e.name(op.value), op.value.type
    scalar = scalar_element(type_)
    mask = e.name(op.mask) if op.mask is not None else None
    end = scalar.limits[1] + 1
    if scalar.signed or op.bins < end:
        inside = compare(e, "ult", name, e.constant(min(op.bins, end), type_), type_)
        mask = inside if mask is None else e.compute("arith.andi", with_element(type_, i1), mask, inside)
    wide = with_element(type_, i32)
    if scalar.bits != 32:
        name = cast(e, "arith.trunci" if scalar.bits > 32 else "arith.extui", name, type_, wide)
    operands = name if mask is None else f"{name}, {mask}"
    return (e.value(f"{op.NAME} {operands}", f" : {mlir_type(wide)} -> {mlir_type(op.result.type)}"),)


# Computing.


@emits(tt.Dot)
def dot(e: Emitter, op: tt.Dot) -> Names:
    scalar = scalar_element(op.a.type)
    a, b, c = e.names((op.a, op.b, op.c))
    if scalar.is_int and not (scalar.signed and scalar_element(op.b.type).signed):
        return (_unsigned_dot(e, op, a, b, c),)
    return (_dot(e, op, a, b, c),)


def _dot(e: Emitter, op: tt.Dot, a: str, b: str, c: str) -> str:
    precision = op.input_precision
    if precision is InputPrecision.DEFAULT:
        precision = InputPrecision.TF32  # Triton's default on Hopper. It matters for f32 operands only.
    text = "" if precision is InputPrecision.IEEE else f", inputPrecision = {precision.value}"
    attributes: Attributes = {}
    if op.max_num_imprecise_acc:
        attributes["maxNumImpreciseAcc"] = f"{op.max_num_imprecise_acc} : i32"
    types = f" : {mlir_type(op.a.type)} * {mlir_type(op.b.type)} -> {mlir_type(op.result.type)}"
    return e.value(f"{op.NAME} {a}, {b}, {c}{text}", types, attributes)


def _unsigned_dot(e: Emitter, op: tt.Dot, a: str, b: str, c: str) -> str:
    """Dots of signed bytes, as Triton has no others: of the low seven bits of an unsigned operand, and of the top bits.

    (a + 128 a') (b + 128 b') = 128 (128 a' b' + a' b + a b') + a b.
    """

    def split(name: str, type_: Type) -> tuple[str, str | None]:
        if scalar_element(type_).signed:
            return name, None
        low = e.compute("arith.andi", type_, name, e.constant(127, type_))
        return low, e.compute("arith.shrui", type_, name, e.constant(7, type_))

    (low_a, high_a), (low_b, high_b) = split(a, op.a.type), split(b, op.b.type)
    type_ = op.result.type
    factor, high = e.constant(128, type_), e.constant(0, type_)
    if high_a is not None and high_b is not None:
        high = e.compute("arith.muli", type_, _dot(e, op, high_a, high_b, high), factor)
    if high_a is not None:
        high = _dot(e, op, high_a, low_b, high)
    if high_b is not None:
        high = _dot(e, op, low_a, high_b, high)
    scaled = e.compute("arith.muli", type_, high, factor)
    return _dot(e, op, low_a, low_b, e.compute("arith.addi", type_, scaled, c))


@emits(tt.Reduce, tt.Scan, tt.MapElementwise)
def combine(e: Emitter, op: tt.Combining | tt.MapElementwise) -> Names:
    name = "pack" if isinstance(op, tt.MapElementwise) else "axis"
    properties = f"{name} = {op.attributes[name]} : i32"
    if isinstance(op, tt.Scan):
        properties += f", reverse = {_flag(op.reverse)}"
    results = mlir_types(op.result.type)
    operands = ", ".join(e.names(op.values))
    names = e.line(f'"{op.NAME}"({operands}) <{{{properties}}}> ({{', results=len(results))
    e.lines[-1].place = ""
    e.region(op.bodies[0], label=True)
    types = ", ".join(mlir_type(value.type) for value in op.values)
    e.line("})", f" : ({types}) -> {result_list(results)}")
    return names


@emits(tt.ReduceReturn, tt.ScanReturn, tt.MapReturn)
def combined(e: Emitter, op: tt.ReduceReturn | tt.ScanReturn | tt.MapReturn) -> Names:
    return e.line(f"{op.NAME} {', '.join(e.names(op.values))}", f" : {listed(op.values)}")


def listed(values: Sequence[Value]) -> str:
    """The MLIR types of some values, with the components of Tuples in order."""
    return ", ".join(text for value in values for text in mlir_types(value.type))


@emits(tt.InlineAsm)
def inline_asm(e: Emitter, op: tt.InlineAsm) -> Names:
    operands = f" {', '.join(e.names(op.values))} : {listed(op.values)}" if op.values else ""
    return _assembly(e, op.asm, op.constraints, operands, mlir_types(op.type), pack=op.pack, pure=op.is_pure)


# Hints, prints and assertions.

_HINTS: dict[type[tt.Hint], str] = {
    tt.MultipleOf: "tt.divisibility",
    tt.MaxContiguous: "tt.contiguity",
    tt.MaxConstancy: "tt.constancy",
}


def power_of_two(value: int) -> int:
    """The largest power of two that divides a number, up to 2³⁰: Triton's form of divisibility."""
    return min(value & -value or 1 << 30, 1 << 30)


@emits(tt.MultipleOf, tt.MaxContiguous, tt.MaxConstancy)
def hint(e: Emitter, op: tt.Hint) -> Names:
    """An attribute of the op that gives the value, if that op is in the block of the hint and so runs with it."""
    (name,) = e.values[op.value]
    numbers = ", ".join(map(str, op.values))
    if isinstance(op, tt.MultipleOf):
        numbers = ", ".join(str(power_of_two(value)) for value in op.values)
    if not e.hint(name, _HINTS[type(op)], f"dense<[{numbers}]> : tensor<{len(op.values)}xi32>"):
        e.note(f"{op.NAME} {list(op.values)} of {name} is dropped: no op of this block gives the value")
    return (name,)


@emits(tt.Assume)
def assume(e: Emitter, op: tt.Assume) -> Names:
    return e.line(f"llvm.intr.assume {e.name(op.condition)}", " : i1")


@emits(tt.Print)
def device_print(e: Emitter, op: tt.Print) -> Names:
    """Triton prints the prefix as it is; its front end puts a blank before it and a colon after it."""
    values = [value for value in op.values if mlir_types(value.type)]
    prefix = f" {op.prefix.strip().removesuffix(':')}: " if values and op.prefix.strip() else op.prefix
    signs = [
        int(isinstance(element, ScalarType) and element.signed)
        for value in values
        for element in map(element_of, leaves(value.type))
    ]
    operands = f" : {', '.join(e.names(values))} : {listed(values)}" if values else ""
    attributes: Attributes = {"hex": _flag(op.hex), "isSigned": _numbers(signs)}
    return e.line(f"{op.NAME} {quoted(prefix)}", operands, attributes=attributes)


@emits(tt.Assert, cf.AssertOp)
def device_assert(e: Emitter, op: tt.Assert | cf.AssertOp) -> Names:
    """Triton's own op, for `cf.assert` too, which Triton cannot compile."""
    return e.line(f"tt.assert {e.name(op.condition)}, {quoted(op.message)}", f" : {mlir_type(op.condition.type)}")


@emits(tt.Barrier)
def barrier(e: Emitter, op: tt.Barrier) -> Names:
    return e.line("ttg.barrier all")


@emits(tt.Poison)
def poison(e: Emitter, op: tt.Poison) -> Names:
    return e.poison(op.type)
