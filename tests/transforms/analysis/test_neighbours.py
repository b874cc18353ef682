"""The axes along which pointers mostly step by one element: a guess that decides ties of layouts."""

import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.layout import Layout
from ziggurat.transforms.analysis.neighbours import steps_by_one
from ziggurat.transforms.gpu.gpu_passes import place

CASES = {
    "x + r * s + c": (False, True),
    "x + r + c * s": (True, False),
    "x + r * s + c * t": (False, False),
    "x + (r % w) + c * s": (True, False),
    "x + (r // w) * s + (r % w) + c * t": (True, False),
    "x + (r // w) * s + c": (False, True),
    "x + r + c": (True, True),
    "x + r + r * s + c * t": (False, False),
    "x + zg.minimum(r, w) + c * s": (True, False),
    "x + zg.where(r < w, r, 0) + c * s": (True, False),
    "x + (r + w) * 1 + c * s": (True, False),
    "x + (c % w) + (r << 1)": (False, True),
    "x + (w % (r + 1)) + c * s": (False, False),
    "x + zg.reshape(zg.arange(0, 1024), (32, 32))": (False, False),
}


def pointers_of(expression: str, t: object = zg.i32) -> zg.Op:
    source = f"""
def kernel(x, out, s, t, w):
    r, c = zg.expand(zg.arange(0, 32), 1), zg.expand(zg.arange(0, 32), 0)
    zg.store(out + zg.arange(0, 32), zg.sum(zg.load({expression} + zg.zeros((32, 32), zg.i32)), axis=1))
"""
    kernel = zg.kernel(source=source)
    return kernel.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, t, zg.i32)


@pytest.mark.parametrize("expression", CASES)
def test_steps(expression: str) -> None:
    model = pointers_of(expression)
    (load,) = (op for op in model.walk() if isinstance(op, tt.Load))
    assert tuple(steps_by_one(load.ptr, axis) for axis in (0, 1)) == CASES[expression]


def test_lanes_lie_along_the_pixels_of_a_row() -> None:
    """Neither axis has known runs of neighbours; along the rows, columns of an image of unknown width follow."""
    module = place(pointers_of("x + (r // w) * s + (r % w) + c * t"), CompileOptions("sm_90a", 4))
    (load,) = (op for op in module.walk() if isinstance(op, tt.Load))
    layout = load.result.type.layout
    assert isinstance(layout, Layout) and layout.lanes == (32, 64, 128, 256, 512)


ROWS, COLUMNS = (32, 64, 128, 256, 512), (1, 2, 4, 8, 16)


@pytest.mark.parametrize(
    ("expression", "lanes"),
    [
        ("x + r * s + c * t", ROWS),
        ("x + c * s + r * t", COLUMNS),
        ("x + r * t + c * t", COLUMNS),
        ("x + r * 9 + c * s", COLUMNS),
        ("x + r * 64 + c * 4", COLUMNS),
        ("x + r * 4 + c * 64", ROWS),
        ("x + (r * 3 + w) * s + (c << 6)", COLUMNS),
        ("x + zg.trans(r * s) + zg.trans(c) * t", COLUMNS),
        ("x + zg.cast(r, zg.i64) * s + c * t", ROWS),
        ("x + (r % w) * t + c * s", COLUMNS),
    ],
)
def test_lanes_lie_along_the_axis_with_the_stride_of_the_smaller_divisor(expression: str, lanes: object) -> None:
    """In an array, the stride of an outer axis is a multiple of that of an inner one. `t` is divisible by 16."""
    module = place(pointers_of(expression, zg.divisible(zg.i32, 16)), CompileOptions("sm_90a", 4))
    (load,) = (op for op in module.walk() if isinstance(op, tt.Load))
    layout = load.result.type.layout
    assert isinstance(layout, Layout) and layout.lanes == lanes
