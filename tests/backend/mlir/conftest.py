"""The kernels that the tests of this folder share."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from ziggurat.codemodel.op import Op


@pytest.fixture(scope="session")
def single_op_kernels() -> dict[str, Op]:
    """Kernels of one op each, by name (`single_ops.py`)."""
    spec = importlib.util.spec_from_file_location("single_ops", Path(__file__).with_name("single_ops.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.cases()
