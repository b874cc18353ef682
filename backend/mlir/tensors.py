"""Programs and tensors: their making and shaping, dot, reductions and scans, hints, prints and assertions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ziggurat.backend.mlir.arithmetic import cast_step, compare
from ziggurat.backend.mlir.emitter import (
    OP,
    Attributes,
    MlirEmitter,
    Names,
    emits,
    leaves,
    listed,
    mlir_type,
    mlir_types,
    own_type,
    quoted,
    result_list,
)
from ziggurat.backend.mlir.reader import DEFAULTS, HINTS, MlirReader, reads, signed
from ziggurat.backend.mlir.syntax import Statement
from ziggurat.codemodel.declare import OPS
from ziggurat.codemodel.dialects import cf, tt
from ziggurat.codemodel.dialects.tt import InputPrecision
from ziggurat.codemodel.op import Op, Value, expect, same_model
from ziggurat.codemodel.structured import packed
from ziggurat.codemodel.types import (
    ScalarType,
    TensorType,
    Type,
    element_of,
    f32,
    i1,
    i32,
    scalar_element,
    shape_of,
    value_element,
    with_element,
)


@emits(tt.GetProgramId, tt.GetNumPrograms)
def grid(e: MlirEmitter, op: tt.Grid) -> Names:
    return e.line(f"{op.NAME} {'xyz'[op.axis]}", " : i32", 1)


@emits(tt.SmId, tt.GlobalTimer)
def special_register(e: MlirEmitter, op: tt.SmId | tt.GlobalTimer) -> Names:
    """Inline assembly, as in Triton's own library."""
    wide = isinstance(op, tt.GlobalTimer)
    text = "mov.u64 $0, %globaltimer;" if wide else "mov.u32 $0, %smid;"
    names = _assembly(e, text, "=l" if wide else "=r", "", mlir_types(op.result.type), pack=1, pure=not wide)
    e.hint(names[0], OP, quoted(op.NAME))
    return names


@reads("tt.smid", "tt.globaltimer")
def read_special_register(r: MlirReader, s: Statement) -> Value:
    return r.add(tt.SmId() if s.attributes[OP] == "tt.smid" else tt.GlobalTimer())


_INSTRUCTIONS: dict[str, Callable[[], Op]] = {
    "griddepcontrol.wait; // dummy $0": tt.GridDependencyWait,
    "griddepcontrol.launch_dependents; // dummy $0": tt.GridDependencyLaunch,
    **{
        f"bar.sync 0; fence.acq_rel.{scope.value}; bar.sync 0; // dummy $0": partial(tt.Barrier, scope=scope)
        for scope in (tt.MemScope.GPU, tt.MemScope.SYSTEM)
    },
}


def _instruction(e: MlirEmitter, op: Op) -> Names:
    """Inline assembly, which every release of Triton has. It must give a result, which is not used."""
    (text,) = (text for text, make in _INSTRUCTIONS.items() if same_model(make(), op))
    _assembly(e, text, "=r", "", ("i32",), pack=1, pure=False)
    return ()


emits(tt.GridDependencyWait, tt.GridDependencyLaunch)(_instruction)


