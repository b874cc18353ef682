"""Returns outside of loops: Python, the Python model and the reference interpreter agree; the models are small.

What comes after an `if` in which a path returns is in the model once, however many paths lead there.
"""

from __future__ import annotations

import textwrap
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ziggurat as zg


def function(lines: str) -> str:
    return "def f(a, b, FLAG: zg.constexpr):\n" + textwrap.indent(textwrap.dedent(lines).strip("\n"), "    ")


def test_nested_ifs_with_paths_that_continue(three_ways):
    three_ways(
        function("""
        if a > 0:
            if b > 0:
                return a
            a = a + 1
            c = b
        else:
            if b < 0:
                if a < -5:
                    return b
                b = b * 2
            elif b == 2:
                return -7
            c = a
        if c > b:
            a = a - c
            if a == b:
                return c
        return a * 100 + b * 10 + c
        """)
    )


def test_constants_choose_some_of_the_paths(three_ways):
    models = three_ways(
        function("""
        if FLAG == 1:
            if a > 0:
                return b
            a = a - 1
        elif FLAG == 2:
            return a
        if b > 0:
            if FLAG:
                if a < 0:
                    return 1
                b = b + 1
            else:
                b = never_defined
        if a > b:
            if FLAG == 3:
                return a - b
            a = b
            if b == 2:
                return -1
        return a * 10 + b
        """),
        flags=(1, 2, 3),
    )
    ifs = [sum(op.NAME == "scf.if" for op in model.walk()) for model in models]
    assert ifs[1] == 0 < ifs[2] < ifs[0]


def test_variables_of_different_types_on_the_paths(three_ways):
    three_ways(
        function("""
        kind = 3
        if a > 0:
            late = b
            if b > 2:
                return late
            kind = 4
        else:
            late = 7
            if b > 0:
                kind = (1, 2)
                return kind[1]
        if late > b:
            return kind + late
        late = late + kind
        return late
        """)
    )


def test_pointers_and_tensors_are_carried_past_a_return(kernel, launch):
    test_kernel = kernel("""
    def pick(p, q, out, n):
        at = p
        x = zg.zeros((4,), zg.f32)
        if n > 0:
            if n > 5:
                return
            at = q
            x = zg.load(zg.add(q, zg.arange(0, 4)))
        else:
            if n < -5:
                x = zg.full((4,), 3.0, zg.f32)
                return
            at = p + 1
        y = zg.load(zg.add(at, zg.arange(0, 4)))
        zg.store(zg.add(out, zg.arange(0, 4)), zg.add(x, y))
    """)
    p, q = np.arange(8, dtype=np.float32), np.arange(8, dtype=np.float32) * 10
    zeros = np.zeros(4, np.float32)
    for n, expected in ((9, zeros), (3, q[:4] * 2), (-1, p[1:5]), (-9, zeros)):
        out = zeros.copy()
        launch(test_kernel, 1, [p, q, out, n])
        assert out.tolist() == expected.tolist()


def test_functions_that_return_tensors_and_tuples(kernel, launch):
    choose = kernel(
        """
        def choose(x, n):
            if n > 0:
                if n > 5:
                    return zg.add(x, 1.0), n
                n = n + 1
            else:
                if n < -5:
                    return zg.zeros((4,), zg.f32), 7
            x = zg.mul(x, 2.0)
            if n == 0:
                return x, n
            return x, n * 2
        """,
        zg.function,
    )
    test_kernel = kernel(
        """
        def made(p, out, n):
            x, m = choose(zg.load(zg.add(p, zg.arange(0, 4))), n)
            zg.store(zg.add(out, zg.arange(0, 4)), zg.add(x, m))
        """,
        choose=choose,
    )
    p = np.arange(4, dtype=np.float32)
    for n, expected in ((9, p + 10), (2, p * 2 + 6), (0, p * 2), (-1, p * 2 - 2), (-8, p * 0 + 7)):
        out = np.zeros(4, np.float32)
        launch(test_kernel, 1, [p, out, n])
        assert out.tolist() == expected.tolist()


def test_a_descriptor_that_is_chosen_before_a_return(kernel, launch):
    test_kernel = kernel("""
    def made(p, q, out, n):
        table = zg.make_tensor_descriptor(p, (4, 4), (4, 1), (4, 4))
        if n > 0:
            if n > 5:
                return
            table = zg.make_tensor_descriptor(q, (4, 4), (4, 1), (4, 4))
        zg.store(out, zg.sum(zg.ravel(table.load((0, 0))), 0))
    """)
    p, q = np.ones(16, np.float32), np.full(16, 2, np.float32)
    for n, expected in ((9, 0), (3, 32), (-1, 16)):
        out = np.zeros(1, np.float32)
        launch(test_kernel, 1, [p, q, out, n])
        assert out[0] == expected


