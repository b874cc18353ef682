"""The ops of the GPU dialect for the matrix units.

Programs take them from the module of the dialect, `gpu.Wgmma`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ziggurat.codemodel.fields import attribute, operand
from ziggurat.codemodel.gpu.asynchronous import BufferOp, ResultInFlight, ResultWait
from ziggurat.codemodel.gpu.dialect_shared import buffer_of, laid_out
from ziggurat.codemodel.gpu.fragments import panels_of
from ziggurat.codemodel.op import Op, Value, require
from ziggurat.codemodel.traits import Pure
from ziggurat.codemodel.types import SharedType, Type, f32

__all__ = [
    "DotFma", "Keep", "MatrixProduct", "Mma", "Rescale", "RoundTf32", "Wgmma", "WgmmaWait"
]  # fmt: skip


class MatrixProduct(BufferOp):
    """a · b + c, in the layout of c."""

    READS = ("a", "b")

    a: Value = operand()
    b: Value = operand()
    c: Value = operand()

    def infer_type(self) -> Type:
        return laid_out(self, self.c.type)

    def check(self) -> None:
        buffer_of(self, self.b)


class WgmmaWait(ResultWait, name="gpu.wgmma_wait"):
    """wgmma.wait_group: the value, after at most `pending` groups are in flight.

    A `late` one takes place in the next iteration of its loop (`latency`).
    """


class Wgmma(MatrixProduct, ResultInFlight, name="gpu.wgmma"):
    """wgmma.mma_async: begin a · b + c. `a` is a buffer or a tensor in the layout of an operand; `b` is a buffer.

    The layout of c may say that the transposed product is computed, and that threads read its first operand from the
    buffer, whose neighbours are not along k (`Warps`). Before that, they wait for all groups but the last one.

    The result is complete after a `gpu.wgmma_wait` of it; until then only another wgmma may use it, as its c.
    `within` is the part along k that is multiplied, its start and end; all of it where there is none.
    """

    WAIT, BY_PROXY, ACCUMULATOR = WgmmaWait, True, "c"

    accumulate: bool = attribute(bool, default=True)
    within: Sequence[int] = attribute([int], default=())

    @property
    def in_flight(self) -> list[Value]:
        """The buffers without those that threads read: of operands of 8 or 32 bits whose neighbours are not along k."""
        pairs = ((self.a, 1), (self.b, 0))
        return [
            value
            for value, k_axis in pairs
            if isinstance(type_ := value.type, SharedType) and _is_read_by_units(type_, k_axis)
        ]

    @property
    def adds(self) -> bool:
        return self.accumulate

    @property
    def is_part(self) -> bool:
        return bool(self.within)


def _is_read_by_units(shared: SharedType, k_axis: int) -> bool:
    panels = panels_of(shared, k_axis)
    return panels is None or panels.k_major or shared.element.bytes == 2


class Rescale(Op, Pure, name="gpu.rescale"):
    """The product of a tensor of f32 and factors that are often 1: a thread skips multiplications by 1."""

    value: Value = operand()
    factor: Value = operand()

    def infer_type(self) -> Type:
        return self.value.type

    def check(self) -> None:
        require(
            laid_out(self, self.value.type).element == f32 and self.factor.type == self.value.type,
            f"gpu.rescale: both must be f32, of one type; got {self.value.type} and {self.factor.type}",
        )


class Keep(Op, name="gpu.keep"):
    """Nothing, but the registers of a tensor are read here: no assembler gives them to other values before."""

    value: Value = operand()


class RoundTf32(Op, Pure, name="gpu.round_tf32"):
    """cvt.tf32: f32 rounded to the 10 mantissa bits that the matrix units read.

    Ties go to even; on targets before sm_90, away from zero."""

    value: Value = operand()

    def infer_type(self) -> Type:
        return self.value.type

    def check(self) -> None:
        require(
            laid_out(self, self.value.type).element == f32,
            f"gpu.round_tf32: the operand must be f32; got {self.value.type}",
        )


class Mma(MatrixProduct, name="gpu.mma"):
    """mma.sync: a · b + c, also of batches. `a` is a buffer, or a tensor laid out as an operand; `b` is a buffer."""


class DotFma(MatrixProduct, name="gpu.dot_fma"):
    """a · b + c without matrix units, for matrices or batches: `a` and `b` are buffers of elements of the type of c."""

    def check(self) -> None:
        a, b, c = buffer_of(self, self.a), buffer_of(self, self.b), laid_out(self, self.c.type)
        good = (
            a.element == b.element == c.element
            and len(a.shape) == len(b.shape) == c.rank >= 2
            and a.shape[:-2] == b.shape[:-2] == c.shape[:-2]
            and a.shape[-1] == b.shape[-2]
            and c.shape[-2:] == (a.shape[-2], b.shape[-1])
        )
        require(good, f"gpu.dot_fma of {a} and {b} to {c}")
