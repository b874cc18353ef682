"""`break` and `continue`: Python, the Python model and the reference interpreter agree."""

import textwrap
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ziggurat as zg


def function(lines: str) -> str:
    return "def f(a, b, FLAG: zg.constexpr):\n" + textwrap.indent(textwrap.dedent(lines).strip("\n"), "    ")


LOOPS = {
    "for over a range": "for i in range(0, 9):",
    "for with a step": "for i in range(1, 30, 4):",
    "for downwards": "for i in range(9, -9, -2):",
    "for over run-time bounds": "for i in range(b, a):",
    "unrolled": "for i in zg.static_range(5):",
    "for over a tuple": "for i in (3, -1, 4, 1):",
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    "suite",
    [
        "if i > a: break",
        "if i > a: continue",
        "c = c + i\nif c > a:\n    break\nc = c * 2",
        "if i == b: continue\nif i > a:\n    c = -c\n    break\nc = c + i",
        "if i > a:\n    if i == b: continue\n    b = b - 1\nelse:\n    if b > 0: break\nc = c + 10",
        "if FLAG > 0: break\nc = c + i",
        "if FLAG > 0:\n    if i > 2: continue\nc = c + i",
        "c = c + i\nbreak",
        "c = c + i\ncontinue",
        "if i > a:\n    c = 1\n    break\nelif i > b:\n    c = 2\n    continue\nelse:\n    c = c + 3\n    break",
    ],
)
def test_loops_that_count(three_ways, loop, suite):
    lines = f"c = b\n{LOOPS[loop]}\n{textwrap.indent(suite, '    ')}\nreturn a * 10000 + b * 100 + c"
    three_ways(function(lines), flags=(0, 1) if "FLAG" in suite else (0,))


@pytest.mark.parametrize("loop", [loop for loop in LOOPS if loop != "for over run-time bounds"])
@pytest.mark.parametrize("suite", ["if i > a: break", "if i == b: continue\nif i > a:\n    b = b + 1\n    break"])
def test_the_index_of_a_loop_that_surely_runs_is_read_after_it(three_ways, loop, suite):
    three_ways(function(f"{LOOPS[loop]}\n{textwrap.indent(suite, '    ')}\nreturn a * 10000 + b * 100 + i"))


def test_while(three_ways):
    three_ways(
        function("""
        c = 0
        while c < 20:
            c = c + 1
            if c == a:
                break
            if c > b:
                b = b + 2
                continue
            a = a - 1
        return a * 10000 + b * 100 + c
        """)
    )


def test_while_true(three_ways):
    three_ways(
        function("""
        c = 0
        while True:
            c = c + 3
            d = c * b
            if c > a:
                break
        return c * 100 + d
        """)
    )


def test_the_condition_is_not_computed_after_a_break(kernel, launch):
    test_kernel = kernel("""
    def made(p, out, n):
        i = 0
        while zg.load(p + i) > 0:
            i = i + 1
            if i == n:
                break
        zg.store(out, i)
    """)
    for n in (1, 3, 4):
        out = np.zeros(1, np.int32)
        launch(test_kernel, 1, [np.ones(4, np.int32), out, n])
        assert out[0] == n


def test_loops_in_loops(three_ways):
    three_ways(
        function("""
        c = 0
        for i in range(0, 6):
            for j in range(0, 6):
                if j > i:
                    break
                if i + j == a:
                    continue
                c = c + j
            if c > b * 10:
                break
            k = 0
            while True:
                k = k + 1
                if k > i:
                    break
                for m in zg.static_range(3):
                    if m == k:
                        continue
                    c = c + m
        return c
        """)
    )


def test_a_variable_that_is_assigned_before_every_break(three_ways):
    three_ways(
        function("""
        while True:
            x = a * 2
            if x > 10:
                y = 1
                break
            a = a + 3
            if a == b:
                y = 2
                break
        return x * 10 + y
        """)
    )


def test_a_variable_that_is_assigned_on_the_path_that_goes_on(three_ways):
    three_ways(
        function("""
        c = 0
        for i in range(0, 5):
            if i > a:
                break
            else:
                x = i * b
            c = c + x
        return c
        """)
    )


def test_a_variable_that_only_a_break_assigns_is_not_assigned_after_a_loop_that_may_end(kernel):
    test_kernel = kernel("""
    def made(p, n):
        for i in range(0, n):
            if i > 3:
                found = i
                break
        zg.store(p, found)
    """)
    with pytest.raises(zg.KernelNameError, match="'found'"):
        test_kernel.triton(zg.ptr(zg.i32), zg.i32)


def test_constants_that_a_break_changes(three_ways):
    three_ways(
        function("""
        found = -1
        for i in range(0, 8):
            if i * b == a:
                found = i
                break
        kind = 0
        for i in zg.static_range(4):
            if i == b:
                kind = 7
                break
            kind = i
        return found * 100 + kind
        """)
    )


