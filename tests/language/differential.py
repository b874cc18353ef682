"""A launch repeated on another machine, a GPU or a simulated one, and compared with what the interpreter gave.

The arrays lie there as they do here: whole, with all memory that a view is of, as well aligned, and with guards around
them. Integers and data movement have to give the same bits; `tests/support/accuracy.py` has the bounds of the rest.
Where there is a seed, tensors go through random layouts on the way (`tests/support/random_layouts.py`).
"""

from __future__ import annotations

import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import pytest
from accuracy import Bound, bounds
from isolated import Image, Isolated
from random_layouts import scatter

import ziggurat as zg
from ziggurat.backend.ptx.sass import assembled
from ziggurat.backend.simulator.shared import SimulationError
from ziggurat.compiler.compiled import Compiled
from ziggurat.kernels.arguments import bind
from ziggurat.transforms.gpu import gpu_passes
from ziggurat.transforms.gpu.hazards import hazards

Array = np.ndarray[Any, Any]

WARPS = (1, 4, 8)


class NotHere(Exception):
    """The machine cannot run this launch; the text has the reason."""


class Machine(Protocol):
    """A machine that runs compiled kernels and returns the arrays. `repeated` names its count of launches."""

    target: str
    repeated: str

    def run(
        self, compiled: Compiled, grid: tuple[int, ...], images: Sequence[Image], arguments: Sequence[Any]
    ) -> list[Array]: ...


class Gpu:
    """The first GPU, used from a process of its own."""

    repeated = "repeated"

    def __init__(self, target: str = "sm_90a") -> None:
        self.target = target
        self.device = Isolated()

    def run(self, compiled, grid, images, arguments):
        return self.device.run(compiled.binary, grid, images, arguments)


class Simulated:
    """The emitted LLVM text, thread by thread, on the host; see `backend/simulator/simulate.py`."""

    target = "sm_90a"
    repeated = "repeated as emitted"
    is_optimized = False

    def run(self, compiled, grid, images, arguments):
        memory = [image.memory(image.bytes).copy() for image in images]
        pointers = [argument for argument in arguments if isinstance(argument, tuple)]
        if len(set(pointers)) != len(memory) or len(pointers) != len(memory) or any(offset for _, offset in pointers):
            raise NotHere("a view of an array, or one array twice")
        if any(isinstance(argument, float | np.floating) for argument in arguments):
            raise NotHere("a float as an argument")
        if len(grid) and int(np.prod(grid)) > 32:
            raise NotHere("many programs")
        if any(image.size > 1 << 15 for image in images):
            raise NotHere("too large to simulate")
        placed_arguments = [
            memory[a[0]].view(type_.pointee.dtype) if isinstance(a, tuple) else a
            for a, type_ in zip(arguments, compiled.parameters, strict=True)
        ]
        try:
            compiled.simulate[grid](*placed_arguments, optimized=self.is_optimized)
        except zg.TargetError as error:
            raise NotHere(f"not {self.repeated}: {_known(error.summary)}") from None
        return memory


class Optimized(Simulated):
    """The text after LLVM's passes, in which a false promise of the emitted text shows."""

    repeated = "repeated as optimized"
    is_optimized = True


class Assembled:
    """NVIDIA's assembler, which runs nothing: it assembles the PTX for sm_80, sm_90a and a later target."""

    target = "sm_90a"
    repeated = "assembled"

    def run(self, compiled, grid, images, arguments):
        others = [
            zg.compile(compiled.stages["triton"], target=target, num_warps=compiled.num_warps)
            for target in ("sm_80", "sm_100a")
        ]
        for binary in (*others, compiled):
            assert hazards(binary.stages["gpu"]) == []
            try:
                assembled(binary.ptx, binary.target)
            except zg.LaunchError as error:
                raise zg.KernelRuntimeError(error.summary) from None
        raise NotHere(self.repeated)


@contextmanager
def random_layouts(seed: int | None) -> Iterator[None]:
    """Convert tensors to random layouts of this seed, if any, in kernels compiled inside the `with`."""
    before = gpu_passes.PHASES
    if seed is not None:
        assigning = ("assign", dict(gpu_passes.PLACE)["assign"])
        gpu_passes.PHASES = gpu_passes.replaced("assign", assigning, ("scatter", lambda op, _: scatter(op, seed)))
    try:
        yield
    finally:
        gpu_passes.PHASES = before


MACHINES: dict[str, tuple[Callable[[], Machine], ...]] = {
    "gpu": (Gpu,), "simulated": (Simulated, Optimized), "assembled": (Assembled,),
}  # fmt: skip


class Differential:
    """Repeats launches on machines of one target. `counts` has their number, and the reasons for skipped ones."""

    def __init__(
        self, machines: Sequence[Machine], same: Callable[[Array, Array], Array], seed: int | None = None,
        every: bool = False,
    ) -> None:  # fmt: skip
        self.machines = machines
        self.same = same
        self.seed = seed
        self.every = every
        self.counts: Counter[str] = Counter()
        self._in_test = ("", 0)

    def start(self, kernel: Any, arguments: Sequence[Any], constants: Mapping[str, Any]) -> Launch:
        """The launch with its arrays as they are now: before it is run on the host."""
        signature, _, values = kernel.specialized(bind(kernel, arguments, constants))
        return Launch(self, kernel, kernel.model_for(signature), values)

    def drawn(self) -> list[tuple[int, int | None]]:
        """The warps, 1, 4 or 8, and the seed of the layouts, if any: others for each test, and for each launch of
        it, but always the same. With `every`, all counts of warps."""
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        count = self._in_test[1] + 1 if self._in_test[0] == test else 0
        self._in_test = (test, count)
        number = zlib.crc32(test.encode()) + count
        seed = None if self.seed is None else self.seed + number
        return [(warps, seed) for warps in (WARPS if self.every else (WARPS[number % len(WARPS)],))]


