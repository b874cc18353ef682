"""Faults planted into the kernels of a module."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from types import ModuleType


def with_fault(module: ModuleType, old: str, new: str, folder: Path) -> ModuleType:
    """A copy of a module, in whose source a text that comes once is replaced."""
    source = inspect.getsource(module)
    assert source.count(old) == 1, f"{old!r} comes {source.count(old)} times"
    file = folder / "with_fault.py"
    file.write_text(source.replace(old, new))
    spec = importlib.util.spec_from_file_location("with_fault", file)
    assert spec is not None and spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    return copy
