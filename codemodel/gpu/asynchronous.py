"""Accesses to shared memory, and their ends: what an op declares so that analyses need not know its class.

    class Wgmma(MatrixProduct, Asynchronous, name="gpu.wgmma"):     it reads the buffers among `a` and `b`,
        WAIT, BY_PROXY, ACCUMULATOR = WgmmaWait, True, "c"          through the proxy, until a `gpu.wgmma_wait`

`barriers`, `hazards`, `channels` and `allocate` ask only for this.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import SharedType


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

    Each thread waits for its own groups. A first operand is the result of such an op, and the result is that value.
    """

    pending: int


class Asynchronous(BufferOp):
    """The op begins accesses, which are in flight until a wait of the class `WAIT`.

    Of a `GroupWait`, each op is a group, unless an op of the class `COMMIT` makes a group of those before it. Any other
    wait is for the mbarrier that is the operand `MBARRIER`. `BY_PROXY` says that matrix units or TMA access the memory:
    they do not see what threads have written before a `gpu.fence_async`.

    A result is in flight as well. Only an op with the same `WAIT` may use it before, as its operand `ACCUMULATOR`.
    """

    WAIT: ClassVar[type[Op]]
    COMMIT: ClassVar[type[Op] | None] = None
    MBARRIER: ClassVar[str] = ""
    BY_PROXY: ClassVar[bool] = False
    ACCUMULATOR: ClassVar[str] = ""

    @property
    def in_flight(self) -> list[Value]:
        """The buffers that are accessed until the wait. Threads access the others before the next op."""
        return [*self.reads, *self.writes]

    @property
    def mbarrier(self) -> Value | None:
        """The mbarrier that counts the op's bytes; before `lower_channels`, the channel that has it."""
        return getattr(self, self.MBARRIER) if self.MBARRIER else None

    @property
    def accumulator(self) -> Value | None:
        """The operand that may be in flight."""
        return getattr(self, self.ACCUMULATOR) if self.ACCUMULATOR else None
