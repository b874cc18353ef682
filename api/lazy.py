"""Parts of a package that are imported at their first use, so that a program starts quickly."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

# Libraries that a program may lack, by the names of their modules. Each is a distribution of that name.
_OPTIONAL = ("jax", "tensorflow", "torch")


def lazily(
    package: str, modules: Sequence[str], names: Mapping[str, Sequence[str]], renamed: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of a package: the first imports `modules`, and takes `names` from the modules
    that have them. The second has these names with those of `__all__`, and imports nothing. `renamed` has the new names
    of those that go in the next release: they give a `DeprecationWarning`.

    Modules are named from the package on: `errors`, or `.errors` beside it. A name whose module needs an array library
    is absent where the library is.
    """
    paths = {path.rpartition(".")[2]: path for path in modules}
    sources = {name: source for source, names_of_module in names.items() for name in names_of_module}

    def get(name: str) -> Any:
        if name in paths:
            return import_module(f".{paths[name]}", package)
        if renamed is not None and name in renamed:
            message = f"{package}.{name} is {package}.{renamed[name]} now, and goes in the next release"
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            return getattr(sys.modules[package], renamed[name])
        if name not in sources:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        try:
            value = getattr(import_module(f".{sources[name]}", package), name)
        except ModuleNotFoundError as error:
            # A part of the library may be missing; and `from package import name` drops the text of the other error.
            caller = sys._getframe(1).f_code.co_name  # pyright: ignore[reportPrivateUsage]
            if error.name not in _OPTIONAL or caller == "_handle_fromlist":
                raise
            message = f"'{package}.{name}' needs {error.name}, which is not installed: pip install {error.name}"
            raise AttributeError(message) from error
        setattr(sys.modules[package], name, value)
        return value

    return get, listed(package, *(name for name in (*paths, *sources) if not name.startswith("_")))


def listed(package: str, *names: str) -> Callable[[], list[str]]:
    """The `__dir__` of a package, which users see: the names of its `__all__`, these names, and Python's own."""
    namespace = vars(sys.modules[package])
    return lambda: sorted({*namespace.get("__all__", ()), *names, *(n for n in namespace if n.startswith("__"))})
