"""Stages of a kernel that are read from a file in place of being made: the option `ir_override`.

The file's suffix names the stage: `.ttir` (Triton's MLIR), `.ttgir` (our GPU model, or Triton's if no op in it is of
Triton's GPU dialect: layouts are left out), `.llir` and `.ptx`. What comes after the stage is made from it.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from ziggurat.codemodel.dialects import core, tt
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import Op, expect
from ziggurat.transforms.simplify.demand import first_kernel

if TYPE_CHECKING:
    from ziggurat.compiler.compiled import Compiled

STAGES: Final = (".ttir", ".ttgir", ".llir", ".ptx")
_ENTRY = re.compile(r"\.entry\s+(\w+)\s*\(([^)]*)\)")
_LAYOUT = re.compile(r",\s*#\w+>")
_MODULE_ATTRIBUTES = re.compile(r"module attributes \{.*?\} \{", re.DOTALL)


@attrs.frozen
class Override:
    """The text of a stage, which is made from `path`."""

    path: Path
    text: str

    @staticmethod
    def read(path: Any) -> Override:
        """The override of a path. Raises `LaunchError` for a file that is no stage, and `OSError` for one that cannot
        be read."""
        file = Path(path)
        if file.suffix not in STAGES:
            raise LaunchError(f"the suffix of ir_override must be one of {', '.join(STAGES)}; got {str(path)!r}")
        return Override(file, file.read_text())

    @staticmethod
    def in_folder(folder: Path, name: str) -> Override | None:
        """The override of the first stage of a kernel that a folder has a file of; None if it has none."""
        files = (folder / f"{name}{stage}" for stage in STAGES)
        return next((Override.read(file) for file in files if file.is_file()), None)

    @property
    def is_late(self) -> bool:
        """Whether the stage comes after the models, as text for LLVM or for NVIDIA's assembler."""
        return self.path.suffix in (".llir", ".ptx")

    @property
    def digest(self) -> str:
        """A text that is equal for equal overrides."""
        return f"{self.path.suffix} {hashlib.sha256(self.text.encode()).hexdigest()}"

    def model(self, own: core.Module) -> Op:
        """The model that the kernel is compiled from: that of the file, or `own`, the kernel's, for later stages.

        Raises `LaunchError` for a model with other parameters."""
        if self.is_late:
            return own
        if self.path.suffix == ".ttgir" and self.text.lstrip().startswith("gpu.module"):
            from ziggurat.codemodel.text.parser import parse

            return expect(parse(self.text), gpu.Module)
        model = self.imported()
        function, expected = (first_kernel(module) for module in (model, own))
        if _parameters(function) != _parameters(expected):
            raise LaunchError(
                f"the kernel of {self.path} must have the parameters of '{expected.sym_name}', "
                f"({_type_list(expected)}); got ({_type_list(function)})"
            )
        return model

    def imported(self) -> core.Module:
        """The Triton model of a file of Triton's MLIR."""
        from ziggurat.backend.mlir import from_mlir

        return from_mlir(self.text if self.path.suffix == ".ttir" else self._without_layouts())

    def _without_layouts(self) -> str:
        lines = (line for line in self.text.splitlines() if not line.lstrip().startswith("#"))
        text = _LAYOUT.sub(">", _MODULE_ATTRIBUTES.sub("module {", "\n".join(lines)))
        match = re.search(r"\btt(?:n)?g\.\w+", text)
        if match is not None:
            raise LaunchError(
                f"{self.path} cannot be compiled: {match[0]} is an op of Triton's GPU dialect",
                hint="give the stage before it, .ttir, or our own GPU model, asm['ttgir']",
            )
        return text

    def applied(self, compiled: Compiled) -> Compiled:
        """The compiled kernel with the text of a late stage in place of its own."""
        if not self.is_late:
            return compiled
        from ziggurat.backend.ptx.assemble import to_ptx

        texts = {"ptx": self.text}
        if self.path.suffix == ".llir":
            texts = {"llvm": self.text, "ptx": to_ptx(self.text, compiled.target)}
        count = len(compiled.parameters) + 3 * compiled.persistent + len(compiled.maps) + bool(compiled.scratch)
        symbol, texts["ptx"] = self._entry(texts["ptx"], count)
        return attrs.evolve(compiled, symbol=symbol, stages={**compiled.stages, **texts})

    def _entry(self, ptx: str, count: int) -> tuple[str, str]:
        """The name of the kernel in PTX, and the text with `count` parameters: Triton's own, which come last and are
        mostly unused, are left out. Raises `LaunchError` for other parameters."""
        entry = _ENTRY.search(ptx)
        if entry is None:
            raise LaunchError(f"{self.path} must have a kernel, .entry name(…)")
        parameters = [line.strip() for line in entry[2].split(",") if line.strip()]
        rest = ptx[: entry.start()] + ptx[entry.end() :]
        left_out = parameters[count:]
        if len(parameters) < count or any(re.search(rf"\b{line.split()[-1]}\b", rest) for line in left_out):
            raise LaunchError(f"the kernel of {self.path} must have {count} parameters; got {len(parameters)}")
        signature = ",\n\t".join(parameters[:count])
        return entry[1], f"{ptx[: entry.start()]}.entry {entry[1]}(\n\t{signature}\n){ptx[entry.end() :]}"


def _parameters(function: tt.Func) -> list[Any]:
    return [parameter.type for parameter in function.body.parameters]


def _type_list(function: tt.Func) -> str:
    return ", ".join(map(str, _parameters(function)))
