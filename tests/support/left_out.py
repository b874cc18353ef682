"""Kernels simulated with a pass and without it, and interpreted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from gpu_ablation import LEFT_OUT, left_out

Given = Callable[[], tuple[np.ndarray, list[Any]]]


def with_and_without(
    name: str, kernel: Any, types: list[Any], make_arguments: Given, grid: tuple[int, ...] = (1,), **options: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A kernel's result with a pass, which changes its code, without it, and by the interpreter.

    `types` ends with the constants. `given` makes the result's array, and the arguments of a launch.
    """
    constants = [type_ for type_ in types if isinstance(type_, bool | int | str)]
    assert name in LEFT_OUT
    results: list[np.ndarray] = []
    texts: list[str] = []
    for without in (None, name):
        with left_out(without):
            compiled = kernel.compile(*types, target="sm_90a", **options)
        result, arguments = make_arguments()
        compiled.simulate[grid](*arguments)
        results.append(result)
        texts.append(compiled.stages["llvm"])
    assert texts[0] != texts[1]
    result, arguments = make_arguments()
    kernel[grid](*arguments, *constants, interpret=True)
    return results[0], results[1], result
