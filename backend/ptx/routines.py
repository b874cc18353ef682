"""Routines: functions of the LLVM module, defined once, called where they are needed.

They are plain LLVM without anything of a target, so a test can run them on the host; LLVM inlines them as it sees fit.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence


def f32_bits(bits: int) -> str:
    """The f32 with these bits, as LLVM writes it: by the bits of the equal f64."""
    return f64(struct.unpack("<f", struct.pack("<I", bits))[0])


def f64(number: float) -> str:
    """An f64 as LLVM writes it."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"


def f32(number: float) -> str:
    """The f32 nearest to a number, as LLVM writes it."""
    return f64(struct.unpack("<f", struct.pack("<f", number))[0])


class Routine:
    """Writes one function `result @name(parameters)`; its arguments are `%a0`, `%a1` and so on."""

    def __init__(self, name: str, result: str, parameters: Sequence[str]) -> None:
        self.name = name
        self.result = result
        self.parameters = tuple(parameters)
        self.lines: list[str] = []
        self.declared: dict[str, None] = {}
        self.variables: dict[str, str] = {}
        self.text = ""
        self.label = "entry"
        self._count = 0

    def fresh(self, hint: str = "t") -> str:
        """A fresh name, without its sigil."""
        self._count += 1
        return f"{hint}{self._count}"

    def line(self, text: str) -> None:
        """Append an instruction that gives nothing."""
        self.lines.append(f"  {text}")

    def emit(self, text: str) -> str:
        """Append an instruction; the name of its value."""
        name = f"%{self.fresh()}"
        self.lines.append(f"  {name} = {text}")
        return name

    def start(self, label: str) -> None:
        """Begin a block."""
        self.lines.append(f"{label}:")
        self.label = label

    def call(self, result: str, function: str, *arguments: tuple[str, str]) -> str:
        """Call an intrinsic, declaring it."""
        self.declared[f"declare {result} @{function}({', '.join(kind for kind, _ in arguments)})"] = None
        return self.emit(f"call {result} @{function}({', '.join(f'{kind} {value}' for kind, value in arguments)})")

    def constant(self, name: str, kind: str, values: Sequence[int]) -> str:
        """A table of the module, in constant memory; its name."""
        items = ", ".join(f"{kind} {value}" for value in values)
        self.variables[name] = f"@{name} = internal addrspace(4) constant [{len(values)} x {kind}] [{items}]"
        return f"@{name}"

    def done(self, value: str) -> Routine:
        """End with the result."""
        self.line(f"ret {self.result} {value}")
        given = ", ".join(f"{kind} %a{index}" for index, kind in enumerate(self.parameters))
        head = f"define internal {self.result} @{self.name}({given}) nounwind {{"
        self.text = "\n".join([head, "entry:", *self.lines, "}"])
        return self
