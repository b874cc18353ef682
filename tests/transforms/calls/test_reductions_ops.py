"""Builder methods of reductions and scans: functions of the module, made once, that call the combining function."""

from __future__ import annotations

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.types import TensorType, TupleType, f16, f32, i1, i32
from ziggurat.frontends.library import COMBINE
from ziggurat.transforms.attribution import attribute
from ziggurat.transforms.attribution.attribute import Attributor
from ziggurat.transforms.calls.constant_arguments import FunctionName
from ziggurat.transforms.calls.emit import Operand
from ziggurat.transforms.mirror import mirror

T = TensorType((4, 16), f32)


def combining(name, *types):
    function = COMBINE[name]
    callee = FunctionName(function.name, function.model, function)
    return Attributor().function(callee, (*types, *types), None)


def test_a_sum_is_a_call_of_a_function_of_the_model(emit_ops, calls, functions):
    functions.combining = combining("sum", f32)
    result = TensorType((4,), f32)
    emission = emit_ops([T], lambda emit, x: calls(emit).sum(result, Operand(T, x), 1, False, None))
    assert emission.names == ["tt.call"] and emission.result.type == result
    ((symbol, helper),) = functions.helpers.items()
    assert symbol == "reduce_sum_tensor<x4, x16, f32>_1_tensor<x4, f32>" == emission.result.op.attributes["callee"]
    reduce, _ = helper.bodies[0].entry.ops
    assert reduce.NAME == "tt.reduce" and reduce.attributes["axis"] == 1
    assert [op.NAME for op in reduce.bodies[0].entry.ops] == ["tt.call", "tt.reduce.return"]
    assert reduce.bodies[0].entry.ops[0].attributes["callee"] == functions.combining.symbol


@pytest.mark.parametrize(
    ("axis", "keep", "names", "shape"),
    [
        (0, False, ["tt.call"], (16,)),
        (-1, True, ["tt.call", "tt.expand_dims"], (4, 1)),
        (None, False, ["tt.reshape", "tt.call"], ()),
        (None, True, ["tt.reshape", "tt.call", "tt.splat"], (1, 1)),
    ],
)
def test_axes(emit_ops, calls, functions, axis, keep, names, shape):
    functions.combining = combining("max", f32)
    result = TensorType(shape, f32) if shape else f32
    emission = emit_ops([T], lambda emit, x: calls(emit).max(result, Operand(T, x), axis, False, True, keep))
    assert emission.names == names and emission.result.type == result


def test_small_floats_are_summed_in_f32_and_rounded_once(emit_ops, calls, functions):
    functions.combining = combining("sum", f32)
    half = TensorType((16,), f16)
    emission = emit_ops([half], lambda emit, x: calls(emit).sum(f16, Operand(half, x), 0, False, None))
    assert emission.names == ["arith.extf", "tt.call", "arith.truncf"] and emission.result.type == f16


def test_small_integers_are_widened_first(emit_ops, calls, functions):
    functions.combining = combining("sum", i32)
    bits = TensorType((16,), i1)
    emission = emit_ops([bits], lambda emit, x: calls(emit).cumsum(TensorType((16,), i32), Operand(bits, x), 0, False))
    assert emission.names == ["arith.extui", "tt.call"]
    (helper,) = functions.helpers.values()
    assert helper.bodies[0].entry.ops[0].NAME == "tt.scan"


def test_the_way_of_a_scan_is_in_its_name(emit_ops, calls, functions):
    functions.combining = combining("prod", f32)
    line = TensorType((16,), f32)
    emit_ops([line], lambda emit, x: [calls(emit).cumprod(line, Operand(line, x), 0, way) for way in (False, True)])
    assert list(functions.helpers) == [
        "scan_prod_tensor<x16, f32>_0_tensor<x16, f32>",
        "scan_prod_tensor<x16, f32>_0_reverse_tensor<x16, f32>",
    ]
    ways = [helper.bodies[0].entry.ops[0].attributes["reverse"] for helper in functions.helpers.values()]
    assert ways == [False, True]


def test_an_extreme_with_its_index(emit_ops, calls, functions):
    functions.combining = combining("argmax", f32, i32)
    both = TupleType((TensorType((4,), f32), TensorType((4,), i32)))
    emission = emit_ops([T], lambda emit, x: calls(emit).max(both, Operand(T, x), 1, True, True, False))
    value, index = emission.result
    assert (value.type, index.type) == both.components
    assert emission.names[:3] == ["tt.make_range", "tt.expand_dims", "tt.broadcast"]
    index_alone = emit_ops([T], lambda emit, x: calls(emit).argmax(i32, Operand(T, x), None, True, False))
    assert index_alone.result.type == i32 and index_alone.names[0] == "tt.reshape", (
        "the index counts in row-major order"
    )


def test_a_histogram_is_an_op(emit_ops, calls):
    line, mask = TensorType((16,), i32), TensorType((16,), i1)
    emission = emit_ops([line, mask], lambda emit, x, m: calls(emit).histogram(
        TensorType((8,), i32), Operand(line, x), 8, Operand(mask, m)))  # fmt: skip
    assert emission.names == ["tt.histogram"] and len(emission.result.op.operands) == 2


@zg.function
def both(a, i, b, j):
    return zg.maximum(a, b), zg.add(i, j)


@zg.kernel
def reduces_twice(p, q):
    at = zg.arange(0, 16)
    x = zg.load(zg.add(p, at))
    first, total = zg.reduce((x, at), 0, both)
    second, _ = zg.reduce((x, at), 0, both)
    zg.store(p, first - second)
    zg.store(q, total)


def test_a_reduction_of_several_tensors_is_made_once():
    model = mirror(attribute(reduces_twice, (zg.ptr(f32), zg.ptr(i32))))
    zg.verify(model)
    symbols = [func.attributes["sym_name"] for func in model.functions().values()]
    assert sum(symbol.startswith("reduce_both") for symbol in symbols) == 1
    x, out = np.arange(16, dtype=np.float32), np.zeros(1, np.int32)
    zg.run(model, 1, x, out)
    assert x[0] == 0 and out[0] == 120
