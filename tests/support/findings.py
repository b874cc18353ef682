"""The facts that attribution notes about the ops of a function, by their kind."""

from __future__ import annotations

from typing import Any

from ziggurat.codemodel.op import Op
from ziggurat.transforms.attribution import Attribution


def facts(attribution: Attribution, name: str) -> dict[Op, Any]:
    """The facts of a kind, by op, in the order in which they were noted."""
    kinds = ((op, getattr(finding, name)) for op, finding in attribution.scope.findings.items())
    return {op: fact for op, fact in kinds if fact is not None}


def callees(attribution: Attribution) -> list[Attribution]:
    """The functions that ops call."""
    return list(facts(attribution, "callee").values())
