"""Launches of a library on the GPU of the current context, as LLVM text: `zg_launch`.

It does what `backend/cuda` does for launches from Python: loads code into a context once, asks for shared memory,
encodes tensor maps, makes those of matrices that a kernel loads by TMA, gives persistent kernels the sizes of the grid
and as many CTAs as run at once, and scratch memory to those that make tensor maps themselves. CUDA's driver is opened
when the first kernel is launched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ziggurat.backend.llvm.functions import Function, Global, Place, Record, Struct, define, moved
from ziggurat.backend.llvm.routines import Number
from ziggurat.backend.shipping.launches import fail, fill, obstacle, row, text
from ziggurat.backend.shipping.structures import (
    APART,
    CODE,
    COOPERATIVE,
    DEPENDENT,
    FAMILY,
    INVALID_VALUE,
    LOADED,
    MAP,
    MAX_RANK,
    NO_BINARY,
    NOT_FOUND,
    NOT_INITIALIZED,
    NOT_SUPPORTED,
    OUT_OF_MEMORY,
    PARAMETER,
    PERSISTENT,
    TENSOR,
    VARIANT,
)
from ziggurat.codemodel.gpu.fragments import MAP_BYTES
from ziggurat.codemodel.gpu.targets import PORTABLE_CTAS

_FUNCTIONS: Final = (
    "cuInit", "cuCtxGetCurrent", "cuCtxSetCurrent", "cuCtxGetDevice", "cuDeviceGet", "cuDevicePrimaryCtxRetain",
    "cuDeviceGetAttribute", "cuModuleLoadData", "cuModuleGetFunction", "cuFuncSetAttribute",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor", "cuOccupancyMaxActiveClusters", "cuMemAllocAsync",
    "cuMemFreeAsync", "cuTensorMapEncodeTiled", "cuLaunchKernelEx",
)  # fmt: skip
_CUDA: Final = Global("zg_cuda", Struct(**dict.fromkeys(_FUNCTIONS, "ptr")))
_NAMES: Final = {name: text(f"zg_{name}", name) for name in _FUNCTIONS}
_STARTED: Final = Global("zg_started", "i32")
_LOCK: Final = Global("zg_lock", "i32")
_LIBRARY: Final = text("zg_library", "libcuda.so.1")
_ASK: Final = text("zg_ask", "cuGetProcAddress_v2")
_NO_DRIVER: Final = text("zg_no_driver", "the NVIDIA driver's library libcuda.so.1 cannot be opened")
_OLD_DRIVER: Final = text("zg_old_driver", "the NVIDIA driver is older than CUDA 12.0")
_SHARED: Final = text("zg_shared", "descriptors that a kernel stores and loads through must not share memory")
_NO_MEMORY: Final = text("zg_no_launch_memory", "there is no memory for what the driver keeps of a kernel")
_NO_MAP: Final = text("zg_no_map", "a matrix that the kernel loads by TMA has no tensor map")
_VERSION: Final = 12000  # Of CUDA, whose functions are asked for.
_NOW: Final = 2  # RTLD_NOW

# Numbers of cuda.h.
_MULTIPROCESSORS, _MAJOR, _MINOR = 16, 75, 76  # CUdevice_attribute
_MAX_SHARED, _ANY_CLUSTER = 8, 14  # CUfunction_attribute
_COOPERATIVE, _DEPENDENT = 2, 6  # CUlaunchAttributeID
_PROMOTION: Final = 2  # CU_TENSOR_MAP_L2_PROMOTION_L2_128B
_CONFIG: Final = Struct(
    x="i32", y="i32", z="i32", threads="i32", threads_y="i32", threads_z="i32", shared="i32", gap="i32",
    stream="ptr", attributes="ptr", count="i64",
)  # fmt: skip
_ATTRIBUTE: Final = 72  # Bytes of a CUlaunchAttribute: its number, 4 of padding, its value.
_MOST_PROGRAMS: Final = (1 << 31) - (1 << 20)  # Of a persistent kernel: see `tensormap.py`.


def _call(f: Function, name: str, *arguments: Number) -> Number:
    """The status of a call of the driver."""
    record = _CUDA.kind
    assert isinstance(record, Struct)
    return f.call_at("i32", record.at(f.value("ptr", _CUDA))[name], *arguments)


def _demand(f: Function, name: str, *arguments: Number) -> None:
    """Call the driver, and return its status unless that is 0."""
    status = _call(f, name, *arguments)
    with f.when(status.test("ne", 0)):
        fail(f, status, _NAMES[name])


def _return_failure(f: Function, status: Number) -> None:
    """Return the status of a function of this module, which has set the message, unless that is 0."""
    with f.when(status.test("ne", 0)):
        f.give(status)


def _under_lock(f: Function) -> Callable[[], None]:
    """Wait for the lock; the result frees it."""
    with f.loop() as loop:
        loop.stop(f.place(_LOCK).claim(0, 1))
        f.call("usleep", 1)
    return lambda: f.place(_LOCK).store(0)


@define("i32")
def _open(f: Function) -> None:
    """Open the driver."""
    library = f.call("dlopen", _LIBRARY, _NOW)
    with f.when(library.test("eq", 0)):
        fail(f, NOT_INITIALIZED, _NO_DRIVER)
    ask = f.call("dlsym", library, _ASK)
    with f.when(ask.test("eq", 0)):
        fail(f, NOT_INITIALIZED, _OLD_DRIVER)
    answer = f.local("i32")
    for number, name in enumerate(_FUNCTIONS):
        place = moved(f.value("ptr", _CUDA), 8 * number)
        operands = f.value("ptr", _NAMES[name]), place, f.value("i32", _VERSION), f.value("i64", 0), answer.pointer
        status = f.call_at("i32", ask, *operands)
        with f.when(status.test("ne", 0)):
            fail(f, status, _NAMES[name])
        with f.when(f.load("ptr", place).test("eq", 0)):
            fail(f, NOT_FOUND, _NAMES[name])
    _demand(f, "cuInit", f.value("i32", 0))
    f.give(0)


@define("i32", "ptr ptr")
def _context(f: Function, context: Number, capability: Number) -> None:
    """Write the current context and ten times its device's capability. Without a context, the first device's primary
    one becomes current."""
    with f.when(f.place(_STARTED).load().test("eq", 0)):
        free = _under_lock(f)
        status = f.local("i32", 0)
        with f.when(f.place(_STARTED).load().test("eq", 0)):
            status.set(f.call(_open))
            f.place(_STARTED).store(status.get().test("eq", 0).to("zext", "i32"))
        free()
        _return_failure(f, status.get())
    current, device, major, minor = Place(context, "ptr", 8), f.local("i32"), f.local("i32"), f.local("i32")
    _demand(f, "cuCtxGetCurrent", context)
    with f.when(current.get().test("eq", 0)):
        _demand(f, "cuDeviceGet", device.pointer, f.value("i32", 0))
        _demand(f, "cuDevicePrimaryCtxRetain", context, device.get())
        _demand(f, "cuCtxSetCurrent", current.get())
    _demand(f, "cuCtxGetDevice", device.pointer)
    for place, number in ((major, _MAJOR), (minor, _MINOR)):
        _demand(f, "cuDeviceGetAttribute", place.pointer, f.value("i32", number), device.get())
    Place(capability, "i64", 8).set((major.get() * 10 + minor.get()).to("zext", "i64"))
    f.give(0)


@define("i32", "ptr ptr ptr")
def _load(f: Function, at: Number, context: Number, result: Number) -> None:
    """Write what was loaded of code in a context, once for each context."""
    code = CODE.at(at)
    entry = f.local("ptr")
    entry.set(code.place("loaded").load())
    with f.loop() as loop:
        loop.stop(entry.get().test("eq", 0))
        with f.when(LOADED.at(entry.get())["context"].to("ptrtoint", "i64").test("eq", context.to("ptrtoint", "i64"))):
            Place(result, "ptr", 8).set(entry.get())
            f.give(0)
        entry.set(LOADED.at(entry.get())["following"])
    module, function = f.local("ptr"), f.local("ptr")
    _demand(f, "cuModuleLoadData", module.pointer, code["image"])
    _demand(f, "cuModuleGetFunction", function.pointer, module.get(), code["symbol"])

    def set_attribute(number: int, value: Number) -> None:
        _demand(f, "cuFuncSetAttribute", function.get(), f.value("i32", number), value)

    with f.when(code["shared"].test("ne", 0)):
        set_attribute(_MAX_SHARED, code["shared"].to("trunc", "i32"))
    with f.when(code["ctas"].test("sgt", PORTABLE_CTAS)):
        set_attribute(_ANY_CLUSTER, f.value("i32", 1))
    memory = f.call("malloc", LOADED.size)
    with f.when(memory.test("eq", 0)):
        fail(f, OUT_OF_MEMORY, _NO_MEMORY)
    record = LOADED.at(memory)
    record["context"], record["function"], record["most"] = context, function.get(), 0
    with f.when((code["flags"] & PERSISTENT).test("ne", 0)):
        most = f.local("i32", 0)
        with f.when(code["ctas"].test("sgt", 1)):
            config = f.room(_CONFIG.size)
            unit = f.value("i32", 1)
            _configure(f, config, (code["ctas"].to("trunc", "i32"), unit, unit), code, f.value("ptr", None))
            _demand(f, "cuOccupancyMaxActiveClusters", most.pointer, function.get(), config)
        with f.when(code["ctas"].test("eq", 1)):
            each, device, count = f.local("i32"), f.local("i32"), f.local("i32")
            threads = code["threads"].to("trunc", "i32")
            name = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
            _demand(f, name, each.pointer, function.get(), threads, code["shared"])
            _demand(f, "cuCtxGetDevice", device.pointer)
            _demand(f, "cuDeviceGetAttribute", count.pointer, f.value("i32", _MULTIPROCESSORS), device.get())
            most.set(each.get() * count.get())
        record["most"] = most.get().to("zext", "i64").call("llvm.umax", 1)
    record["following"] = code.place("loaded").load()
    code.place("loaded").store(memory)
    Place(result, "ptr", 8).set(memory)
    f.give(0)


def _configure(f: Function, at: Number, sizes: tuple[Number, Number, Number], code: Record, stream: Number) -> None:
    """Write a CUlaunchConfig without attributes."""
    f.clear(at, _CONFIG.size)
    config = _CONFIG.at(at)
    config["x"], config["y"], config["z"] = sizes
    config["threads"], config["threads_y"], config["threads_z"] = code["threads"].to("trunc", "i32"), 1, 1
    config["shared"], config["stream"] = code["shared"].to("trunc", "i32"), stream


@define("i32", "ptr ptr ptr ptr ptr")
def _encode(f: Function, result: Number, at: Number, base: Number, sizes: Number, strides: Number) -> None:
    """Encode a tensor map. Sizes and strides in elements are those of the axes, outermost first."""
    map_ = MAP.at(at)
    rank, width = map_["rank"], map_["bytes"]
    inner_sizes, inner_strides = f.room(8 * MAX_RANK), f.room(8 * MAX_RANK)
    box, ones = f.room(4 * MAX_RANK), f.room(4 * MAX_RANK)
    with f.count(rank) as loop:
        axis = rank - 1 - loop.index
        Place(moved(inner_sizes, loop.index << 3), "i64", 8).set(f.load("i64", moved(sizes, axis << 3)))
        side = f.load("i64", moved(map_.place("box0").pointer, loop.index << 3))
        Place(moved(box, loop.index << 2), "i32", 4).set(side.to("trunc", "i32"))
        Place(moved(ones, loop.index << 2), "i32", 4).set(1)
        with f.when(loop.index.test("ne", 0)):  # The innermost stride is 1.
            stride = f.load("i64", moved(strides, axis << 3)) * width
            Place(moved(inner_strides, (loop.index - 1) << 3), "i64", 8).set(stride)
    element, swizzle, fill_ = (map_[name].to("trunc", "i32") for name in ("element", "swizzle", "fill"))
    none, promotion = f.value("i32", 0), f.value("i32", _PROMOTION)
    f.give(
        _call(
            f, "cuTensorMapEncodeTiled", result, element, rank.to("trunc", "i32"), base, inner_sizes, inner_strides,
            box, ones, none, swizzle, promotion, fill_,
        )
    )  # fmt: skip


@define("i32", "ptr ptr ptr")
def _encode_of_launch(f: Function, result: Number, at: Number, values: Number) -> None:
    """Encode the tensor map of a matrix, given the values of the parameters."""
    map_ = MAP.at(at)
    tensor = f.room(TENSOR.size)
    sources: list[Number] = []
    for number in range(4):
        source, value = map_[f"source{number}"], f.local("i64")
        value.set(map_[f"constant{number}"])
        with f.unless(source.test("slt", 0)):
            value.set(f.load("i64", moved(values, source << 3)))
        sources.append(value.get())
    base, rows, columns, pitch = sources
    with f.when(rows.test("slt", 1) | columns.test("slt", 1) | pitch.test("slt", 1)):
        f.give(INVALID_VALUE)
    record = TENSOR.at(tensor)
    record["shape0"], record["shape1"], record["stride0"], record["stride1"] = rows, columns, pitch, 1
    shape, strides = record.place("shape0").pointer, record.place("stride0").pointer
    f.give(f.call(_encode, result, at, base.to("inttoptr", "ptr"), shape, strides))


@define("i1", "ptr ptr")
def _are_apart(f: Function, at: Number, slots: Number) -> None:
    """Whether two tensors share no element: their bytes do not overlap, or they are different columns of one matrix.
    This is `share_memory` of `backend/launch/descriptors.py`."""
    pair = APART.at(at)
    spans: list[tuple[Number, Number, Number, Number]] = []
    for prefix in ("", "other_"):
        tensor = f.load("ptr", moved(slots, pair[f"{prefix}slot"] << 3))
        rank, width = pair[f"{prefix}rank"], pair[f"{prefix}bytes"]
        shape, strides = (TENSOR.at(tensor).place(f"{name}0").pointer for name in ("shape", "stride"))
        end = f.local("i64", 1)
        with f.count(rank) as loop:
            size, stride = f.load("i64", moved(shape, loop.index << 3)), f.load("i64", moved(strides, loop.index << 3))
            end.set(end.get() + (size - 1) * stride)
        last = (rank - 1) << 3
        row_bytes = f.load("i64", moved(shape, last)) * width
        pitch = f.local("i64", 0)
        with f.when(rank.test("sgt", 1)):
            pitch.set(f.load("i64", moved(strides, last - 8)) * width)
        base = TENSOR.at(tensor)["base"].to("ptrtoint", "i64")
        spans.append((base, base + end.get() * width, row_bytes, pitch.get()))
    (low, high, row_bytes, pitch), (other_low, other_high, other_row_bytes, other_pitch) = spans
    with f.when(high.test("ule", other_low) | other_high.test("ule", low)):
        f.give(1)
    is_matrix = pair["rank"].test("eq", 2) & pair["other_rank"].test("eq", 2)
    with f.unless(is_matrix & pitch.test("eq", other_pitch) & pitch.test("sgt", 0)):
        f.give(0)
    # The distance, from 0 to the pitch.
    column = ((other_low - low).made("i64", f"srem i64 {other_low - low}, {pitch}", 0) + pitch) % pitch
    f.give(~(column.test("slt", row_bytes) | (column + other_row_bytes).test("sgt", pitch)))


@define("i32", "ptr ptr ptr ptr ptr")
def _start(f: Function, at: Number, context: Number, stream: Number, grid: Number, slots: Number) -> None:
    """Launch code."""
    code = CODE.at(at)
    with f.count(code["apart_count"]) as loop:
        are_apart = f.call(_are_apart, moved(code["apart"], loop.index * APART.size), slots)
        with f.unless(are_apart):
            fail(f, INVALID_VALUE, _SHARED)
    x, y, z = (f.load("i32", grid, 4 * axis) for axis in range(3))
    programs = x.to("zext", "i64") * y.to("zext", "i64") * z.to("zext", "i64")
    is_persistent, scratch = (code["flags"] & PERSISTENT).test("ne", 0), code["scratch"]

    def launch_other() -> None:
        other = code["other"]
        with f.when(other.test("eq", 0)):
            fail(f, INVALID_VALUE, _NO_MAP)
        f.give(f.call(_start, other, context, stream, grid, slots))

    with f.when(is_persistent & programs.test("ugt", _MOST_PROGRAMS)):
        launch_other()
    count, map_count = code["count"], code["map_count"]
    total = count + map_count + 5  # Three sizes of a grid, an address, and null.
    values, pointers = f.room(total << 3), f.room(total << 3)
    maps = f.room((count + map_count) * MAP_BYTES, 64)
    f.call(fill, code["parameters"], count, slots, values)
    with f.count(count) as loop:
        parameter, place = row(PARAMETER, code["parameters"], loop.index), moved(values, loop.index << 3)
        pointer = f.local("ptr")
        pointer.set(place)
        with f.unless(parameter["map"].test("eq", 0)):
            pointer.set(moved(maps, loop.index * MAP_BYTES))
            tensor = TENSOR.at(f.load("ptr", moved(slots, parameter["slot"] << 3)))
            shape, strides = (tensor.place(f"{name}0").pointer for name in ("shape", "stride"))
            status = f.call(_encode, pointer.get(), parameter["map"], tensor["base"], shape, strides)
            with f.when(status.test("ne", 0)):
                fail(f, status, _NAMES["cuTensorMapEncodeTiled"])
        Place(moved(pointers, loop.index << 3), "ptr", 8).set(pointer.get())
    number = f.local("i64")
    number.set(count)

    def append(pointer: Number) -> None:
        Place(moved(pointers, number.get() << 3), "ptr", 8).set(pointer)
        number.set(number.get() + 1)

    with f.when(is_persistent):
        for size in (x, y, z):
            place = moved(values, number.get() << 3)
            Place(place, "i64", 8).set(size.to("zext", "i64"))
            append(place)
    with f.count(map_count) as loop:
        place = moved(maps, (count + loop.index) * MAP_BYTES)
        status = f.call(_encode_of_launch, place, moved(code["maps"], loop.index * MAP.size), values)
        with f.when(status.test("ne", 0)):
            launch_other()
        append(place)
    loaded_at = f.local("ptr")
    free = _under_lock(f)
    status = f.call(_load, at, context, loaded_at.pointer)
    free()
    _return_failure(f, status)
    in_context = LOADED.at(loaded_at.get())
    memory = f.local("ptr")
    with f.when(scratch.test("ne", 0)):
        _demand(f, "cuMemAllocAsync", memory.pointer, programs * scratch, stream)
        place = moved(values, number.get() << 3)
        Place(place, "ptr", 8).set(memory.get())
        append(place)
    sizes = [f.local("i32") for _ in range(3)]
    for place, size in zip(sizes, (x, y, z), strict=True):
        place.set(size)
    with f.when(is_persistent):
        sizes[0].set(programs.call("llvm.umin", in_context["most"]).to("trunc", "i32"))
        sizes[1].set(1)
        sizes[2].set(1)
    config_at, attributes = f.room(_CONFIG.size), f.room(2 * _ATTRIBUTE)
    ctas = sizes[0].get() * code["ctas"].to("trunc", "i32")
    _configure(f, config_at, (ctas, sizes[1].get(), sizes[2].get()), code, stream)
    f.clear(attributes, 2 * _ATTRIBUTE)
    config = _CONFIG.at(config_at)
    config["attributes"] = attributes
    for flag, attribute in ((DEPENDENT, _DEPENDENT), (COOPERATIVE, _COOPERATIVE)):
        with f.when((code["flags"] & flag).test("ne", 0)):
            place = moved(attributes, config["count"] * _ATTRIBUTE)
            Place(place, "i32", 4).set(attribute)
            Place(moved(place, 8), "i32", 4).set(1)
            config["count"] = config["count"] + 1
    launched = _call(f, "cuLaunchKernelEx", config_at, in_context["function"], pointers, f.value("ptr", None))
    with f.when(scratch.test("ne", 0)):
        _demand(f, "cuMemFreeAsync", memory.get(), stream)
    with f.when(launched.test("ne", 0)):
        fail(f, launched, _NAMES["cuLaunchKernelEx"])
    f.give(0)


@define("i32", "ptr ptr ptr ptr", linkage="external")
def zg_launch(f: Function, family: Number, stream: Number, grid: Number, slots: Number) -> None:
    """Launch the first variant that fits with code for the device: 0, or a CUresult."""
    x, y, z = (f.load("i32", grid, 4 * axis) for axis in range(3))
    with f.when(x.test("eq", 0) | y.test("eq", 0) | z.test("eq", 0)):
        f.give(0)
    context, capability = f.local("ptr"), f.local("i64")
    _return_failure(f, f.call(_context, context.pointer, capability.pointer))
    reason = f.local("ptr")
    with f.count(FAMILY.at(family)["count"]) as loop:
        variant = row(VARIANT, FAMILY.at(family)["variants"], loop.index)
        reason.set(f.call(obstacle, variant["conditions"], variant["condition_count"], slots))
        loop.next(reason.get().test("ne", 0))
        with f.count(variant["code_count"]) as codes:
            at = moved(variant["codes"], codes.index * CODE.size)
            code, number = CODE.at(at), capability.get()
            codes.next(number.test("slt", code["low"]) | number.test("sgt", code["high"]))
            f.give(f.call(_start, at, context.get(), stream, grid, slots))
    with f.when(reason.get().test("ne", 0)):
        fail(f, NOT_SUPPORTED, reason.get())
    fail(f, NO_BINARY, FAMILY.at(family)["obstacle"])
