"""A plugin of pytest that lists the rules of emission that proofs go through.

    python -m pytest -p walked_rules --walked-rules rules.json tests/proofs/test_emitted_floats.py

A rule counts if a test makes a claim after the rule has written the text of an op. No claim is decided: z3 does that in
runs without this plugin.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import proving
import pytest

from ziggurat.backend.cpu.emitter import EMITTERS as CPU
from ziggurat.backend.cpu.emitter import INDEXED
from ziggurat.backend.llvm.elementwise import RULES
from ziggurat.backend.ptx.emitter import EMITTERS as PTX
from ziggurat.codemodel.dispatch import OpTable

TABLES: dict[str, OpTable[Any]] = {"LLVM text": RULES, "PTX": PTX, "CPU": CPU, "CPU, at an index": INDEXED}
Rules = set[tuple[str, str]]  # By the name of the table, and by that of the class for which the rule is registered.


def name_of(cls: type) -> str:
    return f"{cls.__module__}.{cls.__name__}"


class WalkedRules:
    """The rules that the current test has `walked`, and those before claims, in all tests."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.walked, self.claimed = Rules(), Rules()
        proving.prove = self.claim  # Before the tests import it.

    def claim(self, *_: Any, **__: Any) -> None:
        self.claimed |= self.walked

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, Any, Any]:
        self.walked.clear()
        get, names = OpTable[Any].get, {id(table): name for name, table in TABLES.items()}

        def recorded(table: OpTable[Any], cls: type) -> Any:
            if id(table) in names:
                bases = (base for base in cls.__mro__ if base in table._registered)
                self.walked |= {(names[id(table)], name_of(base)) for base in [*bases][:1]}
            return get(table, cls)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(OpTable, "get", recorded)
            return (yield)

    def pytest_sessionfinish(self) -> None:
        self.file.write_text(json.dumps(sorted(self.claimed)))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--walked-rules", type=Path)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(WalkedRules(config.getoption("--walked-rules")))
