"""`compiled.origin` and `compiled.lines`: from machine text to the source and back."""

import inspect

import pytest
from explored_kernels import sums

import ziggurat as zg

POINTER = zg.divisible(zg.ptr(zg.f32), 16)


@pytest.fixture(scope="module", params=["sm_90a", "cpu"])
def compiled(request):
    return sums.compile(POINTER, POINTER, zg.i32, zg.f32, 4, 32, target=request.param)


def line_of(text):
    lines, first = inspect.getsourcelines(sums.fn)
    return first + next(number for number, line in enumerate(lines) if text in line)


def test_an_instruction_comes_from_a_line(compiled):
    store = line_of("zg.store(")
    use = compiled.lines(store)
    assert use.instructions and any(op.NAME == "tt.store" for op in use.ops["triton"])
    number, text = use.instructions[-1]
    origin = compiled.origin(number)
    assert origin.text == text and origin.place.line == store
    assert str(number) in str(use) and str(store) in str(origin)


def test_ops_and_passes_of_an_instruction():
    compiled = sums.compile(POINTER, POINTER, zg.i32, zg.f32, 4, 32)
    number = next(n for n, line in enumerate(compiled.ptx.splitlines(), 1) if "ld.global" in line)
    origin = compiled.origin(number)
    assert any(op.NAME == "tt.load" for op in origin.ops) and "assign" in origin.passes


def test_a_helpers_line_has_the_call_as_well(compiled):
    use = compiled.lines(line_of("scaled(zg.load("))
    assert use.instructions
    if compiled.code is None:
        assert any(op.NAME == "math.exp2" for op in use.ops["gpu"])


def test_lines_without_a_source(compiled):
    assert compiled.origin(1).place is None and "no line" in str(compiled.origin(1))
    for line in (0, -1, "1"):
        with pytest.raises(zg.LaunchError, match="has the lines 1 to"):
            compiled.origin(line)
    with pytest.raises(zg.KernelTypeError, match="must be a number; got 'a'"):
        compiled.lines("a")
    assert not compiled.lines(1).instructions


@zg.kernel
def product(a, b, c):
    row, column = zg.expand(zg.arange(0, 64), 1), zg.expand(zg.arange(0, 64), 0)
    at = row * 64 + column
    left, right = zg.load(a + at), zg.load(b + at)
    zg.store(c + at, zg.dot(left, right))


def test_instructions_of_inline_assembly_have_places():
    f16 = zg.divisible(zg.ptr(zg.f16), 16)
    compiled = product.compile(f16, f16, POINTER, target="sm_90a", num_warps=4)
    text = compiled.ptx.splitlines()
    begin = next(n for n, line in enumerate(text) if "wgmma.mma_async" in line)
    origin = compiled.origin(begin + 1)
    assert origin.place is not None and any(op.NAME == "gpu.wgmma" for op in origin.ops)
    lines, first = inspect.getsourcelines(product.fn)
    assert origin.place.line == first + next(n for n, line in enumerate(lines) if "zg.dot" in line)
    assert compiled.origin(next(n for n, line in enumerate(text, 1) if "end inline asm" in line)).place is None
