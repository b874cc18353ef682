"""Annotations of parameters in explicit kernels: types that an argument has, at every launch."""

from __future__ import annotations
import __future__

import linecache
import typing
from typing import Any

import numpy as np
import pytest
from libraries import require

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.codemodel.types import TensorType

BLOCK = TensorType((16,), zg.f32)


@zg.kernel
def scale(x, out, s: zg.f64):
    zg.store(out, zg.mul(zg.load(x), s))


@zg.kernel
def quoted(x, out, s: "zg.f64"):  # noqa: UP037
    zg.store(out, zg.mul(zg.load(x), s))


@zg.kernel
def integers(out, n: zg.i64, u: zg.u8, b: zg.i16 = 7):
    zg.static_assert(n.dtype == zg.i64 and u.dtype == zg.u8 and b.dtype == zg.i16)
    zg.store(out, n * n + zg.cast(u, zg.i64) + zg.cast(b, zg.i64))


@zg.kernel
def halves(x: zg.ptr(zg.f16), out, d: np.ndarray = None, t: anything = None, f: float = 1.0, i: int = 2):  # noqa: F821
    zg.store(out, zg.cast(zg.load(x), zg.f32) * f + zg.cast(i, zg.f32))


MODES = [{}, {}, {"interpret": True}, {"strict": True}]  # The second launch by native code is warm.


@pytest.mark.parametrize("kernel", [scale, quoted])
@pytest.mark.parametrize("number", [0.1, np.float32(0.1), np.float64(0.1), 3, True])
def test_a_number_has_the_declared_type(kernel: Any, number: Any):
    x, out = np.ones(1), np.zeros(1)
    for mode in MODES:
        out[:] = 0
        kernel[(1,)](x, out, number, **mode)
        assert out[0] == float(number)


@pytest.mark.parametrize("first", [(3, 4), (1 << 40, 200), (16, 16)])
def test_integers_must_fit_in_the_declared_type(first: tuple[int, int]):
    out = np.zeros(1, np.int64)
    for mode in MODES:
        integers[(1,)](out, *first, **mode)
        assert out[0] == np.int64((first[0] ** 2 + first[1] + 7) % 2**64)
        for n, u in ((1, 300), (1, -1), (1, 2.5), (1.5, 1), (1 << 63, 1)):
            with pytest.raises(zg.LaunchError, match=r"'[nu]' of 'integers' is declared as (i64|u8).*; got"):
                integers[(1,)](out, n, u, **mode)


def test_arrays_must_be_of_the_declared_type():
    out = np.zeros(1, np.float32)
    for mode in MODES:
        halves[(1,)](np.ones(1, np.float16), out, **mode)
        assert out[0] == 3
        with pytest.raises(zg.LaunchError, match="'x' of 'halves' is declared as ptr<f16>; got ptr<f32>"):
            halves[(1,)](np.ones(1, np.float32), out, **mode)
        with pytest.raises(zg.LaunchError, match="'x' of 'halves' is declared as ptr<f16>; got the number 3"):
            halves[(1,)](3, out, **mode)


def test_compilation_takes_the_declared_types():
    p = zg.ptr(zg.f64)
    assert "(%0 : ptr<f64>, %1 : ptr<f64>, %2 : f64)" in str(scale.triton(p, p))
    assert scale.triton(p, p, zg.f64) is scale.triton(p, p)
    with pytest.raises(zg.LaunchError, match="'s' of 'scale' is declared as f64; got f32"):
        scale.compile(p, p, zg.f32, target="sm_90a")


def test_types_that_no_argument_has_are_errors_at_the_annotation():
    @zg.kernel
    def wrong(x: BLOCK, out):
        zg.store(out, 1.0)

    words = "the annotation of 'x' must be the type of an argument; got tensor<x16"
    with pytest.raises(zg.KernelTypeError, match=words) as error:
        wrong[(1,)](np.ones(16, np.float32), np.ones(1, np.float32))
    assert error.value.location is not None and error.value.location.source_line().strip().startswith("def wrong")


