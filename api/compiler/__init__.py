"""The compiler: the stages of a kernel, and its parts that kernels and their arguments use.

These parts are imported at their first use, so that `import ziggurat` stays quick.
"""

from __future__ import annotations

import gc
import os
import threading
from typing import TYPE_CHECKING, Any

from ziggurat.lazy import lazily

if TYPE_CHECKING:
    from ziggurat.compiler.pipeline import compile_for_cpu as compile_for_cpu
    from ziggurat.compiler.pipeline import compile_model as compile_model
    from ziggurat.compiler.pipeline import triton_model as triton_model
    from ziggurat.transforms.attribution import attribute as attribute
    from ziggurat.transforms.attribution import link as link
    from ziggurat.transforms.attribution import outer_constant as outer_constant
    from ziggurat.transforms.attribution import type_of_tuple as type_of_tuple


_MAX_AGED = 1 << 18  # Objects.


class _Compiling:
    """`with compiling:` is held by one thread while it compiles; it may be nested.

    A fork waits for it: a child that is forked while another thread compiles would find LLVM's lock, or that of a
    module that is being imported, held forever. Python's cyclic garbage collector pauses: ops and their results are
    cycles, so that it would look through all objects of the process several times a kernel, and free little.

    Most programs compile a few kernels. So the first objects, some 20 kernels' worth, count as old at once, with the
    other young objects of the process: only a full collection looks at them, and most programs end before one.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self._collects = False
        self._aged = 0  # The number of objects moved to the collector's old generation.

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._depth == 0:
            self._collects = gc.isenabled()
            gc.disable()
        self._depth += 1

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        if self._depth == 0 and self._collects:
            if self._aged < _MAX_AGED and gc.get_freeze_count():
                self._aged = _MAX_AGED  # The program freezes objects itself; to count them again would take as long.
            if self._aged < _MAX_AGED:
                self._aged += gc.get_count()[0]
                gc.freeze()
                gc.unfreeze()
            gc.enable()
        self._lock.release()


compiling = _Compiling()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=compiling.__enter__, after_in_parent=compiling.__exit__, after_in_child=compiling.__exit__
    )


_lazy, __dir__ = lazily(
    __name__,
    (),
    {
        "pipeline": ("compile_for_cpu", "compile_model", "triton_model"),
        ".transforms.attribution": ("attribute", "type_of_tuple", "link", "outer_constant"),
    },
)


def __getattr__(name: str) -> Any:
    with compiling:
        return _lazy(name)
