"""Scopes: the warps that run the ops of a GPU model.

    gpu.module @num_warps=12 …                                                       12 warps from 0, barrier 0
        gpu.warp_specialize @warps=[8, 4] @registers=[240, 24] @barriers=[1, 0]
            ()void -> { … }                                                          8 warps from 0, barrier 1
            ()void -> { … };                                                         one warp from 8, no barrier

`scope_of` tells who runs an op. The layouts, thread numbers and barriers of the op are those of its scope.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import attrs

from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.gpu.options import MAX_WARPS
from ziggurat.codemodel.gpu.targets import REGISTERS_OF_SM
from ziggurat.codemodel.op import Op, Value, require
from ziggurat.codemodel.types import TensorType, TupleType, Type

WARP_GROUP = 4  # Warps that execute a wgmma together.
MAX_BARRIERS = 16  # Named barriers of a CTA.
ROLE_REGISTERS = range(24, 257, 8)  # The registers a thread that setmaxnreg takes.


@attrs.frozen
class WarpScope:
    """The warps that run some ops: `warps` of a CTA, from number `first` on.

    They meet at the named barrier of number `barrier`. Each thread has `registers`; None is what the launch gives.
    """

    first: int
    warps: int
    registers: int | None = None
    barrier: int = 0

    @property
    def threads(self) -> int:
        """The number of threads."""
        return 32 * self.warps

    @property
    def warp_groups(self) -> int:
        """The number of warp groups, of which the last may have fewer warps."""
        return -(-self.warps // WARP_GROUP)

    def misfit(self, type_: Type) -> str | None:
        """The reason why a value of a type cannot be in registers of these warps; None if it can."""
        if isinstance(type_, TupleType):
            return next(filter(None, map(self.misfit, type_.components)), None)
        if not isinstance(type_, TensorType) or type_.layout is None or type_.layout.num_warps == self.warps:
            return None
        return f"{type_} has a layout of {type_.layout.num_warps} warps, and {self.warps} run the op"


class Scoped(Op):
    """An op whose bodies run in scopes of their own."""

    @property
    def scopes(self) -> tuple[WarpScope, ...]:
        """The scope of each body."""
        raise NotImplementedError

    def check_bodies(self) -> None:
        for body, scope in zip(self.bodies, self.scopes, strict=True):
            for value in (value for block in body.blocks for op in block.ops for value in _inside(op)):
                wrong = scope.misfit(value.type)
                require(wrong is None, f"{value!r}: {wrong}")


def _inside(op: Op) -> Iterator[Value]:
    """The values that an op declares, in its bodies as well unless these run in other scopes."""
    yield op.result
    for block in (block for body in op.bodies if not isinstance(op, Scoped) for block in body.blocks):
        yield from block.parameters
        for inner in block.ops:
            yield from _inside(inner)


def scope_of(op: Op) -> WarpScope:
    """The scope in which an op of a GPU model runs."""
    for inner, owner in pairwise(op.path()):
        if isinstance(owner, Scoped):
            assert inner.parent is not None
            return owner.scopes[owner.bodies.index(inner.parent.parent)]
    raise InternalError(f"{op.NAME} stands in no scope", str(op.root()))


def scopes_of_roles(warps: Sequence[int], registers: Sequence[int], barriers: Sequence[int]) -> tuple[WarpScope, ...]:
    """The scopes of roles whose warps follow each other. A role without a barrier is run by its first warp alone."""
    firsts = accumulate(warps, initial=0)
    each = zip(firsts, warps, registers, barriers, strict=False)
    return tuple(WarpScope(first, count if barrier else 1, of, barrier) for first, count, of, barrier in each)


def check_roles(warps: Sequence[int], registers: Sequence[int], barriers: Sequence[int], roles: int) -> None:
    """Raise `BuildError` unless a CTA can have so many roles with these warps, registers a thread and barriers."""
    counts = {len(warps), len(registers), len(barriers), roles}
    require(len(counts) == 1 and roles > 1, f"{roles} roles need warps, registers and barriers, one number each")
    whole = all(count > 0 and count % WARP_GROUP == 0 for count in warps) and sum(warps) <= MAX_WARPS
    require(whole, f"roles have whole groups of {WARP_GROUP} warps, together up to {MAX_WARPS}; got {list(warps)}")
    least, most, step = ROLE_REGISTERS[0], ROLE_REGISTERS[-1], ROLE_REGISTERS.step
    good = all(count in ROLE_REGISTERS for count in registers)
    require(good, f"registers of roles are multiples of {step} from {least} to {most}; got {list(registers)}")
    total = 32 * sum(count * of for count, of in zip(warps, registers, strict=True))
    require(total <= REGISTERS_OF_SM, f"roles have {REGISTERS_OF_SM} registers together; these take {total}")
    own = [barrier for barrier in barriers if barrier]
    good = len({*own}) == len(own) and all(0 < barrier < MAX_BARRIERS for barrier in own)
    require(good, f"the barriers of roles differ, and are less than {MAX_BARRIERS}, or 0; got {list(barriers)}")