def kernel_with(annotation: str, is_text: bool, decorator: str = "zg.kernel") -> Any:
    """A kernel that stores a number whose parameter has this annotation, which Python evaluates unless it is a text."""
    source = f"@{decorator}\ndef k(o, s: {annotation}):\n    zg.store(o, zg.cast(s, zg.f64))\n"
    if decorator == "triton.jit":
        source = source.replace("zg.store(o, zg.cast(s, zg.f64))", "tl.store(o, s)")
    file = f"<{decorator} {annotation} {is_text}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    flags = __future__.annotations.compiler_flag if is_text else 0
    names = {**vars(typing), "np": np, "zg": zg, "tl": tl, "triton": triton}
    if "torch" in annotation:
        names["torch"] = require("torch")
    exec(compile(source, file, "exec", flags, dont_inherit=True), names)
    return names["k"]


def launched(kernel: Any, **mode: Any) -> float:
    out = np.zeros(1)
    kernel[(1,)](out, 0.1, **mode)
    return out[0]


DECORATORS = pytest.mark.parametrize("decorator", ["zg.kernel", "triton.jit"])


@DECORATORS
@pytest.mark.parametrize("is_text", [False, True])
@pytest.mark.parametrize(
    "annotation",
    [
        "zg.f64",
        "tl.float64",
        "np.float64",
        "np.dtype('f8')",
        "torch.float64",
        "'zg.f64'",
        "'tl.float64'",
        "'np.float64'",
    ],
)
def test_dtypes_of_all_libraries_are_declarations(annotation: str, is_text: bool, decorator: str):
    if decorator == "triton.jit" and is_text and "(" in annotation:
        pytest.skip("Triton's Python reads the names of dtypes in texts")
    kernel = kernel_with(annotation, is_text, decorator)
    assert [launched(kernel, **mode) for mode in MODES] == [0.1] * len(MODES)


@DECORATORS
@pytest.mark.parametrize("is_text", [False, True])
@pytest.mark.parametrize(
    "annotation", ["Optional[zg.f64]", "Annotated[float, zg.f64]", "float | np.float64", "Union[tl.float64, None]"]
)
def test_a_dtype_inside_of_an_annotation_is_an_error(annotation: str, is_text: bool, decorator: str):
    with pytest.raises(zg.KernelTypeError, match="annotation of 's' must be the type of an argument; got") as error:
        launched(kernel_with(annotation, is_text, decorator))
    assert error.value.location.line == 2 and annotation in str(error.value)


@DECORATORS
@pytest.mark.parametrize(
    ("annotation", "hint"),
    [
        ("zg.f46", "did you mean zg.f64?"),
        ("'zg.f46'", "did you mean zg.f64?"),
        ("tl.flaot64", "did you mean tl.float64?"),
        ("Optional[zg.f46]", "did you mean zg.f64?"),
        ("zg.qqqqqq", "name a type alone: "),
    ],
)
def test_a_text_that_names_nothing_is_an_error(annotation: str, hint: str, decorator: str):
    with pytest.raises(zg.KernelTypeError, match="annotation of 's' must be the type of an argument; got") as error:
        launched(kernel_with(annotation, True, decorator))
    if decorator == "triton.jit":  # The hint has the names of the language of the kernel.
        hint = hint.replace("zg.f64", "tl.float64")
    else:
        hint = hint.replace("tl.float64", "zg.f64")
    assert error.value.hint.startswith(hint)


