"""A table of ops and their lines of MLIR.

A row of `ops.txt` is `ops -> line; line`. Lines that another release reads follow after its number, `(3.4)`. The
operands are parameters, `%arg0` on. `--bless` renews the rows; a new row is the ops alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import ziggurat as zg
from ziggurat.backend.mlir import to_mlir
from ziggurat.codemodel.text.parser import parse

FILE = Path(__file__).with_name("ops.txt")
ROWS = FILE.read_text(encoding="utf-8").splitlines()
SCALARS = "i1 i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 f8e5m2 f8e4m3"
TYPES = {name: name for name in SCALARS.split()} | {
    "ptr": "ptr<f32>", "pb": "ptr<i1>", "pi": "ptr<i32>", "pu": "ptr<u32>", "pd": "ptr<f64>", "v": "tensor<x8, f32>",
    "m": "tensor<x8, i1>", "k": "tensor<x8, i32>", "ku": "tensor<x8, u32>", "kb": "tensor<x8, u8>",
    "kc": "tensor<x8, i8>", "ps": "tensor<x8, ptr<f32>>",
}  # fmt: skip
# Three of each type, so that operands differ.
PARAMETERS = ", ".join(f"%{name}{end} : {type_}" for end in ("", "_b", "_c") for name, type_ in TYPES.items())


def lines(ops: str, release: str) -> str:
    """The lines of a release, or the error."""
    try:
        text = to_mlir(parse(f'tt.func @"f" ({PARAMETERS})void -> {{ {ops} tt.return; }};'), release=release)
    except zg.ZigguratError as error:
        return f"error: {error.summary}"
    return "; ".join(line.strip() for line in text.splitlines()[2:-3])


@pytest.mark.parametrize("row", ROWS)
def test_lines(row: str, request: pytest.FixtureRequest) -> None:
    ops, _, expected = row.partition("; -> ")
    ops = f"{ops.removesuffix(';')};"
    new, old = lines(ops, "3.9"), lines(ops, "3.4")
    actual = new if new == old else f"{new} (3.4) {old}"
    if request.config.getoption("--bless"):
        rows = FILE.read_text(encoding="utf-8").splitlines()
        rows[rows.index(row)] = f"{ops} -> {actual}"
        FILE.write_text("\n".join(rows) + "\n", encoding="utf-8")
        return
    assert actual == expected
