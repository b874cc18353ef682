"""The CUDA driver: devices, contexts, streams, and kernels loaded from binaries.

The caller's current context is used; where there is none, the primary context of a device, which is the one that
CUDA's run time, and so torch and CuPy, use. cuda.bindings is imported when a device is first asked for.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import attrs

from ziggurat.backend.cuda.binary import Binary
from ziggurat.backend.cuda.failures import ASSEMBLY, failure, out_of_resources
from ziggurat.backend.ptx.lines import refused_at
from ziggurat.codemodel.errors import InternalError, LaunchError, ResourceError, TargetError, ZigguratError, shown
from ziggurat.codemodel.gpu.targets import PORTABLE_CTAS, target_for

_LOG_BYTES = 16384
_DEVICE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL


@functools.cache
def cuda() -> Any:
    """The module `cuda.bindings.driver`, with the driver started. Raises `LaunchError` if there is none."""
    try:
        driver: Any = importlib.import_module("cuda.bindings.driver")
    except ImportError:
        raise LaunchError(
            "kernels run on a GPU through cuda-bindings, which is not installed", hint="pip install cuda-bindings"
        ) from None
    try:
        status = driver.cuInit(0)[0]
    except RuntimeError as error:  # The driver's library is not there.
        raise LaunchError(
            f"the NVIDIA driver cannot be loaded: {error}", hint="launch on NumPy arrays, which need no driver"
        ) from None
    if status:
        raise failure(status.name, "starting the NVIDIA driver")
    return driver


def is_here() -> bool:
    """Whether this machine has a GPU and its driver."""
    try:
        return device_count() > 0
    except ZigguratError:
        return False


def check(result: tuple[Any, ...], doing: str) -> Any:
    """The values that a call of the driver gave: none, one, or a tuple. Raises the error for its status."""
    status, *values = result
    if status:
        raise failure(status.name, doing)
    return None if not values else values[0] if len(values) == 1 else tuple(values)


@attrs.frozen
class Device:
    """A GPU, by its number in the driver's order. Reading a property asks the driver."""

    number: int

    def attribute(self, name: str) -> int:
        """A property by the end of its name in `CUdevice_attribute`: "MULTIPROCESSOR_COUNT"."""
        return _attribute(self.number, name)

    @property
    def name(self) -> str:
        """The name of the model: "NVIDIA H200"."""
        text: bytes = check(cuda().cuDeviceGetName(100, _handle(self.number)), "asking for the device's name")
        return text.split(b"\0")[0].decode()

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability: (9, 0)."""
        return self.attribute("COMPUTE_CAPABILITY_MAJOR"), self.attribute("COMPUTE_CAPABILITY_MINOR")

    @property
    def target(self) -> str:
        """The target to compile for: "sm_90a". From 9.0 on it is the one of this architecture alone ("a")."""
        return target_for(*self.capability)

    @property
    def max_shared(self) -> int:
        """Shared memory that a CTA can have, in bytes."""
        return self.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")


@functools.cache
def _handle(number: int) -> Any:
    count = device_count()
    if not 0 <= number < count:
        raise LaunchError(f"there is no device {number}: there are {count}")
    return check(cuda().cuDeviceGet(number), "opening a device")


@functools.cache
def _attribute(number: int, name: str) -> int:
    driver = cuda()
    attribute = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return int(check(driver.cuDeviceGetAttribute(attribute, _handle(number)), f"asking a device for {name}"))


@functools.cache
def device_count() -> int:
    """The number of devices."""
    return int(check(cuda().cuDeviceGetCount(), "counting devices"))


def pointer_device(address: int) -> int | None:
    """The device that owns the memory at an address; None if the driver knows of none."""
    number = ctypes.c_int()
    status = _library().cuPointerGetAttribute(ctypes.byref(number), _DEVICE_ORDINAL, ctypes.c_uint64(address))
    return None if status else number.value


@functools.cache
def _library() -> Any:
    """The driver's library, for calls that cuda.bindings gets wrong: 13.3 gives device 0 for every address."""
    cuda()
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


