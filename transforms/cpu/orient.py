"""Matrices whose rows are not rows of memory: they are transposed, so that vectors lie along the neighbours.

    %9 : tensor<x64, x8, f32> = tt.load …;         %9 : tensor<x8, x64, f32> = tt.load …;       64 neighbours in memory
    %10 : tensor<x64, x8, f32> =                   %10 : tensor<x8, x64, f32> =
        arith.addf %8 %9;                 becomes      arith.addf %8 %9;
    %11 : tensor<x64, f32> =                       %11 : tensor<x64, f32> =
        tt.reduce %10 @axis=1 {…};                     tt.reduce %10 @axis=0 {…};

All matrices of a kernel are, or none, by most of the elements that it loads and stores; those of kernels with dots, or
other ops that renumber elements, stay. Then `turn` transposes what single accesses have of the other kind:

    %9 : tensor<x64, x8, f32> = tt.load %8;        %9 : tensor<x8, x64, f32> = tt.load %7;
                                     becomes       %10 : tensor<x64, x8, f32> = tt.trans %9 @order=[1, 0];

Results do not depend on either.
"""

from __future__ import annotations

import math

from ziggurat.codemodel.dialects import arith, core, scf, tt
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.op import Op, Value, expect
from ziggurat.codemodel.traits import Loop
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import TensorType, TupleType, Type, shape_of
from ziggurat.transforms.analysis.axis_info import analyse
from ziggurat.transforms.analysis.components import component_of
from ziggurat.transforms.analysis.queries import function_of, is_elementwise

_HINTS = (tt.MultipleOf, tt.MaxContiguous, tt.MaxConstancy)
_TYPED = (tt.Splat, tt.Broadcast, arith.ConstantOp, arith.Cast, tt.Bitcast, tt.IntToPtr, tt.PtrToInt)
_OTHERS = (
    *_HINTS, *_TYPED, tt.ExpandDims, tt.Reduce, tt.Scan, tt.Load, tt.Store, tt.Assert, core.MakeTuple, core.TupleLoad,
    scf.For, scf.If, scf.While, scf.Yield, scf.Condition,
)  # fmt: skip
# How often an access counts for each loop around it, and a store: elements one by one cost more than those of a load.
_ITERATIONS, _STORE = 16, 2
# Neighbours along the first axis from which on an access is transposed: as many as the shortest vector has f32. No
# measurement of other numbers is recorded.
_NEIGHBOURS = 4


def orient(module: core.Module) -> Op:
    """The module whose matrices have most of their neighbours in memory along the last axis."""
    func = function_of(module)
    matrices = [op for op in func.walk() if any(map(_has_matrix, _types(op)))]
    accesses = [op for op in matrices if isinstance(op, tt.Load | tt.Store)]
    jumps = any(op.jumps for op in func.walk())
    if not accesses or jumps or not all(map(_is_oriented, matrices)):
        return module
    infos, votes = analyse(func), [0, 0]
    for op in accesses:
        down, across = infos[component_of(op.ptr)].contiguity
        loops = sum(isinstance(owner, Loop) for owner in op.path())
        weight = math.prod(shape_of(op.ptr.type)) * _ITERATIONS**loops * (_STORE if isinstance(op, tt.Store) else 1)
        votes[across > down] += weight * (down != across)
    return transform(module, _oriented, pass_name="orient") if votes[0] > votes[1] else module


def turn(module: Op) -> Op:
    """The module with transposed accesses where neighbours in memory lie along the first axis."""
    func = function_of(expect(module, core.Module))
    infos = analyse(func)

    def turned(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if not isinstance(op, tt.Load | tt.Store) or len(shape_of(op.ptr.type)) != 2:
            return None
        down, across = infos[component_of(op.ptr)].contiguity
        if across > 1 or down < _NEIGHBOURS or not _is_known(op.ptr):
            return None
        memo: dict[Value, Value] = {}
        ptr, *rest = (_flipped(builder, value, memo) for value in op.operands)
        mask = rest[-1 if isinstance(op, tt.Store) else 0] if op.mask is not None else None
        if isinstance(op, tt.Store):
            return builder.add(op.evolve(ptr=ptr, value=rest[0], mask=mask), op.location)
        other = rest[-1] if op.other is not None else None
        loaded = builder.add(op.evolve(ptr=ptr, mask=mask, other=other), op.location)
        return builder.add(tt.Trans(loaded, (1, 0)), op.location)

    return transform(module, turned, pass_name="turn")


def _is_turned(op: Op | None) -> bool:
    return isinstance(op, (*_HINTS, *_TYPED, tt.ExpandDims)) or (op is not None and is_elementwise(op))


def _is_known(matrix: Value) -> bool:
    """Whether a matrix is computed from numbers and ranges alone."""

    def sources(value: Value) -> list[Value]:
        op = value.op
        return [operand for operand in op.operands if _has_matrix(operand.type)] if op and _is_turned(op) else []

    return all(_is_turned(value.op) for value in reached([matrix], sources))


def _flipped(builder: Rewriter, value: Value, memo: dict[Value, Value]) -> Value:
    """The transposed matrix of one of the module that is rewritten."""
    if value not in memo:
        op = value.op
        if op is None or not _is_turned(op):
            memo[value] = builder.add(tt.Trans(builder[value], (1, 0)))
        else:
            operands = tuple(_flipped(builder, v, memo) if _has_matrix(v.type) else builder[v] for v in op.operands)
            flipped = _oriented(builder, op, operands)
            memo[value] = flipped if isinstance(flipped, Value) else builder.copy(op, operands)
    return memo[value]


def _types(op: Op) -> list[Type]:
    return [op.result.type, *(operand.type for operand in op.operands)]


def _has_matrix(type_: Type) -> bool:
    if isinstance(type_, TupleType):
        return any(map(_has_matrix, type_.components))
    return isinstance(type_, TensorType) and type_.rank > 1


def _is_oriented(op: Op) -> bool:
    """Whether an op of matrices has a counterpart of transposed ones."""
    flat = all(not isinstance(type_, TensorType) or type_.rank < 3 for type_ in _types(op))
    return flat and (isinstance(op, _OTHERS) or is_elementwise(op))


def _oriented(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
    matrix = op.operands[0].type if isinstance(op, tt.Reduce | tt.Scan) else op.result.type
    if not isinstance(matrix, TensorType) or matrix.rank != 2:
        return None
    if isinstance(op, _HINTS):
        return operands[0]
    if isinstance(op, _TYPED):
        return builder.copy(op, operands, TensorType(matrix.shape[::-1], matrix.element))
    if isinstance(op, tt.ExpandDims):
        return builder.add(tt.ExpandDims(operands[0], 1 - op.axis), op.location)
    if isinstance(op, tt.Reduce | tt.Scan):
        combine = builder.rewrite_body(op.combine)
        return builder.add(op.evolve(values=operands, axis=1 - op.axis, combine=combine), op.location)
    return None
