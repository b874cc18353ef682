"""Origins of values, and values derived from others."""

import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.traits import MemoryRead
from ziggurat.transforms.kit import derived, origins, parameter_number, read_parameters, written_parameters
from ziggurat.transforms.kit.dataflow import addressing_parameters

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


FLOWS = zg.parse(
    """tt.func @"k" (%p : ptr<f32>, %q : ptr<f32>, %n : i32, %m : i32, %c : i1, %x : tensor<x8, f32>)void -> {
        %pair : Tuple<i32, i32> = tuple %n %m;
        %one : i32 = tuple.load %pair @0;
        %two : i32 = tuple.load %pair @1;
        %nested : Tuple<Tuple<i32, i32>, i32> = tuple %pair %m;
        %whole : i32 = arith.addi %one %two;
        %both : Tuple<i32, i32> = scf.if %c
            ()Tuple<i32, i32> -> { scf.yield %one %m; }
            ()Tuple<i32, i32> -> { scf.yield %m %m; };
        %first : i32 = tuple.load %both @0;
        %second : i32 = tuple.load %both @1;
        %sum : f32 = tt.reduce %x @axis=0 (%a : f32, %b : f32)f32 -> {
            %s : f32 = arith.addf %a %b;
            tt.reduce.return %s;
        };
        %bits : i64 = tt.elementwise_inline_asm %p %n @asm="a" @constraints="=l,l,r" @is_pure=false;
        %at : ptr<f32> = tt.addptr %q %first;
        tt.store %at %sum;
        cf.cond_br %c ^a(%n) ^b(%m);
      ^a(%u : i32):
        cf.br ^b(%u);
      ^b(%v : i32):
        tt.print %v @"v";
        tt.return;
    };"""
)


def names(values_):
    """The values as the model names them: parameters and results, by the order in which it has them."""
    (body,) = FLOWS.bodies
    texts = dict(zip(body.parameters, "p q n m c x".split(), strict=True))
    results = "pair one two nested whole both first second sum bits at".split()
    texts |= dict(zip((op.result for op in body.entry.ops), results, strict=False))
    texts |= {block.parameters[0]: name for block, name in zip(body.blocks[1:], "uv", strict=True)}
    reduction = next(op for op in FLOWS.walk() if op.NAME == "tt.reduce").bodies[0]
    texts |= dict(zip(reduction.parameters, "ab", strict=True)) | {reduction.entry.ops[0].result: "s"}
    return " ".join(texts[value] for value in values_)


VALUES = {name: value for value in [*FLOWS.bodies[0].parameters] for name in [names([value])]}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("n", "n u v pair one nested whole both first bits at"),
        ("m", "m v pair two nested whole both first second at"),
        ("x", "x sum a b s"),
        ("p", "p bits"),
        ("q", "q at"),
        ("c", "c"),
    ],
)
def test_values_flow_by_components_blocks_and_reductions(name, expected):
    assert names(derived(VALUES[name])) == expected


@pytest.mark.parametrize(
    ("result", "expected"), [(1, "n"), (2, "m"), (3, "n m"), (4, "n m"), (6, "n m"), (7, "m"), (8, "x"), (10, "q n m")]
)
def test_origins_by_components(result, expected):
    assert sorted(names(origins(FLOWS.bodies[0].entry.ops[result].result))) == sorted(expected)


def test_what_an_op_that_does_not_count_gives_is_an_origin():
    (store,) = values(tt.Store, FLOWS)
    pointer, stored = store.op.operands
    assert names(origins(pointer, lambda op: not isinstance(op, tt.AddPtr))) == "at"
    assert names(origins(stored, lambda op: op.NAME != "tt.reduce")) == "sum"


def test_addresses_by_the_parameters_that_they_depend_on():
    assert addressing_parameters(FLOWS) == {0: {0}, 1: {1, 2, 3}}
    assert addressing_parameters(FLOWS, MemoryRead) == {0: {0}}
    assert addressing_parameters(K) == {0: {0, 1, 2, 3}, 1: {0, 1, 2, 3}}
    assert read_parameters(FLOWS) == (0,) and written_parameters(FLOWS) == (0, 1)


def test_python_functions_give_what_they_return():
    model = zg.parse(
        """module ()void -> {
            func @"g" (%a : object, %b : object)object -> { return %b; };
            func @"f" (%n : object, %m : object)object -> {
                %1 : object = func.call %n %m @"g";
                return %1;
            };
            unreachable;
        };"""
    )
    f = model.functions()["f"]  # type: ignore[attr-defined]
    assert origins(f.bodies[0].entry.ops[0].result) == (f.bodies[0].parameters[1],)
    assert parameter_number(f.bodies[0].parameters[1]) == 1
    assert parameter_number(FLOWS.bodies[0].blocks[1].parameters[0]) is None
