"""Ziggurat without llvmlite: everything up to the GPU model works, and what needs LLVM names the package."""

import subprocess
import sys

import pytest

# Programs in which llvmlite is absent, and in which its library cannot be loaded.
ABSENT = 'import sys\nsys.modules["llvmlite"] = None\n'
BROKEN = """
import importlib.abc, sys

class Broken(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "llvmlite":
            raise OSError("Could not load shared object file: libllvmlite.so")

sys.meta_path.insert(0, Broken())
"""
KERNEL = """
import warnings
import numpy as np
import ziggurat as zg

@zg.kernel
def double(x, out, n, B: zg.constexpr):
    at = zg.add(zg.program_id(0) * B, zg.arange(0, B))
    mask = zg.less(at, n)
    zg.store(zg.add(out, at), zg.mul(zg.load(zg.add(x, at), mask), 2.0), mask)

types = (zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, 64)
x, out = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)

def refused(run):
    try:
        run()
    except zg.LaunchError as error:
        assert "llvmlite" in error.summary and error.hint == "pip install llvmlite", error
    else:
        raise AssertionError("it works without llvmlite")
"""


def run(tmp_path, program: str) -> str:
    path = tmp_path / "program.py"
    path.write_text(program)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_models_the_interpreter_and_the_gpu_model_need_no_llvmlite(tmp_path):
    program = """
warnings.simplefilter("error")
model = double.triton(*types)
zg.verify(model)
assert zg.same_model(zg.parse(str(model)), model) and "tt.func" in zg.to_mlir(model)
double[2](x, out, 100, 64, interpret=True)
assert (out == 2 * x).all()
compiled = double.compile(*types)
assert "gpu.module" in str(compiled.stages["gpu"]) and "define ptx_kernel" in compiled.stages["llvm"]
assert "<b>gpu</b>" in compiled._repr_html_()
out[:] = 0
compiled.simulate[2](x, out, 100)
assert (out == 2 * x).all()
print(*zg.compile(model).stages)
"""
    assert run(tmp_path, ABSENT + KERNEL + program) == "triton gpu llvm\n"


@pytest.mark.parametrize("state", [ABSENT, BROKEN], ids=["absent", "broken"])
def test_a_launch_without_llvmlite_is_interpreted_with_one_warning(tmp_path, state):
    program = """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    double[2](x, out, 100, 64)
    assert (out == 2 * x).all()
    double[4](x, out, 100, 32)
    tuned = zg.autotune([zg.Config({"B": 32}), zg.Config({"B": 64})], key=["n"])(double)
    tuned[lambda given: (4,)](x, out, 100)
texts = [str(warning.message) for warning in caught]
assert [warning.category for warning in caught] == [zg.ZigguratWarning] * len(caught)
print(len([text for text in texts if text.startswith("'double' is interpreted")]), "pip install llvmlite" in texts[0])
"""
    count, names = run(tmp_path, state + KERNEL + program).split()
    assert int(count) <= 2 and names == "True"  # One for the kernel, one for the tuned kernel.


@pytest.mark.parametrize("state", [ABSENT, BROKEN], ids=["absent", "broken"])
def test_code_without_llvmlite_is_an_error_that_names_it(tmp_path, state):
    program = """
compiled = double.compile(*types)
refused(lambda: compiled.ptx)
refused(lambda: compiled.stages["ptx"])
refused(lambda: double.compile(*types, target="cpu"))
refused(lambda: zg.compile(double.triton(*types), target="cpu"))
refused(lambda: compiled.simulate[2](x, out, 100, optimized=True))
if __name__ == "__main__":  # The command imports this file.
    from ziggurat.cli import main

    for stage, status in {"triton": 0, "gpu": 0, "llvm": 0, "ptx": 1, "sass": 1, "cpu": 1, "asm": 1}.items():
        assert main(["show", f"{__file__}:double", "ptr<f32>, ptr<f32>, i32, 64", "--stage", stage]) == status, stage
"""
    assert "gpu.module" in run(tmp_path, state + KERNEL + program)