def driver_version() -> str:
    """The newest CUDA version that the driver knows: "13.0"."""
    version = int(check(cuda().cuDriverGetVersion(), "asking for the driver's version"))
    return f"{version // 1000}.{version % 1000 // 10}"


@functools.cache
def _primary(number: int) -> Any:
    return check(cuda().cuDevicePrimaryCtxRetain(_handle(number)), "opening a device's context")


def current_context() -> Any:
    """The current context. If the thread has none, the first device's primary context becomes current."""
    driver = cuda()
    context = check(driver.cuCtxGetCurrent(), "asking for the current context")
    if int(context) == 0:
        context = _primary(0)
        check(driver.cuCtxSetCurrent(context), "making a context current")
    return context


def current_device() -> Device:
    """The device of the current context."""
    current_context()
    return Device(int(check(cuda().cuCtxGetDevice(), "asking for the current device")))


@contextmanager
def on_device(number: int | None) -> Generator[Any, None, None]:
    """Make a device's context current for a while: the current one if it belongs to the device, else the primary
    one."""
    driver = cuda()
    if number is None or number == current_device().number:
        yield current_context()
        return
    context = _primary(number)
    check(driver.cuCtxPushCurrent(context), "making a context current")
    try:
        yield context
    finally:
        check(driver.cuCtxPopCurrent(), "going back to the context before")


# Streams.


class _Streams(dict[int, Any]):
    """Stream objects by their address, made once: building one costs as much as a third of a launch."""

    def __missing__(self, address: int) -> Any:
        if len(self) > 1000:
            self.clear()
        stream = self[address] = cuda().CUstream(address)
        return stream


STREAMS = _Streams()


class _Own(threading.local):
    address: int = 0


OWN_STREAM = _Own()


def own_stream(device: int | None = None) -> int:
    """The address of this thread's stream for arrays of no other library, on all devices: the default stream, 0,
    outside of `using_stream`."""
    return OWN_STREAM.address


@contextmanager
def using_stream(address: int) -> Generator[None, None, None]:
    """Let launches of this thread on `DeviceArray`s, and copies of these, go to a stream for a while."""
    before = own_stream()
    OWN_STREAM.address = address
    try:
        yield
    finally:
        OWN_STREAM.address = before


def stream_address(stream: Any) -> int:
    """The address of a stream: an address itself, a stream of torch or CuPy, or an object with `__cuda_stream__`."""
    if type(stream) is int and stream >= 0:
        return stream
    for name in ("cuda_stream", "ptr"):
        address = getattr(stream, name, None)
        if isinstance(address, int):
            return address
    protocol: Any = getattr(stream, "__cuda_stream__", None)
    if protocol is None:
        raise LaunchError(f"stream must be an address, or a stream of torch or CuPy; got {shown(stream)}")
    version_and_address: Any = protocol() if callable(protocol) else protocol
    return int(version_and_address[1])


def synchronize(kernel: str | None = None) -> None:
    """Wait for all work of the current device. Raises the error of a kernel that failed.

    `kernel` names the only one that can have failed.
    """
    current_context()
    status = cuda().cuCtxSynchronize()[0]
    if status:
        raise failure(status.name, "waiting for the device", kernel, certain=kernel is not None)


# Kernels.


