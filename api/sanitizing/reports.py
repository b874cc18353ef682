"""Reports of sanitised launches, read from the memory of a launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ziggurat.backend.launch.grids import program_at
from ziggurat.backend.launch.races import HINT
from ziggurat.backend.reference.argument_memory import MASK_HINT
from ziggurat.backend.reference.marks import HINTS, WIDE_OFFSET
from ziggurat.codemodel.errors import SanitizerError, SanitizerReport
from ziggurat.codemodel.messages import Words
from ziggurat.frontends.library.sanitizing import RECORDS, TIME_BIT, WORDS
from ziggurat.sanitizing.memory import ArrayFacts
from ziggurat.transforms.sanitize import Check, Sanitized
from ziggurat.transforms.sanitize.records import NO_ELEMENT, place_of_check

_UNWRITTEN = "set the elements before the launch, or leave the array out of the option 'uninitialized'"
_DONE = {"reads": "read", "writes": "written", "updates": "updated"}


def reports_of(
    sanitized: Sanitized, memory: np.ndarray[Any, Any], grid: tuple[int, int, int], facts: Sequence[ArrayFacts]
) -> list[SanitizerReport]:
    """The reports in the memory of a launch that has ended, each fault once, by the order of the checks."""
    reading = _Reading(sanitized, grid, facts)
    reports: dict[Any, SanitizerReport] = {}
    for number, check in enumerate(sanitized.checks):
        place = place_of_check(len(sanitized.arrays), number)
        count, *words = map(int, memory[place : place + WORDS])
        records = sorted(tuple(words[3 * at : 3 * at + 3]) for at in range(min(count, RECORDS)))
        for program, element, detail in records[:1]:
            report = reading.report(check, program, element, detail)
            places = frozenset((report.location, *(location for _, location in report.related)))
            first = reports.setdefault((report.check, places, report.argument), report)
            first.count = max(first.count, count)
    return list(reports.values())


def raise_reports(
    reports: Sequence[SanitizerReport], kernel: str, words: Words | None = None, cause: Exception | None = None
) -> None:
    """Raise `SanitizerError` if there are reports. `cause` is the error by which the launch has ended."""
    if reports:
        error = SanitizerError(reports, kernel)
        if words is not None:
            error.say_in(words)
        raise error from cause


class _Reading:
    """The reading of the records of one launch."""

    def __init__(self, sanitized: Sanitized, grid: tuple[int, int, int], facts: Sequence[ArrayFacts]) -> None:
        self.checks, self.grid = sanitized.checks, grid
        self.facts = {array.parameter: fact for array, fact in zip(sanitized.arrays, facts, strict=True)}

    def report(self, check: Check, program: int, element: int, detail: int) -> SanitizerReport:
        """The report of a record."""
        who = program_at(program, self.grid)
        if check.kind == "bounds":
            return self._bounds(check, who, element)
        if check.kind == "undefined":
            argument, index, text = self.element(check, element)
            summary, hint = f"program {who} {check.verb} {text}, which nothing has written", _UNWRITTEN
            return SanitizerReport("undefined", summary, check.location, hint, argument, index, who)
        if check.kind == "races":
            return self._race(check, program, element, detail)
        return self._use(check, who, element, self.checks[detail - 1])

    def element(self, check: Check, distance: int) -> tuple[str | None, int | None, str]:
        """The argument and the element of a record, and both as text."""
        if check.parameter is None:
            return None, None, ""
        facts = self.facts[check.parameter]
        if distance == NO_ELEMENT:
            return facts.name, None, ""
        index = distance // facts.itemsize
        return facts.name, index, f"{facts.name}[{index}]"

    def _bounds(self, check: Check, who: tuple[int, int, int], distance: int) -> SanitizerReport:
        argument, index, text = self.element(check, distance)
        size = 0 if check.parameter is None else self.facts[check.parameter].size
        summary = f"program {who} {check.verb} {text}, but {argument} has {size} elements"
        return SanitizerReport("bounds", summary, check.location, MASK_HINT, argument, index, who)

    def _race(self, check: Check, program: int, distance: int, detail: int) -> SanitizerReport:
        argument, index, text = self.element(check, distance)
        number, access = detail >> TIME_BIT, self.checks[detail & ((1 << TIME_BIT) - 1)]
        who, whom = program_at(program, self.grid), program_at(number, self.grid)
        if number == program:
            summary = f"program {who} writes {text} by two elements of one store, with different values"
            hint = "give each element of the tensor an element of the array of its own"
            return SanitizerReport("races", summary, check.location, hint, argument, index, who, who)
        done = _DONE[access.verb]
        summary = f"program {who} {check.verb} {text}, which program {whom} has {done}"
        report = SanitizerReport("races", summary, check.location, HINT, argument, index, who, whom)
        report.add(f"it is {done} here", access.location)
        return report

    def _use(self, check: Check, who: tuple[int, int, int], distance: int, source: Check) -> SanitizerReport:
        argument, index, text = self.element(check, distance)
        at = f" to {text}" if check.verb == "stores" else f" for {text}" if text else ""
        if source.kind == "nan":
            summary = f"program {who} {check.verb} NaN or an infinity{at}, which this operation makes of finite numbers"
            hint = "keep the operands where the result is finite, or choose with where what is stored"
        elif source.kind == "overflow":
            summary = f"program {who} {check.verb} a number that has overflowed{at}: {source.verb}"
            hint = "compute it in a wider type" if check.verb == "stores" else WIDE_OFFSET()
        else:
            of = "" if source.parameter is None else f" of {self.facts[source.parameter].name}"
            summary = f"program {who} {check.verb} an undefined element{at}: {source.verb.format(of)}"
            hint = HINTS[source.op]
        if source.parameter is not None and argument is None:
            argument = self.facts[source.parameter].name
        report = SanitizerReport(source.kind, summary, source.location, hint, argument, index, who)
        report.add("it is used here", check.location)
        return report
