"""`python -m ziggurat`."""

import argparse
import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import attrs
import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.ptx.sass import tool
from ziggurat.cli import main
from ziggurat.cli.arguments import add_options
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
    assert main(["explain", file, "ptr<f32>, i32, 1024", "--num-warps", "8"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("add_one for sm_90a: 8 warps")
    assert "zg.store(zg.add(x_ptr, at)" in text and "; `x_ptr` is not known to be a multiple of 16" in text


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
    assert project["scripts"] == {"ziggurat": f"ziggurat.cli:{main.__name__}"}


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
            "there is no pass 'nothing'\n  hint: the passes are early_exits, prepare, divide_choices, contract, spread",
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

    monkeypatch.setattr("ziggurat.backend.cache.records.default_directory", lambda: tmp_path)
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
    from ziggurat.backend.cache.records import Records, TuningRecord

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
    from ziggurat.backend.cache.records import Records, TuningRecord
    from ziggurat.backend.cuda.binary import Binary
    from ziggurat.backend.cuda.cache import Cache

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
    add_options(parser)
    for field in attrs.fields(CompileOptions):
        flag = field.name.replace("_", "-")
        assert getattr(parser.parse_args([]), field.name) == field.default
        if field.default is True:
            assert getattr(parser.parse_args([f"--no-{flag}"]), field.name) is False
        if isinstance(field.default, bool):
            assert getattr(parser.parse_args([f"--{flag}"]), field.name) is True


@pytest.mark.skipif(not tool("ptxas") or not tool("nvdisasm"), reason="needs NVIDIA's tools")
def test_machine_code(file, capsys):
    assert main(["show", file, "ptr<f32>, i32, 64", "--stage", "sass"]) == 0
    text = capsys.readouterr().out
    assert (
        "EXIT" in text
        and f"kernels.py:{SOURCE.splitlines().index('def add_one(x_ptr, n, B: zg.constexpr):') + 4}"
        in (text.replace('", line ', ":"))
    )


@pytest.mark.parametrize("stage", ["cpu", "asm"])
def test_stages_of_the_cpu_have_it_as_their_target(file, capsys, stage):
    assert main(["show", file, "ptr<f32>, i32, 64", "--stage", stage]) == 0
    text = capsys.readouterr().out
    assert ("cpu.module" in text) is (stage == "cpu") and (".text" in text) is (stage == "asm")
    assert main(["show", file, "ptr<f32>, i32, 64", "--stage", stage, "--target", "sm_80"]) == 0
    assert capsys.readouterr().out == text


@pytest.mark.parametrize(
    "options", [["--stage", "gpu"], ["--stage", "ptx"], ["--stage", "sass"], ["--after", "assign"], ["--diff"]]
)
def test_stages_that_the_cpu_does_not_have(file, capsys, options):
    assert main(["show", file, "ptr<f32>, i32, 64", "--target", "cpu", *options]) == 1
    expected = "LaunchError: --target cpu has the stages python, triton, cpu, llvm, asm\n"
    assert capsys.readouterr().err == expected


def test_all_stages_of_the_cpu(file, capsys):
    assert main(["show", file, "ptr<f32>, i32, 64", "--stage", "all", "--target", "cpu"]) == 0
    text = capsys.readouterr().out
    heads = re.findall(r"^// Stage (\w+)$", text, re.MULTILINE)
    assert heads == ["python", "triton", "cpu", "llvm", "asm"] and "\n\n// Stage triton\n" in text
    assert main(["show", file, "ptr<f32>, i32, 64", "--target", "cpu"]) == 0
    assert "tt.store" in (alone := capsys.readouterr().out) and "// Stage" not in alone


def test_locations_are_shown_where_they_are_asked_for(file, capsys):
    for options in (["--stage", "python"], ["--stage", "gpu"], ["--after", "assign"], ["--stage", "mlir"]):
        for more in ([], ["--locations"]):
            assert main(["show", file, "ptr<f32>, i32, 64", *options, *more]) == 0
            assert ("kernels.py" in capsys.readouterr().out) is bool(more)
    assert main(["show", file, "ptr<f32>, i32, 64", "--stage", "all", "--locations"]) == 0
    assert "kernels.py" in capsys.readouterr().out
    for wrong in (["--after", "assign"], ["--diff"], ["--locations"]):
        assert main(["show", file, "ptr<f32>, i32, 64", "--html", *wrong]) == 1
        assert "--html must be given without --locations, --after and --diff" in capsys.readouterr().err
    for wrong in (["--html"], ["--locations"]):
        assert main(["show", file, "ptr<f32>, i32, 64", "--stage", "python", "--types", *wrong]) == 1
        assert "--types must go with --stage python, as text" in capsys.readouterr().err


def test_models_after_passes(file, capsys):
    show = ["show", file, "ptr<f32>, i32, 64"]
    assert main([*show, "--after", "early_exits"]) == 0
    assert 'func @"add_one"' in capsys.readouterr().out
    assert main([*show, "--diff"]) == 0
    text = capsys.readouterr().out
    names = re.findall(r"^// Pass (\S+)", text, re.MULTILINE)
    assert names[:2] == ["early_exits", "prepare"] and len(set(names)) == len(names)
    assert {name.partition(":")[2] for name in names if ":" in name} >= {"2"} and "dce" in names
    assert main([*show, "--after", "early_exits", "--diff"]) == 0
    assert capsys.readouterr().out == "// Pass early_exits changes nothing\n"
    assert main([*show, "--after", "dce:99", "--diff"]) == 1
    assert "there is no pass 'dce:99'" in capsys.readouterr().err


C_SOURCE = """
#ifndef TM
#define TM 8
#endif
__global__ void fill(TYPE *x) { int i[TM] = 0 ... TM; *(x + i) = VALUE; }
"""


@pytest.mark.parametrize("ending", [".tc", ".c", ".h", ".cl", ".cu"])
def test_macros_of_triton_c(tmp_path, capsys, ending):
    path = tmp_path / f"kernels{ending}"
    path.write_text(C_SOURCE)
    for macros, words in (
        (["-DTYPE=float", "-DVALUE=3"], ["tensor<x8, f32>", "3.0"]),
        (["-DTYPE=int", "-DVALUE= -3 ", "-D", "TM=[32, 64]"], ["tensor<x32, i32>", "-3"]),
        (["-DTYPE=int", "-DVALUE", "-DTM= 16 "], ["tensor<x16, i32>", "1"]),
    ):
        for place in (str(path), f"{path}:fill"):
            assert main(["show", place, *macros]) == 0
            text = capsys.readouterr().out
            assert all(word in text for word in words), text
    assert main(["show", f"{path}:other", "-DTYPE=float", "-DVALUE=3"]) == 1
    assert "other" in capsys.readouterr().err


def test_macros_are_of_triton_c_alone(file, capsys):
    for command in (["show", file, "-DTM=3"], ["explain", file, "-DTM=3"], ["simulate", file, "f32[4]", "-DTM=3"]):
        assert main(command) == 1
        words = "-D must go with a Triton-C source; got '"
        assert words in (error := capsys.readouterr().err) and "hint: give constexpr parameters as values" in error


def test_a_tuned_kernel_is_shown_without_its_tuning(tmp_path, capsys):
    path = tmp_path / "tuned.py"
    path.write_text(SOURCE.replace("@zg.kernel", "@zg.autotune([zg.Config({'B': 64})])\n@zg.kernel", 1))
    assert main(["show", f"{path}:add_one", "ptr<f32>, i32, 64"]) == 0
    assert "tt.make_range" in capsys.readouterr().out
    assert main(["show", f"{path}:missing", "ptr<f32>, i32, 64"]) == 1
    assert "hint: it has add_one" in capsys.readouterr().err


def test_a_kernel_that_is_refused_while_its_file_is_read(tmp_path, capsys):
    path = tmp_path / "refused.py"
    path.write_text("import ziggurat as zg\nzg.Config({'B': 1}, num_warps=3)\n")
    assert main(["show", f"{path}:kernel"]) == 1
    assert capsys.readouterr().err.startswith("LaunchError: num_warps must be an integer, a power of two")


def test_imports_of_modules_beside_the_file(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    (tmp_path / "size_of_block.py").write_text("B = 32\n")
    path = tmp_path / "beside.py"
    path.write_text(f"from size_of_block import B as SIZE\n{SOURCE}".replace("arange(0, B)", "arange(0, SIZE)"))
    assert main(["show", f"{path}:add_one", "ptr<f32>, i32, 64"]) == 0
    assert "@end=32" in capsys.readouterr().out and "beside" in sys.modules


@pytest.mark.parametrize("grid", [["0"], ["2", "0"], ["-1"], ["2", "x"], ["1,,2"], ["1.5"]])
def test_grids_that_are_refused(file, capsys, grid):
    for command in (["explain", file, "f32[64], 64, 64"], ["simulate", file, "f32[64], 64, 64"]):
        assert main([*command, "--grid", *grid] if "-1" not in grid else [*command, "--grid=-1"]) == 1
        assert f"--grid must be sizes of one or more; got {' '.join(grid)}" in capsys.readouterr().err


def test_programs_of_a_simulation(file, capsys):
    for grid, count in ((["--grid", "2", "3"], 6), (["--grid", "2,3,1"], 6), ([], 1)):
        assert main(["simulate", file, "f32[64], 0, 64", *grid, "--num-warps", "2"]) == 0
        text = capsys.readouterr().out
        assert text == f"add_one: {count} program(s) of 64 threads for sm_90a: no fault found\n  x_ptr: unchanged\n"
    assert main(["simulate", file, "f32[64], 60, 64", "--seed", "-1"]) == 1
    assert "seed must be an integer of 0 or more; got -1" in capsys.readouterr().err


def test_passes_of_a_file(tmp_path, capsys):
    assert main(["show", "nothing.py:k"]) == 1
    capsys.readouterr()
    file = tmp_path / "model.txt"
    assert main(["opt", str(file), "--passes", "cse"]) == 1
    assert capsys.readouterr().err == f"LaunchError: there is no file {file}\n"


SUMS = """func @"f" (%0 : i32, %1 : i32)i32 -> {
    %2 : i32 = arith.addi %0 %1;
    %3 : i32 = arith.addi %0 %1;
    %4 : i32 = arith.muli %2 %3;
    return %4;
};
"""


def test_a_model_from_standard_input_goes_through_named_passes(tmp_path, capsys, monkeypatch):
    own = tmp_path / "own.py"
    own.write_text("def same(model):\n    return model\n")
    monkeypatch.setattr("sys.stdin", io.StringIO(SUMS))
    assert main(["opt", "-", "--passes", "cse,same", "--verify-each", "--load", str(own)]) == 0
    assert capsys.readouterr().out == SUMS.replace("    %3 : i32 = arith.addi %0 %1;\n", "").replace(
        "%4 : i32 = arith.muli %2 %3", "%3 : i32 = arith.muli %2 %2"
    ).replace("return %4", "return %3")


def test_what_passes_change_is_printed(tmp_path, capsys):
    file = tmp_path / "model.txt"
    file.write_text(SUMS)
    assert main(["opt", str(file), "--passes", "cse,simplify", "--diff"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("--- before\n+++ after cse\n") and "-    %3 : i32 = arith.addi %0 %1;\n" in text
    assert main(["opt", str(file), "--passes", "cse", "--print-after", "all"]) == 0
    assert capsys.readouterr().out.startswith('// after cse\nfunc @"f"')
    assert main(["opt", str(file), "--passes", " cse , simplify", "--print-after", "dce"]) == 1
    error = (
        "LaunchError: --print-after must name passes that run; got 'dce'\n  hint: name some of cse, simplify, or all\n"
    )
    assert capsys.readouterr().err == error
    assert main(["opt", str(file), "--passes", "csee"]) == 1
    assert "there is no pass 'csee'" in capsys.readouterr().err
    assert main(["opt", str(file)]) == 1
    assert "the passes must be named" in capsys.readouterr().err


def test_commands_that_launch_take_saved_arrays(tmp_path, capsys):
    file = tmp_path / "kernels.py"
    file.write_text("import ziggurat as zg\n@zg.kernel\ndef double(x):\n    zg.store(x, zg.load(x) * 2)\n")
    np.save(tmp_path / "x.npy", np.full(4, 3, np.float32))
    assert main(["simulate", f"{file}:double", f'"{tmp_path}/x.npy"']) == 0
    assert "x: 1 of 4 elements changed" in capsys.readouterr().out
    assert main(["simulate", f"{file}:double", f'"{tmp_path}/y.npy"']) == 1
    assert capsys.readouterr().err.startswith(f"LaunchError: the array '{tmp_path}/y.npy' cannot be read")
    (tmp_path / "y.npy").touch()
    assert main(["simulate", f"{file}:double", f'"{tmp_path}/y.npy"']) == 1
    assert capsys.readouterr().err.startswith(f"LaunchError: the array '{tmp_path}/y.npy' cannot be read")


def test_mlir_goes_through_passes_and_is_verified(tmp_path, capsys):
    file = tmp_path / "model.mlir"
    file.write_text(
        "module {\n  tt.func public @k(%arg0: !tt.ptr<f32>) {\n    %c = arith.constant 1.0 : f32\n"
        "    tt.store %arg0, %c : !tt.ptr<f32>\n    tt.return\n  }\n}\n"
    )
    assert main(["opt", str(file), "--passes", "simplify,place", "--option", "target=sm_80"]) == 0
    assert 'gpu.module @target="sm_80"' in capsys.readouterr().out
    assert main(["verify", str(file)]) == 0
    assert re.fullmatch(r"verified: \d+ ops\n", capsys.readouterr().out)


def test_a_mistake_in_a_text_is_at_its_place(tmp_path, capsys):
    file = tmp_path / "model.txt"
    file.write_text(SUMS.replace("%4 : i32 = arith.muli", "%4 : f32 = arith.muli"))
    assert main(["verify", str(file)]) == 1
    assert "arith.muli" in (text := capsys.readouterr().err) and "^" in text


def test_code_of_both_kinds_is_kept_and_removed(tmp_path, monkeypatch, capsys):
    """Kernels for GPUs and code for this machine are in one list, and counted together."""
    from ziggurat.backend.cuda.binary import Binary
    from ziggurat.backend.cuda.cache import Cache
    from ziggurat.backend.jit.objects import Objects

    monkeypatch.setenv("ZIGGURAT_CACHE_DIR", str(tmp_path))
    assert main(["cache"]) == 0
    assert capsys.readouterr().out == f"0 kernel(s) in {tmp_path}\n"
    Cache().put("ab" * 32, Binary("k", "// ptx", 4, 0, (), "sm_90a", "first"))
    Cache().put("cd" * 32, Binary("k", "// ptx", 4, 0, (), "sm_80", "second"))
    assert main(["cache", "list"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head == f"2 kernel(s) in {tmp_path}" and sorted(line.split()[-1] for line in lines) == ["first", "second"]
    assert all(re.fullmatch(r"(abababababababab|cdcdcdcdcdcdcdcd) +\d+ bytes  sm_\w+  \w+", line) for line in lines)
    assert main(["cache", "clear"]) == 0
    assert capsys.readouterr().out == f"removed 2 kernel(s) from {tmp_path}\n"
    assert list(Objects(tmp_path).entries()) == []


def test_choices_without_times_and_of_several_keys(tmp_path, monkeypatch, capsys):
    from ziggurat.backend.cache.records import Records, TuningRecord

    monkeypatch.setenv("ZIGGURAT_CACHE_DIR", str(tmp_path))
    about = {"kernel": "add", "key": {"n": "1", "m": "2"}, "types": {"x": "f32", "y": "f16"}, "device": "GPU"}
    Records().put(TuningRecord(about, "BLOCK=64", {}))
    assert main(["choices"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "add(n=1, m=2) of f32, f16 on GPU: BLOCK=64"
    for arguments, words in ((["export"], "choices export: a file is missing"), (["list", "f"], "list takes no file")):
        assert main(["choices", *arguments]) == 1
        assert words in capsys.readouterr().err


def test_output_that_cannot_be_written(monkeypatch, capsys):
    class Closed(io.StringIO):
        error: OSError = BrokenPipeError()

        def write(self, text):
            raise self.error

    monkeypatch.setattr(sys, "stdout", stdout := Closed())
    assert main(["docs", "options"]) == 0
    Closed.error = OSError(28, "No space left on device")
    assert main(["docs", "options"]) == 1 and stdout.getvalue() == ""
    assert capsys.readouterr().err == "the output cannot be written: No space left on device\n"


def test_the_program_of_the_usage(monkeypatch, capsys):
    for program, name in (("/site/ziggurat/__main__.py", "python -m ziggurat"), ("/bin/ziggurat", "ziggurat")):
        monkeypatch.setattr(sys, "argv", [program, "--version"])
        with pytest.raises(SystemExit):
            main(["--help"])
        assert capsys.readouterr().out.startswith(f"usage: {name} [-h]")
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0 and capsys.readouterr().out == f"ziggurat {zg.__version__}\n"
    with pytest.raises(SystemExit) as end:
        main([])
    assert end.value.code == 2


def test_a_parameter_without_a_type_is_divisible_by_nothing(file, capsys):
    for types, divisible in (("ptr<f32>", "n"), ("ptr<f32>, i32", "B"), ("", "x_ptr,n=4")):
        assert main(["show", file, types, "--divisible", divisible]) == 1
        assert "LaunchError: 'add_one' needs " in capsys.readouterr().err
    assert main(["show", file, "ptr<f32>, i32, 64", "--divisible", " x_ptr , n = 8"]) == 0
    assert "@divisibility=[8, 8]" in capsys.readouterr().out


def test_one_stage_as_a_page_has_no_heading(file, capsys):
    for stage in ("python", "triton", "gpu"):
        assert main(["show", file, "ptr<f32>, i32, 64", "--html", "--stage", stage]) == 0
        page = capsys.readouterr().out
        assert page.startswith('<!DOCTYPE html>\n<meta charset="utf-8">\n<pre') and f"<b>{stage}</b>" not in page


def test_models_come_through_a_pipe_and_rules_of_a_file_are_passes(capsys, monkeypatch, tmp_path):
    """As in `cat m.txt | ziggurat opt --load rules.py --passes double | ziggurat verify`."""
    own = tmp_path / "rules.py"
    own.write_text(
        "from ziggurat import kit\nfrom ziggurat.codemodel.dialects import arith\n"
        "double = kit.Rules('double')\n"
        "double.add(kit.op_(arith.AddI, kit.capture('x'), kit.capture('x')),"
        " lambda b, x: b.add(arith.MulI(x, b.add(arith.ConstantOp(2, x.type)))))\n"
        "both = kit.compose(double, double)\n"
    )
    text = 'tt.func @"f" (%0 : i32)i32 -> { %1 : i32 = arith.addi %0 %0; tt.return %1; };'
    for passes in ("double", "both", "ssa,double"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        assert main(["opt", "--load", str(own), "--passes", passes]) == 0
        output = capsys.readouterr().out
        assert "arith.muli" in output and "arith.addi" not in output
    monkeypatch.setattr(sys, "stdin", io.StringIO(output))
    assert main(["verify"]) == 0 and capsys.readouterr().out == "verified: 4 ops\n"
    file = tmp_path / "f.txt"
    file.write_text(text)
    assert main(["run", str(file), "7"]) == 0
    assert "what a tt.func returns is not shown" in capsys.readouterr().out
