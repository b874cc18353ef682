"""The forms of the ops of the Triton model in Python's source: operators, and calls of both languages."""

from __future__ import annotations

import itertools
import re
from typing import Any, cast

from ziggurat.codemodel.dialects import arith, core, debug, math, py, scf, tt
from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.printed import literals
from ziggurat.codemodel.types import (
    SCALARS,
    DescriptorType,
    PtrType,
    ScalarType,
    TupleType,
    component_types,
    element_of,
    i1,
    i32,
    scalar_element,
    shape_of,
    void,
)
from ziggurat.frontends.language.comparison import NAMED
from ziggurat.frontends.language.host import OPS, OPS_OF_FLOATS
from ziggurat.transforms.attribution.operators import CALLS, COMPARISONS
from ziggurat.transforms.calls.arithmetic import PREDICATES
from ziggurat.transforms.calls.memory import ATOMICS
from ziggurat.transforms.calls.programs import RANGE_OPTIONS
from ziggurat.transforms.lift.lift import SIGNED, VARIABLE, Lifter, constant_number, is_single, lifts, value_name
from ziggurat.transforms.mirror.flow_ops import SIMPLE

_VALUE = "\ud800"  # Stands for a value in a text, which holds no surrogates.

# The call that each op of elements is.
_CALLS: dict[type[Op], str] = {
    **{cls: name for name, classes in OPS.items() for cls in classes if cls is not None},
    **{cls: name for name, cls in OPS_OF_FLOATS.items()},
    tt.MulHiUI: "umulhi", math.Fma: "fma", arith.Select: "where", math.AbsF: "abs", math.AbsI: "abs",
    math.CtPop: "popc", math.CtLz: "clz", math.BitReverse: "brev",
}  # fmt: skip
_OPERATORS: dict[str, Any] = {name: cls for cls, name in CALLS.items()}
_COMPARISONS: dict[Any, Any] = {
    predicate: cls for cls, name in COMPARISONS.items() for predicate in PREDICATES[NAMED[name]]
}
# The types of the literals of Triton; and those of integers that are compared with one.
_OWN_TYPES = ("i32", "f32")
_COMPARED_TYPES = ("i32", "f32", "i64", "u32", "u64")
# The ops of i1 that calculate modulo 2.
_MODULO_2 = {"add": "xor", "sub": "xor", "mul": "and_"}
_ATOMIC_CALLS = {kind: call for call, (kinds, _) in ATOMICS.items() for kind in kinds}


# Elements.


@lifts(*_CALLS)
def elementwise(lifter: Lifter, op: Op) -> None:
    name, element = _CALLS[type(op)], scalar_or_pointer(op.operands[-1])
    if element == i1:
        name = _MODULO_2.get(name, name)
    if isinstance(op, arith.BinaryElementwise) and _inverted(lifter, op, name):
        return
    condition = [lifter.operand(op.condition)] if isinstance(op, arith.Select) else []
    is_narrow = lifter.is_triton and isinstance(element, ScalarType) and element.is_float and element.bits <= 16
    operator = _OPERATORS.get(name)
    is_typed = (operator is None and name != "where") or (is_narrow and name in ("div", "mod"))
    operands = [*condition, *lifter.operands(op.operands[len(condition) :], _OWN_TYPES if is_typed else None)]
    if is_narrow and name in ("div", "div_rn"):  # Triton's other divisions give f32.
        value = lifter.call("fdiv", *operands, ieee_rounding=name == "div_rn" or None)
    elif operator is None:
        value = lifter.call(name, *operands)
    else:
        value = lifter.add(operator(*operands))
    if isinstance(op, math.CtPop | math.CtLz) and element != i32:  # The calls count in i32.
        after = op.result.uses[0] if is_single(op.result) else None
        if isinstance(after, arith.Cast) and element_of(after.type) == i32 and after.parent is op.parent:
            lifter.implied.add(after)
            lifter.define(after.result, value)
            return
        value = lifter.call(".to", value, element)
    elif is_narrow and (name == "mod" or scalar_element(op.result.type).is_fp8):
        value = lifter.call(".to", value, element)  # Triton computes it in f32.
    lifter.define(op.result, value)


