"""The compiled kernels of a function, `kernel.device_caches`, as tools and tests of Triton read and clear them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ziggurat.triton.runtime.driver import driver

if TYPE_CHECKING:
    from ziggurat.triton.runtime.jit import JITFunction


class Entries(dict[Any, Any]):
    """Entries of a function's table of code. The function forgets all of its code when they are cleared."""

    def __init__(self, fn: JITFunction, entries: Iterable[tuple[Any, Any]]) -> None:
        super().__init__(entries)
        self._fn = fn

    def clear(self) -> None:
        super().clear()
        self._fn.forget()


class DeviceCaches(Entries):
    """A function's compiled kernels: by device, a tuple whose first component has them by key."""

    def __init__(self, fn: JITFunction) -> None:
        devices = {device for _, device, _ in fn.compilations()}
        super().__init__(fn, [(device, _entry(fn, device)) for device in devices])

    def __missing__(self, device: Any) -> Any:
        return _entry(self._fn, device if isinstance(device, int) else 0)


def _entry(fn: JITFunction, device: int) -> tuple[Any, ...]:
    kernels = Entries(fn, ((key, kernel) for key, number, kernel in fn.compilations() if number == device))
    return kernels, {}, driver.active.get_current_target(), None, None
