"""`ziggurat.triton` under the name `triton`, for programs and libraries that say `import triton`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import ziggurat.triton
from ziggurat.codemodel.errors import ZigguratError, shown
from ziggurat.triton import references

if TYPE_CHECKING:
    from importlib.metadata import Distribution

_NAME = "triton"
_OURS = "ziggurat.triton"
_VERSION = "ZIGGURAT_TRITON_VERSION"
_VALID = re.compile(r"\d+\.\d+\.\d+((a|b|rc|\.post|\.dev)\d+)*(\+[a-z0-9.]+)?")
# On the path of this process and its children: `import triton` of a child installs ziggurat there too. PyTorch starts
# its compile workers with `sys.path` in place of PYTHONPATH.
_CHILDREN = str(Path(__file__).with_name("children"))
# The modules of Triton that reach into its C++ code, or are another language.
_ABSENT = {
    "_C": "it is Triton's C++ compiler, and ziggurat is Python alone",
    "experimental": "Gluon is a language of its own; ziggurat has the names that definitions of its kernels need",
    "plugins": "plugins are written against Triton's C++ compiler",
}


class _Finder(MetaPathFinder, Loader):
    """Gives `triton` and `triton.x` as the modules `ziggurat.triton` and `ziggurat.triton.x` themselves."""

    variable: str | None = None  # The version in the environment before `install`.

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top, _, rest = fullname.partition(".")
        if top != _NAME:
            return None
        try:
            spec = importlib.util.find_spec(_ours(fullname))
        except ModuleNotFoundError:
            spec = None
        if spec is None:
            reason = _ABSENT.get(rest.partition(".")[0])
            suffix = f": {reason}" if reason else ""
            raise ModuleNotFoundError(f"ziggurat has no module '{fullname}'{suffix}", name=fullname)
        return ModuleSpec(fullname, self, origin=spec.origin, is_package=spec.submodule_search_locations is not None)

    def find_distributions(self, context: Any) -> Iterator[Distribution]:
        """The metadata of the package `triton`, for `importlib.metadata`: its name and its version."""
        from importlib.metadata import Distribution

        class Triton(Distribution):
            def read_text(self, filename: str) -> str | None:
                version = ziggurat.triton.__version__
                return f"Metadata-Version: 2.1\nName: triton\nVersion: {version}\n" if filename == "METADATA" else None

            def locate_file(self, path: Any) -> Path:
                return Path(__file__).parent / path

        if context.name in (None, _NAME):
            yield Triton()

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(_ours(spec.name))
        spec.loader_state = module.__spec__
        return module

    def get_code(self, fullname: str) -> Any:
        """The code of a module that runs as a program: `python -m triton.tools.compile`."""
        spec = importlib.util.find_spec(_ours(fullname))
        return cast("Any", spec).loader.get_code(_ours(fullname))

    def exec_module(self, module: ModuleType) -> None:
        # The import system has set the specification to that of the other name.
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state
        for name in [name for name in sys.modules if name.startswith(f"{_OURS}.")]:
            sys.modules.setdefault(_NAME + name.removeprefix(_OURS), sys.modules[name])


def _ours(name: str) -> str:
    return _OURS + name.removeprefix(_NAME)


_finder = _Finder()


def install(version: str | None = None) -> None:
    """Make `ziggurat.triton` the module `triton` of this process, and of processes that it starts.

    After this, `import triton` and `import triton.language as tl` give `ziggurat.triton` and its submodules, also in
    libraries. A second call changes nothing but the version. `triton.__version__` and the metadata of the package
    `triton` are `version`, or else that of the environment variable `ZIGGURAT_TRITON_VERSION`, or else the release that
    ziggurat follows. A library that refuses that release may accept another; what kernels mean stays the same.

    Triton itself may have been imported before by PyTorch alone, whose modules get ziggurat's. Raises `ZigguratError`
    if another module has imported it, or PyTorch has compiled with it, and for a version that is not like "3.7.1".
    """
    if version is None:
        version = os.environ.get(_VERSION) or ziggurat.triton.RELEASE
    if not isinstance(version, str) or not _VALID.fullmatch(version):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ZigguratError(
            f"the version of triton, or {_VERSION}, must be that of a release; got {shown(version)}",
            hint='give all its numbers: ziggurat.triton.install(version="3.7.1")',
        )
    if _finder in sys.meta_path:
        return _report(version)
    imported = sys.modules.get(_NAME)
    holder = references.holder_of_triton()
    if imported is not None and holder is not None:
        raise ZigguratError(
            f"ziggurat.triton.install() must come before the first import of triton; got {imported.__name__} of "
            f"{getattr(imported, '__file__', 'an unknown file')}, which {holder} has imported",
            hint="call it at the top of the program, or run python -m ziggurat.triton program.py",
        )
    _finder.variable = os.environ.get(_VERSION)
    _report(version)
    sys.meta_path.insert(0, _finder)
    _search(_CHILDREN)
    references.renew()


def uninstall() -> None:
    """Undo `install`: a later `import triton` finds Triton itself, if it is installed. Modules that were imported
    before keep what they have."""
    if _finder not in sys.meta_path:
        return
    sys.meta_path.remove(_finder)
    ziggurat.triton.__version__ = ziggurat.triton.RELEASE
    _put(_VERSION, _finder.variable)
    for name in [name for name in sys.modules if name == _NAME or name.startswith(f"{_NAME}.")]:
        del sys.modules[name]
    _search()
    references.forget()


def _report(version: str) -> None:
    """Have this process and its children see a version of Triton."""
    ziggurat.triton.__version__ = version
    _put(_VERSION, version)


def _search(*first: str) -> None:
    """Have this process and its children look for modules in these folders first, and in ours only if it is one."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    _put("PYTHONPATH", os.pathsep.join([*first, *(path for path in paths if path not in ("", _CHILDREN))]))
    sys.path[:] = [*first, *(path for path in sys.path if path != _CHILDREN)]


def _put(variable: str, value: str | None) -> None:
    if value:
        os.environ[variable] = value
    else:
        os.environ.pop(variable, None)
