"""Loads, stores, atomics and tensor descriptors on arrays of any strides."""

from __future__ import annotations

import numpy as np
import pytest

import ziggurat as zg

ALL = ("i1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64", "f8e4m3", "f8e5m2")
INTS = ("i32", "i64", "u32", "u64")


def sample(name, count, dtypes, seed=0):
    return np.random.default_rng(seed).integers(0, 2 if name == "i1" else 100, count).astype(dtypes[name])


COPY = """
def copy(x_ptr, y_ptr, n, stride, N: zg.constexpr):
    at = zg.add(zg.program_id(0) * N, zg.arange(0, N))
    mask = zg.compare(at, n, K.LESS_THAN)
    x = zg.load(zg.add(x_ptr, zg.mul(at, stride)), mask, 1)
    plain = zg.load(zg.add(x_ptr, zg.mul(at, stride)), mask, cache_modifier=".cg", eviction_policy="evict_first")
    zg.store(zg.add(y_ptr, at), x)
    zg.store(zg.add(y_ptr, at), plain, mask, cache_modifier=".wb", eviction_policy="evict_last")
"""


@pytest.fixture(scope="module")
def copy(kernel):
    return kernel(COPY)


def launch_copy(copy, launch, x, y, n, stride):
    # The constexpr is compiled in, so it is given by name.
    launch(copy, (2,), [x, y, n, stride], N=16)


@pytest.mark.parametrize("name", ALL)
def test_masked_copies(name, copy, kernel, launch, dtypes):
    x = sample(name, 20, dtypes)
    y = np.zeros(32, dtypes[name])
    if name == "i1":
        copy = kernel(COPY.replace("mask, 1)", "mask, True)"))
    launch_copy(copy, launch, x, y, 20, 1)
    assert (y[:20] == x).all() and (y[20:] == np.ones(1).astype(dtypes[name])).all()


def test_views(copy, launch):
    """Every other element, and backwards: pointers count elements of the memory, not of the view."""
    base = np.arange(64, dtype=np.int16)
    y = np.zeros(32, np.int16)
    launch_copy(copy, launch, base[3::2], y, 20, 2)
    assert (y[:20] == base[3::2][:20]).all()
    y = np.zeros(32, np.int16)
    launch_copy(copy, launch, base[::-1], y, 20, -1)
    assert (y[:20] == base[::-1][:20]).all()


