"""Cubins that `triton.compile` writes for PyTorch's static launcher."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest

import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.backend.ptx.sass import tool
from ziggurat.codemodel.errors import TargetError
from ziggurat.triton.backends.compiler import GPUTarget

pytestmark = pytest.mark.skipif(tool("ptxas") is None, reason="NVIDIA's assembler is not installed")
H100 = GPUTarget("cuda", 90, 32)


def scale(x_ptr, factor, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at) * factor)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of a process that compiles for torch.compile."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "torch._inductor.runtime.triton_heuristics", sys)
    return tmp_path / "cache"


def compiled(kernel: Any = None, factor: str = "fp32", target: GPUTarget = H100, **options: Any) -> Any:
    signature = {"x_ptr": "*fp32", "factor": factor, "BLOCK": "constexpr"}
    source = triton.compiler.ASTSource(kernel or triton.jit(scale), signature, {"BLOCK": 64})
    return triton.compile(source, target=target, options=options)


def written(folder: Path) -> list[str]:
    return [f"{path.parent.name}/{path.name}" for path in folder.glob("**/*.cubin")]


def test_a_plain_kernel_has_its_cubin_where_pytorch_looks(folder: Path):
    kernel = compiled()
    place = f"{triton.runtime.cache._base32(kernel.hash)}/scale.cubin"
    assert written(folder) == [place] and (folder / place).read_bytes()[:4] == b"\x7fELF"
    (folder / place).write_bytes(b"kept")
    assert compiled().hash == kernel.hash and (folder / place).read_bytes() == b"kept"
    compiled(num_warps=8)
    assert len(written(folder)) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        {"factor": "fp16"}, {"factor": "bf16"}, {"launch_pdl": True}, {"target": GPUTarget("cpu", 0, 32)},
        {"kernel": triton.jit(scale, repr=lambda specialization: "other")},
    ],
)  # fmt: skip
def test_other_kernels_have_none(folder: Path, arguments: dict[str, Any]):
    compiled(**arguments)
    assert written(folder) == []


def test_only_processes_of_inductor_write_them(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "torch._inductor.runtime.triton_heuristics")
    compiled()
    assert written(folder) == []


def test_names_that_no_file_can_have_and_folders_that_cannot_be_made(folder: Path, tmp_path: Path):
    long = "k" * 251
    scale_of_long_name = type(scale)(scale.__code__, {**globals()}, long)
    assert compiled(triton.jit(scale_of_long_name)).binary is not None and written(folder) == []
    fits = type(scale)(scale.__code__, {**globals()}, "k" * 249)
    assert compiled(triton.jit(fits)).binary is not None and len(written(folder)) == 1
    with triton.knobs.cache.scope():
        manager = triton.runtime.cache.FileCacheManager
        triton.knobs.cache.manager_class = lambda key: manager(f"{tmp_path / 'x'}/{key}")
        (tmp_path / "x").write_text("")
        assert compiled(num_stages=2).binary is not None


class FakeLinker:
    """The functions of nvJitLink, whose code is the text "linked". They note their calls."""

    class InputType:
        PTX = 1

    def __init__(self, refuses: str) -> None:
        self.refuses, self.calls = refuses, list[str]()

    def create(self, count: int, options: list[str]) -> int:
        self.calls.append(f"create {options[:count]}")
        return 7

    def add_data(self, handle: int, kind: int, data: bytes, size: int, name: str) -> None:
        assert (handle, kind, len(data)) == (7, 1, size)
        self.calls.append("add_data")

    def complete(self, handle: int) -> None:
        if self.refuses:
            raise RuntimeError(self.refuses)
        self.calls.append("complete")

    def get_linked_cubin_size(self, handle: int) -> int:
        return len(b"linked")

    def get_linked_cubin(self, handle: int, code: bytearray) -> None:
        code[:] = b"linked"

    def destroy(self, handle: int) -> None:
        self.calls.append("destroy")


def test_a_cubin_is_that_of_nvjitlink_or_of_ptxas(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """A library that is missing, or too old for the code, leaves it to the assembler."""
    from ziggurat.backend.ptx import sass

    kernel = compiled()
    ptx = kernel.asm["ptx"]
    linker = FakeLinker("")
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvjitlink", cast("ModuleType", linker))
    assert sass.machine_code(ptx, "sm_90a", 0) == b"linked"
    assert linker.calls == ["create ['-arch=sm_90a', '-lineinfo']", "add_data", "complete", "destroy"]
    linker.refuses = "the version of PTX is too new"
    assert sass.machine_code(ptx, "sm_90a", 0)[:4] == b"\x7fELF" and linker.calls[-1] == "destroy"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"factor": "fp16"}, "takes a number of type f16"), ({"launch_pdl": True}, "needs the launch attribute pdl"),
        ({"num_ctas": 2}, "needs clusters of CTAs"),
    ],
)  # fmt: skip
def test_pytorch_s_programs_in_c_plus_plus_are_refused_what_they_cannot_launch(arguments: dict[str, Any], reason: str):
    kernel = compiled()
    facts = {"entry_name": "scale", "num_warps": 4, "shared_mem": kernel.metadata.shared}
    assert kernel.launch_metadata_schema == facts and kernel.num_warps == 4
    assert compiled(target=GPUTarget("cpu", 0, 32)).launch_metadata_schema is None
    with pytest.raises(TargetError, match=f"cannot launch 'scale': it {reason}"):
        _ = compiled(**arguments).launch_metadata_schema
