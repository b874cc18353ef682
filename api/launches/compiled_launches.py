"""Launches of a compiled kernel on a GPU or on this machine, whose arguments are checked first."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ziggurat.backend.cuda.launch import devices_of, one_device
from ziggurat.backend.launch import checks
from ziggurat.backend.launch.arrays import address, as_array, elements, is_array, number_type, on_gpu
from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.backend.launch.device_arrays import reader_of, view
from ziggurat.backend.launch.grids import MAX_SPECIALIZATIONS, computed_grid, is_exact, padded, sizes_of
from ziggurat.backend.ptx.sass import assembled, tool
from ziggurat.boundary import no_faults, public
from ziggurat.codemodel.errors import LaunchError, TargetError
from ziggurat.codemodel.gpu.options import checked_option
from ziggurat.codemodel.types import SMALL, DescriptorType, PtrType, ScalarType, i1
from ziggurat.compiler.compiled import Argument, Compiled
from ziggurat.kernels.arguments import leaves


def checked(compiled: Compiled, arguments: Sequence[Any], keywords: Mapping[str, Any], *, in_memory: bool) -> list[Any]:
    """The arguments of a launch in order, with the components of tuples in their places. Arrays are in this machine's
    memory, or on a GPU.

    Raises `LaunchError` for an argument that the kernel was not compiled for.
    """
    values, names = list(leaves(arguments)), compiled.names
    bound, count = dict(zip(names, values, strict=False)), len(values)
    takes = ", ".join(map(str, compiled.arguments))
    for name, value in keywords.items():
        parts = [part for part in names if part.partition("[")[0] == name]
        if not parts:
            raise LaunchError(f"'{compiled.title}' has no run-time argument '{name}'", hint=f"it takes {takes}")
        if parts[0] in bound:
            raise LaunchError(f"'{compiled.title}' got '{name}' twice", hint=f"it takes {takes}")
        values = list(leaves([value]))
        bound.update(zip(parts, values, strict=False))
        count += len(values)
    if not count == len(bound) == len(names):
        raise LaunchError(
            f"'{compiled.title}' takes {len(names)} argument(s) ({takes}); got {count}",
            hint="leave out values that were compiled in",
        )
    for argument, name in zip(compiled.arguments, names, strict=True):
        _check(compiled.title, argument, name, bound[name], in_memory)
    return [bound[name] for name in names]


def _check(kernel: str, argument: Argument, name: str, value: Any, in_memory: bool) -> None:
    """Raise `LaunchError` unless a value has the type and the divisor that its argument is compiled for.

    The divisor is one of the address of an array, of the bytes of a row of a descriptor, or of an integer.
    """
    type_, divisor = argument.type, argument.divisibility

    def mismatch(expected: str, got: str, hint: str | None = None) -> LaunchError:
        return LaunchError(f"'{name}' of '{kernel}' is compiled for {expected}; got {got}", hint=hint)

    if type_ is None or isinstance(type_, DescriptorType):
        if not isinstance(value, TensorDescriptor):
            of = f" of type {type_}" if type_ is not None else ""
            raise mismatch(f"a zg.TensorDescriptor{of}", type(value).__name__)
        if type_ not in (None, value.type):
            raise mismatch(f"a zg.TensorDescriptor of type {type_}", f"one of type {value.type}")
        _check_place(kernel, name, value, in_memory)
        number, expected, got = value.row_bytes, f"rows of whole {divisor} bytes", f"rows of {value.row_bytes} bytes"
    elif isinstance(type_, PtrType):
        if isinstance(value, TensorDescriptor) or not (is_array(value) or on_gpu(value)):
            raise mismatch(f"an array of {type_.pointee}", type(value).__name__)
        element, number = _view(kernel, name, value, in_memory)
        if element != type_.pointee:
            raise mismatch(f"an array of {type_.pointee}", f"an array of {element}")
        expected, got = f"an address divisible by {divisor}", hex(number)
    else:
        assert isinstance(type_, ScalarType)
        scalar = number_type(value)
        if scalar is None:
            raise mismatch(f"a number of type {type_}", type(value).__name__)
        if type_.is_float:
            return
        if scalar.is_float or (type_ == i1) != (scalar == i1):
            raise mismatch(f"a number of type {type_}", repr(value))
        (low, high), number = type_.limits, int(value)
        if not low <= number <= high:
            raise mismatch(f"a number of type {type_} (from {low} to {high})", str(value))
        if argument.small and not 0 <= number < SMALL:
            raise mismatch(f"a number from 0 to {SMALL - 1}", str(value), f"compile it for {type_}")
        expected, got = f"a number divisible by {divisor}", str(value)
    if number % divisor:
        raise mismatch(expected, got, f"compile it for {type_} without zg.divisible, or give it an argument that is")


def _view(kernel: str, name: str, array: Any, in_memory: bool) -> tuple[ScalarType, int]:
    """The element type and the address of an array. Raises `LaunchError` for one that the kernel cannot reach."""
    if in_memory:
        host = as_array(array, name)
        return elements()[host.dtype], address(host)
    if reader_of(array) is None:
        raise LaunchError(
            f"'{name}' of '{kernel}' must be an array on a GPU",
            hint="copy it there: zg.to_device(array), or .cuda() of torch; or run the kernel without a GPU: "
            "compiled.simulate[grid](…)",
        )
    device = view(array, name)
    return device.element, device.address


def _check_place(kernel: str, name: str, descriptor: TensorDescriptor, in_memory: bool) -> None:
    """Raise `LaunchError` for a descriptor of an array that the kernel cannot reach."""
    if in_memory and descriptor.host is None:
        raise LaunchError(
            f"'{name}' of '{kernel}' must describe an array in memory; got one on a GPU",
            hint="describe a copy of the array in memory",
        )
    if not in_memory and descriptor.host is not None:
        raise LaunchError(
            f"'{name}' of '{kernel}' must describe an array on a GPU",
            hint="describe an array there: zg.TensorDescriptor(zg.to_device(array), …)",
        )


@public
def launch_here(compiled: Compiled, grid: Any, /, *arguments: Any, **keywords: Any) -> None:
    """Run a kernel that is compiled for this machine's CPU; see `Compiled.__getitem__`."""
    values = [
        as_array(value, "array") if is_array(value) else value
        for value in checked(compiled, arguments, keywords, in_memory=True)
    ]
    title = compiled.title
    sizes = padded(sizes_of(computed_grid(grid, title, {}) if callable(grid) else grid, title))
    if 0 not in sizes:
        within = functools.partial(no_faults, "running", lambda: compiled.stages.get("triton") or compiled.cpu, title)
        from ziggurat.backend.cpu.runtime.devices import QueuedNative, run_beside

        run_beside(QueuedNative(title, compiled.launcher, sizes, compiled.names, values, within))
        if not keywords:
            _remember(compiled, arguments)


