"""The compiled kernels of a function, `kernel.device_caches`, as tools and tests of Triton read and clear them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from ziggurat.codemodel.recent import Recent
from ziggurat.kernels.arguments import MAX_SPECIALIZATIONS
from ziggurat.triton.runtime.driver import driver

if TYPE_CHECKING:
    from ziggurat.triton.runtime.jit import JITFunction


class DeviceCaches(defaultdict[Any, Any]):
    """The compiled kernels of a function by device: for each, a tuple whose first component has them by key."""

    def __init__(self, fn: JITFunction) -> None:
        super().__init__()
        self._fn = fn

    def __missing__(self, device: Any) -> Any:
        number = device if isinstance(device, int) else 0
        if number != device:
            return self[number]
        made: tuple[Any, ...] = (Compilations(self._fn), {}, driver.active.get_current_target(), None, None)
        self[number] = made
        return made

    def clear(self) -> None:
        super().clear()
        self._fn.forget()


class Compilations(Recent[str, Any]):
    """Compiled kernels by key. The function forgets all of them when they are cleared."""

    def __init__(self, fn: JITFunction) -> None:
        super().__init__(MAX_SPECIALIZATIONS)
        self._fn = fn

    def clear(self) -> None:
        super().clear()
        self._fn.forget()
