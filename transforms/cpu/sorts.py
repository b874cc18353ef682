"""Sorting in loops: the library's sorting network, whose steps have code of their own, as a loop over its steps.

A tensor lies in registers on a GPU, so that each step of the network needs code of its own. In the memory of a CPU, the
steps differ only in a distance: for 1,024 keys, one loop over them runs eight times as fast as the library's code, and
compiles in a third of the time. Integers are in a total order, so that any sort of them has the same result.

    tt.func @"first_keys_tensor<x8, i32>_8_False_tensor<x8, i32>" (%0 : tensor<x8, i32>)tensor<x8, i32> -> {
        …
        %3 : tensor<x8, i32> = scf.for %first %end %one %0 (%stage : i32, %4 : tensor<x8, i32>)… -> {
            %5 : tensor<x8, i32> = scf.for %zero %stage %one %4 (%step : i32, %6 : tensor<x8, i32>)… -> {
                …
                %9 : tensor<x8, i32> = tt.gather %6 %8 @axis=0;             the partners, in 2^(stage - 1 - step)
                …
"""

from __future__ import annotations

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, core, scf, tt
from ziggurat.codemodel.dialects.arith import IntPredicate
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.op import Op, Value, expect
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.codemodel.types import TensorType, Type, i32, scalar_element, shape_of, value_element
from ziggurat.frontends.library import sorting
from ziggurat.transforms.simplify.demand import callees, reachable_roots

_NAME = f"{sorting.first_keys.name}_"


def sort_in_loops(module: Op) -> Op:
    """The module whose functions `first_keys` of the library loop over the steps of the network."""
    if not isinstance(module, core.Module) or not any(map(_sorts, module.walk())):
        return module
    functions = module.functions()

    def called(name: str) -> list[str]:
        function = functions[name]
        return [] if _sorts(function) else [callee for op in function.walk() for callee in callees(op)]

    symbols = reached([op.attributes["sym_name"] for op in reachable_roots(module)], called)

    def replace(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if isinstance(op, tt.Func) and op.sym_name not in symbols:
            return DROP
        if not _sorts(op):
            return None
        assert isinstance(op, tt.Func)
        (keys,) = op.body.parameters
        inner = builder.inside([keys.type], op.body.yield_type, isolated=True)
        inner.location = op.location
        keys = _sorted(inner, inner.parameters[0], descending="_True_" in op.sym_name)
        inner.add(tt.Return([_first(inner, keys, expect(op.body.yield_type, TensorType))]))
        return builder.add(tt.Func(op.sym_name, inner.finish()), op.location)

    return transform(module, replace, pass_name="sorts")


def _sorts(op: Op) -> bool:
    """Whether an op is the library's function, for more than one key."""
    if not isinstance(op, tt.Func) or not op.sym_name.startswith(_NAME):
        return False
    if op.location is None or op.location.file != sorting.__file__:
        return False
    type_ = op.body.parameters[0].type
    return isinstance(type_, TensorType) and type_.shape[-1] > 1


def _first(builder: Builder, keys: Value, type_: TensorType) -> Value:
    """The first ones of each row of sorted keys, as many as the type has."""
    if keys.type == type_:
        return keys
    axis = len(type_.shape) - 1
    index = builder.add(tt.MakeRange(0, type_.shape[-1]))
    for _ in range(axis):
        index = builder.add(tt.ExpandDims(index, 0))
    if axis:
        index = builder.add(tt.Broadcast(index, TensorType(type_.shape, i32)))
    return builder.add(tt.Gather(keys, index, axis))


def _sorted(builder: Rewriter, keys: Value, *, descending: bool) -> Value:
    """The keys sorted along the last axis: runs of 2^stage are sorted in alternating directions."""
    stages = shape_of(keys.type)[-1].bit_length() - 1

    def number(value: int) -> Value:
        return builder.add(arith.ConstantOp(value, i32))

    zero, unit, end = number(0), number(1), number(stages + 1)
    outer = builder.inside([i32, keys.type], keys.type)
    stage, values = outer.parameters
    inner = outer.inside([i32, keys.type], keys.type)
    step, values_now = inner.parameters
    exponent = inner.add(arith.SubI(inner.add(arith.SubI(stage, unit)), step))
    distance = inner.add(arith.ShlI(unit, exponent))
    run = inner.add(arith.ShlI(unit, stage))
    inner.add(scf.Yield([_exchanged(inner, values_now, distance, run, descending=descending)]))
    outer.add(scf.Yield([outer.add(scf.For(zero, stage, unit, [values], inner.finish()))]))
    return builder.add(scf.For(unit, end, unit, [keys], outer.finish()))


def _exchanged(builder: Builder, keys: Value, distance: Value, run: Value, *, descending: bool) -> Value:
    """The keys after a step: each is exchanged with the one at a distance if the two are not in order."""
    type_ = expect(keys.type, TensorType)
    size, axis = type_.shape[-1], len(type_.shape) - 1
    row = TensorType((size,), i32)
    index = builder.add(tt.MakeRange(0, size))

    def splat(value: Value, to: Type = row) -> Value:
        return builder.add(tt.Splat(value, to))

    zero = splat(builder.add(arith.ConstantOp(0, i32)))

    def is_set(bit: Value) -> Value:
        """For each key, whether its index has a bit: that of the number of keys, which none has, is in the last run."""
        return builder.add(arith.CmpI(builder.add(arith.AndI(index, splat(bit))), zero, IntPredicate.NE))

    def whole(value: Value) -> Value:
        """A row for each row of the keys."""
        for _ in range(axis):
            value = builder.add(tt.ExpandDims(value, 0))
        return builder.add(tt.Broadcast(value, TensorType(type_.shape, value_element(value.type)))) if axis else value

    partner = builder.add(tt.Gather(keys, whole(builder.add(arith.XOrI(index, splat(distance)))), axis))
    goes_down = whole(builder.add(arith.XOrI(is_set(distance), is_set(run))))
    signed = scalar_element(type_).signed
    less, greater = (IntPredicate.SLT, IntPredicate.SGT) if signed else (IntPredicate.ULT, IntPredicate.UGT)
    order = (greater, less) if descending else (less, greater)
    tests = [builder.add(arith.CmpI(keys, partner, predicate)) for predicate in order]
    return builder.add(arith.Select(builder.add(arith.Select(goes_down, *tests)), partner, keys))
