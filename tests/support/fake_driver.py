"""A fake driver that records its calls, so that the runtime is tested without a GPU."""

import ctypes
import operator
import sys
import types
from collections.abc import Iterator

import pytest

from ziggurat.backend.devices import driver


class Status(int):
    name = "CUDA_SUCCESS"


class Failure(Status):
    def __new__(cls, name: str, number: int = 1):
        result = super().__new__(cls, number)
        result.name = name
        return result


OK = Status(0)


class Handle(tuple):
    def __int__(self) -> int:
        return 0x1234


class Names:
    """An enum of the driver: every name is a member."""

    def __getattr__(self, name: str) -> str:
        return name


class Stream(tuple):
    """A stream: its kind and its address."""

    def __int__(self) -> int:
        return self[1]


class FakeDriver(types.ModuleType):
    """Records launches; `memory[pointer]` holds what is copied; `context` is the current one, `count` the number of
    devices."""

    Failure = Failure

    def __init__(self) -> None:
        super().__init__("cuda.bindings.driver")
        self.launches: list[dict] = []
        self.loads: list[bytes] = []
        self.freed: list[int] = []
        self.context, self.count, self.allocated = 0, 2, 0x100000
        self.stack: list[int] = []
        self.launch_status: list[Status] = []
        self.load_failure: tuple[Status, bytes] | None = None
        self.parameters = 0
        self.sizes: list[int] = []
        self.devices: dict[int, int | None] = {}  # by the first address of a page; those of no page are the first's
        self.captured: set[int] = set()  # the streams that are captured
        self.capture_mode = "CU_STREAM_CAPTURE_MODE_GLOBAL"
        self.done: list[tuple] = []  # what was asked of the device's memory, and launches among it
        for name in (
            "CUdevice_attribute CUfunction_attribute CUjit_option CUtensorMapDataType "
            "CUtensorMapSwizzle CUtensorMapInterleave CUtensorMapL2promotion CUtensorMapFloatOOBfill "
            "CUlaunchAttributeID CUstreamCaptureMode"
        ).split():
            setattr(self, name, Names())
        self.CUlaunchConfig = self.CUlaunchAttribute = self.CUlaunchAttributeValue = types.SimpleNamespace
        self.cuuint64_t = self.cuuint32_t = int
        self.attributes = {
            "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR": 9,
            "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR": 0,
            "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448,
            "CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK": 65536,
            "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT": 3,
            "CU_DEVICE_ATTRIBUTE_CLOCK_RATE": 1980000,
            "CU_FUNC_ATTRIBUTE_NUM_REGS": 40,
            "CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK": 1024,
            "CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES": 0,
            "CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES": 0,
        }
        self.set_attributes: dict[str, int] = {}

    def cuInit(self, flags):
        return (OK,)

    def cuDeviceGetCount(self):
        return OK, self.count

    def cuPointerGetAttribute(self, actual, attribute, pointer):
        """The C function, whose results are where it is told to put them."""
        device = self.devices.get(pointer.value & ~0xFFF, 0)
        if attribute != 9 or device is None:
            return 1
        actual._obj.value = device
        return 0

    def cuDriverGetVersion(self):
        return OK, 13000

    def cuDeviceGet(self, number):
        return OK, number

    def cuDeviceGetName(self, length, device):
        return OK, b"FAKE GPU\0\0"

    def cuDeviceGetAttribute(self, name, device):
        return OK, self.attributes[name]

    def cuFuncGetAttribute(self, name, function):
        return OK, self.attributes[name]

    def cuFuncSetAttribute(self, function, name, value):
        self.set_attributes[name] = value
        return (OK,)

    def cuDevicePrimaryCtxRetain(self, device):
        return OK, 100 + device

    def cuCtxGetCurrent(self):
        return OK, self.context

    def cuCtxSetCurrent(self, context):
        self.context = context
        return (OK,)

    def cuCtxPushCurrent(self, context):
        self.stack.append(self.context)
        self.context = context
        return (OK,)

    def cuCtxPopCurrent(self):
        self.context, popped = self.stack.pop(), self.context
        return OK, popped

    def cuCtxGetDevice(self):
        return OK, self.context % 100

    def cuCtxSynchronize(self):
        return (self.launch_status.pop() if self.launch_status else OK,)

    def cuStreamSynchronize(self, stream):
        return (OK,)

    def CUstream(self, address):
        return Stream(("stream", address))

    def cuStreamIsCapturing(self, stream):
        return OK, int(stream in self.captured)

    def cuThreadExchangeStreamCaptureMode(self, mode):
        self.capture_mode, before = mode, self.capture_mode
        return OK, before

    def cuModuleLoadDataEx(self, code, count, keys, values):
        if self.load_failure is not None:
            status, log = self.load_failure
            values[0][: len(log)] = log
            return status, None
        self.loads.append(code)
        return OK, Handle(("module", self.context))

    def cuModuleUnload(self, module):
        return (OK,)

    def cuModuleGetFunction(self, module, name):
        return OK, Handle(("function", name, module[1]))

    def cuMemAlloc(self, size):
        if self.captured and self.capture_mode != "CU_STREAM_CAPTURE_MODE_RELAXED":
            return Failure("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", 900), None
        self.allocated += 4096
        return OK, self.allocated

    def cuMemFree(self, pointer):
        self.freed.append(pointer)
        return (OK,)

    def cuMemcpyHtoDAsync(self, to, source, size, stream):
        self.copied = ctypes.string_at(source, size)
        return (OK,)

    def cuMemcpyDtoHAsync(self, to, source, size, stream):
        ctypes.memmove(to, self.copied, size)
        return (OK,)

    def cuMemsetD8Async(self, pointer, value, size, stream):
        self.done.append(("set", pointer, value, size))
        return (OK,)

    def cuMemcpyDtoDAsync(self, to, source, size, stream):
        self.done.append(("copy", to, source, size))
        return (OK,)

    def cuLaunchKernel(self, function, x, y, z, threads, ty, tz, shared, stream, pointers, extra):
        if min(map(operator.index, (x, y, z))) < 0:
            raise OverflowError("can't convert negative value to unsigned int")
        if max(y, z) > 65535:
            return (Failure("CUDA_ERROR_INVALID_VALUE"),)
        if self.context != function[2]:
            return (Failure("CUDA_ERROR_INVALID_CONTEXT", 201),)
        if self.launch_status:
            return (self.launch_status.pop(),)
        if 0 in (x, y, z):
            return (Failure("CUDA_ERROR_INVALID_VALUE"),)
        sizes = self.sizes or [8] * self.parameters
        array = (ctypes.c_void_p * len(sizes)).from_address(pointers)
        values = [ctypes.string_at(address, size) for address, size in zip(array, sizes, strict=True)]
        self.done.append(("launch", threads))
        self.launches.append(
            {
                "grid": (x, y, z),
                "threads": threads,
                "shared": shared,
                "stream": stream,
                "values": values,
                "function": function,
            }
        )
        return (OK,)

    def cuLaunchKernelEx(self, config, function, pointers, extra):
        grid = (config.gridDimX, config.gridDimY, config.gridDimZ)
        block = (config.blockDimX, config.blockDimY, config.blockDimZ)
        assert config.numAttrs == len(config.attrs)
        status = self.cuLaunchKernel(function, *grid, *block, config.sharedMemBytes, config.hStream, pointers, extra)
        if not status[0]:
            self.launches[-1]["attributes"] = {item.id: vars(item.value) for item in config.attrs}
        return status

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, function, threads, shared):
        return OK, 2

    def cuOccupancyMaxActiveClusters(self, function, config):
        self.asked = {name: getattr(config, name) for name in ("gridDimX", "blockDimX", "sharedMemBytes")}
        return OK, 5

    def cuTensorMapEncodeTiled(self, *arguments):
        self.encoded = arguments
        buffer = ctypes.create_string_buffer(bytes(range(128)), 128)
        return OK, types.SimpleNamespace(getPtr=lambda: ctypes.addressof(buffer), kept=buffer)


CACHES = (driver.cuda, driver._handle, driver._attribute, driver._primary, driver.device_count)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """The fake driver in the place of cuda.bindings.driver."""
    result = FakeDriver()
    monkeypatch.setitem(sys.modules, "cuda", types.ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", types.ModuleType("cuda.bindings"))
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", result)
    monkeypatch.setattr(driver, "_library", lambda: result)
    torch = sys.modules.get("torch")
    if torch is not None:  # On a machine with a GPU, tests before may have put it into use.
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    for cache in CACHES:
        cache.cache_clear()
    driver.STREAMS.clear()
    yield result
    for cache in CACHES:
        cache.cache_clear()
    driver.STREAMS.clear()


@pytest.fixture
def failed():
    """Makes a status of the driver by its name."""
    return Failure
