"""Pointers into the caller's arrays: views, strides, shared memory, and accesses outside of the arrays."""

import re
import tracemalloc

import numpy as np
import pytest

from ziggurat.backend.reference import tensors
from ziggurat.backend.reference.argument_memory import ArgumentRegion, ArrayArgument, Memory, real_addresses
from ziggurat.backend.reference.run import run
from ziggurat.codemodel import dialects  # noqa: F401
from ziggurat.codemodel.errors import KernelRuntimeError, LaunchError, MemoryAccessError
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import DescriptorType, f32

# y[i * sy + p] = x[i * sx + p] for i in 0..n, with the mask i < m.
COPY = """
tt.func @"copy" (%x : ptr<f32>, %y : ptr<f32>, %sx : i32, %sy : i32, %m : i32)void -> {
    %r : tensor<x8, i32> = tt.make_range @start=0 @end=8;
    %ms : tensor<x8, i32> = tt.splat %m;
    %mask : tensor<x8, i1> = arith.cmpi %r %ms @slt;
    %sxs : tensor<x8, i32> = tt.splat %sx;
    %ox : tensor<x8, i32> = arith.muli %r %sxs;
    %xs : tensor<x8, ptr<f32>> = tt.splat %x;
    %xp : tensor<x8, ptr<f32>> = tt.addptr %xs %ox;
    %v : tensor<x8, f32> = tt.load %xp %mask @loc="7:4:7:20:kernel.py";
    %sys : tensor<x8, i32> = tt.splat %sy;
    %oy : tensor<x8, i32> = arith.muli %r %sys;
    %ys : tensor<x8, ptr<f32>> = tt.splat %y;
    %yp : tensor<x8, ptr<f32>> = tt.addptr %ys %oy;
    tt.store %yp %v %mask @loc="9:4:9:20:kernel.py";
    tt.return;
};"""
NAMES = ["x_ptr", "y_ptr", "sx", "sy", "m"]


def copy(x, y, sx=1, sy=1, m=8):
    run(parse(COPY), None, (1,), [x, y, sx, sy, m], names=NAMES)


def array(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_strided_and_reversed_views():
    x, y = array(16), np.zeros(16, np.float32)
    copy(x[::2], y[1::2], 2, 2)
    assert y[1::2].tolist() == x[::2].tolist()
    assert y[::2].tolist() == [0] * 8
    copy(x[7::-1], y[:8], -1, 1)
    assert y[:8].tolist() == x[7::-1].tolist()
    matrix = array(8, 4)
    copy(matrix[:, 2], y, 4, 1)
    assert y[:8].tolist() == matrix[:, 2].tolist()
    copy(np.broadcast_to(np.float32(3), 8), y, 0, 1)
    assert y[:8].tolist() == [3] * 8


def test_two_pointers_into_one_array():
    both = array(16)
    copy(both[8:], both[:8])
    assert both.tolist() == [*range(8, 16)] * 2
    both = array(16)
    copy(both[:8], both[8:], 1, -1, 8)  # Goes below the second view, but stays in the array, by way of the first.
    assert both[1:9].tolist() == [7, 6, 5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((array(6), array(8)), "reads x_ptr[6], but x_ptr has 6 elements"),
        ((array(8), array(5)), "writes y_ptr[5], but y_ptr has 5 elements"),
        ((array(8), array(8), -1), "reads x_ptr[-1], but x_ptr has 8 elements"),
        ((array(0), array(8)), "reads x_ptr[0], but x_ptr has 0 elements"),
        ((array(16)[::2], array(8)), "reads x_ptr[1], but that is no element of x_ptr (shape (8,), strides (2,))"),
        ((array(8)[::-1], array(8), 2), "reads x_ptr[2], but that is no element of x_ptr (shape (8,), strides (-1,))"),
        ((array(8), array(16)[::-2], 1, -1), "writes y_ptr[-1], but that is no element of y_ptr"),
    ],
)
def test_accesses_outside_of_the_arrays(arguments, message):
    with pytest.raises(MemoryAccessError, match=re.escape(f"program (0, 0, 0) {message}")) as error:
        copy(*arguments)
    assert str(error.value.location) == ("kernel.py:7:5" if "reads" in message else "kernel.py:9:5")


