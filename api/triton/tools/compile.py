"""`triton.tools.compile`: a kernel as C source with its machine code, for programs without Python.

    python -m ziggurat.triton -m triton.tools.compile -n add -s "*fp32:16, *fp32, i32, 64" -g "n / 64, 1, 1" kernels.py

An entry of the signature is a type, one with a hint (`:16` is divisible by 16, `:1` is 1), or the value of a constant.
The grid is three expressions of C, which may name the arguments. The C source has functions that load, launch and
unload the kernel. `triton.tools.link` makes one function of those of several signatures. `ziggurat build` is the way to
libraries for several targets, with tensor maps, from C and from Python.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.types import PtrType
from ziggurat.shipping.header import c_type
from ziggurat.triton.backends.compiler import GPUTarget
from ziggurat.triton.compiler.compiler import compile as compiled
from ziggurat.triton.compiler.signatures import type_of
from ziggurat.triton.compiler.sources import ASTSource
from ziggurat.triton.runtime.driver import driver
from ziggurat.triton.runtime.jit import JITFunction

_SOURCE: Final = """\
#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static const unsigned char tt_code[] = {{{code}}};
static CUmodule tt_module = NULL;
static CUfunction tt_function = NULL;

static void tt_check(CUresult status) {{
  const char *text = "unknown error";
  if (status == CUDA_SUCCESS) return;
  cuGetErrorString(status, &text);
  fprintf(stderr, "Triton Error [CUDA]: %s\\n", text);
  exit(status);
}}

void load_{name}(void) {{
  tt_check(cuModuleLoadData(&tt_module, tt_code));
  tt_check(cuModuleGetFunction(&tt_function, tt_module, "{symbol}"));
  if ({shared} > 49152)
    tt_check(cuFuncSetAttribute(tt_function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, {shared}));
}}

void unload_{name}(void) {{
  tt_check(cuModuleUnload(tt_module));
  tt_function = NULL;
}}

/* {facts} */
CUresult {name}(CUstream stream{parameters}) {{
  if (tt_function == NULL) load_{name}();
  enum {{ {integers} }};
  const unsigned tt_grid[] = {{{grid}}};
  void *tt_arguments[] = {{{pointers}NULL}};
  if (tt_grid[0] == 0 || tt_grid[1] == 0 || tt_grid[2] == 0) return CUDA_SUCCESS;
  return cuLaunchKernel(
    tt_function, tt_grid[0], tt_grid[1], tt_grid[2], {threads}, 1, 1, {shared}, stream, tt_arguments, NULL
  );
}}
"""
_HEADER: Final = """\
#ifndef TT_KERNEL_INCLUDES
#define TT_KERNEL_INCLUDES
#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#endif

void unload_{name}(void);
void load_{name}(void);
// tt-linker: {name}:{arguments}:{algorithm}
// tt-conditions: {conditions}
CUresult {name}(CUstream stream{parameters});
"""


@dataclass
class CompileArgs:
    """The arguments of the command. `target` is `cuda:90:32`, by default this machine's GPU, or an H100."""

    path: str | Path = ""
    kernel_name: str = ""
    signature: str = ""
    grid: str = ""
    target: str | None = None
    num_warps: int = 1
    num_stages: int = 3
    out_name: str | None = None
    out_path: Path | None = None


