"""Which choice of tuning a launch asks for: the values of the key, and the arrays' element types and devices.

Every launch of a tuned kernel asks, so the asking is compiled for the types of its arguments, as `Reader` has the
expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ziggurat.backend.cuda.arrays import OWN, device_of, reader_of, view
from ziggurat.backend.launch.arrays import is_array, on_gpu
from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.kernels import OPTIONS

if TYPE_CHECKING:
    from ziggurat.tuning import TunedKernel

# What a launch asks, a hashable value, of its arguments and keyword arguments.
Question = Callable[[Sequence[Any], Mapping[str, Any]], Any]
# Options of a launch that kernels are not compiled for.
NOT_COMPILED = ("stream", "check", "strict")


def refused(bound: Mapping[str, Any]) -> bool:
    """Whether no launch takes these arguments, of which some are on a GPU: others are not, or they are on several."""
    devices: set[int | None] = set()
    for name, value in bound.items():
        if isinstance(value, TensorDescriptor):
            if value.host is not None:
                return True
            devices.add(value.device)
        elif reader_of(value) is not None:
            devices.add(device_of(view(value, name)))
        elif is_array(value):
            return True
    return len(devices - {None}) > 1


def types_of(bound: Mapping[str, Any]) -> dict[str, str]:
    """The types of the arrays and descriptors among the arguments, by name."""
    types: dict[str, str] = {}
    for name, value in bound.items():
        if isinstance(value, TensorDescriptor):
            types[name] = str(value.type)
        elif value is not None and reader_of(value) is not None:
            types[name] = str(view(value, name).element)
    return types


def question(kernel: TunedKernel, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Question:
    """What asks for launches whose arguments have the types of these."""
    names = list(kernel.signature.parameters)
    places = {name: f"a[{number}]" for number, name in enumerate(names[: len(arguments)])}
    places.update({name: f"k[{name!r}]" for name in keywords})
    values = {**dict(zip(names, arguments, strict=False)), **keywords}
    arrays: list[str] = []
    parts: list[str] = []
    for name in names:
        if name not in places:
            if name in kernel.tuning.key:
                parts.append(f"d.get({name!r})")  # the default, as where it is given
        elif is_array(values[name]) or on_gpu(values[name]):
            arrays.append(name)
            parts.append(_array(places[name], values[name]))
        elif name in kernel.tuning.key:
            parts.append(places[name] if _hashable(values[name]) else f"repr({places[name]})")
    for name in sorted(keywords):
        if name in OPTIONS and name not in (*NOT_COMPILED, *names):
            parts.append(f"{name!r}, {places[name]}")
    text = f"lambda a, k: ({' '.join(arrays)!r}, {''.join(f'{part}, ' for part in parts)})"
    return eval(text, {"d": kernel.defaults, "_seen": _seen})


def _array(place: str, array: Any) -> str:
    """Expressions that tell the types and devices of arrays like this one apart."""
    if isinstance(array, TensorDescriptor):
        return f"{place}.key, {place}.device"
    reader = reader_of(array)
    if reader is None or reader.asks:
        return f"_seen({place})"
    # The key of our own arrays says more than the type: whether the address is aligned.
    element = "{0}.element.name" if reader is OWN else reader.element
    return f"{element.format(place)}, {reader.device.format(place)}"


def _seen(array: Any) -> tuple[str, int | None]:
    """The element type and the device of an array that is known by a protocol."""
    seen = view(array, "array")
    return seen.element.name, device_of(seen)


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
