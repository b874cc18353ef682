"""`ziggurat.triton` under the name `triton`, for programs and libraries that say `import triton`."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from ziggurat.codemodel.errors import ZigguratError

_NAME = "triton"
_OURS = "ziggurat.triton"
# On the path of child processes, whose `import triton` installs ziggurat there too.
_CHILDREN = str(Path(__file__).with_name("children"))
# The modules of Triton that reach into its C++ code, or are another language.
_ABSENT = {
    "_C": "it is Triton's C++ compiler, and ziggurat is Python alone",
    "experimental": "Gluon is a language of its own; ziggurat has the names that definitions of its kernels need",
    "plugins": "plugins are written against Triton's C++ compiler",
}


class _Finder(MetaPathFinder, Loader):
    """Gives `triton` and `triton.x` as the modules `ziggurat.triton` and `ziggurat.triton.x` themselves."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top, _, rest = fullname.partition(".")
        if top != _NAME:
            return None
        try:
            found = importlib.util.find_spec(_ours(fullname))
        except ModuleNotFoundError:
            found = None
        if found is None:
            reason = _ABSENT.get(rest.partition(".")[0])
            told = f": {reason}" if reason else ""
            raise ModuleNotFoundError(f"ziggurat has no module '{fullname}'{told}", name=fullname)
        return ModuleSpec(fullname, self, origin=found.origin, is_package=found.submodule_search_locations is not None)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(_ours(spec.name))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has set the specification to that of the other name.
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state
        for name in [name for name in sys.modules if name.startswith(f"{_OURS}.")]:
            sys.modules.setdefault(_NAME + name.removeprefix(_OURS), sys.modules[name])


def _ours(name: str) -> str:
    return _OURS + name.removeprefix(_NAME)


_finder = _Finder()


def install() -> None:
    """Make `ziggurat.triton` the module `triton` of this process, and of processes that it starts.

    After this, `import triton` and `import triton.language as tl` give `ziggurat.triton` and its submodules, also in
    libraries. A second call changes nothing. Raises `ZigguratError` if Triton itself was imported before.
    """
    if _finder in sys.meta_path:
        return
    imported = sys.modules.get(_NAME)
    if imported is not None:
        raise ZigguratError(
            f"ziggurat.triton.install() must come before the first import of triton; got {imported.__name__} of "
            f"{getattr(imported, '__file__', 'an unknown file')}",
            hint="call it at the top of the program, or run python -m ziggurat.triton program.py",
        )
    sys.meta_path.insert(0, _finder)
    _search([_CHILDREN, *_searched()])
    _forget_absence()


def uninstall() -> None:
    """Undo `install`: a later `import triton` finds Triton itself, if it is installed. Modules that were imported
    before keep what they have."""
    if _finder not in sys.meta_path:
        return
    sys.meta_path.remove(_finder)
    for name in [name for name in sys.modules if name == _NAME or name.startswith(f"{_NAME}.")]:
        del sys.modules[name]
    _search(_searched())
    _forget_absence()


def _searched() -> list[str]:
    """The folders that child processes look for modules in first, but for ours."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [path for path in paths if path not in ("", _CHILDREN)]


def _search(paths: Sequence[str]) -> None:
    if paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    else:
        os.environ.pop("PYTHONPATH", None)


def _forget_absence() -> None:
    """Have PyTorch look for Triton again: it remembers whether there is one."""
    torch = sys.modules.get("torch.utils._triton")
    for remembered in vars(torch).values() if torch is not None else ():
        if isinstance(remembered, functools._lru_cache_wrapper):  # pyright: ignore[reportPrivateUsage]
            remembered.cache_clear()
