"""Names of packages that are imported at their first use: listed, completed, absent without their libraries."""

import subprocess
import sys

import pytest

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.lazy import lazily, listed

OPERATIONS = {"jax_op", "torch_op"}
# A program that runs where the libraries are not installed.
WITHOUT_LIBRARIES = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in ("jax", "torch"):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, Absent())
"""


def run(program: str, **options) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("package", [zg, triton, tl, triton.runtime, triton.compiler])
def test_the_names_of_a_package_are_those_that_users_take(package):
    names = dir(package)
    assert set(package.__all__) <= set(names)
    assert not [name for name in names if name.startswith("_") and not name.startswith(("__", "_experimental_"))]
    assert not {"TYPE_CHECKING", "annotations", "boundary", "lazily", "lazy", "listed", "Any", "Final"} & set(names)


def test_the_names_of_ziggurat():
    assert set(zg.__all__) | OPERATIONS == {name for name in dir(zg) if not name.startswith("__")}
    assert {"trace", "build", "grad", "autotune", "Config", "kit", "testing", "TensorDescriptor"} <= set(dir(zg))


def test_names_are_listed_without_an_import():
    program = "import sys, ziggurat; assert 'trace' in dir(ziggurat); print('numpy' in sys.modules)"
    assert run(program) == "False\n"


def test_names_are_completed():
    program = """
import rlcompleter, ziggurat as zg
complete = rlcompleter.Completer({"zg": zg}).complete
print(*iter(map(lambda n: complete("zg.tra", n), iter(range(99))).__next__, None))
"""
    assert run(WITHOUT_LIBRARIES + program) == "zg.trace( zg.trans( zg.transform(\n"


def test_a_star_import_takes_all_names_and_no_library():
    program = """
from ziggurat import *
print(trace.__name__, load, sorted({"jax", "torch", "llvmlite", "cuda", "tensorflow"} & set(sys.modules)))
"""
    trace, *load, modules = run(WITHOUT_LIBRARIES + program).replace("\n", "").rsplit(" ", 2)
    assert trace.startswith("trace") and load and modules == "[]"


@pytest.mark.parametrize(
    "package", ["ziggurat.triton", "ziggurat.triton.language", "ziggurat.testing", "ziggurat.transforms.kit"]
)
def test_star_imports_of_other_packages(package):
    assert run(f"{WITHOUT_LIBRARIES}\nfrom {package} import *") == ""


@pytest.mark.parametrize("library", ["jax", "torch"])
def test_an_operation_without_its_library_is_absent(library):
    program = f"""
import ziggurat as zg
print(hasattr(zg, "{library}_op"), getattr(zg, "{library}_op", None))
try:
    zg.{library}_op
except AttributeError as error:
    print(error)
try:
    from ziggurat import {library}_op
except ModuleNotFoundError as error:
    print(error.name)
"""
    absent, message, name = run(WITHOUT_LIBRARIES + program).splitlines()
    assert absent == "False None" and name == library
    assert message == f"'ziggurat.{library}_op' needs {library}, which is not installed: pip install {library}"


@pytest.mark.parametrize("fault", ["raise ImportError('libtorch.so: no such file')", "import a_dependency_of_torch"])
def test_a_library_that_is_broken_says_so(fault, tmp_path):
    (tmp_path / "torch.py").write_text(fault)
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import ziggurat as zg
try:
    hasattr(zg, "torch_op")
except ImportError as error:
    print(error)
"""
    assert run(program).strip() in ("libtorch.so: no such file", "No module named 'a_dependency_of_torch'")


def test_a_name_that_a_package_lacks():
    assert zg.testing.Report
    get, names = lazily("ziggurat.testing", (), {"reports": ("Report",)})
    assert get("Report") is zg.testing.Report and set(names()) == set(listed("ziggurat.testing")())
    with pytest.raises(AttributeError, match=r"module 'ziggurat.testing' has no attribute 'report'"):
        get("report")


def test_names_of_the_last_release_say_the_new_one():
    with pytest.warns(DeprecationWarning, match=r"ziggurat\.CompiledCpu is ziggurat\.Compiled now"):
        assert zg.CompiledCpu is zg.Compiled
