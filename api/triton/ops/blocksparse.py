"""`triton.ops.blocksparse` of Triton 2.1 to 3.1: its names, which say what to use instead."""

from __future__ import annotations

from typing import Any, NoReturn

from ziggurat.codemodel.errors import ZigguratError


def _absent(name: str) -> NoReturn:
    raise ZigguratError(
        f"triton.ops.blocksparse.{name} went with Triton 3.2, and ziggurat does not have it",
        hint="copy the folder python/triton/ops/blocksparse of Triton 3.0 into the program: its kernels run",
    )


def matmul(*arguments: Any, **keywords: Any) -> NoReturn:
    """Raise an error: see the module."""
    _absent("matmul")


def softmax(*arguments: Any, **keywords: Any) -> NoReturn:
    """Raise an error: see the module."""
    _absent("softmax")
