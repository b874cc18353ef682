"""The steps from a Triton model to machine code, each as a way to run a launch: what `zg.bisect` compares.

The first step is the Triton model by the reference interpreter, which is taken to be right. A step of the interpreter
keeps every bit of the one before, unless its pass is known to round otherwise (`ROUNDS`). Code that is emitted has
functions of its own, such as `ex2.approx`, and rounds otherwise as well.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import attrs
import numpy as np
from numpy.lib.stride_tricks import as_strided

from ziggurat.backend.launch.arrays import address
from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.backend.launch.regions import span
from ziggurat.bisecting.apart import apart
from ziggurat.codemodel.errors import LaunchError, is_of_signal
from ziggurat.codemodel.gpu.options import CPU, CompileOptions
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.passes import Pass, Snapshot, run_passes
from ziggurat.codemodel.traits import SymbolTable
from ziggurat.transforms.simplify.demand import first_kernel

if TYPE_CHECKING:
    from ziggurat.compiler.compiled import Compiled
    from ziggurat.kernels.own_passes import OwnPass

# Passes that round otherwise, or sum in another order: docs/design/014-the-interpreter-on-the-gpu-tier.md.
ROUNDS = frozenset({"contract", "spread", "dots", "lower"})
PLACED = f"{CPU} allocate"  # After which each buffer of a CPU model has a place.
MAX_SECONDS = 3600  # Of a run of native code.
SIMULATED, OPTIMIZED, DEVICE, NATIVE = "emitted code", "LLVM's passes", "GPU", "native code"

Array = np.ndarray[Any, np.dtype[Any]]
Arrays = dict[str, Array]


def memory_of(array: Array) -> tuple[Array, int]:
    """A copy of the memory of an array, with zeros between its elements, and the place of the first one there."""
    low, high = span(array)
    memory, start = np.zeros(high - low, np.uint8), address(array) - low
    np.ndarray(array.shape, array.dtype, memory, start, array.strides)[...] = array
    return memory, start


def _copy(array: Array) -> Array:
    """A copy with the same strides: a kernel goes by them."""
    return np.ndarray(array.shape, array.dtype, *memory_of(array), array.strides)


@attrs.frozen(eq=False)
class Launch:
    """The launch that is looked at: its grid, and the names and values of its run-time arguments."""

    grid: tuple[int, int, int]
    names: Sequence[str]
    arguments: Sequence[Any]
    tolerant: bool = False
    seconds: float = math.inf  # After which a run is taken to have no end.

    def fresh(self) -> list[Any]:
        """The arguments, with copies of their arrays."""
        from ziggurat.backend.launch.arrays import as_array, is_array

        def copied(name: str, value: Any) -> Any:
            if isinstance(value, TensorDescriptor):
                return TensorDescriptor(_copy(as_array(value.host, name)), value.block)
            return _copy(as_array(value, name)) if is_array(value) else value

        return [copied(name, value) for name, value in zip(self.names, self.arguments, strict=True)]

    def arrays(self, arguments: Sequence[Any]) -> Arrays:
        """The arrays among arguments by name."""
        hosts = (value.host if isinstance(value, TensorDescriptor) else value for value in arguments)
        pairs = zip(self.names, hosts, strict=True)
        return {name: value for name, value in pairs if isinstance(value, np.ndarray)}

    def interpreted(self, model: Op) -> Arrays:
        """The arrays after a run of a model by the interpreter. Raises `TimeoutError` for one without an end."""
        from ziggurat.backend.reference.run import run

        arguments = self.fresh()
        seconds = self.seconds
        run(model, None, self.grid, arguments, names=self.names, tolerant=self.tolerant, seconds=seconds)
        return self.arrays(arguments)


@attrs.frozen(eq=False)
class Step:
    """A step: its name, and `of(model)`, which runs the launch by what the step makes of a model before it.

    `rounds` says that it may round otherwise than that model. A pass has its `transform`; `model` is what that has made
    of the model before it, and `failure` its error where it has failed.
    """

    name: str
    of: Callable[[Op], Arrays]
    rounds: bool = False
    transform: Callable[[Op], Op] | None = None
    model: Op | None = None
    failure: Exception | None = None


def gpu_steps(options: CompileOptions, model: Op, launch: Launch) -> Iterator[Step]:
    """The steps of a GPU's pipeline that change the model, and the code that is emitted, simulated."""
    from ziggurat.transforms.gpu.gpu_passes import phases_of, place

    snapshots: list[Snapshot] = []
    failure: Exception | None = None
    try:
        place(model, attrs.evolve(options, verify=True), snapshots)
    except Exception as error:
        if is_of_signal(error):
            raise
        failure = error
    steps = [step for phase in phases_of(options) for step in phase.passes]
    options = options_of(snapshots, options)
    before = model
    for (name, step), snapshot in zip(steps, snapshots, strict=False):
        if snapshot.model is not before:
            yield _pass(name, step, options, launch, snapshot.model)
        before = snapshot.model
    if failure is not None:
        name, step = steps[min(len(snapshots), len(steps) - 1)]
        yield attrs.evolve(_pass(name, step, options, launch), failure=failure)
        return
    yield from emitted(options, launch, model)


