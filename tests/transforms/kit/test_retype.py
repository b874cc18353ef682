"""Other types in memory: models before and after, run on the same numbers."""

import ml_dtypes
import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.transforms import kit


@zg.kernel
def softmax(out, x, n, B: zg.constexpr):
    row = zg.program_id(0)
    cols = zg.arange(0, B)
    mask = zg.compare(cols, n, zg.CompareKind.LESS_THAN)
    v = zg.load(zg.add(x, zg.add(row * n, cols)), mask, float("-inf"))
    e = zg.exp(zg.sub(v, zg.max(v, 0)))
    zg.store(zg.add(out, zg.add(row * n, cols)), zg.div(e, zg.sum(e, 0)), mask)


@zg.kernel
def total(out, x, n):
    acc = zg.zeros((16,), zg.f32)
    at = zg.add(x, zg.arange(0, 16))
    for _ in zg.range(0, n):
        acc = zg.add(acc, zg.load(at))
        at = zg.add(at, 16)
    zg.atomic_add(out, zg.sum(acc, 0))


def test_bf16_in_memory_computed_in_f32():
    model = softmax.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, 16)
    narrow = kit.retype(model, {zg.f32: zg.bf16})
    zg.verify(narrow)
    assert [str(p.type) for p in kit.kernel_of(narrow).body.parameters] == ["ptr<bf16>", "ptr<bf16>", "i32"]
    assert all(zg.bf16 != kit.element_of(op.result.type) for op in narrow.walk() if isinstance(op, arith.AddF))
    x = np.random.default_rng(0).normal(size=(3, 11)).astype(ml_dtypes.bfloat16)
    wide, arguments = np.zeros((3, 11), np.float32), np.zeros((3, 11), ml_dtypes.bfloat16)
    zg.run(model, (3,), wide, x.astype(np.float32), 11)
    zg.run(narrow, (3,), arguments, x, 11)
    assert np.array_equal(arguments, wide.astype(ml_dtypes.bfloat16))  # rounded once, at the store


def test_pointers_are_followed_through_loops_and_atomics_are_cast():
    model = total.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32)
    narrow = kit.retype(model, {zg.f32: zg.f16})
    zg.verify(narrow)
    x = np.arange(48, dtype=np.float16)
    out = np.zeros(1, np.float16)
    zg.run(narrow, (1,), out, x, 3)
    assert out[0] == np.float16(x.astype(np.float32).sum())


def test_chosen_parameters():
    model = total.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32)
    narrow = kit.retype(model, {zg.f32: zg.f16}, parameters=[1])
    assert [str(p.type) for p in kit.kernel_of(narrow).body.parameters] == ["ptr<f32>", "ptr<f16>", "i32"]
    zg.verify(narrow)


def test_descriptors():
    model = zg.parse(
        """tt.func @"k" (%d : descriptor<x8, f32>, %i : i32)void -> {
            %t : tensor<x8, f32> = tt.descriptor_load %d %i;
            %s : tensor<x8, f32> = arith.addf %t %t;
            tt.descriptor_store %d %s %i;
            tt.return; };"""
    )
    narrow = kit.retype(model, {zg.f32: zg.bf16})
    zg.verify(narrow)
    loads = [op for op in narrow.walk() if isinstance(op, tt.DescriptorLoad)]
    assert [str(op.result.type) for op in loads] == ["tensor<x8, bf16>"]


def test_a_type_that_no_parameter_has_changes_nothing():
    model = total.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32)
    assert kit.retype(model, {zg.f64: zg.f32}) is model


def test_old_and_new_pointers_that_meet_are_refused():
    model = zg.parse(
        """tt.func @"k" (%p : ptr<f32>, %q : ptr<f32>, %c : i1, %x : f32)void -> {
            %r : ptr<f32> = arith.select %c %p %q;
            tt.store %r %x;
            tt.return; };"""
    )
    with pytest.raises(zg.BuildError, match=r"while rewriting arith.select"):
        kit.retype(model, {zg.f32: zg.bf16}, parameters=[0])


