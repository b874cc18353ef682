"""Making, shaping and multiplying tensors, against NumPy."""

import numpy as np
import pytest

from ziggurat.codemodel.errors import KernelRuntimeError

A = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def test_shapes(apply):
    body = """
    %y0 : tensor<x4, x6, f32> = tt.reshape %a;
    %y1 : tensor<x4, x2, x3, f32> = tt.trans %a @order=[2, 0, 1];
    %e : tensor<x2, x3, x1, x4, f32> = tt.expand_dims %a @2;
    %y2 : tensor<x2, x3, x5, x4, f32> = tt.broadcast %e;
    %y3 : tensor<x2, x3, x4, x2, f32> = tt.join %a %a;
    %y4 : tensor<x4, x3, x4, f32> = tt.cat %a %a;"""
    shapes = [(4, 6), (4, 2, 3), (2, 3, 5, 4), (2, 3, 4, 2), (4, 3, 4)]
    actual = apply(body, [("f32", A)], [("f32", shape) for shape in shapes])
    wide = np.broadcast_to(A[:, :, None], (2, 3, 5, 4))
    expected = [A.reshape(4, 6), A.transpose(2, 0, 1), wide, np.stack([A, A], -1), np.concatenate([A, A])]
    for got, want in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(got, want)


def test_splat_of_one_value_survives_every_shape_op(apply):
    body = """
    %s : tensor<x2, x4, i32> = tt.splat %a;
    %y0 : tensor<x8, i32> = tt.reshape %s;
    %y1 : tensor<x4, x4, i32> = tt.cat %s %s;
    %j : tensor<x2, x4, x2, i32> = tt.join %s %s;
    %t : Tuple<tensor<x2, x4, i32>, tensor<x2, x4, i32>> = tt.split %j;
    %y2 : tensor<x2, x4, i32> = tuple.load %t @1;
    %z : tensor<x4, x2, i32> = tt.trans %s @order=[1, 0];
    %w : tensor<x2, x2, i32> = arith.constant @1;
    %v : Tuple<tensor<x2, i32>, tensor<x2, i32>> = tt.split %w;
    %y3 : tensor<x2, i32> = tuple.load %v @1;"""
    actual = apply(body, [("i32", 7)], [("i32", s) for s in [(8,), (4, 4), (2, 4), (2,)]])
    assert [np.unique(x).tolist() for x in actual] == [[7], [7], [7], [1]]


def test_split_undoes_join(apply):
    body = """
    %j : tensor<x4, x2, f32> = tt.join %a %b;
    %t : Tuple<tensor<x4, f32>, tensor<x4, f32>> = tt.split %j;
    %y0 : tensor<x4, f32> = tuple.load %t @0;
    %y1 : tensor<x4, f32> = tuple.load %t @1;
    %y2 : tensor<x2, f32> = tt.join %c %d;"""
    a, b = np.float32([1, 2, 3, 4]), np.float32([5, 6, 7, 8])
    inputs = [("f32", a), ("f32", b), ("f32", 1.5), ("f32", 2.5)]
    actual = apply(body, inputs, [("f32", (4,)), ("f32", (4,)), ("f32", (2,))])
    assert [x.tolist() for x in actual] == [a.tolist(), b.tolist(), [1.5, 2.5]]


def test_gather(apply):
    source = np.arange(12, dtype=np.float32).reshape(3, 4)
    index = np.array([[0, 3], [2, 2], [1, 0]], np.int32)
    body = "    %y0 : tensor<x3, x2, f32> = tt.gather %a %b @axis=1;"
    actual = apply(body, [("f32", source), ("i32", index)], [("f32", (3, 2))])
    np.testing.assert_array_equal(actual, np.take_along_axis(source, index, 1))
    with pytest.raises(KernelRuntimeError, match="gathers at index 4; it must be from 0 to 3"):
        apply(body, [("f32", source), ("i32", index + 1)], [("f32", (3, 2))])