def test_a_descriptor_that_is_made_after_a_return(kernel, launch):
    pick = kernel(
        """
        def pick(p, q, n):
            if n > 0:
                if n > 5:
                    return zg.make_tensor_descriptor(q, (4, 4), (4, 1), (4, 4))
                table = zg.make_tensor_descriptor(q, (2, 4), (4, 1), (4, 4))
            else:
                table = zg.make_tensor_descriptor(p, (4, 4), (4, 1), (4, 4))
            zg.store(p, zg.load(p) + 1)
            zg.debug_barrier()
            return table
        """,
        zg.function,
    )
    test_kernel = kernel(
        "def made(p, q, out, n): zg.store(out, zg.sum(zg.ravel(pick(p, q, n).load((0, 0))), 0))", pick=pick
    )
    for n, expected in ((9, 32), (3, 16), (-1, 17)):
        out = np.zeros(1, np.float32)
        launch(test_kernel, 1, [np.ones(16, np.float32), np.full(16, 2, np.float32), out, n])
        assert out[0] == expected


def sequential(count: int) -> str:
    ifs = "".join(f"if a > {i}:\n    if b == {i}:\n        return a + {i}\n    b = b + a\n" for i in range(count))
    return function(ifs + "return a * 10 + b\n")


def nested(count: int) -> str:
    lines: list[str] = []
    for i in range(count):
        lines += [f"if a > {i - 3}:", f"    if b == {i}:", f"        return a + {i}"]
        lines[-3:] = [f"{'    ' * i}{line}" for line in lines[-3:]]
    lines += [f"{'    ' * i}b = b + {i}" for i in reversed(range(1, count + 1))]
    return function("\n".join([*lines, "return a * 10 + b"]))


@pytest.mark.parametrize("shape", [sequential, nested])
def test_a_model_grows_linearly_with_its_returns(three_ways, shape):
    sizes: list[int] = []
    for count in (4, 8, 12):
        (model,) = three_ways(shape(count))
        sizes.append(sum(1 for _ in model.walk()))
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0]
    assert sizes[2] < 12 * 40


def test_a_guard_clause_is_one_if(kernel):
    guard = kernel("""
    def guard(p, n):
        if n > 4:
            return
        zg.store(p, n)
        if n < 0:
            return
        zg.store(p + 1, n)
    """)
    model = guard.triton(zg.ptr(zg.i32), zg.i32)
    names = [op.NAME for op in model.walk()]
    assert names.count("scf.if") == 2 and names.count("tt.store") == 2
    assert not any("Tuple" in str(op.result.type) for op in model.walk())


def test_a_short_rest_is_copied_instead_of_guarded(kernel):
    ends = kernel("""
    def ends(p, n):
        if n > 4:
            if n > 8:
                return
            zg.store(p, n)
    """)
    assert [op.NAME for op in ends.triton(zg.ptr(zg.i32), zg.i32).walk()].count("scf.if") == 2


SIMPLE = ["a = a + b", "b = b - 3", "c = a", "c = c + 2", "b = c", "a = b + 5", "c = b * 2"]


def suite_of(random: Random, depth: int) -> list[str]:
    """Some statements; those under an `if` may end in a return."""
    lines: list[str] = []
    for _ in range(random.randint(1, 3)):
        roll = random.random()
        if depth < 3 and roll < 0.6:
            condition = random.choice(["a > b", "a < 3", "b == 2", "a + b > 4", "FLAG > 0", "FLAG == 2 and a > 0"])
            lines.append(f"if {condition}:")
            lines += [f"    {line}" for line in ended(random, suite_of(random, depth + 1))]
            if random.random() < 0.5:
                lines.append("else:")
                lines += [f"    {line}" for line in ended(random, suite_of(random, depth + 1))]
        else:
            lines.append(random.choice(SIMPLE))
    return lines


def ended(random: Random, lines: list[str]) -> list[str]:
    return [*lines, f"return {random.choice(['a', 'b', 'c', 'a - c', '17'])}"] if random.random() < 0.4 else lines


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10**9))
def test_generated_returns(three_ways, seed):
    lines = suite_of(Random(seed), 0)
    three_ways(function("\n".join(["c = b", *lines, "return a * 100 + b * 10 + c"])), flags=(0, 2))


LOOPS = ["for i in range(3):", "while a > 0:", "for i in (1, 2):", "for i in zg.static_range(2):"]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_return_in_a_loop_says_what_to_do(kernel, loop):
    test_kernel = kernel(f"""
    def made(p, a):
        {loop}
            if a > 3:
                return
            a = a - 1
    """)
    with pytest.raises(zg.KernelSyntaxError) as error_info:
        test_kernel.triton(zg.ptr(zg.i32), zg.i32)
    assert error_info.value.summary == "a kernel cannot use return inside of a loop"
    assert (
        error_info.value.hint == "keep the result in a variable, leave the loop by break, and return it after the loop"
    )
