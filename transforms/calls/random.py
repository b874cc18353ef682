"""Rules of random numbers, which are written in the language."""

from __future__ import annotations

from typing import Any

from ziggurat.codemodel.errors import KernelTypeError, KernelValueError
from ziggurat.codemodel.types import TensorType, Type
from ziggurat.frontends.library import LIBRARY
from ziggurat.transforms.calls.checks import integers
from ziggurat.transforms.calls.promotion import common_shape
from ziggurat.transforms.calls.rule import Rule, Typing
from ziggurat.transforms.calls.wording import show


def _checked(call: Typing, seed: Type, rounds: Any, differ: str) -> None:
    if isinstance(seed, TensorType):
        hint = f"the numbers differ by their {differ}"
        raise KernelTypeError(f"{call}: 'seed' must be a scalar; got {seed}", hint=hint)
    if type(rounds) is not int or not 0 <= rounds <= 100:
        raise KernelValueError(f"{call}: 'n_rounds' must be an integer from 0 to 100; got {show(rounds)}")


def _words(call: Typing, seed: Type, c0: Type, c1: Type, c2: Type, c3: Type, rounds: Any) -> None:
    integers(call, seed=seed, c0=c0, c1=c1, c2=c2, c3=c3)
    common_shape(str(call), c0, c1, c2, c3)
    _checked(call, seed, rounds, "counters")


def _stream(call: Typing, seed: Type, offset: Type, rounds: Any) -> None:
    integers(call, seed=seed, offset=offset)
    _checked(call, seed, rounds, "offsets")


_STREAMS = ("rand", "randn", "randint", "rand4x", "randn4x", "randint4x")

RULES = {
    "philox": Rule(_words, body=LIBRARY["philox"]),
    **{name: Rule(_stream, body=LIBRARY[name]) for name in _STREAMS},
}
