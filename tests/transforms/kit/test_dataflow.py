"""Origins of values, and values derived from others."""

import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.traits import MemoryRead
from ziggurat.transforms.kit import derived, origins, parameter_number, read_parameters, written_parameters

MODEL = zg.parse(
    """module ()void -> {
    tt.func @"pick" (%a : ptr<f32>, %b : ptr<f32>, %c : i1)ptr<f32> -> {
        %r : ptr<f32> = arith.select %c %a %b;
        tt.return %r;
    };
    tt.func @"k" (%p : ptr<f32>, %q : ptr<f32>, %n : i32, %c : i1)void -> {
        %zero : i32 = arith.constant @0;
        %one : i32 = arith.constant @1;
        %pq : Tuple<ptr<f32>, ptr<f32>> = scf.for %zero %n %one %p %q
            (%i : i32, %x : ptr<f32>, %y : ptr<f32>)Tuple<ptr<f32>, ptr<f32>> -> {
                %z : ptr<f32> = tt.addptr %x %i;
                scf.yield %z %y;
            };
        %p1 : ptr<f32> = tuple.load %pq @0;
        %q1 : ptr<f32> = tuple.load %pq @1;
        %v : f32 = tt.load %p1;
        %w : f32 = arith.mulf %v %v;
        tt.store %q1 %w;
        %r : ptr<f32> = tt.call %p1 %q1 %c @"pick";
        tt.store %r %w;
        tt.return;
    };
    unreachable;
};"""
)
PICK, K = MODEL.functions().values()  # type: ignore[attr-defined]
P, Q, N, C = K.bodies[0].parameters


def values(kind: type, function=K):
    return [op.result for op in function.walk() if isinstance(op, kind)]


def test_what_comes_from_a_parameter():
    actual = derived(P)
    assert actual[0] is P
    (load,), (product,) = values(tt.Load), values(arith.MulF)
    assert load in actual and product in actual and values(tt.AddPtr)[0] in actual
    assert Q not in actual and N not in actual
    # The second value that the loop carries comes from %q alone.
    stored_to = [op.operands[0] for op in K.walk() if isinstance(op, tt.Store)]
    assert stored_to[0] not in actual and stored_to[1] in actual


def test_what_is_read_from_memory_may_be_left_out():
    actual = derived(P, lambda op: not isinstance(op, MemoryRead))
    (load,) = values(tt.Load)
    assert load.op.operands[0] in actual and load not in actual


def test_the_parameters_that_a_pointer_comes_from():
    first, second = (op.operands[0] for op in K.walk() if isinstance(op, tt.Store))
    assert origins(first) == (Q,)
    pointers = [value for value in origins(second) if str(value.type) == "ptr<f32>"]
    assert pointers == [P, Q]  # through the loop and the call
    assert [parameter_number(value) for value in pointers] == [0, 1]
    assert parameter_number(first) is None


def test_an_index_comes_from_the_bounds():
    (index,) = (op.body.parameters[0] for op in K.walk() if op.NAME == "scf.for")
    assert N in origins(index)


def test_the_parameters_that_memory_is_accessed_through():
    assert read_parameters(K) == (0,)
    assert written_parameters(K) == (0, 1)


@pytest.mark.parametrize(
    ("op", "read", "text"),
    [
        ("%z : f32 = tt.atomic_rmw %p %f @fadd;", (0,), (0,)),
        ('%z : i32 = tt.elementwise_inline_asm %n @asm="mov.b32 $0, $1;" @constraints="=r,r" @is_pure=false;', (), ()),
    ],
    ids=["atomic", "assembly"],
)
def test_other_accesses(op, read, text):
    function = zg.parse(f'tt.func @"k" (%p : ptr<f32>, %n : i32, %f : f32)void -> {{ {op} tt.return; }};')
    assert (read_parameters(function), written_parameters(function)) == (read, text)


@pytest.mark.parametrize("ask", [derived, origins])
def test_only_values_have_origins_and_uses(ask):
    with pytest.raises(zg.KernelTypeError, match="'value' must be a Value; got 3"):
        ask(3)
