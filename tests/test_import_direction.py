"""The packages that each package may import, read from the sources: also inside functions and for type checking."""

import ast
import functools
import subprocess
import sys
from bisect import bisect_left
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# The dotted prefixes of our own modules that a folder may import; api may import all.
OURS: dict[str, tuple[str, ...]] = {
    "codemodel": ("ziggurat.codemodel",),
    "frontends": ("ziggurat.frontends", "ziggurat.codemodel"),
    "transforms": (
        "ziggurat.transforms",
        "ziggurat.codemodel",
        "ziggurat.frontends.language",
        "ziggurat.frontends.library",
        "ziggurat.frontends.triton_c.c_calls",
    ),
    "backend": ("ziggurat.backend", "ziggurat.codemodel", "ziggurat.transforms"),
    "api": ("ziggurat",),
}
# Imports that no module of a folder has, though its package may: the languages are known at the edge alone.
WINGS = ("ziggurat.frontends.triton", "ziggurat.frontends.triton_c")
API_WINGS = ("ziggurat.c_kernels", "ziggurat.frameworks", "ziggurat.pytriton", "ziggurat.triton")
NEVER: dict[str, tuple[str, ...]] = {
    "frontends/language": WINGS,
    "frontends/library": WINGS,
    "frontends/reflection": WINGS,
    "frontends/tracing": WINGS,
    "transforms/attribution": ("ziggurat.transforms.calls.c",),
    "transforms/mirror": ("ziggurat.transforms.calls.c",),
    **dict.fromkeys(("api/compiler", "api/kernels", "api/launches", "api/testing", "api/tuning"), API_WINGS),
}
DEPENDENCIES = {"numpy", "attrs", "attr", "ml_dtypes", "llvmlite", "cuda"}
THEIRS = dict.fromkeys(OURS, DEPENDENCIES) | {
    "frontends": DEPENDENCIES | {"lark", "pcpp"},  # Triton-C alone
    "codemodel": {"numpy", "attrs", "attr", "ml_dtypes"},
    "backend": DEPENDENCIES | {"z3"},  # backend/proof alone, which nothing imports but `zg.prove`
    # Where they are installed: plots and tables of benchmarks, operations of array libraries, what Triton's own tests
    # are run by; and `triton` by programs that run under `ziggurat.triton.install()`.
    "api": DEPENDENCIES | {"matplotlib", "pandas", "torch", "jax", "tensorflow", "pytest", "triton"},
}


def imported(source: str) -> Iterator[tuple[int, str]]:
    """The line and the full dotted name of each thing imported: `from a.b import c` gives `a.b.c`.

    `import_module` and `__import__` count too where the name is a literal. A relative import gives a name
    that starts with a dot.
    """
    marked = [number for number, line in enumerate(source.split("\n"), 1) if "import" in line]

    def walk(node: ast.AST) -> Iterator[ast.AST]:
        """The node and those below it, but for nodes on lines without the word: most of a source."""
        yield node
        for child in ast.iter_child_nodes(node):
            first, last = getattr(child, "lineno", 1), getattr(child, "end_lineno", len(source))
            at = bisect_left(marked, first)
            if at < len(marked) and marked[at] <= last:
                yield from walk(child)

    for node in walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                start = "." * level + (module or "")
                yield from ((node.lineno, f"{start}.{alias.name}") for alias in names)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


@functools.cache
def imports_of(file: Path) -> tuple[tuple[int, str], ...]:
    """What a source imports, as `imported`."""
    return tuple(imported(file.read_text(encoding="utf-8")))


def complaint(folder: str, name: str) -> str | None:
    """The reason why a package may not import `name`, or None if it may."""
    top = name.split(".")[0]
    if name.startswith("."):
        return "is relative; imports are absolute here"
    if top in OURS:
        return f"is a folder; its import name is {'ziggurat' if top == 'api' else 'ziggurat.' + top}"
    if top == "ziggurat":
        if not any(f"{name}.".startswith(f"{prefix}.") for prefix in OURS[folder]):
            return f"is out of bounds for {folder}/, which may import {', '.join(OURS[folder])}"
    elif top not in sys.stdlib_module_names and top not in THEIRS[folder]:
        return f"is not among what {folder}/ may import: {', '.join(sorted(THEIRS[folder]))}"
    return None