def test_a_matrix_of_any_strides(kernel, launch):
    transpose = kernel("""
    def transpose(x_ptr, y_ptr, rows, columns, sr, sc, tr, tc, N: zg.constexpr):
        r = zg.expand(zg.arange(0, N), 1)
        c = zg.expand(zg.arange(0, N), 0)
        mask = zg.and_(zg.compare(r, rows, K.LESS_THAN), zg.compare(c, columns, K.LESS_THAN))
        x = zg.load(zg.add(zg.add(x_ptr, zg.mul(r, sr)), zg.mul(c, sc)), mask)
        zg.store(zg.add(zg.add(y_ptr, zg.mul(r, tc)), zg.mul(c, tr)), zg.mul(x, 2), mask)
    """)
    whole = np.arange(20 * 30, dtype=np.float32).reshape(20, 30)
    for x in (whole[2:9, 3:14], whole[::2, ::3], whole.T[1:6, :4], np.asfortranarray(whole[:8, :5])):
        y = np.zeros((x.shape[1], x.shape[0] + 3), np.float32)[:, 2:-1]
        sizes = [s // 4 for s in (*x.strides, *y.strides)]
        launch(transpose, 1, [x, y, *x.shape, *sizes], N=16)
        assert (y == 2 * x.T).all()


def test_one_array_twice(kernel, launch):
    """A program reads what another has written to the same memory, through another pointer."""
    chain = kernel("""
    def chain(x_ptr, y_ptr):
        pid = zg.program_id(0)
        zg.store(y_ptr + (pid + 1), zg.load(x_ptr + pid) * 2 + 1)
    """)
    x = np.zeros(9, np.int64)
    launch(chain, (8,), [x, x], host_only="on a GPU, programs do not wait for each other")
    assert x.tolist() == [2**i - 1 for i in range(9)]
    shifted = np.arange(10, dtype=np.int64)
    launch(chain, (4,), [shifted[2:], shifted], host_only="on a GPU, programs do not wait for each other")
    assert shifted.tolist() == [0, 5, 7, 9, 11, 5, 6, 7, 8, 9]


def test_indirect_access_and_scalars(kernel, launch):
    pick = kernel("""
    def pick(table_ptr, x_ptr, y_ptr):
        pid = zg.program_id(0)
        row = zg.load(table_ptr + pid)
        x = zg.load(zg.add(x_ptr + row * 4, zg.arange(0, 4)))
        zg.store(zg.add(zg.sub(y_ptr + (pid + 1) * 4, 4), zg.arange(0, 4)), x)
        if row == 2:
            zg.store(y_ptr + 12, zg.load(x_ptr + 1, row > 3, 42.0))
            zg.store(y_ptr + 12, 7.0, row > 3)
    """)
    table, x, y = np.array([2, 0, 1], np.int64), np.arange(12, dtype=np.float32), np.zeros(13, np.float32)
    launch(pick, 3, [table, x, y])
    assert (y[:12] == x.reshape(3, 4)[table].ravel()).all() and y[12] == 42


def test_values_and_masks_are_broadcast(kernel, launch):
    fill = kernel("""
    def fill(y_ptr, m_ptr):
        at = zg.add(zg.mul(zg.expand(zg.arange(0, 4), 1), 8), zg.expand(zg.arange(0, 8), 0))
        rows = zg.load(zg.add(m_ptr, zg.expand(zg.arange(0, 4), 1)))
        zg.store(zg.add(y_ptr, at), 7)
        zg.store(zg.add(y_ptr, at), zg.arange(0, 8), rows)
        got = zg.load(zg.add(y_ptr, at), rows, zg.mul(zg.arange(0, 8), -1))
        zg.store(zg.add(y_ptr, zg.add(at, 32)), got)
    """)
    y, mask = np.zeros(64, np.int32), np.array([True, False, True, False])
    launch(fill, 1, [y, mask])
    assert (y[:32].reshape(4, 8) == np.where(mask[:, None], np.arange(8), 7)).all()
    assert (y[32:].reshape(4, 8) == np.where(mask[:, None], np.arange(8), -np.arange(8))).all()


def test_the_last_store_wins(kernel, launch):
    clash = kernel("""
    def clash(y_ptr):
        pid = zg.program_id(0)
        zg.store(zg.add(y_ptr, zg.floordiv(zg.arange(0, 8), 8)), pid)
    """)
    y = np.zeros(1, np.int32)
    launch(clash, (5,), [y], host_only="on a GPU, programs do not wait for each other")
    assert y[0] == 4


ATOMICS = {
    "add": lambda a, b: a + b, "max": max, "min": min, "and": lambda a, b: a & b, "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b, "xchg": lambda a, b: b,
}  # fmt: skip


def atomic_dtypes(op):
    if op in ("and", "or", "xor"):
        return INTS
    return (*INTS, *({"add": ("f16", "bf16"), "xchg": ()}.get(op, ())), "f32", "f64")


@pytest.mark.parametrize(("op", "name"), [(op, name) for op in ATOMICS for name in atomic_dtypes(op)])
def test_atomics(op, name, kernel, launch, dtypes):
    """Conflicts within a program and between programs: the values found and the values left."""
    update = kernel(f"""
    def update(x_ptr, i_ptr, v_ptr, old_ptr, s_ptr, m_ptr):
        at = zg.add(zg.program_id(0) * 16, zg.arange(0, 16))
        where = zg.add(x_ptr, zg.load(zg.add(i_ptr, at)))
        v = zg.load(zg.add(v_ptr, at))
        mask = zg.load(zg.add(m_ptr, at))
        old = zg.atomic_{op}(where, v, mask)
        zg.store(zg.add(old_ptr, at), old, mask)
        zg.atomic_{op}(where, v, sem="relaxed", scope="cta")
        zg.store(s_ptr + zg.program_id(0), zg.atomic_{op}(x_ptr, 1, sem="acquire", scope="sys"))
    """)
    rng = np.random.default_rng(3)
    dtype = dtypes[name]
    low = 0 if name[0] == "u" else -50
    x = rng.integers(low, 50, 8).astype(dtype)
    v = rng.integers(low, 50, 48).astype(dtype)
    if name in INTS:
        v[:3] = [np.iinfo(dtype).max, np.iinfo(dtype).min, np.iinfo(dtype).max]
    index, mask = rng.integers(0, 8, 48).astype(np.int32), rng.integers(0, 4, 48) > 0
    state = [n.item() if name in INTS else float(n) for n in x]
    operands = [n.item() if name in INTS else float(n) for n in v]
    old, single = np.zeros(48, dtype), np.zeros(3, dtype)

    def step(place, value):
        before = state[place]
        result = ATOMICS[op](before, value)
        if name in INTS:
            bits = dtype.itemsize * 8
            result = np.array(result % (1 << bits), f"u{dtype.itemsize}").view(dtype).item()
        else:
            result = float(np.array(result).astype(dtype))
        state[place] = result
        return before

    for program in range(3):
        lanes = range(program * 16, program * 16 + 16)
        for lane in lanes:
            if mask[lane]:
                old[lane] = step(index[lane], operands[lane])
        for lane in lanes:
            step(index[lane], operands[lane])
        single[program] = step(0, 1)
    actual, alone = np.zeros(48, dtype), np.zeros(3, dtype)
    # In another order, other turns find other things, and the last to write or to round is another.
    unordered = (0, 3, 4) if op == "xchg" or name == "bf16" else (3, 4)
    launch(update, (3,), [x, index, v, actual, alone, mask], unordered=unordered)
    assert x.astype(float).tolist() == np.array(state, dtype).astype(float).tolist(), name
    assert (actual == old).all() and (alone == single).all(), name


@pytest.mark.parametrize("name", (*INTS, "i16", "u16", "f16", "bf16", "f32", "f64"))
def test_compare_and_swap(name, kernel, launch, dtypes):
    swap = kernel("""
    def swap(x_ptr, i_ptr, c_ptr, v_ptr, old_ptr):
        at = zg.add(zg.program_id(0) * 16, zg.arange(0, 16))
        c = zg.load(zg.add(c_ptr, at))
        old = zg.atomic_cas(zg.add(x_ptr, zg.load(zg.add(i_ptr, at))), c, zg.load(zg.add(v_ptr, at)), sem="release")
        zg.store(zg.add(old_ptr, at), old)
    """)
    rng = np.random.default_rng(1)
    dtype = dtypes[name]
    index = rng.integers(0, 4, 48).astype(np.int32)
    x, c, v = (rng.integers(0, 3, n).astype(dtype) for n in (4, 48, 48))
    if name[0] not in "iu":
        # Compared by their bits: a zero is not a negative zero.
        x[0], c[:8], v[8:12] = 0.0, -0.0, -0.0
    state, old = [n.copy() for n in x], np.zeros(48, dtype)
    for lane in range(48):
        old[lane] = state[index[lane]]
        if state[index[lane]].tobytes() == c[lane].tobytes():
            state[index[lane]] = v[lane]
    actual = np.zeros(48, dtype)
    launch(swap, 3, [x, index, c, v, actual], unordered=(0, 4))
    assert x.tobytes() == np.array(state, dtype).tobytes() and actual.tobytes() == old.tobytes()


def test_a_lock(kernel, launch):
    """Programs one after the other through a spinning lock, and a counter."""
    count = kernel("""
    def count(lock_ptr, total_ptr, order_ptr):
        while zg.atomic_cas(lock_ptr, 0, 1) == 1:
            pass
        ticket = zg.load(total_ptr)
        zg.store(total_ptr, ticket + 1)
        zg.store(order_ptr + zg.program_id(0), ticket)
        zg.debug_barrier()
        zg.atomic_xchg(lock_ptr, 0)
    """)
    lock, total, order = np.zeros(1, np.int32), np.zeros(1, np.int64), np.zeros(20, np.int64)
    launch(count, (20,), [lock, total, order], unordered=(2,))
    assert lock[0] == 0 and total[0] == 20 and order.tolist() == list(range(20))


@pytest.mark.parametrize("name", [n for n in ALL if n != "i1"])
def test_descriptors(name, kernel, launch, dtypes):
    """Blocks at the ragged edges, and beyond them."""
    move = kernel(
        """
    def move(x_ptr, y_ptr, rows, columns, stride, N: zg.constexpr, PAD: zg.constexpr):
        source = zg.make_tensor_descriptor(x_ptr, (rows, columns), (stride, 1), (4, N), PAD)
        target = zg.make_tensor_descriptor(y_ptr, (rows + 2, columns), [stride, 1], [4, N])
        r = zg.program_id(0) * 4
        c = zg.program_id(1) * N
        x = source.load((r - 1, c))
        target.store([r - 1, c], x)
        y = zg.load_tensor_descriptor(source, (r, c + 1000))
        zg.store_tensor_descriptor(target, (r + 1000, c), y)
    """.replace("[stride, 1], [4, N]", "(stride, 1), (4, N)").replace("[r - 1, c]", "(r - 1, c)")
    )
    width = 16 // dtypes[name].itemsize
    floating = name[0] in "fb"
    for padding in ("zero", "nan") if floating else ("zero",):
        x = np.zeros((7, 3 * width), dtypes[name])
        x[:, : 2 * width + 1] = sample(name, (7, 2 * width + 1), dtypes)
        y = np.full((9, 3 * width), 5, dtypes[name])
        expected = y.copy()
        expected[:7, : 2 * width + 1] = x[:, : 2 * width + 1]
        expected[7:9, : 2 * width + 1] = np.nan if padding == "nan" else 0
        launch(move, (3, 3), [x, y, 7, 2 * width + 1, 3 * width], N=width, PAD=padding)
        columns = slice(None, 2 * width + 1)
        a, b = y[:, columns].astype(float), expected[:, columns].astype(float)
        assert ((a == b) | (np.isnan(a) & np.isnan(b))).all()
        assert (y[:, 2 * width + 1 :] == np.full(1, 5).astype(y.dtype)).all()


def test_descriptors_of_other_ranks(kernel, launch):
    move = kernel("""
    def move(x_ptr, y_ptr, n):
        line = zg.make_tensor_descriptor(x_ptr, (n,), (1,), (8,))
        cube = zg.make_tensor_descriptor(y_ptr, (2, 3, 5), (15, 5, 1), (2, 2, 8))
        for i in range(2):
            x = line.load((i * 8,))
            cube.store((0, i * 2, 0), zg.broadcast(x, (2, 2, 8)))
    """)
    x, y = np.arange(12, dtype=np.float32) + 1, np.zeros((2, 3, 5), np.float32)
    launch(move, 1, [x, y, 12])
    assert (y[:, :2] == x[:5]).all() and (y[:, 2] == [9, 10, 11, 12, 0]).all()


def test_masked_loads_of_an_empty_array(kernel):
    loads = kernel("""
        def kernel(x, out):
            lanes = zg.arange(0, 4)
            zg.store(zg.add(out, lanes), zg.load(zg.add(x, lanes), zg.less(lanes, 0), 7))
        """)
    for dtype in (np.int32, np.bool_):
        out = np.zeros(4, dtype)
        loads[(1,)](np.zeros(0, dtype), out, interpret=True)
        assert out.tolist() == [dtype(7)] * 4


def test_pointers_are_reshaped_too(kernel, launch):
    turn = kernel("""
    def turn(x_ptr, y_ptr):
        at = zg.add(zg.mul(zg.expand(zg.arange(0, 4), 1), 8), zg.expand(zg.arange(0, 8), 0))
        sources = zg.add(x_ptr, at)
        zg.store(zg.trans(zg.add(y_ptr, at)), zg.load(zg.trans(sources)))
        cube = zg.load(zg.permute(zg.reshape(sources, (8, 2, 2)), 2, 0, 1))
        zg.store(zg.add(zg.add(y_ptr, 32), zg.arange(0, 32)), zg.ravel(cube))
    """)
    x, y = np.arange(32, dtype=np.float64), np.zeros(64)
    launch(turn, 1, [x, y])
    assert (y[:32] == x).all() and (y[32:] == x.reshape(8, 2, 2).transpose(2, 0, 1).ravel()).all()


def test_gather_out_of_range_names_the_index(kernel):
    wrong = kernel("""
    def wrong(i_ptr, y_ptr):
        at = zg.arange(0, 4)
        zg.store(zg.add(y_ptr, at), zg.gather(at, zg.load(zg.add(i_ptr, at)), 0))
    """)
    with pytest.raises(zg.KernelRuntimeError, match="gathers at index 4; it must be from 0 to 3"):
        wrong[(1,)](np.array([0, 1, 4, 2], np.int32), np.zeros(4, np.int32))
