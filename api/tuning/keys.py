"""Keys of choices: what tells the launches of a tuned kernel apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ziggurat.backend.cuda.launch import devices_of
from ziggurat.backend.launch.arrays import as_array, elements, is_array, on_gpu
from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.backend.launch.device_arrays import device_of, place_of, reader_of, view
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.gpu.options import LAUNCH_ONLY, LAUNCH_OPTIONS
from ziggurat.codemodel.types import ScalarType, is_hashable

if TYPE_CHECKING:
    from ziggurat.tuning.tuned import Tuned

# Reads one part of a key from an argument; None takes the argument itself.
Read = Callable[[Any], Any]
# The text that all keys of some argument types begin with, and for each other part its argument's number.
_Parts = tuple[str, list[tuple[Read | None, int]]]


class ChoiceKey:
    """The function from the arguments of a launch to the key that a choice is kept for.

    A key has the values of the parameters in `names`, the element types and devices of the arrays, and the options of
    compilation. The arguments with these values are looked up once for each combination of argument types.
    """

    def __init__(self, kernel: Tuned, names: Sequence[str]) -> None:
        self.kernel, self.names = kernel, names
        self._parts: dict[tuple[Any, ...], _Parts] = {}

    def __call__(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Any, ...]:
        """The key. Raises the error of an array that cannot be read."""
        kinds: tuple[Any, ...] = tuple(map(type, arguments))
        values = arguments
        if keywords:
            kinds += (*keywords, *map(type, keywords.values()))
            values = (*arguments, *keywords.values())
        parts = self._parts.get(kinds)
        if parts is None:
            parts = self._parts[kinds] = self._parts_of(arguments, keywords)
        key: list[Any] = [parts[0]]
        for read, place in parts[1]:  # Each launch makes a key: a comprehension would be one more call.
            key.append(values[place] if read is None else read(values[place]))
        return tuple(key)

    def _parts_of(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> _Parts:
        """The common text of all keys of these argument types, and the reading of the other parts."""
        parameters = list(self.kernel.signature.parameters)
        values = {**dict(zip(parameters, arguments, strict=False)), **keywords}
        places = {name: place for place, name in enumerate(values)}
        label: list[str] = []
        parts: list[tuple[Read | None, int]] = []
        for name in parameters:
            if name not in values:
                if name in self.names:
                    parts.append((_constant(self.kernel.defaults.get(name)), 0))
            elif is_array(values[name]) or on_gpu(values[name]):
                label.append(name)
                parts.append((_reading(values[name]), places[name]))
            elif name in self.names:
                parts.append((None if is_hashable(values[name]) else repr, places[name]))
        for name in sorted(keywords):
            if name in LAUNCH_OPTIONS and name not in (*LAUNCH_ONLY, *parameters):
                label.append(f"option {name}")
                parts.append((None, places[name]))
        return " ".join(label), parts


def _reading(array: Any) -> Read:
    """Reads the element type and the device of arrays of this type."""
    if isinstance(array, TensorDescriptor):
        return attrgetter("key", "device")
    reader = reader_of(array)
    if reader is None:
        return attrgetter("dtype") if hasattr(array, "dtype") else _element_in_memory
    return _element_and_device if reader.key is None else reader.key


def _element_and_device(array: Any) -> str:
    array_view = view(array, "array")
    return place_of(array_view.element, device_of(array_view))


def _element_in_memory(array: Any) -> str:
    return str(as_array(array, "array").dtype)


def _constant(value: Any) -> Read:
    """Gives the default of a parameter that no argument has: the key is that of a launch that gives this value."""
    part = value if is_hashable(value) else repr(value)
    return lambda argument: part


def refused(bound: Mapping[str, Any]) -> bool:
    """Whether a launch rejects these arrays: some are on a GPU and others are not, or they are on several GPUs."""
    for value in bound.values():
        is_descriptor = isinstance(value, TensorDescriptor)
        if value.host is not None if is_descriptor else is_array(value) and reader_of(value) is None:
            return True
    return len(devices_of(bound.items())) > 1


def types_of(bound: Mapping[str, Any]) -> dict[str, str]:
    """The types of the arrays and descriptors among the arguments, by name."""
    types: dict[str, str] = {}
    for name, value in bound.items():
        if isinstance(value, TensorDescriptor):
            types[name] = _type_of_descriptor(value, name)
        elif value is not None and (is_array(value) or on_gpu(value)):
            types[name] = str(_element(value, name))
    return types


def _type_of_descriptor(value: TensorDescriptor, name: str) -> str:
    """The type of a descriptor; that of its elements where a hook of each configuration gives it its block."""
    try:
        return str(value.type)
    except LaunchError:
        return str(_element(value.array, name))


def _element(array: Any, name: str) -> ScalarType:
    """The element type of an array on a GPU or here."""
    return view(array, name).element if on_gpu(array) else elements()[as_array(array, name).dtype]
