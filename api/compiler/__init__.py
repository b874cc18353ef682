"""The compiler: the stages of a kernel, and its parts that kernels and their arguments use.

These parts are imported at their first use, so that `import ziggurat` stays quick.
"""

from __future__ import annotations

import os
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ziggurat.compiler.pipeline import compile_model as compile_model
    from ziggurat.compiler.pipeline import triton_model as triton_model
    from ziggurat.transforms.attribution import attribute as attribute
    from ziggurat.transforms.attribution import given_tuple as given_tuple
    from ziggurat.transforms.attribution import link as link
    from ziggurat.transforms.attribution import outer_constant as outer_constant

_LAZY = {
    **dict.fromkeys(("compile_model", "triton_model"), "ziggurat.compiler.pipeline"),
    **dict.fromkeys(("attribute", "given_tuple", "link", "outer_constant"), "ziggurat.transforms.attribution"),
}

# A fork waits for this lock: a child that is forked while another thread compiles would find LLVM's lock, or that of a
# module that is being imported, held forever.
compiling = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=compiling.acquire, after_in_parent=compiling.release, after_in_child=compiling.release)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    with compiling:
        found = globals()[name] = getattr(import_module(_LAZY[name]), name)
    return found
