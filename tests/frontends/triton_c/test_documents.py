"""The listings of the two documents, on the interpreter and as compiled code, against NumPy's float64."""

import re

import numpy as np
import pytest
import triton_c_listings as documents

import ziggurat as zg
from ziggurat.backend.ptx.sass import sass, tool

RANDOM = np.random.default_rng(0)
FLOATS = {"float": np.float32, "half": np.float16}


@pytest.fixture(scope="module")
def listings():
    return documents.listings()


def numbers(*shape: int, dtype: object = np.float32):
    return RANDOM.standard_normal(shape).astype(dtype)


def launched(kernel: zg.Kernel, grid: tuple[int, ...], *arguments: object, num_warps: int = 1) -> None:
    """Run on the interpreter, then the compiled code on the same arguments; the results must agree."""
    before = [value.copy() if isinstance(value, np.ndarray) else value for value in arguments]
    kernel[grid](*arguments)
    kernel.compile(num_warps=num_warps).simulate[grid](*before)
    for argument, other in zip(arguments, before, strict=True):
        if isinstance(argument, np.ndarray):
            np.testing.assert_allclose(
                argument.astype(np.float64), other.astype(np.float64), rtol=2e-2, atol=2e-2
            )  # TF32


def test_arrays_are_added_reduced_and_broadcast(listings):
    out = np.zeros((16, 32), np.float32)
    launched(zg.triton_c(listings["first"]), (1,), out)
    np.testing.assert_allclose(out, np.full((16, 32), 8 * (3.14 + 5.17)), rtol=1e-6)


def test_incompatible_shapes_are_rejected(listings):
    rejected = listings["first"].replace("// float z[8, 8] = x + y;", "float z1[8, 8] = x + y;")
    assert "float z1" in rejected
    with pytest.raises(zg.KernelTypeError, match=r"incompatible shapes: 'z1' must be \[8, 8\]; got \[16, 8\]") as error:
        zg.triton_c(rejected).triton()
    assert "float z1[8, 8] = x + y;" in str(error.value)


@pytest.mark.parametrize("name", ["add", "broadcast"])
def test_vector_addition(listings, name):
    a, b = numbers(96), numbers(96)
    c = np.zeros(96, np.float32)
    launched(zg.triton_c(listings[name]), (3,), 96, a, b, c)
    np.testing.assert_array_equal(c, a + b)


@pytest.mark.parametrize(
    ("type_", "size", "width"),
    [("float", 32, "b32"), ("float", 128, "v4.b32"), ("half", 256, "v4.b32")],
)
def test_widths_of_accesses_are_those_of_the_documents_table(listings, type_, size, width):
    """For a program of one warp, as the document counts: 8 halves are 4 words."""
    kernel = zg.triton_c(listings["macros"], TYPE=type_, SIZE=size)
    aligned = zg.divisible(zg.ptr(zg.f32 if type_ == "float" else zg.f16), 16)
    compiled = kernel.compile(zg.i32, aligned, aligned, aligned, num_warps=1)
    assert set(re.findall(r"ld\.global\.(\S+)", compiled.ptx)) == {width}
    a, b = numbers(2 * size, dtype=FLOATS[type_]), numbers(2 * size, dtype=FLOATS[type_])
    c = np.zeros_like(a)
    launched(kernel, (2,), 2 * size, a, b, c)
    np.testing.assert_array_equal(c, a + b)


@pytest.mark.parametrize("name", ["transpose", "multiple", "checked"])
@pytest.mark.parametrize("type_", FLOATS)
def test_transposition(listings, name, type_):
    rows, columns = (40, 24) if name == "checked" else (64, 32)
    x = numbers(columns, rows, dtype=FLOATS[type_])  # X is stored by columns: px = X + rm + rn * ldx.
    y = np.zeros((rows, columns), FLOATS[type_])
    kernel = zg.triton_c(listings[name], TYPE=type_, TM=32, TN=16)
    grid = (zg.cdiv(rows, 32), zg.cdiv(columns, 16))
    launched(kernel, grid, x, y, rows, columns, rows, columns)
    np.testing.assert_array_equal(y, x.T)


