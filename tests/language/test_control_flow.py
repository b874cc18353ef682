"""Control flow: loops, branches, returns and functions, against the same in Python."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

import ziggurat as zg


@pytest.fixture
def scalar(kernel, launch):
    """`scalar(body(lines), like, *columns)`: run a kernel, a program for each row of the columns.

    `like` is what the lines are in Python: of a row's numbers it gives the numbers that the program writes.
    """

    def check(source, like, *columns, dtype=np.int64, width=1, **names):
        test_kernel = kernel(source, **names)
        columns = [np.asarray(c, np.int64 if not isinstance(c, np.ndarray) else None) for c in columns]
        count = len(columns[0])
        out = np.full((count, width), -12345, dtype)
        launch(test_kernel, (count,), [*columns, out])
        for row in range(count):
            expected = like(*(c[row].item() for c in columns))
            expected = expected if isinstance(expected, tuple) else (expected,)
            assert out[row].tolist() == list(expected), (row, [c[row] for c in columns])

    return check


def body(lines, parameters="a_ptr, out_ptr"):
    """A kernel that loads a number from each pointer and runs these lines."""
    names = [p.strip() for p in parameters.split(",")]
    loads = "".join(f"    {p[:-4]} = zg.load({p} + pid)\n" for p in names if p.endswith("_ptr") and p != "out_ptr")
    return f"def f({parameters}):\n    pid = zg.program_id(0)\n{loads}" + textwrap.indent(
        textwrap.dedent(lines), "    "
    )


SOME = [-7, -1, 0, 1, 2, 3, 8, 13]


def test_loops_with_bounds_known_at_run_time(scalar):
    def like(start, stop, step):
        total, last = 0, -1
        for i in range(start, stop, step):
            total = total * 3 + i
            last = i
        return total, last

    lines = """
    total = zg.cast(0, zg.i64)
    last = zg.cast(-1, zg.i64)
    for i in range(start, stop, step):
        total = total * 3 + i
        last = zg.cast(i, zg.i64)
    zg.store(out_ptr + pid * 2, total)
    zg.store(out_ptr + pid * 2 + 1, last)
    """
    starts, stops, steps = zip(
        *[(a, b, c) for a in (-3, 0, 5) for b in (-4, 0, 1, 9) for c in (-3, -1, 1, 2, 7)], strict=True
    )
    scalar(body(lines, "start_ptr, stop_ptr, step_ptr, out_ptr"), like, starts, stops, steps, width=2)
    narrow = [np.array(c, np.int32) for c in (starts, stops, steps)]
    scalar(body(lines, "start_ptr, stop_ptr, step_ptr, out_ptr"), like, *narrow, width=2)


@pytest.mark.parametrize(
    "bounds", ["n", "0, n", "n, 0, -1", "n, -2, -2", "5, n", "1, n, 3", "n, n", "10, 0, -3", "0", "3, 3"]
)
def test_loops_with_constant_bounds(bounds, scalar):
    def like(n):
        total = 1
        for i in range(*eval(f"({bounds},)", {"n": n})):
            total = (total * 5 + i) % 1000003
        return total

    lines = f"""
    total = zg.cast(1, zg.i64)
    for i in range({bounds}):
        total = (total * 5 + i + 1000003) % 1000003
    zg.store(out_ptr + pid, total)
    """
    scalar(body(lines, "n_ptr, out_ptr"), like, SOME)
    scalar(body(lines.replace("range(", "zg.range("), "n_ptr, out_ptr"), like, SOME)


def test_loops_at_the_limits_of_the_index_type(kernel, launch):
    ends = kernel("""
    def ends(out_ptr, low, high, wide, N: zg.constexpr):
        count = 0
        total = zg.cast(0, zg.i64)
        for i in range(high - 5, high, 3):
            count += 1
            total += i
        for i in range(low + 4, low, -3):
            count += 1
            total += i
        for j in range(wide - 4, wide, 3):
            count += 1
            total += j - wide
        for k in range(2147483646, 2147483650):
            count += 1
            total += k - 2147483646
        for k in range(N - 3, N):
            count += 1
        zg.store(out_ptr, total)
        zg.store(out_ptr + 1, zg.cast(count, zg.i64))
    """)
    low, high, wide = -(2**31), 2**31 - 1, 2**63 - 1
    out = np.zeros(2, np.int64)
    launch(ends, 1, [out, low, high, wide], N=3_000_000_000)
    total = sum(range(high - 5, high, 3)) + sum(range(low + 4, low, -3)) - 4 - 1 + sum(range(4))
    assert out.tolist() == [total, 2 + 2 + 2 + 4 + 3]


def test_a_step_of_zero(kernel):
    stuck = kernel("""
    def stuck(n):
        for i in range(0, 4, n):
            pass
    """)
    with pytest.raises(zg.KernelRuntimeError, match="the step of a loop must not be zero"):
        stuck[(1,)](0)


def test_nested_loops_carry_none_one_and_many(scalar):
    def like(n):
        count, a, b = 0, 1, 1
        for i in range(n):
            for j in range(i):
                count += 1
            for j in range(3):
                a, b = b, (a + b) % 10007
                for k in range(j, 0, -1):
                    count += k * i
        return count, a, b

    lines = """
    count = zg.cast(0, zg.i64)
    first, b = zg.cast(1, zg.i64), zg.cast(1, zg.i64)
    for i in range(n):
        for j in range(i):
            count += 1
        for j in range(3):
            first, b = b, (first + b) % 10007
            for k in range(j, 0, -1):
                count += k * i
        for j in range(2):
            zg.store(out_ptr + pid * 3 + j, zg.cast(j, zg.i64))
    zg.store(out_ptr + pid * 3, count)
    zg.store(out_ptr + (pid * 3 + 1), first)
    zg.store(out_ptr + (pid * 3 + 2), b)
    """
    scalar(body(lines, "n_ptr, out_ptr"), like, [0, 1, 2, 5, 9], width=3)


def test_pointers_tensors_and_tuples_are_carried(kernel, launch):
    walk = kernel("""
    def walk(x_ptr, out_ptr, n):
        at = zg.arange(0, 8)
        here = zg.add(x_ptr, at)
        row = x_ptr
        total = zg.zeros((8,), zg.f32)
        pair = (0, 1.0)
        state = (total, (row, 0))
        for i in range(n):
            x = zg.load(here)
            total = zg.add(total, x)
            here = zg.add(here, 8)
            row += 8
            pair = (pair[0] + i, pair[1] * 2.0)
            state = (zg.maximum(state[0], x), (state[1][0] + 1, state[1][1] + 2))
        zg.store(zg.add(out_ptr, at), total)
        zg.store(zg.add(out_ptr, zg.add(at, 8)), state[0])
        zg.store(out_ptr + 16, pair[0] * 1.0)
        zg.store(out_ptr + 17, pair[1])
        if n > 0:
            zg.store(out_ptr + 18, zg.load(row - 8))
            zg.store(out_ptr + 19, zg.load(state[1][0]))
        zg.store(out_ptr + 20, state[1][1] * 1.0)
    """)
    x = np.random.default_rng(0).integers(-9, 9, (5, 8)).astype(np.float32)
    for n in (0, 1, 4):
        out = np.zeros(21, np.float32)
        launch(walk, 1, [x, out, n])
        assert (out[:8] == x[:n].sum(0)).all() and (out[8:16] == np.maximum(x[:n].max(0, initial=0), 0)).all()
        assert out[16] == sum(range(n)) and out[17] == 2**n and out[20] == 2 * n
        if n:
            assert out[18] == x[n - 1, 0] and out[19] == x.ravel()[n]


def test_accumulators_that_begin_as_literals(kernel, launch):
    sums = kernel("""
    def sums(out_ptr, n):
        whole = 0
        real = 0.0
        mixed = 0
        wide = 0
        truth = False
        for i in range(n):
            whole += i
            real += i * 0.5
            wide = wide + zg.cast(i, zg.i64)
            mixed = mixed + 0
            truth = truth or i == 3
        zg.static_assert(whole.dtype == zg.i32 and real.dtype == zg.f32)
        zg.static_assert(wide.dtype == zg.i64 and truth.dtype == zg.i1)
        zg.store(out_ptr, whole + 0.0)
        zg.store(out_ptr + 1, real)
        zg.store(out_ptr + 2, wide + 0.0)
        zg.store(out_ptr + 3, truth + 0.0)
        zg.store(out_ptr + 4, mixed + 0.0)
    """)
    for n in (0, 3, 7):
        out = np.zeros(5, np.float32)
        launch(sums, 1, [out, n])
        s = n * (n - 1) // 2
        assert out.tolist() == [s, s / 2, s, n > 3, 0]


def test_while(scalar):
    def like(a):
        steps, n = 0, abs(a) + 1
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
            inner = 0
            while inner * inner < n and inner < 5:
                inner += 1
            steps += inner
        return steps, n

    lines = """
    steps = zg.cast(0, zg.i64)
    n = abs(a) + 1
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
        inner = 0
        while inner * inner < n and inner < 5:
            inner += 1
        steps += inner
    while False:
        steps = 0
    zg.store(out_ptr + pid * 2, steps)
    zg.store(out_ptr + pid * 2 + 1, n)
    """
    scalar(body(lines), like, SOME, width=2)


def test_while_with_tensors(kernel, launch):
    halve = kernel("""
    def halve(x_ptr, out_ptr, limit):
        at = zg.add(zg.program_id(0) * 8, zg.arange(0, 8))
        x = zg.load(zg.add(x_ptr, at))
        rounds = 0
        while zg.sum(x) > limit:
            x = zg.div(x, 2.0)
            rounds += 1
        zg.store(zg.add(out_ptr, at), zg.add(x, rounds * 1000))
    """)
    x = np.random.default_rng(0).integers(0, 64, (4, 8)).astype(np.float32)
    x[3] = 0
    out = np.zeros_like(x)
    launch(halve, 4, [x, out, 3.0])
    for row in range(4):
        y, rounds = x[row].copy(), 0
        while y.sum() > 3:
            y, rounds = y / 2, rounds + 1
        assert (out[row] == y + rounds * 1000).all()


def test_branches(scalar):
    def like(a):
        x, y = 1, 2
        if a < 0:
            x = -a
        elif a == 0:
            y = 7
            x = 5
        elif a % 2:
            pass
        else:
            if a > 5:
                x, y = y, x
            y += a
        z = 0
        if a > 1:
            z = x + 1
            if z > 2:
                z = z * 2
        return x, y, z

    lines = """
    x, y = zg.cast(1, zg.i64), zg.cast(2, zg.i64)
    if a < 0:
        x = -a
    elif a == 0:
        y = 7
        x = 5
    elif a % 2:
        pass
    else:
        if a > 5:
            x, y = y, x
        y += a
    z = 0
    if a > 1:
        z = x + 1
        if z > 2:
            z = z * 2
    zg.store(out_ptr + pid * 3, x)
    zg.store(out_ptr + pid * 3 + 1, y)
    zg.store(out_ptr + pid * 3 + 2, z)
    """
    scalar(body(lines), like, SOME, width=3)


def test_returns_from_a_kernel(scalar):
    def like(a):
        if a < 0:
            return -a
        if a > 2:
            if a > 5:
                return a * 2
            a = a + 100
        else:
            a = a + 1000
            if a == 1001:
                return -12345
        return a

    lines = """
    if a < 0:
        zg.store(out_ptr + pid, -a)
        return
    if a > 2:
        if a > 5:
            zg.store(out_ptr + pid, a * 2)
            return
        a = a + 100
    else:
        a = a + 1000
        if a == 1001:
            return
    zg.store(out_ptr + pid, a)
    """
    scalar(body(lines), like, SOME)


@zg.function
def classify(a, limit=5, scale: zg.constexpr = 2):
    """Returns from nested branches."""
    if a < 0:
        return -1, a
    if a > limit:
        big = a * scale
        if big > 20:
            return 3, big
        elif big > 15:
            big = big + 1
        else:
            return 2, big
        return 4, big
    else:
        for i in range(3):
            a += i
    return 0, a


@zg.function
def sign(a):
    if a > 0:
        return 1
    else:
        if a < 0:
            return -1
        else:
            return 0


@zg.function
def count_down(a):
    """Returns nothing."""
    while a > 0:
        a -= 1


def test_returns_from_functions(scalar):
    lines = """
    kind, value = classify(a)
    other, double = classify(a, scale=3, limit=7)
    count_down(a)
    zg.store(out_ptr + pid * 5, zg.cast(kind, zg.i64))
    zg.store(out_ptr + pid * 5 + 1, value)
    zg.store(out_ptr + pid * 5 + 2, zg.cast(other, zg.i64))
    zg.store(out_ptr + pid * 5 + 3, double)
    zg.store(out_ptr + pid * 5 + 4, zg.cast(sign(a) * 10, zg.i64))
    """

    def like(a):
        return *classify.fn(a), *classify.fn(a, 7, 3), sign.fn(a) * 10

    scalar(body(lines), like, SOME, width=5, classify=classify, sign=sign, count_down=count_down)


def test_conditional_expressions(scalar):
    def like(a, b):
        x = a if a > b else b
        y = (a // b if b != 0 else -1) + (1 if a else 0)
        z, w = (a, b) if a < b else (b, a)
        v = 1 if a > 5 else 2 if a > 0 else 3
        return x, y, z, w, v

    lines = """
    x = a if a > b else b
    y = (a // b if b != 0 else -1) + (1 if a else 0)
    z, w = (a, b) if a < b else (b, a)
    v = 1 if a > 5 else 2 if a > 0 else 3
    zg.store(out_ptr + pid * 5, x)
    zg.store(out_ptr + pid * 5 + 1, y)
    zg.store(out_ptr + pid * 5 + 2, z)
    zg.store(out_ptr + pid * 5 + 3, w)
    zg.store(out_ptr + pid * 5 + 4, zg.cast(v, zg.i64))
    """
    pairs = [(a, b) for a in (0, 3, 8, 9) for b in (0, 1, 3, 7)]
    scalar(body(lines, "a_ptr, b_ptr, out_ptr"), like, *zip(*pairs, strict=True), width=5)


def test_short_circuits_guard_loads(kernel, launch):
    """Nothing beyond the array may be read, divided or compared."""
    guard = kernel("""
    def guard(x_ptr, out_ptr, n):
        i = zg.program_id(0)
        found = 0
        if i < n and zg.load(x_ptr + i) > 2:
            found += 1
        if i >= n or zg.load(x_ptr + i) == 1:
            found += 10
        if not (i < n and zg.load(x_ptr + i) > 0 and 12 // zg.load(x_ptr + i) > 3):
            found += 100
        both = i < n and zg.load(x_ptr + i)
        value = zg.load(x_ptr + i) if i < n else -7
        while i < n and zg.load(x_ptr + i) < 3:
            i += 1
        zg.store(out_ptr + zg.program_id(0) * 4, found)
        zg.store(out_ptr + zg.program_id(0) * 4 + 1, i)
        zg.store(out_ptr + zg.program_id(0) * 4 + 2, zg.cast(both, zg.i32))
        zg.store(out_ptr + zg.program_id(0) * 4 + 3, value)
    """)
    x, n = np.array([0, 1, 2, 3, 4, 1], np.int32), 6
    out = np.zeros((9, 4), np.int32)
    launch(guard, 9, [x, out, n])
    for i in range(9):
        inside = i < n
        expected = (inside and x[i] > 2) + 10 * (not inside or x[i] == 1)
        expected += 100 * (not (inside and x[i] > 0 and 12 // x[i] > 3))
        j = i
        while j < n and x[j] < 3:
            j += 1
        assert out[i].tolist() == [expected, j, bool(inside and x[i]), x[i] if inside else -7]


def test_chained_comparisons(scalar):
    def like(a, b):
        calls = 0
        x = 0 < a < b <= 9
        y = a == b != 3
        z = -2 < a > b
        return x + 2 * y + 4 * z

    lines = """
    x = 0 < a < b <= 9
    y = a == b != 3
    z = -2 < a > b
    zg.store(out_ptr + pid, zg.cast(x, zg.i64) + zg.cast(y, zg.i64) * 2 + zg.cast(z, zg.i64) * 4)
    """
    pairs = [(a, b) for a in (-3, 0, 1, 3, 9) for b in (-3, 1, 3, 9, 10)]
    scalar(body(lines, "a_ptr, b_ptr, out_ptr"), like, *zip(*pairs, strict=True))


def test_unrolled_loops(scalar):
    def like(a):
        total, product = 0, 1
        for i in range(4):
            total += i * a
        for i in range(7, -1, -3):
            product = product * (a + i) if i != 4 else product + 1
        return total + 5 * a, product

    lines = """
    total = zg.cast(0, zg.i64)
    product = zg.cast(1, zg.i64)
    for i in zg.static_range(4):
        zg.static_assert(i >= 0 and i < 4)
        step = i * a
        total += step
    for i in zg.static_range(7, -1, -3):
        if i != 4:
            product = product * (a + i)
        else:
            product = product + 1
    for i in zg.static_range(len(SCALES)):
        total += SCALES[i] * a
    for i in zg.static_range(3, 3):
        total = "never"
    zg.store(out_ptr + pid * 2, total)
    zg.store(out_ptr + pid * 2 + 1, product)
    """
    scalar(body(lines), like, SOME, width=2, SCALES=(2, 3))


def test_an_unrolled_loop_keeps_what_one_iteration_assigns(scalar):
    lines = """
    for i in zg.static_range(3):
        if i == 0:
            first = a * 2
        if i == 2:
            zg.store(out_ptr + pid, first + i)
    """
    scalar(body(lines), lambda a: 2 * a + 2, SOME)


def test_a_constexpr_if_never_looks_at_the_other_branch(kernel, launch):
    choose = kernel(
        """
    def choose(out_ptr, FLAG: zg.constexpr, KIND: zg.constexpr):
        if FLAG:
            value = 1
        else:
            value = zg.load(3), zg.add(FLAG, "text")
        if KIND == "double":
            value = value * 2
        elif KIND is None:
            value = zg.exp("text")
        else:
            value = value + 10
        value = value if FLAG else zg.load(value)
        if not FLAG or KIND == "double":
            value += 100
        if FLAG and KIND != "other":
            zg.store(out_ptr, value)
            return
        zg.store(out_ptr, -1)
    """
    )
    for kind, expected in (("double", 102), ("single", 11), ("other", -1)):
        out = np.zeros(1, np.int32)
        launch(choose, 1, [out], FLAG=True, KIND=kind)
        assert out[0] == expected


@zg.kernel
def counts_at_least_once(out_ptr, n):
    first = True
    count = 0
    while first or count < n:
        first = False
        count = count + 1
    zg.store(out_ptr, count)


@pytest.mark.parametrize(("n", "expected"), [(0, 1), (4, 4)])
def test_a_condition_that_is_constant_before_a_loop_only(n, expected):
    out = np.zeros(1, np.int32)
    counts_at_least_once[1](out, n)
    assert out[0] == expected