def compile_kernel(args: CompileArgs) -> tuple[str, list[Path]]:
    """Write the C source and the header of a kernel: the name of its function, and the files.

    Raises `LaunchError` for a name, a signature or a grid that does not fit the file, and `TargetError` for a kernel
    whose launch needs more than its arguments.
    """
    kernel = _kernel_of(Path(args.path), args.kernel_name)
    texts, grid = ([text.strip() for text in part.split(",")] for part in (args.signature, args.grid))
    if len(texts) != len(kernel.arg_names) or len(grid) != 3:
        raise LaunchError(
            f"--signature must have {len(kernel.arg_names)} entries, one for each of {', '.join(kernel.arg_names)}, "
            f"and --grid three; got {len(texts)} and {len(grid)}",
            hint='--signature "*fp32:16, i32, 64" --grid "1024, 1, 1"',
        )
    types, hints = zip(*(text.partition(":")[::2] for text in texts), strict=True)
    if wrong := [hint for hint in hints if hint.strip() not in ("", "1", "16")]:
        raise LaunchError(f"a hint of --signature must be 1 or 16; got {wrong[0]!r}", hint='"*fp32:16, i32:1, i32"')
    ones = {name for name, hint in zip(kernel.arg_names, hints, strict=True) if hint.strip() == "1"}
    constants = {
        name: 1 if name in ones else value
        for name, type_ in zip(kernel.arg_names, types, strict=True)
        if (value := _number(type_)) is not None or name in ones
    }
    attributes = {(at,): [["tt.divisibility", 16]] for at, hint in enumerate(hints) if hint.strip() == "16"}
    run_time = {
        name: type_.strip() for name, type_ in zip(kernel.arg_names, types, strict=True) if name not in constants
    }
    source = ASTSource(kernel, {**run_time, **dict.fromkeys(constants, "constexpr")}, constants, attributes)
    options = {"num_warps": args.num_warps, "num_stages": args.num_stages}
    result = compiled(source, target=_target(args.target), options=options)
    facts = result.launch_metadata_schema
    if facts is None or result.metadata.global_scratch_size:
        raise LaunchError(
            f"'{kernel.name}' needs memory besides its arguments, or is for a CPU", hint="build it: ziggurat build"
        )
    c_types = {name: _c_type(text) for name, text in run_time.items()}
    # Arguments that are 1 are those of the linked function, and not of this one.
    whole = {name: c_types.get(name, "int32_t") for name in kernel.arg_names if name in c_types or name in ones}
    values = [name for name in constants if name not in ones]
    algorithm = f"warps{args.num_warps}xstages{args.num_stages}"
    digits = hashlib.sha256(" ".join([*texts, algorithm]).encode()).hexdigest()[:8]
    marks = {"": "", "1": "c", "16": "d"}
    suffix = "".join(f"{at}{marks[hint.strip()]}" for at, hint in enumerate(hints))
    conditions = [f"{name} == 1" if name in ones else f"{name} % 16 == 0" for name in _hinted(kernel, hints)]
    parts: dict[str, Any] = {
        "name": f"{args.out_name or args.kernel_name}_{digits}_{suffix}",
        "symbol": facts["entry_name"], "shared": facts["shared_mem"], "threads": 32 * facts["num_warps"],
        "code": ", ".join(map(str, result.kernel)), "grid": ", ".join(grid),
        "facts": ", ".join(f"{name}={value}" for name, value in {**constants, **options}.items()),
        "parameters": "".join(f", {type_} {name}" for name, type_ in c_types.items()),
        "pointers": "".join(f"&{name}, " for name in c_types),
        "arguments": ", ".join(f"{type_} {name}" for name, type_ in whole.items()),
        "integers": ", ".join(f"{name} = {value}" for name, value in {"tt_1": 1, **constants}.items() if _fits(value)),
        # A part of names in C, where a constant may be -1 or 0.5.
        "algorithm": re.sub(r"\W", "_", f"{'x'.join(str(constants[name]) for name in values)}_{algorithm}"),
        "conditions": " && ".join(conditions),
    }  # fmt: skip
    path = args.out_path or Path(args.out_name or args.kernel_name)
    files = {path.with_suffix(f".{digits}_{suffix}{end}"): text for end, text in ((".c", _SOURCE), (".h", _HEADER))}
    for file, text in files.items():
        file.write_text(text.format(**parts), "utf-8")
    return parts["name"], [*files]


def _kernel_of(path: Path, name: str) -> JITFunction:
    """The kernel of a name in a file, which is executed."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise LaunchError(f"there is no Python file {path}")
    sys.path.insert(0, str(path.parent))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernel = getattr(module, name, None)
    if not isinstance(kernel, JITFunction):
        raise LaunchError(f"{path} has no kernel '{name}' under @triton.jit alone; it has {kernel!r}")
    return kernel


def _number(text: str) -> int | float | None:
    """The constant of an entry; None for a type."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return None


def _fits(value: Any) -> bool:
    """Whether a constant can be an `enum` of C: grids may name it."""
    return isinstance(value, int) and abs(value) < 1 << 31


def _c_type(text: str) -> str:
    """The type of an argument in C."""
    type_ = type_of(text)
    return "CUdeviceptr" if isinstance(type_, PtrType) else c_type(type_).strip()


def _hinted(kernel: JITFunction, hints: Any) -> list[str]:
    return [name for name, hint in zip(kernel.arg_names, hints, strict=True) if hint.strip()]


def _target(text: str | None) -> GPUTarget:
    if text is None:
        target = driver.active.get_current_target()
        return target if target.backend == "cuda" else GPUTarget("cuda", 90, 32)
    backend, *numbers = text.split(":")
    if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
        raise LaunchError(
            f"--target must be a backend, an architecture and a warp size; got {text!r}", hint="cuda:90:32"
        )
    return GPUTarget(backend, *map(int, numbers))


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("path", help="the Python file that has the kernel; it is executed")
    parser.add_argument("--kernel-name", "-n", required=True)
    parser.add_argument("--target", "-t", help="cuda:90:32; by default this machine's GPU, or an H100")
    parser.add_argument("--num-warps", "-w", type=int, default=1)
    parser.add_argument("--num-stages", "-ns", type=int, default=3)
    parser.add_argument("--out-name", "-on", help="the name of the function in C, without what tells signatures apart")
    parser.add_argument("--out-path", "-o", type=Path, help="the path of the files, without their endings")
    parser.add_argument("--signature", "-s", required=True, help='"*fp32:16, i32, 64"')
    parser.add_argument("--grid", "-g", required=True, help="three expressions of C: sizes of the grid")
    compile_kernel(CompileArgs(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()

__all__ = ["CompileArgs", "compile_kernel", "main"]
