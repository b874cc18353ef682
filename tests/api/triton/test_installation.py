"""`ziggurat.triton` as the module `triton` of a process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def python(*arguments: str, cwd: Path | None = None) -> str:
    """The output of a child process, which must succeed."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=120, cwd=cwd, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_install_gives_the_modules_themselves():
    python(
        "-c",
        "import sys, ziggurat.triton as ours; ours.install(); ours.install()\n"
        "import triton, triton.language as tl, triton.runtime.jit\n"
        "from triton.runtime.errors import OutOfResources\n"
        "assert triton is ours and tl is ours.language and triton.runtime.jit.jit is ours.jit\n"
        "assert ours.__spec__.name == 'ziggurat.triton' and tl.__name__ == 'ziggurat.triton.language'\n"
        "ours.uninstall(); ours.uninstall()\n"
        "assert not any(name.split('.')[0] == 'triton' for name in sys.modules)\n"
        "try:\n    import triton\nexcept ModuleNotFoundError:\n    pass\nelse:\n    assert triton is not ours\n",
    )


def test_a_triton_that_was_imported_before_is_refused(tmp_path: Path):
    (tmp_path / "triton.py").write_text("")
    output = python(
        "-c",
        "import sys; sys.path.insert(0, sys.argv[1])\nimport triton, ziggurat.triton as ours\n"
        "try:\n    ours.install()\nexcept Exception as error:\n    print(error)\n",
        str(tmp_path),
    )
    assert "must come before the first import of triton; got triton of" in output
    assert "triton.py, which __main__ has imported" in output
    assert "python -m ziggurat.triton program.py" in output


def test_gluon_is_imported_by_libraries():
    python(
        "-c",
        "import ziggurat.triton as ours; ours.install()\n"
        "from triton.experimental import gluon\n"
        "from triton.experimental.gluon import language as gl\n"
        "import triton.experimental.gluon.language as again, triton.experimental.gluon._runtime\n"
        "import triton.backends.nvidia.driver, triton.backends.nvidia.compiler\n"
        "assert gl is again is ours.experimental.gluon.language and gluon is ours.experimental.gluon\n"
        "assert triton.experimental.gluon._runtime.GluonJITFunction is gluon._runtime.GluonJITFunction\n",
    )


TELL = (
    "import importlib.metadata, subprocess, sys, triton\n"
    "print(triton.__version__, importlib.metadata.version('triton'), flush=True)\n"
    "assert importlib.metadata.distribution('triton').metadata['Name'] == 'triton'\n"
    "assert importlib.metadata.packages_distributions()\n"
)


@pytest.mark.parametrize("call", ["", "'3.7.1'", "version='3.7.1rc1'", "version='3.6.0+git12ab'"])
def test_the_version_that_programs_see(call: str):
    version = call.partition("'")[2].rstrip("'") or "3.7.1"
    expected = f"{version} {version}\n"
    program = (
        f"import ziggurat.triton as ours; ours.install({call})\n{TELL}"
        f"subprocess.run([sys.executable, '-c', {TELL!r}], check=True)\n"
        "ours.install()\nprint(ours.__version__)\nours.uninstall()\nprint(ours.__version__)\n"
        "ours.install()\nprint(ours.__version__)\nours.install('3.8.0')\nprint(ours.__version__)\n"
    )
    assert python("-c", program) == 2 * expected + f"{version}\n3.7.1\n3.7.1\n3.8.0\n"


def test_the_version_in_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("ZIGGURAT_TRITON_VERSION", "3.7.1")
    program = tmp_path / "program.py"
    program.write_text(TELL)
    assert python("-m", "ziggurat.triton", str(program)) == "3.7.1 3.7.1\n"
    again = "import ziggurat.triton as ours; ours.install('3.8.0'); ours.uninstall(); ours.install()\n"
    assert python("-c", again + TELL) == "3.7.1 3.7.1\n"


@pytest.mark.parametrize("version", ["", "3.7", "three", "3.7.1 ", "v3.7.1", "3.7.x", 3.7])
def test_a_version_that_is_none(version):
    output = python(
        "-c",
        f"import ziggurat.triton as ours\ntry:\n    ours.install({version!r})\nexcept ours.TritonError: pass\n"
        "except Exception as error:\n    print(error, 'triton' in __import__('sys').modules)\n",
    )
    assert f"must be that of a release; got {version!r}" in output and output.endswith("False\n")


