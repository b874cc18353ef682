"""The source locations in a cached kernel are those of the current source."""

import linecache
import re

import pytest

import ziggurat as zg
from ziggurat.backend.cuda.binary import Binary
from ziggurat.backend.cuda.places import placed_as, source_map

SOURCE = """import ziggurat as zg
@zg.function
def half(v):
    return zg.mul(v, 0.5)
@zg.kernel
def k(x, B: zg.constexpr):
    at = zg.add(x, zg.arange(0, B))
    zg.store(at, half(zg.load(at)))
"""


def made(text: str, file: str):
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    scope: dict = {}
    exec(compile(text, file, "exec"), scope)
    return scope["k"].triton(zg.ptr(zg.f32), 64)


def told(code: str | bytes) -> tuple[list[str], list[str]]:
    """The files and the places of a code."""
    assert isinstance(code, str)
    return re.findall(r"\.file\t(.*)", code), re.findall(r"\.loc\t(.*)", code)


@pytest.fixture(scope="module")
def first() -> Binary:
    return zg.compile(made(SOURCE, "/t/one.py")).binary


def test_the_same_source_leaves_it_as_it_is(first):
    copies = Binary.from_bytes(first.to_bytes())
    assert copies == first and placed_as(made(SOURCE, "/t/one.py"), copies) is copies
    assert {entry[0] for entry in first.metadata["places"]} == {"/t/one.py"}


@pytest.mark.parametrize("file", ["/t/two.py", '/t/zwölf \\ "x".py'])
def test_elsewhere_it_is_as_if_compiled_there(first, file):
    model = made("\n" * 100 + SOURCE.replace("at = ", "at  =  "), file)
    result, compiled = placed_as(model, first), zg.compile(model).binary
    assert result.code == compiled.code != first.code
    assert result.metadata == compiled.metadata
    assert told(result.code)[1] and all(int(place.split()[1]) > 100 for place in told(result.code)[1])
    assert placed_as(made(SOURCE, "/t/one.py"), result) == first


def test_a_helper_may_have_moved_alone(first):
    text = SOURCE.replace("def half(v):\n", "def half(v):\n\n\n")
    result = placed_as(made(text, "/t/one.py"), first)
    assert result.code == zg.compile(made(text, "/t/one.py")).binary.code
    assert "1 6 12" in told(result.code)[1] and "1 4 12" in told(first.code)[1]


def test_calls_that_a_place_is_inlined_at_are_moved_too():
    old = made(SOURCE, "/t/one.py")
    (call,) = [op.location for op in old.walk() if op.NAME == "tt.call"]
    assert call is not None
    place = f"1 {call.line} {call.column + 1}"
    code = f'\t.loc\t1 4 12, function_name $x, inlined_at {place}\n\t.file\t1 "/t/one.py"\n'
    binary = Binary("k", code, 4, 0, (), "sm_90a", metadata={"places": source_map(old, code)})
    result = placed_as(made("\n" + SOURCE, "/t/two.py"), binary)
    assert result.code == (
        f'\t.loc\t1 5 12, function_name $x, inlined_at 1 {call.line + 1} {call.column + 1}\n\t.file\t1 "/t/two.py"\n'
    )


def test_code_without_places_is_left_alone(first):
    model = made(SOURCE, "/t/two.py")
    assert source_map(model, ".visible .entry k() {}") == []
    for binary in (Binary("k", "no places", 4, 0, (), "sm_90a"), Binary("k", b"cubin", 4, 0, (), "sm_90a")):
        assert placed_as(model, binary) is binary
