"""The quick quotients of AVX-512 replace routines of f64 only."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ziggurat.backend.cpu.table_functions import use_quick_quotients
from ziggurat.backend.llvm.routines import Routine


@pytest.mark.parametrize(("kind", "quick"), [("double", True), ("float", False)])
def test_quotients_of_other_types_keep_their_routine(kind: str, quick: bool):
    r = Routine("divide", kind, [kind, kind], 16)
    r.quotient(r.argument(), r.argument(1))
    (symbol,) = r.definitions
    emitter = SimpleNamespace(definitions=dict(r.definitions), module=SimpleNamespace(vector=64), declarations={})
    use_quick_quotients(emitter)
    text = emitter.definitions[symbol]
    assert f"@{symbol}(" in text
    assert ("rcp14" in text) == quick
    assert f"define internal <16 x {kind}>" in text
