"""Rules of sorting and counting."""

from __future__ import annotations

from typing import Any

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.errors import KernelTypeError, KernelValueError
from ziggurat.codemodel.op import Value
from ziggurat.codemodel.types import MAX_ELEMENTS, TensorType, Type, i1
from ziggurat.frontends.library import LIBRARY
from ziggurat.transforms.calls.constants import describe, show
from ziggurat.transforms.calls.emit import Emitter, Operand
from ziggurat.transforms.calls.rule import Rule, Typing, axis, is_power_of_two, number_tensor


def _sorted(call: Typing, x: Type, dim: Any, *_options: Any) -> None:
    rank = number_tensor(call, x).rank
    if axis(call, -1 if dim is None else dim, rank) != rank - 1:
        raise KernelValueError(
            f"{call}: the axis must be the last one; got axis {dim}", hint="move the axis to the end with zg.trans"
        )


def _first(call: Typing, x: Type, k: Any, dim: Any, *_options: Any) -> None:
    _sorted(call, x, dim)
    size = number_tensor(call, x).shape[-1]
    if not is_power_of_two(k) or k > size:
        raise KernelValueError(f"{call}: k must be a power of two up to {size}; got {show(k)}")


def _counts(call: Typing, x: Type, bins: Any, mask: Type | None) -> Type:
    tensor = number_tensor(call, x)
    if not is_power_of_two(bins) or bins > MAX_ELEMENTS:
        raise KernelValueError(f"{call}: 'num_bins' must be a power of two up to {MAX_ELEMENTS}; got {show(bins)}")
    if mask is not None and mask != TensorType(tensor.shape, i1):
        raise KernelTypeError(f"{call}: the mask must be {TensorType(tensor.shape, i1)}; got {describe(mask)}")
    return call.asked(lambda values: tt.Histogram(values[0], bins=bins), tensor)


def _histogram(emit: Emitter, result: Type, x: Operand, bins: int, mask: Operand | None) -> Value:
    return emit.add(tt.Histogram(x.value, None if mask is None else mask.value, bins=bins))


RULES = {
    "sort": Rule(_sorted, body=LIBRARY["sort"]),
    "argsort": Rule(_sorted, body=LIBRARY["argsort"]),
    "topk": Rule(_first, body=LIBRARY["topk"]),
    "histogram": Rule(_counts, _histogram),
}
