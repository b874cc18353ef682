"""Parts of `ziggurat.triton` that are imported at their first use, so that a program starts quickly."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazily(module: str, modules: Sequence[str], names: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """The `__getattr__` of a package: imports its own `modules`, and takes `names` from the modules that have them."""
    sources = {name: source for source, taken in names.items() for name in taken}

    def get(name: str) -> Any:
        if name in modules:
            return import_module(f"{module}.{name}")
        if name not in sources:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        found = getattr(import_module(f"{module}.{sources[name]}"), name)
        setattr(sys.modules[module], name, found)
        return found

    return get