def test_dtypes_go_by_their_names():
    model = total.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32)
    assert zg.same_model(
        kit.retype(model, {"float32": np.float16}), kit.retype(model, {zg.f32: zg.f16})
    ) and not zg.same_model(kit.retype(model, {zg.f32: zg.f16}), model)


@pytest.mark.parametrize(
    ("types", "parameters", "text"),
    [
        ({"f33": zg.bf16}, None, "retype: 'types' must map dtypes to dtypes, such as zg.f32; got 'f33'"),
        ({zg.f32: zg.bf16}, [9], r"the numbers 0 to 2; got \[9\]"),
    ],
)
def test_what_there_is_none_of_is_refused(types, parameters, text):
    model = total.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32)
    with pytest.raises(zg.BuildError, match=text):
        kit.retype(model, types, parameters)


def test_a_python_model_is_refused():
    with pytest.raises(zg.BuildError, match="the model must have a tt"):
        kit.retype(total.model, {zg.f32: zg.bf16})


def test_the_symbol_has_the_new_types():
    model = softmax.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, 16)
    assert kit.kernel_of(model).sym_name == "softmax_ptr<f32>_ptr<f32>_i32_16_void"
    narrow = kit.kernel_of(kit.retype(model, {zg.f32: zg.bf16}, parameters=[1]))
    assert narrow.sym_name == "softmax_ptr<f32>_ptr<bf16>_i32_16_void"
    assert kit.kernel_of(kit.retype(model, {zg.f32: zg.f16})).sym_name == "softmax_ptr<f16>_ptr<f16>_i32_16_void"


@zg.kernel
def copied(out, x):
    zg.store_tensor_descriptor(out, [0, 0], zg.load_tensor_descriptor(x, [0, 0]))


def test_rows_of_a_descriptor_keep_16_bytes():
    block = zg.descriptor((16, 8), zg.f32)
    model = copied.triton(block, block)
    zg.verify(kit.retype(model, {zg.f32: zg.f16}))
    with pytest.raises(zg.BuildError, match=r"must have at least 16 bytes; descriptor<x16, x8, f8e4m3> has 8"):
        kit.retype(model, {zg.f32: zg.f8e4m3})


def test_types_that_are_no_dictionary():
    with pytest.raises(zg.KernelTypeError, match="retype: 'types' must be a dictionary of dtypes; got 5"):
        kit.retype(softmax.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, 16), 5)  # type: ignore[arg-type]


@zg.kernel
def count(out):
    zg.atomic_add(out, 1)


def test_atomics_that_a_dtype_does_not_have():
    with pytest.raises(zg.BuildError, match=r"tt.atomic_rmw: the operands of add must be integers; got f32"):
        kit.retype(count.triton(zg.ptr(zg.i32)), {zg.i32: zg.f32})
    for dtype in (zg.i16, zg.u8):
        with pytest.raises(zg.BuildError, match=rf"the dtype in memory must be i32, i64, .* f64; got {dtype}"):
            kit.retype(count.triton(zg.ptr(zg.i32)), {zg.i32: dtype})


HELPERS = """module ()void -> {
    tt.func @"pick_tensor<x16, ptr<f32>>_ptr<f32>" (%t : tensor<x16, ptr<f32>>, %p : ptr<f32>)Tuple<ptr<f32>, f32> -> {
        %v : tensor<x16, f32> = tt.load %t;
        tt.store %t %v;
        %w : f32 = tt.load %p;
        %r : Tuple<ptr<f32>, f32> = tuple %p %w;
        tt.return %r;
    };
    tt.func @"k_ptr<f32>_ptr<i32>_ptr<f32>" (%p : ptr<f32>, %n : ptr<i32>, %q : ptr<f32>)void -> {
        %t : tensor<x16, ptr<f32>> = tt.splat %p;
        %r : Tuple<ptr<f32>, f32> = tt.call %t %q @"pick_tensor<x16, ptr<f32>>_ptr<f32>";
        %a : ptr<f32> = tuple.load %r @0;
        %b : f32 = tuple.load %r @1;
        tt.store %a %b;
        %i : i32 = tt.load %n;
        tt.print %i @"i";
        tt.return;
    };
    unreachable;
};"""


