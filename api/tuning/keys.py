"""Which choice of tuning a launch asks for: the values of the key, and the arrays' element types and devices.

Every launch of a tuned kernel asks, so the asking is compiled for the types of its arguments, from the expressions that
`Reader` has: `exact` gives what a choice is kept for, and `quick` what is read quickly and tells as much apart or more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from ziggurat.backend.cuda.arrays import OWN, device_of, reader_of, view
from ziggurat.backend.launch.arrays import is_array, on_gpu
from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.codemodel.gpu.options import LAUNCH_ONLY, LAUNCH_OPTIONS

if TYPE_CHECKING:
    from ziggurat.tuning.autotune import TunedKernel

# Gives what a launch asks, a hashable value, from its arguments and keyword arguments.
Asking = Callable[[Sequence[Any], Mapping[str, Any]], Any]


@attrs.frozen
class Question:
    """How launches ask whose arguments have the types of those that it was made for.

    `quick` may be asked by others: it raises an exception, or gives what is never given for arguments of these types.
    """

    exact: Asking
    quick: Asking


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
    """How launches with arguments of the types of these ask."""
    names = list(kernel.signature.parameters)
    places = {name: f"a[{number}]" for number, name in enumerate(names[: len(arguments)])}
    places.update({name: f"k[{name!r}]" for name in keywords})
    values = {**dict(zip(names, arguments, strict=False)), **keywords}
    arrays: list[str] = []
    exact: list[str] = []
    quick = ["len(a)", "*k"]
    for name in names:
        if name not in places:
            if name in kernel.tuning.key:
                exact.append(f"d.get({name!r})")  # the default, as where it is given
            continue
        place, value = places[name], values[name]
        if is_array(value) or on_gpu(value):
            arrays.append(name)
            exact.append(_array(place, value))
            # The key of our own arrays and of descriptors says all, and whether the address is aligned.
            own = not isinstance(value, TensorDescriptor) and reader_of(value) is OWN
            quick.append(f"{place}.key" if own else exact[-1])
        elif name in kernel.tuning.key:
            exact.append(place if _hashable(value) else f"repr({place})")
            quick.append(f"{exact[-1]}, {place}.__class__")
        else:
            quick.append(f"{place}.__class__")  # Where None is given, or an array, it is another question.
    for name in sorted(keywords):
        if name in LAUNCH_OPTIONS and name not in (*LAUNCH_ONLY, *names):
            exact.append(f"{name!r}, {places[name]}")
            quick.append(places[name])
    scope = {"d": kernel.defaults, "_seen": _seen}
    told = [repr(" ".join(arrays)), *exact]
    return Question(*(eval(f"lambda a, k: ({', '.join(parts)},)", scope) for parts in (told, quick)))


def _array(place: str, array: Any) -> str:
    """Expressions that tell the types and devices of arrays like this one apart."""
    if isinstance(array, TensorDescriptor):
        return f"{place}.key, {place}.device"
    reader = reader_of(array)
    if reader is None or reader.asks:
        return f"*_seen({place})"
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
