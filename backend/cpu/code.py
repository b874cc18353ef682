"""Kernels compiled for CPUs, as plain values: docs/design/008-cpu.md has the meaning of each field."""

from __future__ import annotations

from typing import Final

import attrs

from ziggurat.backend.cpu.sites import Site
from ziggurat.backend.jit.loading import host
from ziggurat.backend.llvm.functions import Struct

# The head of the description of a launch: the grid, 0, the host, the function that prints (or 0), and the notes of a
# tolerant kernel (or 0). The bounds of arrays follow.
LAUNCH: Final = Struct(x="i32", y="i32", z="i32", zero="i32", host="ptr", printer="ptr", notes="ptr")
HEAD: Final = LAUNCH.packer
BOUNDS: Final = LAUNCH.size
BOUND: Final = Struct(low="i64", high="i64", writable="i64")
# The functions and facts of the process that kernels use (`runtime/host.py`). `arrays` has the number of those to which
# pointers made from integers may go, and their `BOUND`s; or it is 0.
HOST: Final = Struct(word="i64", poll="ptr", printer="ptr", now="ptr", waits="ptr", arrays="ptr")
MAX_WAITS: Final = 1 << 10  # Iterations in which a loop may wait, where nothing runs meanwhile.
MAX_WAITS_BESIDE: Final = 1 << 24  # Where the caller may run others: some seconds.


@attrs.frozen
class CpuOptions:
    """The options of a compilation. `cpu` and `features` are LLVM's names; "" is this machine. Without `check`, stray
    accesses are not found. If they are `tolerant` (`Policy.tolerant_memory`), stray accesses and divisions by zero are
    noted, and the program goes on. With `fast_math`, sums and functions need not have the interpreter's bits. With
    `line_info`, the object has DWARF's table of source lines. With `devices`, pointers made from integers may go
    to arrays that the host has."""

    cpu: str = ""
    features: str = ""
    check: bool = True
    tolerant: bool = False
    fast_math: bool = False
    line_info: bool = False
    devices: bool = False

    def resolved(self) -> CpuOptions:
        """The options with the machine named."""
        if self.cpu:
            return self
        name, features = host()
        return attrs.evolve(self, cpu=name, features=self.features or features)


@attrs.frozen
class ArgumentSlot:
    """A slot of the arguments: the text of its type, the number of the launch's argument, and of a descriptor the
    part: "base", "shape0", "stride1"."""

    type: str
    argument: int
    part: str = ""


@attrs.frozen
class CpuCode:
    """A kernel compiled for a CPU."""

    symbol: str
    object: bytes = attrs.field(repr=False)
    llvm: str = attrs.field(repr=False)
    model: str = attrs.field(repr=False)
    parameters: tuple[ArgumentSlot, ...]
    bounds: tuple[int, ...]
    scratch: int
    ordered: bool
    sites: tuple[Site, ...]
    cpu: str
    features: str
    tolerant: bool = False
