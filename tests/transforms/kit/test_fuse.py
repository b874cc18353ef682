"""Two kernels as one: what is checked, and that the values are the same."""

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import tt
from ziggurat.transforms import kit

B = 16


@zg.kernel
def scale(x, out, n, by):
    at = zg.add(zg.program_id(0) * B, zg.arange(0, B))
    mask = zg.compare(at, n, zg.CompareKind.LESS_THAN)
    zg.store(zg.add(out, at), zg.mul(zg.load(zg.add(x, at), mask), by), mask)


@zg.kernel
def shift(x, out, n, by):
    at = zg.add(zg.program_id(0) * B, zg.arange(0, B))
    mask = zg.compare(at, n, zg.CompareKind.LESS_THAN)
    zg.store(zg.add(out, at), zg.add(zg.load(zg.add(x, at), mask), by), mask)


@zg.kernel
def shift_next(x, out, n, by):
    at = zg.add(zg.program_id(0) * B, zg.arange(0, B))
    mask = zg.compare(at, n, zg.CompareKind.LESS_THAN)
    zg.store(zg.add(out, at), zg.add(zg.load(zg.add(zg.add(x, at), 1), mask), by), mask)


@zg.kernel
def shift_all(x, out, n, by):
    at = zg.add(zg.program_id(0) * B, zg.arange(0, B))
    zg.store(zg.add(out, at), zg.add(zg.load(zg.add(x, at)), by))


@zg.kernel
def shift_padded(x, out, n, by):
    at = zg.add(zg.program_id(0) * B, zg.arange(0, B))
    mask = zg.compare(at, n, zg.CompareKind.LESS_THAN)
    total = zg.sum(zg.load(zg.add(x, at), mask, 0.0), 0)
    zg.store(zg.add(out, zg.program_id(0)), zg.add(total, by))


@zg.kernel
def scale_sometimes(x, out, n, by):
    at = zg.add(zg.program_id(0) * B, zg.arange(0, B))
    if n > 3:
        zg.store(zg.add(out, at), zg.mul(zg.load(zg.add(x, at)), by))


def model_of(kernel):
    return kernel.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, zg.f32)


def counts(model):
    return [sum(isinstance(op, kind) for op in model.walk()) for kind in (tt.Load, tt.Store)]


def test_the_value_stays_in_registers():
    fused = kit.fuse(model_of(scale), model_of(shift), through=(1, 0), same={2: 2})
    zg.verify(fused)
    function = kit.kernel_of(fused)
    assert function.sym_name.startswith("scale_") and counts(fused) == [1, 1]
    # x, n and by of scale; out and by of shift.
    assert [str(p.type) for p in function.body.parameters] == ["ptr<f32>", "i32", "f32", "ptr<f32>", "f32"]
    x = np.random.default_rng(1).normal(size=50).astype(np.float32)
    between, expected, actual = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    zg.run(model_of(scale), 4, x, between, 50, 3.0)
    zg.run(model_of(shift), 4, between, expected, 50, 0.5)
    zg.run(fused, 4, x, 50, 3.0, actual, 0.5)
    assert np.array_equal(actual, expected)


def test_what_lies_between_can_be_kept():
    fused = kit.fuse(model_of(scale), model_of(shift), through=(1, 0), same={2: 2}, keep=True, name="both")
    assert counts(fused) == [1, 2]
    x = np.arange(20, dtype=np.float32)
    between, actual = np.zeros_like(x), np.zeros_like(x)
    zg.run(fused, 2, x, between, 20, 2.0, actual, 1.0)
    assert np.array_equal(between, 2 * x) and np.array_equal(actual, 2 * x + 1)


def test_masked_elements_are_what_the_load_says():
    fused = kit.fuse(model_of(scale), model_of(shift_padded), through=(1, 0), same={2: 2})
    x = np.ones(20, np.float32)
    out = np.zeros(2, np.float32)
    zg.run(fused, 2, x, 20, 2.0, out, 0.0)
    assert out.tolist() == [32.0, 8.0]


