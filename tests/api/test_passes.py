"""Cases of text files: models with the passes to run on them, and the models after these."""

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.passes import cases, renewed

MODEL = """tt.func @"f" ()i32 -> {
    %0 : i32 = arith.constant @1;
    %1 : i32 = arith.addi %0 %0;
    tt.return %1;
};
"""
FIRST = f"// test: first\n// passes: fold dce | dce fold dce\n// options: target=cpu num_warps=8\n{MODEL}"
SECOND = f"// test: second\n// passes: dce\n{MODEL}// becomes\n{MODEL}"


def test_cases_of_a_text():
    first, second = cases(f"// A comment of the file.\n{FIRST}{SECOND}")
    assert (first.title, first.passes, first.after) == ("first", (("fold", "dce"), ("dce", "fold", "dce")), None)
    assert first.options == {"target": "cpu", "num_warps": "8"} and second.options == {}
    assert (second.title, second.passes) == ("second", (("dce",),)) and second.after == second.before == MODEL
    one, other = (first.steps(names, {})[-1].model for names in first.passes)
    assert zg.same_model(one, other) and "arith.constant @2" in str(one) and "addi" not in str(one)
    assert (str(first), str(second)) == (FIRST, SECOND)
    assert renewed(FIRST, {})[0] == f"{FIRST}// becomes\n{str(one).strip()}\n"
    (untitled,) = cases(MODEL)
    assert (untitled.title, untitled.passes, untitled.after) == ("", ((),), None)


@pytest.mark.parametrize(
    ("passes", "message"), [("", "the passes must be named"), ("dce fol", "there is no pass 'fol'"), ("dce |", "named")]
)
def test_passes_that_a_file_must_name(passes, message):
    with pytest.raises(zg.LaunchError, match=message):
        renewed(f"// test: x\n// passes: {passes}\n{MODEL}", {})


def test_options_of_a_case():
    """Each is a bool, an integer or a text."""
    case = f"// test: x\n// passes: dce\n// options: exact_math=True num_warps=8 target=sm_80\n{MODEL}"
    assert "arith.constant" in renewed(case, {})[0]
    for options, message in (
        ("num_warps=7", "num_warps"),
        ("target=sm_7", "target"),
        ("exact_math=maybe", "exact_math"),
        ("targt=sm_80", "there is no option 'targt'"),
        ("strict=True", "there is no option 'strict'"),
    ):
        with pytest.raises(zg.LaunchError, match=message):
            renewed(f"// test: x\n// passes: dce\n// options: {options}\n{MODEL}", {})


def test_a_text_that_breaks_a_rule_is_not_given_to_passes():
    broken = MODEL.replace("%1 : i32 = arith.addi %0 %0", "%1 : f32 = arith.addf %0 %0").replace("()i32", "()f32")
    with pytest.raises(zg.VerifyError, match=r"the model breaks 1 invariant:\n  arith\.addf"):
        renewed(f"// test: x\n// passes: fold\n{broken}", {})


def test_passes_of_the_target():
    from ziggurat.codemodel.gpu.options import CompileOptions
    from ziggurat.passes import passes_by_name

    gpu, cpu = (passes_by_name(CompileOptions(target=target)) for target in ("sm_90a", "cpu"))
    assert {"dce", "fold", "early_exits"} <= {*gpu} & {*cpu}
    assert "place" in gpu and "place" not in cpu and "assign" in gpu and "assign" not in cpu


