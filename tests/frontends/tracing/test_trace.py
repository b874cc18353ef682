"""Traced models: calls, functions, constants and locations, as reflection gives them."""

from pathlib import Path

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.frontends.tracing import trace_function

F32 = zg.ptr(zg.f32)


def add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: zg.constexpr):
    pid = zg.program_id(0)
    block_start = pid * BLOCK_SIZE
    offsets = zg.add(block_start, zg.arange(0, BLOCK_SIZE))
    mask = zg.compare(offsets, n_elements, zg.CompareKind.LESS_THAN)
    x = zg.load(zg.add(x_ptr, offsets), mask=mask, other=0.0)
    y = zg.load(zg.add(y_ptr, offsets), mask)
    zg.store(zg.add(output_ptr, offsets), zg.add(x, y), mask)


def mixed_kernel(x_ptr, scale, n, B: zg.constexpr, FLAG: zg.constexpr):
    half = B // 2
    rows = zg.arange(0, B)
    x = zg.load(zg.add(x_ptr, rows))
    y = zg.mul(zg.exp(x), scale)
    low, high = zg.split(zg.reshape(y, (half, 2)))
    best, at = zg.max(low, 0, return_indices=True)
    total = zg.sum(high, 0) * 2.0 + best - scale / (n + 1)
    z = zg.where(zg.compare(rows, half, zg.CompareKind.GREATER_THAN), y, total)
    w = zg.cast(zg.add(z, at), zg.f32)
    zg.store(zg.add(x_ptr, rows), zg.clamp(w, -1.0, FLAG), mask=zg.compare(rows, n, zg.CompareKind.LESS_THAN))


@zg.function
def scaled(x, by=2.0, offset=0.5):
    return zg.add(zg.mul(x, by), offset), x


def helper_kernel(x_ptr, n, B: zg.constexpr):
    at = zg.add(x_ptr, zg.arange(0, B))
    first, second = scaled(zg.load(at), offset=1.5)
    zg.store(at, zg.sub(first, zg.mul(second, zg.cdiv(n, 3))))


@pytest.mark.parametrize(
    ("kernel", "arguments"),
    [
        (add_kernel, (F32, F32, F32, zg.i32, 64)),
        (mixed_kernel, (F32, zg.f32, zg.i32, 32, 3.5)),
        (helper_kernel, (F32, zg.i32, 16)),
    ],
    ids=lambda thing: getattr(thing, "__name__", ""),
)
def test_tracing_and_reflection_give_the_same_triton_model(kernel, arguments):
    traced = zg.trace(kernel, *arguments)
    assert str(traced) == str(zg.kernel(kernel).triton(*arguments))
    zg.verify(traced)


def test_a_builder_takes_calls_one_by_one():
    with zg.build("double", F32, zg.divisible(zg.i32, 16), 8) as kernel:
        x, n, size = kernel.arguments
        assert size == 8
        at = zg.add(x, zg.arange(0, size))
        for _ in range(3):
            zg.store(at, zg.mul(zg.load(at), 2), mask=zg.compare(zg.arange(0, size), n, zg.CompareKind.LESS_THAN))
    assert kernel.triton.body.entry.ops[0].attributes["divisibility"] == (1, 16)
    assert kernel.python.attributes["sym_name"] == "double"
    x = np.ones(8, np.float32)
    zg.run(kernel.triton, (1,), x, 6)
    assert x.tolist() == [8] * 6 + [1, 1]


def test_models_of_an_unfinished_builder_are_errors():
    with pytest.raises(zg.BuildError, match="'k' is not finished"), zg.build("k", zg.i32) as kernel:
        _ = kernel.triton


def test_locations_of_errors_are_the_traced_calls():
    def kernel(x_ptr):
        good = zg.arange(0, 8)
        zg.store(x_ptr, good)  # eight integers to one address of floats

    with pytest.raises(zg.KernelTypeError) as error_info:
        zg.trace(kernel, F32)
    assert "zg.store(x_ptr, good)" in str(error_info.value)
    assert "^^^^^^^^^^^^^^^^^^^^^" in str(error_info.value)


