"""Files of kernels in Triton's Python by ziggurat, whose modules their `import triton` finds.

`KERNELS` is the module of `kernels_triton.py`.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import ziggurat.triton
import ziggurat.triton.language


def loaded(name: str) -> Any:
    """The module of a file of kernels."""
    spec = importlib.util.spec_from_file_location(f"{name}_by_ziggurat", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with patch.dict(sys.modules, {"triton": ziggurat.triton, "triton.language": ziggurat.triton.language}):
        for part in ("kernels_attention", "kernels_products"):
            sys.modules.pop(part, None)
        spec.loader.exec_module(module)
    return module


KERNELS = loaded("kernels_triton")