def _assembly(
    e: MlirEmitter, asm: str, constraints: str, operands: str, results: Sequence[str], *, pack: int, pure: bool
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


def _shaping(
    e: MlirEmitter, op: str, name: str, source: Type, target: Type, attributes: Attributes | None = None
) -> str:
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
def plain(e: MlirEmitter, op: Op) -> Names:
    types, names = _PLAIN[type(op)]
    attributes: Attributes = {}
    for name in names:
        value: Any = op.attributes[name]
        attributes[name] = _numbers(value) if name == "order" else f"{value} : i32"
    return e.plain(op, types, attributes)


@emits(tt.Reshape)
def reshape(e: MlirEmitter, op: tt.Reshape) -> Names:
    name = e.name(op.value) + (" allow_reorder" if op.allow_reorder else "")
    return (_shaping(e, op.NAME, name, op.value.type, op.type),)


def _tensor(type_: Type, shape: Sequence[int]) -> TensorType:
    element: Any = element_of(type_)
    return TensorType(tuple(shape), element)


def _join(e: MlirEmitter, lhs: str, rhs: str, type_: TensorType) -> tuple[str, TensorType]:
    join_type = _tensor(type_, (*type_.shape, 2))
    return e.value(f"tt.join {lhs}, {rhs}", f" : {mlir_type(type_)} -> {mlir_type(join_type)}"), join_type


@emits(tt.Join)
def join(e: MlirEmitter, op: tt.Join) -> Names:
    """Triton joins tensors only, so scalars become tensors of one element first."""
    lhs, rhs, type_ = e.name(op.lhs), e.name(op.rhs), op.lhs.type
    if isinstance(type_, TensorType):
        return (_join(e, lhs, rhs, type_)[0],)
    single = _tensor(type_, (1,))
    with e.steps():
        lhs, rhs = (_shaping(e, "tt.splat", scalar, type_, single) for scalar in (lhs, rhs))
    name, pair_type = _join(e, lhs, rhs, single)
    with e.steps():
        return (_shaping(e, "tt.reshape", name, pair_type, op.result.type),)


@emits(tt.Split)
def split(e: MlirEmitter, op: tt.Split) -> Names:
    """Triton splits into tensors only, so a tensor of two elements becomes two scalars by way of tensors of one."""
    name, source = e.name(op.value), expect(op.value.type, TensorType)
    rank = source.rank
    if rank == 1:
        row = _tensor(source, (1, 2))
        with e.steps():
            name, source = _shaping(e, "tt.reshape", name, source, row), row
    half = _tensor(source, source.shape[:-1])
    halves = e.line(f"tt.split {name}", f" : {mlir_type(source)} -> {mlir_type(half)}", 2)
    if rank > 1:
        return halves
    return tuple(_only_element(e, part, half) for part in halves)


def _only_element(e: MlirEmitter, name: str, type_: TensorType) -> str:
    if e.has("unsplat"):
        with e.steps():
            return e.value(f"tt.unsplat {name}", f" : {mlir_type(type_)}")
    element = mlir_type(type_.element)
    scalar = e.value(f'"tt.reduce"({name}) <{{axis = 0 : i32}}> ({{')
    first, second = e.fresh("%arg"), e.fresh("%arg")
    e.label("^bb0", [(first, element), (second, element)])
    with e.nested():
        e.line(f"tt.reduce.return {first} : {element}")
    e.line("})", f" : ({mlir_type(type_)}) -> {element}")
    return scalar


@emits(tt.Cat)
def cat(e: MlirEmitter, op: tt.Cat) -> Names:
    """A join with the new axis moved to the front: Triton's own `tt.cat` may reorder the elements."""
    type_ = expect(op.lhs.type, TensorType)
    name, pair = _join(e, e.name(op.lhs), e.name(op.rhs), type_)
    e.hint(name, OP, quoted(op.NAME))
    front = _tensor(type_, (2, *type_.shape))
    order = (type_.rank, *range(type_.rank))
    with e.steps():
        name = _shaping(e, "tt.trans", name, pair, front, {"order": _numbers(order)})
        return (_shaping(e, "tt.reshape", name, front, op.result.type),)


@emits(tt.Gather)
def gather(e: MlirEmitter, op: tt.Gather) -> Names:
    types = f"({mlir_type(op.source.type)}, {mlir_type(op.index.type)}) -> {mlir_type(op.result.type)}"
    return (e.value(f"{op.NAME} {e.name(op.source)}[{e.name(op.index)}]", f" : {types}", {"axis": f"{op.axis} : i32"}),)


@emits(tt.Histogram)
def histogram(e: MlirEmitter, op: tt.Histogram) -> Names:
    """Triton counts by the low bits of an i32, so numbers out of range are masked off first."""
    name, type_ = e.name(op.value), op.value.type
    scalar = scalar_element(type_)
    mask = e.name(op.mask) if op.mask is not None else None
    end = scalar.limits[1] + 1
    if scalar.signed or op.bins < end:
        with e.steps():
            inside = compare(e, "ult", name, e.constant(min(op.bins, end), type_), type_)
            mask = inside if mask is None else e.compute("arith.andi", with_element(type_, i1), mask, inside)
    wide = with_element(type_, i32)
    if scalar.bits != 32:
        name = cast_step(e, "arith.trunci" if scalar.bits > 32 else "arith.extui", name, type_, wide)
    operands = name if mask is None else f"{name}, {mask}"
    return (e.value(f"{op.NAME} {operands}", f" : {mlir_type(wide)} -> {mlir_type(op.result.type)}"),)


# Computing.


@emits(tt.Dot)
def dot(e: MlirEmitter, op: tt.Dot) -> Names:
    scalar = scalar_element(op.a.type)
    a, b, c = e.names((op.a, op.b, op.c))
    if scalar.is_int and not (scalar.signed and scalar_element(op.b.type).signed):
        return (_unsigned_dot(e, op, a, b, c),)
    return (_dot(e, op, a, b, c),)


_DEFAULT = "zg.default_precision"  # An attribute of ours on a dot of f32.
_DIGITS = "zg.digits"  # And on a print that is not in C's form.
_WHOLE = "zg.line"  # And on a print of a whole line; Triton prints a line for each value, with the format before it.


def _dot(e: MlirEmitter, op: tt.Dot, a: str, b: str, c: str) -> str:
    precision = op.input_precision
    if precision is InputPrecision.DEFAULT:
        precision = InputPrecision.TF32  # Triton's default on Hopper. It matters for f32 operands only.
    if precision in (InputPrecision.BF16X3, InputPrecision.BF16X6):
        e.require("bf16 parts", f"input precision {precision.value}")
    text = "" if precision is InputPrecision.IEEE else f", inputPrecision = {precision.value}"
    attributes: Attributes = {}
    if op.input_precision is InputPrecision.DEFAULT and scalar_element(op.a.type) == f32:
        attributes[_DEFAULT] = None
    if op.max_num_imprecise_acc:
        attributes["maxNumImpreciseAcc"] = f"{op.max_num_imprecise_acc} : i32"
    types = f" : {mlir_type(op.a.type)} * {mlir_type(op.b.type)} -> {mlir_type(op.result.type)}"
    return e.value(f"{op.NAME} {a}, {b}, {c}{text}", types, attributes)


def _unsigned_dot(e: MlirEmitter, op: tt.Dot, a: str, b: str, c: str) -> str:
    """Dots of signed bytes, as Triton has no others: of the low seven bits of an unsigned operand, and of the top bits.

    (a + 128 a') (b + 128 b') = 128 (128 a' b' + a' b + a b') + a b.
    """

    def split(name: str, type_: Type) -> tuple[str, str | None]:
        if scalar_element(type_).signed:
            return name, None
        low = e.compute("arith.andi", type_, name, e.constant(127, type_))
        return low, e.compute("arith.shrui", type_, name, e.constant(7, type_))

    with e.steps():
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
        c = e.compute("arith.addi", type_, c, scaled)
    return _dot(e, op, low_a, low_b, c)


@emits(tt.Reduce, tt.Scan, tt.MapElementwise)
def combine(e: MlirEmitter, op: tt.Combining | tt.MapElementwise) -> Names:
    name = "axis"
    if isinstance(op, tt.MapElementwise):
        e.require("map", op.NAME)
        name = "pack"
    properties = f"{name} = {op.attributes[name]} : i32"
    if isinstance(op, tt.Scan):
        properties += f", reverse = {_flag(op.reverse)}"
    results = mlir_types(op.result.type)
    operands = ", ".join(e.names(op.values))
    names = e.line(f'"{op.NAME}"({operands}) <{{{properties}}}> ({{', results=len(results))
    e.lines[-1].place = ""
    e.region(op.bodies[0], label=True)
    types = ", ".join(mlir_type(value.type) for value in op.values)
    attributes = own_type(op.result.type) if isinstance(op, tt.MapElementwise) else {}
    e.line("})", f" : ({types}) -> {result_list(results)}", attributes=attributes)
    return names


@emits(tt.ReduceReturn, tt.ScanReturn, tt.MapReturn)
def combined(e: MlirEmitter, op: tt.ReduceReturn | tt.ScanReturn | tt.MapReturn) -> Names:
    return e.line(f"{op.NAME} {', '.join(e.names(op.values))}", f" : {listed(op.values)}")


@emits(tt.InlineAsm)
def inline_asm(e: MlirEmitter, op: tt.InlineAsm) -> Names:
    operands = f" {', '.join(e.names(op.values))} : {listed(op.values)}" if op.values else ""
    return _assembly(e, op.asm, op.constraints, operands, mlir_types(op.type), pack=op.pack, pure=op.is_pure)


# Hints, prints and assertions.

_HINTS = {cls: key for key, cls in HINTS.items()}


def power_of_two(value: int) -> int:
    """The largest power of two that divides a number, up to 2³⁰: Triton's form of divisibility."""
    return min(value & -value or 1 << 30, 1 << 30)


@emits(tt.MultipleOf, tt.MaxContiguous, tt.MaxConstancy)
def hint(e: MlirEmitter, op: tt.Hint) -> Names:
    """An attribute of the op that gives the value, if that op is in the block of the hint and so runs with it."""
    (name,) = e.values[op.value]
    numbers = ", ".join(map(str, op.values))
    if isinstance(op, tt.MultipleOf):
        numbers = ", ".join(str(power_of_two(value)) for value in op.values)
    if not e.hint(name, _HINTS[type(op)], f"dense<[{numbers}]> : tensor<{len(op.values)}xi32>"):
        e.note(f"{op.NAME} {list(op.values)} of {name} is dropped: no op of this block gives the value")
    return (name,)


@emits(tt.Assume)
def assume(e: MlirEmitter, op: tt.Assume) -> Names:
    return e.line(f"llvm.intr.assume {e.name(op.condition)}", " : i1")


@emits(tt.Print)
def device_print(e: MlirEmitter, op: tt.Print) -> Names:
    """Triton prints the prefix as it is; its front end puts a blank before it and a colon after it."""
    values = [value for value in op.values if mlir_types(value.type)]
    is_label = values and op.prefix.strip() and not op.whole
    prefix = f" {op.prefix.strip().removesuffix(':')}: " if is_label else op.prefix
    signs = [
        int(isinstance(element, ScalarType) and element.signed)
        for value in values
        for element in map(element_of, leaves(value.type))
    ]
    operands = f" : {', '.join(e.names(values))} : {listed(values)}" if values else ""
    attributes: Attributes = {"hex": _flag(op.hex), "isSigned": _numbers(signs)}
    if not op.c_form:
        attributes[_DIGITS] = None
    attributes |= {_WHOLE: None} if op.whole else {}
    return e.line(f"{op.NAME} {quoted(prefix)}", operands, attributes=attributes)


@emits(tt.Assert, cf.AssertOp)
def device_assert(e: MlirEmitter, op: tt.Assert | cf.AssertOp) -> Names:
    """Triton's own op, for `cf.assert` too, which Triton cannot compile."""
    return e.line(f"tt.assert {e.name(op.condition)}, {quoted(op.message)}", f" : {mlir_type(op.condition.type)}")


@emits(tt.Barrier)
def barrier(e: MlirEmitter, op: tt.Barrier) -> Names:
    if op.scope is not tt.MemScope.CTA:
        return _instruction(e, op)
    return e.line("ttg.barrier all" if e.has("ttg.barrier") else "gpu.barrier")


@emits(tt.Poison)
def poison(e: MlirEmitter, op: tt.Poison) -> Names:
    return e.poison(op.type)


# Reading.


@reads("tt.get_program_id", "tt.get_num_programs")
def read_grid(r: MlirReader, s: Statement) -> Value:
    cls = tt.GetProgramId if s.name == "tt.get_program_id" else tt.GetNumPrograms
    return r.add(cls(r.choice(s, "axis", {"x": 0, "y": 1, "z": 2}, word=0)))


@DEFAULTS.of(tt.MakeRange, tt.ExpandDims, tt.Split, tt.Gather, tt.AddPtr, tt.PtrToInt)
def same_fields(r: MlirReader, s: Statement) -> Value:
    """An op that has the operands of MLIR's, and its attributes, which are integers."""
    cls: Any = OPS[s.name]
    operands = r.operands(s, cls.SPEC.required)
    return r.add(cls(*operands, **{field.name: r.integer(s, field.name) for field in cls.SPEC.attributes}))


@reads("tt.splat", "tt.broadcast")
def read_splat(r: MlirReader, s: Statement) -> Value:
    (operand,), (type_,) = r.operands(s, 1), s.result_types
    return r.add((tt.Splat if s.name == "tt.splat" else tt.Broadcast)(operand, _of(operand, type_)))


def _of(value: Value, type_: Type) -> Type:
    """A tensor type with the elements of a value: the type in the text does not know their sign."""
    return with_element(type_, value_element(value.type))


@reads("tt.unsplat")
def read_unsplat(r: MlirReader, s: Statement) -> Value:
    """The one element of a tensor: the last that is left of a reduction that gives its first operand."""
    (operand,) = r.operands(s, 1)
    type_ = operand.type
    if not isinstance(type_, TensorType):
        r.fail(f"tt.unsplat takes a tensor; got {type_}")
    flat = operand if type_.rank == 1 else r.add(tt.Reshape(operand, TensorType((type_.numel,), type_.element)))
    inner = r.b.nested((type_.element, type_.element), type_.element)
    r.add_to(inner, tt.ReduceReturn([inner.parameters[0]]))
    return r.add(tt.Reduce([flat], 0, inner.finish()))


@reads("tt.reshape")
def read_reshape(r: MlirReader, s: Statement) -> Value:
    (operand,), (type_,) = r.operands(s, 1), s.result_types
    reorder = "allow_reorder" in s.words or "allow_reorder" in s.attributes
    return r.add(tt.Reshape(operand, _of(operand, type_), allow_reorder=reorder))


@reads("tt.trans")
def read_trans(r: MlirReader, s: Statement) -> Value:
    (operand,) = r.operands(s, 1)
    return r.add(tt.Trans(operand, r.numbers(s, "order")))


@reads("tt.join", "tt.cat")
def read_join(r: MlirReader, s: Statement) -> Value:
    joins = s.attributes.get(OP, s.name) == "tt.join"
    return r.add((tt.Join if joins else tt.Cat)(*r.alike(r.operands(s, 2))))


@reads("tt.histogram")
def read_histogram(r: MlirReader, s: Statement) -> Value:
    (type_,) = s.result_types
    value, *mask = r.operands(s, 1, 2)
    if mask and element_of(mask[0].type) != i1:  # A step that compares the numbers themselves: there is no mask.
        mask = []
    return r.add(tt.Histogram(value, *mask, bins=shape_of(type_)[0]))


# In Triton's order, by which the generic form counts them.
_PRECISIONS = {name: InputPrecision(name) for name in ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")}


@reads("tt.dot")
def read_dot(r: MlirReader, s: Statement) -> Value:
    a, b, c = r.operands(s, 3)
    if not r.in_steps(s):  # Triton multiplies bytes as signed.
        a, b = (r.as_type(value, signed(value.type)) for value in (a, b))
    precision = r.choice(s, "inputPrecision", _PRECISIONS, default=InputPrecision.IEEE)
    if _DEFAULT in s.attributes or (precision is InputPrecision.TF32 and scalar_element(a.type) != f32):
        precision = InputPrecision.DEFAULT
    return r.add(
        tt.Dot(
            a, b, c, input_precision=precision, max_num_imprecise_acc=r.integer(s, "maxNumImpreciseAcc", 0)
        )
    )  # fmt: skip


_FORMATS = {name: name for name in ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1", "bf16", "fp16")}  # Of microscaling.


@reads("tt.dot_scaled")
def read_scaled_dot(r: MlirReader, s: Statement) -> Value:
    """A call of the language's library, which has no op for it."""
    a_count, b_count, c_count, *scales = r.numbers(s, "operandSegmentSizes")
    if (a_count, b_count, c_count) != (1, 1, 1):
        r.unsupported("a dot without an operand")
    a, b, c, *values = (r.as_type(value, signed(value.type, False)) for value in r.operands(s))
    scale_a, scale_b = (values.pop(0) if count else None for count in scales)
    formats = [r.choice(s, key, _FORMATS) for key in ("a_elem_type", "b_elem_type")]
    packs = [bool(s.attributes.get(key, True)) for key in ("lhs_k_pack", "rhs_k_pack")]
    fast = bool(s.attributes.get("fastMath", False))
    value = r.library("dot_scaled", [a, scale_a, formats[0], b, scale_b, formats[1], c, fast, *packs, None])
    assert value is not None
    return value


@reads("tt.map_elementwise")
def read_map(r: MlirReader, s: Statement) -> Value:
    values, pack = r.operands(s), r.integer(s, "pack", 1)
    yields = [element_of(type_) for type_ in s.result_types for _ in range(pack)]
    inner = r.b.nested([element_of(value.type) for value in values for _ in range(pack)], packed(yields))
    r.region(s.regions[0], inner, None, yields=yields)
    return r.add(tt.MapElementwise(values, inner.finish(), pack=pack))


@reads("tt.reduce", "tt.scan")
def read_combine(r: MlirReader, s: Statement) -> Value:
    values = r.operands(s)
    elements = [element_of(value.type) for value in values]
    inner = r.b.nested([*elements, *elements], packed(elements))
    r.region(s.regions[0], inner, None, yields=elements)
    body, axis = inner.finish(), r.integer(s, "axis")
    if s.name == "tt.reduce":
        return r.add(tt.Reduce(values, axis, body))
    return r.add(tt.Scan(values, axis, body, reverse=bool(s.attributes.get("reverse", False))))


_RETURNS = {cls.NAME: cls for cls in (tt.ReduceReturn, tt.ScanReturn, tt.MapReturn)}


@reads(*_RETURNS)
def read_combined(r: MlirReader, s: Statement) -> None:
    r.add(_RETURNS[s.name](r.as_types(r.operands(s), r.yields)))


@reads("tt.elementwise_inline_asm")
def read_inline_asm(r: MlirReader, s: Statement) -> Value | None:
    asm = s.attributes["asm_string"] if "asm_string" in s.attributes else s.strings[0]
    if asm in _INSTRUCTIONS:
        r.add(_INSTRUCTIONS[asm]())
        s.results.clear()  # It has no meaning.
        return None
    return r.add(
        tt.InlineAsm(
            r.operands(s), asm, s.attributes.get("constraints", ""), packed(s.result_types),
            is_pure=bool(s.attributes.get("pure", False)), pack=r.integer(s, "packed_element", 1),
        )
    )  # fmt: skip


@reads("llvm.intr.assume")
def read_assume(r: MlirReader, s: Statement) -> None:
    r.add(tt.Assume(r.value(s.operands[0])))


@reads("tt.print")
def read_print(r: MlirReader, s: Statement) -> None:
    """The prefix has a blank before it and a colon after it, as Triton's front end writes it; the form is Triton's."""
    values = r.operands(s)
    prefix = s.attributes["prefix"] if "prefix" in s.attributes else s.strings[0]
    is_line = _WHOLE in s.attributes
    if values and prefix.startswith(" ") and prefix.endswith(": ") and not is_line:
        prefix = prefix[1:-2]
    unsigned = [index for index, sign in enumerate(s.attributes.get("isSigned", ())) if not sign]
    for index in unsigned:
        if index < len(values):
            values[index] = r.as_type(values[index], signed(values[index].type, False))
    is_hex, c_form = bool(s.attributes.get("hex", False)), _DIGITS not in s.attributes
    r.add(tt.Print(values, prefix, hex=is_hex, c_form=c_form, whole=is_line))


@reads("tt.assert")
def read_assert(r: MlirReader, s: Statement) -> None:
    message = s.attributes["message"] if "message" in s.attributes else s.strings[0]
    r.add(tt.Assert(*r.operands(s, 1), message=message))


@reads("gpu.barrier", "ttg.barrier")
def read_barrier(r: MlirReader, s: Statement) -> None:
    r.add(tt.Barrier())
