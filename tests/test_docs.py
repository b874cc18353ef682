"""The documents are run: what README.md and docs/*.md show as Python works, and prints what they say it prints.

The ```python blocks of a file are run as one program, in a process of their own; ```python no-run blocks are not. A
```text output block holds what was printed since the block of that kind before it; --bless renews these. Examples in
docstrings are doctests. A document with the comment `<!-- needs: torch -->` is run where torch is installed.
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from libraries import skip_without

import ziggurat.codemodel.errors as errors

ROOT = Path(__file__).resolve().parent.parent
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = {
    "codemodel": "codemodel",
    "frontends": "frontends",
    "transforms": "transforms",
    "backend": "backend",
    "api": "",
}
MARK = "\x1e"


def program_of(document: str) -> tuple[str, list[tuple[int, str]]]:
    """The Python of a document, each line where it stands there, and the outputs it shows, each with its line number.

    Where an output is shown, the program prints a mark.
    """
    lines: list[str] = []
    outputs: list[tuple[int, str]] = []
    fence = info = ""
    for number, line in enumerate(document.splitlines(), 1):
        mark = re.match(r"\s*(`{3,}|~{3,})\s*(.*?)\s*$", line)
        if not fence and mark:
            fence, info = mark.groups()
            if info == "text output":
                outputs.append((number, ""))
                lines.append(f"print({MARK!r}, end='')")
            else:
                lines.append("")
        elif mark and mark[1].startswith(fence) and not mark[2]:
            fence = info = ""
            lines.append("")
        else:
            lines.append(line if info == "python" else "")
            if info == "text output":
                outputs[-1] = (outputs[-1][0], outputs[-1][1] + line + "\n")
    assert not fence, "a block is not closed"
    return "\n".join(lines) + "\n", outputs


def renew(file: Path, outputs: list[tuple[int, str]], printed: list[str]) -> None:
    lines = file.read_text(encoding="utf-8").splitlines()
    for (start, old), new in reversed(list(zip(outputs, printed, strict=False))):
        lines[start : start + len(old.splitlines())] = new.rstrip().splitlines()
    text = "\n".join(lines) + "\n"
    if text != file.read_text(encoding="utf-8"):
        file.write_text(text, encoding="utf-8")


def runs_python(file: Path) -> bool:
    return file.exists() and bool(program_of(file.read_text(encoding="utf-8"))[0].strip())


def shown(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def libraries(file: Path) -> list[str]:
    """The array libraries that a document needs."""
    return re.findall(r"\w+", "".join(re.findall(r"<!-- needs: (.*?) -->", file.read_text(encoding="utf-8"))))


@pytest.mark.parametrize("file", [file for file in FILES if runs_python(file)], ids=shown)
def test_the_code_of_a_document_runs_and_prints_what_it_shows(
    file: Path, tmp_path: Path, request: pytest.FixtureRequest
):
    text = file.read_text(encoding="utf-8")
    skip_without(libraries(file))
    code, outputs = program_of(text)
    script = tmp_path / f"{file.stem.replace('-', '_')}.py"
    script.write_text(code, encoding="utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", str(script)],  # -P: a script may be called torch.py.
        cwd=ROOT, env=environment, capture_output=True, text=True, encoding="utf-8", timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, f"{shown(file)} (lines as in the script):\n{done.stderr}"
    printed = done.stdout.split(MARK)
    if request.config.getoption("--bless"):
        renew(file, outputs, printed)
        return
    for (line, expected), actual in zip(outputs, printed, strict=False):
        assert actual.rstrip() == expected.rstrip(), f"{shown(file)}:{line} shows something else than what is printed"
    assert len(printed) == len(outputs) + 1


def test_how_documents_are_read():
    text = (
        "# t\n```python\nprint(1)\n```\n\n```text output\n1\n```\n```python no-run\nno\n```\n"
        "```sh\nls\n```\n```python\nprint(2)\n```\n"
    )
    code, outputs = program_of(text)
    assert {number: line for number, line in enumerate(code.splitlines(), 1) if line} == {
        3: "print(1)",
        6: f"print({MARK!r}, end='')",
        16: "print(2)",
    }
    assert outputs == [(6, "1\n")]
    with pytest.raises(AssertionError, match="not closed"):
        program_of("```python\n")


def test_the_documents_that_show_code_are_found():
    documents = {shown(file) for file in FILES if runs_python(file)}
    assert {"README.md", "docs/guides/adding-a-call.md", "docs/reference/errors.md"} <= documents


def modules_with_examples() -> list[str]:
    modules: list[str] = []
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            if re.search(r"^\s*>>> ", file.read_text(encoding="utf-8"), re.MULTILINE):
                inside = file.relative_to(ROOT / folder).with_suffix("").parts
                parts = ["ziggurat", FOLDERS[folder], *(part for part in inside if part != "__init__")]
                modules.append(".".join(part for part in parts if part))
    return modules


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_in_docstrings(name: str):
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.attempted > 0 and results.failed == 0


def error_classes() -> list[str]:
    return [
        name
        for name, cls in vars(errors).items()
        if inspect.isclass(cls) and issubclass(cls, errors.ZigguratError) and cls.__module__ == errors.__name__
    ]


@pytest.mark.parametrize("name", error_classes())
def test_each_error_has_an_entry_with_an_example(name: str):
    document = ROOT / "docs" / "reference" / "errors.md"
    sections = re.split(r"^## ", document.read_text(encoding="utf-8"), flags=re.MULTILINE)
    (entry,) = [section for section in sections if section.startswith(f"`{name}`\n")]
    assert re.search(r"^```text", entry, re.MULTILINE), f"the entry of {name} shows no message"


# Pictures that a browser draws are not the same everywhere.
PICTURES = sorted(file for file in (ROOT / "docs" / "pictures").glob("*.py") if file.with_suffix(".svg").exists())


@pytest.mark.parametrize("file", PICTURES, ids=lambda file: file.stem)
def test_a_picture_is_what_its_program_draws(file: Path, request: pytest.FixtureRequest):
    drawing = subprocess.run(
        [sys.executable, str(file)], capture_output=True, encoding="utf-8", timeout=120, check=True
    )
    picture = file.with_suffix(".svg")
    if request.config.getoption("--bless"):
        picture.write_text(drawing.stdout, encoding="utf-8")
    assert picture.read_text(encoding="utf-8") == drawing.stdout


def test_the_front_page_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_links_between_documents_exist():
    for file in FILES:
        if file.exists():
            prose = re.sub(
                r"^(```|~~~).*?^\1|`[^`\n]*`", "", file.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
            )
            for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", prose):
                assert (file.parent / target).exists(), f"{shown(file)} links to {target}"
