"""A run in a process of its own, as code that a faulty compiler has made may end its process, or never end itself."""

from __future__ import annotations

import os
import pickle
import select
import signal
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from ziggurat.codemodel.errors import KernelRuntimeError

T = TypeVar("T")


def apart(action: Callable[[], T], seconds: float) -> T:
    """The result of an action in a fork of this process, or its error. Where processes cannot be forked, it runs here.

    Raises `KernelRuntimeError` if the process ends before the action, and `TimeoutError` after so many seconds.
    """
    if not hasattr(os, "fork"):
        return action()
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Of threads: the locks that a child needs wait for a fork.
        child = os.fork()
    if not child:
        _answer(action, writer)
    os.close(writer)
    try:
        with os.fdopen(reader, "rb") as pipe:
            if not select.select([pipe], [], [], seconds)[0]:
                raise TimeoutError(f"the code has not come to its end in {seconds:.0f} s")
            answer = pipe.read()
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if not answer:
        ending = signal.Signals(-status).name if status < 0 else f"status {status}"
        raise KernelRuntimeError(f"the code has ended its process by {ending}")
    result: Any = pickle.loads(answer)
    if isinstance(result, Exception):
        raise result
    return result


def _answer(action: Callable[[], Any], writer: int) -> None:
    """Write the result of an action, or its error, and end the process without what Python does at an end."""
    try:
        try:
            answer = pickle.dumps(action())
        except Exception as error:
            answer = pickle.dumps(_plain(error))
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(answer)
    finally:
        os._exit(0)


def _plain(error: Exception) -> Exception:
    """An error that can be pickled, with the same message."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return KernelRuntimeError(f"{type(error).__name__}: {getattr(error, 'summary', error)}")
    return error