def scalar_or_pointer(value: Value) -> ScalarType | PtrType:
    element = element_of(value.type)
    assert isinstance(element, ScalarType | PtrType)
    return element


def _inverted(lifter: Lifter, op: arith.BinaryElementwise, name: str) -> bool:
    """Lift `0 - x` and `x ^ -1` as `-x` and `~x`."""
    if name == "sub" and constant_number(op.lhs) == 0 and isinstance(op, arith.SubI):
        value, operator = op.rhs, py.Neg
    elif name == "xor" and type(op) is arith.XOrI and constant_number(op.rhs) in (True, -1):
        is_whole = constant_number(op.rhs) == -1 or scalar_or_pointer(op.rhs) == i1
        value, operator = op.lhs, py.Invert
        if not is_whole:
            return False
    else:
        return False
    if constant_number(value) is not None or value.op in lifter.implied:
        return False
    lifter.define(op.result, lifter.add(operator(lifter.use(value))))
    return True


@lifts(arith.NegF)
def negative(lifter: Lifter, op: arith.NegF) -> None:
    lifter.define(op.result, lifter.add(py.Neg(lifter.use(op.operand))))


@lifts(arith.MaximumF, arith.MinimumF)
def extreme(lifter: Lifter, op: arith.FloatBinary) -> None:
    name = "maximum" if isinstance(op, arith.MaximumF) else "minimum"
    operands = lifter.operands(op.operands, _OWN_TYPES)
    always = lifter.add(py.Outer("tl.PropagateNan.ALL")) if lifter.is_triton else True
    lifter.define(op.result, lifter.call(name, *operands, propagate_nan=always))


@lifts(arith.CmpI, arith.CmpF)
def comparison(lifter: Lifter, op: arith.CmpI | arith.CmpF) -> None:
    left, right = lifter.operands(op.operands, _COMPARED_TYPES)
    lifter.define(op.result, lifter.add(_COMPARISONS[op.predicate](left, right)))


@lifts(math.Directed)
def directed(lifter: Lifter, op: math.Directed) -> None:
    names = (op.operation.value, op.direction.value)
    operands = lifter.operands(op.values, _OWN_TYPES)
    if lifter.is_triton:
        lifter.define(op.result, lifter.call(f"libdevice.{'_'.join(names)}", *operands))
    else:
        lifter.define(op.result, lifter.call("directed", *names, *operands))


@lifts(math.Approximate)
def approximate(lifter: Lifter, op: math.Approximate) -> None:
    value = lifter.use(op.operand)
    name = op.function.value
    if lifter.is_triton:
        lifter.define(op.result, lifter.call(f"libdevice.fast_{name}f", value))
    else:
        lifter.define(op.result, lifter.call("approximate", name, value))


# Conversions. The call takes the signs of the numbers from their types.


@lifts(arith.ExtF, arith.TruncF, arith.TruncI, arith.FPToSI, arith.FPToUI, *SIGNED)
def conversion(lifter: Lifter, op: arith.Cast) -> None:
    source, target = scalar_element(op.operand.type), scalar_element(op.type)
    value = lifter.use(op.operand)
    signed = SIGNED.get(type(op), source.signed)
    if target == i1 or (source == i1 and signed):
        raise TargetError(f"'{op.NAME}' of {source} to {target} has no form in Python's source", op.location)
    if source.is_int and source != i1 and source.signed != signed:
        value = lifter.call(".to", value, _of_sign(source, signed), bitcast=True)
    by_op = isinstance(op, arith.FPToSI) if isinstance(op, arith.FPToSI | arith.FPToUI) else target.signed
    rounding = op.rounding if isinstance(op, arith.TruncF) else arith.Rounding.NEAREST
    mode = "rtz" if rounding is arith.Rounding.ZERO else None
    value = lifter.call(".to", value, _of_sign(target, by_op), fp_downcast_rounding=mode)
    if by_op != target.signed:
        value = lifter.call(".to", value, target, bitcast=True)
    lifter.define(op.result, value)


def _of_sign(scalar: ScalarType, signed: bool) -> ScalarType:
    return scalar if scalar.is_float else SCALARS[f"{'i' if signed else 'u'}{scalar.bits}"]


@lifts(arith.Bitcast)
def bitcast(lifter: Lifter, op: arith.Bitcast) -> None:
    lifter.define(op.result, lifter.call(".to", lifter.use(op.operand), element_of(op.type), bitcast=True))


