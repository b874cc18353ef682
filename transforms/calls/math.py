"""Rules of the functions of floats."""

from __future__ import annotations

from typing import Any

from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import Type, f32, with_element
from ziggurat.frontends.language.host import OPS_OF_FLOATS
from ziggurat.frontends.library import LIBRARY
from ziggurat.transforms.calls.arithmetic import exact
from ziggurat.transforms.calls.checks import axis, number_tensor, numbers
from ziggurat.transforms.calls.emit import Builds, Emitter, Operand
from ziggurat.transforms.calls.promotion import common_shape, scalar_type
from ziggurat.transforms.calls.rule import Rule, Typing

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


RULES = {
    **{name: Rule(_float, _wide(cls)) for name, cls in OPS_OF_FLOATS.items()},
    "sqrt_rn": Rule(_float, exact(OPS_OF_FLOATS["sqrt_rn"])),
    "sigmoid": Rule(_known, body=LIBRARY["sigmoid"]),
    **{name: Rule(numbers, body=LIBRARY[name]) for name in _WRITTEN_IN_THE_LANGUAGE},
    "atan2": Rule(_angle, body=LIBRARY["atan2"]),
    "softmax": Rule(_along, body=LIBRARY["softmax"]),
}
