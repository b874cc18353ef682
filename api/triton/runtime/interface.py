"""Objects that are launched over a grid: kernels, tuners, and what libraries derive from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ziggurat.boundary import public
from ziggurat.triton.runtime.tensors import MockTensor


class KernelInterface:
    """An object that is launched over a grid: `kernel[grid](…)` is `kernel.run(…, grid=grid, warmup=False)`."""

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        raise NotImplementedError

    @public
    def warmup(self, *args: Any, grid: Any, **kwargs: Any) -> Any:
        """Compile for arguments without a launch. A dtype of PyTorch stands for a tensor of it."""
        return self.run(*map(MockTensor.wrap_dtype, args), grid=grid, warmup=True, **kwargs)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)
