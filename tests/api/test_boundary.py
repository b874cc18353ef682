"""The boundary: errors of users show users' code; anything else that is raised inside is a fault with its model."""

from __future__ import annotations

import signal
import sys
import threading
import traceback

import pytest

import ziggurat as zg
from ziggurat.backend.cache.folder import Folder
from ziggurat.boundary import no_faults, public
from ziggurat.codemodel.errors import BuildError, InternalError, KernelTypeError, ResourceError


def deep(error):
    raise error


@public
def called(error=None, *, value=1):
    """A docstring that the wrapper keeps."""
    if error is not None:
        deep(error)
    return value


def test_it_is_the_function_otherwise():
    assert (
        called(value=5) == 5 and called.__name__ == "called" and called.__doc__ == "A docstring that the wrapper keeps."
    )


def functions_of(error):
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def test_an_error_of_the_user_does_not_show_the_way_through_the_compiler():
    with pytest.raises(KernelTypeError) as error:
        called(KernelTypeError("wrong"))
    assert "deep" not in functions_of(error.value)


def test_a_cause_is_kept_and_a_fault_shows_its_way():
    cause = ValueError("why")
    error = KernelTypeError("wrong")
    error.__cause__ = cause
    with pytest.raises(KernelTypeError) as excinfo:
        called(error)
    assert excinfo.value.__cause__ is cause
    with pytest.raises(InternalError) as fault:
        called(InternalError("ours", "model"))
    assert "deep" in functions_of(fault.value)
    with pytest.raises(ZeroDivisionError) as other:
        called(ZeroDivisionError())
    assert "deep" in functions_of(other.value)


def test_what_is_not_of_the_family_is_a_fault():
    with pytest.raises(InternalError) as error, no_faults("compiling", lambda: "the text", "k"):
        raise KeyError("missing\nand more")
    assert error.value.summary.startswith("internal error: compiling 'k' failed with KeyError: ")
    assert "the text" in str(error.value) and isinstance(error.value.__cause__, KeyError)


def test_a_build_error_inside_is_a_fault_too():
    with pytest.raises(InternalError, match="running 'k' failed with BuildError: bad op"), \
            no_faults("running", lambda: "text", "k"):  # fmt: skip
        raise BuildError("bad op")


@pytest.mark.parametrize("error", [KernelTypeError("wrong"), InternalError("ours", "m")])
def test_what_goes_through(error):
    with pytest.raises(type(error)) as excinfo, no_faults("compiling", lambda: "text", "k"):
        raise error
    assert excinfo.value is error


@pytest.mark.parametrize(
    ("error", "words"),
    [(MemoryError(), "needs more memory"), (RecursionError(), "is nested too deeply for compiling it")],
)
def test_what_is_too_large_is_a_resource_error(error, words):
    with pytest.raises(ResourceError, match=words), no_faults("compiling", lambda: "text", "k"):
        raise error


def test_nothing_is_asked_of_the_model_while_all_is_well():
    with no_faults("compiling", lambda: 1 / 0, "k"):
        pass


def test_a_model_without_a_text_is_said_to_have_none():
    with pytest.raises(InternalError) as error, no_faults("compiling", lambda: 1 / 0, "k"):
        raise RuntimeError
    assert "(the model has no text: ZeroDivisionError: division by zero)" in str(error.value)
    assert "compiling 'k' failed with RuntimeError\n" in error.value.summary
    assert isinstance(error.value, zg.ZigguratError)


def test_a_warning_that_is_an_error_goes_through():
    with pytest.raises(zg.ZigguratWarning), no_faults("compiling", lambda: None, "k"):
        raise zg.ZigguratWarning("the loop is not pipelined")


class Expired(Exception):
    """The error of a time limit."""


class Limit:
    """A handler of signals."""

    def __init__(self, error):
        self.error = error

    def __call__(self, number, frame):
        raise self.error

    def several(self, *arguments):
        deep(self.error)


def interrupt():
    signal.raise_signal(signal.SIGALRM)
    sum(range(10))  # Python runs handlers between the instructions of its own code.


ERRORS: list[BaseException] = [
    Expired("late"),
    TimeoutError("late"),
    OSError("late"),
    ValueError("late"),
    KeyboardInterrupt(),
]


@pytest.fixture(params=ERRORS, ids=lambda error: type(error).__name__)
def limit(request):
    """A handler of SIGALRM that raises."""
    if threading.current_thread() is not threading.main_thread() or sys.platform == "win32":
        pytest.skip("handlers of signals run in the main thread")
    limit = Limit(request.param.with_traceback(None))
    before = signal.signal(signal.SIGALRM, limit)
    yield limit
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", ["object", "method", "function"])
def test_an_error_of_a_handler_of_a_signal_is_none_of_the_compiler(limit, kind):
    handlers = {"object": limit, "method": limit.several, "function": lambda number, frame: deep(limit.error)}
    signal.signal(signal.SIGALRM, handlers[kind])
    with pytest.raises(type(limit.error)) as excinfo, no_faults("compiling", lambda: "text", "k"):
        interrupt()
    assert excinfo.value is limit.error
    limit.error.__traceback__ = None


def test_a_frame_among_other_arguments_makes_no_handler():
    def walk(frame, depth=0):
        raise ValueError(f"{frame} {depth}")

    with pytest.raises(InternalError, match="ValueError"), no_faults("compiling", lambda: "text", "k"):
        walk(sys._getframe())


def test_a_cache_does_not_take_a_time_limit_for_a_fault_of_the_disk(tmp_path, limit):
    class Entries(Folder):
        SUFFIX = ".entry"

    entries = Entries(tmp_path)
    assert entries.write("key", b"data")
    with pytest.raises(type(limit.error)):
        entries.load("key", lambda key, data: interrupt())
    assert entries.load("key", lambda key, data: data) == b"data"
    limit.error.__traceback__ = None


def test_an_interrupted_kernel_is_compiled_at_the_next_launch(limit, monkeypatch):
    """In each part of the compiler: the models, the passes for GPUs and for CPUs, and the code."""
    from ziggurat.backend.cpu import compile as cpu_compile
    from ziggurat.backend.ptx import assemble
    from ziggurat.compiler import pipeline
    from ziggurat.transforms.gpu import gpu_passes

    for module, name in (
        (pipeline, "mirror"), (gpu_passes, "place"), (assemble, "assemble"), (cpu_compile, "lower"),
        (cpu_compile, "to_object"),
    ):  # fmt: skip
        is_gpu = module in (gpu_passes, assemble)

        @zg.kernel
        def doubled(x_ptr):
            zg.store(x_ptr, zg.add(zg.load(x_ptr), 1))

        def compile(doubled=doubled, is_gpu=is_gpu):
            return doubled.compile(zg.ptr(zg.f32), **({} if is_gpu else {"target": "cpu"}))

        plain = getattr(module, name)

        def late(*arguments, plain=plain, **keywords):
            interrupt()
            return plain(*arguments, **keywords)

        monkeypatch.setattr(module, name, late)
        with pytest.raises(type(limit.error)):
            compile()
        monkeypatch.setattr(module, name, plain)
        assert compile().symbol
        limit.error.__traceback__ = None
