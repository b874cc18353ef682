"""Kernels loaded from binaries into a context of the CUDA driver."""

from __future__ import annotations

import functools
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import attrs

from ziggurat.backend.cuda.binary import Binary
from ziggurat.backend.devices.driver import check, cuda, current_context, current_device, driver_version
from ziggurat.backend.devices.failures import ASSEMBLY, failure, out_of_resources
from ziggurat.backend.ptx.bound import bounded
from ziggurat.backend.ptx.lines import refused_at
from ziggurat.codemodel.errors import InternalError, LaunchError, ResourceError, TargetError
from ziggurat.codemodel.gpu.targets import PORTABLE_CTAS

_LOG_BYTES = 16384


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
    """Load a kernel into the current context; PTX is assembled by the driver, with a bound on registers (`bound`).
    `otherwise` is that of `Loaded`.

    Raises `LaunchError` if the device has another target, `ResourceError` if it has too few resources for a CTA, and
    `TargetError` with the assembler's log if the driver rejects the code.
    """
    driver = cuda()
    codes = [_loaded(driver, binary, binary.code, otherwise)]

    def again(text: str) -> Loaded | None:
        try:
            codes.append(_loaded(driver, binary, text, otherwise))
        except TargetError:
            return None
        return codes[-1]

    (first,) = codes
    loaded_binary = first
    if isinstance(binary.code, str):
        resources = attrgetter("registers", "local_bytes")
        loaded_binary = bounded(first, again, resources, binary.code, first.shared, binary.target)
    for unused in (each for each in codes if each is not loaded_binary):
        check(driver.cuModuleUnload(unused.module), f"unloading '{binary.title}'")
    function = loaded_binary.function
    if binary.threads > loaded_binary.max_threads or loaded_binary.shared > current_device().max_shared:
        raise loaded_binary.too_large()
    if loaded_binary.shared > 48 * 1024:  # More than that has to be requested.
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        check(driver.cuFuncSetAttribute(function, attribute, binary.shared), f"shared memory for '{binary.title}'")
    if binary.num_ctas > PORTABLE_CTAS:
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
        check(driver.cuFuncSetAttribute(function, attribute, 1), f"a cluster of {binary.num_ctas} CTAs")
    return loaded_binary


def _loaded(driver: Any, binary: Binary, text: str | bytes, otherwise: Callable[[], Loaded] | None) -> Loaded:
    """A binary loaded into the current context, by its code or by another text of it."""
    context = int(current_context())
    module, name = _load_module(driver, binary, text), binary.symbol.encode()
    function = check(driver.cuModuleGetFunction(module, name), f"finding '{binary.symbol}' in its own code")
    return Loaded(binary, context, function, module, otherwise)


def _load_module(driver: Any, binary: Binary, text: str | bytes) -> Any:
    code = text.encode() + b"\0" if isinstance(text, str) else text
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
            refused_at(text, message) if isinstance(text, str) else None,
            hint=ASSEMBLY,
        )
    raise failure(status.name, "loading the code", title)