def test_masked_off_elements_may_be_outside():
    y = np.zeros(8, np.float32)
    copy(array(3), y, m=3)
    assert y.tolist() == [0, 1, 2, 0, 0, 0, 0, 0]
    copy(array(0), y, m=0)


def test_an_array_beside_another_is_not_reached():
    x, y = array(8), np.zeros(8, np.float32)
    step = (y.ctypes.data - x.ctypes.data) // 4
    with pytest.raises(MemoryAccessError, match=r"reads x_ptr\[.*\], but x_ptr has 8 elements"):
        copy(x, y, step)


def test_read_only():
    x = array(8)
    x.flags.writeable = False
    y = np.zeros(8, np.float32)
    copy(x, y)
    assert y.tolist() == x.tolist()
    with pytest.raises(MemoryAccessError, match=r"program \(0, 0, 0\) writes y_ptr, but its array is read-only"):
        copy(y, x)
    copy(y, x, m=0)  # Nothing is written.
    shared = array(16)
    view = shared[:]
    view.flags.writeable = False
    with pytest.raises(MemoryAccessError, match="read-only"):
        copy(shared[:8], view[8:])
    copy(view[:8], shared[8:])  # Their memory is one region.
    assert shared[8:].tolist() == shared[:8].tolist()


def test_the_program_is_named():
    text = """
tt.func @"k" (%x : ptr<i32>)void -> {
    %a : i32 = tt.get_program_id @0;
    %b : i32 = tt.get_program_id @1;
    %n : i32 = tt.get_num_programs @0;
    %c : i32 = arith.muli %b %n;
    %d : i32 = arith.addi %a %c;
    %p : ptr<i32> = tt.addptr %x %d;
    tt.store %p %d;
    tt.return;
};"""
    x = np.full(10, -1, np.int32)
    with pytest.raises(MemoryAccessError, match=r"program \(1, 3, 0\) writes x_ptr\[10\], but x_ptr has 10 elements"):
        run(parse(text), None, (3, 4), [x], names=["x_ptr"])
    assert x.tolist() == list(range(10))  # The programs before it have done their work.


def test_pointers_keep_their_argument_through_loops_and_tuples():
    text = """
tt.func @"k" (%x : ptr<f32>, %y : ptr<f32>)void -> {
    %a : i32 = arith.constant @0;
    %b : i32 = arith.constant @4;
    %c : i32 = arith.constant @1;
    %t : Tuple<ptr<f32>, ptr<f32>> = scf.for %a %b %c %x %y
        (%i : i32, %p : ptr<f32>, %q : ptr<f32>)Tuple<ptr<f32>, ptr<f32>> -> {
            %v : f32 = tt.load %p;
            tt.store %q %v;
            %p1 : ptr<f32> = tt.addptr %p %c;
            %q1 : ptr<f32> = tt.addptr %q %c;
            scf.yield %p1 %q1;
        };
    %z : ptr<f32> = tuple.load %t @1;
    %w : f32 = tt.load %z;
    tt.return;
};"""
    x, y = array(4), np.zeros(4, np.float32)
    with pytest.raises(MemoryAccessError, match=r"reads out\[4\], but out has 4 elements"):
        run(parse(text), None, (1,), [x, y], names=["in", "out"])
    assert y.tolist() == x.tolist()


def test_a_choice_between_pointers():
    text = """
tt.func @"k" (%x : ptr<f32>, %y : ptr<f32>, %c : i1, %o : i32)void -> {
    %p : ptr<f32> = arith.select %c %x %y;
    %q : ptr<f32> = tt.addptr %p %o;
    %v : f32 = arith.constant @9.0;
    tt.store %q %v;
    tt.return;
};"""
    x, y = np.zeros(2, np.float32), np.zeros(2, np.float32)
    run(parse(text), None, (1,), [x, y, True, 1])
    run(parse(text), None, (1,), [x, y, False, 0])
    assert (x.tolist(), y.tolist()) == ([0, 9], [9, 0])
    with pytest.raises(MemoryAccessError, match=r"writes a\[1048576\], but a has 2 elements"):
        run(parse(text), None, (1,), [x, y, True, 1 << 20], names=["a", "b", "c", "o"])


