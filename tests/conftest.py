"""Fixtures and options for all tests: golden files (`golden`, `--bless`), repeated launches, and the `gpu` marker."""

import ctypes
import difflib
import functools
import gc
import os
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

pytest_plugins = ["libraries", "own_ops", "quick"]

hypothesis.settings.register_profile("ziggurat", deadline=None)  # two shared cores: a deadline would be noise
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "ziggurat")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="rewrite the golden files to hold what the tests now print")
    repeats = "tests of the language repeat each launch "
    for option, name, how in (
        ("--on-gpu", "gpu", "on the GPU"),
        ("--simulated", "simulated", "on a simulated GPU (slow)"),
        ("--assembled", "assembled", "as far as NVIDIA's assembler"),
    ):
        parser.addoption(option, action="store_true", dest=f"launches_{name}", help=repeats + how)
    natively = "in native code, with the interpreter's bits; not only those of the first case of each test"
    parser.addoption("--natively", action="store_true", help=repeats + natively)
    drawn = "and these go through random layouts, drawn by a seed (tests/support/random_layouts.py)"
    parser.addoption("--random-layouts", type=int, metavar="SEED", help=drawn)
    parser.addoption(
        "--every-warps", action="store_true", help="and each with 1, 4 and 8 warps, instead of one of these"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Keep compiled kernels of the tests out of the user's cache: in a folder that the processes of a run share."""
    # JAX takes three quarters of a GPU's memory when it starts, and each process of a run starts it: the tests in the
    # other processes would find none.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if "ZIGGURAT_CACHE_DIR" not in os.environ:
        folder = tempfile.TemporaryDirectory(prefix="ziggurat-tests-", ignore_cleanup_errors=True)
        os.environ["ZIGGURAT_CACHE_DIR"] = folder.name
        config.add_cleanup(lambda: (os.environ.pop("ZIGGURAT_CACHE_DIR"), folder.cleanup()))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Collect without the garbage collector, and leave the tests to it never again: they live to the end of the run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        # Full collections are rare: they took 6 % of the time of the tests, most of which leave little behind.
        gc.set_threshold(700, 10, 100)
        gc.enable()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, object], None]:
    """Compares a text, or an op, with the file `golden/NAME` beside the test.

    `golden("vector_add.triton", op)` reads `golden/vector_add.triton.txt`. An op is compared after the file
    has been parsed and printed again, so that the golden files of models are parser tests as well. `--bless`
    writes the file instead of failing; look at the difference before committing it.
    """
    folder = request.path.parent / "golden"
    bless = bool(request.config.getoption("--bless"))

    def compare(name: str, actual: object) -> None:
        __tracebackhide__ = True
        file = folder / f"{name}.txt"
        text = str(actual).rstrip("\n") + "\n"
        written = file.read_text(encoding="utf-8") if file.exists() else None
        if bless:
            if text != written:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            return
        if written is None:
            pytest.fail(f"there is no {_shown(file)} yet; --bless writes it:\n{text}", pytrace=False)
        expected = written if isinstance(actual, str) else _reprinted(written)
        if text != expected:
            difference = difflib.unified_diff(
                expected.splitlines(), text.splitlines(), _shown(file), "printed now", lineterm=""
            )
            pytest.fail("\n".join(["not the golden text (--bless renews it):", *difference]), pytrace=False)

    return compare


def _reprinted(text: str) -> str:
    import ziggurat as zg

    return str(zg.parse(text)).rstrip("\n") + "\n"


def _shown(file: Path) -> str:
    return os.path.relpath(file)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is not None and (reason := _no_gpu()):
        pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Run a test that keeps or loses the GPU, `gpu(alone=True)`, while no other process runs tests there."""
    mark = item.get_closest_marker("gpu")
    if (mark is None and not item.config.getoption("launches_gpu")) or _no_gpu() is not None:
        return (yield)
    import fcntl  # Not on Windows, where the other tests run.

    with open(os.path.join(tempfile.gettempdir(), f"ziggurat-gpu-tests-{os.getuid()}"), "w") as file:
        alone = mark is not None and mark.kwargs.get("alone", False)
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        return (yield)


@functools.cache
def _no_gpu() -> str | None:
    """The reason why GPU tests cannot run here, or None. Looked up when a test first needs it."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no GPU: the NVIDIA driver (libcuda.so.1) is not installed"
    if status := driver.cuInit(0):
        return f"no GPU: the NVIDIA driver does not start (cuInit returned {status})"
    count = ctypes.c_int(0)
    if status := driver.cuDeviceGetCount(ctypes.byref(count)):
        return f"no GPU: the NVIDIA driver lists no devices (cuDeviceGetCount returned {status})"
    if count.value == 0:
        return "no GPU: the NVIDIA driver knows of none"
    try:
        import cuda.bindings.driver  # noqa: F401
    except ImportError:
        return "a GPU is here, but cuda-bindings is not: pip install '.[gpu]'"
    return None
