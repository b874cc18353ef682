"""Outlines of models: what a proof reads of them.

Passes choose layouts, put barriers, and remove ops whose results nobody uses. The models before such a pass and after
it have the same outline: they do the same, and need not be run.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable

from ziggurat.backend.proof.machine import SAID
from ziggurat.backend.reference.run import kernel_of
from ziggurat.backend.reference.shared_memory import shared
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import Body, Op, Value
from ziggurat.codemodel.traits import MayTrap, Pure
from ziggurat.codemodel.types import TensorType, Type

# Ops without a meaning where one op runs after the other, and ops whose result is their operand.
_SILENT = (
    tt.Barrier, gpu.Barrier, gpu.FenceAsync, gpu.FenceGlobal, gpu.AsyncCommit, gpu.AsyncWait, gpu.TmaStoreWait,
)  # fmt: skip
_SAME = gpu.ConvertLayout, gpu.WgmmaWait
_MAY_FAIL = MayTrap, tt.Gather, gpu.LocalGather  # By a divisor of 0, or an index that no element has.


class Outlines:
    """The outlines of some models, of which equal parts have equal numbers."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def of(self, model: Op) -> Hashable:
        """Models with equal outlines do the same. A pure op counts by those that use it, others by their place."""
        functions, _ = kernel_of(model)
        return tuple(self._function(name, op, _has_places(model)) for name, op in functions.items())

    def _function(self, name: str, op: Op, has_places: bool) -> Hashable:
        numbers: dict[Value, int] = {}
        return name, _attributes(op, True), *(self._body(body, numbers, (), has_places) for body in op.bodies)

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _body(self, body: Body, numbers: dict[Value, int], path: tuple[int, ...], has_places: bool) -> Hashable:
        """The ops of a body that are not pure, in their order. `path` has the places of the ops around it."""
        lines: list[Hashable] = []
        count = itertools.count()
        for at, block in enumerate(body.blocks):
            for parameter in block.parameters:
                numbers[parameter] = self._number((*path, at, next(count), _type(parameter.type)))
        for block in body.blocks:
            for op in block.ops:
                operands = tuple(map(numbers.get, op.operands))
                if isinstance(op, _SAME):
                    numbers[op.result] = numbers[op.operands[0]]
                elif not isinstance(op, _SILENT):
                    key = op.NAME, _type(op.result.type), _attributes(op, has_places), operands
                    if op.bodies or not isinstance(op, Pure) or isinstance(op, _MAY_FAIL):
                        place = *path, next(count)
                        key = (
                            *key,
                            *(self._body(inner, numbers, (*place, n), has_places) for n, inner in enumerate(op.bodies)),
                        )
                        targets = (
                            (body.blocks.index(s.block), tuple(map(numbers.get, s.arguments))) for s in op.successors
                        )
                        lines.append((key, *targets))
                        key = place, key
                    numbers[op.result] = self._number(key)
        return tuple(lines)


def _has_places(model: Op) -> bool:
    """Whether two allocations have shared memory at one address: then the addresses matter."""
    places = [(op.offset, op.offset + shared(op.result).bytes) for op in model.walk() if isinstance(op, gpu.LocalAlloc)]
    return any(a < d and c < b and a >= 0 for (a, b), (c, d) in itertools.combinations(places, 2))


def _attributes(op: Op, has_places: bool) -> Hashable:
    left_out = SAID if has_places or not isinstance(op, gpu.LocalAlloc) else (*SAID, "offset")
    return tuple((name, str(value)) for name, value in op.attributes.items() if name not in left_out)


def _type(type_: Type) -> str:
    return str(type_.without_layout() if isinstance(type_, TensorType) else type_)
