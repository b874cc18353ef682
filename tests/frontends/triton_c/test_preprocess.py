"""The preprocessor's use of pcpp."""

import pytest

from ziggurat.frontends.triton_c import preprocess


def test_nothing_is_written_into_the_folder_of_pcpp(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(preprocess.pcpp_rules.lex.Lexer, "writetab", None)
    preprocess._lexer.cache_clear()
    assert preprocess._lexer() is not None
