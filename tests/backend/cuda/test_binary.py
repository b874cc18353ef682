"""A compiled kernel as a value: its bytes, and what is not one."""

import json

import attrs
import pytest

from ziggurat.backend.cuda.binary import KINDS, Binary, PtxParameter
from ziggurat.codemodel.types import SCALARS

FULL = Binary(
    "entry",
    "// PTX of “add”\n\nret;",
    8,
    1024,
    (
        PtxParameter("ptr"),
        PtxParameter("tensormap", (16, 32), 64, "map", 1),
        PtxParameter("i64", part="stride0", argument=1),
    ),
    "sm_90a",
    "add",
    {"registers": 40, "stages": [1, 2]},
)


@pytest.mark.parametrize("code", [FULL.code, b"\x7fELF\n\0\xff", "", b""])
def test_what_was_written_is_read(code):
    binary = attrs.evolve(FULL, code=code)
    read = Binary.from_bytes(binary.to_bytes())
    assert read == binary and type(read.code) is type(code)
    assert read.parameters[1].box == (16, 32)  # JSON has no tuples


def test_the_first_line_is_json_for_people_with_an_editor():
    head = json.loads(FULL.to_bytes().partition(b"\n")[0])
    assert (head["symbol"], head["target"], head["num_warps"], head["shared"]) == ("entry", "sm_90a", 8, 1024)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:40],
        lambda data: data.replace(b'"symbol"', b'"cymbol"'),
        lambda data: data.replace(b'"tensormap"', b'"tensor"'),
        lambda data: data.replace(b'"ptx": true', b'"ptx": true, "x": \xff'),
        lambda data: b"[1, 2]\n" + data,
        lambda data: data + b"\xff",  # no UTF-8, as PTX is
        lambda data: data.replace(b'"num_warps": 8', b'"num_warps": "lots"'),
        lambda data: data.replace(b'"metadata": {', b'"metadata": 7, "x": {'),
        lambda data: data.replace(b'"swizzle": 64', b'"swizzle": "64"'),
        lambda data: b"[" * 100_000 + data,
    ],
)
def test_other_bytes_are_no_kernel(damage):
    with pytest.raises(ValueError, match="these bytes are not a compiled kernel"):
        Binary.from_bytes(damage(FULL.to_bytes()))


def test_threads_and_title():
    assert FULL.threads == 256 and FULL.title == "add"
    assert attrs.evolve(FULL, name="").title == "entry"
    assert "ret;" not in repr(FULL)


def test_metadata_does_not_keep_it_out_of_sets():
    assert len({FULL, attrs.evolve(FULL, metadata=dict(FULL.metadata)), attrs.evolve(FULL, name="mul")}) == 2


def test_kinds_of_parameters():
    assert {PtxParameter(kind).kind for kind in KINDS} == {*SCALARS, "ptr", "tensormap"}
    with pytest.raises(ValueError, match=r"the kind of a parameter must be one of .*ptr, tensormap; got 'pointer'"):
        PtxParameter("pointer")
