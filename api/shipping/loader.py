"""The kernels of this folder, which `ziggurat build` has written: `import lib; lib.softmax[grid](x, y, n, BLOCK=64)`.

Arrays are NumPy's, PyTorch's, CuPy's, of Python's `array`, or anything with a buffer. They decide whether a launch runs
on this machine's processors or on the GPU. Nothing is imported but a few modules of Python.
"""

from __future__ import annotations

import ctypes
import json
import operator
import os
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

FORMAT: Final = "ziggurat library 1"
FOLDER: Final = os.path.dirname(os.path.abspath(__file__))
_MAX_RANK: Final = 5
_MAX_SIZE: Final = (1 << 31) - 1  # Of an axis of a grid.
_MAX_THREADS: Final = 1024  # Programs that wait for each other at once.
_TICK: Final = 0.01  # Seconds after which further programs begin, if none has ended.
_ALONE: Final = 200_000  # Nanoseconds that the launching thread runs programs alone, before others help.
_BUFFERS: Final = {
    "f": "f32", "d": "f64", "e": "f16", "?": "i1", "b": "i8", "h": "i16", "i": "i32", "q": "i64", "l": "i64",
    "B": "u8", "H": "u16", "I": "u32", "Q": "u64", "L": "u64",
}  # fmt: skip
_NAMES: Final = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "bool": "i1", "int8": "i8",
    "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
    "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2",
}  # fmt: skip
_TYPES: Final[dict[str, Any]] = {
    "i1": ctypes.c_bool, "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32, "i64": ctypes.c_int64,
    "u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64,
    "f32": ctypes.c_float, "f64": ctypes.c_double, "f16": ctypes.c_uint16, "bf16": ctypes.c_uint16,
}  # fmt: skip
_LIMITS: Final = {
    **{f"i{bits}": (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) for bits in (8, 16, 32, 64)},
    **{f"u{bits}": (0, (1 << bits) - 1) for bits in (8, 16, 32, 64)},
}
_MISSING: Final = object()
_NO_CODE: Final = (209, 801)  # Statuses: there is no code for the GPU, or for these arguments.


class Miss(LookupError):
    """The library has no variant for the arguments of a launch."""


class LaunchError(RuntimeError):
    """A launch has failed."""


class Tensor(ctypes.Structure):
    """`ziggurat_tensor` of the header."""

    _fields_ = (
        ("base", ctypes.c_void_p), ("shape", ctypes.c_int64 * _MAX_RANK), ("strides", ctypes.c_int64 * _MAX_RANK),
    )  # fmt: skip


class TensorDescriptor:
    """A tensor that a kernel moves in blocks. `shape` and `strides`, in elements, default to the array's."""

    def __init__(self, array: Any, shape: Sequence[int] | None = None, strides: Sequence[int] | None = None) -> None:
        own = _Array.of(array)
        if own is None:
            raise TypeError(f"a descriptor must describe an array; got {type(array).__name__}")
        self.array = array
        self.shape = tuple(own.shape if shape is None else shape)
        self.strides = tuple(own.strides if strides is None else strides)


