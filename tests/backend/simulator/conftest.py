"""Kernels of LLVM text written by hand, simulated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ziggurat.backend.simulator.simulate import simulate


def _by_hand(
    lines: str, *arguments: Any, num_warps: int = 1, shared: int = 0, grid: Sequence[int] = (1,), seed: int = 0,
    attributes: str = "",
) -> None:  # fmt: skip
    kinds = [
        "i32" if isinstance(a, int) else "float" if isinstance(a, float) else "ptr addrspace(1)" for a in arguments
    ]
    body = [
        "%tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()",
        *(line.strip() for line in lines.split("\n") if line.strip()),
    ]
    text = "\n".join(
        [
            f"define ptx_kernel void @k({', '.join(f'{kind} %p{at}' for at, kind in enumerate(kinds))}) #0 {{",
            "entry:",
            *(line if line.endswith(":") else f"  {line}" for line in body),
            "  ret void",
            "}",
            f"attributes #0 = {{ nounwind {attributes} }}",
        ]
    )
    simulate(text, num_warps=num_warps, shared=shared, grid=grid, arguments=arguments, seed=seed)


@pytest.fixture(scope="session")
def by_hand() -> Callable[..., None]:
    """`by_hand(lines, *arguments, num_warps, shared, grid, seed, attributes)`: simulate a kernel of these lines of LLVM
    text, whose thread is `%tid` and whose parameters are `%p0`, `%p1` …"""
    return _by_hand
