"""Parts of a package that are imported at their first use, so that a program starts quickly."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazily(package: str, modules: Sequence[str], names: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """The `__getattr__` of a package: imports `modules`, and takes `names` from the modules that have them.

    Modules are named from the package on: `errors`, or `.errors` beside it.
    """
    paths = {path.rpartition(".")[2]: path for path in modules}
    sources = {name: source for source, taken in names.items() for name in taken}

    def get(name: str) -> Any:
        if name in paths:
            return import_module(f".{paths[name]}", package)
        if name not in sources:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        found = getattr(import_module(f".{sources[name]}", package), name)
        setattr(sys.modules[package], name, found)
        return found

    return get
