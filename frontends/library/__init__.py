"""Calls that are themselves written in the language. `LIBRARY` has them by the call's name, with the call's parameters.

A kernel that makes such a call calls the function; it is compiled for the types of the arguments, as any `@zg.function`
is. `COMBINE` has the functions by which reductions and scans combine two elements.
"""

from __future__ import annotations

from typing import Final

from ziggurat.frontends.language.function import Function
from ziggurat.frontends.library.combine import COMBINE
from ziggurat.frontends.library.elementary import ELEMENTARY
from ziggurat.frontends.library.functions import cdiv, sigmoid, softmax
from ziggurat.frontends.library.random import philox, rand, rand4x, randint, randint4x, randn, randn4x

LIBRARY: Final[dict[str, Function]] = {
    **ELEMENTARY,
    **{made.name: made for made in (cdiv, sigmoid, softmax, philox, rand, randn, randint, rand4x, randn4x, randint4x)},
}

__all__ = ["COMBINE", "LIBRARY"]