@lifts(tt.Bitcast, tt.IntToPtr, tt.PtrToInt)
def pointer_cast(lifter: Lifter, op: Op) -> None:
    lifter.define(op.result, lifter.call("cast", lifter.use(op.operands[0]), element_of(op.result.type)))


# Programs.


@lifts(tt.GetProgramId, tt.GetNumPrograms)
def grid(lifter: Lifter, op: tt.Grid) -> None:
    name = "program_id" if isinstance(op, tt.GetProgramId) else "num_programs"
    lifter.define(op.result, lifter.call(name, op.axis))


_PLAIN: dict[type[Op], str] = {
    tt.SmId: "smid", tt.GlobalTimer: "globaltimer", tt.GridDependencyWait: "gdc_wait",
    tt.GridDependencyLaunch: "gdc_launch_dependents",
}  # fmt: skip


@lifts(*_PLAIN)
def plain(lifter: Lifter, op: Op) -> None:
    space = "tl.extra.cuda." if lifter.is_triton else ""
    lifter.define(op.result, lifter.call(f"{space}{_PLAIN[type(op)]}"))


@lifts(tt.Barrier)
def barrier(lifter: Lifter, op: tt.Barrier) -> None:
    if op.scope is tt.MemScope.CTA:
        lifter.call("debug_barrier")
    elif lifter.is_triton:
        raise TargetError(f"'{op.NAME}' of the scope {op.scope.value} has no call in Triton's Python", op.location)
    else:
        lifter.call("fence", op.scope.value)


@lifts(tt.Wait)
def wait(lifter: Lifter, op: tt.Wait) -> None:
    operands = [lifter.use(op.ptr), lifter.operand(op.value)]
    limit = None if op.timeout is None else lifter.literal(op.timeout)
    options = {"sem": op.sem.value, "scope": op.scope.value, "timeout_ns": limit}
    if not lifter.is_triton:
        compare = op.predicate.value if op.predicate.value in ("eq", "ne") else op.predicate.value[1:]
        lifter.define(op.result, lifter.call("wait", *operands, compare, **options))
    elif op.predicate is arith.IntPredicate.EQ:
        lifter.define(op.result, lifter.call("atomic_poll", *operands, **options))
    else:
        raise TargetError(f"'{op.NAME}' by {op.predicate.value} has no call in Triton's Python", op.location)


@lifts(tt.MultipleOf, tt.MaxContiguous, tt.MaxConstancy)
def hint(lifter: Lifter, op: tt.Hint) -> None:
    values = list(op.values) if shape_of(op.value.type) else op.values[0]
    lifter.define(op.result, lifter.call(op.NAME.removeprefix("tt."), lifter.use(op.value), values))


@lifts(tt.Assume)
def assume(lifter: Lifter, op: tt.Assume) -> None:
    lifter.call("assume", lifter.use(op.condition))


@lifts(tt.Assert)
def assertion(lifter: Lifter, op: tt.Assert) -> None:
    lifter.call("device_assert", lifter.use(op.condition), op.message)


@lifts(tt.Print)
def printed(lifter: Lifter, op: tt.Print) -> None:
    values = [lifter.use(value) for value in op.values]
    if not op.whole:
        lifter.call("device_print", op.prefix, *values, hex=op.hex or None)
        return
    *texts, last = literals(op.prefix)
    text = _VALUE.join([*texts, last.removesuffix("\n")])
    words = text.split(" ")
    is_spaced = all(word == _VALUE for word in words if _VALUE in word)  # `print` puts spaces between its arguments.
    pieces = words if is_spaced else [piece for piece in re.split(f"({_VALUE})", text) if piece]
    arguments: list[Value] = []
    for is_value, group in itertools.groupby(pieces, _VALUE.__eq__):
        parts = list(group)
        arguments += [values.pop(0) for _ in parts] if is_value else [lifter.constant(" ".join(parts))]
    # With an `end`, no print of Triton's Python is its `device_print`.
    options = {} if is_spaced else {"sep": ""}
    options |= {"end": "\n" if last.endswith("\n") else ""} if lifter.is_triton or not last.endswith("\n") else {}
    lifter.add(
        py.Invoke((*arguments, *map(lifter.constant, options.values())), "builtins.print", keywords=tuple(options))
    )


