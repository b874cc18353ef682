"""The results of sanitising, beside the model: its checks, and the places of arrays and reports in its memory.

The memory of a launch is one array of i64, the kernel's last parameter:

    0         the number of releases up to now
    1         the place of the times of programs: the last release of each, then what each has acquired
    2 …       for each array: its lowest byte and the one after its highest, from the address of the argument; the place
              of its first element in the tables; the words of a row of its tables
    …         for each check: the number of its reports, and the first `RECORDS` of them
    …         the times of programs, and the tables
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.gpu.options import SANITIZERS
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Op
from ziggurat.frontends.library.sanitizing import WORDS

CHECKS: Final = SANITIZERS
HEADER: Final = 2
FACTS: Final = 4  # The words of an array.
NO_ELEMENT: Final = -(1 << 62)  # In a report of no element.


@attrs.frozen
class Check:
    """A place in a kernel that reports, and what its reports say.

    `kind` is the check of `CHECKS`; of a use of a marked value it is empty, and the source of the marks has it. `verb`
    says what the program does there: "reads", "stores". The element of a report, if there is one, is in the array of
    `parameter`, the number of a parameter. `op` is the class of the op. A source of marks never reports: its `verb` is
    the reason, as a clause.
    """

    kind: str
    verb: str
    location: Location | None
    parameter: int | None = None
    op: type[Op] = Op


@attrs.frozen
class Array:
    """An array of a sanitized kernel: the number of its parameter, and its tables of accesses.

    Arrays of one `group` share their tables: they may share memory. A word of a row is for `unit` bytes. Tables are 0
    for arrays without any.
    """

    parameter: int
    group: int
    unit: int
    tables: int


@attrs.frozen
class Sanitized:
    """A sanitized kernel: its model, which takes the memory of a launch as a further last parameter; the checks, which
    it has for what `names` names; its arrays. `orders` says that programs wait for each other."""

    model: core.Module
    names: tuple[str, ...]
    checks: tuple[Check, ...]
    arrays: tuple[Array, ...]
    orders: bool

    @property
    def size(self) -> int:
        """The words of the memory before the times and the tables."""
        return place_of_check(len(self.arrays), len(self.checks))


def place_of_array(number: int) -> int:
    """The place of the facts of an array in the memory."""
    return HEADER + FACTS * number


def place_of_check(arrays: int, number: int) -> int:
    """The place of the reports of a check in the memory of a kernel with so many arrays."""
    return place_of_array(arrays) + WORDS * number


def units(size: int, arrays: Sequence[Array]) -> int:
    """The words of a row for arrays of one group that span so many bytes."""
    return -(-size // min(array.unit for array in arrays))
