"""`triton.tools.link`: one function of C for the kernels that `triton.tools.compile` wrote for several signatures.

    python -m ziggurat.triton -m triton.tools.link add.*.h -o add

writes `add.h` and `add.c`. `add(stream, …, algo_id)` launches the kernel whose hints hold for the arguments; an
algorithm is a choice of constants, warps and stages. `add_default` takes the first, `add_get_num_algos` counts them,
and `load_add` and `unload_add` do so for all.
"""

from __future__ import annotations

import re
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path

import attrs

from ziggurat.codemodel.errors import LaunchError

_DIRECTIVE = re.compile(r"// tt-linker: ((\w+)_\w+_\w+):(.*):(.*)\n// tt-conditions: (.*)\nCUresult (.*);")


class LinkerError(LaunchError):
    """A header is none of `triton.tools.compile`, or the kernels of several do not fit together."""


@attrs.frozen
class LinkedKernel:
    """A kernel of a header: its function, the declared arguments of the linked function, the algorithm, the condition
    of the arguments, and its own declaration."""

    function: str
    kernel: str
    arguments: str
    algorithm: str
    condition: str
    declaration: str

    @property
    def names(self) -> list[str]:
        """The names of the arguments of the linked function."""
        return [part.split()[-1] for part in self.arguments.split(",")] if self.arguments else []

    @property
    def call(self) -> str:
        values = [name for name in self.names if f"{name} == 1" not in self.condition.split(" && ")]
        return f"{self.function}({', '.join(['stream', *values])})"


def link(headers: Sequence[str | Path], out: Path) -> None:
    """Write `out` with the endings `.h` and `.c`. Raises `LinkerError` for a file that is no header or cannot be
    read, for a path that cannot be written, and for headers that do not fit together."""
    kernels: list[LinkedKernel] = []
    for header in headers:
        match = _DIRECTIVE.search(_text_of(Path(header)))
        if match is None:
            raise LinkerError(f"{header} must be a header that triton.tools.compile wrote")
        kernels.append(LinkedKernel(*match.groups()))
        if (kernels[0].kernel, kernels[0].arguments) != (kernels[-1].kernel, kernels[-1].arguments):
            raise LinkerError(
                f"{headers[0]} has {kernels[0].kernel}({kernels[0].arguments}), and {header} "
                f"{kernels[-1].kernel}({kernels[-1].arguments}): they must be the same"
            )
    if not kernels:
        raise LinkerError("there must be a header to link")
    first = kernels[0]
    kernel, arguments = first.kernel, ", ".join(["CUstream stream", *filter(None, [first.arguments])])
    values = ", ".join(["stream", *first.names])
    algorithms: dict[str, list[LinkedKernel]] = {}
    for each in sorted(kernels, key=lambda each: -len(each.condition)):
        algorithms.setdefault(each.algorithm, []).append(each)
    ordered = {f"{kernel}_{name}": algorithms[name] for name in dict.fromkeys(each.algorithm for each in kernels)}
    own = [f"{kernel}(CUstream stream, {first.arguments}, int algo_id)".replace(", ,", ",")]
    declarations = [f"CUresult {name}({arguments});" for name in (*ordered, f"{kernel}_default")]
    declarations += [f"CUresult {own[0]};", f"int {kernel}_get_num_algos(void);"]
    declarations += [f"void {verb}_{name}(void);" for verb in ("load", "unload") for name in (*ordered, kernel)]
    lines = ["#include <cuda.h>", "#include <stdbool.h>", "#include <stdint.h>", ""]
    header = "\n".join([*lines, *declarations, ""])
    lines += [f"CUresult {each.declaration};" for each in kernels]
    lines += [f"void {verb}_{each.function}(void);" for verb in ("load", "unload") for each in kernels]
    for name, members in ordered.items():
        cases = [f"  if ({each.condition or 1}) return {each.call};" for each in members]
        lines += [f"CUresult {name}({arguments}) {{", *cases, "  return CUDA_ERROR_INVALID_VALUE;", "}"]
    lines += [
        f"static CUresult (*const algorithms[])({arguments}) = {{{', '.join(ordered)}}};",
        f"int {kernel}_get_num_algos(void) {{ return {len(ordered)}; }}",
        f"CUresult {own[0]} {{",
        f"  if (algo_id < 0 || algo_id >= {len(ordered)}) return CUDA_ERROR_INVALID_VALUE;",
        f"  return algorithms[algo_id]({values});", "}",
        f"CUresult {kernel}_default({arguments}) {{ return {kernel}({values}, 0); }}",
    ]  # fmt: skip
    for verb in ("load", "unload"):
        for name, members in ordered.items():
            calls = " ".join(f"{verb}_{each.function}();" for each in members)
            lines.append(f"void {verb}_{name}(void) {{ {calls} }}")
        lines.append(f"void {verb}_{kernel}(void) {{ {' '.join(f'{verb}_{name}();' for name in ordered)} }}")
    try:
        out.with_suffix(".h").write_text(header, "utf-8")
        out.with_suffix(".c").write_text("\n".join([*lines, ""]), "utf-8")
    except OSError as error:
        raise LinkerError(
            f"{out} cannot be written: {error.strerror}", hint="give --out a path in a folder that exists"
        ) from None


def _text_of(header: Path) -> str:
    try:
        return header.read_text("utf-8")
    except OSError as error:
        raise LinkerError(
            f"the header {header} cannot be read: {error.strerror}", hint="triton.tools.compile writes headers"
        ) from None
    except UnicodeDecodeError:
        return ""


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("headers", nargs="+", help="headers that triton.tools.compile wrote")
    parser.add_argument("--out", "-o", type=Path, required=True, help="the path of the files, without their endings")
    parser.add_argument("--prefix", default="", help="ignored, as by Triton")
    arguments = parser.parse_args()
    try:
        link(arguments.headers, arguments.out)
    except LinkerError as error:
        parser.exit(1, f"{parser.prog}: {error}\n")


if __name__ == "__main__":
    main()

__all__ = ["LinkerError", "link", "main"]
