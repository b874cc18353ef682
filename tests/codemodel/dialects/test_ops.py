"""A table of ops on operands of all kinds: whether an op takes them, and else the message.

A row of `ops.txt` or `gpu_ops.txt` is `op -> ok` or `op -> message`. The operands are the parameters of `TYPES` or
`GPU_TYPES`. `--bless` renews the rows; a new row is the op alone.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ziggurat as zg
from ziggurat.codemodel.errors import VerifyError
from ziggurat.codemodel.layout import blocked

HERE = Path(__file__).parent
ROWS = [(name, row) for name in ("ops", "gpu_ops") for row in (HERE / f"{name}.txt").read_text("utf-8").splitlines()]
TYPES = {
    "n": "i32", "m": "i64", "u": "u32", "x": "f32", "h": "f16", "c": "i1", "p": "ptr<f32>", "q": "ptr<i32>",
    "qu": "ptr<u32>", "v8": "tensor<x8, f32>", "i8": "tensor<x8, i32>", "c8": "tensor<x8, i1>",
    "c4": "tensor<x4, i1>", "four": "tensor<x4, f32>", "two": "tensor<x2, f32>", "pairs": "tensor<x8, x2, f32>",
    "p8": "tensor<x8, ptr<f32>>", "a": "tensor<x16, x16, f16>", "acc": "tensor<x16, x16, f32>",
    "wide": "tensor<x16, x32, f16>", "acc32": "tensor<x16, x32, f32>", "ai": "tensor<x16, x16, i32>",
    "a8": "tensor<x16, x16, i8>", "u8": "tensor<x16, x16, u8>", "e4": "tensor<x16, x16, f8e4m3>",
    "e5": "tensor<x16, x16, f8e5m2>", "batch": "tensor<x2, x16, x16, f16>", "sums": "tensor<x2, x16, x16, f32>",
    "row": "tensor<x1, x16, f32>", "line": "tensor<x1, x32, f32>", "iline": "tensor<x1, x32, i32>",
    "rows": "tensor<x8, x32, f32>", "desc": "descriptor<x1, x32, f32>", "ints": "descriptor<x1, x32, i32>",
    "two_rows": "descriptor<x2, x32, f32>", "flat": "descriptor<x32, f32>", "both": "Tuple<i32, f32>",
}  # fmt: skip
LAYOUTS = {"ONE": blocked((64,), (0,), 1, 1), "TWO": blocked((64,), (0,), 2, 1)}
GPU_TYPES = {
    "n": "i32", "x": "f32", "c": "i1", "p": "ptr<f32>", "ch": "channel", "plain": "tensor<x64, f32>",
    "v": "TENSOR(f32, ONE)", "v2": "TENSOR(f32, TWO)", "i": "TENSOR(i32, ONE)", "m": "TENSOR(i1, ONE)",
    "m2": "TENSOR(i1, TWO)", "ps": "TENSOR(ptr<f32>, ONE)", "mc": "MATRIX(f32)", "buf": "BUFFER(x64, f32)",
    "half": "BUFFER(x64, f16)", "short": "BUFFER(x32, f32)", "rows": "BUFFER(x64, x2, f32)",
    "bar": 'shared<x1, i64, "">', "bars": 'shared<n2, x1, i64, "">', "tile": "BUFFER(x8, x16, f32)",
    "turned": "BUFFER(x16, x8, f32)", "tile16": "BUFFER(x8, x16, f16)", "tiles": "BUFFER(n2, x8, x16, f32)",
    "desc": "descriptor<x8, x16, f32>", "desc2": "descriptor<n2, x8, x16, f32>", "ma": "BUFFER(x8, x4, f32)",
    "mb": "BUFFER(x4, x16, f32)", "mh": "BUFFER(x8, x4, f16)",
}  # fmt: skip


def spelled(text: str) -> str:
    """A text with the types that are short for ones with layouts."""

    def buffer(match: re.Match[str]) -> str:
        size = 1
        for part in re.findall(r"x(\d+)", match[1]):
            size *= int(part)
        return f'shared<{match[1]}, "{" ".join(str(1 << bit) for bit in range(size.bit_length() - 1))}">'

    text = re.sub(r"BUFFER\(([^)]*)\)", buffer, text)
    text = re.sub(r"TENSOR\(([^,]*), (\w+)\)", lambda match: f'tensor<x64, {match[1]}, "{LAYOUTS[match[2]]}">', text)
    return text.replace("MATRIX(f32)", f'tensor<x8, x16, f32, "{blocked((8, 16), (1, 0), 1, 1)}">')


def outcome(op: str, types: dict[str, str]) -> str:
    """The messages about an op, or "ok"."""
    parameters = ", ".join(f"%{name} : {type_}" for name, type_ in types.items())
    try:
        zg.verify(zg.parse(spelled(f'tt.func @"f" ({parameters})void -> {{ {op} tt.return; }};')))
    except VerifyError as error:
        return "; ".join(violation.message for violation in error.violations)
    except zg.ZigguratError as error:
        return error.summary.partition("\n")[0]
    return "ok"


@pytest.mark.parametrize(("name", "row"), ROWS)
def test_an_op(name: str, row: str, request: pytest.FixtureRequest) -> None:
    op, _, expected = row.partition("; -> ")
    op = f"{op.removesuffix(';')};"
    actual = outcome(op, TYPES if name == "ops" else GPU_TYPES)
    for short, layout in LAYOUTS.items():
        actual = actual.replace(f'"{layout}"', short)
    if request.config.getoption("--bless"):
        file = HERE / f"{name}.txt"
        rows = file.read_text(encoding="utf-8").splitlines()
        rows[rows.index(row)] = f"{op} -> {actual}"
        file.write_text("\n".join(rows) + "\n", encoding="utf-8")
        return
    assert actual == expected


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ("@divisibility=[16, 1]", None),
        ("@divisibility=[16]", "divisibility has one number for each parameter"),
        ("@divisibility=[16, 1, 1]", "divisibility has one number for each parameter"),
        ('@parts=["0", "1"]', None),
        ('@parts=["0"]', "parts has one string for each parameter"),
        ("@disjoint=[0, 1]", None),
        ("@disjoint=[0, 1, 0]", "disjoint has pairs of arguments"),
        ("@num_ctas=1", None),
        ("@num_ctas=4", None),
        ("@num_ctas=3", "num_ctas must be a power of two; got 3"),
        ("@num_ctas=0", "num_ctas must be a power of two; got 0"),
        ("@num_ctas=-2", "num_ctas must be a power of two; got -2"),
    ],
)
def test_a_function(attributes: str, message: str | None) -> None:
    model = f'tt.func @"f" {attributes} (%0 : ptr<f32>, %1 : i32)void -> {{ tt.return; }};'
    if message is None:
        assert attributes in str(zg.parse(model)) or attributes == "@num_ctas=1"
        zg.verify(zg.parse(model))
        return
    with pytest.raises(zg.ZigguratError, match=message):
        zg.verify(zg.parse(model))
