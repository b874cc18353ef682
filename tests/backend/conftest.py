"""Fixtures of emission tests: NVIDIA's assembler, and emitted text run on the host; and those of the fake driver."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fake_driver
import numpy as np
import pytest
from emission import emit_ptx
from host_jit import compiled, each

from ziggurat.backend.llvm.routines import Routine, llvm_type
from ziggurat.backend.ptx.assemble import assemble  # Fills the table of emitters, too.
from ziggurat.backend.ptx.emitter import EMITTERS, PtxEmitter
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import f8e4m3, f8e5m2
from ziggurat.transforms.analysis.queries import function_of

fake, failed = fake_driver.fake, fake_driver.failed
_NUMPY: dict[str, Any] = {
    "float": np.float32, "double": np.float64, "half": np.float16, "bfloat": np.uint16, "i1": np.bool_,
    "i8": np.uint8, "i16": np.uint16, "i32": np.uint32, "i64": np.uint64,
}  # fmt: skip


def _ptxas() -> str | None:
    installed = Path(sysconfig.get_paths()["purelib"]) / "nvidia/cu13/bin/ptxas"
    return str(installed) if installed.exists() else shutil.which("ptxas")


@pytest.fixture(scope="session")
def ptxas() -> Callable[..., str]:
    """`ptxas(ptx, target, stack=False)`: what the assembler says. The test fails on errors, and on a stack frame or
    spills where none are allowed; it is skipped where there is no assembler."""
    program = _ptxas()

    def assemble(ptx: str, target: str, stack: bool = False) -> str:
        if program is None:
            pytest.skip("ptxas is not installed")
        command = [program, "-v", f"-arch={target}", "-o", "/dev/null", "/dev/stdin"]
        result = subprocess.run(command, input=ptx, capture_output=True, text=True, check=False)
        text = result.stdout + result.stderr
        assert result.returncode == 0, text
        frames = {int(size) for size in re.findall(r"(\d+) bytes stack frame", text)}
        assert stack or frames <= {0}, text
        assert stack or set(re.findall(r"(\d+) bytes spill", text)) <= {"0"}, text
        return text

    return assemble


@pytest.fixture
def emitted() -> Callable[[str], tuple[str, str]]:
    """The LLVM text and the PTX of a kernel of four warps that takes a pointer, %p, and an i32, %n."""

    def texts(body: str) -> tuple[str, str]:
        module = parse(f"""gpu.module @target="sm_90a" @num_warps=4 ()void -> {{
            tt.func @"k" (%p : ptr<f32>, %n : i32)void -> {{ {body} tt.return; }}; unreachable; }};""")
        assert isinstance(module, gpu.Module)
        assembly = assemble(module)
        return assembly.llvm, assembly.ptx

    return texts


# The approximate instructions of a routine, and what stands for them on the host.
_APPROXIMATE = {
    'asm "ex2.approx.ftz.f32 $0, $1;", "=f,f"(': "@llvm.exp2.f32(",
    'asm "rcp.approx.ftz.f32 $0, $1;", "=f,f"(': "@reciprocal(",
    'asm "rcp.approx.ftz.f64 $0, $1;", "=d,d"(': "@rough_reciprocal(",
}
_RECIPROCALS = """
define internal float @reciprocal(float %x) { %y = fdiv float 1.0, %x  ret float %y }
define internal double @rough_reciprocal(double %x) {
  %y = fdiv double 1.0, %x  %bits = bitcast double %y to i64  %cut = and i64 %bits, -8589934592
  %rough = bitcast i64 %cut to double  ret double %rough
}"""


def run_on_host(routine: Routine, extra: Sequence[str] = ()) -> Callable[..., Any]:
    """A function of NumPy arrays that applies a routine to each element. `extra` are further lines of the module."""
    kinds, result = routine.parameters, routine.result
    lines = [
        "declare float @llvm.exp2.f32(float)",
        _RECIPROCALS,
        *routine.declarations,
        *extra,
        *routine.variables.values(),
        routine.text,
        each(routine.symbol, kinds, result),
    ]
    text = (
        "\n".join(dict.fromkeys(lines)).replace("internal addrspace(4)", "internal").replace("ptr addrspace(4)", "ptr")
    )
    for instruction, call in _APPROXIMATE.items():
        text = text.replace(instruction, call)
    function = compiled(text, "each", len(kinds) + 1)

    def apply(*arrays: Any) -> Any:
        arguments = [np.ascontiguousarray(array, _NUMPY[kind]) for array, kind in zip(arrays, kinds, strict=True)]
        out = np.empty(arguments[0].shape, _NUMPY[result])
        function(*(array.ctypes.data for array in arguments), out.ctypes.data, out.size)
        return out

    return apply


@pytest.fixture(scope="session")
def on_host() -> Callable[..., Callable[..., Any]]:
    """`on_host(routine)`: a routine as a function of NumPy arrays, run on this machine."""
    return run_on_host


def emitted_routine(
    op: str, operands: Sequence[str], result: str, target: str, options: CompileOptions
) -> Callable[..., Any]:
    """The emitted code of one scalar op, run on the host; it must have no inline assembly."""
    parameters = ", ".join(f"%{i} : {kind}" for i, kind in enumerate(operands))
    name, *attributes = op.split(" ")
    arguments = " ".join(f"%{i}" for i in range(len(operands)))
    text = f"""gpu.module @target="{target}" @num_warps=4 ()void -> {{ tt.func @"k" ({parameters})void -> {{
        %9 : {result} = {name} {arguments} {" ".join(attributes)}; tt.return; }}; unreachable; }};"""
    module = parse(text)
    assert isinstance(module, gpu.Module)
    func = function_of(module)
    emitter = PtxEmitter(module, options)
    emitter.label = "entry"
    for index, parameter in enumerate(func.body.parameters):
        emitter.values[parameter] = f"%a{index}"
    instance = func.body.entry.ops[0]
    value = EMITTERS[instance](emitter, instance)
    routine = Routine("emitted", llvm_type(instance.result.type), [llvm_type(p.type) for p in func.body.parameters])
    routine.lines = emitter.lines
    return run_on_host(
        routine.done(value), [*emitter.declarations, *emitter.variables.values(), *emitter.definitions.values()]
    )


@pytest.fixture(scope="session")
def emission_on_host() -> Callable[..., Callable[..., Any]]:
    """`emission_on_host("arith.shli", ["i32", "i32"], "i32")`: one op as a function of NumPy arrays."""

    def make(
        op: str, operands: Sequence[str], result: str, target: str = "sm_80", options: CompileOptions | None = None
    ) -> Callable[..., Any]:
        return emitted_routine(op, operands, result, target, options or CompileOptions())

    return make


def _ulps(actual: Any, true: Any, dtype: Any) -> Any:
    """The error in units of the last place of the rounded true value; where that is not finite, 0 if it is the same."""
    rounded = true.astype(dtype)
    finite = np.isfinite(rounded) & np.isfinite(actual)
    same = (actual == rounded) | (np.isnan(actual) & np.isnan(rounded))
    unit = np.spacing(np.abs(np.where(finite, rounded, dtype(1)))).astype(true.dtype)
    error = np.abs(np.where(finite, actual, 0).astype(true.dtype) - np.where(finite, true, 0)) / unit
    return np.where(finite, error, np.where(same, 0, np.inf))


@pytest.fixture(scope="session")
def ulps() -> Callable[..., Any]:
    """`ulps(found, true, dtype)`: errors in units of the last place."""
    return _ulps


def _numbers(count: int = 40_000) -> Any:
    """f32 of all sizes, more of them where 8-bit floats are, and ties."""
    random = np.random.default_rng(5)
    codes = np.arange(256, dtype=np.uint8)
    small = np.concatenate([codes.view(scalar.dtype).astype(np.float32) for scalar in (f8e4m3, f8e5m2)])
    with np.errstate(all="ignore"):
        between = np.concatenate([(small[1:] + small[:-1]) / 2, np.nextafter(small, np.float32(0))])
    bits = random.integers(0, 1 << 32, count, dtype=np.uint64).astype(np.uint32).view(np.float32)
    scaled = random.standard_normal(count).astype(np.float32) * np.exp2(random.integers(-20, 18, count))
    return np.concatenate([bits, scaled.astype(np.float32), small, between]).astype(np.float32)


@pytest.fixture(scope="session")
def numbers() -> Callable[..., Any]:
    """`numbers(count)`: f32 of all sizes."""
    return _numbers


def _same(actual: Any, true: Any) -> None:
    """Equal to the bit, but that one NaN is as good as another."""
    nan = np.isnan(true.astype(np.float32))
    assert (np.isnan(actual.astype(np.float32)) == nan).all()
    kind = f"u{true.dtype.itemsize}"
    wrong = (actual.view(kind) != true.view(kind)) & ~nan
    assert not wrong.any(), np.flatnonzero(wrong)[:5]


@pytest.fixture(scope="session")
def same() -> Callable[..., Any]:
    """`same(found, true)`: assert that floats are equal to the bit."""
    return _same


@pytest.fixture(scope="session")
def emission() -> Callable[..., tuple[PtxEmitter, list[Any]]]:
    """`emission(lines, parameters, target, num_warps)`: ops in a kernel as they are emitted, the emitter and what each
    op gives. Parameter 1 is `%p1`, or where it is a tensor, `%p1.0`, `%p1.1` and so on."""
    return emit_ptx
