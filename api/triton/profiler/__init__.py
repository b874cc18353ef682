"""`triton.profiler`: the times of kernels and of named scopes, measured by events, as a tree in a file.

    proton.start("matmul", hook="triton")
    with proton.scope("cublas", {"flops16": 2 * M * N * K}):
        torch.matmul(a, b)
    kernel[grid](…)
    proton.finalize()

Kernels of Triton are measured one by one, with what their `launch_metadata` tells: a name, bytes, and floating-point
operations. Work of other libraries is measured as a whole, in the scopes around it. Proton's other ways of looking,
such as instruction samples, are left to ncu and nsys.
"""

from ziggurat.triton.profiler.sessions import (
    DEFAULT_PROFILE_NAME,
    activate,
    cpu_timed_scope,
    deactivate,
    enter_scope,
    enter_state,
    exit_scope,
    exit_state,
    finalize,
    profile,
    scope,
    start,
    state,
)

__all__ = [
    "DEFAULT_PROFILE_NAME", "activate", "cpu_timed_scope", "deactivate", "enter_scope", "enter_state", "exit_scope",
    "exit_state", "finalize", "profile", "scope", "start", "state",
]  # fmt: skip
