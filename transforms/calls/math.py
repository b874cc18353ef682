"""Rules of the functions of floats, and of random numbers, which are written in the language."""

from __future__ import annotations

from typing import Any

from ziggurat.codemodel.errors import KernelTypeError, KernelValueError
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import TensorType, Type, f32, with_element
from ziggurat.frontends.language.host import OPS_OF_FLOATS
from ziggurat.frontends.library import LIBRARY
from ziggurat.transforms.calls.arithmetic import exact
from ziggurat.transforms.calls.constants import show
from ziggurat.transforms.calls.emit import Builds, Emitter, Operand
from ziggurat.transforms.calls.promotion import common_shape, scalar_type
from ziggurat.transforms.calls.rule import Rule, Typing, axis, integers, number_tensor, numbers

_WRITTEN_IN_THE_LANGUAGE = (
    "tan", "asin", "acos", "atan", "sinh", "cosh", "expm1", "log1p", "trunc", "rint", "round", "isnan",
    "isinf", "isfinite",
)  # fmt: skip


def _float(call: Typing, x: Type) -> Type:
    numbers(call, x)
    return call.computed(x) or (x if scalar_type(x).is_float else with_element(x, f32))


def _known(call: Typing, x: Type) -> Type | None:
    numbers(call, x)
    return call.computed(x)


def _wide(cls: type[Any]) -> Builds:
    """A function of a float; of one narrower than f32, computed in f32 and rounded."""

    def build(emit: Emitter, result: Type, x: Operand) -> Value:
        element = scalar_type(result)
        wide = with_element(result, f32) if element.bits < 32 else result
        return emit.cast(emit.add(cls(emit.convert(x, wide))), element)

    return build


def _angle(call: Typing, y: Type, x: Type) -> None:
    numbers(call, y, x)
    common_shape(str(call), y, x)


def _along(call: Typing, x: Type, dim: Any) -> None:
    axis(call, dim, number_tensor(call, x).rank)


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
    **{name: Rule(_float, _wide(cls)) for name, cls in OPS_OF_FLOATS.items()},
    "sqrt_rn": Rule(_float, exact(OPS_OF_FLOATS["sqrt_rn"])),
    "sigmoid": Rule(_known, body=LIBRARY["sigmoid"]),
    **{name: Rule(numbers, body=LIBRARY[name]) for name in _WRITTEN_IN_THE_LANGUAGE},
    "atan2": Rule(_angle, body=LIBRARY["atan2"]),
    "softmax": Rule(_along, body=LIBRARY["softmax"]),
    "philox": Rule(_words, body=LIBRARY["philox"]),
    **{name: Rule(_stream, body=LIBRARY[name]) for name in _STREAMS},
}
