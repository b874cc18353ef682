"""Which values are still needed where: live-in and live-out of blocks, and last uses.

A value is live at a point when some path from there leads to a use of it. The arguments of a successor are used by the
terminator; what an op's bodies capture is used by the op.
"""

from __future__ import annotations

from ziggurat.codemodel.op import Block, Body, Op, Value


def used_by(op: Op) -> dict[Value, None]:
    """The values that an op needs: operands, arguments of successors, and what its bodies capture; in this order."""
    found: dict[Value, None] = dict.fromkeys(op.all_operands())
    if op.bodies:
        found.update(dict.fromkeys(op.captured_values()))
    return found


class Liveness:
    """The liveness of the values used in one body; bodies inside count as parts of their ops.

    What becomes of a value from outside after the body is left, or when the body is run again, is not looked at: such a
    value is live as long as this run of the body needs it.
    """

    def __init__(self, body: Body) -> None:
        self.body = body
        self._last: dict[Block, dict[Value, Op]] = {}
        exposed: dict[Block, set[Value]] = {}
        defined: dict[Block, set[Value]] = {}
        for block in body.blocks:
            own: set[Value] = set(block.parameters)
            needed: set[Value] = set()
            last: dict[Value, Op] = {}
            for op in block.ops:
                for value in used_by(op):
                    last[value] = op
                    if value not in own:
                        needed.add(value)
                own.add(op.result)
            exposed[block], defined[block], self._last[block] = needed, own, last
        self._live_in: dict[Block, frozenset[Value]] = dict.fromkeys(body.blocks, frozenset())
        self._live_out: dict[Block, frozenset[Value]] = dict.fromkeys(body.blocks, frozenset())
        changed = True
        while changed:
            changed = False
            for block in reversed(body.blocks):
                out = frozenset[Value]().union(*(self._live_in[following] for following in block.successors))
                into = frozenset(exposed[block] | (out - defined[block]))
                changed = changed or into != self._live_in[block]
                self._live_in[block], self._live_out[block] = into, out

    def live_in(self, block: Block) -> frozenset[Value]:
        """The values live at the start of a block. Its own parameters are not among them: they come to be there."""
        return self._live_in[block]

    def live_out(self, block: Block) -> frozenset[Value]:
        """The values live at the end of a block, behind its terminator."""
        return self._live_out[block]

    def is_last_use(self, value: Value, op: Op) -> bool:
        """True when `op`, which stands directly in this body, uses `value` and nothing that may run after it here does.

        Raises `ValueError` for an op of another body.
        """
        block = op.parent
        if block is None or block.parent is not self.body:
            raise ValueError(f"{op.NAME} does not stand directly in the body whose liveness this is")
        return self._last[block].get(value) is op and value not in self._live_out[block]

    def live_after(self, op: Op) -> frozenset[Value]:
        """The values live right after an op that stands directly in this body.

        Raises `ValueError` for an op of another body.
        """
        block = op.parent
        if block is None or block.parent is not self.body:
            raise ValueError(f"{op.NAME} does not stand directly in the body whose liveness this is")
        live = set(self._live_out[block])
        for other in reversed(block.ops):
            if other is op:
                break
            live.discard(other.result)
            live.update(used_by(other))
        return frozenset(live)