def test_helper_functions_take_and_give_the_new_pointers():
    narrow = kit.retype(zg.parse(HELPERS), {zg.f32: zg.bf16})
    zg.verify(narrow)
    assert [f.sym_name for f in narrow.walk() if isinstance(f, tt.Func)] == [
        "pick_tensor<x16, ptr<f32>>_ptr<f32>",  # The calls have the name.
        "k_ptr<bf16>_ptr<i32>_ptr<bf16>",
    ]
    assert [str(p.type) for f in narrow.walk() if isinstance(f, tt.Func) for p in f.body.parameters] == [
        "tensor<x16, ptr<bf16>>", "ptr<bf16>", "ptr<bf16>", "ptr<i32>", "ptr<bf16>",
    ]  # fmt: skip
    (call,) = (op for op in narrow.walk() if isinstance(op, tt.Call))
    assert str(call.result.type) == "Tuple<ptr<bf16>, f32>"
    casts = [(op.NAME, str(op.result.type)) for op in narrow.walk() if isinstance(op, arith.Cast)]
    assert casts == [
        ("arith.extf", "tensor<x16, f32>"), ("arith.truncf", "tensor<x16, bf16>"), ("arith.extf", "f32"),
        ("arith.truncf", "bf16"),
    ]  # fmt: skip


def test_helper_functions_without_the_type_stay():
    model = zg.parse(HELPERS)
    wide = kit.retype(model, {zg.i32: zg.i64})
    zg.verify(wide)
    first, second = (f for f in wide.walk() if isinstance(f, tt.Func))
    assert zg.same_model(first, next(f for f in model.walk() if isinstance(f, tt.Func)))
    assert second.sym_name == "k_ptr<f32>_ptr<i64>_ptr<f32>"
    assert [op.result.type for op in wide.walk() if isinstance(op, arith.TruncI)] == [zg.i32]


def test_chosen_parameters_of_several_functions_are_refused():
    model = zg.parse(HELPERS)
    loop = zg.parse(
        """module ()void -> {
            tt.func @"a" (%p : ptr<f32>)void -> { tt.return; };
            tt.func @"b" (%p : ptr<f32>)void -> { tt.return; };
            unreachable;
        };"""
    )
    assert kit.retype(model, {zg.f32: zg.bf16}, parameters=[0]) is not model
    with pytest.raises(zg.BuildError, match="to retype parameters, a model must have one function; got 2"):
        kit.retype(loop, {zg.f32: zg.bf16}, parameters=[0])
    with pytest.raises(zg.BuildError, match=r"the numbers 0 to 2; got \[-1, 3\]"):
        kit.retype(total.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32), {zg.f32: zg.bf16}, parameters=[-1, 0, 2, 3])


def test_offsets_masks_and_indices_keep_their_types():
    model = zg.parse(
        """tt.func @"k" (%p : ptr<i32>, %d : descriptor<x8, i32>, %i : i32, %c : i1)void -> {
            %q : ptr<i32> = tt.addptr %p %i;
            %x : i32 = tt.load %q %c %i;
            tt.store %q %x %c;
            %t : tensor<x8, i32> = tt.descriptor_load %d %i;
            tt.descriptor_store %d %t %i;
            %r : i32 = tt.atomic_cas %q %i %x;
            tt.print %r @"r";
            tt.return; };"""
    )
    wide = kit.retype(model, {zg.i32: zg.i64})
    zg.verify(wide)
    index = wide.bodies[0].parameters[2]
    assert [str(p.type) for p in wide.bodies[0].parameters] == ["ptr<i64>", "descriptor<x8, i64>", "i32", "i1"]
    assert all(op.operands[-1] is index for op in wide.walk() if op.NAME.startswith("tt.descriptor"))
    assert [op.NAME for op in wide.walk() if isinstance(op, arith.Cast)] == [
        "arith.extsi", "arith.trunci", "arith.extsi", "arith.trunci", "arith.extsi", "arith.extsi", "arith.extsi",
        "arith.trunci",
    ]  # fmt: skip
