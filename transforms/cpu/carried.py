"""Tensors that a loop moves by one number for all elements: carried as that number.

    %9 : tensor<x64, ptr<f32>> = scf.for … %8 …          %9 : i64 = scf.for … 0 …
        (%10 : i32, %11 : tensor<x64, ptr<f32>>)              (%10 : i32, %11 : i64)
            …                                                     %12 = tt.addptr %8 (tt.splat %11);
            %13 = tt.addptr %11 (tt.splat %4);                    …
            scf.yield %13;                                        scf.yield (arith.addi %11 %4);

So the addresses of an access in the loop are those of the first iteration and a scalar.
"""

from __future__ import annotations

from collections.abc import Sequence

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.op import BlockParameter, Op, Value
from ziggurat.codemodel.structured import packed
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import PtrType, ScalarType, TensorType, Type, element_of, i64, scalar_element
from ziggurat.transforms.analysis.queries import repacked, unpacked


def raise_carried(module: Op) -> Op:
    """The module with scalars instead of the tensors that loops only move."""
    return transform(module, _raised, pass_name="carried")


def uniform_of(value: Value) -> Value | None:
    """The scalar that every element of a tensor is, if it was made from one."""
    while isinstance(value.op, tt.Broadcast | tt.ExpandDims | tt.Reshape | tt.Hint):
        value = value.op.operands[0]
    return value.op.value if isinstance(value.op, tt.Splat) else None


def steps_of(value: Value, parameter: BlockParameter) -> list[Value] | None:
    """The uniform tensors that are added to a carried tensor in an iteration, if nothing else happens to it."""
    steps: list[Value] = []
    while value is not parameter:
        op = value.op
        if isinstance(op, tt.Hint):
            value = op.value
        elif isinstance(op, tt.AddPtr | arith.AddI):
            first, second = op.operands
            if isinstance(op, arith.AddI) and _is_uniform(first):
                first, second = second, first
            if not _is_uniform(second):
                return None
            steps.append(second)
            value = first
        else:
            return None
    return steps


def _is_uniform(value: Value) -> bool:
    constant = isinstance(value.op, arith.ConstantOp)
    return constant or uniform_of(value) is not None


def offset_type(type_: Type) -> ScalarType:
    """The type of the number by which a tensor is moved: for pointers, elements in i64."""
    element = element_of(type_)
    return i64 if isinstance(element, PtrType) else scalar_element(type_)


def _raised(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
    if not isinstance(op, scf.For) or not op.initial or len(op.body.blocks) != 1:
        return None
    initial_values: dict[int, list[Value]] = {}
    yielded = op.body.entry.terminator.operands
    for index, parameter in enumerate(op.body.parameters[1:]):
        if isinstance(parameter.type, TensorType):
            steps = steps_of(yielded[index], parameter)
            if steps is not None:
                initial_values[index] = steps
    if not initial_values:
        return None
    initial = list(operands[3:])
    for index in initial_values:
        initial[index] = builder.add(arith.ConstantOp(0, offset_type(initial[index].type)))
    types = [operands[0].type, *(value.type for value in initial)]
    inner = builder.inside(types, packed([value.type for value in initial]))
    for index, (old, new) in enumerate(zip(op.body.parameters, inner.parameters, strict=True)):
        inner.mapping.values[old] = new
        if index - 1 in initial_values:
            inner.mapping.values[old] = _moved(inner, operands[2 + index], new)
    inner.rewrite_ops(op.body.entry.ops[:-1])
    inner.location = op.location
    values = [
        _advanced(inner, inner.parameters[1 + index], [inner[step] for step in initial_values[index]])
        if index in initial_values
        else inner[value]
        for index, value in enumerate(yielded)
    ]
    inner.add(scf.Yield(values))
    loop = op.SPEC.make(
        [*operands[:3], *initial], (), dict(op.attributes), [inner.finish()], packed([v.type for v in initial])
    )
    result = builder.add(loop, op.location)
    results = unpacked(builder, result, len(initial))
    for index in initial_values:
        results[index] = _moved(builder, operands[3 + index], results[index])
    return repacked(builder, results)


def _moved(builder: Builder, tensor: Value, offset: Value) -> Value:
    """A tensor moved by a number."""
    type_ = tensor.type
    assert isinstance(type_, TensorType) and isinstance(offset.type, ScalarType)
    by = builder.add(tt.Splat(offset, TensorType(type_.shape, offset.type)))
    return builder.add(tt.AddPtr(tensor, by) if isinstance(type_.element, PtrType) else arith.AddI(tensor, by))


def _advanced(builder: Builder, offset: Value, steps: Sequence[Value]) -> Value:
    """The offset after an iteration."""
    for step in steps:
        number = uniform_of(step)
        if number is None:
            assert isinstance(step.op, arith.ConstantOp)
            number = builder.add(arith.ConstantOp(step.op.value, scalar_element(step.type)))
        offset = builder.add(arith.AddI(offset, widened(builder, number, offset.type)))
    return offset


def widened(builder: Builder, number: Value, type_: Type) -> Value:
    """An integer in a type at least as wide."""
    if number.type == type_:
        return number
    signed = scalar_element(number.type).signed
    return builder.add((arith.ExtSI if signed else arith.ExtUI)(number, type_))