@pytest.mark.parametrize(
    ("consumer", "same", "message"),
    [
        (shift_next, {2: 2}, r"reads other offsets than are stored: tt\.addptr .*against tt\.addptr"),
        (shift_all, {2: 2}, r"another mask than is stored: none against arith\.cmpi"),
        # Nothing says that the two n are one.
        (shift, {}, r"another mask than is stored: arith\.cmpi .*against arith\.cmpi"),
        (shift, {3: 2}, "there must be two such parameters of one type"),
    ],
)
def test_what_does_not_match_is_refused(consumer, same, message):
    with pytest.raises(zg.BuildError, match=message):
        kit.fuse(model_of(scale), model_of(consumer), through=(1, 0), same=same)


def test_a_store_in_a_branch_is_refused():
    with pytest.raises(zg.BuildError, match="on every path; this one is in a branch") as error:
        kit.fuse(model_of(scale_sometimes), model_of(shift_all), through=(1, 0))
    assert "zg.mul(" in str(error.value) and "under a mask" in str(error.value)


def test_one_kernel_after_another():
    both = kit.joined(model_of(scale), model_of(shift), same={0: 1, 2: 2})
    zg.verify(both)
    assert counts(both) == [2, 2]
    x = np.arange(20, dtype=np.float32)
    between, actual = np.zeros_like(x), np.zeros_like(x)
    zg.run(both, 2, x, between, 20, 2.0, actual, 1.0)
    assert np.array_equal(actual, 2 * x + 1)


@zg.kernel
def scale_in_place(x, n, by):
    at = zg.add(x, zg.add(zg.program_id(0) * B, zg.arange(0, B)))
    mask = zg.compare(zg.add(zg.program_id(0) * B, zg.arange(0, B)), n, zg.CompareKind.LESS_THAN)
    zg.store(at, zg.mul(zg.load(at, mask), by), mask)


def test_kernels_that_work_in_place_are_refused():
    in_place = scale_in_place.triton(zg.ptr(zg.f32), zg.i32, zg.f32)
    with pytest.raises(zg.BuildError, match=r"in_place.* must not load from the parameter that it stores to") as error:
        kit.fuse(in_place, model_of(shift), through=(0, 0), same={2: 1})
    assert "zg.load(at, mask)" in str(error.value)
    with pytest.raises(zg.BuildError, match=r"in_place.* must not store to the parameter that it loads from, number 0"):
        kit.fuse(model_of(scale), in_place, through=(1, 0), same={1: 2})
    # The hint names the way out.
    both = kit.joined(in_place, in_place, same={0: 0, 1: 1})
    x = np.arange(20, dtype=np.float32)
    expected = 6 * x
    zg.run(both, 2, x, 20, 2.0, 3.0)
    assert np.array_equal(x, expected)


@zg.kernel
def with_left(x, out, n, by):
    at = zg.add(zg.program_id(0) * B, zg.arange(0, B))
    mask = zg.compare(at, n, zg.CompareKind.LESS_THAN)
    rest = zg.load(zg.add(x, zg.sub(at, 1)), zg.and_(mask, zg.greater(at, 0)), 0.0)
    zg.store(zg.add(out, at), zg.mul(zg.add(rest, zg.load(zg.add(x, at), mask)), by), mask)


def test_programs_that_would_read_what_others_store():
    with pytest.raises(zg.BuildError, match="both kernels use parameter 0 of the producer, and one stores to it"):
        kit.fuse(model_of(with_left), model_of(shift), through=(1, 0), same={1: 0, 2: 2})


def test_parameters_that_are_the_same_in_two_ways():
    with pytest.raises(zg.BuildError, match=r"'same' must agree with 'through', \(1, 0\); got \{0: 0\}"):
        kit.fuse(model_of(scale), model_of(shift), through=(1, 0), same={0: 0, 2: 2})


@zg.kernel
def scale_beside(x, out, n, by, rest):
    mask = zg.less(zg.add(zg.program_id(0) * B, zg.arange(0, B)), n)
    at = zg.add(zg.program_id(0) * B, zg.arange(0, B))
    zg.store(zg.add(out, at), zg.mul(zg.load(zg.add(x, at), mask), by), mask)


