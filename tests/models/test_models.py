"""Models before and after passes, in the text files here; `python -m ziggurat opt FILE --check` runs the passes."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

import ziggurat as zg
from ziggurat.cli import main
from ziggurat.passes import Case, cases, renewed

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*/*.txt"))
CASES = [(file, case) for file in FILES for case in cases(file.read_text(encoding="utf-8"))]


def results(case: Case) -> set[str]:
    """The models that the passes of a case make, in text."""
    return {str(case.steps(names, {})[-1].model) for names in case.passes}


@pytest.mark.parametrize(("file", "case"), CASES, ids=[f"{file.stem}-{case.title}" for file, case in CASES])
def test_passes_make_the_second_model_of_the_first(file: Path, case: Case, request: pytest.FixtureRequest) -> None:
    """`--bless` renews the case in its file; without `-n`, because cases share a file."""
    if request.config.getoption("--bless"):
        text = file.read_text(encoding="utf-8")
        if case.after is None or results(case) != {_canonical(case.after)}:
            file.write_text(text.replace(str(case), renewed(str(case), {})[0]), encoding="utf-8")
        return
    assert case.after is not None, "no expected model: --bless writes it"
    assert results(case) == {_canonical(case.after)}
    if file.parent.name == "simplify":
        again = attrs.evolve(case, before=case.after)
        assert results(again) == {_canonical(case.after)}, "the passes are not idempotent"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_holds_cases_as_they_print(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    inside = cases(text)
    assert text == text[: text.index("// test:")] + "\n".join(map(str, inside))
    assert len({case.title for case in inside}) == len(inside)


def test_the_command_line_runs_the_passes_of_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "model.txt"
    file.write_text('tt.func @"f" (%0 : i32)i32 -> { %1 : i32 = arith.addi %0 %0; tt.return %0; };')
    after = "(%0 : i32)i32 -> {\n    tt.return %0;\n};\n"
    assert main(["opt", str(file), "--passes", "cse,dce"]) == 0
    assert capsys.readouterr().out == f'tt.func @"f" {after}'
    titled = f"// test: unused\n// passes: dce\n{file.read_text()}\n"
    file.write_text(titled)
    assert main(["opt", str(file)]) == 0
    assert capsys.readouterr().out == f'{titled}// becomes\ntt.func @"f" {after}'


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["no.txt"], "LaunchError: there is no file no.txt"),
        ([str(HERE / "gpu" / "dots.txt"), "--passes", "dotz"], "there is no pass 'dotz'\n  hint: did you mean dots?"),
        ([str(HERE.parent / "golden" / "stages" / "vector_add.gpu.txt")], "or write '// passes: cse dce' above"),
    ],
)
def test_the_command_line_says_what_it_lacks(
    arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["opt", *arguments]) == 1
    assert error in capsys.readouterr().err


def _canonical(text: str) -> str:
    return str(zg.parse(text))
