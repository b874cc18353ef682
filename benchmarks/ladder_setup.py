"""The parts of the works of `gpu_ladder.py`: kernels of ours and of Triton, launches by setting, and inputs."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from kernels_by_ziggurat import KERNELS as OURS

Setting = Mapping[str, Any]
Run = Callable[[], Any]
GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
MULTIPROCESSORS = torch.cuda.get_device_properties(0).multi_processor_count if GPU else 4
LN_2 = 0.6931471805599453
torch.backends.cuda.matmul.allow_tf32 = True

THEIRS: Any = importlib.import_module("kernels_triton") if GPU and importlib.util.find_spec("triton") else None


@dataclass
class Work:
    """One row: `amount` in `unit` · s, the launches of each contender by setting, and what they should give.

    A launch returns its results, or they are in `outs`; an empty list is not checked. `true` gives the leading elements
    of each result. `bars` has the least ratio of a contender's time by ours.
    """

    amount: float
    unit: str
    runs: dict[str, dict[str, Run]]
    outs: Sequence[Any]
    true: Callable[[], Sequence[Any]]
    tolerance: float
    bars: dict[str, float] = field(default_factory=dict[str, float])

    def clear(self) -> None:
        """Fill the results with numbers that are not right."""
        for out in self.outs:
            out.fill_(float("nan") if out.dtype.is_floating_point else -(1 << 30))

    def error(self, got: Any) -> float:
        """The largest error of the results by the largest true number."""
        outputs = got if isinstance(got, list | tuple) else [got] if isinstance(got, torch.Tensor) else self.outs
        worst = 0.0
        for out, true in zip(outputs, self.expected, strict=False):
            difference = out.detach().reshape(-1)[: true.numel()].double() - true.reshape(-1)
            worst = max(worst, (difference.abs().max() / true.abs().max().clamp_min(1e-9)).nan_to_num(1e9).item())
        return worst

    @functools.cached_property
    def expected(self) -> list[Any]:
        return [tensor.double() for tensor in self.true()]


def example(name: str) -> Any:
    """A module of the examples."""
    folder = str(Path(__file__).resolve().parents[1] / "examples")
    with patch.object(sys, "path", [folder, *sys.path]):
        return importlib.import_module(name)


def by(launch: Callable[[Any, Setting], Any], ours: Sequence[Setting], theirs: Sequence[Setting] | None = None) -> Any:
    """The launches of ours and of Triton. Triton 3.6 ends the process for some loops with `ROLES`."""

    def labelled(kernels: Any, settings: Sequence[Setting]) -> dict[str, Run]:
        return {label(setting): functools.partial(launch, kernels, setting) for setting in settings}

    runs = {"ours": labelled(OURS, ours)}
    if THEIRS is not None:
        runs["Triton"] = labelled(THEIRS, [setting for setting in theirs or ours if not setting.get("ROLES")])
    return runs


def label(setting: Setting) -> str:
    words = [f"{name} {value}" for name, value in setting.items() if isinstance(value, int) and value is not False]
    return ", ".join(words).replace("num_", "") or "as it is"


def tiles(*tile: tuple[int, int, int, int, int], **more: Any) -> list[Setting]:
    return [dict(zip(("M", "N", "K", "num_warps", "num_stages"), tile, strict=True), **more) for tile in tile]


def normal(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape, device=DEVICE).to(dtype)


def empty(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.empty(*shape, device=DEVICE, dtype=dtype)


def zeros(count: int) -> Any:
    return torch.zeros(count, device=DEVICE, dtype=torch.int32)


def describer() -> Callable[..., Any]:
    """A function that makes the descriptor of a tensor for a compiler, its rows in one axis.

    It makes each once, as new descriptors in each launch would need new tensor maps.
    """

    @functools.cache
    def described(kernels: Any, tensor: Any, *block: int) -> Any:
        module = importlib.import_module(f"{kernels.triton.__name__}.tools.tensor_descriptor")
        return module.TensorDescriptor.from_tensor(tensor.view(-1, tensor.shape[-1]), list(block))

    return described


def copy(size: float) -> Run:
    """A copy of so many bytes, read and written in all."""
    source = torch.empty(int(size) // 2, dtype=torch.int8, device=DEVICE)
    target = torch.empty_like(source)

    def run() -> list[Any]:
        target.copy_(source)
        return []

    return run


def laid_out(matrix: Any, form: str) -> Any:
    """The matrix with neighbours along its rows (N) or along its columns (T)."""
    return matrix if form == "N" else matrix.T.contiguous().T


def backward(forward: Callable[..., Any], leaves: Sequence[Any], gradient: Any) -> Run:
    """The backward pass of a function of PyTorch, which has run forward before."""
    leaves = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    outputs: list[Any] = []

    def run() -> Any:
        if not outputs:
            outputs.append(forward(*leaves))
        return torch.autograd.grad(outputs[0], leaves, gradient, retain_graph=True)

    return run


def gradients(forward: Callable[..., Any], leaves: Sequence[Any], gradient: Any) -> Sequence[Any]:
    """The true gradients, in float64."""
    return backward(forward, [leaf.double() for leaf in leaves], gradient.double())()