def test_a_parameter_that_one_of_the_kernels_stores_to():
    """The other one has the parameter, and uses it nowhere."""
    beside = scale_beside.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, zg.f32, zg.ptr(zg.f32))
    fused = kit.fuse(beside, model_of(shift), through=(1, 0), same={1: 4, 2: 2})
    zg.verify(fused)
    x, out = np.arange(20, dtype=np.float32), np.zeros(20, np.float32)
    zg.run(fused, 2, x, 20, 2.0, out, 1.0)
    assert np.array_equal(out, 2 * x + 1)


def divided(*divisors):
    attribute = f"@divisibility={list(divisors)}" if divisors else ""
    return zg.parse(
        f"""tt.func @"k" {attribute} (%p : ptr<f32>, %n : i32, %x : f32)void -> {{
            tt.store %p %x;
            tt.return; }};"""
    )


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((16, 4, 1), (8, 16, 1), (16, 16, 1, 8)),
        ((16, 4, 1), (), (16, 4, 1, 1)),
        ((), (8, 16, 1), (1, 16, 1, 8)),
        ((), (), ()),
    ],
)
def test_divisors_of_parameters_are_kept(first, second, expected):
    both = kit.joined(divided(*first), divided(*second), {1: 1, 2: 2})
    zg.verify(both)
    assert kit.kernel_of(both).divisibility == expected
    assert kit.kernel_of(both).sym_name == "k_k"
    assert kit.kernel_of(kit.joined(divided(), divided(), {}, "other")).sym_name == "other"


@pytest.mark.parametrize("same", [{0: 3}, {3: 0}, {-1: 0}, {0: -1}, {0: 1}])
def test_parameters_that_cannot_be_one_are_refused(same):
    with pytest.raises(zg.BuildError, match="there must be two such parameters of one type"):
        kit.joined(divided(), divided(), same)


TWO_OUTPUTS = """tt.func @"producer" (%x : f32, %out : ptr<f32>, %rest : ptr<f32>)void -> {
    tt.store %out %x;
    tt.store %rest %x;
    tt.return; };"""
TWO_INPUTS = """tt.func @"consumer" (%in : ptr<f32>, %rest : ptr<f32>, %out : ptr<f32>)void -> {
    %a : f32 = tt.load %in;
    %b : f32 = tt.load %rest;
    %c : f32 = arith.addf %a %b;
    tt.store %out %c;
    tt.return; };"""


def test_a_consumer_that_reads_another_array_that_the_producer_stores_to():
    with pytest.raises(zg.BuildError, match="both kernels use parameter 2 of the producer, and one stores to it"):
        kit.fuse(zg.parse(TWO_OUTPUTS), zg.parse(TWO_INPUTS), through=(1, 0), same={1: 2})
    fused = kit.fuse(zg.parse(TWO_OUTPUTS), zg.parse(TWO_INPUTS), through=(1, 0))
    assert counts(fused) == [1, 2]


@pytest.mark.parametrize(
    ("store", "error"),
    [
        ("", "the producer must store to the parameter, and the consumer load from it"),
        ("%y : f32 = tt.load %out; tt.store %out %y;", "must not load from the parameter that it stores to, number 1"),
        ("%y : f32 = tt.atomic_rmw %out %x @fadd;", "cannot fuse through tt.atomic_rmw: only tt.store and tt.load can"),
        ("tt.store %out %x; tt.store %out %x;", "2 stores write what .* reads"),
        ("scf.if %c ()void -> { tt.store %out %x; scf.yield; } ()void -> { scf.yield; };", "on every path"),
    ],
)
def test_producers_that_cannot_be_fused(store, error):
    producer = zg.parse(f'tt.func @"p" (%x : f32, %out : ptr<f32>, %c : i1)void -> {{ {store} tt.return; }};')
    with pytest.raises(zg.BuildError, match=error):
        kit.fuse(producer, zg.parse(TWO_INPUTS), through=(1, 0))