class Launch:
    """One launch: its memory before it, and where each argument lies in it."""

    def __init__(self, of: Differential, kernel: Any, model: zg.Op, values: Sequence[Any]) -> None:
        self.of, self.kernel, self.model, self.values = of, kernel, model, values
        self.roots: list[Array] = []
        self.images: list[Image] = []
        self.arguments: list[Any] = []
        for value in values:
            if not isinstance(value, np.ndarray):
                self.arguments.append(value)
                continue
            root = value
            while isinstance(root.base, np.ndarray):
                root = root.base
            number = next((n for n, other in enumerate(self.roots) if other is root), len(self.roots))
            if number == len(self.roots):
                self.roots.append(root)
                self.images.append(Image.of(_bytes(root), _address(root)))
            self.arguments.append((number, _address(value) - _address(root)))

    def check(self, grid: Any, unordered: Sequence[int]) -> None:
        """Run it on the machine, and compare with what the arrays hold now.

        What depends on the order of the programs is not compared: the arguments `unordered`, by number.
        """
        __tracebackhide__ = True
        sizes = (grid,) if isinstance(grid, int) else tuple(grid({}) if callable(grid) else grid)
        if 0 in sizes:
            return
        for warps, seed in self.of.drawn():
            self._check(sizes, unordered, warps, seed)

    def _check(self, sizes: tuple[int, ...], unordered: Sequence[int], warps: int, seed: int | None) -> None:
        __tracebackhide__ = True
        what = f"{self.kernel.name} with {warps} warp(s)" + ("" if seed is None else f", layouts of seed {seed}")
        try:
            compiled = self._compiled(warps, seed)
        except NotHere as error:
            self.of.counts[str(error)] += 1
            return
        for machine in self.of.machines:
            self._on(machine, compiled, sizes, unordered, what)

    def _on(
        self, machine: Machine, compiled: Compiled, sizes: tuple[int, ...], unordered: Sequence[int], what: str
    ) -> None:
        __tracebackhide__ = True
        what = f"{what}, {machine.repeated}"
        try:
            after = machine.run(compiled, sizes, self.images, self.arguments)
        except NotHere as error:
            self.of.counts[str(error)] += 1
            return
        except (zg.KernelRuntimeError, SimulationError) as error:
            pytest.fail(f"{what}: {error}\n{compiled.stages['gpu']}", pytrace=False)
        self.of.counts[machine.repeated] += 1
        extents = bounds(self.model)
        for number, (root, memory) in enumerate(zip(self.roots, after, strict=True)):
            touched = np.zeros(memory.size, np.uint8)
            skipped = False
            for index, (argument, value) in enumerate(zip(self.arguments, self.values, strict=True)):
                if not isinstance(value, np.ndarray) or argument[0] != number:
                    continue
                offset = argument[1]
                _over(touched, value, offset)[...] = 1
                skipped = skipped or index in unordered
                if not skipped:
                    actual = np.ndarray(value.shape, value.dtype, memory.data, offset, value.strides)
                    shared = [p for p, a in enumerate(self.arguments) if isinstance(a, tuple) and a[0] == number]
                    bound = max((extents[p] for p in shared if p in extents), key=lambda b: b.relative, default=None)
                    self._compare(actual, value, bound, f"{what}, argument {index}", compiled)
            beside = (memory != _bytes(root)) & (touched == 0)
            if beside.any() and not skipped:
                pytest.fail(f"{what} writes beside a view: byte {np.flatnonzero(beside)[0]}", pytrace=False)

    def _compiled(self, warps: int, seed: int | None) -> Compiled:
        try:
            with random_layouts(seed):
                # Products are rounded as the interpreter does: then all bits are compared.
                return zg.compile(self.model, target=self.of.machines[0].target, num_warps=warps, contract=False)
        except zg.ResourceError:
            if seed is None:
                raise
            raise NotHere("the random layouts need too much shared memory") from None

    def _compare(self, actual: Array, value: Array, bound: Bound | None, what: str, compiled: Compiled) -> None:
        __tracebackhide__ = True
        good = self.of.same(actual, value)
        if bound is not None and value.dtype.kind not in "biu":
            good |= bound.near(actual, value)
        if good.all():
            return
        places = [tuple(map(int, place)) for place in np.argwhere(~good)[:8]]
        differences = "; ".join(f"{place}: {actual[place]!r}, expected {value[place]!r}" for place in places)
        pytest.fail(
            f"{what}: {(~good).sum()} of {good.size} differ ({bound or 'exact'}): {differences}\n"
            f"{compiled.stages['gpu']}",
            pytrace=False,
        )


def _address(array: Array) -> int:
    return array.__array_interface__["data"][0]


def _bytes(root: Array) -> Array:
    return root.ravel(order="K").view(np.uint8)


def _over(memory: Array, view: Array, offset: int) -> Array:
    """The bytes of a view's elements in memory."""
    return np.ndarray((*view.shape, view.itemsize), np.uint8, memory.data, offset, (*view.strides, 1))


def _known(text: str) -> str:
    """The function or the instruction that an instruction's text is about."""
    match = re.search(r"@\"?[\w.$]+", text)
    about = text.partition(" know ")[2]
    return match[0] if match else text if about.startswith("the type") else about.split(" ")[0]
