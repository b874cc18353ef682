"""Several devices on one machine without GPUs: `with zg.devices(2) as d:` (docs/guides/devices.md)."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from ziggurat.boundary import public
from ziggurat.codemodel.errors import LaunchError, shown
from ziggurat.codemodel.gpu.options import boolean
from ziggurat.codemodel.types import ScalarType
from ziggurat.kernels.kernel import Kernel

if TYPE_CHECKING:
    from ziggurat.backend.cpu.runtime.devices import QueuedNative
    from ziggurat.backend.reference.devices import DeviceArray, QueuedLaunch
    from ziggurat.backend.simulator.devices import QueuedSimulation

    Queued = QueuedLaunch | QueuedSimulation | QueuedNative

_ALIGNED = 256  # Bytes to a multiple of which arrays are aligned, as those of CUDA's allocator are.
_MAX_DEVICES = 64
Array = np.ndarray[Any, np.dtype[Any]]


@public
def devices(count: int, *, seed: int = 0, native: bool = False) -> Devices:
    """Several devices without a GPU, whose launches run at once: by the reference interpreter, simulated, or natively.

        with zg.devices(2) as d:
            x = [device.array(values) for device in d]
            for rank, device in enumerate(d):
                with device:
                    kernel[grid](d.addresses(x), RANK=rank)

    Launches within `with device:` are queued; they run when the block ends, and by `run()`. `seed` chooses the order in
    which the programs of all devices take turns. A race between two programs, and programs that wait for ever, raise
    `KernelRuntimeError` with the lines of both, or `SimulationError`. With `native`, code for this machine runs, each
    program on a thread: fast, in any order, and without reports of races. Raises `LaunchError` for a count that is not
    from 1 to 64.
    """
    if type(count) is not int or not 1 <= count <= _MAX_DEVICES:
        raise LaunchError(f"the number of devices must be an integer from 1 to {_MAX_DEVICES}; got {shown(count)}")
    if type(seed) is not int:
        raise LaunchError(f"'seed' must be an integer; got {shown(seed)}")
    return Devices(count, seed, boolean("native", native))


class Devices:
    """The devices that `zg.devices` makes: `d[r]`, `len(d)`, `for device in d`."""

    def __init__(self, count: int, seed: int, is_native: bool) -> None:
        self.seed, self.is_native = seed, is_native
        self.arrays: list[DeviceArray] = []
        self._devices = [Device(self, rank) for rank in range(count)]
        self._launches: list[Queued] = []

    def __len__(self) -> int:
        return len(self._devices)

    def __getitem__(self, rank: int) -> Device:
        return self._devices[rank]

    def __iter__(self) -> Iterator[Device]:
        return iter(self._devices)

    def __enter__(self) -> Devices:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.run()

    def addresses(self, arrays: Sequence[Any]) -> Array:
        """The addresses of arrays, an array of u64."""
        from ziggurat.backend.launch.arrays import address, as_array

        return np.array([address(as_array(array, "arrays")) for array in arrays], np.uint64)

    def add(self, launch: Queued) -> None:
        """Queue a launch on its device."""
        self._launches.append(launch)

    @public
    def run(self) -> None:
        """Run the launches that are queued, those of all devices at once, and wait for their end.

        The launches of one device run one after the other. Raises the error of a program, `KernelRuntimeError` or
        `SimulationError` for a race and for a deadlock, and `LaunchError` for more programs than 4096 (1024 of native
        code), and where launches are of different kinds.
        """
        from ziggurat.backend.cpu.runtime.devices import QueuedNative, run_at_once
        from ziggurat.backend.reference.devices import QueuedLaunch, run_together
        from ziggurat.backend.simulator.devices import QueuedSimulation, simulate_together

        launches, self._launches = self._launches, []
        interpreted = [launch for launch in launches if isinstance(launch, QueuedLaunch)]
        simulated = [launch for launch in launches if isinstance(launch, QueuedSimulation)]
        native = [launch for launch in launches if isinstance(launch, QueuedNative)]
        kinds = [kind for kind in (interpreted, simulated, native) if kind]
        if len(kinds) > 1:
            raise LaunchError(
                "the launches of several devices must all be simulated, all interpreted, or all native; "
                f"'{kinds[0][0].title}' and '{kinds[1][0].title}' are not of one kind",
                hint="call run() between, or launch all of them in one way",
            )
        if interpreted:
            run_together(interpreted, self.arrays, self.seed)
        elif simulated:
            simulate_together(simulated, self.arrays, self.seed)
        elif native:
            run_at_once(native, [shared.array for shared in self.arrays])


class Device:
    """One of several devices. Launches within `with device:` are queued on it."""

    def __init__(self, devices: Devices, rank: int) -> None:
        self.devices, self.rank = devices, rank
        self._outer: list[Device | None] = []

    def __repr__(self) -> str:
        return f"<device {self.rank} of {len(self.devices)}>"

    def __enter__(self) -> Device:
        self._outer.append(Kernel.queue)
        Kernel.queue = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        Kernel.queue = self._outer.pop()

    @property
    def is_native(self) -> bool:
        """Whether launches run native code."""
        return self.devices.is_native

    def add(self, launch: Queued) -> None:
        """Queue a launch here."""
        self.devices.add(attrs.evolve(launch, device=self.rank))

    def array(self, values: Any, name: str = "") -> Array:
        """A copy of an array, a number or nested lists of numbers in the device's memory: a NumPy array. `name` is for
        messages. Raises `LaunchError` for other values, and where the memory does not suffice."""
        from ziggurat.backend.launch.arrays import as_array, is_array

        try:
            source = as_array(values, "values") if is_array(values) else np.asarray(values)
        except ValueError:  # Of lists of unequal lengths.
            source = np.asarray(None)
        if source.dtype == object:
            raise LaunchError(f"array: 'values' must be an array, a number, or lists of them; got {shown(values)}")
        copy = self._empty(source.shape, source.dtype)
        copy[...] = source
        return self.share(copy, name)

    def zeros(self, shape: int | tuple[int, ...], dtype: Any, name: str = "") -> Array:
        """An array of zeros in the device's memory, of a dtype of the language or of NumPy. `name` is for messages.
        Raises `LaunchError` for another dtype or shape, and where the memory does not suffice."""
        try:
            element = dtype.dtype if isinstance(dtype, ScalarType) else np.dtype(dtype)
        except TypeError:
            raise LaunchError(f"zeros: 'dtype' must be one of the language or of NumPy; got {shown(dtype)}") from None
        return self.share(self._empty(shape, element), name)

    def share(self, array: Any, name: str = "") -> Any:
        """Let all launches reach the memory of an array, of any library, by its address. Gives the array."""
        from ziggurat.backend.launch.arrays import as_array
        from ziggurat.backend.reference.devices import DeviceArray

        self.devices.arrays.append(DeviceArray(as_array(array, "array"), name, self.rank))
        return array

    def _empty(self, shape: int | tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        from ziggurat.backend.launch.arrays import require_element

        try:
            sizes = tuple([operator.index(size) for size in (shape if isinstance(shape, tuple | list) else (shape,))])
        except TypeError:
            sizes = (-1,)
        if min(sizes, default=0) < 0:
            raise LaunchError(f"the shape of an array must be integers of 0 or more; got {shown(shape)}")
        require_element(dtype, "array")
        size = math.prod(sizes) * dtype.itemsize
        try:
            memory = np.zeros(size + _ALIGNED, np.uint8)
        except (MemoryError, ValueError):  # NumPy's for a size that no address space has.
            raise LaunchError(
                f"an array of {dtype} of shape {shown(shape)} must fit the memory; {size} bytes do not"
            ) from None
        start = -memory.__array_interface__["data"][0] % _ALIGNED
        return memory[start : start + size].view(dtype).reshape(sizes)
