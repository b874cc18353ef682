"""Liveness: the values that are still needed at the start of each block."""

from __future__ import annotations

from ziggurat.codemodel.op import Block, Body, Value


def liveness(body: Body) -> dict[Block, frozenset[Value]]:
    """The values that the ops from each block on may use, and that are declared before it or outside of the body.

    The parameters of a block are not among those live at its start: its predecessors hand them over. An op uses what
    the ops in its bodies do.
    """
    uses: dict[Block, set[Value]] = {}
    definitions: dict[Block, set[Value]] = {}
    for block in body.blocks:
        own = definitions[block] = set(block.parameters)
        block_uses = uses[block] = set()
        for op in block.ops:
            block_uses.update(value for value in op.used_values() if value not in own)
            own.add(op.result)
    live = {block: frozenset(values) for block, values in uses.items()}
    changed = True
    while changed:
        changed = False
        for block in reversed(body.blocks):
            values = set(live[block])
            for following in block.successors:
                values |= live[following] - definitions[block]
            changed |= len(values) != len(live[block])
            live[block] = frozenset(values)
    return live
