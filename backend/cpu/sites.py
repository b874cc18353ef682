"""Places of checks in a compiled kernel, by which an error names the op and its source."""

from __future__ import annotations

from typing import Any

import attrs

from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Op

STRAY, READ_ONLY = 1, 2  # Kinds of errors: of a check of an access.


@attrs.frozen
class Site:
    """The place of a check. `verb` is "reads", "writes", "updates", "divides", "asserts", "gathers", "loops", "waits",
    "reaches" or "prints"; `dtype` the name of the elements' type; `message` that of an assertion, or the prefix of a
    print."""

    verb: str
    location: Location | None
    dtype: str = ""
    message: str = ""
    types: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()
    hex: bool = False
    c_form: bool = False
    whole: bool = False

    @staticmethod
    def of(op: Op, verb: str, **more: Any) -> Site:
        """The site of an op."""
        return Site(verb, op.location, **more)
