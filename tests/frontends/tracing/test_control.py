"""Control flow of a kernel under construction: loops and branches whose parts are functions."""

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.types import void

F32 = zg.ptr(zg.f32)


def test_a_for_loop_carries_values():
    def power(x_ptr, n, B):
        at = zg.add(x_ptr, zg.arange(0, B))
        start = (zg.full((B,), 1.0, zg.f32), at)
        product, end = zg.for_(0, n, 1, start, lambda i, p, a: (zg.mul(p, zg.load(at)), zg.add(a, 0)), num_stages=2)
        zg.store(end, product)

    model = zg.trace(power, F32, zg.i32, 8)
    zg.verify(model)
    loop = next(op for op in model.walk() if op.NAME == "scf.for")
    assert loop.attributes["num_stages"] == 2
    x = np.array([1, 2, 0.5, 3, 1, 1, 2, 2], np.float32)
    expected = x**3
    zg.run(model, (1,), x, 3)
    np.testing.assert_allclose(x, expected)


def test_one_value_and_no_value_are_carried_in_their_form():
    def kernel(x_ptr, n):
        total = zg.for_(n, 0, -1, 0, lambda i, t: t + i)
        zg.store(x_ptr, total)
        zg.for_(0, n, 2, None, lambda i: zg.store(zg.add(x_ptr, i + 1), i))

    x = np.full(8, -1, np.int32)
    zg.run(zg.trace(kernel, zg.ptr(zg.i32), zg.i32), (1,), x, 5)
    assert x.tolist() == [15, 0, -1, 2, -1, 4, -1, -1]


