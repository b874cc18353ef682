"""Builder methods of the calls that make and reshape tensors, and of dot."""

from __future__ import annotations

import pytest
from call_types import Types

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.types import PtrType, TensorType, TupleType, f16, f32, i32, i64
from ziggurat.transforms.calls.emit import Operand
from ziggurat.transforms.calls.promotion import constant

R = Types()
T = TensorType((4, 16), i32)
P = PtrType(f32)


def made(emitted, calls, name, types, *constants):
    """A call on values of these types, then constants: what was built, of the type that attribution says."""
    result = getattr(R, name)(*types, *constants)
    built = emitted(types, lambda emit, *values: getattr(calls(emit), name)(
        result, *(Operand(value.type, value) for value in values), *constants))  # fmt: skip
    found = built.result
    assert (TupleType(tuple(part.type for part in found)) if isinstance(found, tuple) else found.type) == result
    return built


def test_tensors_from_nothing(emitted, calls):
    built = made(emitted, calls, "arange", [], 4, 20)
    assert built.names == ["tt.make_range"] and built.func.bodies[0].entry.ops[0].attributes["end"] == 20
    assert made(emitted, calls, "zeros", [], (4, 16), f16).names == ["arith.constant"]
    filled = emitted([i64], lambda emit, x: calls(emit).full(T, (4, 16), Operand(i64, x), i32))
    assert filled.names == ["arith.trunci", "tt.splat"] and filled.result.type == T
    known = emitted([], lambda emit: calls(emit).full(T, (4, 16), Operand(constant(3), None), i32))
    assert known.names == ["arith.constant"] and known.result.type == T


@pytest.mark.parametrize(
    ("name", "types", "constants", "names"),
    [
        ("expand", [T], [(0, -1)], ["tt.expand_dims", "tt.expand_dims"]),
        ("expand", [P], [0], ["tt.splat"]),
        ("broadcast", [TensorType((16,), P), T], [], ["tt.expand_dims", "tt.broadcast"]),
        ("broadcast", [T, T], [], []),
        ("reshape", [T], [(8, 8)], ["tt.reshape"]),
        ("reshape", [T], [(4, 16)], []),
        ("ravel", [T], [], ["tt.reshape"]),
        ("trans", [T], [()], ["tt.trans"]),
        ("permute", [T], [(1, 0)], ["tt.trans"]),
        ("join", [T, T], [], ["tt.join"]),
        ("join", [T, f32], [], ["arith.sitofp", "tt.splat", "tt.join"]),
        ("cat", [T, TensorType((4, 16), i64)], [], ["arith.extsi", "tt.cat"]),
        ("gather", [T, TensorType((4, 2), i32)], [-1], ["tt.gather"]),
        ("split", [TensorType((4, 2), f32)], [], ["tt.split", "tuple.load", "tuple.load"]),
    ],
)
def test_ops_of_calls(emitted, calls, name, types, constants, names):
    assert made(emitted, calls, name, types, *constants).names == names


def test_axes_are_counted_from_the_start_in_a_model(emitted, calls):
    gathered = made(emitted, calls, "gather", [T, TensorType((4, 2), i32)], -1)
    assert gathered.func.bodies[0].entry.ops[0].attributes["axis"] == 1
    swapped = made(emitted, calls, "trans", [TensorType((2, 4, 8), f32)], ())
    assert swapped.func.bodies[0].entry.ops[0].attributes["order"] == (0, 2, 1)
    places = made(emitted, calls, "expand", [T], (-1, 0)).func.bodies[0].entry.ops[:2]
    assert [op.attributes["axis"] for op in places] == [0, 3], "the outer axis is inserted first"


def test_dot_adds_to_zeros_or_to_an_accumulator(emitted, calls):
    matrix, result = TensorType((16, 16), f16), TensorType((16, 16), f32)

    def build(emit, a, b, c):
        x, y, acc = (Operand(value.type, value) for value in (a, b, c))
        return calls(emit).dot(result, x, y, None), calls(emit).dot(result, x, y, acc, "tf32x3")

    built = emitted([matrix, matrix, result], build)
    assert built.names == ["arith.constant", "tt.dot", "tt.dot"]
    first, second = (value.op for value in built.result)
    assert first.attributes["input_precision"] is tt.InputPrecision.DEFAULT
    assert second.attributes["input_precision"] is tt.InputPrecision("tf32x3")
    assert second.operands[2] is built.func.bodies[0].parameters[2]


def test_a_reshape_to_no_axes_gives_the_only_element(emitted, calls):
    for shape in ((1,), (1, 1)):
        built = emitted([TensorType(shape, f32)], lambda emit, x: calls(emit).reshape(f32, Operand(x.type, x)))
        assert built.result.type == f32 and built.names[-1] == "tt.reduce"
