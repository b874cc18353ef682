"""The list of packages in pyproject.toml against the folders, and what an import costs."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
FOLDERS: dict[str, str] = {folder: package for package, folder in SETUPTOOLS["package-dir"].items()}


def source_folders() -> list[Path]:
    """Every folder with Python files below the folders of the package."""
    files = (file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))
    return sorted({file.parent for file in files})


def package_of(folder: Path) -> str:
    top, *inner = folder.relative_to(ROOT).parts
    return ".".join([FOLDERS[top], *inner])


def test_the_packages_are_the_five_folders():
    assert FOLDERS == {
        "api": "ziggurat",
        "codemodel": "ziggurat.codemodel",
        "frontends": "ziggurat.frontends",
        "transforms": "ziggurat.transforms",
        "backend": "ziggurat.backend",
    }


def test_every_source_folder_is_a_listed_package_and_the_reverse():
    listed: list[str] = SETUPTOOLS["packages"]
    assert len(listed) == len(set(listed)), "a package is listed twice"
    assert set(listed) == {package_of(folder) for folder in source_folders()}


def test_every_source_folder_has_an_init():
    assert [str(folder) for folder in source_folders() if not (folder / "__init__.py").exists()] == []


def test_the_root_is_no_package():
    assert not (ROOT / "__init__.py").exists()


def test_typed_marker_is_installed():
    import ziggurat

    assert ziggurat.__file__ is not None
    assert Path(ziggurat.__file__).with_name("py.typed").exists()


@pytest.mark.parametrize("heavy", ["numpy", "llvmlite", "cuda", "ziggurat.compiler.pipeline", "ziggurat.transforms"])
def test_import_loads_nothing_heavy(heavy: str):
    program = f"import sys, ziggurat; sys.exit({heavy!r} in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr or f"`import ziggurat` imports {heavy}"