def test_pointers_from_memory():
    text = """
tt.func @"k" (%table : ptr<i64>, %x : ptr<f32>, %y : ptr<f32>)void -> {
    %r : tensor<x2, i32> = tt.make_range @start=0 @end=2;
    %ts : tensor<x2, ptr<i64>> = tt.splat %table;
    %tp : tensor<x2, ptr<i64>> = tt.addptr %ts %r;
    %n : tensor<x2, i64> = tt.load %tp;
    %p : tensor<x2, ptr<f32>> = tt.int_to_ptr %n;
    %v : tensor<x2, f32> = tt.load %p;
    %w : tensor<x2, f32> = arith.addf %v %v;
    tt.store %p %w;
    %back : tensor<x2, i64> = tt.ptr_to_int %p;
    tt.store %tp %back;
    tt.return;
};"""
    x, y = array(4) + 1, array(4) + 10
    table = np.array([y.ctypes.data + 4, x.ctypes.data + 8], np.int64)
    before = table.copy()
    run(parse(text), None, (1,), [table, x, y])
    assert (x.tolist(), y.tolist()) == ([1, 2, 6, 4], [10, 22, 12, 13])
    assert table.tolist() == before.tolist()
    table[0] = 4096
    with pytest.raises(MemoryAccessError, match=r"reads address 0x1000, which is in no array of the launch"):
        run(parse(text), None, (1,), [table, x, y])
    table[0] = x.ctypes.data + 2
    with pytest.raises(MemoryAccessError, match="address"):
        run(parse(text), None, (1,), [table, x, y])


def test_bitcast_of_a_pointer():
    text = """
tt.func @"k" (%x : ptr<f32>, %y : ptr<i32>)void -> {
    %p : ptr<i32> = tt.bitcast %x;
    %v : i32 = tt.load %p;
    tt.store %y %v;
    tt.return;
};"""
    y = np.zeros(1, np.int32)
    run(parse(text), None, (1,), [np.float32([1.0]), y])
    assert y.tolist() == [0x3F800000]


@pytest.mark.parametrize("type_", ["i1", "i8", "u16", "i64", "f16", "bf16", "f8e4m3", "f8e5m2", "f64"])
def test_every_type_goes_through_memory(apply, values, type_):
    a = values(type_)
    a = a[: 1 << (len(a).bit_length() - 1)]
    actual = apply(f"    %z : {type_} = tt.poison;\n    %y0 : tensor<x{len(a)}, {type_}> = tt.reshape %a;",
                  [(type_, a)], [(type_, a.shape)])  # fmt: skip
    assert actual.tobytes() == a.tobytes()