@lifts(tt.InlineAsm)
def assembly(lifter: Lifter, op: tt.InlineAsm) -> None:
    types = component_types(op.type)
    dtypes: Any = [element_of(type_) for type_ in types]
    dtypes = dtypes if isinstance(op.type, TupleType) else dtypes[0]
    values = [lifter.use(value) for value in op.values]
    value = lifter.call("inline_asm_elementwise", op.asm, op.constraints, values, dtypes, op.is_pure, op.pack)
    lifter.components(op.result, value, len(types))


@lifts(debug.Stop)
def stop(lifter: Lifter, op: debug.Stop) -> None:
    """A debugger's op is no part of what the kernel computes."""


# Memory.


@lifts(tt.AddPtr)
def moved(lifter: Lifter, op: tt.AddPtr) -> None:
    pointer = lifter.operand(op.ptr)
    is_literal = constant_number(op.offset) is not None and scalar_or_pointer(op.offset) == i32
    spreads = op.offset.op in lifter.implied
    offset = lifter.operand(op.offset) if is_literal or spreads else lifter.use(op.offset)
    lifter.define(op.result, lifter.add(py.Add(pointer, offset)))


def _named(value: Any, default: Any, prefix: str = "") -> str | None:
    return None if value is default else f"{prefix}{value.value}"


def _mask(lifter: Lifter, mask: Value | None) -> Value | None:
    return None if mask is None else lifter.operand(mask)


@lifts(tt.Load)
def load(lifter: Lifter, op: tt.Load) -> None:
    pointer, mask = lifter.use(op.ptr), _mask(lifter, op.mask)
    value = lifter.call(
        "load",
        pointer,
        mask=mask,
        other=_mask(lifter, op.other),
        cache_modifier=_named(op.cache, tt.CacheModifier.NONE, "."),
        eviction_policy=_named(op.eviction, tt.EvictionPolicy.NORMAL),
        volatile=op.volatile or None,
    )
    lifter.define(op.result, value)


@lifts(tt.Store)
def store(lifter: Lifter, op: tt.Store) -> None:
    pointer, value = lifter.use(op.ptr), lifter.operand(op.value)
    lifter.call(
        "store",
        pointer,
        value,
        mask=_mask(lifter, op.mask),
        cache_modifier=_named(op.cache, tt.CacheModifier.NONE, "."),
        eviction_policy=_named(op.eviction, tt.EvictionPolicy.NORMAL),
    )


@lifts(tt.AtomicRMW)
def atomic(lifter: Lifter, op: tt.AtomicRMW) -> None:
    pointer, value = lifter.use(op.ptr), lifter.operand(op.value)
    options = {"mask": _mask(lifter, op.mask), **_order(op)}
    lifter.define(op.result, lifter.call(_ATOMIC_CALLS[op.kind], pointer, value, **options))


@lifts(tt.AtomicCAS)
def exchange(lifter: Lifter, op: tt.AtomicCAS) -> None:
    operands = [lifter.use(op.ptr), lifter.operand(op.compare), lifter.operand(op.value)]
    lifter.define(op.result, lifter.call("atomic_cas", *operands, **_order(op)))


def _order(op: tt.AtomicRMW | tt.AtomicCAS) -> dict[str, str | None]:
    return {"sem": _named(op.sem, tt.MemSemantic.ACQ_REL), "scope": _named(op.scope, tt.MemScope.GPU)}


# Descriptors.


@lifts(tt.MakeTensorDescriptor)
def descriptor(lifter: Lifter, op: tt.MakeTensorDescriptor) -> None:
    base = lifter.use(op.base)
    shape = [lifter.literal(value) for value in op.shape]
    strides = [lifter.literal(value) for value in op.strides]
    padding = _named(op.padding, tt.Padding.ZERO)
    block = list(cast(DescriptorType, op.type).block)
    value = lifter.call("make_tensor_descriptor", base, shape, strides, block, padding_option=padding)
    lifter.define(op.result, value)


