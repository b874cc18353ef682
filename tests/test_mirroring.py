"""Each source file has a test file of its own: `codemodel/ssa.py` has `tests/codemodel/test_ssa.py`.

The rule: a Python file in one of the rooms is tested in the same folder under `tests/`, in `test_` and its stem; the
folder of the command line's package is `api`. `__init__.py` and `__main__.py` only name or call what is in other files,
so they are exempt. Tests that cross modules stand beside these, or in `tests/language` and the like.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("codemodel", "frontends", "transforms", "backend", "api")
EXEMPT = ("__init__.py", "__main__.py")

# Source files that have no test file of their own, by the reason. It is an error to list one that has.
DIALECTS = "declarations: every op is read back in test_text.py, its rules are in test_verify.py and test_declare.py"
MISSING: dict[str, tuple[str, ...]] = {
    DIALECTS: (*(f"codemodel/dialects/{name}.py" for name in "arith cf core gpu math py scf tt tt_memory".split()),),
}


def sources() -> list[Path]:
    return sorted(
        file.relative_to(ROOT)
        for room in ROOMS
        for file in (ROOT / room).rglob("*.py")
        if file.name not in EXEMPT and "__pycache__" not in file.parts
    )


def mirror_of(source: Path) -> Path:
    return Path("tests") / source.parent / f"test_{source.stem}.py"


def test_every_source_file_has_a_test_file():
    listed = {Path(name) for names in MISSING.values() for name in names}
    missing = {source for source in sources() if not (ROOT / mirror_of(source)).exists()}
    told = "\n".join(f"{source} has no {mirror_of(source)}" for source in sorted(missing - listed))
    assert not told, told
    done = sorted(str(source) for source in listed if (ROOT / mirror_of(source)).exists())
    assert not done, f"take them off the list, they have their test files: {', '.join(done)}"


def test_test_files_define_tests():
    for source in sources():
        file = ROOT / mirror_of(source)
        if file.exists():
            assert "def test_" in file.read_text(encoding="utf-8"), f"{file} holds no tests"