def test_other_and_strict_mode():
    text = """
tt.func @"k" (%x : ptr<f32>, %y : ptr<f32>, %n : ptr<i32>, %m : ptr<i32>)void -> {
    %r : tensor<x4, i32> = tt.make_range @start=0 @end=4;
    %two : tensor<x4, i32> = arith.constant @2;
    %mask : tensor<x4, i1> = arith.cmpi %r %two @slt;
    %xs : tensor<x4, ptr<f32>> = tt.splat %x;
    %xp : tensor<x4, ptr<f32>> = tt.addptr %xs %r;
    %u : tensor<x4, f32> = tt.load %xp %mask;
    %o : tensor<x4, f32> = arith.constant @7.0;
    %v : tensor<x4, f32> = tt.load %xp %mask %o;
    %w : tensor<x4, f32> = arith.addf %u %v;
    %ys : tensor<x4, ptr<f32>> = tt.splat %y;
    %yp : tensor<x4, ptr<f32>> = tt.addptr %ys %r;
    tt.store %yp %w;
    %ns : tensor<x4, ptr<i32>> = tt.splat %n;
    %np : tensor<x4, ptr<i32>> = tt.addptr %ns %r;
    %i : tensor<x4, i32> = tt.load %np %mask;
    %ms : tensor<x4, ptr<i32>> = tt.splat %m;
    %mp : tensor<x4, ptr<i32>> = tt.addptr %ms %r;
    tt.store %mp %i;
    tt.return;
};"""
    y, m = np.zeros(4, np.float32), np.zeros(4, np.int32)
    run(parse(text), None, (1,), [np.float32([1, 2]), y, np.int32([5, 6]), m])
    np.testing.assert_array_equal(y, [2, 4, 7.0, 7.0])
    assert m.tolist() == [5, 6, 0, 0]
    with pytest.raises(KernelRuntimeError, match="stores an undefined element"):
        run(parse(text), None, (1,), [np.float32([1, 2]), y, np.int32([5, 6]), m], strict=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([np.zeros(8), array(8), 1, 1, 8], "x_ptr must be an array of float32 for ptr<f32>; got float64"),
        ([[1.0], array(8), 1, 1, 8], "x_ptr must be a NumPy array of float32 for ptr<f32>; got list"),
        ([array(8), array(8), 1.5, 1, 8], "sx must be a number of type i32; got 1.5"),
        ([array(8), array(8), 1 << 40, 1, 8], "sx must fit in i32; got 1099511627776"),
        ([array(8), array(8), 1, 1], "the kernel takes 5 argument(s); got 4"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit(arguments, message):
    with pytest.raises(LaunchError, match=re.escape(message)):
        run(parse(COPY), None, (1,), arguments, names=NAMES)


def test_arrays_that_are_not_aligned():
    raw = np.zeros(40, np.uint8)
    with pytest.raises(LaunchError, match="x_ptr must be aligned"):
        copy(raw[1:33].view(np.float32), array(8))


@pytest.mark.parametrize("grid", [(), (1, 1, 1, 2), (-1,)])
def test_grids_that_do_not_fit(grid):
    with pytest.raises(LaunchError, match="must be one to three sizes"):
        run(parse(COPY), None, grid, [array(8), array(8), 1, 1, 8])


def test_an_empty_grid_does_nothing():
    y = np.zeros(8, np.float32)
    run(parse(COPY), None, (3, 0), [array(8), y, 1, 1, 8])
    assert not y.any()


DESCRIPTOR = """
tt.func @"k" (%x : ptr<f32>, %y : ptr<f32>, %h : i32, %w : i32, %s : i64, %i : i32, %j : i32)void -> {
    %one : i64 = arith.constant @1;
    %d : TYPE = tt.make_tensor_descriptor %x %h %w %s %one @padding=PADDING;
    %e : descriptor<x4, x4, f32> = tt.make_tensor_descriptor %y %h %w %s %one;
    %v : tensor<x4, x4, f32> = tt.descriptor_load %d %i %j;
    %z : i32 = arith.constant @1;
    tt.descriptor_store %e %v %z %z;
    tt.return;
};"""


def descriptor_model(padding):
    """The model above for one padding, which the type has too."""
    type_ = DescriptorType((4, 4), f32, padding)
    return parse(DESCRIPTOR.replace("PADDING", padding).replace("TYPE", str(type_)))


@pytest.mark.parametrize("padding", ["zero", "nan"])
@pytest.mark.parametrize(("i", "j"), [(0, 0), (3, 4), (-2, -1)])
def test_descriptors(padding, i, j):
    x, y = array(5, 6) + 1, np.zeros((5, 6), np.float32)
    run(descriptor_model(padding), None, (1,), [x, y, 5, 6, 6, i, j])
    wide = np.pad(x, 8, constant_values=0 if padding == "zero" else np.nan)
    expected = np.zeros((5, 6), np.float32)
    expected[1:5, 1:5] = wide[8 + i : 12 + i, 8 + j : 12 + j]
    np.testing.assert_array_equal(y, expected)


def test_a_descriptor_larger_than_its_array():
    with pytest.raises(MemoryAccessError, match=r"reads x\[30\], but x has 30 elements"):
        run(
            descriptor_model("zero"),
            None,
            (1,),
            [array(5, 6), array(5, 6), 7, 6, 6, 2, 0],
            names=[*"xyhwsij"],
        )


LOAD = """
tt.func @"k" (%x : ptr<f32>, %y : ptr<f32>, %n : i64)void -> {
    %p : ptr<f32> = tt.addptr %x %n;
    %v : f32 = tt.load %p;
    tt.store %y %v;
    tt.return;
};"""


def load(x, n):
    y = np.zeros(1, np.float32)
    run(parse(LOAD), None, (1,), [x, y, n], names=["x", "y", "n"])
    return y[0]


def test_a_sparse_view_takes_no_memory():
    spread = np.lib.stride_tricks.as_strided(array(2) + 1, (2,), (1 << 40,))
    assert load(spread, 0) == 1
    with pytest.raises(MemoryAccessError, match=r"reads x\[1\], but that is no element of x"):
        load(spread, 1)
    sparse = np.zeros(1 << 24, np.float32)[:: 1 << 16]
    sparse[3] = 7
    tracemalloc.start()
    try:
        assert load(sparse, 3 << 16) == 7
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def elements(view, whole):
    """For each element of a buffer, whether a view has it."""
    marks = np.zeros(whole.size, np.bool_)
    offset = (view.ctypes.data - whole.ctypes.data) // 4
    for place in np.ndindex(view.shape):
        marks[offset + sum(i * s // 4 for i, s in zip(place, view.strides, strict=True))] = True
    return marks


WHOLE = array(4 * 6 * 8)
CUBE = WHOLE.reshape(4, 6, 8)
WINDOWS = np.lib.stride_tricks.sliding_window_view(WHOLE, 5)


@pytest.mark.parametrize(
    "view",
    [
        CUBE, CUBE[:, :, 2:5], CUBE[::2, 1:4, ::3], CUBE[:, ::-1, 1:], CUBE[::-2, :, ::-2], CUBE[1, :, 3],
        CUBE.transpose(2, 0, 1)[1:4], CUBE[:, 2:3, 4:5], np.broadcast_to(CUBE[:, :1, :2], (4, 5, 2)),
        WINDOWS[::3], WINDOWS[::9], WINDOWS[3:4, ::2],
    ],
    ids=range(12),
)  # fmt: skip
def test_the_elements_of_a_view(view):
    region = ArgumentRegion([ArrayArgument(0, "x", view), ArrayArgument(1, "y", WHOLE[:2])])
    offsets = WHOLE.ctypes.data + 4 * np.arange(WHOLE.size) - region.base
    expected = elements(view, WHOLE) | elements(WHOLE[:2], WHOLE)
    assert (~region.missing(offsets, 4) == expected).all()
    pairs = expected[0::2] & expected[1::2]
    assert (~region.missing(offsets[0::2], 8) == pairs).all()


def test_huge_integers_are_launch_errors():
    with pytest.raises(LaunchError, match="n must fit in i64; got an integer of 16610 bits"):
        load(array(1), 10**5000)
    model = parse('tt.func @"k" (%x : f32)void -> { tt.return; };')
    with pytest.raises(LaunchError, match="arg0 must fit in f32; got 1000"):
        run(model, None, (1,), [10**400])
    with pytest.raises(LaunchError, match="must be one to three sizes, integers from 0 to 2147483647; got a tuple"):
        run(model, None, (10**5000,), [1])


def test_a_tensor_too_large_for_the_memory_is_an_error(monkeypatch):
    def no_memory(*_):
        raise MemoryError("Unable to allocate 4.00 TiB")

    monkeypatch.setattr(tensors, "expand", no_memory)
    model = parse("""
    tt.func @"k" ()void -> {
        %r : tensor<x16, i32> = tt.make_range @start=0 @end=16;
        %a : tensor<x4, x4, i32> = tt.reshape %r @loc="7:4:7:20:kernel.py";
        tt.return;
    };""")
    with pytest.raises(KernelRuntimeError, match="the memory of this machine is too small for the tensors") as error:
        run(model, None, (2,), [])
    assert error.value.location.line == 7


def test_models_of_other_tiers_are_refused():
    model = parse(
        'module ()void -> { tt.func @"f" ()void -> { %0 : object = constant @1; tt.return; }; unreachable; };'
    )
    with pytest.raises(
        LaunchError, match=r"the model must be a Triton model, or .*; 'constant' is an op of another tier"
    ):
        run(model, None, (1,), [])


def test_offsets_below_the_address_zero_keep_their_argument():
    """A heap may lie at low addresses, and a wrong offset then leads below all of them."""
    low, other = (ArrayArgument(index, "xy"[index], array(4)) for index in (0, 1))
    memory = Memory([low, other], (1, 1, 1))
    for offset in (-(1 << 40), -low.address - 4, 0, 1 << 40):
        assert memory.argument_of(low.pointer + offset) is low and memory.argument_of(other.pointer + offset) is other
    assert memory.argument_of(low.address) is None and memory.argument_of(0) is None
    pointers = np.array([low.pointer, other.pointer + 4, low.address])
    assert real_addresses(pointers).tolist() == [low.address, other.address + 4, low.address]
