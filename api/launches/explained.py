"""The command line's `explain` of a launch: the cost on arrays of given shapes, beside the measured time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ziggurat.backend.cuda.device_memory import to_device
from ziggurat.backend.cuda.gpu_timing import do_bench
from ziggurat.backend.devices.driver import Device, current_device, is_here
from ziggurat.backend.launch.arrays import is_array
from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.backend.launch.grids import gpu_sizes
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.gpu.options import CPU
from ziggurat.compiler.explanation import explanation
from ziggurat.kernels.arguments import bind, is_tuple_of_arguments
from ziggurat.launches.gpu import numbers_of
from ziggurat.launches.inspected import compiled_for_launch
from ziggurat.launches.simulated import array_of, drawn
from ziggurat.transforms.cost.cost import Work, cost_of
from ziggurat.transforms.cost.grid_cost import Launch, work_of_grid

if TYPE_CHECKING:
    from ziggurat.kernels.kernel import Kernel


def report(kernel: Kernel, text: str, grid: Sequence[int], options: Mapping[str, Any]) -> str:
    """The explanation of a kernel for arguments such as "f32[1024], 1000, 64", with the cycles of the whole grid.

    On a machine with a GPU, also the least time of the launch on it, and the time that it takes.
    """
    arguments, sizes = drawn(text), gpu_sizes(tuple(grid), kernel.name)
    if is_here():
        options = {**options, "target": current_device().target}
    compiled, _, values = compiled_for_launch(kernel, bind(kernel, arguments, {}), options)
    if compiled.target == CPU:
        raise LaunchError("explain must have a GPU as its target; got the target 'cpu'")
    cost = cost_of(compiled.stages["gpu"])
    count = math.prod(sizes)
    work = work_of_grid(cost, Launch(sizes, numbers_of(values)))
    lines = [f"{count} programs: the iterations of a loop do not follow from the arguments"]
    if work is not None:
        each = work.times(1 / count).cycles
        lines = [
            f"{count} programs, cycles of an SM for each: " + ", ".join(f"{n} {c:.0f}" for n, c in each.items() if c)
        ]
    if is_here():
        data = sum(array.nbytes for array in map(array_of, values) if array is not None)
        lines.append(
            _times(
                kernel,
                grid,
                arguments,
                options,
                None if work is None else _least(work, count, cost.func.num_ctas, data),
            )
        )
    return "\n".join([explanation(compiled), *lines]) + "\n"


def _least(work: Work, count: int, ctas: int, data: int) -> dict[str, float]:
    """The least microseconds for each resource of the current device, at its highest clock, of programs of `ctas` CTAs.

    `work` is that of one CTA of each program, on one SM. Device memory moves each array once, or as much as the
    programs ask for.
    """
    device = current_device()
    rounds = -(-count * ctas // device.attribute("MULTIPROCESSOR_COUNT"))
    clock = device.attribute("CLOCK_RATE") / 1000
    least = {name: cycles / count * rounds / clock for name, cycles in work.cycles.items()}
    # Both edges of the clock, in kHz, move as many bits as the bus is wide.
    per_microsecond = 2 * device.attribute("MEMORY_CLOCK_RATE") / 1000 * device.attribute("GLOBAL_MEMORY_BUS_WIDTH") / 8
    return {**least, "device memory": min(data, ctas * work.moved) / per_microsecond}


def _times(
    kernel: Kernel, grid: Sequence[int], arguments: Sequence[Any], options: Mapping[str, Any], least: Any
) -> str:
    arguments_there = [_moved(value) for value in arguments]
    launch_options = {name: value for name, value in options.items() if name != "target"}
    measured = 1000 * do_bench(lambda: kernel[tuple(grid)](*arguments_there, **launch_options))
    device: Device = current_device()
    if least is None:
        return f"{device.name}: {measured:.1f} µs"
    limit = max(least, key=least.__getitem__)
    share = f"{100 * least[limit] / measured:.0f} % of it"
    return f"{device.name}: {measured:.1f} µs measured; {limit} takes at least {least[limit]:.1f}, {share}"


def _moved(value: Any) -> Any:
    """An argument with its arrays on the device."""
    if is_tuple_of_arguments(value):
        return tuple(map(_moved, value))
    if isinstance(value, TensorDescriptor):
        return TensorDescriptor(to_device(value.array), value.block)
    return to_device(value) if is_array(value) else value