def test_the_text_for_triton_is_not_that_of_the_version(tmp_path: Path):
    metadata = tmp_path / "triton-3.4.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: triton\nVersion: 3.4.0\n")
    program = "import sys; sys.path.insert(0, sys.argv[1])\nimport ziggurat.triton as ours; ours.install('3.7.1')\n"
    program += "from ziggurat.backend.mlir.releases import release_of\nprint(release_of(None))\n"
    assert python("-c", program, str(tmp_path)) == "(3, 4)\n"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("_C.libproton", "C++ compiler"), ("experimental.gluon.language.absent", "Gluon"), ("absent", "'triton.absent'")],
)
def test_an_absent_module_is_named(name: str, reason: str):
    program = f"import ziggurat.triton as ours; ours.install()\ntry:\n    import triton.{name}\n"
    program += "except ModuleNotFoundError as error:\n    print(error, error.name)\n"
    output = python("-c", program)
    assert "ziggurat has no module 'triton." in output
    assert reason in output


def test_a_program_runs_unchanged(tmp_path: Path):
    (tmp_path / "beside.py").write_text("value = 3\n")
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, subprocess\nimport numpy as np\nimport triton\nimport triton.language as tl\nimport beside\n"
        "@triton.jit\ndef scale(x_ptr, n, BLOCK: tl.constexpr):\n"
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    x = tl.load(x_ptr + at, mask=at < n)\n"
        "    tl.store(x_ptr + at, x * 2, mask=at < n)\n"
        "if __name__ == '__main__':\n"
        "    x = np.arange(5, dtype=np.float32)\n    scale[(2,)](x, 5, BLOCK=4)\n"
        "    print(sys.argv[1:], x.tolist(), beside.value, flush=True)\n"
        "    subprocess.check_call([sys.executable, '-c', 'import triton.knobs; print(triton.__name__)'])\n"
    )
    expected = "['a', '-b'] [0.0, 2.0, 4.0, 6.0, 8.0] 3\nziggurat.triton\n"
    assert python("-m", "ziggurat.triton", str(program), "a", "-b") == expected
    assert python("-m", "ziggurat.triton", "-m", "program", "a", "-b", cwd=tmp_path) == expected


def test_the_usage_is_told():
    assert python("-m", "ziggurat.triton", "--help").startswith("usage: python -m ziggurat.triton (program.py")


def test_imports_bring_nothing_that_a_program_may_not_need():
    heavy = (
        "numpy", "ml_dtypes", "llvmlite", "cuda", "subprocess", "tempfile", "concurrent.futures", "json", "hashlib",
        "ziggurat.transforms", "ziggurat.backend.ptx", "ziggurat.backend.cuda",
        "ziggurat.triton.compiler.compiled_kernel", "ziggurat.triton.testing", "ziggurat.triton.profiler",
        "ziggurat.frontends.library.libdevice",
    )  # fmt: skip
    program = (
        "import sys; before = {*sys.modules}\n"
        "import ziggurat.triton as triton, ziggurat.triton.language as tl\n"
        f"print(*(name for name in {heavy} if name in sys.modules and name not in before))"
    )
    assert python("-c", program).split() == []


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["absent.py"], "[Errno 2] No such file or directory: 'absent.py'"),
        (["-m", "absent"], "No module named absent"),
        (["."], "can't find '__main__' module in '.'"),
    ],
)
def test_a_program_that_is_missing_is_told_without_a_traceback(arguments: list[str], message: str, tmp_path: Path):
    command = [sys.executable, "-m", "ziggurat.triton", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    first, usage = done.stderr.splitlines()
    assert done.returncode == 1 and usage.startswith("usage: ")
    assert first.replace(f"{tmp_path}/", "") == f"python -m ziggurat.triton: {message}"


def test_a_traceback_begins_at_the_program(tmp_path: Path):
    (tmp_path / "program.py").write_text("def fail():\n    raise ValueError('wrong')\nfail()\n")
    for arguments in (["program.py"], ["-m", "program"]):
        command = [sys.executable, "-m", "ziggurat.triton", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        lines = done.stderr.splitlines()
        assert done.returncode == 1 and lines[-1] == "ValueError: wrong"
        assert "program.py" in lines[1] and lines[1].endswith("line 3, in <module>")