def test_a_value_of_another_trace_is_refused():
    values = []

    def first(x_ptr):
        values.append(zg.load(x_ptr))

    def second(x_ptr):
        zg.store(x_ptr, values[0])

    zg.trace(first, F32)
    with pytest.raises(zg.KernelTypeError, match="another trace"):
        zg.trace(second, F32)


def test_a_kernel_of_any_dtype():
    def kernel(x_ptr, out_ptr):
        at = zg.arange(0, 16)
        block = zg.make_tensor_descriptor(out_ptr, (16,), (1,), (16,))
        x = zg.cast(zg.load(zg.add(x_ptr, at)), zg.add(out_ptr, at).dtype.element_ty)
        block.store((0,), zg.cast(x, block.dtype))
        zg.store(out_ptr, zg.cast(zg.sum(x), out_ptr.dtype.element_ty))

    types = (F32, zg.ptr(zg.bf16))
    assert zg.same_model(zg.trace(kernel, *types), zg.kernel(kernel).triton(*types))


def twin(module):
    """A function of the same qualified name as another."""

    def made(x):
        return x

    return zg.function(made)


def test_functions_of_one_name_get_different_symbols():
    first, second = twin(1), twin(2)

    def kernel(x_ptr, n):
        zg.store(x_ptr, first(n) + second(n) + first(n))

    function = trace_function(kernel, (zg.ptr(zg.i32), zg.i32))
    assert list(function.callees.values()) == [first, second]
    base, other = function.callees
    assert other == f"{base}_1"
    calls = [op.attributes["callee"] for op in function.model.walk() if op.NAME == "func.call"]
    assert calls == [base, other, base]


def test_a_call_with_several_results_gives_a_tuple_of_symbols():
    counts = {}

    def kernel(x_ptr):
        t = zg.load(zg.add(x_ptr, zg.arange(0, 16)))
        counts["split"] = len(zg.split(zg.reshape(t, (8, 2))))
        counts["max"] = len(zg.max(t, 0, return_indices=True))
        counts["philox"] = len(zg.philox(0, zg.arange(0, 4), 0, 0, 0))
        counts["scaled"] = len(scaled(t))
        counts["store"] = zg.store(x_ptr, 1.0)

    zg.trace(kernel, F32)
    assert counts == {"split": 2, "max": 2, "philox": 4, "scaled": 2, "store": None}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (lambda p: zg.load(), r"zg.load needs its argument 'ptr'"),
        (lambda p: scaled(p, wrong=1), "'scaled': .*unexpected keyword argument 'wrong'"),
        (lambda p: zg.load(p) and None, "the truth of a value"),
        (lambda p: zg.load(p), "the traced function '<lambda>' returns a value: a kernel returns nothing"),
        (lambda p: zg.store(p, {}) and None, "an object of the type dict cannot be a value of a kernel"),
    ],
)
def test_calls_that_cannot_be_recorded(body, words):
    with pytest.raises(zg.KernelTypeError, match=words) as error_info:
        zg.trace(body, F32)
    assert error_info.value.location.file == __file__


def test_nothing_is_recorded_after_the_trace():
    values = []

    def kernel(x_ptr):
        values.append(x_ptr)

    zg.trace(kernel, F32)
    with pytest.raises(zg.KernelTypeError, match="a value is used after its kernel was traced"):
        values[0] + 1
    with pytest.raises(zg.KernelTypeError, match="outside of a kernel"):
        zg.load(values[0])


def test_locations_are_of_the_users_code_wherever_it_lies():
    text = "def body(p):\n    zg.store(p, 1.0)\n"
    file = str(Path(zg.__file__).with_name("my_kernels.py"))
    scope = {"zg": zg, "__name__": "my_kernels"}
    exec(compile(text, file, "exec"), scope)
    store = next(op for op in trace_function(scope["body"], (F32,)).model.walk() if op.NAME == "invoke")
    place = store.location
    assert (place.file, place.line, place.column, place.end_line, place.end_column) == (file, 2, 4, 2, 20)