class _Array:
    """The element type, the address, the shape and the strides, in elements, of an array, and the device of one on a
    GPU: -1 where its library does not tell it. One that `is_constant` must not be written."""

    def __init__(
        self, element: str, address: int, shape: Sequence[int], strides: Sequence[int], device: int | None, owner: Any,
        is_constant: bool = False,
    ) -> None:  # fmt: skip
        self.element, self.address, self.shape, self.strides = element, address, shape, strides
        self.device, self.owner, self.is_constant = device, owner, is_constant

    @staticmethod
    def of(thing: object) -> _Array | None:
        """None for a thing that is no array."""
        value: Any = thing
        if hasattr(value, "data_ptr") and callable(getattr(value, "stride", None)):  # PyTorch.
            element = _NAMES.get(str(value.dtype).rpartition(".")[2], str(value.dtype))
            is_gpu = bool(getattr(value, "is_cuda", False))
            device = (value.device.index or 0) if is_gpu else None
            return _Array(element, _address_of(value), tuple(value.shape), tuple(value.stride()), device, value)
        for name, device in (("__cuda_array_interface__", -1), ("__array_interface__", None)):
            facts = None if isinstance(value, type) else getattr(value, name, None)
            if facts is None or (name == "__array_interface__" and not hasattr(value, "__len__")):
                continue
            _require_order(facts["typestr"])
            dtype = str(getattr(value, "dtype", ""))
            width = int(facts["typestr"][2:])
            kind = {"f": "float", "i": "int", "u": "uint", "b": "bool"}.get(facts["typestr"][1], "")
            bits = "" if kind == "bool" else 8 * width
            element = _NAMES.get(dtype) or _NAMES.get(f"{kind}{bits}", dtype or facts["typestr"])
            shape = tuple(facts["shape"])
            strides = facts.get("strides")
            steps = _contiguous(shape) if strides is None else tuple(stride // width for stride in strides)
            return _Array(element, facts["data"][0] or 0, shape, steps, device, value, bool(facts["data"][1]))
        if isinstance(thing, bytes | str):
            return None
        try:
            view: Any = memoryview(cast(Any, value))
        except TypeError:
            return None
        if view.format[-1:] not in _BUFFERS:
            return None
        _require_order(view.format)
        address = ctypes.addressof((ctypes.c_char * view.nbytes).from_buffer(value)) if view.nbytes else 0
        strides = tuple(stride // view.itemsize for stride in view.strides or ())
        element = _BUFFERS[view.format[-1]]
        return _Array(element, address, view.shape or (), strides, None, (value, view))


def _address_of(tensor: Any) -> int:
    """The address of a tensor of PyTorch. Raises `TypeError` for one without memory that its strides describe."""
    kind = tensor.device.type
    text = f"{type(tensor).__name__} on the device '{kind}'"
    try:
        if kind in ("cpu", "cuda") and type(tensor).__name__ != "FakeTensor":
            return tensor.data_ptr()
    except RuntimeError as error:
        text = f"{text}: {str(error).partition(chr(10))[0]}"
    raise TypeError(f"a tensor must have memory on this machine or a GPU; got a {text}")


def _require_order(code: str) -> None:
    """Raise `TypeError` for the code of a type whose bytes are not in this machine's order."""
    if code[:1] in (">!" if sys.byteorder == "little" else "<"):
        raise TypeError(
            f"an array must have the byte order of this machine; got the type {code!r}: give "
            "x.astype(x.dtype.newbyteorder('='))"
        )


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return tuple(strides[: len(shape)])


def constant_form(value: Any) -> Any:
    """A constant as the manifest has it."""
    value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    value = value.item() if _is_numpy_number(value) else value
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if abs(value) < float("inf") else {"float": str(value)}
    if isinstance(value, tuple | list):
        return [constant_form(part) for part in value]  # pyright: ignore[reportUnknownVariableType]
    function = getattr(value, "fn", value)
    if hasattr(function, "__qualname__"):
        return {"name": f"{function.__module__}.{function.__qualname__}"}
    word = str(value).rpartition(".")[2]  # A dtype, as libraries call it.
    return {"name": _NAMES.get(word, f"f{word[2:]}" if word in ("fp16", "fp32", "fp64") else str(value))}


def _is_numpy_number(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "item") and not hasattr(value, "__len__")


def _same(a: Any, b: Any) -> bool:
    """Whether two constants lead to the same kernel: 1, 1.0 and True do not."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))  # pyright: ignore[reportUnknownArgumentType]
    return type(a) is type(b) and a == b  # pyright: ignore[reportUnknownArgumentType]


class _Argument:
    """A value of a launch: what it is (an "array", a "descriptor", a "number" or a "constant") and its type in text."""

    def __init__(self, value: Any) -> None:
        self.value, self.array = value, None
        own = getattr(value, "array", getattr(value, "base", None))
        if hasattr(value, "shape") and hasattr(value, "strides") and own is not None and not hasattr(value, "dtype"):
            self.array = _Array.of(own)
            self.way, self.type = "descriptor", f"descriptor of {self.array.element}" if self.array else "descriptor"
            return
        if isinstance(value, bool):
            self.way, self.type = "number", "i1"
        elif isinstance(value, int):
            self.way = "number"
            self.type = next((name for name in ("i32", "i64", "u64") if _holds(name, value)), "integer")
        elif isinstance(value, float):
            self.way, self.type = "number", "f32"
        elif _is_numpy_number(value):
            self.way, self.type = "number", _NAMES.get(str(value.dtype), str(value.dtype))
            self.value = value.item()
        else:
            self.array = _Array.of(value)
            self.way = "constant" if self.array is None else "array"
            self.type = type(value).__name__ if self.array is None else f"ptr<{self.array.element}>"

    def __str__(self) -> str:
        if self.array is None:
            return repr(self.value)
        return f"an array of {self.array.element}" if self.way == "array" else f"a {self.type}"


def _holds(type_: str, value: int) -> bool:
    low, high = _LIMITS[type_]
    return low <= value <= high


class _Family:
    """One function of the library."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.function: str = facts["function"]
        self.parameters: list[dict[str, Any]] = facts["parameters"]
        self.slots = [parameter for parameter in self.parameters if "type" in parameter]
        self.variants: list[dict[str, Any]] = facts["variants"]
        self.ordered: bool = facts["ordered"]
        self.options: dict[str, Any] = facts["options"]

    def obstacles(self, arguments: Mapping[str, _Argument], options: Mapping[str, Any]) -> list[str]:
        """Why arguments do not fit, one line for each that does not."""
        reasons: list[str] = []
        for parameter in self.parameters:
            name = parameter["name"]
            argument = arguments[name]
            reason = _obstacle(parameter, argument)
            if reason:
                reasons.append(f"'{name}' must be {reason}; got {argument}")
        reasons += [
            f"the option '{name}' must be {self.options.get(name, 'left out')}; got {value!r}"
            for name, value in options.items()
            if self.options.get(name) != value
        ]
        return reasons or self._unknown(arguments)

    def _unknown(self, arguments: Mapping[str, _Argument]) -> list[str]:
        """The conditions of the most general variant that do not hold, if those of all variants do not."""
        reasons: list[str] = []
        for variant in self.variants:
            reasons = []
            for parameter, facts in zip(self.slots, variant["known"], strict=True):
                argument = arguments[parameter["name"]]
                value, what = _measure(parameter, argument)
                if facts["is_one"] and value != 1:
                    reasons.append(f"'{parameter['name']}' must be 1; got {value}")
                if value % facts["divisor"]:
                    text = hex(value) if argument.array is not None and argument.way == "array" else value
                    reasons.append(f"{what} must be divisible by {facts['divisor']}; got {text}")
            if not reasons:
                return []
        return reasons

    def bound(self, verb: str, arguments: Mapping[str, _Argument]) -> Callable[..., int]:
        """`function_launch` or `function_run` with these arguments: it takes the others and gives the status."""
        function = _library()[f"{self.function}_{verb}"]
        values = [_passed(parameter, arguments[parameter["name"]]) for parameter in self.slots]
        return lambda *head: function(*head, *values)


def _obstacle(parameter: Mapping[str, Any], argument: _Argument) -> str:
    """What an argument must be; empty if it is that."""
    if "type" not in parameter:
        return "" if _same(parameter["constant"], constant_form(argument.value)) else f"{parameter['constant']!r}"
    type_ = parameter["type"]
    if type_.startswith("ptr"):
        return "" if argument.type == type_ else f"an array of {type_[4:-1]}"
    if type_.startswith("descriptor"):
        array = argument.array if argument.way == "descriptor" else None
        fits = array is not None and array.element == parameter["element"]
        fits = fits and len(argument.value.shape) == parameter["rank"]
        return "" if fits else f"a descriptor of {parameter['rank']} axes of {parameter['element']}"
    if argument.way != "number" or (type_ == "i1") != (argument.type == "i1"):
        return f"a number of type {type_}"
    if type_ in _LIMITS:
        is_integer = isinstance(argument.value, int)
        return "" if is_integer and _holds(type_, argument.value) else f"an integer that fits {type_}"
    return ""


def _measure(parameter: Mapping[str, Any], argument: _Argument) -> tuple[int, str]:
    """The number that a divisor divides, and what it is."""
    name = parameter["name"]
    if argument.way == "descriptor":
        return argument.value.shape[-1] * parameter["bytes"], f"a row of '{name}' in bytes"
    if argument.array is not None:
        return argument.array.address, f"the address of '{name}'"
    return (argument.value if isinstance(argument.value, int) else 0), f"'{name}'"


def _passed(parameter: Mapping[str, Any], argument: _Argument) -> Any:
    """The value for ctypes."""
    type_ = parameter["type"]
    if type_.startswith("ptr"):
        assert argument.array is not None
        return ctypes.c_void_p(argument.array.address)
    if type_.startswith("descriptor"):
        assert argument.array is not None
        tensor = Tensor(argument.array.address)
        unit = max(1, 16 // parameter["bytes"])
        extent = 1
        pairs = list(zip(argument.value.shape, argument.value.strides, strict=True))
        for axis in reversed(range(len(pairs))):
            size, stride = pairs[axis]
            if size == 1:  # No step is taken there, and TMA cannot use every stride.
                stride = 1 if axis == len(pairs) - 1 else -(-extent // unit) * unit
            tensor.shape[axis], tensor.strides[axis] = size, stride
            extent = size * stride
        return ctypes.byref(tensor)
    value = argument.value
    if type_ == "f16":
        value = int.from_bytes(struct.pack("<e", value), "little")
    elif type_ == "bf16":
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
        value = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 if value == value else 0x7FC0
    return _TYPES[type_](value)


class Kernel:
    """A kernel of the library: `kernel[grid](arguments…, stream=None)` launches it."""

    def __init__(self, name: str, families: Sequence[_Family], defaults: Mapping[str, Any]) -> None:
        self.name, self.families, self.defaults = name, families, defaults
        self.leaves = [parameter["name"] for parameter in families[0].parameters]
        self.names = list(dict.fromkeys(leaf.partition("[")[0] for leaf in self.leaves))
        self._options = {option for family in families for option in family.options}
        self._counts: dict[str, int] = {}  # The components of each tuple, nested ones included.
        for leaf in self.leaves:
            place, *path = leaf.replace("]", "").split("[")
            for index in map(int, path):
                self._counts[place] = max(self._counts.get(place, 0), index + 1)
                place = f"{place}[{index}]"

    def __repr__(self) -> str:
        return f"<kernel {self.name}({', '.join(self.names)}) in {FOLDER}>"

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(*arguments: Any, **keywords: Any) -> None:
            self._launch(grid, arguments, keywords)

        return launch

    def explain(self, *arguments: Any, **keywords: Any) -> str:
        """Which function a launch with these arguments takes, or which of them made it miss the library."""
        bound, options = self._bound(arguments, keywords)
        try:
            family = self._family(bound, options)
        except Miss as miss:
            return str(miss)
        return f"'{self.name}' is launched by {family.function}"

    def _bound(
        self, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> tuple[dict[str, _Argument], dict[str, Any]]:
        """The arguments by the names of parameters, tuples taken apart, and the options."""
        if len(arguments) > len(self.names):
            raise TypeError(f"'{self.name}' takes {len(self.names)} argument(s); got {len(arguments)}")
        bound = dict(zip(self.names, arguments, strict=False))
        options: dict[str, Any] = {}
        for name, value in keywords.items():
            if name in bound:
                raise TypeError(f"'{self.name}' got '{name}' twice")
            if name in self.names:
                bound[name] = value
            elif name in ("num_warps", "num_stages", *self._options):
                options[name] = value
            else:
                raise TypeError(f"'{self.name}' has no parameter '{name}'; it has {', '.join(self.names)}")
        leaves: dict[str, _Argument] = {}
        for leaf in self.leaves:
            name, *path = leaf.replace("]", "").split("[")
            value = bound.get(name, self.defaults.get(name, _MISSING))
            if value is _MISSING:
                raise TypeError(f"'{self.name}' needs '{name}'")
            place = name
            for index in map(int, path):
                count = self._counts[place]
                if not isinstance(value, tuple | list) or len(cast("Any", value)) != count:
                    raise TypeError(f"'{place}' of '{self.name}' must be a tuple of {count}; got {value!r}")
                value, place = cast("Any", value)[index], f"{place}[{index}]"
            leaves[leaf] = _Argument(value)
        return leaves, options

    def _family(self, bound: Mapping[str, _Argument], options: Mapping[str, Any]) -> _Family:
        closest: list[str] | None = None
        for family in self.families:
            obstacles = family.obstacles(bound, options)
            if not obstacles:
                return family
            if closest is None or len(obstacles) < len(closest):
                closest = obstacles
        raise Miss(f"the library has no variant of '{self.name}' for this launch: {'; '.join(closest or [])}")

    def _launch(self, grid: Any, arguments: Sequence[Any], keywords: dict[str, Any]) -> None:
        stream = keywords.pop("stream", None)
        bound, options = self._bound(arguments, keywords)
        family = self._family(bound, options)
        if callable(grid):
            grid = grid({name: argument.value for name, argument in bound.items()})
        x, y, z = _sizes_of(grid, self.name)
        for parameter in family.slots:
            array = bound[parameter["name"]].array
            if parameter.get("written") and array is not None and array.is_constant:
                raise LaunchError(f"'{self.name}' writes '{parameter['name']}', but its array is read-only")
        sizes = (ctypes.c_uint32 * 3)(x, y, z)
        devices = {argument.array.device for argument in bound.values() if argument.array is not None}
        if devices and None not in devices:
            status = _on_gpu(family, sizes, stream, bound, devices)
        elif len(devices) > 1:
            raise Miss(f"arrays of '{self.name}' are on a GPU, and others are in memory")
        else:
            status = _here(family, sizes, x * y * z, bound)
        if status in _NO_CODE:
            raise Miss(_message())
        if status:
            raise LaunchError(f"'{self.name}' failed ({status}): {_message()}")


def _sizes_of(grid: Any, name: str) -> tuple[int, int, int]:
    """The three sizes of a grid: an integer, or one to three of them; further sizes of 1 are left out."""
    try:
        sizes = [_size(size) for size in (grid if hasattr(grid, "__iter__") and getattr(grid, "ndim", 1) else (grid,))]
    except TypeError:
        sizes = []
    if not sizes or {*sizes[3:]} - {1} or min(sizes) < 0 or max(sizes) > _MAX_SIZE:
        raise LaunchError(
            f"the grid of '{name}' must be one to three sizes, integers from 0 to {_MAX_SIZE}; got {grid!r}"
        )
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _size(size: Any) -> int:
    if isinstance(size, bool):
        raise TypeError
    return operator.index(size)


def _on_gpu(family: _Family, sizes: Any, stream: Any, bound: Mapping[str, _Argument], devices: set[Any]) -> int:
    """Launch on the stream, by default PyTorch's current one; with the arrays' device current."""
    torch = sys.modules.get("torch")
    numbers = devices - {-1}
    if stream is None:
        address = torch.cuda.current_stream(*numbers).cuda_stream if torch is not None and numbers else 0
    else:
        address = getattr(stream, "cuda_stream", getattr(stream, "ptr", stream))
    head = ctypes.c_void_p(address), sizes
    if torch is not None and numbers:
        with torch.cuda.device(*numbers):
            return family.bound("launch", bound)(*head)
    return family.bound("launch", bound)(*head)


def _here(family: _Family, sizes: Any, total: int, bound: Mapping[str, _Argument]) -> int:
    """Run all programs: on this thread for a moment, and then on one for each processor."""
    if not total:
        return 0
    number, run = ctypes.c_int64, family.bound("run", bound)
    if family.ordered and total > 1:
        return _beside(run, sizes, total)
    end = total if threads() == 1 else 1
    begin = time.perf_counter_ns()
    status = run(sizes, number(0), number(end))
    while not status and end < total and time.perf_counter_ns() - begin < _ALONE:
        first, end = end, min(2 * end, total)
        status = run(sizes, number(first), number(end))
    if status or end == total:
        return status
    chunk = max(1, (total - end) // (4 * threads()))
    starts: Iterator[int] = iter(range(end, total, chunk))
    statuses: list[int] = []

    def work() -> None:
        while not statuses:
            first = next(starts, None)  # One atomic step of CPython.
            if first is None:
                return
            status = run(sizes, number(first), number(min(first + chunk, total)))
            if status:
                statuses.append(status)

    helpers = [threading.Thread(target=work) for _ in range(threads() - 1)]
    for helper in helpers:
        helper.start()
    work()
    for helper in helpers:
        helper.join()
    return statuses[0] if statuses else 0


def _beside(run: Callable[..., int], sizes: Any, total: int) -> int:
    """Run programs that may wait for each other: they begin in their order on one thread, and on further threads while
    none of those that have begun ends."""
    number, numbers = ctypes.c_int64, iter(range(total))
    statuses: list[int] = []
    ended: list[int] = []

    def work() -> None:
        while not statuses and (first := next(numbers, None)) is not None:
            status = run(sizes, number(first), number(first + 1))
            (statuses if status else ended).append(status)

    helpers, count, before = [threading.Thread(target=work)], 0, -1
    while helper := next((helper for helper in helpers[:count] if helper.is_alive()), None) or (
        not count and helpers[0]
    ):
        if len(ended) == before:
            helpers += [threading.Thread(target=work) for _ in range(min(count, _MAX_THREADS - count))]
        for fresh in helpers[count:]:
            try:
                fresh.start()
            except RuntimeError:  # Limits of the process: programs that run may end, and others begin after them.
                if not count:
                    raise
                break
            count += 1
        del helpers[count:]
        before = len(ended)
        helper.join(_TICK)
    return statuses[0] if statuses else 0


_count = 0


def threads() -> int:
    """The threads that run a kernel: by default one for each processor of this process."""
    global _count
    if not _count:
        available = getattr(os, "sched_getaffinity", None)
        _count = len(available(0)) if available is not None else os.cpu_count() or 1
    return _count


def set_threads(count: int) -> None:
    """Run kernels from now on with this number of threads, the launching one included. Raises `ValueError` for anything
    but an integer of 1 or more."""
    global _count
    if type(count) is not int or count < 1:
        raise ValueError(f"the number of threads must be an integer of 1 or more; got {count!r}")
    _count = count


_libraries: list[Any] = []


def _library() -> Any:
    """The shared object, opened at the first launch."""
    if not _libraries:
        path = os.path.join(FOLDER, f"{name}.so")
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            raise LaunchError(f"{path} cannot be opened: {error}") from None
        _libraries.append(library)
    return _libraries[0]


def _message() -> str:
    function = _library()[f"{_symbol}_error"]
    function.restype = ctypes.c_char_p
    return function().decode(errors="replace")


def _read() -> tuple[str, dict[str, Kernel]]:
    path = os.path.join(FOLDER, "manifest.json")
    if not os.path.exists(path):  # In the package that builds libraries.
        return "", {}
    with open(path, encoding="utf-8") as file:
        manifest = json.load(file)
    if manifest["format"] != FORMAT:
        raise ImportError(f"{FOLDER} has the format {manifest['format']!r}, which this loader does not read")
    by_kernel: dict[str, list[dict[str, Any]]] = {}
    for family in manifest["families"]:
        by_kernel.setdefault(family["kernel"], []).append(family)
    by_name = {
        kernel: Kernel(kernel, [_Family(family) for family in families], families[0]["defaults"])
        for kernel, families in by_kernel.items()
    }
    return manifest["name"], by_name


name, kernels = _read()
_symbol: Final = "".join(c if c.isalnum() else "_" for c in name)


def __getattr__(attribute: str) -> Kernel:
    try:
        return kernels[attribute]
    except KeyError:
        raise AttributeError(f"the library has no kernel '{attribute}'; it has {', '.join(kernels)}") from None


def __dir__() -> list[str]:
    return [*kernels, "Kernel", "LaunchError", "Miss", "TensorDescriptor", "set_threads", "threads"]