@pytest.mark.parametrize("is_text", [False, True])
@pytest.mark.parametrize(
    "annotation",
    [
        *("float", "int", "bool", "None", "Any", "np.ndarray", "np.ndarray[Any, np.dtype[np.float64]]", "np.floating"),
        *("np.dtype", "torch.Tensor", "torch.dtype", "Union[float, int]", "zg.TensorDescriptor"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_other_annotations_say_nothing(annotation: str, is_text: bool):
    assert launched(kernel_with(annotation, is_text)) == np.float32(0.1)


@zg.function
def quadruple(n):
    s: zg.i64 = n
    return s * 4


@zg.kernel
def by_dtypes(out, n, DTYPE: zg.constexpr = zg.i64):
    plain: zg.i64 = n
    text: "zg.i64" = n  # noqa: UP037
    foreign: np.int64 = n
    value: DTYPE = n
    number: int = n
    zg.static_assert(number.dtype == zg.i32)
    zg.store(out, plain * 4)
    zg.store(out + 1, text * 4)
    zg.store(out + 2, foreign * 4)
    zg.store(out + 3, value * 4)
    zg.store(out + 4, quadruple(n))
    SIZE: zg.constexpr = 8
    wide: zg.i64 = zg.arange(0, SIZE)
    zg.store(out + 5, zg.sum(zg.mul(wide, 2**31)))


@triton.jit
def variables_in_triton(out, n):
    s: tl.int64 = n
    tl.store(out, s * 4)


@zg.kernel
def misspelt(out, n):
    s: zg.i46 = n
    zg.store(out, s)


def test_a_variable_is_cast_to_the_dtype_of_its_annotation():
    for mode in MODES:
        out = np.zeros(6, np.int64)
        by_dtypes[(1,)](out, 2**30, **mode)
        np.testing.assert_array_equal(out, [2**32] * 5 + [28 * 2**31])
        out[:] = 1
        variables_in_triton[(1,)](out, 2**30, **mode)
        assert out[0] == 0  # Triton itself ignores the annotation.
        with pytest.raises(zg.KernelTypeError, match=r"of 's' must be .* got zg.i46") as error:
            misspelt[(1,)](out, 1, **mode)
        assert error.value.hint == "did you mean zg.i64?"
        assert error.value.location.source_line().strip() == "s: zg.i46 = n"


def test_annotations_see_the_function_around_the_kernel():
    wide = zg.f64

    @zg.kernel
    def inner(out, s: wide):
        zg.static_assert(wide == zg.f64)
        zg.store(out, s)

    out = np.zeros(1)
    inner[(1,)](out, 0.1)
    assert out[0] == 0.1


def test_operations_of_frameworks_convert_numbers():
    torch = require("torch")
    operation = zg.torch_op(scale, 1, outputs={"out": "x"})
    assert operation(torch.ones(1, dtype=torch.float64), 0.1).item() == 0.1


@pytest.mark.gpu
def test_launches_on_a_gpu_convert_numbers():
    x, out = zg.to_device(np.ones(1)), zg.to_device(np.zeros(1))
    whole = zg.to_device(np.zeros(1, np.int64))
    for _ in range(80):  # The later ones are by native code.
        scale[(1,)](x, out, 0.1)
        integers[(1,)](whole, 3, 4)
    assert out.numpy()[0] == 0.1 and whole.numpy()[0] == 20
    scale[(1,)](x, out, 3)
    assert out.numpy()[0] == 3
    for n, u in ((1, 300), (3, -1), (3, 2.5), (1.5, 4), (1 << 63, 4)):
        with pytest.raises(zg.LaunchError, match="is declared as"):
            integers[(1,)](whole, n, u)
    integers[(1,)](whole, 1 << 20, 255)
    assert whole.numpy()[0] == (1 << 40) + 262


@zg.kernel
def narrow(out, a: zg.i8, b: zg.u16, c: zg.i32, d: zg.u64):
    zg.store(out, zg.cast(a, zg.i64) + zg.cast(b, zg.i64) + zg.cast(c, zg.i64) + zg.cast(d, zg.i64))


LIMITS = [(-128, 127), (0, (1 << 16) - 1), (-(1 << 31), (1 << 31) - 1), (0, (1 << 64) - 1)]


@pytest.mark.parametrize("place", range(4))
def test_the_limits_of_declared_integers(place: int):
    out, numbers = np.zeros(1, np.int64), [1, 1, 1, 1]
    for mode in MODES:
        for fits, ends in ((True, LIMITS[place]), (False, (LIMITS[place][0] - 1, LIMITS[place][1] + 1))):
            for number in ends:
                arguments = [*numbers[:place], number, *numbers[place + 1 :]]
                if fits:
                    narrow[(1,)](out, *arguments, **mode)
                    assert out[0] == np.uint64(sum(arguments) % 2**64).astype(np.int64)
                elif -(1 << 63) <= number < 1 << 64:
                    with pytest.raises(zg.LaunchError, match="is declared as"):
                        narrow[(1,)](out, *arguments, **mode)
