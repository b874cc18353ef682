"""Comparison of what two models do: `assert_same`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ziggurat.codemodel.errors import ZigguratError
from ziggurat.codemodel.op import Op


def assert_same(
    model_a: Op,
    model_b: Op,
    inputs: Sequence[Any],
    grid: int | tuple[int, ...] = 1,
    *,
    rtol: float = 0.0,
    atol: float = 0.0,
) -> None:
    """Raise `AssertionError` unless two Triton models do the same to the same inputs.

        zg.testing.assert_same(model, zg.simplify(model), [x, out, n], grid=(4,))

    Each model runs on the reference interpreter with copies of the arrays in `inputs`. Afterwards every array must
    agree element by element: exactly, or as `assert_close` does with `rtol` and `atol`. The message names the argument,
    and has the difference of the two models.
    """
    from ziggurat.launches.host import run
    from ziggurat.testing.close import assert_close
    from ziggurat.transforms.kit import difference

    results: list[list[Any]] = []
    for which, model in (("first", model_a), ("second", model_b)):
        arguments: list[Any] = [given.copy() if isinstance(given, np.ndarray) else given for given in inputs]
        try:
            run(model, grid, *arguments)
        except ZigguratError as error:
            error.summary = f"the {which} model: {error.summary}"
            raise
        results.append(arguments)
    for index, (a, b) in enumerate(zip(*results, strict=True)):
        if not isinstance(a, np.ndarray):
            continue
        try:
            assert_close(b, a, rtol=rtol, atol=atol)
        except AssertionError as error:
            shown = difference(model_a, model_b) or "the models are equal"
            raise AssertionError(f"argument {index} differs after the second model: {error}\n{shown}") from None