def test_while_and_if():
    def collatz(x_ptr):
        def step(n, count):
            even = n % 2 == 0
            return zg.if_(even, lambda: n // 2, lambda: 3 * n + 1), count + 1

        _, count = zg.while_(lambda n, count: n != 1, step, (zg.load(x_ptr), 0))
        zg.store(x_ptr, count)

    x = np.array([27], np.int32)
    zg.run(zg.trace(collatz, zg.ptr(zg.i32)), (1,), x)
    assert x[0] == 111


def test_a_python_condition_chooses_while_tracing():
    def kernel(x_ptr, flag):
        zg.store(x_ptr, zg.if_(flag, lambda: 1, lambda: 2))

    model = zg.trace(kernel, zg.ptr(zg.i32), False)
    assert not any(op.NAME == "scf.if" for op in model.walk())
    x = np.zeros(1, np.int32)
    zg.run(model, (1,), x)
    assert x[0] == 2


def test_a_loop_must_give_what_it_carries():
    def kernel(x_ptr):
        zg.for_(0, 4, 1, (1, 2), lambda i, a, b: a)

    with pytest.raises(zg.KernelTypeError, match="gives one value, expected a tuple of 2"):
        zg.trace(kernel, F32)


def test_control_flow_outside_of_a_trace_is_an_error():
    with pytest.raises(zg.KernelSyntaxError, match=r"zg\.for_ was called outside of a traced function"):
        zg.for_(0, 4, 1, 0, lambda i, a: a)


def test_a_loop_has_the_options_of_a_range():
    def kernel(x_ptr, n):
        zg.for_(0, n, 1, None, lambda i: zg.store(zg.add(x_ptr, i), 1.0), num_stages=3, flatten=True)

    loop = next(op for op in zg.trace(kernel, F32, zg.i32).walk() if op.NAME == "scf.for")
    assert (loop.attributes["num_stages"], loop.attributes["flatten"]) == (3, True)
    assert loop.result.type == void


def test_an_option_that_a_range_lacks_is_an_error():
    def kernel(x_ptr, n):
        zg.for_(0, n, 1, None, lambda i: zg.store(x_ptr, 1.0), stages=3)

    with pytest.raises(zg.KernelTypeError, match="has no parameter 'stages'"):
        zg.trace(kernel, F32, zg.i32)


def test_a_branch_without_an_otherwise_gives_nothing():
    results = []

    def kernel(x_ptr, n):
        results.append(zg.if_(n > 0, lambda: zg.store(x_ptr, 1.0)))

    model = zg.trace(kernel, F32, zg.i32)
    assert results == [None]
    for n, expected in ((1, 1.0), (0, 5.0)):
        x = np.full(1, 5, np.float32)
        zg.run(model, 1, x, n)
        assert x[0] == expected


def test_a_branch_that_python_decides_against_gives_nothing():
    def kernel(x_ptr):
        assert zg.if_(False, lambda: zg.store(x_ptr, 1.0)) is None
        zg.store(x_ptr, 2.0)

    assert sum(op.NAME == "tt.store" for op in zg.trace(kernel, F32).walk()) == 1


def test_loops_nest():
    def kernel(x_ptr, n):
        def row(i, total):
            return zg.for_(0, i, 1, total, lambda j, inner: zg.if_(j > 1, lambda: inner + j, lambda: inner))

        zg.store(x_ptr, zg.for_(0, n, 1, 0, row))

    x = np.zeros(1, np.int32)
    zg.run(zg.trace(kernel, zg.ptr(zg.i32), zg.i32), 1, x, 6)
    assert x[0] == sum(j for i in range(6) for j in range(i) if j > 1)


def for_body(body, initial=0):
    return lambda x_ptr, n: zg.for_(0, n, 1, initial, body)


@pytest.mark.parametrize(
    ("kernel", "error", "words"),
    [
        (for_body(3), zg.KernelSyntaxError, "the body of zg.for_ must be a function; got 3"),
        (for_body(lambda i: i), zg.KernelTypeError, "the body of zg.for_ is called with 2 arguments"),
        (for_body(lambda i, a: None), zg.KernelTypeError, "gives nothing, expected one value"),
        (for_body(lambda i, a: (a,)), zg.KernelTypeError, "gives a tuple of 1, expected one value"),
        (for_body(lambda i: 1, None), zg.KernelTypeError, "gives one value, expected nothing"),
        (lambda x, n: zg.while_(lambda: n > 0, lambda a: a, 0), zg.KernelTypeError, "the condition of"),
        (lambda x, n: zg.while_(lambda a: a > 0, 5, 0), zg.KernelSyntaxError, "the body of zg.while_ is a function"),
        (lambda x, n: zg.while_(lambda a: a > 0, lambda a: (a, a), 0), zg.KernelTypeError, "gives a tuple of 2"),
        (lambda x, n: zg.if_(n > 0, 3), zg.KernelSyntaxError, "the first part of zg.if_ is a function"),
        (lambda x, n: zg.if_(n > 0, lambda: 1, lambda a: 2), zg.KernelTypeError, "the second part of zg.if_ is called"),
        (lambda x, n: zg.if_(n > 0, lambda: 1), zg.KernelTypeError, "gives nothing, the first one value"),
        (lambda x, n: zg.if_(n > 0, lambda: 1, lambda: (1, 2)), zg.KernelTypeError, "the first one value"),
    ],
)  # fmt: skip
def test_parts_that_do_not_fit(kernel, error, words):
    with pytest.raises(error, match=words) as error_info:
        zg.trace(kernel, F32, zg.i32)
    assert error_info.value.location.file == __file__


def test_a_value_of_a_body_is_not_used_outside_of_it():
    def kernel(x_ptr, n):
        values = []
        zg.for_(0, n, 1, None, lambda i: values.append(i + 1))
        zg.store(x_ptr, values[0])

    with pytest.raises(zg.KernelTypeError, match="a value that was made inside a loop or a branch is used outside"):
        zg.trace(kernel, zg.ptr(zg.i32), zg.i32)


@pytest.mark.parametrize("name", ["if_", "while_", "for_"])
def test_outside_of_a_trace(name):
    arguments = {"if_": (True, int), "while_": (bool, int, 0), "for_": (0, 1, 1, 0, int)}[name]
    with pytest.raises(zg.KernelSyntaxError, match=f"zg.{name} was called outside of a traced function"):
        getattr(zg, name)(*arguments)
