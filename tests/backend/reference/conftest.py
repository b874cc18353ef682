"""Fixtures that build kernels from text, for the tests of the reference interpreter."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from ziggurat.backend.reference.run import run
from ziggurat.backend.reference.values import element_dtype
from ziggurat.codemodel import dialects  # noqa: F401
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.type_reader import read_type
from ziggurat.codemodel.types import TensorType, TypeSyntax

Apply = Callable[..., Any]


def tensor(type_: str, shape: Sequence[int]) -> str:
    """The text of a tensor type, or of the scalar for the empty shape."""
    return f"tensor<{', '.join(f'x{n}' for n in shape)}, {type_}>" if shape else type_


def pointers(name: str, source: str, element: str, shape: Sequence[int], tag: str) -> str:
    """Text that declares %name: pointers to the elements of a row-major tensor at the pointer %source."""
    n = int(np.prod(shape))
    flat, ptr = tensor("i32", [n]), tensor(f"ptr<{element}>", [n])
    return f"""
    %{tag}r : {flat} = tt.make_range @start=0 @end={n};
    %{tag}b : {ptr} = tt.splat %{source};
    %{tag}p : {ptr} = tt.addptr %{tag}b %{tag}r;
    %{name} : {tensor(f"ptr<{element}>", shape)} = tt.reshape %{tag}p;"""


def element_of_text(type_: str) -> str:
    return type_


def kernel_text(
    body: str, inputs: list[tuple[str, tuple[int, ...]]], outputs: list[tuple[str, tuple[int, ...]]]
) -> str:
    """A kernel that loads the inputs as %a, %b, …, runs the body, and stores its %y0, %y1, …"""
    parameters = [f"%p{i} : ptr<{t}>" for i, (t, _) in enumerate([*inputs, *outputs])]
    lines = [f'tt.func @"kernel" ({", ".join(parameters)})void -> {{']
    for i, (type_, shape) in enumerate(inputs):
        name = "abcdef"[i]
        if shape:
            lines.append(pointers(f"{name}_ptr", f"p{i}", type_, shape, f"{name}_"))
            lines.append(f"    %{name} : {tensor(type_, shape)} = tt.load %{name}_ptr;")
        else:
            lines.append(f"    %{name} : {type_} = tt.load %p{i};")
    lines.append(body)
    for j, (type_, shape) in enumerate(outputs):
        i = len(inputs) + j
        if shape:
            lines.append(pointers(f"y{j}_ptr", f"p{i}", type_, shape, f"y{j}_"))
            lines.append(f"    tt.store %y{j}_ptr %y{j};")
        else:
            lines.append(f"    tt.store %p{i} %y{j};")
    return "\n".join([*lines, "    tt.return;", "};"])


def dtype_of(type_: str) -> np.dtype:
    return element_dtype(read_type(TypeSyntax(type_)))


@pytest.fixture
def apply() -> Apply:
    """`apply(body, [("f32", array), …], [("f32", shape), …])`: run a kernel of one program. Returns its outputs."""

    def call(body, inputs, outputs, **options):
        shapes = [(t, np.shape(a)) for t, a in inputs]
        model = parse(kernel_text(body, shapes, outputs))
        arrays = [np.array(a, dtype_of(t)) for t, a in inputs]
        results = [np.zeros(shape, dtype_of(t)) for t, shape in outputs]
        run(model, None, (1,), [*arrays, *results], **options)
        return results[0] if len(results) == 1 else results

    return call


@pytest.fixture
def elementwise(apply) -> Apply:
    """`elementwise("arith.addi", ["i8", "i8"], "i8", [a, b])`: one op on arrays of any length, without warnings."""

    def call(op, types, result, arrays, attributes=""):
        arrays = [np.asarray(a, dtype_of(t)).ravel() for a, t in zip(arrays, types, strict=True)]
        count = max(a.size for a in arrays)
        size = 1 << (count - 1).bit_length() if count > 1 else 1
        padded = [np.concatenate([a, np.full(size - count, a[-1], a.dtype)]) for a in arrays]
        operands = " ".join(f"%{'abc'[i]}" for i in range(len(types)))
        body = f"    %y0 : {tensor(result, [size])} = {op} {operands} {attributes};"
        return apply(body, list(zip(types, padded, strict=True)), [(result, (size,))])[:count]

    return call


@pytest.fixture
def values() -> Callable[[str], np.ndarray]:
    """Test values of a type: all of an 8-bit type, the extremes and some others of a wider type."""

    def of(type_):
        dtype = dtype_of(type_)
        if type_ == "i1":
            return np.array([False, True])
        if dtype.itemsize == 1:
            return np.arange(256, dtype=np.uint8).view(dtype)
        if dtype.kind in "iu":
            info = np.iinfo(dtype)
            some = [info.min, info.min + 1, -7 if info.min else 7, 0, 1, 2, 3, 10, 100, info.max // 3, info.max - 1]
            return np.array([*some, info.max, *([-1, -2, -100] if info.min else [])], dtype)
        limits = np.finfo(dtype) if dtype.kind == "f" else __import__("ml_dtypes").finfo(dtype)
        tiny, small, large = (float(x) for x in (limits.smallest_subnormal, limits.smallest_normal, limits.max))
        some = [0.0, 1.0, 1.5, 3.0, 0.1, 7.25, 100.0, tiny, 3 * tiny, small, large, large / 2, np.inf, np.nan]
        return np.array([*some, *(-x for x in some)], np.float64).astype(dtype)

    return of


@pytest.fixture
def pairs(values) -> Callable[[str], tuple[np.ndarray, np.ndarray]]:
    """All pairs of the test values of a type."""

    def of(type_):
        a = values(type_)
        return np.repeat(a, len(a)), np.tile(a, len(a))

    return of


@pytest.fixture
def tensor_text() -> Callable[[str, Sequence[int]], str]:
    assert read_type(TypeSyntax("i32")) is not TensorType
    return tensor