@pytest.mark.parametrize("folder", OURS)
def test_imports_follow_the_table(folder: str):
    found: list[str] = []
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files, f"{folder}/ holds no sources"
    for file in files:
        for line, name in imports_of(file):
            if reason := complaint(folder, name):
                found.append(f"{file.relative_to(ROOT)}:{line}: {name} {reason}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize("folder", NEVER)
def test_the_core_knows_no_other_language(folder: str):
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files, f"{folder}/ holds no sources"
    found = [
        f"{file.relative_to(ROOT)}:{line}: {name}"
        for file in files
        for line, name in imports_of(file)
        if any(f"{name}.".startswith(f"{prefix}.") for prefix in NEVER[folder])
    ]
    assert not found, "\n".join(found)


def packages_of(folder: Path) -> dict[str, set[str]]:
    """For each package at or below a folder, the others that its sources import, also inside functions.

    A package is a folder with sources. An import of something in a package below counts for that one alone.
    """
    packages = {
        f"ziggurat.{path.parent.relative_to(ROOT).as_posix().replace('/', '.')}" for path in folder.rglob("*.py")
    }
    arrows: dict[str, set[str]] = {package: set() for package in packages}
    for file in sorted(folder.rglob("*.py")):
        own = f"ziggurat.{file.parent.relative_to(ROOT).as_posix().replace('/', '.')}"
        for _, name in imports_of(file):
            parents = accumulate(name.split("."), "{}.{}".format)
            package = next((parent for parent in reversed([*parents]) if parent in arrows), own)
            arrows[own] |= {package} - {own}
    return arrows


@pytest.mark.parametrize("folder", ["frontends", "backend", "api"])
def test_packages_import_each_other_in_no_circle(folder: str):
    arrows = packages_of(ROOT / folder)
    assert len(arrows) > 1
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        pytest.fail("packages import each other: " + " → ".join(reversed(error.args[1])))


def test_the_circle_checker_sees_imports_in_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    sources = {
        "backend/a/one.py": "import ziggurat.backend.a.b.two",
        "backend/a/b/two.py": "from ziggurat.backend.c import three",
        "backend/c/three.py": "def f():\n    from ziggurat.backend.a.one import g",
    }
    for name, source in sources.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    a, b, c = (f"ziggurat.backend.{name}" for name in ("a", "a.b", "c"))
    assert packages_of(tmp_path / "backend") == {a: {b}, b: {c}, c: {a}}
    with pytest.raises(pytest.fail.Exception, match="packages import each other: ziggurat"):
        test_packages_import_each_other_in_no_circle("backend")


EXPLICIT_KERNEL = """\
import sys
import ziggurat as zg

@zg.kernel
def scale(x_ptr, out_ptr, n, BLOCK: zg.constexpr):
    at = zg.program_id(0) * BLOCK + zg.arange(0, BLOCK)
    x = zg.load(x_ptr + at, at < n)
    zg.store(out_ptr + at, x.to(zg.f32) * 2, at < n)

scale.compile(zg.ptr(zg.f16), zg.ptr(zg.f32), zg.i32, 64)
print([name for name in sys.modules if name.startswith(("ziggurat.frontends.triton", "ziggurat.triton"))])
"""


def test_an_explicit_kernel_loads_no_other_language(tmp_path: Path):
    file = tmp_path / "explicit.py"
    file.write_text(EXPLICIT_KERNEL)
    ran = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=120)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("[]\n", "", 0)


@pytest.mark.parametrize(
    ("folder", "source", "allowed"),
    [
        ("codemodel", "import ziggurat.codemodel.types", True),
        ("codemodel", "from ziggurat import codemodel", True),
        ("codemodel", "import numpy as np", True),
        ("codemodel", "import llvmlite", False),
        ("codemodel", "import ziggurat", False),
        ("codemodel", "import ziggurat.codemodelling", False),
        ("codemodel", "def f():\n    from ziggurat.transforms import simplify", False),
        ("codemodel", "from importlib import import_module\nimport_module('ziggurat.backend')", False),
        ("frontends", "from ziggurat import transforms", False),
        ("transforms", "from ziggurat.frontends.language import table", True),
        ("transforms", "from ziggurat.frontends import language", True),
        ("transforms", "from ziggurat.frontends import reflection", False),
        ("transforms", "from ziggurat.frontends.triton.triton_library import SPELLED", False),
        ("transforms", "import ziggurat.frontends", False),
        ("transforms", "from . import simplify", False),
        ("backend", "from ziggurat.frontends.language import table", False),
        ("backend", "from ziggurat import kernel", False),
        ("backend", "import torch", False),
        ("api", "import ziggurat.backend.launch, ziggurat.frontends.tracing", True),
        ("api", "import backend", False),
    ],
)
def test_the_import_checker(folder: str, source: str, allowed: bool):
    complaints = [complaint(folder, name) for _, name in imported(source)]
    assert complaints
    assert (not any(complaints)) is allowed