@attrs.frozen(eq=False, slots=False)
class Loaded:
    """A binary loaded into a context, by the context's address.

    `otherwise` gives the kernel for arguments that have no tensor maps, if a launch makes maps for this one.
    """

    binary: Binary
    context: int
    function: Any = attrs.field(repr=False)
    module: Any = attrs.field(repr=False)
    otherwise: Callable[[], Loaded] | None = attrs.field(default=None, repr=False)

    @functools.cached_property
    def launch(self) -> Callable[..., Any]:
        """`cuLaunchKernel`, or a function that is called alike and launches with the binary's attributes and memory."""
        from ziggurat.backend.cuda.scratch import launching
        from ziggurat.backend.cuda.tensormap import Described

        launch, binary = self._plain_launch(), self.binary
        if binary.persistent and not binary.maps:
            raise InternalError(f"'{binary.title}' takes programs in turn, but has no tensor maps")
        if binary.scratch:
            count = len(binary.parameters) + 3 * binary.persistent + len(binary.maps)
            launch = launching(launch, self.context, binary.scratch, count)
        return Described(launch, self) if binary.maps else launch

    def _plain_launch(self) -> Callable[..., Any]:
        launch, ctas = self._launch_of_ctas(), self.binary.num_ctas
        if ctas == 1:
            return launch

        def launch_clusters(function: Any, x: int, *rest: Any) -> Any:
            return launch(function, x * ctas, *rest)

        return launch_clusters

    def _launch_of_ctas(self) -> Callable[..., Any]:
        driver, names = cuda(), self.binary.launched
        if not names:
            return driver.cuLaunchKernel
        attributes = [_attribute_of_launch(driver, name) for name in names]

        def launch(function: Any, x: int, y: int, z: int, threads: int, ty: int, tz: int, *rest: Any) -> Any:
            shared, stream, pointers, extra = rest
            config = driver.CUlaunchConfig()
            config.gridDimX, config.gridDimY, config.gridDimZ = x, y, z
            config.blockDimX, config.blockDimY, config.blockDimZ = threads, ty, tz
            config.sharedMemBytes, config.hStream = shared, stream
            config.attrs, config.numAttrs = attributes, len(attributes)
            return driver.cuLaunchKernelEx(config, function, pointers, extra)

        return launch

    def _ask(self, name: str) -> int:
        driver = cuda()
        attribute = getattr(driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        return int(
            check(driver.cuFuncGetAttribute(attribute, self.function), f"asking '{self.binary.title}' for {name}")
        )

    @functools.cached_property
    def programs_at_once(self) -> int:
        """The number of programs that the device runs at once: CTAs, or clusters of them."""
        driver, binary, what = cuda(), self.binary, f"asking for the occupancy of '{self.binary.title}'"
        if binary.num_ctas > 1:
            # A cluster runs on one GPC, whose SMs may be no multiple of its CTAs. The code says how many these are.
            config = driver.CUlaunchConfig()
            config.gridDimX, config.gridDimY, config.gridDimZ = binary.num_ctas, 1, 1
            config.blockDimX, config.blockDimY, config.blockDimZ = binary.threads, 1, 1
            config.sharedMemBytes = binary.shared
            return max(1, int(check(driver.cuOccupancyMaxActiveClusters(self.function, config), what)))
        each = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(self.function, binary.threads, binary.shared)
        return max(1, int(check(each, what))) * current_device().attribute("MULTIPROCESSOR_COUNT")

    @property
    def registers(self) -> int:
        """Registers of a thread."""
        return self._ask("NUM_REGS")

    @property
    def local_bytes(self) -> int:
        """Local memory of a thread in bytes: spilled registers, and the stack."""
        return self._ask("LOCAL_SIZE_BYTES")

    @property
    def max_threads(self) -> int:
        """The largest number of threads that a CTA of this kernel can have."""
        return self._ask("MAX_THREADS_PER_BLOCK")

    @property
    def shared(self) -> int:
        """Dynamic and static shared memory of a CTA, in bytes."""
        return self.binary.shared + self._ask("SHARED_SIZE_BYTES")

    def too_large(self) -> ResourceError:
        """The error that tells the resources a CTA of this kernel needs, and those of the device."""
        device = current_device()
        return out_of_resources(
            self.binary.title,
            threads=self.binary.threads,
            registers=self.registers,
            shared=self.shared,
            max_threads=self.max_threads,
            register_file=device.attribute("MAX_REGISTERS_PER_BLOCK"),
            max_shared=device.max_shared,
        )


class DriverCode:
    """A binary, and what was loaded of it, by context."""

    def __init__(self, binary: Binary) -> None:
        self.binary = binary
        self.contexts: dict[int, Loaded] = {}

    def loaded(self, context: int, otherwise: Callable[[], Loaded] | None = None) -> Loaded:
        """The kernel in the current context, `context`, loaded once. `otherwise` is that of `Loaded`."""
        if context not in self.contexts:
            self.contexts[context] = load(self.binary, otherwise)
        return self.contexts[context]


def _attribute_of_launch(driver: Any, name: str) -> Any:
    """The driver's attribute of a launch by its name in `Binary.launched`."""
    value, kinds = driver.CUlaunchAttributeValue(), driver.CUlaunchAttributeID
    attribute = driver.CUlaunchAttribute()
    if name == "pdl":
        attribute.id = kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        value.programmaticStreamSerializationAllowed = 1
    else:
        attribute.id = kinds.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        value.cooperative = 1
    attribute.value = value
    return attribute


def load(binary: Binary, otherwise: Callable[[], Loaded] | None = None) -> Loaded:
    """Load a kernel into the current context; PTX is assembled by the driver. `otherwise` is that of `Loaded`.

    Raises `LaunchError` if the device has another target, `ResourceError` if it has too few resources for a CTA, and
    `TargetError` with the assembler's log if the driver rejects the code.
    """
    driver = cuda()
    context = current_context()
    module = _load_module(driver, binary)
    name = binary.symbol.encode()
    function = check(driver.cuModuleGetFunction(module, name), f"finding '{binary.symbol}' in its own code")
    loaded_binary = Loaded(binary, int(context), function, module, otherwise)
    if binary.threads > loaded_binary.max_threads or loaded_binary.shared > current_device().max_shared:
        raise loaded_binary.too_large()
    if loaded_binary.shared > 48 * 1024:  # More than that has to be requested.
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        check(driver.cuFuncSetAttribute(function, attribute, binary.shared), f"shared memory for '{binary.title}'")
    if binary.num_ctas > PORTABLE_CTAS:
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
        check(driver.cuFuncSetAttribute(function, attribute, 1), f"a cluster of {binary.num_ctas} CTAs")
    return loaded_binary


def _load_module(driver: Any, binary: Binary) -> Any:
    code = binary.code.encode() + b"\0" if isinstance(binary.code, str) else binary.code
    log = bytearray(_LOG_BYTES)
    options = driver.CUjit_option
    settings: dict[Any, Any] = {
        options.CU_JIT_ERROR_LOG_BUFFER: log,
        options.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: len(log),
    }
    if b"\t.loc\t" in code:
        # Profilers then show the lines of the kernel. Code and time of assembly stay the same.
        settings[options.CU_JIT_GENERATE_LINE_INFO] = 1
    status, module = driver.cuModuleLoadDataEx(code, len(settings), list(settings), list(settings.values()))
    if not status:
        return module
    message = log.split(b"\0")[0].decode(errors="replace").strip()
    title, target, device = binary.title, binary.target, current_device()
    if status.name == "CUDA_ERROR_NO_BINARY_FOR_GPU" or (target != device.target and "target" in message.lower()):
        raise LaunchError(
            f"'{title}' was compiled for {target}, and {device.name} is {device.target}",
            hint=f"compile it with target={device.target!r}" + (f"; the driver says: {message}" if message else ""),
        )
    if status.name == "CUDA_ERROR_UNSUPPORTED_PTX_VERSION":
        raise LaunchError(
            f"the driver (CUDA {driver_version()}) is too old for the PTX of '{title}'",
            hint="install a newer driver; it says: " + message,
        )
    if status.name in ("CUDA_ERROR_INVALID_PTX", "CUDA_ERROR_INVALID_IMAGE", "CUDA_ERROR_INVALID_SOURCE"):
        raise TargetError(
            f"the driver's assembler refuses '{title}' ({status.name}):\n{message or '(it does not say why)'}",
            refused_at(binary.code, message) if isinstance(binary.code, str) else None,
            hint=ASSEMBLY,
        )
    raise failure(status.name, "loading the code", title)
