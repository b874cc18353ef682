"""Expressions of the language, written in a kernel and attributed: what a call means, as its documentation says."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable
from typing import Any

import pytest

import ziggurat as zg
from ziggurat.codemodel.types import Type
from ziggurat.transforms.attribution.attribute import Attributor
from ziggurat.transforms.calls.constant_arguments import FunctionName

# The names that expressions are written with: two pointers, two scalars, tensors, and a descriptor.
PRELUDE = """\
def kernel(p, q, n, x):
    t = zg.arange(0, 16)
    f = zg.cast(t, zg.f32)
    h = zg.cast(t, zg.f16)
    m = zg.zeros((4, 16), zg.f32)
    b = zg.compare(t, n, K.LESS_THAN)
    ps = zg.add(p, t)
    qs = zg.add(q, t)
    w = zg.zeros((16, 16), zg.f16)
    d = zg.make_tensor_descriptor(p, (n, n), (n, 1), (8, 16))
"""
TYPES = (zg.ptr(zg.f32), zg.ptr(zg.i32), zg.i32, zg.f32)

_numbers = itertools.count()


def function(body: str, **names: Any) -> Any:
    """The function of the language with this body after the prelude."""
    text = PRELUDE + "".join(f"    {line}\n" for line in body.splitlines())
    file = f"<expression {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    space: dict[str, Any] = {"zg": zg, "K": zg.CompareKind, "BYTES": zg.ptr(zg.i8), **names}
    exec(compile(text, file, "exec"), space)
    return zg.function(space["kernel"])


@pytest.fixture(scope="session")
def type_of() -> Callable[..., Type]:
    """`type_of(expression)`: its attributed type. Raises the first error."""

    def run(expression: str, **names: Any) -> Type:
        attributor = Attributor()
        helper = function(f"return {expression}", **names)
        attribution = attributor.function(FunctionName("kernel", helper.model, helper), TYPES, None)
        if attributor.errors:
            raise next(iter(attributor.errors.values()))
        return attribution.result

    return run
