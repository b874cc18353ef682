"""The command line's `build` and `explain-miss`."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ziggurat.backend.devices.driver import current_device, is_here
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.gpu.options import CPU
from ziggurat.shipping.build import Unit
from ziggurat.shipping.library import Outcome, build, require_own
from ziggurat.shipping.variant import Variant, general, read_variants


def variants_of(source: str, load: Any) -> list[Variant]:
    """The variants of a recording, or of a file or a package with `zg.variant`. `load` gives the module of a file.

    Raises `LaunchError` where there are none.
    """
    path = Path(source)
    if path.suffix == ".json":
        return read_variants(path)
    modules: Iterable[ModuleType] = [load(source)] if path.suffix == ".py" else _package(source)
    variants = list(dict.fromkeys(variant for module in modules for variant in _in_module(module)))
    if not variants:
        raise LaunchError(
            f"'{source}' declares no variants of kernels",
            hint="VARIANTS = [zg.variant(kernel, types…)] declares some; ZIGGURAT_RECORD=launches.json records a run",
        )
    return variants


def _package(name: str) -> Iterable[ModuleType]:
    """A package and the modules in it. Raises `LaunchError` where it cannot be imported."""
    sys.path.insert(0, ".")
    try:
        package = importlib.import_module(name)
        yield package
        for entry in pkgutil.walk_packages(getattr(package, "__path__", []), f"{name}."):
            yield importlib.import_module(entry.name)
    except ImportError as error:
        raise LaunchError(
            f"'{name}' is no recording, and cannot be imported: {error}", hint="name a .json, a .py or a package"
        ) from None
    finally:
        sys.path.remove(".")


def _in_module(module: ModuleType) -> Iterable[Variant]:
    for value in vars(module).values():
        values: Any = value.values() if isinstance(value, dict) else value  # pyright: ignore[reportUnknownVariableType]
        items: Any = values if isinstance(value, dict | list | tuple) else [value]
        yield from (item for item in items if isinstance(item, Variant))


def build_command(
    sources: Sequence[str],
    output: str,
    targets: Sequence[str],
    name: str | None,
    jobs: int,
    is_general: bool,
    load: Any,
) -> str:
    """Build a library; what was done, in words. If it `is_general`, each function has a variant for arguments of any
    divisibility. Raises `LaunchError` where no variant has code."""
    folder = Path(output)
    name = name or folder.resolve().name
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise LaunchError(f"the name of a library must be a name of C; got '{name}'", hint="--name kernels")
    require_own(folder)  # Before it is compiled for.
    begin = time.perf_counter()
    variants = [variant for source in sources for variant in variants_of(source, load)]
    variants += [general(variant) for variant in variants] if is_general else []
    names = targets or [current_device().target if is_here() else CPU]
    total = len(variants) * len(names)
    done = 0

    def progress(unit: Unit, is_new: bool) -> None:
        nonlocal done
        done += 1
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{done}/{total} {unit.variant.kernel} {unit.target}\r")

    outcome = build(variants, name, names, jobs=jobs, done=progress)
    outcome.library.write(folder)
    return _report(outcome, folder, time.perf_counter() - begin)


def _report(outcome: Outcome, folder: Path, seconds: float) -> str:
    library = outcome.library
    count = sum(len(family.variants) for family in library.families)
    targets = sorted({target for own in library.targets.values() for target in own})
    lines = [
        f"{folder}: {count} variant(s) in {len(library.families)} function(s) for {', '.join(targets)}: "
        f"{outcome.compiled} compiled, {outcome.units - outcome.compiled - len(outcome.errors)} from disk, "
        f"{len(outcome.errors)} refused, {seconds:.1f} s"
    ]
    for unit, error in outcome.errors:
        lines.append(f"  no code of '{unit.variant.kernel}' for {unit.target}: {error.summary}")
    for family in library.families:
        takes = ", ".join(f"{p.type} {p.name}" for p in family.passed)
        lines.append(f"  {family.function}({takes})")
    return "\n".join([*lines, ""])


def explain_miss(folder: str, kernel: str, arguments: Sequence[Any]) -> str:
    """Which function of a library a launch takes, or which argument made it miss. Raises `LaunchError` for a folder
    that is no library, and for a kernel that it lacks."""
    path = Path(folder) / "__init__.py"
    if not (Path(folder) / "manifest.json").is_file() or not path.is_file():
        raise LaunchError(f"'{folder}' is no folder that ziggurat build has written")
    spec = importlib.util.spec_from_file_location("ziggurat_library", path)
    assert spec is not None and spec.loader is not None
    library: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(library)
    if kernel not in library.kernels:
        raise LaunchError(f"the library has no kernel '{kernel}'", hint=f"it has {', '.join(library.kernels)}")
    try:
        return f"{library.kernels[kernel].explain(*arguments)}\n"
    except TypeError as error:
        raise LaunchError(str(error)) from None