def test_histogram(apply):
    numbers = np.array([0, 1, 1, 3, 7, -1, 4, 3], np.int32)
    mask = np.array([1, 1, 1, 1, 1, 1, 0, 0], bool)
    body = """
    %y0 : tensor<x4, i32> = tt.histogram %a @bins=4;
    %y1 : tensor<x4, i32> = tt.histogram %a %b @bins=4;"""
    actual = apply(body, [("i32", numbers), ("i1", mask)], [("i32", (4,))] * 2)
    assert [x.tolist() for x in actual] == [[1, 2, 0, 2], [1, 2, 0, 1]]


def dot(apply, a, b, c, types, precision="default"):
    shapes = [", ".join(f"x{n}" for n in x.shape) for x in (a, b, c)]
    body = f"    %y0 : tensor<{shapes[2]}, {types[2]}> = tt.dot %a %b %c @input_precision={precision};"
    return apply(body, list(zip(types, (a, b, c), strict=True)), [(types[2], c.shape)])


@pytest.mark.parametrize("types", [("f16", "f16", "f32"), ("bf16", "bf16", "f32"), ("f8e4m3", "f8e4m3", "f32"),
                                   ("f8e5m2", "f8e5m2", "f32"), ("f16", "f16", "f16"), ("f32", "f32", "f32"),
                                   ("f64", "f64", "f64"), ("i8", "i8", "i32"), ("u8", "u8", "i32")])  # fmt: skip
@pytest.mark.parametrize("batch", [(), (3,)])
def test_dot_of_small_integers_is_exact(apply, types, batch):
    rng = np.random.default_rng(0)
    low = 0 if types[0] == "u8" else -4
    a, b, c = (rng.integers(low, 5, (*batch, *s)).astype(float) for s in [(4, 8), (8, 2), (4, 2)])
    np.testing.assert_array_equal(dot(apply, a, b, c, types).astype(float), a @ b + c)


def test_dot_of_extreme_bytes_does_not_saturate(apply):
    a, b = np.full((1, 64), -128), np.full((64, 1), -128)
    assert dot(apply, a, b, np.full((1, 1), 1), ("i8", "i8", "i32")).tolist() == [[64 * 128 * 128 + 1]]


def test_dot_precisions(apply):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 16, 16)).astype(np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    zero = np.zeros((16, 16), np.float32)
    error = {
        p: np.abs(dot(apply, a, b, zero, ("f32",) * 3, p) - exact).max() for p in ("ieee", "default", "tf32", "tf32x3")
    }
    assert error["ieee"] == error["default"] < 1e-5
    assert 1e-4 < error["tf32"] < 2e-2
    assert error["tf32x3"] < 1e-5


@pytest.mark.parametrize("precision", ["tf32x3", "bf16x3", "bf16x6"])
def test_an_infinity_in_parts_stays_one(apply, precision):
    a, b = np.array([[1.0, np.inf]], np.float32), np.array([[3.0, 3.0], [2.0, 0.0]], np.float32)
    actual = dot(apply, a, b, np.ones((1, 2), np.float32), ("f32",) * 3, precision)
    np.testing.assert_array_equal(actual, [[np.inf, np.nan]])


@pytest.mark.parametrize("type_", ["u8", "u16", "u32", "u64"])
def test_mulhi(elementwise, pairs, type_):
    a, b = pairs(type_)
    bits = int(type_[1:])
    expected = [(p * q) >> bits for p, q in zip(a.tolist(), b.tolist(), strict=True)]
    assert elementwise("tt.mulhiui", [type_, type_], type_, [a, b]).tolist() == expected


def test_inline_assembly_is_refused(apply):
    body = '    %y0 : tensor<x2, i32> = tt.elementwise_inline_asm %a @asm="mov $0, $1;" @constraints="=r,r";'
    with pytest.raises(KernelRuntimeError, match="inline assembly cannot be interpreted"):
        apply(body, [("i32", [1, 2])], [("i32", (2,))])
