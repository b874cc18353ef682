"""Accesses to shared memory, and their ends: what an op declares so that analyses need not know its class.

    class Wgmma(MatrixProduct, ResultInFlight, name="gpu.wgmma"):   it reads the buffers among `a` and `b`,
        WAIT, BY_PROXY, ACCUMULATOR = WgmmaWait, True, "c"          through the proxy, until a `gpu.wgmma_wait`

`barriers`, `hazards`, `channels`, `allocate` and the passes of `transforms/schedule` ask only for this (note 024).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from ziggurat.codemodel.fields import attribute, operand
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import SharedType, Type


class BufferOp(Op):
    """The op reads the buffers among its operands `READS`, and writes those among its operands `WRITES`."""

    READS: ClassVar[tuple[str, ...]] = ()
    WRITES: ClassVar[tuple[str, ...]] = ()

    @property
    def reads(self) -> list[Value]:
        """The buffers that are read."""
        return self._buffers(self.READS)

    @property
    def writes(self) -> list[Value]:
        """The buffers that are written."""
        return self._buffers(self.WRITES)

    def _buffers(self, names: Iterable[str]) -> list[Value]:
        values: Iterable[Value] = (getattr(self, name) for name in names)
        return [value for value in values if isinstance(value.type, SharedType)]


class GroupWait:
    """The op waits until at most `pending` groups of the asynchronous ops of which it is the `WAIT` are in flight.

    Each thread waits for its own groups.
    """

    pending: int

    def begun(self, ops: Iterable[Op]) -> int:
        """The number of groups that ops begin and that this wait counts."""
        return sum(isinstance(op, Asynchronous) and isinstance(self, op.WAIT) for op in ops)


class ResultWait(Op, GroupWait):
    """The op waits for the result of an op in flight, and gives it, complete; a `late` one in the next iteration."""

    value: Value = operand()
    pending: int = attribute(int, unnamed=True)
    late: bool = attribute(bool, default=False)

    def infer_type(self) -> Type:
        return self.value.type


class Asynchronous(BufferOp):
    """The op begins accesses, which are in flight until a wait of the class `WAIT`.

    Of a `GroupWait`, each op is a group, unless an op of the class `COMMIT` makes a group of those before it. Any other
    wait is for the mbarrier that is the operand `MBARRIER`. `BY_PROXY` says that matrix units or TMA access the memory:
    they do not see what threads have written before a `gpu.fence_async`.
    """

    WAIT: ClassVar[type[Op]]
    COMMIT: ClassVar[type[Op] | None] = None
    MBARRIER: ClassVar[str] = ""
    BY_PROXY: ClassVar[bool] = False

    @property
    def in_flight(self) -> list[Value]:
        """The buffers that are accessed until the wait. Threads access the others before the next op."""
        return [*self.reads, *self.writes]

    @property
    def mbarrier(self) -> Value | None:
        """The mbarrier that counts the op's bytes; before `lower_channels`, the channel that has it."""
        return getattr(self, self.MBARRIER) if self.MBARRIER else None

    @property
    def crosses_ctas(self) -> bool:
        """Whether the op writes to the shared memory of other CTAs, which must have started."""
        return False


class ResultInFlight(Asynchronous):
    """The result of the op is in flight as well: it is complete after a `WAIT` of it, which is a `ResultWait`.

    Only an op with the same `WAIT` may use it before, as its operand `ACCUMULATOR`.
    """

    WAIT: ClassVar[type[ResultWait]]  # pyright: ignore[reportIncompatibleVariableOverride]
    ACCUMULATOR: ClassVar[str]

    @property
    def accumulator(self) -> Value:
        """The operand that may be in flight."""
        return getattr(self, self.ACCUMULATOR)

    @property
    def adds(self) -> bool:
        """Whether the accumulator's value is part of the result; else the op only takes its registers."""
        return True

    @property
    def is_part(self) -> bool:
        """Whether the op multiplies only a part of its operands, and others the rest."""
        return False

    @property
    def chain(self) -> list[ResultInFlight]:
        """The op and those before it that add to its accumulator without a wait in between, the last one first."""
        ops: list[ResultInFlight] = [self]
        while isinstance(before := ops[-1].accumulator.op, ResultInFlight):
            ops.append(before)
        return ops
