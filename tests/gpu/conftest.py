"""Fixtures of the tests on a GPU."""

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def a_cache_of_its_own(tmp_path, monkeypatch):
    """An empty cache, so that no binary of an earlier version is tested."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ZIGGURAT_CACHE_DIR", raising=False)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