@pytest.mark.parametrize("dtype", ["u8", "i16", "i64", "f16", "f64"])
@pytest.mark.parametrize("loop", ["for i in range(0, 5):", "for i in zg.static_range(5):", "while True:"])
def test_literals_on_several_ways_out_take_the_type_of_the_variable(kernel, launch, dtypes, loop, dtype):
    if loop == "while True:":
        start, step, last = "i = -1", "i = i + 1", "if i == 4: break"
    else:
        start, step, last = "i = 0", "pass", "pass"
    test_kernel = kernel(f"""
    def made(p, out, numbers):
        v, n = zg.load(p), zg.load(numbers + zg.program_id(0))
        {start}
        {loop}
            {step}
            if i == n:
                if n > 2:
                    v = 1
                    break
                v = 2
                continue
            elif i == n - 1:
                v = 3
            elif i == n + 1:
                v = 4
                break
            {last}
        zg.store(out + zg.program_id(0), v)
    """)
    expected = {-2: 9, -1: 4, 0: 4, 1: 4, 2: 4, 3: 1, 4: 1, 5: 3, 6: 9}
    out = np.zeros(9, dtypes[dtype])
    launch(test_kernel, 9, [np.full(1, 9, dtypes[dtype]), out, np.array([*expected], np.int32)])
    assert out.tolist() == [*expected.values()]


def test_a_loop_whose_index_would_wrap_around_ends(kernel, launch):
    test_kernel = kernel("""
    def made(out, start, stop, step):
        count = 0
        for i in range(start, stop, 1000000000):
            count = count + 1
            if count == 9:
                break
        for i in range(start, stop, step):
            count = count + 10
            if count > 90:
                break
        for i in range(-start, -stop, -step):
            count = count + 100
            if count > 900:
                break
        zg.store(out, count)
    """)
    for stop, rounds in ((2**31 - 1, 3), (2**30, 2), (1, 1), (0, 0)):
        out = np.zeros(1, np.int32)
        launch(test_kernel, 1, [out, np.int32(0), np.int32(stop), np.int32(10**9)])
        assert out[0] == 111 * rounds


def test_tensors_pointers_and_tuples_are_carried_past_a_break(kernel, launch):
    test_kernel = kernel("""
    def made(p, out, n):
        at = p
        x = zg.zeros((4,), zg.f32)
        pair = (0, 1.0)
        for i in range(0, 4):
            x = zg.add(x, zg.load(zg.add(at, zg.arange(0, 4))))
            if i == n:
                pair = (i, 0.5)
                break
            at = at + 1
        zg.store(zg.add(out, zg.arange(0, 4)), zg.add(zg.mul(x, pair[1]), pair[0]))
    """)
    p = np.arange(8, dtype=np.float32)
    for n in (0, 2, 9):
        out = np.zeros(4, np.float32)
        launch(test_kernel, 1, [p, out, n])
        rounds = min(n + 1, 4)
        x = sum(p[i : i + 4] for i in range(rounds))
        assert out.tolist() == (x * 0.5 + n if n < 4 else x).tolist()


def test_a_loop_without_a_way_out_is_an_error(kernel):
    test_kernel = kernel("""
    def made(p, n, ON: zg.constexpr):
        while True:
            n = n + 1
            if ON == 3:
                break
        zg.store(p, n)
    """)
    test_kernel.triton(zg.ptr(zg.i32), zg.i32, 3)
    with pytest.raises(zg.KernelSyntaxError, match="this loop never ends"):
        test_kernel.triton(zg.ptr(zg.i32), zg.i32, 2)


@pytest.mark.parametrize("word", ["break", "continue"])
def test_a_statement_that_is_never_run(kernel, word):
    test_kernel = kernel(f"""
    def made(p, n):
        for i in range(0, n):
            {word}
            zg.store(p, n)
    """)
    with pytest.raises(zg.KernelSyntaxError, match="a statement after break or continue") as error_info:
        test_kernel.triton(zg.ptr(zg.i32), zg.i32)
    assert error_info.value.location.source_line().strip() == "zg.store(p, n)"


def test_breaks_that_are_never_taken_change_nothing(kernel):
    plain, guarded = (
        kernel(f"""
        def made(p, n, DEBUG: zg.constexpr):
            for i in range(0, n):
                zg.store(p + i, i)
                {line}
        """)
        for line in ("pass", "if DEBUG: break")
    )
    assert zg.same_model(plain.triton(zg.ptr(zg.i32), zg.i32, False), guarded.triton(zg.ptr(zg.i32), zg.i32, False))