def test_multipleof_makes_accesses_of_columns_wide(listings):
    aligned = zg.divisible(zg.ptr(zg.f32), 16)

    def widths(name: str, source: str | None = None) -> set[str]:
        kernel = zg.triton_c(source or listings[name], TYPE="float", TM=32, TN=32)
        return set(re.findall(r"(?:ld|st)\.global\.(\S+)", kernel.compile(aligned, aligned).ptx))

    assert widths("transpose") == {"b32"}
    assert widths("multiple") == {"v4.b32"}
    assert widths("", listings["multiple"].replace("__multipleof(8)", "__multipleof(2)")) == {"v2.b32"}


@pytest.mark.parametrize("name", ["dot", "prefetched", "rematerialized"])
@pytest.mark.parametrize("type_", FLOATS)
def test_product(listings, name, type_):
    m, n, k = 64, 32, 48
    a, b = numbers(m, k, dtype=FLOATS[type_]), numbers(k, n, dtype=FLOATS[type_])
    c = np.zeros((m, n), FLOATS[type_])
    kernel = zg.triton_c(listings[name], TYPE=type_, TM=32, TN=32, TK=16)
    launched(kernel, (m // 32, n // 32), a, b, c, m, n, k, k, n, n, num_warps=4)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("where", ["language", "api"])
def test_fused_product_in_all_transpositions(listings, where, transpose_a, transpose_b):
    """The loop loads the tiles of one iteration too many, which must be memory: the arrays have a tile more."""
    m, n, k, tile = 64, 32, 48, 16
    source = listings["fused"] if where == "language" else documents.source_of_pytriton()
    macros = documents.macros_of_dot(transpose_a, transpose_b)
    assert len(macros) == 12
    a = numbers(*((k + tile, m) if transpose_a else (m + 1, k)))
    b = numbers(*((n + 1, k) if transpose_b else (k + tile, n)))
    c = np.zeros((m, n), np.float32)
    kernel = zg.triton_c(source, TYPE="float", TM=32, TN=32, TK=tile, **macros)
    launched(
        kernel, (m // 32, n // 32), a, b, c, m, n, k, m if transpose_a else k, k if transpose_b else n, n, num_warps=4
    )
    left = (a[:k].T if transpose_a else a[:m]).astype(np.float64)
    right = (b[:n].T if transpose_b else b[:k]).astype(np.float64)
    np.testing.assert_allclose(c, left @ right, rtol=1e-2, atol=2e-2)


@pytest.mark.skipif(tool("ptxas") is None, reason="ptxas is not installed")
@pytest.mark.parametrize("name", ["dot", "prefetched", "fused"])
def test_products_assemble_for_tensor_cores(listings, name):
    """A loop that counts down is pipelined; tiles of halves are multiplied by wgmma."""
    kernel = zg.triton_c(listings[name], TYPE="half", TM=64, TN=64, TK=32, **documents.macros_of_dot(False, False))
    pointer = zg.divisible(zg.ptr(zg.f16), 16)
    compiled = kernel.compile(pointer, pointer, pointer, target="sm_90a")
    assert "wgmma.mma_async" in compiled.ptx
    assert ("cp.async" in compiled.ptx) == (name == "dot")
    assert "HGMMA" in sass(compiled.ptx, "sm_90a")


def test_lists_of_macros_tune(listings):
    macros = documents.macros_of_dot(False, False)
    kernel = zg.triton_c(listings["fused"], TYPE="float", TM=[32, 64, 128], TN=[32, 64, 128], TK=[8, 16], **macros)
    assert isinstance(kernel, zg.TunedKernel)
    assert len(kernel.tuning.configs) == 18
    assert kernel.tuning.key == ("M", "N", "K", "lda", "ldb", "ldc")
