"""Keeps ops that a test module declares out of the table of ops while other modules' tests run.

Collection imports all test modules before the first test runs, and each worker of a run collects all of them. So a
test of the whole table would see the ops of the modules that happen to be collected with it.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ziggurat.codemodel.op import Op

_DECLARED: pytest.StashKey[dict[str, type[Op]]] = pytest.StashKey()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Remove the ops of a test module from the table after its import."""
    report = yield
    if isinstance(collector, pytest.Module):
        ops = _table()
        names = [name for name, cls in ops.items() if not cls.__module__.startswith("ziggurat.")]
        collector.stash[_DECLARED] = {name: ops.pop(name) for name in names}
    return report


@pytest.fixture(scope="module", autouse=True)
def ops_of_the_module(request: pytest.FixtureRequest) -> Generator[None]:
    """The ops of a test module are in the table while its tests run."""
    ops = request.node.stash.get(_DECLARED, {})
    _table().update(ops)
    yield
    for name in ops:
        del _table()[name]


def _table() -> dict[str, type[Op]]:
    """The table of ops; empty before the package is imported."""
    declarations = sys.modules.get("ziggurat.codemodel.declare")
    return declarations.OPS if declarations is not None else {}