@lifts(tt.DescriptorPadding)
def either_padding(lifter: Lifter, op: tt.DescriptorPadding) -> None:
    """Where two paddings meet, the front end adds the op."""
    if constant_number(op.nan) is None:
        raise TargetError(f"'{op.NAME}' by a value has no form in Python's source", op.location)
    lifter.define(op.result, lifter.use(op.descriptor))


@lifts(tt.DescriptorSize, tt.DescriptorStride)
def descriptor_fact(lifter: Lifter, op: tt.DescriptorFact) -> None:
    name = "shape" if isinstance(op, tt.DescriptorSize) else "strides"
    fact = lifter.add(py.Attribute(lifter.use(op.descriptor), name))
    lifter.define(op.result, lifter.add(py.Subscript(fact, lifter.constant(op.axis))))


@lifts(tt.DescriptorLoad)
def block_load(lifter: Lifter, op: tt.DescriptorLoad) -> None:
    source = lifter.use(op.descriptor)
    lifter.define(op.result, lifter.call(".load", source, [lifter.literal(value) for value in op.offsets]))


@lifts(tt.DescriptorStore, tt.DescriptorReduce)
def block_store(lifter: Lifter, op: tt.DescriptorStore | tt.DescriptorReduce) -> None:
    name = ".store" if isinstance(op, tt.DescriptorStore) else f".{_ATOMIC_CALLS[op.kind]}"
    target, value = lifter.use(op.descriptor), lifter.use(op.value)
    lifter.call(name, target, [lifter.literal(offset) for offset in op.offsets], value)


@lifts(tt.DescriptorGather)
def rows_load(lifter: Lifter, op: tt.DescriptorGather) -> None:
    operands = [lifter.use(op.descriptor), lifter.use(op.rows), lifter.literal(op.column)]
    lifter.define(op.result, lifter.call(".gather", *operands))


@lifts(tt.DescriptorScatter)
def rows_store(lifter: Lifter, op: tt.DescriptorScatter) -> None:
    operands = [lifter.use(value) for value in (op.descriptor, op.value, op.rows)]
    lifter.call(".scatter", *operands, lifter.literal(op.column))


# Shapes.


@lifts(tt.MakeRange)
def arange(lifter: Lifter, op: tt.MakeRange) -> None:
    lifter.define(op.result, lifter.call("arange", op.start, op.end))


@lifts(tt.Splat, tt.Broadcast)
def broadcast(lifter: Lifter, op: tt.Splat | tt.Broadcast) -> None:
    lifter.define(op.result, lifter.call("broadcast", lifter.use(op.value), list(shape_of(op.type))))


@lifts(tt.ExpandDims)
def expand(lifter: Lifter, op: tt.ExpandDims) -> None:
    axes = [":"] * len(shape_of(op.value.type))
    axes.insert(op.axis, "None")
    value = lifter.use(op.value)
    lifter.define(op.result, lifter.add(py.Subscript(value, lifter.constant(tuple(axes)))))


@lifts(tt.Reshape)
def reshape(lifter: Lifter, op: tt.Reshape) -> None:
    reorder = True if op.allow_reorder and lifter.is_triton else None
    lifter.define(op.result, lifter.call("reshape", lifter.use(op.value), list(shape_of(op.type)), can_reorder=reorder))


@lifts(tt.Trans)
def transpose(lifter: Lifter, op: tt.Trans) -> None:
    lifter.define(op.result, lifter.call("permute", lifter.use(op.value), *op.order))


@lifts(tt.Join, tt.Cat)
def together(lifter: Lifter, op: tt.Join | tt.Cat) -> None:
    lhs, rhs = lifter.use(op.lhs), lifter.use(op.rhs)
    reorder = True if isinstance(op, tt.Cat) and lifter.is_triton else None
    lifter.define(op.result, lifter.call("join" if isinstance(op, tt.Join) else "cat", lhs, rhs, can_reorder=reorder))


@lifts(tt.Split)
def split(lifter: Lifter, op: tt.Split) -> None:
    lifter.components(op.result, lifter.call("split", lifter.use(op.value)), 2)


@lifts(tt.Gather)
def gather(lifter: Lifter, op: tt.Gather) -> None:
    lifter.define(op.result, lifter.call("gather", lifter.use(op.source), lifter.use(op.index), op.axis))


