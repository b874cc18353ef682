"""Kernels that the tests of this folder share."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

from ziggurat.backend.mlir import to_mlir
from ziggurat.codemodel import dialects  # noqa: F401
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.text.parser import parse


@pytest.fixture(scope="session")
def single_op_kernels() -> dict[str, Op]:
    """Kernels of one op each, by name (`single_ops.py`)."""
    spec = importlib.util.spec_from_file_location("single_ops", Path(__file__).with_name("single_ops.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.cases()


PARAMETERS = (
    "%p : ptr<f32>, %n : i32, %x : f32, %b : i1, %u : u32, %t : tensor<x16, f32>, %k : tensor<x16, i32>, "
    "%a : tensor<x16, ptr<f32>>, %m : tensor<x16, i1>, %w : tensor<x16, x16, f16>, %h : f16, %d : f64, %e : f8e4m3"
)


@pytest.fixture(scope="session")
def written() -> Callable[[str], list[str]]:
    """The lines of MLIR for the body of a kernel, without indentation. Its parameters, `PARAMETERS`, are %arg0, %arg1,
    … there."""

    def run(body: str) -> list[str]:
        # The text of one release, whichever is installed.
        text = to_mlir(parse(f'tt.func @"f" ({PARAMETERS})void -> {{ {body} tt.return; }};'), release="3.9")
        return [line.strip() for line in text.splitlines()[2:-3]]

    return run
