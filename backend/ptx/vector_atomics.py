"""Atomic additions to neighbours in one instruction: the addition to each element is atomic, that to all of them is
not.

f16 are added in pairs (`add.noftz.f16x2`). From sm_90 on bf16 are as well, and there are vectors of 2 or 4 words of 32
bits (PTX ISA 8.1, "red" and "atom": `.vec_32_bit`). The neighbours have one alignment and one mask.
"""

from __future__ import annotations

from collections.abc import Sequence

from ziggurat.backend.ptx.emitter import Emitter
from ziggurat.backend.ptx.words import pack, unpack
from ziggurat.codemodel.dialects.tt import AtomicKind
from ziggurat.codemodel.types import ScalarType, bf16, f16, f32

_VECTORS_SINCE = 90  # sm_90.


def together(capability: int, kind: AtomicKind, scalar: ScalarType, width: int) -> int:
    """The number of neighbours, up to `width`, that one instruction can add to."""
    vectors = capability >= _VECTORS_SINCE
    if kind is not AtomicKind.FADD or scalar not in (f16, bf16, f32) or (scalar == bf16 and not vectors):
        return 1
    per = 4 // scalar.bytes
    return min(width, 4 * per if vectors else per)


def add_together(
    emitter: Emitter, prefix: str, scalar: ScalarType, address: str, bits: Sequence[str], mask: str | None, used: bool
) -> list[str]:
    """Add the values with these bits to neighbours where the mask holds; the bits that were in memory."""
    words = pack(emitter, list(bits), scalar.bytes, 4)
    count = len(words)
    outputs = count if used else 0
    results, inputs = ([f"${first + at}" for at in range(count)] for first in (0, outputs + 1))
    shape, (result, given) = "", (items[0] if count == 1 else f"{{{', '.join(items)}}}" for items in (results, inputs))
    if count > 1:
        shape = f".v{count}"
    name = f"add{shape}.f32" if scalar == f32 else f"add.noftz{shape}.{scalar}x2"
    guard = f"@${outputs + count + 1} " if mask is not None else ""
    head = f"atom.{prefix}.{name} {result}," if used else f"red.{prefix}.{name}"
    text = f"{guard}{head} [ ${outputs} + 0 ], {given};"
    constraints = ["=r"] * outputs + ["l"] + ["r"] * count + (["b"] if mask is not None else [])
    arguments = [("ptr addrspace(1)", address), *(("i32", word) for word in words)]
    if mask is not None:
        arguments.append(("i1", mask))
    kind = "void" if not used else "i32" if count == 1 else emitter.struct("i32", count)
    made = emitter.asm(kind, text, ",".join([*constraints, "~{memory}"]), *arguments, effect=True)
    if not used:
        return [""] * len(bits)
    return unpack(emitter, emitter.parts(kind, made, count), scalar.bytes, 4)
