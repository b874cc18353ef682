"""The references that PyTorch's modules hold to Triton, or to its absence, when `install` makes ziggurat the Triton.

`import torch._dynamo` imports Triton if it is installed, and `torch.compile(…, backend="ziggurat")` comes after that
import.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any, Final, cast

_COMPAT: Final = "torch._inductor.runtime.triton_compat"
_HINTS: Final = "torch._inductor.runtime.hints"
# PyTorch's own kernels and classes derived from Triton's: they stay with the Triton that they were made with.
_COMPILING: Final = ("torch._inductor.runtime.triton_heuristics", "torch._inductor.runtime.triton_helpers")


def holder_of_triton() -> str | None:
    """The name of a module that has objects of the imported Triton and cannot have ziggurat's in their place: any but
    PyTorch's, and those of PyTorch that compile."""
    return next((module for module, _, _ in _held() if module in _COMPILING or not _is_torch(module)), None)


def renew() -> None:
    """Have PyTorch's modules refer to the module `triton` that an import gives now, and forget whether there is one.
    An imported Triton is no longer in `sys.modules` after this."""
    references = [*_held()]
    for name in [name for name in sys.modules if _is_triton(name)]:
        del sys.modules[name]
    forget()
    for module, name, value in references:
        if module != _COMPAT:
            vars(sys.modules[module])[name] = _counterpart(value)
    _execute_again(_HINTS, lambda name: name == "AttrsDescriptorWrapper")
    _execute_again(_COMPAT, lambda name: True)
    # These have looked for Triton once.
    _give("torch.utils.flop_counter", "_JITFunction", "triton.runtime.jit", "JITFunction")
    _give("torch._dynamo.utils", "triton", "triton")
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None:
        dynamo.common_constant_types.add(importlib.import_module("triton.language").dtype)


def forget() -> None:
    """Have PyTorch look for Triton again: it remembers whether there is one."""
    torch = sys.modules.get("torch.utils._triton")
    for remembered in vars(torch).values() if torch is not None else ():
        if isinstance(remembered, functools._lru_cache_wrapper):  # pyright: ignore[reportPrivateUsage]
            remembered.cache_clear()


def _held() -> Iterator[tuple[str, str, Any]]:
    """The objects of the imported Triton in other modules: the module, the name there, and the object."""
    for module, owner in [*sys.modules.items()] if "triton" in sys.modules else ():
        if not _is_triton(module) and isinstance(owner, ModuleType):  # pyright: ignore[reportUnnecessaryIsInstance]
            for name, value in [*vars(owner).items()]:
                if _is_triton(_origin(value)):
                    yield module, name, value


def _origin(value: Any) -> str:
    """The module that an object is, or comes from. Proxies, which warn or load something, are asked for no attribute,
    and so not for the `__class__` that `isinstance` reads."""
    kind = cast("type[Any]", type(value))
    if issubclass(kind, ModuleType):
        return cast(ModuleType, value).__name__
    module: Any = (value if issubclass(kind, (type, FunctionType)) else kind).__module__
    return module if isinstance(module, str) else ""


def _counterpart(value: Any) -> Any:
    """The object of the same name in ziggurat's Triton."""
    module = importlib.import_module(_origin(value))
    return module if isinstance(value, ModuleType) else getattr(module, value.__name__)


def _execute_again(module: str, renewed: Callable[[str], bool]) -> None:
    """Execute a module of PyTorch again, and give the names that are renewed to the modules that have them from it.
    Its other names keep their objects."""
    owner = sys.modules.get(module)
    if owner is None:
        return
    before = dict(vars(owner))
    after = vars(importlib.reload(owner))
    after.update({name: value for name, value in before.items() if not renewed(name)})
    changed = [name for name, value in before.items() if value is not None and after[name] is not value]
    for other in [name for name in sys.modules if _is_torch(name) and name != module]:
        names = getattr(sys.modules[other], "__dict__", {})
        for name in changed:
            if names.get(name) is before[name]:
                names[name] = after[name]


def _give(module: str, name: str, *path: str) -> None:
    """Give a module of PyTorch, if it is imported, an object of Triton."""
    if module in sys.modules:
        source = importlib.import_module(path[0])
        setattr(sys.modules[module], name, getattr(source, path[1]) if path[1:] else source)


def _is_triton(module: str) -> bool:
    return module.partition(".")[0] == "triton"


def _is_torch(module: str) -> bool:
    return module.partition(".")[0] == "torch"
