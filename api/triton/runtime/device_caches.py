"""The compiled kernels of a function, `kernel.device_caches`, as tools and tests of Triton read and clear them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ziggurat.triton.runtime.driver import driver

if TYPE_CHECKING:
    from ziggurat.triton.compiler.compiled import CompiledKernel
    from ziggurat.triton.runtime.jit import JITFunction


class DeviceCaches(Mapping[Any, Any]):
    """A view of a function's table of code: by device, a tuple whose first component has the kernels by key."""

    def __init__(self, fn: JITFunction) -> None:
        self._fn = fn

    def __getitem__(self, device: Any) -> Any:
        number = device if isinstance(device, int) else 0
        return Compilations(self._fn, number), {}, driver.active.get_current_target(), None, None

    def __iter__(self) -> Iterator[int]:
        return iter({device for _, device, _ in self._fn.compilations()})

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def clear(self) -> None:
        self._fn.forget()


class Compilations(Mapping[str, Any]):
    """The compiled kernels for a device by key. The function forgets all of them when they are cleared."""

    def __init__(self, fn: JITFunction, device: int) -> None:
        self._fn, self._device = fn, device

    def _by_key(self) -> dict[str, CompiledKernel]:
        return {key: kernel for key, device, kernel in self._fn.compilations() if device == self._device}

    def __getitem__(self, key: str) -> CompiledKernel:
        return self._by_key()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_key())

    def __len__(self) -> int:
        return len(self._by_key())

    def clear(self) -> None:
        self._fn.forget()