@lifts(tt.Histogram)
def histogram(lifter: Lifter, op: tt.Histogram) -> None:
    value = lifter.use(op.value)
    mask = None if op.mask is None else lifter.use(op.mask)
    lifter.define(op.result, lifter.call("histogram", value, op.bins, mask=mask))


# Matrices, reductions and functions.


@lifts(tt.Dot)
def dot(lifter: Lifter, op: tt.Dot) -> None:
    a, b = lifter.use(op.a), lifter.use(op.b)
    usual = tt.accumulators(scalar_or_pointer(op.a))[0]
    is_zero = constant_number(op.c) == 0 and element_of(op.c.type) == usual
    value = lifter.call(
        "dot",
        a,
        b,
        acc=None if is_zero else lifter.use(op.c),
        input_precision=_named(op.input_precision, tt.InputPrecision.DEFAULT),
        max_num_imprecise_acc=op.max_num_imprecise_acc or None,
        out_dtype=None if element_of(op.c.type) == usual else element_of(op.c.type),
    )
    lifter.define(op.result, value)


@lifts(tt.Reduce, tt.Scan)
def combining(lifter: Lifter, op: tt.Reduce | tt.Scan) -> None:
    function = core.FuncRef(lifter.program.function_of(op.combine), VARIABLE.value)
    values: Any = [lifter.use(value) for value in op.values]
    name = "reduce" if isinstance(op, tt.Reduce) else "associative_scan"
    reverse = True if isinstance(op, tt.Scan) and op.reverse else None
    tensors = lifter.argument(values if len(values) > 1 else values[0])
    axis = lifter.constant(op.axis)
    value = lifter.call(name, tensors, axis, lifter.add(function), reverse=reverse)
    lifter.components(op.result, value, len(values))


