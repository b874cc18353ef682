"""The CPU dialect: its ops refuse what their rules do not allow, with a message."""

from __future__ import annotations

import pytest

import ziggurat as zg

GOOD = """cpu.module @vector=64 @scratch=512 ()void -> {
    tt.func @"kernel" (%0 : ptr<f32>, %1 : i32, %2 : i64, %3 : i1)void -> {
        %4 : buffer<x4, x8, f32> = cpu.alloc @offset=0;
        %5 : buffer<x4, x8, f32> = cpu.alloc @offset=128;
        %6 : buffer<x8, x8, f32> = cpu.alloc @offset=256;
        %7 : buffer<x16, i32> = cpu.alloc;
        %8 : access<x4, x8, f32> = cpu.access %0 %3 %2 %2 %2 %2;
        cpu.region @shape=[4, 8] @axis=1 ()void -> {
            %10 : tensor<x4, x8, ptr<f32>> = tt.splat %0;
            %11 : tensor<x4, x8, i1> = tt.splat %3;
            %12 : tensor<x4, x8, f32> = cpu.load %8 %10 %11;
            %13 : tensor<x4, x8, f32> = cpu.get %4;
            cpu.put %5 %13;
            cpu.store %8 %10 %12 %11;
            %14 : tensor<x4, f32> = tt.reduce %12 @axis=1 (%15 : f32, %16 : f32)f32 -> {
                %17 : f32 = arith.addf %15 %16;
                tt.reduce.return %17;
            };
            cpu.put %4 %14 @start=3;
            %18 : tensor<x4, x8, i32> = tt.splat %1;
            cpu.count %7 %18 %11;
            cpu.end;
        };
        %24 : buffer<x16, i32> = cpu.alloc;
        cpu.sort %7 %24;
        cpu.copy %4 %5;
        cpu.dot %4 %6 %5;
        cpu.scan %4 %5 @axis=1 (%20 : f32, %21 : f32, %22 : f32, %23 : f32)Tuple<f32, f32> -> {
            tt.scan.return %20 %23;
        };
        tt.return;
    };
    unreachable;
};
"""

BAD = (
    ("@vector=64", "@vector=24", "vectors have 16, 32 or 64 bytes; got 24"),
    ("@offset=256", "@offset=320", "buffer<x8, x8, f32> at 320 is not in 512 bytes"),
    ("@offset=128", "@offset=132", "is not in 512 bytes, or not 64-byte aligned"),
    ("%3 %2 %2 %2 %2", "%3 %2 %2 %1 %2", "operand 'counts' of cpu.access must be i64; got"),
    ("cpu.access %0 %3", "cpu.access %0 %1", "operand 'guard' of cpu.access must be i1; got i32"),
    ("access<x4, x8, f32> = cpu", "access<x4, x8, f16> = cpu", "the base of access<x4, x8, f16> cannot be ptr<f32>"),
    ("%12 : tensor<x4, x8, f32> = cpu.load %8", "%12 : tensor<x4, x8, f32> = cpu.load %4", "cpu.load takes an access"),
    ("cpu.load %8 %10", "cpu.load %8 %11", "tensor<x4, x8, i1> are no pointers of access<x4, x8, f32>"),
    ("cpu.load %8 %10 %11", "cpu.load %8 %10 %11 %11", "cpu.load of access<x4, x8, f32>: other must be"),
    ("cpu.store %8 %10 %12", "cpu.store %8 %10 %11", "cpu.store stores tensor<x4, x8, f32>; got"),
    ("cpu.store %8 %10 %12 %11", "cpu.store %8 %10 %12 %12", "cpu.store: the mask has another shape"),
    ("@shape=[4, 8] @axis=1", "@shape=[4, 8] @axis=2", "the axis must be one of 2, or -1; got 2"),
    ("@shape=[4, 8] @axis=1", "@shape=[4, 8]", "a reduction in cpu.region must be of (4, 8), along its axis -1"),
    ("@shape=[4, 8] @axis=1", "@shape=[8, 4] @axis=1", "cpu.load in cpu.region must be of (8, 4); got (4, 8)"),
    ("@shape=[4, 8] @axis=1", "@shape=[] @axis=1", "cpu.region takes a shape of sizes; got ()"),
    ("cpu.get %4", "cpu.get %4 @start=1", "tensor<x4, x8, f32> reaches element 32 of buffer<x4, x8, f32>"),
    ("cpu.get %4", "cpu.get %4 @start=20 @strides=[-8, 1]", "reaches element -4 of buffer<x4, x8, f32>"),
    ("cpu.get %4", "cpu.get %4 @strides=[1]", "cpu.get takes a stride for each of the 2 axes"),
    ("cpu.get %4", "cpu.get %7", "tensor<x4, x8, f32> is not of the elements of buffer<x16, i32>"),
    ("cpu.get %4", "cpu.get %10", "cpu.get: the operand must be a buffer; got tensor<x4, x8, ptr<f32>>"),
    ("cpu.count %7 %18", "cpu.count %7 %12", "cpu.count takes integers; got tensor<x4, x8, f32>"),
    ("cpu.count %7", "cpu.count %6", "cpu.count counts in i32; got buffer<x8, x8, f32>"),
    ("cpu.count %7 %18 %11", "cpu.count %7 %18 %18", "cpu.count: the mask has another shape"),
    ("cpu.copy %4 %5", "cpu.copy %4 %6", "cpu.copy of buffer<x4, x8, f32> to buffer<x8, x8, f32>"),
    ("cpu.copy %4 %5", "cpu.copy %1 %1", "cpu.copy: the operand must be a buffer; got i32"),
    ("cpu.sort %7 %24", "cpu.sort %7 %7", "cpu.sort of buffer<x16, i32> needs another buffer of its type"),
    ("cpu.sort %7 %24", "cpu.sort %7 %4", "cpu.sort of buffer<x16, i32> needs another buffer of its type"),
    ("cpu.sort %7 %24", "cpu.sort %4 %5", "cpu.sort takes integers; got buffer<x4, x8, f32>"),
    ("cpu.dot %4 %6 %5", "cpu.dot %6 %4 %5", "the shapes do not fit"),
    ("cpu.dot %4 %6 %5", "cpu.dot %7 %7 %7", "matrices needed"),
    ("cpu.scan %4 %5", "cpu.scan %4 %6", "cpu.scan takes buffers of one shape; got [(4, 8), (8, 8)]"),
    ("cpu.scan %4 %5 @axis=1", "cpu.scan %4 %5 @axis=2", "there is no axis 2 in buffer<x4, x8, f32>"),
    ("cpu.scan %4 %5", "cpu.scan %4", "the body of cpu.scan takes two of each element"),
    ("tt.scan.return %20 %23", "tt.scan.return %20", "cpu.scan"),
)


def test_a_good_model():
    model = zg.parse(GOOD)
    zg.verify(model)
    assert zg.same_model(zg.parse(str(model)), model)


@pytest.mark.parametrize(("good", "bad", "message"), BAD, ids=[bad for _, bad, _ in BAD])
def test_a_bad_model_is_refused(good, bad, message):
    assert GOOD.count(good) == 1
    with pytest.raises(zg.ZigguratError) as error:
        zg.verify(zg.parse(GOOD.replace(good, bad)))
    assert message in str(error.value)


def test_an_access_of_a_load_is_the_result_of_one():
    with pytest.raises(zg.ZigguratError, match=r"the access must be the result of a cpu\.access"):
        zg.verify(
            zg.parse(GOOD.replace("%3 : i1)", "%3 : i1, %9 : access<x4, x8, f32>)").replace("load %8", "load %9"))
        )
