"""The packages that each package may import, read from the sources: also inside functions and for type checking."""

import ast
import functools
import subprocess
import sys
from bisect import bisect_left
from collections.abc import Iterator
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
    "api": DEPENDENCIES | {"matplotlib", "pandas", "torch", "jax", "tensorflow", "pytest", "triton", "ray"},
}


def imported(source: str, deferred: bool = True) -> Iterator[tuple[int, str]]:
    """The line and the full dotted name of each thing imported: `from a.b import c` gives `a.b.c`.

    `import_module` and `__import__` count too where the name is a literal. A relative import gives a name
    that starts with a dot. Unless `deferred` ones count, those in functions and for type checking do not.
    """
    marked = [number for number, line in enumerate(source.split("\n"), 1) if "import" in line]

    def walk(node: ast.AST) -> Iterator[ast.AST]:
        """The node and those below it, but for nodes on lines without the word: most of a source."""
        yield node
        if not deferred and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return
        if not deferred and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
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
def imports_of(file: Path, deferred: bool = True) -> tuple[tuple[int, str], ...]:
    """What a source imports, as `imported`."""
    return tuple(imported(file.read_text(encoding="utf-8"), deferred))


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


# The packages and modules of each folder, from the bottom up. Each may import those of the lines before its own.
# Imports in functions count, but not in api: methods of `Compiled` and `Kernel` lead to packages that build on these.
LAYERS: dict[str, tuple[str, ...]] = {
    "frontends": ("bodies language", "python tracing triton_c", "reflection", "library", "triton"),
    "transforms": (
        "casts early_exits simplify statements trip_count unsupported",
        "analysis calls parameters",
        "attribution kit layouts",
        "cost differentiate mirror",
        "lift sanitize schedule tiles",
        "cpu gpu",
    ),
    "backend": (
        "devices llvm mlir python",
        "cache launch ptx",
        "jit reference simulator",
        "cpu cuda proof",
        "cpu.runtime",
        "shipping",
    ),
    "api": (
        "boundary lazy passes",
        "compiler proving testing",
        "kernels",
        "building c_kernels launches sanitizing",
        "tuning",
        "bisecting exploring frameworks gradients shipping",
        "__init__ pytriton triton",
        "cli debugging distributed kernel_texts",
        "__main__",
    ),
}


def package_of(folder: str, name: str) -> str | None:
    """The entry of the table that a full name belongs to; None for a name of another folder."""
    start = "ziggurat." if folder == "api" else f"ziggurat.{folder}."
    if not f"{name}.".startswith(start) or (folder == "api" and f"{name}.".split(".")[1] in OURS):
        return None
    rest = f"{name}.".removeprefix(start)
    entries = [entry for names in LAYERS[folder] for entry in names.split() if rest.startswith(f"{entry}.")]
    return max(entries, key=len, default="__init__")


def upward_imports(folder: str) -> list[str]:
    """The imports of a folder that the table does not allow, and its files that are in no line of it."""
    order = {entry: at for at, names in enumerate(LAYERS[folder]) for entry in names.split()}
    complaints: list[str] = []
    for file in sorted((ROOT / folder).rglob("*.py")):
        path = file.relative_to(ROOT)
        parts = ("ziggurat", *path.with_suffix("").parts[folder == "api" :])
        own = package_of(folder, ".".join(parts))
        if own == "__init__" and path.parts != (folder, "__init__.py"):
            complaints.append(f"{path} is in no line of the table")
            continue
        for line, name in imports_of(file, deferred=folder != "api"):
            other = package_of(folder, name)
            if other in order and other != own and order[other] >= order.get(own or "", 0):
                complaints.append(f"{path}:{line}: {own} must not import {other}")
    return complaints


@pytest.mark.parametrize("folder", LAYERS)
def test_packages_import_those_below_them(folder: str):
    assert not (complaints := upward_imports(folder)), "\n".join(complaints)


def test_the_checker_of_layers_sees_imports_in_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    sources = {
        "backend/ptx/one.py": "from ziggurat.backend.llvm import two",
        "backend/llvm/two.py": "def f():\n    from ziggurat.backend.ptx.one import g",
        "api/kernels/three.py": "import ziggurat.cli.four\ndef f():\n    import ziggurat.tuning",
        "api/other/five.py": "",
    }
    for name, source in sources.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    assert upward_imports("backend") == ["backend/llvm/two.py:2: llvm must not import ptx"]
    assert upward_imports("api") == [
        "api/kernels/three.py:1: kernels must not import cli",
        "api/other/five.py is in no line of the table",
    ]


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
