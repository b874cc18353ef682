"""Sorts as one op: the library's sorting network is written for tensors in registers, and a CPU has memory.

Integers are in a total order, so that any sort of them has the same result. Keys in descending order are sorted with
all bits inverted.

    tt.func @"first_keys_tensor<x8, i32>_8_True_tensor<x8, i32>" (%0 : tensor<x8, i32>)tensor<x8, i32> -> {
        …
        %3 : tensor<x8, i32> = arith.xori %0 %2;
        %4 : tensor<x8, i32> = cpu.sort %3;
        %5 : tensor<x8, i32> = arith.xori %4 %2;
        tt.return %5;
    };
"""

from __future__ import annotations

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, core, cpu, tt
from ziggurat.codemodel.graphs import reached
from ziggurat.codemodel.op import Op, Value, expect
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.codemodel.types import TensorType, Type, i32, scalar_element
from ziggurat.frontends.library import sorting
from ziggurat.transforms.simplify.demand import callees, reachable_roots

_NAME = f"{sorting.first_keys.name}_"


def find_sorts(module: Op) -> Op:
    """The module whose functions `first_keys` of the library have the op."""
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
        type_ = op.body.parameters[0].type
        inner = builder.inside([type_], op.body.yield_type, isolated=True)
        inner.location = op.location
        keys: Value = inner.parameters[0]
        if "_True_" in op.sym_name:
            ones = inner.add(arith.ConstantOp(-1 if scalar_element(type_).signed else _all_bits(type_), type_))
            keys = inner.add(arith.XOrI(inner.add(cpu.Sort(inner.add(arith.XOrI(keys, ones)))), ones))
        else:
            keys = inner.add(cpu.Sort(keys))
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


def _all_bits(type_: Type) -> int:
    return (1 << scalar_element(type_).bits) - 1
