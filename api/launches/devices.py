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
from ziggurat.codemodel.types import ScalarType
from ziggurat.kernels.kernel import Kernel

if TYPE_CHECKING:
    from ziggurat.backend.reference.devices import DeviceArray, QueuedLaunch
    from ziggurat.backend.simulator.devices import QueuedSimulation

_ALIGNED = 256  # Bytes to a multiple of which arrays are aligned, as those of CUDA's allocator are.
_MAX_DEVICES = 64
Array = np.ndarray[Any, np.dtype[Any]]


@public
def devices(count: int, *, seed: int = 0) -> Devices:
    """Several devices without a GPU, whose launches run at once: by the reference interpreter, or simulated.

        with zg.devices(2) as d:
            x = [device.array(values) for device in d]
            for rank, device in enumerate(d):
                with device:
                    kernel[grid](d.addresses(x), RANK=rank)

    Launches within `with device:` are queued; they run when the block ends, and by `run()`. `seed` chooses the order in
    which the programs of all devices take turns. A race between two programs, and programs that wait for ever, raise
    `KernelRuntimeError` with the lines of both, or `SimulationError`. Raises `LaunchError` for a count that is not from
    1 to 64.
    """
    if type(count) is not int or not 1 <= count <= _MAX_DEVICES:
        raise LaunchError(f"the number of devices must be an integer from 1 to {_MAX_DEVICES}; got {shown(count)}")
    if type(seed) is not int:
        raise LaunchError(f"'seed' must be an integer; got {shown(seed)}")
    return Devices(count, seed)


class Devices:
    """The devices that `zg.devices` makes: `d[r]`, `len(d)`, `for device in d`."""

    def __init__(self, count: int, seed: int) -> None:
        self.seed = seed
        self.arrays: list[DeviceArray] = []
        self._devices = [Device(self, rank) for rank in range(count)]
        self._launches: list[QueuedLaunch | QueuedSimulation] = []

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

    def add(self, launch: QueuedLaunch | QueuedSimulation) -> None:
        """Queue a launch on its device."""
        self._launches.append(launch)

    @public
    def run(self) -> None:
        """Run the launches that are queued, those of all devices at once, and wait for their end.

        The launches of one device run one after the other. Raises the error of a program, `KernelRuntimeError` or
        `SimulationError` for a race and for a deadlock, and `LaunchError` for more programs than 4096, and where some
        launches are simulated and others are not.
        """
        from ziggurat.backend.reference.devices import QueuedLaunch, run_together

        launches, self._launches = self._launches, []
        interpreted = [launch for launch in launches if isinstance(launch, QueuedLaunch)]
        if len(interpreted) == len(launches):
            run_together(interpreted, self.arrays, self.seed)
            return
        from ziggurat.backend.simulator.devices import QueuedSimulation, simulate_together

        if interpreted:
            raise LaunchError(
                f"the launches of several devices must all be simulated or none; '{interpreted[0].title}' is not",
                hint="call run() between, or launch all of them by compiled.simulate[grid](…)",
            )
        simulate_together([s for s in launches if isinstance(s, QueuedSimulation)], self.arrays, self.seed)


class Device:
    """One of several devices. Launches within `with device:` are queued on it."""

    def __init__(self, devices: Devices, rank: int) -> None:
        self.devices, self.rank = devices, rank
        self._outer: list[Any] = []

    def __repr__(self) -> str:
        return f"<device {self.rank} of {len(self.devices)}>"

    def __enter__(self) -> Device:
        self._outer.append(Kernel.queue)
        Kernel.queue = self._add
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        Kernel.queue = self._outer.pop()

    def _add(self, launch: QueuedLaunch | QueuedSimulation) -> None:
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
