"""Cases of text files: models with the passes to run on them, and the models after these."""

import pytest

import ziggurat as zg
from ziggurat.passes import cases

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
    assert (str(first), str(second)) == (FIRST, SECOND)
    one, other = first.results()
    assert zg.same_model(one, other) and "arith.constant @2" in str(one) and "addi" not in str(one)
    renewed = first.renewed()
    assert renewed.after == str(one) and (cases(str(renewed))[0].after or "").strip("\n") == str(one).strip("\n")
    (untitled,) = cases(MODEL)
    assert (untitled.title, untitled.passes, untitled.after) == ("", ((),), None)


@pytest.mark.parametrize(
    ("passes", "message"), [("", "the passes must be named"), ("dce fol", "there is no pass 'fol'"), ("dce |", "named")]
)
def test_passes_that_a_file_must_name(passes, message):
    (case,) = cases(f"// test: x\n// passes: {passes}\n{MODEL}")
    with pytest.raises(zg.LaunchError, match=message):
        case.results()


def test_options_of_a_case():
    """Each is a bool, an integer or a text."""
    case = f"// test: x\n// passes: dce\n// options: exact_math=True num_warps=8 target=sm_80\n{MODEL}"
    (model,) = cases(case)[0].results()
    assert "arith.constant" in str(model)
    for options, message in (
        ("num_warps=7", "num_warps"),
        ("target=sm_7", "target"),
        ("exact_math=maybe", "exact_math"),
    ):
        with pytest.raises(zg.LaunchError, match=message):
            cases(f"// test: x\n// passes: dce\n// options: {options}\n{MODEL}")[0].results()


def test_passes_of_the_target():
    from ziggurat.codemodel.gpu.options import CompileOptions
    from ziggurat.passes import passes_by_name

    gpu, cpu = (passes_by_name(CompileOptions(target=target)) for target in ("sm_90a", "cpu"))
    assert {"dce", "fold", "early_exits"} <= {*gpu} & {*cpu}
    assert "place" in gpu and "place" not in cpu and "assign" in gpu and "assign" not in cpu
