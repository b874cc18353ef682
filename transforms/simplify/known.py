"""Arguments whose values are known: parameters of a kernel become constants of their types."""

from __future__ import annotations

from collections.abc import Mapping

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, core, tt
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.transform import Rewriter


def with_known_values(module: core.Module, symbol: str, values: Mapping[int, int]) -> core.Module:
    """The module whose function `symbol` takes no argument for the integer parameters numbered in `values`.

        tt.func @"k" (%0 : ptr<f32>, %1 : i32)…        tt.func @"k" (%0 : ptr<f32>)…
                                                           %1 : i32 = arith.constant @1;

    The constants have the parameters' types, so the function computes what it computed for these values: nothing
    follows Python's rules for constants that followed the machine's before.
    """
    if not values:
        return module
    outside = Rewriter.over(Builder.root())
    for op in module.body.entry.ops:
        if isinstance(op, tt.Func) and op.sym_name == symbol:
            outside.add(_function(op, values), op.location)
        else:
            outside.rewrite(op)
    return core.Module(outside.finish())


def _function(func: tt.Func, values: Mapping[int, int]) -> Op:
    old = func.body.parameters
    kept = [index for index in range(len(old)) if index not in values]
    inner = Rewriter.over(Builder.root([old[index].type for index in kept], func.body.yield_type))
    for index, parameter in zip(kept, inner.parameters, strict=True):
        inner[old[index]] = parameter
    inner.location = func.location
    for index, value in values.items():
        inner[old[index]] = inner.add(arith.ConstantOp(value, old[index].type))
    inner.rewrite_blocks(func.body)
    divisibility = tuple(func.divisibility[index] for index in kept) if func.divisibility else ()
    return tt.Func(func.sym_name, inner.finish(), divisibility=divisibility, noinline=func.noinline)