def own_steps(passes: Sequence[OwnPass], model: Op, launch: Launch) -> Iterator[Step]:
    """The passes on a Triton model that a kernel has of its own, as far as they change it."""
    yield from _changing([_own(own.name, own.function, launch) for own in passes], model)


def cpu_steps(model: Op, launch: Launch) -> Iterator[Step]:
    """The steps of a CPU's pipeline that change the model, and native code."""
    for step in _changing(_cpu_passes(launch), model):
        yield step
        if step.failure is not None:
            return
    yield _native(launch, model)


def _changing(passes: Iterable[Step], before: Op) -> Iterator[Step]:
    """The steps among passes, one after the other, that change a model, up to the first that fails."""
    for step in passes:
        assert step.transform is not None
        try:
            after = step.transform(before)
        except Exception as error:
            if is_of_signal(error):
                raise
            yield attrs.evolve(step, failure=error)
            return
        if after is not before:
            yield attrs.evolve(step, model=after)
        before = after


def _own(name: str, function: Pass, launch: Launch) -> Step:
    """A pass of a kernel's own as a step."""
    return _pass(name, lambda model, _: run_passes(model, [(name, function)], verify=True), None, launch)


def _cpu_passes(launch: Launch) -> Iterator[Step]:
    """The passes of a CPU's pipeline as steps."""
    from ziggurat.backend.cpu.code import CpuOptions
    from ziggurat.backend.cpu.compile import vector_bytes
    from ziggurat.transforms.cpu.cpu_passes import LOWER

    vector = vector_bytes(CpuOptions().resolved().features)
    for name, step in LOWER:
        yield _pass(f"{CPU} {name}", step, vector, launch)


def step_named(name: str | tuple[str, Pass], options: CompileOptions, launch: Launch) -> Step:
    """The step of a name, or a pass of one's own with its name. Raises `LaunchError` for other names."""
    from ziggurat.transforms.gpu.gpu_passes import phases_of

    if isinstance(name, tuple) and len(name) == 2 and callable(name[1]):
        return _own(str(name[0]), name[1], launch)
    passes = [_pass(name, step, options, launch) for phase in phases_of(options) for name, step in phase.passes]
    passes += _cpu_passes(launch)
    steps = {step.name: step for step in (*passes, *emitted(options, launch), _native(launch))}
    if not isinstance(name, str) or name not in steps:
        raise LaunchError(f"zg.bisect has no step {name!r}", hint=f"the steps are {', '.join(steps)}")
    return steps[name]


def _pass(name: str, step: Callable[[Any, Any], Op], argument: Any, launch: Launch, model: Op | None = None) -> Step:
    def transform(before: Op) -> Op:
        return step(before, argument)

    return Step(name, lambda before: launch.interpreted(transform(before)), name in ROUNDS, transform, model)