@lifts(tt.MapElementwise)
def mapped(lifter: Lifter, op: tt.MapElementwise) -> None:
    function = lifter.add(core.FuncRef(lifter.program.function_of(op.apply), VARIABLE.value))
    values = [lifter.use(value) for value in op.values]
    value = lifter.call("map_elementwise", function, *values, pack=op.pack if op.pack > 1 else None)
    lifter.components(op.result, value, len(op.returned()) // op.pack)


@lifts(tt.Call)
def call(lifter: Lifter, op: tt.Call) -> None:
    arguments = tuple([lifter.use(value) for value in op.arguments])
    value = lifter.add(core.FuncCall(arguments, lifter.program.names[op.callee], VARIABLE.value))
    lifter.components(op.result, value, len(op.type.components) if isinstance(op.type, TupleType) else 1)


@lifts(tt.Return, tt.ReduceReturn, tt.ScanReturn, tt.MapReturn)
def returned(lifter: Lifter, op: Op) -> None:
    values = [lifter.use(value) for value in op.operands]
    lifter.add(core.Return([lifter.argument(values)] if len(values) > 1 else values))


# Tuples.


@lifts(core.MakeTuple)
def make_tuple(lifter: Lifter, op: core.MakeTuple) -> None:
    lifter.parts[op.result] = [
        lifter.variables.get(value) or lifter.add(core.Var(lifter.use(value), name="value", type=VARIABLE))
        for value in op.components
    ]


@lifts(core.TupleLoad)
def component(lifter: Lifter, op: core.TupleLoad) -> None:
    variable = lifter.parts[op.tuple][op.index]
    if op.result in lifter.targets:
        lifter.define(op.result, lifter.add(core.VarLoad(variable)))
    else:
        lifter.variables[op.result] = variable


# Control flow.


@lifts(scf.Yield)
def yielded(lifter: Lifter, op: scf.Yield) -> None:
    lifter.store(lifter.outputs, op.values)
    lifter.add(core.Yield(()))


@lifts(scf.If)
def if_(lifter: Lifter, op: scf.If) -> bool | None:
    ends = [body.entry.terminator for body in op.bodies]
    if lifter.is_expression and not isinstance(op.result.type, TupleType) and op.result.type != void:
        condition = lifter.use(op.condition)
        values: list[tuple[Lifter, Value]] = []
        for body in op.bodies:
            inner = Lifter(lifter.builder.nested((), VARIABLE.value), lifter.program, lifter)
            inner.ops(body.entry.ops[:-1])
            values.append((inner, inner.literal(body.entry.terminator.operands[0])))
        if all(isinstance(each, SIMPLE) for inner, _ in values for each in inner.builder.block.ops):
            # The front end would compute both, and select. A conversion to the same type adds no op.
            first, value = values[0]
            values[0] = first, first.call(".to", value, element_of(op.result.type))
        for inner, value in values:
            inner.add(py.Yield([value]))
        parts = [inner.builder.finish() for inner, _ in values]
        lifter.define(op.result, lifter.add(py.CondExpression(condition, *parts)))
        return None
    count = len(next((end.operands for end in ends if isinstance(end, scf.Yield)), ()))
    results: list[Value] = []
    for index in range(count):
        inner = [end.operands[index] for end in ends if isinstance(end, scf.Yield)]
        name = next((name for name in map(value_name, inner) if name is not None), "value")
        results.append(lifter.add(core.Var(None, type=VARIABLE, name=name)))
    condition = lifter.use(op.condition)
    if _is_early_exit(op):
        then = lifter.builder.nested()
        then.add(core.Return(()))
        otherwise = lifter.builder.nested()
        otherwise.add(core.Yield(()))
        lifter.add(py.If(condition, then.finish(), otherwise.finish()))
        lifter.ops([*op.otherwise.entry.ops[:-1], *op.later()])
        return False
    lifter.add(py.If(condition, *(lifter.body(body, results) for body in op.bodies)))
    lifter.results(op.result, results)
    return None


def _is_early_exit(op: scf.If) -> bool:
    """Whether a kernel does no more where the condition holds."""
    after = op.later()
    is_last = len(after) == 1 and isinstance(after[0], tt.Return) and not after[0].operands
    ends = (op.then.entry.ops[0], op.otherwise.entry.terminator)
    return op.result.type == void and is_last and all(isinstance(end, scf.Yield) for end in ends)


def _begin(lifter: Lifter, op: scf.For | scf.While) -> list[Value]:
    """The variables that a loop carries, with their first values."""
    variables: list[Value] = []
    after = op.bodies[-1].entry.terminator
    for index, value in enumerate(op.initial):
        if value.op is not None and value.op.parent is op.parent and value in lifter.variables and _starts(value, op):
            variables.append(lifter.variables[value])
            continue
        name = value_name(after.operands[index]) or value_name(value) or "value"
        variables.append(lifter.add(core.Var(lifter.assigned(value), name=name, type=VARIABLE)))
    return variables


def _starts(value: Value, op: scf.For | scf.While) -> bool:
    return len(value.uses) == 1 and op.operands.count(value) == 1


@lifts(scf.For)
def for_(lifter: Lifter, op: scf.For) -> None:
    variables = _begin(lifter, op)
    head = Lifter(lifter.builder.nested((), VARIABLE.value), lifter.program, lifter)
    numbers = [constant_number(bound) for bound in (op.start, op.stop, op.step)]
    is_typed = None not in numbers and op.start.type != i32
    stop = [head.use(op.stop) if is_typed else head.literal(op.stop)]
    bounds = stop
    if numbers[0] != 0 or numbers[2] != 1:
        bounds = [head.literal(op.start), *bounds]
    if numbers[2] != 1:
        bounds.append(head.literal(op.step))
    options = {name: getattr(op, name) for name in RANGE_OPTIONS if getattr(op, name) not in (None, False)}
    head.add(py.Yield([head.call("range" if options else "builtins.range", *bounds, **options)]))
    lifter.add(py.For(head.builder.finish(), lifter.body(op.body, variables, 1)))
    lifter.results(op.result, variables)


@lifts(scf.While)
def while_(lifter: Lifter, op: scf.While) -> None:
    variables = _begin(lifter, op)
    head = Lifter(lifter.builder.nested((), VARIABLE.value), lifter.program, lifter)
    head.variables.update(zip(op.before.parameters, variables, strict=True))
    *ops, end = op.before.entry.ops
    assert isinstance(end, scf.Condition)
    head.is_expression = True
    head.ops(ops)
    condition = head.use(end.condition)
    if end.values != op.before.parameters:
        head.store(variables, end.values)
    head.add(py.Yield([condition]))
    lifter.add(py.While(head.builder.finish(), lifter.body(op.after, variables)))
    lifter.results(op.result, variables)
