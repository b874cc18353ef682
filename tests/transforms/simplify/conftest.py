"""Golden before/after for passes."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest

from ziggurat.codemodel.op import Op
from ziggurat.codemodel.text.parser import parse

Pass = Callable[[Op], Op]
Check = Callable[[Pass, str, str], Op]


@pytest.fixture
def becomes() -> Check:
    """`becomes(step, before, after)`: the pass makes the second text of the first, both parsed, and nothing more of the result."""

    def check(step: Pass, before: str, after: str) -> Op:
        __tracebackhide__ = True
        model = parse(textwrap.dedent(before))
        text = str(model)
        made = step(model)
        assert str(made) == str(parse(textwrap.dedent(after)))
        assert str(parse(str(made))) == str(made)
        assert str(model) == text, "the pass changed its input"
        again = step(made)
        assert str(again) == str(made), "the pass is not idempotent"
        return made

    return check