def emitted(options: CompileOptions, launch: Launch, source: Op | None = None) -> Iterator[Step]:
    """The code of a GPU model, before and after LLVM's passes, and on a GPU that the target fits. `source` is the
    Triton model, whose arguments a launch has."""
    from ziggurat.compiler.pipeline import compile_model

    @functools.lru_cache(maxsize=1)  # The steps run the code of one model.
    def code(model: Op) -> Compiled:
        return _taking(source, compile_model(model, attrs.evolve(options, verify=False)))

    yield Step(SIMULATED, lambda model: _simulated(code(model), launch, optimized=False), rounds=True)
    yield Step(OPTIMIZED, lambda model: _simulated(code(model), launch, optimized=True), rounds=True)
    if _has_gpu(options):
        yield Step(DEVICE, lambda model: _on_device(code(model), launch), rounds=True)


def _native(launch: Launch, source: Op | None = None) -> Step:
    from ziggurat.compiler.pipeline import compile_for_cpu

    def run(model: Op) -> Arrays:
        code = _taking(source, compile_for_cpu(model, CompileOptions(CPU), tolerant=launch.tolerant))

        def launched() -> Arrays:
            arguments = launch.fresh()
            code[launch.grid](*arguments)
            return launch.arrays(arguments)

        return apart(launched, min(launch.seconds, MAX_SECONDS))

    return Step(NATIVE, run, rounds=True)


def _taking(source: Op | None, code: Compiled) -> Compiled:
    """Compiled code that takes the arguments of a model before it: passes may change the blocks of descriptors."""
    from ziggurat.compiler.pipeline import arguments_of

    if not isinstance(source, SymbolTable):
        return code
    return attrs.evolve(code, arguments=arguments_of(source, first_kernel(source)))


def options_of(snapshots: Sequence[Snapshot], options: CompileOptions) -> CompileOptions:
    """The options with what the pipeline has chosen."""
    from ziggurat.transforms.gpu.gpu_passes import CHOSEN_AFTER, chosen_options

    at = next((snapshot.model for snapshot in snapshots if snapshot.name == CHOSEN_AFTER), None)
    return options if at is None else chosen_options(at, options)


def _simulated(code: Compiled, launch: Launch, optimized: bool) -> Arrays:
    arguments = launch.fresh()
    code.simulate[launch.grid](*arguments, optimized=optimized)
    return launch.arrays(arguments)


def _has_gpu(options: CompileOptions) -> bool:
    from ziggurat.backend.devices.driver import current_device, is_here

    return is_here() and current_device().target == options.target


def _on_device(code: Compiled, launch: Launch) -> Arrays:
    from ziggurat.backend.cuda.device_memory import to_device, to_host

    def there(value: Any) -> Any:
        if isinstance(value, TensorDescriptor):
            return TensorDescriptor(to_device(value.host), value.block)
        return value if not isinstance(value, np.ndarray) else to_device(span_of(cast("np.ndarray[Any, Any]", value)))

    here = launch.fresh()
    arguments = [there(value) for value in here]
    code[launch.grid](*arguments)
    back = [value.array if isinstance(value, TensorDescriptor) else value for value in arguments]
    arrays = launch.arrays(here)
    copies = {name: to_host(value) for name, value in zip(launch.names, back, strict=True) if name in arrays}
    return {name: as_before(copy, arrays[name]) for name, copy in copies.items()}


def span_of(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The memory of an array with gaps, from its first to its last element; an array without gaps as it is."""
    size = array.itemsize
    if array.flags.c_contiguous or any(stride < 0 or stride % size for stride in array.strides):
        return array
    last = sum((count - 1) * stride for count, stride in zip(array.shape, array.strides, strict=True))
    return as_strided(array, (1 + last // size,), (size,))


def as_before(copy: np.ndarray[Any, Any], array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy of an array's span with the shape and strides of the array."""
    return copy if copy.shape == array.shape else as_strided(copy, array.shape, array.strides)
