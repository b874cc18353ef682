"""The rule of each call of the language: the type of its result and the ops that it becomes, by the call's name."""

from __future__ import annotations

from typing import Final

from ziggurat.transforms.calls import (
    arithmetic,
    block_pointers,
    conversion,
    descriptors,
    linear_algebra,
    memory,
    programs,
    reductions,
    shape,
)
from ziggurat.transforms.calls.rule import Rule, Typing

_FAMILIES = (
    arithmetic, block_pointers, conversion, descriptors, linear_algebra, memory, programs, reductions, shape
)  # fmt: skip

RULES: Final[dict[str, Rule]] = {name: rule for family in _FAMILIES for name, rule in family.RULES.items()}

__all__ = ["RULES", "Rule", "Typing"]
