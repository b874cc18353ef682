"""`python -m ziggurat`."""

import argparse
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import attrs
import pytest

import ziggurat as zg
from ziggurat.cli import _add_options, main
from ziggurat.codemodel.gpu.options import CompileOptions

SOURCE = """
import ziggurat as zg

@zg.kernel
def add_one(x_ptr, n, B: zg.constexpr):
    at = zg.arange(0, B)
    mask = zg.compare(at, n, zg.CompareKind.LESS_THAN)
    zg.store(zg.add(x_ptr, at), zg.add(zg.load(zg.add(x_ptr, at), mask), 1), mask)

@zg.function
def twice(x):
    return x + x
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "kernels.py"
    path.write_text(SOURCE)
    return f"{path}:add_one"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--stage", "python"], ['func @"add_one"', "invoke %", '@"zg.arange"']),
        (["ptr<f32>, i32, 64"], ["tt.make_range @start=0 @end=64", "tt.store"]),
        (["ptr<f32>, i32, 64", "--stage", "mlir"], ["tt.func public", "tensor<64xf32>"]),
        (["ptr<f32>, i32, 64", "--locations"], ["@loc=", "kernels.py"]),
        (["ptr<f32>, i32, 64", "--stage", "python", "--types"], ["-> tensor<x64, i32>", "-> constant<i32, c64>"]),
        (["ptr<f32>, i32, 64", "--stage", "mlir", "--locations"], ["tt.func public", "loc(", "kernels.py"]),
        (["ptr<f32>, i32, 64", "--html"], ["<pre", "tt.make_range"]),
    ],
)
def test_show(file, capsys, options, words):
    assert main(["show", file, *options]) == 0
    text = capsys.readouterr().out
    for word in words:
        assert word in text


def test_explain(file, capsys):
    assert main(["explain", file, "ptr<f32>, i32, 1024", "--divisible", "x_ptr", "--num-warps", "8"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("add_one for sm_90a: 8 warps")
    assert "zg.store(zg.add(x_ptr, at)" in text and "; `n` is not known to be a multiple of 4" in text


def test_a_limit_of_registers(file, capsys):
    assert main(["show", "--stage", "ptx", "--maxnreg", "64", file, "ptr<f32>, i32, 64"]) == 0
    assert ".maxnreg 64" in capsys.readouterr().out


def test_a_file_that_imports_triton(tmp_path, monkeypatch, capsys):
    path = tmp_path / "program.py"
    path.write_text("import triton\n")
    monkeypatch.setitem(sys.modules, "triton", None)  # As where it is not installed.
    assert main(["show", f"{path}:kernel", ""]) == 1
    assert "python -m ziggurat.triton -m ziggurat" in capsys.readouterr().err


def test_the_console_command_is_this_one():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"] == {"ziggurat": f"{main.__module__}:{main.__name__}"}


@pytest.mark.parametrize("command", ["show", "explain", "simulate", "cache", "choices", "docs"])
def test_each_command_says_what_it_does(command, capsys):
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    usage, about = capsys.readouterr().out.split("\n\n")[:2]
    assert f"ziggurat {command}" in usage and about.endswith(".")
    with pytest.raises(SystemExit):
        main(["--help"])
    assert re.search(rf"^    {command} ", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize("arguments", [["program.py", "-h"], ["-m", "program", "-h"]])
def test_a_triton_program_gets_its_own_arguments(arguments, tmp_path):
    (tmp_path / "program.py").write_text("import sys, triton\nprint(triton.__name__, sys.argv[1:])\n")
    command = [sys.executable, "-m", "ziggurat", "triton", *arguments]
    program = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert program.stdout == "ziggurat.triton ['-h']\n"


def test_the_usage_for_triton_programs_names_the_command():
    command = [sys.executable, "-m", "ziggurat", "triton"]
    program = subprocess.run(command, capture_output=True, text=True)
    assert program.returncode == 2 and program.stderr.startswith("usage: ziggurat triton (program.py")


def test_explain_is_of_a_gpu(file, capsys):
    assert main(["explain", file, "ptr<f32>, i32, 1024", "--target", "cpu"]) == 1
    assert capsys.readouterr().err == "LaunchError: explain must have a GPU as its target; got the target 'cpu'\n"


def test_what_is_wrong_is_said_without_a_traceback(file, capsys):
    assert main(["show", file, "ptr<f32>, i32"]) == 1
    output = capsys.readouterr().err
    assert output.startswith("LaunchError: 'add_one' needs 'B'")
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--types"], "--types must go with --stage python, as text\n  hint: write --stage python --types"),
        (["--stage", "python", "--types", "--html"], "--types must go with --stage python"),
        (["--stage", "ptx", "--html"], "--html must go with one of the stages python, triton, gpu, cpu, all; got ptx"),
        (
            ["--stage", "llvm", "--locations"],
            "--locations must go with one of the stages python, triton, gpu, cpu, all, mlir; got llvm",
        ),
        (["--html", "--locations"], "--html must be given without --locations"),
        (["--html", "--diff"], "--html must be given without --locations"),
        (["--stage", "ptx", "--after", "assign"], "--stage must be left out with --after and --diff"),
        (
            ["--after", "nothing"],
            "there is no pass 'nothing'\n  hint: the passes are early_exits, prepare, contract, spread, raise_pointers",
        ),
    ],
)
def test_options_that_a_stage_does_not_have_are_not_passed_over(file, capsys, options, words):
    assert main(["show", file, "ptr<f32>, i32, 64", *options]) == 1
    assert words in capsys.readouterr().err


def test_docs(capsys):
    assert main(["docs"]) == 0
    assert "zg.load" in capsys.readouterr().out
    assert main(["docs", "ops"]) == 0
    assert "tt.load" in capsys.readouterr().out


def test_the_cache_is_listed_and_cleared(tmp_path, monkeypatch, capsys):
    from ziggurat.backend.cuda import cache
    from ziggurat.backend.cuda.binary import Binary, PtxParameter

    monkeypatch.setattr(cache, "default_directory", lambda: tmp_path)
    entries = cache.Cache(tmp_path)
    entries.put("ab" * 32, Binary("k", "// ptx", 4, 0, (PtxParameter("ptr"),), "sm_90a", "add"))
    monkeypatch.setattr("ziggurat.backend.cuda.cache.Cache", lambda: entries)
    assert main(["cache"]) == 0
    assert "1 kernel(s)" in (text := capsys.readouterr().out) and "sm_90a  add" in text
    assert main(["cache", "clear"]) == 0
    assert "removed 1 kernel(s)" in capsys.readouterr().out
    assert entries.entries() == []


@pytest.mark.parametrize(
    ("stage", "words"), [("gpu", "gpu.module"), ("llvm", "define ptx_kernel"), ("ptx", ".target sm_80")]
)
def test_show_prints_the_stages_below(file, capsys, stage, words):
    assert main(["show", file, "ptr<f32>, i32, 64", "--stage", stage, "--target", "sm_80", "--num-warps", "2"]) == 0
    assert words in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--divisible", "x_ptr=16", "--divisible", "n"], "ld.global.v2.b32"),
        (["--divisible", "x_ptr,n=16"], "ld.global.v2.b32"),
        ([], "ld.global.b32"),
    ],
)
def test_show_takes_what_compile_takes(file, capsys, options, words):
    assert main(["show", file, "ptr<f32>, i32, 256", "--stage", "ptx", *options, "--num-warps", "4"]) == 0
    assert words in capsys.readouterr().out


def test_show_takes_the_options_of_compile(file, capsys, monkeypatch):
    from ziggurat.codemodel.gpu.options import CompileOptions
    from ziggurat.kernels.kernel import Kernel

    calls: list[dict] = []
    compiles = Kernel.compile
    monkeypatch.setattr(
        Kernel, "compile", lambda *types, **options: calls.append(options) or compiles(*types, **options)
    )
    flags = ["--target", "sm_80", "--num-warps", "2", "--num-stages", "5", "--exact-math"]
    for options in ([], flags):
        assert main(["show", file, "ptr<f32>, i32, 64", "--stage", "ptx", *options]) == 0
    assert [CompileOptions(**options) for options in calls] == [
        CompileOptions(),
        CompileOptions(target="sm_80", num_warps=2, num_stages=5, exact_math=True),
    ]


def test_divisibility_is_of_the_models_too(file, capsys):
    assert main(["show", file, "ptr<f32>, i32, 64", "--divisible", "x_ptr=16"]) == 0
    assert "@divisibility=[16, 1]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--divisible", "y_ptr=16"], "'add_one' has no parameter 'y_ptr'"),
        (["--divisible", "x_ptr=many"], "--divisible x_ptr=many: 'many' is not a number"),
        (["--divisible", "x_ptr=12"], "must be a power of two, at most 2^30; got 12"),
        (["--divisible", "B=16"], "must be an integer, a pointer or a descriptor; got 64"),
        (["--stage", "ptx", "--num-stages", "-1"], "num_stages must be an integer from 0 to 65536; got -1"),
        (["--stage", "ptx", "--num-warps", "5"], "power of two from 1 to 32; got 5"),
        (["--stage", "ptx", "--target", "sm_91"], "target must be one of sm_80"),
        (["--target", "sm_91"], "target must be one of sm_80"),
        (["--stage", "python", "--num-warps", "5"], "power of two from 1 to 32; got 5"),
    ],
)
def test_what_show_cannot_take_is_said(file, capsys, options, words):
    assert main(["show", file, "ptr<f32>, i32, 64", *options]) == 1
    assert words in capsys.readouterr().err


def test_a_function_has_a_python_model(file, capsys):
    function = file.replace("add_one", "twice")
    assert main(["show", function, "--stage", "python"]) == 0
    assert 'func @"twice"' in capsys.readouterr().out
    for command in (["show", function, "f32"], ["simulate", function, "1.0"]):
        assert main(command) == 1
        words = "'twice' must be a kernel; got a zg.function\n  hint: show its Python model: --stage python"
        assert words in capsys.readouterr().err


def test_an_option_of_the_shell_is_a_constexpr_parameter_of_its_name(tmp_path, capsys):
    path = tmp_path / "warps.py"
    path.write_text(
        "import ziggurat as zg\n@zg.kernel\ndef k(x, num_warps: zg.constexpr):\n"
        "    zg.store(x, zg.cast(num_warps, zg.f32))\n"
    )
    assert main(["show", f"{path}:k", "ptr<f32>", "--stage", "gpu", "--num-warps", "8"]) == 0
    assert "@num_warps=8" in (text := capsys.readouterr().out) and "8.0" in text
    assert main(["show", f"{path}:k", "ptr<f32>, 2", "--stage", "gpu", "--num-warps", "8"]) == 0
    assert "@num_warps=2" in capsys.readouterr().out


def test_the_command_of_the_document_shows_what_it_says(capsys, monkeypatch):
    root = Path(__file__).parents[2]
    monkeypatch.chdir(root)
    text = (root / "docs" / "guides" / "compiling.md").read_text(encoding="utf-8").replace("\\\n", " ")
    (command,) = re.findall(r"^ziggurat (show .*--stage ptx)$", text, re.MULTILINE)
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out.count("ld.global.v4.b32") == 4, "as the compiled kernel of the document has it"


def test_choices_of_tuning_are_listed_shared_and_cleared(tmp_path, monkeypatch, capsys):
    from ziggurat.backend.cuda.cache import Records, TuningRecord

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ZIGGURAT_CACHE_DIR", raising=False)
    about = {"kernel": "add", "key": {"n": "1000"}, "types": {"x_ptr": "f32"}, "device": "GPU"}
    Records().put(TuningRecord(about, "BLOCK=64", {"BLOCK=64": 0.25, "BLOCK=128": 0.5}))
    assert main(["choices"]) == 0
    assert "add(n=1000) of f32 on GPU: BLOCK=64  0.25 ms" in capsys.readouterr().out
    file = str(tmp_path / "choices.json")
    for command, words in (
        (["export", file], "exported 1 choice(s)"),
        (["clear"], "removed 1 choice(s)"),
        (["list"], "0 choice(s)"),
        (["import", file], "imported 1 choice(s)"),
        (["list"], "1 choice(s)"),
    ):
        assert main(["choices", *command]) == 0
        assert words in capsys.readouterr().out
    assert main(["choices", "import"]) == 1
    assert "a file is missing" in capsys.readouterr().err
    assert main(["choices", "import", str(tmp_path)]) == 1
    assert "has no choices that can be read: Is a directory\n" in capsys.readouterr().err
    assert main(["choices", "clear", file]) == 1
    assert "choices clear takes no file" in capsys.readouterr().err


def test_the_version(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0 and capsys.readouterr().out == f"ziggurat {zg.__version__}\n"


def test_what_the_module_prints_is_not_part_of_the_stage(file, capsys):
    path = Path(file.partition(":")[0])
    path.write_text(path.read_text() + "\nprint('gelu mm ok')\n")
    assert main(["show", file, "ptr<f32>, i32, 64", "--stage", "ptx"]) == 0
    output = capsys.readouterr()
    assert output.err == "gelu mm ok\n" and "gelu" not in output.out


def test_all_stages(file, capsys):
    assert main(["show", file, "ptr<f32>, i32, 64", "--stage", "all"]) == 0
    text = capsys.readouterr().out
    at = [text.index(f"// Stage {name}\n") for name in ("python", "triton", "gpu", "llvm", "ptx")]
    assert at == sorted(at) and "gpu.module" in text and ".target sm_90a" in text
    assert main(["show", file, "ptr<f32>, i32, 64", "--stage", "all", "--html"]) == 0
    page = capsys.readouterr().out
    assert "<b>triton</b>" in page and '<meta charset="utf-8">' in page
    assert page.count("<pre") == page.count('<pre style="font-family:monospace;white-space:pre') == 5


def test_the_model_after_a_pass_and_what_the_pass_changes(file, capsys):
    show = ["show", file, "ptr<f32>, i32, 64"]
    assert main([*show, "--after", "assign"]) == 0
    text = capsys.readouterr().out
    assert "gpu.module" in text and zg.parse(text) is not None
    assert main([*show, "--after", "assign", "--diff"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("// Pass assign\n") and "+gpu.module" in text
    assert main([*show, "--diff"]) == 0
    text = capsys.readouterr().out
    assert "// Pass prepare" in text and "// Pass tma changes nothing" in text
    assert main([*show, "--after", "dce:2"]) == 0


def run(*arguments, **settings):
    return subprocess.run(
        [sys.executable, "-m", "ziggurat", *arguments], stderr=subprocess.PIPE, timeout=60, **settings
    )


def test_a_terminal_that_knows_ascii_alone():
    done = run("docs", "language", stdout=subprocess.PIPE, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0 and done.stderr == b"" and b"\\u2026" in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk():
    with open("/dev/full", "wb") as full:
        done = run("docs", "language", stdout=full)
    assert done.returncode == 1 and done.stderr == b"the output cannot be written: No space left on device\n"


def test_names_in_files_do_not_command_the_terminal(tmp_path, monkeypatch, capsys):
    from ziggurat.backend.cuda.binary import Binary
    from ziggurat.backend.cuda.cache import Cache, Records, TuningRecord

    monkeypatch.setenv("ZIGGURAT_CACHE_DIR", str(tmp_path))
    title = "\x1b]0;title\x07"
    Cache().put("ab" * 32, Binary("k", "", 4, 0, (), "sm_90a", title))
    Records().put(TuningRecord({"kernel": title, "key": {}, "types": {}, "device": "GPU"}, title, {}))
    for command in ("cache", "choices"):
        assert main([command]) == 0
        assert "\x1b" not in (text := capsys.readouterr().out) and "\\x1b]0;title\\x07" in text


def test_the_table_of_options_is_in_the_documents(capsys):
    assert main(["docs", "options"]) == 0
    document = Path(__file__).parents[2] / "docs" / "guides" / "compiling.md"
    assert capsys.readouterr().out in document.read_text(encoding="utf-8")


def test_options_of_compilation_can_be_turned_to_what_is_not_the_default():
    parser = argparse.ArgumentParser()
    _add_options(parser)
    for field in attrs.fields(CompileOptions):
        flag = field.name.replace("_", "-")
        assert getattr(parser.parse_args([]), field.name) == field.default
        if field.default is True:
            assert getattr(parser.parse_args([f"--no-{flag}"]), field.name) is False
        if isinstance(field.default, bool):
            assert getattr(parser.parse_args([f"--{flag}"]), field.name) is True
