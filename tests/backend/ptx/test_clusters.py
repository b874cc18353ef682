"""The code of kernels for clusters, as NVIDIA's assembler takes it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from cluster_kernels import NAMES, arguments, types_of

import ziggurat as zg
from ziggurat.backend.ptx.sass import sass, tool


def ptx_of(name: str, block: int = 8192, **options: Any) -> str:
    kernel, inputs, constants = arguments(name, 1, 8, block)
    return zg.compile(kernel.triton(*types_of(inputs), *constants), **options).ptx


@pytest.mark.parametrize("ctas", [2, 16])
@pytest.mark.parametrize("name", NAMES)
def test_the_assembler_takes_it_without_spills(name: str, ctas: int, ptxas: Callable[..., str]) -> None:
    ptx = ptx_of(name, num_ctas=ctas, num_warps=8)
    assert f".reqnctapercluster {ctas}, 1, 1" in ptx and "%ctaid.x" not in ptx
    ptxas(ptx, "sm_90a")


def test_numbers_of_programs_are_those_of_clusters() -> None:
    ptx = ptx_of("normalised", num_ctas=4)
    assert {"%clusterid.x", "%ctaid.y", "%nclusterid.x"} <= set(re.findall(r"%n?c\w+\.[xyz]", ptx))
    assert "%clusterid" not in ptx_of("normalised", num_ctas=1)


def test_a_gather_waits_for_its_values_only() -> None:
    """One barrier of the cluster, at the start, and no fence for other CTAs: each would wait for all of memory."""
    if tool("ptxas") is None or tool("nvdisasm") is None:
        pytest.skip("ptxas or nvdisasm is not installed")
    text = sass(ptx_of("normalised", num_ctas=4, num_warps=8), "sm_90a")
    assert len(re.findall(r"\bUCGABAR_ARV\b", text)) == len(re.findall(r"\bUCGABAR_WAIT\b", text)) == 1
    assert "MEMBAR.ALL.GPU" not in text and "MEMBAR.SC" not in text
    assert len(re.findall(r"\bBAR\.SYNC", text)) == 2, "one for each reduction"


def test_targets(ptxas: Callable[..., str]) -> None:
    for target in ("sm_90", "sm_100a", "sm_120"):
        ptxas(ptx_of("largest", num_ctas=4, target=target), target)