def host_launcher(compiled: Compiled, grid: Any) -> Callable[..., None]:
    """The launcher over a grid on this machine's CPU. Launches after the first with such arguments are quick."""
    slow = functools.partial(launch_here, compiled, grid)
    if not is_exact(grid):
        return slow
    launcher = compiled.launchers.get(grid)
    if launcher is None:
        from ziggurat.backend.cpu.runtime.native import launcher_over

        sizes = padded(sizes_of(grid, compiled.title))
        launcher = compiled.launchers[grid] = launcher_over(sizes, compiled.plans, slow)
    return launcher


def _remember(compiled: Compiled, values: Sequence[Any]) -> None:
    """Make later launches with such arguments quick, if a table can tell what they were compiled for."""
    from ziggurat.backend.cpu.runtime.plans import Given, plan_of

    if len(compiled.plans) >= MAX_SPECIALIZATIONS:
        return
    rules = {1: 0, 16: checks.DIVISIBLE}
    if any(a.type is None or a.divisibility not in rules or a.small for a in compiled.arguments):
        return
    entries = [
        Given(name, value, argument.type, rules[argument.divisibility], declared=True)
        for name, value, argument in zip(compiled.names, values, compiled.arguments, strict=True)
    ]
    plan = plan_of(compiled.launcher, entries, {}, None, public(functools.partial(_ended, compiled)))
    if plan is not None:
        compiled.plans.append(plan)


def _ended(compiled: Compiled, record: bytes, grid: bytes, values: Sequence[Any], _: Sequence[str]) -> None:
    """Raise the error of a quick launch, or give its warnings."""
    from ziggurat.backend.cpu.runtime.launcher import GRID
    from ziggurat.backend.cpu.runtime.native import RECORD

    *numbers, notes = RECORD.unpack(record)
    arrays = [as_array(value, "array") if is_array(value) else value for value in values]
    code, sizes = compiled.launcher, GRID.unpack(grid)[:3]
    code.warn(code.strays(notes), sizes, compiled.names, arrays)
    if numbers[0]:
        raise code.error(numbers, sizes, compiled.names, arrays)


@public
def launch_on_gpu(
    compiled: Compiled, grid: Any, /, *arguments: Any, stream: Any = None, check: bool = False, **keywords: Any
) -> None:
    """Launch a kernel that is compiled for a GPU; see `Compiled.__getitem__`."""
    check = checked_option("check", check)
    values = checked(compiled, arguments, keywords, in_memory=False)
    one_device(devices_of(zip(compiled.names, values, strict=True)), compiled.title)
    compiled.launcher(grid, *values, stream=stream, check=check)


def resources(compiled: Compiled) -> tuple[int, int, int]:
    """Registers and bytes of local memory of a thread, and the largest number of threads of a CTA.

    They are from the driver, or else from ptxas.
    """
    try:
        code = compiled.launcher.in_context()
        return code.registers, code.local_bytes, code.max_threads
    except (LaunchError, TargetError) as error:
        if tool("ptxas") is None:
            raise LaunchError(
                f"the resources of '{compiled.title}' on {compiled.target} must come from a driver with such a GPU, or "
                f"from ptxas; neither is here: {error.summary}",
                hint="pip install nvidia-cuda-nvcc",
            ) from None
        assembly = assembled(compiled.ptx, compiled.target, shared=compiled.shared)[1]
        # The code states its number of threads, and ptxas has found registers for them.
        return assembly.registers, assembly.stack, 32 * compiled.num_warps
