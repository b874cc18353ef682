"""Kernels that are nested deeply, or unroll or inline a lot: they work, or the error names the line and the limit."""

import sys
import time

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.transforms.attribution import flow

F32 = zg.ptr(zg.f32)


def compiled(test_kernel) -> None:
    """Run a kernel of one pointer on the interpreter, and compile it."""
    test_kernel[(1,)](np.ones(1, np.float32))
    test_kernel.compile(F32, target="sm_90a")


@pytest.mark.parametrize(
    "expression",
    [
        " + ".join(["x"] * 1000),
        "zg.add(" * 190 + "x" + ", 1.0)" * 190,
        "".join(f"{i}.0 if x == {i}.0 else " for i in range(150)) + "0.0",
        "0.0 if " + " and ".join(f"x != {i}.0" for i in range(300)) + " else 1.0",
    ],
    ids=["terms", "calls", "conditions", "and"],
)
def test_deep_expressions(kernel, expression):
    compiled(kernel(f"def made(p):\n    x = zg.load(p)\n    zg.store(p, {expression})\n"))


def test_many_branches(kernel):
    branches = "".join(f"    elif x == {i}.0:\n        x = {i}.5\n" for i in range(150))
    compiled(
        kernel(f"def made(p):\n    x = zg.load(p)\n    if x < 0.0:\n        x = 0.0\n{branches}    zg.store(p, x)\n")
    )


def chain(kernel, count: int):
    """A kernel that calls a helper that calls a helper, so many times."""
    helper = kernel("def helper(x):\n    return x + 1.0\n", zg.function)
    for index in range(count):
        text = f"def helper_{index}(x):\n    return before(x) + 1.0\n"
        helper = kernel(text, zg.function, before=helper)
    return kernel("def made(p):\n    zg.store(p, helper(zg.load(p)))\n", helper=helper)


def test_a_chain_of_helpers(kernel):
    compiled(chain(kernel, 300))


def test_what_is_nested_too_deeply_is_an_error_of_the_family(kernel):
    test_kernel = chain(kernel, 4000)
    limit = sys.getrecursionlimit()
    with pytest.raises(zg.ResourceError, match="the code of 'made' is nested too deeply"):
        test_kernel.triton(F32)
    assert sys.getrecursionlimit() == limit


def test_a_statement_that_is_nested_too_deeply_is_named(kernel, monkeypatch):
    monkeypatch.setattr("ziggurat.codemodel.recursion.MAX_FRAMES", 300)
    monkeypatch.setattr("ziggurat.frontends.reflection.functions.MAX_FRAMES", 3000)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(400)
    try:
        test_kernel = kernel(
            "def made(p):\n    x = zg.load(p)\n    x = " + " + ".join(["x"] * 900) + "\n    zg.store(p, x)\n"
        )
        with pytest.raises(zg.KernelSyntaxError, match="a statement of 'made' is nested too deeply") as error_info:
            test_kernel.model
    finally:
        sys.setrecursionlimit(limit)
    assert error_info.value.location.source_line().startswith("    x = x + x")


CUBE = """
def made(p):
    x = zg.load(p)
    for i in zg.static_range(100):
        for j in zg.static_range(100):
            for k in zg.static_range(100):
                x = x + 1.0
    zg.store(p, x)
"""


@pytest.mark.parametrize(
    "text", [CUBE, CUBE.replace("for k in zg.static_range(100):", "x = helper(x, j)\n            if True:")]
)
def test_unrolling_has_a_budget(kernel, monkeypatch, text):
    monkeypatch.setattr(flow, "_MAX_ITERATIONS", 500)
    helper = kernel(
        """
        def helper(x, j: zg.constexpr):
            for k in zg.static_range(100):
                x = x + j
            return x
        """,
        zg.function,
    )
    with pytest.raises(zg.KernelValueError) as error_info:
        kernel(text, helper=helper).triton(F32)
    assert (
        error_info.value.summary
        == "an unrolled loop and those inside it must have at most 500 iterations in all; got more"
    )
    assert error_info.value.location.source_line().strip() == "for i in zg.static_range(100):"
    assert error_info.value.hint == "use range for one of the loops"


def test_loops_one_after_the_other_have_a_budget_each(kernel, monkeypatch):
    monkeypatch.setattr(flow, "_MAX_ITERATIONS", 120)
    loop = "    for i in zg.static_range(100):\n        x = x + 1.0\n"
    test_kernel = kernel(f"def made(p):\n    x = zg.load(p)\n{loop * 3}    zg.store(p, x)\n")
    assert sum(op.NAME == "arith.addf" for op in test_kernel.triton(F32).walk()) == 300


def test_inlining_has_a_budget(kernel):
    helper = kernel("def helper(x):\n    return x + 1.0\n", zg.function)
    for index in range(20):
        text = f"def helper_{index}(x):\n    return before(before(x))\n"
        helper = kernel(text, zg.function, before=helper)
    test_kernel = kernel("def made(p):\n    zg.store(p, helper(zg.load(p)))\n", helper=helper)
    start = time.process_time()
    for use in (lambda: test_kernel.compile(F32, target="sm_90a"), lambda: zg.simplify(test_kernel.triton(F32))):
        with pytest.raises(
            zg.ResourceError, match=r"inlining the functions that .* operations, more than 131,072"
        ) as error_info:
            use()
        assert error_info.value.location.source_line().strip() == "zg.store(p, helper(zg.load(p)))"
    assert time.process_time() - start < 20
