"""Releases of blocks that no dot after a loop reads, before the dots that the loop has left to be done.

    scf.if %runs {                                    scf.if %runs {
        … scf.for … { … gpu.wgmma %q %k … }               … scf.for … { … gpu.wgmma %q %k … }
        gpu.wgmma %p %v …; gpu.wgmma_wait … }             gpu.channel_release %queries;
    gpu.channel_release %queries;           becomes       gpu.wgmma %p %v …; gpu.wgmma_wait … }
                                                      else { gpu.channel_release %queries; … }

The queries of attention are read by the dots of all iterations, and the last dot with the values comes after the loop
(note 009). So the producer loads the next tile's queries while that dot is computed.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ziggurat.codemodel.dialects import core, scf
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import Op, OpResult, Value
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.transforms.analysis.memory_flow import allocation, users_of


@attrs.frozen(eq=False)
class _Place:
    """The loop that a release may follow directly, and the end of the other branch."""

    loop: scf.For
    otherwise: Op


def release_early(module: Op) -> Op:
    """The GPU model whose consumers release blocks before the dots that follow the loops which read them."""
    places = {
        op: place
        for op in module.walk()
        if isinstance(op, gpu.ChannelRelease) and not op.held and (place := _earlier(op)) is not None
    }
    if not places:
        return module
    at: dict[Op, list[gpu.ChannelRelease]] = {}
    for release, place in places.items():
        for op in (place.loop, place.otherwise):
            at.setdefault(op, []).append(release)
    removed = set(places)

    def released(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if op in removed:
            return DROP
        if op not in at:
            return None
        copy = builder.copy(op, operands) if isinstance(op, scf.For) else None
        for release in at[op]:
            builder.add(gpu.ChannelRelease(builder[release.channel]), release.location)
        return copy

    return transform(module, released, pass_name="release_early")


def _earlier(release: gpu.ChannelRelease) -> _Place | None:
    """The earlier place of a release, if a branch before it ends with dots that do not read the channel's slots."""
    assert release.parent is not None
    ops = release.parent.ops
    before = [op for op in ops[: ops.index(release)] if not isinstance(op, gpu.ChannelRelease | core.TupleLoad)]
    branch = before[-1] if before else None
    if not isinstance(branch, scf.If) or not isinstance(release.channel, OpResult):
        return None
    inside: Sequence[Op] = branch.then.entry.ops
    at, loop = next(((at, op) for at, op in enumerate(inside) if isinstance(op, scf.For)), (0, None))
    channel = release.channel.op
    if loop is None or not isinstance(channel, gpu.Channel):
        return None
    after = [op for last in inside[at + 1 :] for op in last.walk()]
    readers = [user for ring in channel.rings for user in users_of(ring) if isinstance(user, gpu.Wgmma)]
    reads = any(allocation(value) in channel.rings for op in after for value in op.operands)
    has_wgmma = any(isinstance(op, gpu.Wgmma) for op in after)
    if reads or not has_wgmma or not all(_is_complete(op) for op in readers):
        return None
    return _Place(loop, branch.otherwise.entry.terminator)


def _is_complete(op: gpu.Wgmma) -> bool:
    """Whether the block of a wgmma waits for it."""
    return any(isinstance(user, gpu.WgmmaWait) and user.parent is op.parent for user in op.result.uses)
