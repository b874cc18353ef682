"""Objects of aggregates while their `__init__` runs."""

from __future__ import annotations

from typing import Any


class PartialObject:
    """An object of an aggregate to which some fields have been assigned: `self` in an `__init__`."""

    def __init__(self, cls: type[Any], fields: tuple[str, ...]) -> None:
        self.cls, self.fields = cls, fields
