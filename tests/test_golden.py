"""The golden files' own behaviour, seen in a test run within the test run."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

TEST = "def test_it(golden):\n    golden('greeting', {text!r})\n"


@pytest.fixture
def inner(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest(Path(__file__).with_name("conftest.py").read_text(encoding="utf-8"))
    return pytester


def test_bless_writes_and_a_difference_fails(inner: pytest.Pytester):
    file = inner.path / "golden" / "greeting.txt"

    inner.makepyfile(TEST.format(text="one\ntwo"))
    missing = inner.runpytest_inprocess("-p", "no:cacheprovider")
    missing.assert_outcomes(failed=1)
    missing.stdout.fnmatch_lines(["*--bless writes it*"])
    assert not file.exists()

    inner.runpytest_inprocess("--bless").assert_outcomes(passed=1)
    assert file.read_text() == "one\ntwo\n"
    inner.runpytest_inprocess().assert_outcomes(passed=1)

    inner.makepyfile(TEST.format(text="one\nthree"))
    different = inner.runpytest_inprocess()
    different.assert_outcomes(failed=1)
    different.stdout.fnmatch_lines(["-two", "+three"])
    assert file.read_text() == "one\ntwo\n"


def test_gpu_tests_say_why_they_are_skipped(inner: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    inner.makeini("[pytest]\nmarkers = gpu: needs one\n")
    inner.makepyfile("import pytest\n@pytest.mark.gpu\ndef test_it(): pass\n")
    monkeypatch.setattr("ctypes.CDLL", _no_such_library)
    skipped = inner.runpytest_inprocess("-rs")
    skipped.assert_outcomes(skipped=1)
    skipped.stdout.fnmatch_lines(["*no GPU: the NVIDIA driver*"])


def _no_such_library(name: str, *_: object, **__: object) -> None:
    raise OSError(name)
