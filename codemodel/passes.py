"""Running passes: functions from model to model, one after the other, each checked and recorded on request."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ziggurat.codemodel.errors import VerifyError
from ziggurat.codemodel.op import Op, require_argument, require_model
from ziggurat.codemodel.verify import verify as verify_model

Pass = Callable[[Op], Op]
_PASS = "a pass must be a function from model to model"


class Snapshot(NamedTuple):
    """The model after a pass, by the name of the pass; and the phase from which it can be compiled further, if any."""

    name: str
    model: Op
    phase: str | None = None


def run_passes(
    model: Op,
    passes: Iterable[Pass | tuple[str, Pass]],
    *,
    verify: bool = False,
    snapshots: list[Snapshot] | None = None,
) -> Op:
    """The model after all passes. A pass is named by its function, or given as a pair of name and function.

    With `verify`, the model is verified after each pass that changed it: a `VerifyError` names the pass. `snapshots`
    gets the model after each pass.
    """
    require_model(model, "run_passes")
    require_argument(passes, Iterable, "the passes must be in a list", "give [a, b], or kit.compose(a, b) as one pass")
    for step in passes:
        require_argument(step, callable(step) or isinstance(step, tuple), _PASS)  # pyright: ignore[reportUnnecessaryIsInstance]
        name, function = (str(getattr(step, "__name__", step)), step) if callable(step) else step
        before, model = model, function(model)
        require_argument(model, Op, f"the pass '{name}' must return a model")
        if verify and model is not before:
            try:
                verify_model(model)
            except VerifyError as error:
                raise VerifyError(f"after the pass '{name}', {error.summary}", error.violations) from None
        if snapshots is not None:
            snapshots.append(Snapshot(name, model))
    return model


def compose(*passes: Pass) -> Pass:
    """The pass that runs these passes one after the other."""
    for step in passes:
        require_argument(step, callable(step), _PASS)
    return functools.partial(run_passes, passes=passes)
