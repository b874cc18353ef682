"""Messages for a kernel's author, whole: with source line, carets, the calls that led there, and the hint.

The examples are those of docs/reference/errors.md; `--bless` renews the messages there. Malformed text has
its tests in tests/codemodel/test_text.py, and each invariant of models in tests/codemodel/test_verify.py.
"""

from __future__ import annotations

import itertools
import linecache
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.errors import InternalError, KernelErrors, KernelNameError, ZigguratError

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "errors.md"
HEADING = re.compile(r"^##+ (.+)\n", re.MULTILINE)
EXAMPLE = re.compile(r"^```python no-run\n(.*?)^```\n\n```text\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
TYPES = {"p": zg.ptr(zg.f32), "q": zg.ptr(zg.i32), "n": zg.i32, "x": zg.f32, "BLOCK": 16}

_numbers = itertools.count()


def examples() -> list[tuple[str, str, str]]:
    """Each example of the document: the heading above it, the code, the message."""
    text = DOCUMENT.read_text(encoding="utf-8")
    return [
        (HEADING.findall(text, 0, match.start())[-1].strip("`"), match[1], match[2]) for match in EXAMPLE.finditer(text)
    ]


@pytest.fixture
def error_of() -> Iterator[Callable[[str], ZigguratError]]:
    """Runs code and compiles its `kernel` for `TYPES`; gives the error that is raised."""
    files: list[str] = []

    def run(code: str, file: str = "") -> ZigguratError:
        file = file or f"kernel_{next(_numbers)}.py"
        files.append(file)
        linecache.cache[file] = (len(code), None, code.splitlines(True), file)
        names: dict[str, Any] = {"zg": zg, "np": np, "__name__": "kernels"}
        with pytest.raises(ZigguratError) as error_info:
            exec(compile(code, file, "exec"), names)
            kernel = names["kernel"]
            kernel.triton(*(TYPES[name] for name in kernel.signature.parameters))
        assert not isinstance(error_info.value, InternalError), str(error_info.value)
        return error_info.value

    yield run
    for file in files:
        linecache.cache.pop(file, None)


def suite(text: str) -> str:
    """A kernel with this suite, which starts in line 3."""
    lines = "".join(f"    {line}\n" for line in text.splitlines())
    return f"@zg.kernel\ndef kernel(p, q, n, x, BLOCK: zg.constexpr):\n{lines}"


@pytest.mark.parametrize(("title", "code", "message"), examples(), ids=[title for title, _, _ in examples()])
def test_the_documented_messages(
    title: str, code: str, message: str, error_of: Callable[..., ZigguratError], request: pytest.FixtureRequest
):
    error = error_of(code, "kernel.py")
    assert not title.endswith("Error") or type(error).__name__ == title
    printed = f"{error}\n"
    if request.config.getoption("--bless"):
        text = DOCUMENT.read_text(encoding="utf-8")
        old = f"```python no-run\n{code}```\n\n```text\n{message}```\n"
        assert text.count(old) == 1
        DOCUMENT.write_text(
            text.replace(old, old.removesuffix(f"{message}```\n") + f"{printed}```\n"), encoding="utf-8"
        )
        return
    assert printed == message, "--bless renews the message in docs/reference/errors.md"


def test_a_product_of_tensors_names_dot(error_of: Callable[..., ZigguratError]):
    error = error_of(suite("t = zg.zeros((16, 16), zg.f16)\nu = t @ t"))
    assert (error.summary, error.hint) == ("a kernel cannot use the operator @", "write zg.dot(a, b)")


CONDITIONS = {
    "if t: pass": ("if", "t"),
    "while t: pass": ("while", "t"),
    "u = 1 if t else 2": ("if", "t"),
}


@pytest.mark.parametrize("statement", CONDITIONS)
def test_a_tensor_is_no_condition(statement: str, error_of: Callable[..., ZigguratError]):
    what, marked = CONDITIONS[statement]
    error = error_of(suite(f"t = zg.arange(0, 4)\n{statement}"), "conditions.py")
    column = {"if t: pass": 3, "while t: pass": 6, "u = 1 if t else 2": 9}[statement]
    hint = "use zg.where to choose element by element, or reduce it to a scalar first (zg.any, zg.all)"
    assert str(error) == (
        f"the condition of '{what}' must be a scalar; got tensor<x4, i32>\n"
        f"  at conditions.py:4:{column + 5}\n"
        f"        {statement}\n"
        f"        {' ' * column}^\n"
        f"  hint: {hint}"
    )


def test_a_variable_without_a_value_is_a_name_error(error_of: Callable[..., ZigguratError]):
    for text in ("if n > 0:\n    a = 1\nb = a", "while n > 0:\n    a = n\n    n -= 1\nb = a", "b = a\na = 1", "b = c"):
        error = error_of(suite(text))
        assert isinstance(error, KernelNameError) and isinstance(error, NameError)


def test_a_constant_if_that_is_not_taken_assigns_nothing(error_of: Callable[..., ZigguratError]):
    error = error_of(suite("if BLOCK > 100:\n    a = 1\nzg.store(q, a)"))
    assert error.summary == "'a' is used before it is assigned"


def test_the_branch_that_is_not_taken_may_be_wrong():
    text = suite("if BLOCK > 100:\n    a = zg.load(n) + zg.arange(0, 3)\nelse:\n    a = 1\nzg.store(q, a)")
    linecache.cache["taken.py"] = (len(text), None, text.splitlines(True), "taken.py")
    names: dict[str, Any] = {"zg": zg}
    exec(compile(text, "taken.py", "exec"), names)
    zg.verify(names["kernel"].triton(*TYPES.values()))


# Errors of which each would, if it was not known to be one, bring others with it.
FOLLOWED = {
    "a = zg.load(n)\nb = zg.add(a, 1)\nzg.store(p, b)": 1,
    "a = zg.load(n)\nif a > 0:\n    b = 1\nelse:\n    b = p\nzg.store(q, b)": 1,
    "a = zg.load(n)\nfor i in range(a):\n    b = i\nzg.store(q, b)": 1,
    "a = zg.load(n)\nwhile a:\n    b = 1\nzg.store(q, b)": 1,
    "a, b = n\nzg.store(q, a)\nzg.store(q, b)": 1,
    "a, b, c = (n, n)\nzg.store(q, a)": 1,
    "for i in range(n):\n    a = zg.load(n)\n    for j in range(i):\n        b = zg.load(x)\n    zg.store(p, a)": 2,
    "a = zg.arange(0, 4)\nfor i in range(n):\n    a = zg.arange(0, 8)\nzg.store(zg.add(q, zg.arange(0, 4)), a)": 1,
    "a = [zg.load(i) for i in (n, p)]\nzg.store(p, a[0])": 1,
    "a = [zg.load(i) for i in (p, n)]\nzg.store(p, a[1])": 1,
    "a = zg.add(1, zg.load(n))\nb = zg.where(a, p, zg.maximum(a, 1))\nzg.store(p, b)": 1,
    "for i in range(0, n, 0):\n    a = i\nzg.store(q, a)": 1,
}


@pytest.mark.parametrize("text", FOLLOWED)
def test_what_follows_from_an_error_is_not_reported(text: str, error_of: Callable[..., ZigguratError]):
    error = error_of(suite(text))
    errors = error.errors if isinstance(error, KernelErrors) else (error,)
    assert len(errors) == FOLLOWED[text], str(error)


HELPERS = """\
@zg.function
def inner(a):
    return zg.load(a)

@zg.function
def outer(a):
    return inner(a)

@zg.function
def broken(a):
    b = zg.add(a, something)
    return {b}

"""


def test_an_error_of_a_helper_is_reported_once_for_one_list_of_types(error_of: Callable[..., ZigguratError]):
    error = error_of(HELPERS + suite("a = outer(n)\nb = outer(n)\nc = outer(x)"), "helpers.py")
    assert isinstance(error, KernelErrors)
    chains: list[list[int]] = []
    for part in error.errors:
        chain: list[int] = []
        place = part.location
        while place is not None:
            chain.append(place.line)
            place = place.caller
        chains.append(chain)
    assert chains == [[3, 7, 16], [3, 7, 18]]


def test_an_error_of_a_helper_in_a_loop_is_not_lost(error_of: Callable[..., ZigguratError]):
    error = error_of(HELPERS + suite("a = 0\nfor i in range(n):\n    a = a + 0.5\n    b = outer(i)"))
    assert error.summary == "zg.load: 'ptr' must be a pointer or a tensor of pointers; got i32"


def test_errors_in_the_source_of_a_helper_say_where_it_is_called(error_of: Callable[..., ZigguratError]):
    error = error_of(HELPERS + suite("a = broken(n)\nb = broken(x)"), "helpers.py")
    assert str(error) == (
        "2 errors\n\n"
        "name 'something' is not defined\n"
        "  at helpers.py:11:19\n"
        "        b = zg.add(a, something)\n"
        "                      ^^^^^^^^^\n"
        "  called from\n"
        "  at helpers.py:16:9\n"
        "        a = broken(n)\n"
        "            ^^^^^^^^^\n\n"
        "a kernel cannot use a set\n"
        "  at helpers.py:12:12\n"
        "        return {b}\n"
        "               ^^^\n"
        "  called from\n"
        "  at helpers.py:16:9\n"
        "        a = broken(n)\n"
        "            ^^^^^^^^^\n"
        "  hint: write a tuple: (a, b)"
    )


def test_errors_stand_in_the_order_of_the_source(error_of: Callable[..., ZigguratError]):
    error = error_of(HELPERS + suite("a = zg.load(n)\nb = outer(n)\nfor i in range(n):\n    c = zg.load(x)\nd = p + p"))
    assert isinstance(error, KernelErrors)
    outermost = [str(part).splitlines()[-2 if part.hint else -1] for part in error.errors]
    assert len(outermost) == 4
    lines: list[int] = []
    for part in error.errors:
        place = part.location
        while place is not None and place.caller is not None:
            place = place.caller
        assert place is not None
        lines.append(place.line)
    assert lines == [16, 17, 19, 20]


def test_types_that_rise_from_variable_to_variable_settle():
    names = [f"a{index}" for index in range(20)]
    text = suite(
        "\n".join(f"{name} = 0" for name in names)
        + "\nfor i in range(n):\n"
        + "\n".join(f"    {a} = {b}" for a, b in itertools.pairwise(names))
        + f"\n    {names[-1]} = x\nzg.store(p, {names[0]})"
    )
    linecache.cache["chain.py"] = (len(text), None, text.splitlines(True), "chain.py")
    scope: dict[str, Any] = {"zg": zg}
    exec(compile(text, "chain.py", "exec"), scope)
    out = np.zeros(1, np.float32)
    for count, expected in ((19, 0.0), (20, 2.5)):
        scope["kernel"][(1,)](out, np.zeros(1, np.int32), count, 2.5, BLOCK=16)
        assert out[0] == expected


@zg.kernel
def counts_from_a_constant(q):
    i = 0
    total = 0
    while i < 10:
        i += 1
        total += i
    zg.store(q, total)


def test_a_loop_whose_condition_is_known_at_the_entry_alone():
    out = np.zeros(1, np.int32)
    counts_from_a_constant[(1,)](out)
    assert out[0] == 55


def test_a_choice_between_unlike_pointers(error_of):
    error = error_of(suite("zg.load(zg.where(n > 0, p, q))"))
    assert error.summary == "zg.where chooses between unlike pointers, ptr<f32> and ptr<i32>"


def test_a_condition_that_is_wrong_is_reported_once(error_of: Callable[..., ZigguratError]):
    text = suite("while zg.load(zg.add(p, nothing)):\n        n += 1\nzg.store(p, n)")
    assert "nothing" in error_of(text).summary
