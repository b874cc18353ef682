"""Whole functions: the models of two kernels as golden text, parameters, defaults, and speed."""

import time

import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import KernelErrors, KernelNameError, KernelSyntaxError
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import constexpr_type, f16, f32, pyobject
from ziggurat.frontends.reflection import reflect
from ziggurat.transforms.unsupported import kernel_model


@zg.function
def add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: zg.constexpr):
    """The article's vector add."""
    pid = zg.program_id(0)
    block_start = pid * BLOCK_SIZE
    range = zg.arange(0, BLOCK_SIZE)
    offsets = zg.add(block_start, range)
    mask = zg.compare(offsets, n_elements, zg.CompareKind.LESS_THAN)
    x = zg.load(zg.add(x_ptr, offsets), mask)
    y = zg.load(zg.add(y_ptr, offsets), mask)
    output = zg.add(x, y)
    zg.store(zg.add(output_ptr, offsets), output, mask)


@zg.function
def leaky_relu(x, slope=0.01):
    return zg.where(zg.compare(x, 0.0, zg.CompareKind.GREATER_THAN), x, zg.mul(x, slope))


@zg.function
def swizzle(pid, columns, *, rows):
    return pid // columns, pid % columns if rows > 0 else 0


@zg.function
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK: zg.constexpr, ACTIVATION: zg.constexpr = None):
    pid_m, pid_n = swizzle(zg.program_id(axis=0), rows=M, columns=zg.cdiv(N, BLOCK))
    assert BLOCK >= 16, "a dot takes blocks of 16 and more"
    if pid_m * BLOCK >= M:
        return
    offs = zg.arange(0, BLOCK)
    a_ptrs = zg.add(a_ptr, zg.add(zg.expand(zg.mul(offs, K), 1), zg.expand(offs, 0)))
    b_ptrs = zg.add(b_ptr, zg.add(zg.expand(zg.mul(offs, N), 1), zg.expand(offs, 0)))
    acc = zg.zeros((BLOCK, BLOCK), f32)
    for k in range(0, K, BLOCK):
        if 0 <= k < K - BLOCK or (k == 0 and not M < 0):
            a = zg.load(a_ptrs)
        elif ACTIVATION is not None:
            a = zg.load(a_ptrs, other=-0.0)
        else:
            a = zg.zeros(a_ptrs.shape, dtype=f16)
        tries = 0
        while tries < 2:
            for _ in zg.static_range(2):
                tries += 1
        acc = zg.dot(a, zg.load(b_ptrs), acc)
        a_ptrs = zg.add(a_ptrs, BLOCK)
    if ACTIVATION == "leaky_relu":
        acc = leaky_relu(acc)
    zg.store(c_ptr, zg.reduce(acc, 0, swizzle))


KERNELS = [add_kernel, leaky_relu, swizzle, matmul_kernel]


@pytest.mark.parametrize("kernel", [add_kernel, matmul_kernel], ids=lambda kernel: kernel.name)
def test_golden(kernel, golden):
    golden(f"{kernel.name}.python", str(reflect(kernel)))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_text_round_trip(kernel):
    assert zg.same_model(parse(str(kernel.model)), kernel.model)


def test_symbol_and_parameters():
    model = reflect(matmul_kernel)
    assert isinstance(model, core.Func)
    assert model.sym_name == "matmul_kernel"
    assert [p.type for p in model.body.parameters] == [pyobject] * 6 + [constexpr_type] * 2
    variables = [op.name for op in model.body.entry.ops[:8] if isinstance(op, core.Var)]
    assert variables == ["a_ptr", "b_ptr", "c_ptr", "M", "N", "K", "BLOCK", "ACTIVATION"]


def test_functions_referred_to():
    reflect(matmul_kernel)
    assert matmul_kernel.callees == {"swizzle": swizzle, "leaky_relu": leaky_relu}


def test_plain_function_is_reflected():
    assert zg.same_model(reflect(add_kernel.fn), reflect(add_kernel))


def test_constexpr_spellings():
    from ziggurat.frontends.language import constexpr as ce

    def kernel(a: ce, b: "zg.constexpr", c: "constexpr", d: int, e: "int"):  # noqa: F821
        pass

    types = [p.type for p in reflect(kernel).body.parameters]
    assert types == [constexpr_type] * 3 + [pyobject] * 2


def test_symbol_of_a_nested_function_is_its_qualified_name():
    def kernel():
        pass

    assert reflect(kernel).sym_name == "test_symbol_of_a_nested_function_is_its_qualified_name.<locals>.kernel"


def test_all_errors_are_reported_in_the_order_of_the_source():
    def kernel(x, n):
        y = undefined_name  # noqa: F821
        for i in range(n):
            if also_undefined:  # noqa: F821
                del x
            z = {y}
        return z + y @ x

    with pytest.raises(KernelErrors) as error_info:
        kernel_model(zg.function(kernel))
    summaries = [error.summary for error in error_info.value.errors]
    assert summaries == [
        "name 'undefined_name' is not defined",
        "name 'also_undefined' is not defined",
        "a kernel cannot use del",
        "a kernel cannot use a set",
        "a kernel cannot use the operator @",
    ]
    lines = [error.location.line for error in error_info.value.errors]
    assert lines == sorted(lines)


def test_a_single_error_is_raised_bare():
    def kernel():
        y = undefined_name  # noqa: F821
        z = y
        for i in range(y):
            z = y

    with pytest.raises(KernelNameError, match="undefined_name"):
        reflect(kernel)


def test_speed():
    def once():
        start = time.process_time()
        reflect(add_kernel)
        return time.process_time() - start

    # 0.5 to 1.8 ms of the processor, as machines are.
    assert min(once() for _ in range(50)) < 0.004


@pytest.mark.parametrize(
    ("parameters", "summary"),
    [
        ("x, **opts", "a kernel cannot use a parameter that takes any number of arguments"),
    ],
)
def test_wrong_parameters_are_errors_at_the_decorator(define, parameters, summary):
    fn = define(f"def kernel({parameters}):\n    pass\n")
    for decorator in (zg.kernel, zg.function):
        with pytest.raises(KernelSyntaxError) as error_info:
            decorator(fn)
        assert error_info.value.summary == summary and error_info.value.location.line == 1


def test_an_async_function_is_an_error_at_the_decorator(define):
    with pytest.raises(KernelSyntaxError, match="'kernel' is an async function"):
        zg.kernel(define("async def kernel(x):\n    pass\n"))
