"""Answers of the command line to files that hold no kernel, wrong types and broken programs."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

FILES = {
    "good.py": (
        "import ziggurat as zg\n@zg.kernel\ndef one(p, B: zg.constexpr):\n"
        "    zg.store(zg.add(p, zg.arange(0, B)), 1.0)\n"
    ),
    "syntax.py": "def f(:\n",
    "null.py": "x = 0\0\n",
    "missing.py": "import nothing_of_this_name\n",
    "raises.py": "def f():\n    return 1 / 0\n\nf()\n",
    "exits.py": "raise SystemExit(3)\n",
    "empty.py": "",
    "text.txt": "hello",
    "kernel.py": "import ziggurat as zg\n@zg.kernel\ndef one(p):\n    zg.store(p, nothing)\n",
}
COMMANDS: dict[str, tuple[list[str], str]] = {
    "no colon": (["good.py"], "LaunchError: 'good.py' does not name a kernel\n  hint: write FILE.py:NAME\n"),
    "no name": (["good.py:"], "LaunchError: there is no kernel '' in 'good.py'\n  hint: it has one\n"),
    "no kernel": (["good.py:two"], "LaunchError: there is no kernel 'two' in 'good.py'\n  hint: it has one\n"),
    "none at all": (["empty.py:one"], "LaunchError: there is no kernel 'one' in 'empty.py'\n  hint: it has none\n"),
    "no file": (["absent.py:one"], "LaunchError: there is no file 'absent.py'\n"),
    "no Python": (["text.txt:one"], "LaunchError: 'text.txt' is not a Python file\n"),
    "no types": (["good.py:one"], "LaunchError: 'one' needs 'p', 'B'\n  hint: one(p, B: zg.constexpr)\n"),
    "unknown type": (
        ["good.py:one", "ptr<f33>, 4"],
        "ParseError: argument types:1:1: value: unknown type 'f33'\n    ptr<f33>, 4\n    ^\n",
    ),
    "no list": (
        ["good.py:one", "ptr<f32>,, 4"],
        "ParseError: argument types:1:10: expected an attribute value, got ','\n    ptr<f32>,, 4\n             ^\n",
    ),
    "wrong size": (
        ["good.py:one", "ptr<f32>, 5"],
        "KernelValueError: zg.arange(0, 5) must give a power of two of numbers; got 5\n  at {folder}/good.py:4:24\n"
        "        zg.store(zg.add(p, zg.arange(0, B)), 1.0)\n                           ^^^^^^^^^^^^^^^\n"
        "  hint: use zg.arange(0, 8) and mask what is beyond\n",
    ),
    "syntax": (
        ["syntax.py:one"],
        "LaunchError: 'syntax.py' cannot be read: SyntaxError: invalid syntax\n  at {folder}/syntax.py:1:7\n"
        "    def f(:\n          ^\n",
    ),
    "null byte": (
        ["null.py:one"],
        "LaunchError: 'null.py' cannot be read: SyntaxError: source code string cannot contain null bytes\n"
        "  at {folder}/null.py:1:1\n    x = 0\0\n    ^\n",
    ),
    "import": (
        ["missing.py:one"],
        "LaunchError: 'missing.py' cannot be read: ModuleNotFoundError: No module named 'nothing_of_this_name'\n"
        "  at {folder}/missing.py:1:1\n    import nothing_of_this_name\n    ^^^^^^^^^^^^^^^^^^^^^^^^^^^\n",
    ),
    "exception": (
        ["raises.py:one"],
        "LaunchError: 'raises.py' cannot be read: ZeroDivisionError: division by zero\n  at {folder}/raises.py:2:12\n"
        "        return 1 / 0\n               ^^^^^\n",
    ),
    "exit": (
        ["exits.py:one"],
        "LaunchError: 'exits.py' ends the program (exit status 3) when it is imported\n"
        "  hint: put the main program under: if __name__ == '__main__':\n",
    ),
    "kernel": (
        ["kernel.py:one", "ptr<f32>", "--stage", "python"],
        "KernelNameError: name 'nothing' is not defined\n  at {folder}/kernel.py:4:17\n"
        "        zg.store(p, nothing)\n                    ^^^^^^^\n",
    ),
}


@pytest.mark.parametrize("what", COMMANDS)
def test_the_command_line(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from ziggurat.cli import main

    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    given, printed = COMMANDS[what]
    assert main(["show", *given]) == 1
    # Those of the package that were imported stay: another import of them would be other modules.
    for name in [
        name
        for name, module in sys.modules.items()
        if (getattr(module, "__file__", "") or "").startswith(str(tmp_path))
    ]:
        del sys.modules[name]
    out, err = capsys.readouterr()
    assert (out, err) == ("", printed.format(folder=tmp_path))


def test_the_command_line_prints_nothing_else(tmp_path: Path):
    (tmp_path / "raises.py").write_text(FILES["raises.py"], encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "ziggurat", "show", "raises.py:one"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr and "division by zero" in done.stderr


def test_passes_of_a_text_that_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ziggurat.cli import main

    file = tmp_path / "model.txt"
    file.write_bytes(b"\xff\xfe")
    assert main(["opt", str(file), "--passes", "cse"]) == 1
    assert capsys.readouterr().err.startswith(f"LaunchError: '{file}' cannot be read: 'utf-8' codec")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe"), encoding="utf-8"))
    assert main(["opt", "-", "--passes", "cse"]) == 1
    assert capsys.readouterr().err.startswith("LaunchError: standard input cannot be read: 'utf-8' codec")
