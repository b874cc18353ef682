"""`torch.compile(model, backend="ziggurat")`, whatever PyTorch has found of Triton before."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from libraries import require

require("torch")
if not [entry for entry in entry_points(group="torch_dynamo_backends") if entry.name == "ziggurat"]:
    pytest.skip("the installed package is older than its entry points: install it again", allow_module_level=True)

# A Triton with the names that PyTorch's modules take from it when they are imported.
_TRITON = """
import sys
import types

for path, names in {
    "language": ("dtype",), "language.core": ("view",), "language.math": (), "language.extra": (), "knobs": (),
    "language.extra.libdevice": (), "runtime": (), "runtime.errors": (), "runtime.cache": ("triton_key",),
    "runtime.autotuner": ("Config", "OutOfResources"), "runtime.jit": ("JITFunction", "KernelInterface"),
    "backends": (), "backends.compiler": ("GPUTarget",), "compiler": ("CompiledKernel",),
    "compiler.compiler": ("ASTSource",),
}.items():
    module = types.ModuleType(f"triton.{path}")
    module.__path__ = []
    for name in names:
        setattr(module, name, type(name, (), {"__module__": module.__name__, "__init__": lambda self, *given: None}))
    parent, _, last = module.__name__.rpartition(".")
    setattr(sys.modules[parent], last, module)
    sys.modules[module.__name__] = module
Config, __version__ = sys.modules["triton.runtime.autotuner"].Config, "3.6.0"
"""
_LOOKED_UP = """
import sys
import warnings

import torch
import torch._dynamo

warnings.simplefilter("error")
assert ("triton" in sys.modules) == (sys.argv[1] == "True")
from torch._dynamo.backends.registry import lookup_backend

backend = lookup_backend("ziggurat")
import triton
from torch._dynamo.utils import common_constant_types
from torch._inductor.runtime import autotune_cache, hints, triton_compat
from torch.utils import _triton, flop_counter

assert triton.__name__ == "ziggurat.triton" and triton_compat.triton is torch._dynamo.utils.triton is triton
assert triton_compat.HAS_TRITON and triton_compat.Config is autotune_cache.Config is triton.Config
assert flop_counter._JITFunction is triton.JITFunction and triton.language.dtype in common_constant_types
assert _triton.has_triton_package() and hints.AttrsDescriptorWrapper((0,)) == {(0,): [["tt.divisibility", 16]]}
assert hints.TileHint is torch._inductor.runtime.hints.TileHint and "libtriton" not in str(triton_compat.tl)
"""
_COMPILED = """
import copy
import os
import shutil

os.environ["PATH"] = "/nonexistent"
os.environ.pop("CXX", None)
os.environ.pop("CC", None)
assert not any(map(shutil.which, ("cc", "c++", "gcc", "g++", "clang", "clang++")))

import torch
import torch.nn as nn
from ziggurat.backend.cpu import compile as cpu_compile
from ziggurat.triton.compiler.compiled_kernel import CompiledKernel

compile_cpu, models = cpu_compile.compile_cpu, []
cpu_compile.compile_cpu = lambda module, options: models.append(module) or compile_cpu(module, options)
demand, kernels = CompiledKernel.demand, []
CompiledKernel.demand = lambda kernel: kernels.append(kernel) or demand(kernel)
torch.manual_seed(0)
own = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.LayerNorm(24), nn.Linear(24, 5), nn.LogSoftmax(1))
eager = copy.deepcopy(own)
compiled = torch.compile(own, backend="ziggurat", options={"max_autotune_gemm": True})
for model, function in ((own, compiled), (eager, eager)):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    torch.manual_seed(1)
    for _ in range(2):
        optimizer.zero_grad()
        function(torch.randn(7, 12)).square().mean().backward()
        optimizer.step()
for value, other in zip(own.parameters(), eager.parameters(), strict=True):
    torch.testing.assert_close(value, other, atol=1e-5, rtol=1e-5)

from torch._inductor.runtime.triton_heuristics import CachingAutotuner
from torch._inductor.codecache import PyCodeCache

values = [value for module in PyCodeCache.modules for value in vars(module).values()]
tuners = [value for value in values if type(value) is CachingAutotuner]
assert len(tuners) > 2
results = [result for tuner in tuners for result in tuner.compile_results]
assert all(type(result.kernel).__module__.startswith("ziggurat") for result in results)
assert len(models) == len(set(map(id, kernels))), (len(models), len(kernels))
try:
    torch.compile(nn.GELU(), backend="ziggurat", options={"cpp_wrapper": True})(torch.ones(3))
except Exception as error:
    assert "hint: compile with cpp_wrapper=False, or ahead of time" in str(error), error
else:
    raise AssertionError("PyTorch launches no Triton kernels there")
"""
_LATE = """
import torch._inductor.runtime.triton_heuristics
from ziggurat.triton.inductor import backend

try:
    backend(None, [])
except Exception as error:
    print(error)
"""


def run(folder: Path, text: str, *arguments: str) -> str:
    """The output of a program beside which a package may be; its caches are in the folder."""
    program = folder / "program.py"
    program.write_text(text)
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("TORCH", "TRITON", "PYTHONPATH"))}
    environment = {**plain, "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "TORCHINDUCTOR_COMPILE_THREADS": "1",
                   "ZIGGURAT_CACHE_DIR": str(folder / "kernels")}  # fmt: skip
    done = subprocess.run(
        [sys.executable, program, *arguments],
        capture_output=True, text=True, timeout=600, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize("has_triton", [False, True])
def test_pytorch_refers_to_ziggurat_in_place_of_triton_or_of_none(tmp_path: Path, has_triton: bool):
    if has_triton:
        (tmp_path / "triton").mkdir()
        (tmp_path / "triton" / "__init__.py").write_text(_TRITON)
    run(tmp_path, _LOOKED_UP, str(has_triton))


def test_it_compiles_and_trains_without_a_c_compiler(tmp_path: Path):
    """Products are tuned among PyTorch's own: its templates are no valid Python for CPUs. Each kernel is compiled once,
    and launched as it was compiled. PyTorch's wrappers in C++ are refused."""
    run(tmp_path, _COMPILED)


def test_it_must_come_before_pytorch_compiles_otherwise(tmp_path: Path):
    assert "must come before PyTorch compiles without ziggurat" in run(tmp_path, _LATE)