def test_a_model_of_a_text_runs_on_drawn_and_saved_arrays(tmp_path, capsys, monkeypatch):
    from ziggurat.cli import main

    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.arange(4, dtype=np.int32))
    (tmp_path / "kernel.txt").write_text("""
    tt.func @"add" (%0 : ptr<i32>, %1 : ptr<i32>, %2 : i32)void -> {
        %3 : i32 = tt.get_program_id @0;
        %4 : ptr<i32> = tt.addptr %0 %3;
        %5 : i32 = tt.load %4;
        %6 : i32 = arith.addi %5 %2;
        tt.store %4 %6;
        tt.return;
    };""")
    (tmp_path / "function.txt").write_text('func @"f" (%0 : object)object -> { %1 : object = add %0 %0; return %1; };')
    (tmp_path / "two.txt").write_text(FIRST + SECOND)
    for arguments, output in (
        (["kernel.txt", '"x.npy", i32[2], 7', "--grid", "3"], "%0: [7 8 9 3]\n"),
        (["kernel.txt", "i32[2], i32[2], 0"], "no array has changed\n"),
        (["function.txt", "21"], "42\n"),
        (["function.txt", "(1, None)"], "(1, None, 1, None)\n"),
    ):
        assert main(["run", *arguments]) == 0, capsys.readouterr().err
        assert capsys.readouterr().out == output
    for arguments, message in (
        (["kernel.txt", "f32[2], i32[2], 7"], "arg0 must be an array of int32 for ptr<i32>"),
        (["kernel.txt", '"y.npy", i32[2], 7'], "the array 'y.npy' cannot be read"),
        (["kernel.txt", "i32[2]"], "takes 3 argument(s); got 1"),
        (["two.txt"], "'two.txt' must have one model; got 2"),
        (["none.txt"], "there is no file none.txt"),
    ):
        assert main(["run", *arguments]) == 1
        assert message in capsys.readouterr().err, message


def test_a_text_is_checked_and_blessed(tmp_path, capsys):
    from ziggurat.cli import main

    def mine(model):
        return zg.simplify(model)

    file = tmp_path / "cases.txt"
    file.write_text(f"// Of this file.\n{FIRST}\n// test: own\n// options:  target=cpu\n// passes:  mine\n{MODEL}")
    with pytest.raises(zg.LaunchError, match="there is no pass 'mine'"):
        zg.testing.check(file)
    with pytest.raises(AssertionError, match=r"(?s)first after fold dce:.*first after dce fold dce:.*own after mine:"):
        zg.testing.check(file, mine)
    zg.testing.check(file, mine, bless=True)
    zg.testing.check(file, mine)
    text = file.read_text()
    assert text.count("// becomes") == 2 and text.startswith("// Of this file.\n// test: first")
    assert "// options:  target=cpu" in text  # The lines of a case stay as they were written.
    (tmp_path / "passes.py").write_text("import ziggurat as zg\ndef mine(model):\n    return zg.simplify(model)\n")
    load = ["--load", str(tmp_path / "passes.py")]
    assert main(["opt", str(file), "--check", *load]) == 0 and "as expected" in capsys.readouterr().out
    file.write_text(file.read_text().replace("@2", "@3"))
    assert main(["opt", str(file), "--check", *load]) == 1
    assert "-    %0 : i32 = arith.constant @3;" in capsys.readouterr().err
    assert main(["opt", str(file), "--bless", *load]) == 0 and "renewed" in capsys.readouterr().out
    zg.testing.check(file, mine)
    with pytest.raises(zg.LaunchError, match="cannot be read or written"):
        zg.testing.check(tmp_path / "none.txt")
    for flag in (["--passes", "dce"], ["--option", "target=cpu"], ["--print-after", "all"], ["--diff"]):
        assert main(["opt", str(file), "--bless", *flag]) == 1
        assert f"{flag[0]} must be left out with --check and --bless" in capsys.readouterr().err


def test_a_text_is_checked_by_parts(tmp_path, capsys):
    from ziggurat.cli import main

    file = tmp_path / "parts.txt"
    lines = "// CHECK: [[X:%[0-9]]] : i32 = arith.constant @2\n// CHECK-NEXT: tt.return [[X]]\n"
    file.write_text(f"{FIRST}{lines}")
    zg.testing.check(file)
    zg.testing.check(file, bless=True)
    assert file.read_text() == f"{FIRST}{lines}"  # Lines that check parts need no whole model beside them.
    file.write_text(f"{FIRST}{lines}// becomes\n{MODEL}")
    with pytest.raises(AssertionError, match="bless=True writes the results"):
        zg.testing.check(file)
    zg.testing.check(file, bless=True)
    file.write_text(file.read_text().replace("CHECK: [[X", "CHECK: tt.ret{{.*}}|[[X"))
    for bless in (False, True):
        with pytest.raises(AssertionError, match=r"first after fold dce:\n// CHECK: tt.ret.*\nnothing matches"):
            zg.testing.check(file, bless=bless)
    assert main(["opt", str(file), "--check"]) == 1 and "nothing matches" in capsys.readouterr().err
