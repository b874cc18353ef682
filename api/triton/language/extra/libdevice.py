"""`triton.language.extra.libdevice`: CUDA's functions of numbers. The library is imported at the first use."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if not name.startswith("__"):  # Imports ask for `__path__`.
        from ziggurat.frontends.library.libdevice import FUNCTIONS

        if name in FUNCTIONS:
            return FUNCTIONS[name]
    raise AttributeError(f"libdevice has no function '{name}'")


def __dir__() -> list[str]:
    from ziggurat.frontends.library.libdevice import FUNCTIONS

    return [*FUNCTIONS]
