"""`triton.tools.compile` and `triton.tools.link`: C sources of kernels, compiled and run against a stand-in of CUDA."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from ziggurat.codemodel.errors import LaunchError
from ziggurat.triton.tools.compile import CompileArgs, compile_kernel
from ziggurat.triton.tools.link import LinkerError, link, main

INCLUDE = Path(sysconfig.get_paths()["purelib"]) / "nvidia/cu13/include"
KERNELS = """
import ziggurat.triton as triton
import ziggurat.triton.language as tl

@triton.jit
def add(stream_ptr, BLOCK: tl.constexpr, y, n):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(stream_ptr + at, at < n) + n, at < n)
"""
PROGRAM = r"""
#include "add.h"
#include <stdio.h>
CUresult cuGetErrorString(CUresult status, const char **text) { return *text = "", 0; }
CUresult cuModuleLoadData(CUmodule *module, const void *image) { return *module = (CUmodule)image, 0; }
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  printf("load %s %.3s\n", name, (const char *)module + 1);
  return *function = (CUfunction)module, 0;
}
CUresult cuModuleUnload(CUmodule module) { return puts("unload"), 0; }
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) { return 0; }
CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b, unsigned c,
                        unsigned shared, CUstream stream, void **arguments, void **extra) {
  int count = 0;
  while (arguments[count]) count++;
  printf("%u %u %u, %u threads, %d arguments, last %d\n", x, y, z, a, count, *(int *)arguments[count - 1]);
  return 0;
}
int main(void) {
  printf("%d\n", add_get_num_algos());
  add(0, 4096, 8192, 256, 0), add_default(0, 4096, 8192, 100), add_default(0, 4100, 8192, 1);
  add(0, 4096, 8192, 129, 1);
  printf("%d\n", add(0, 4096, 4096, 1, 2));
  unload_add();
}
"""


def test_kernels_are_launched_from_c(tmp_path, monkeypatch):
    compiler = shutil.which("gcc")
    if compiler is None or not (INCLUDE / "cuda.h").exists():
        pytest.skip("there is no C compiler, or no cuda.h")
    source = tmp_path / "kernels.py"
    source.write_text(KERNELS)
    headers, sources = [], []
    for signature, warps in (
        ("*fp32:16, 64, *fp32:16, i32:16", 2), ("*fp32, 64, *fp32, i32", 2), ("*fp32, 64, *fp32, i32:1", 2),
        ("*fp32, 128, *fp32, i32", 4),
    ):  # fmt: skip
        grid = "(n + BLOCK - 1) / BLOCK, 1, 1"
        name, (c_file, header) = compile_kernel(
            CompileArgs(source, "add", signature, grid, "cuda:90:32", warps, out_path=tmp_path / "add")
        )
        assert name.startswith("add_") and header.name == f"add.{name.removeprefix('add_')}.h"
        sources.append(str(c_file))
        headers.append(str(header))
    command = [
        sys.executable,
        "-m",
        "ziggurat.triton",
        "-m",
        "triton.tools.link",
        *headers,
        "-o",
        str(tmp_path / "add"),
    ]
    subprocess.run(command, check=True)
    (tmp_path / "program.c").write_text(PROGRAM)
    files = [*sources, str(tmp_path / "add.c"), str(tmp_path / "program.c")]
    subprocess.run(
        [compiler, "-Werror", f"-I{INCLUDE}", f"-I{tmp_path}", *files, "-o", str(tmp_path / "program")], check=True
    )
    output = subprocess.run([str(tmp_path / "program")], capture_output=True, text=True, check=True).stdout
    assert output.splitlines() == [
        "2",
        "load add ELF", "4 1 1, 64 threads, 3 arguments, last 256",
        "load add ELF", "2 1 1, 64 threads, 3 arguments, last 100",
        "load add ELF", "1 1 1, 64 threads, 2 arguments, last 8192",
        "load add ELF", "2 1 1, 128 threads, 3 arguments, last 129",
        "1",
        *["unload"] * 4,
    ]  # fmt: skip
    for changes, message in (
        ({"signature": "*fp32"}, "must have 4 entries"), ({"signature": "*fp32:8, 64, *fp32, i32"}, "must be 1 or 16"),
        ({"kernel_name": "tl"}, "no kernel 'tl'"), ({"path": tmp_path / "none.py"}, "there is no Python file"),
        ({"target": "cuda:sm_90"}, "--target must be a backend"),
    ):  # fmt: skip
        arguments = {"path": source, "kernel_name": "add", "signature": "*fp32, 64, *fp32, i32", "grid": "1, 1, 1"}
        with pytest.raises(LaunchError, match=message):
            compile_kernel(CompileArgs(**{**arguments, **changes}))
    with pytest.raises(LinkerError, match="must be a header"):
        link([source], tmp_path / "none")


def test_a_header_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    missing, bytes_of_no_text = tmp_path / "none.h", tmp_path / "bytes.h"
    with pytest.raises(LinkerError, match=r"the header .*none\.h cannot be read: No such file"):
        link([missing], tmp_path / "out")
    bytes_of_no_text.write_bytes(b"\xff\xfe")
    with pytest.raises(LinkerError, match="must be a header"):
        link([bytes_of_no_text], tmp_path / "out")
    header = tmp_path / "x.h"
    header.write_text("// tt-linker: add_a_b:int n:c\n// tt-conditions: \nCUresult add_a_b(CUstream stream, int n);\n")
    with pytest.raises(LinkerError, match=r"absent/out cannot be written: No such file(.|\n)*hint: give --out a path"):
        link([header], tmp_path / "absent" / "out")
    monkeypatch.setattr(sys, "argv", ["link", str(missing), "-o", str(tmp_path / "out")])
    with pytest.raises(SystemExit, match="1"):
        main()
    assert capsys.readouterr().err.startswith(f"link: the header {missing} cannot be read")
    assert not list(tmp_path.glob("out*"))