def test_a_model_grows_linearly_with_its_breaks(three_ways):
    sizes = []
    for count in (4, 8, 12):
        ifs = "".join(f"    if a > {i}:\n        if b == {i}: break\n        b = b + a\n" for i in range(count))
        (model,) = three_ways(function(f"for i in range(0, 3):\n{ifs}return a * 10 + b"))
        sizes.append(sum(1 for _ in model.walk()))
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0]
    assert sizes[2] < 12 * 40


SIMPLE = [
    "a = (a + b) & 63", "b = b - 3", "c = a", "c = (c + 2) & 255", "b = c - 1", "c = (b * 2) & 63", "b = -b",
]  # fmt: skip
HEADS = [
    "for i{d} in range(0, 5):", "for i{d} in range(b & 7, 12, 3):", "for i{d} in range(4, a & 3, -1):",
    "for i{d} in zg.static_range(3):", "for i{d} in (2, 0, 5):",
]  # fmt: skip


def suite_of(random: Random, depth: int, loops: int) -> list[str]:
    """Some statements; those in a loop may end in a break or a continue."""
    lines: list[str] = []
    for _ in range(random.randint(1, 3)):
        roll = random.random()
        if depth < 4 and roll < 0.35:
            lines.append(f"if {random.choice(['a > b', 'a < 3', 'b & 3 == 1', 'a + b > 4', 'FLAG > 0', 'c > 9'])}:")
            lines += [f"    {line}" for line in ended(random, suite_of(random, depth + 1, loops), loops)]
            if random.random() < 0.5:
                lines.append("else:")
                lines += [f"    {line}" for line in ended(random, suite_of(random, depth + 1, loops), loops)]
        elif depth < 4 and loops < 2 and roll < 0.65:
            inner = [f"    {line}" for line in ended(random, suite_of(random, depth + 1, loops + 1), loops + 1)]
            if random.random() < 0.3:
                lines += [f"k{loops} = 0", f"while k{loops} < 5:", f"    k{loops} = k{loops} + 1", *inner]
            else:
                lines += [random.choice(HEADS).format(d=loops), *inner]
        else:
            lines.append(random.choice(SIMPLE))
    return lines


def ended(random: Random, lines: list[str], loops: int) -> list[str]:
    if loops and random.random() < 0.5:
        return [*lines, random.choice(["break", "continue"])]
    return lines


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10**9))
def test_generated_loops(three_ways, seed):
    lines = suite_of(Random(seed), 0, 0)
    loop = ["for n in range(0, 4):", *(f"    {line}" for line in ended(Random(seed), lines, 1))]
    three_ways(function("\n".join(["c = b", *loop, "return a * 10000 + b * 100 + c"])), flags=(0, 2))


def test_ignored_options_of_a_range_are_a_warning(kernel):
    test_kernel = kernel("""
    def made(p, n):
        for i in zg.range(0, n, num_stages=3):
            if i > 4:
                break
            zg.store(p + i, i)
    """)
    with pytest.warns(
        zg.ZigguratWarning, match="a loop with a break ignores the options of zg.range: num_stages"
    ) as error_info:
        test_kernel.triton(zg.ptr(zg.i32), zg.i32)
    assert error_info[0].filename == test_kernel.fn.__code__.co_filename and error_info[0].lineno == 2


def test_a_step_of_zero_is_an_error_when_the_kernel_runs(kernel):
    test_kernel = kernel("""
    def made(p, n, step):
        for i in range(0, n, step):
            if i > 4:
                break
            zg.store(p + i, i + 1)
    """)
    out = np.zeros(8, np.int32)
    test_kernel[1](out, 8, 2)
    assert list(out) == [1, 0, 3, 0, 5, 0, 0, 0]
    with pytest.raises(zg.KernelRuntimeError, match="the step of a loop must not be zero"):
        test_kernel[1](out, 8, 0)


@pytest.mark.parametrize("dtype", ["i32", "u32", "i64", "u64"])
def test_a_loop_with_a_break_counts_as_its_type_does(kernel, launch, dtypes, dtype):
    """Across the number at which signs change."""
    middle = 1 << (int(dtype[1:]) - 1) if dtype[0] == "u" else 0
    counts = kernel("""
    def counts(ends, out, last):
        rounds = 0
        for i in range(zg.load(ends), zg.load(zg.add(ends, 1))):
            rounds += 1
            if rounds == last:
                break
        zg.store(out, rounds)
    """)
    for start, stop, last, expected in ((-3, 3, 9, 6), (-3, 3, 4, 4), (3, -3, 9, 0), (1, 1, 9, 0)):
        out = np.zeros(1, np.int32)
        launch(counts, 1, [np.array([middle + start, middle + stop], dtypes[dtype]), out, last])
        assert out[0] == expected
