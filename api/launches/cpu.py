"""Launches on arrays in memory: by native code, or by the reference interpreter where there is none."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import attrs
import numpy as np

from ziggurat.backend.cpu.runtime import launcher
from ziggurat.backend.cpu.runtime.devices import QueuedNative, run_beside
from ziggurat.backend.cpu.runtime.kernels import NativeKernel
from ziggurat.backend.cpu.runtime.native import RECORD, launcher_over
from ziggurat.backend.cpu.runtime.plans import Given, plan_of
from ziggurat.backend.launch import checks
from ziggurat.backend.launch.arrays import as_array, is_array, read_array
from ziggurat.backend.launch.grids import MAX_SPECIALIZATIONS, computed_grid, is_exact, padded, sizes_of
from ziggurat.backend.launch.regions import NO_AXIS, known_stride
from ziggurat.boundary import no_faults, public
from ziggurat.codemodel.errors import LaunchError, ZigguratError, warn
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import ConstantType, PtrType, ScalarType, i1, i32
from ziggurat.compiler.cpu_code import code_of, warn_interpreted
from ziggurat.kernels.arguments import KernelSignature, bind, defaults_of, leaves

if TYPE_CHECKING:
    from ziggurat.kernels.kernel import Grid, Kernel

_MAX_STRIDES = 16  # The integers of an array that may hold strides.


class HostLaunches:
    """The native launches of one kernel. Launchers are valid for the life of the kernel: they share a list of plans."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._plans: list[Any] = []
        self._reasons: set[str] = set()  # Why the kernel is interpreted, as warnings have said.
        self._names = list(kernel.signature.parameters)
        self._read_as_contiguous: set[str] = set()  # The arguments of which `_check_views` has warned.
        self._defaults = defaults_of(kernel)

    def forget(self) -> None:
        """Forget the plans. Launchers that were handed out go on by the slow path."""
        self._plans.clear()

    def at(self, grid: Grid) -> Callable[..., Any]:
        """The launcher over a grid. One that is no grid gets the slow path, which raises the error."""
        if callable(grid):
            return functools.partial(self._computed, grid)
        kernel = self.kernel
        slow = functools.partial(kernel.launch, grid)
        try:
            sizes = padded(sizes_of(grid, kernel.name))
        except LaunchError:
            return slow
        launcher = launcher_over(sizes, self._plans, slow)
        if is_exact(grid):
            kernel.launchers[grid] = launcher
        return launcher

    def _computed(self, grid: Callable[[dict[str, Any]], Any], /, *arguments: Any, **keywords: Any) -> Any:
        """Launch over the grid that a function gives. The function is called once, if all arguments are there."""
        arguments_by_name = {**self._defaults, **dict(zip(self._names, arguments, strict=False)), **keywords}
        kernel = self.kernel
        try:
            bound = {name: arguments_by_name[name] for name in self._names} if keywords else arguments_by_name
        except KeyError:
            bound = {}
        if len(bound) < len(self._names):
            return kernel.launch(grid, *arguments, **keywords)
        try:
            sizes = computed_grid(grid, kernel.name, bound)
            if callable(sizes):  # A function that gives a function is no grid.
                sizes_of(sizes, kernel.name)
        except Exception:
            kernel.check_arguments(*arguments, **keywords)  # The cause may be an argument that no kernel takes.
            raise
        return kernel.launcher(cast("Grid", sizes))(*arguments, **keywords)

    def launch(self, grid: Grid, bound: dict[str, Any], options: dict[str, Any], explicit: Iterable[str]) -> Any:
        """Run the kernel on arrays in memory; `bound` has all arguments by name, `explicit` names those that the launch
        gave."""
        kernel = self.kernel
        signature, names, values = kernel.specialized(bound)
        sizes = kernel.sizes(grid, bound)
        if 0 in sizes:
            return kernel.rules.result(kernel, signature, options, None)
        self._check_views(bound, names, values)
        code = self._native(signature, options)
        if code is None:
            return kernel.interpret(grid, bound, options)
        result = kernel.rules.result(kernel, signature, options, None)
        three_sizes = padded(sizes)
        within = functools.partial(kernel.running, lambda: kernel.model_for(signature))
        launch = QueuedNative(kernel.name, code, three_sizes, names, values, within)
        if kernel.queue is not None:
            kernel.queue.add(launch)
            return result
        run_beside(launch)
        self._remember(code, signature, bound, options, frozenset(explicit), result)
        return result

    def _check_views(self, bound: Mapping[str, Any], names: Sequence[str], values: Sequence[Any]) -> None:
        """Warn once of each argument that is not contiguous, where no number of the launch is one of its strides."""
        for name, value in zip(names, values, strict=True):
            if not isinstance(value, np.ndarray) or name in self._read_as_contiguous:
                continue
            array = cast("np.ndarray[Any, Any]", value)
            if array.flags.c_contiguous or known_stride(array, self._numbers(bound)):
                continue
            self._read_as_contiguous.add(name)
            strides = tuple(stride // array.itemsize for stride in array.strides)
            warn(
                f"'{name}' of '{self.kernel.name}' must be contiguous, or the launch must have one of its strides as a "
                f"number; got shape {array.shape}, strides {strides}: the kernel reads memory in order\n"
                f"  hint: pass a stride, or a copy: np.ascontiguousarray({name}), {name}.contiguous() of torch",
                self.kernel.place,
            )

    def prepare(self, bound: dict[str, Any], options: Mapping[str, Any]) -> bool:
        """Compile the kernel for the arguments of a launch; whether it runs natively."""
        with self.kernel.naming(bound):
            signature, _, _ = self.kernel.specialized(bound)
            return self._native(signature, options) is not None

    def _native(self, signature: KernelSignature, options: Mapping[str, Any]) -> NativeKernel | None:
        """The kernel for a signature. None if it must be interpreted: a warning has given the reason once."""
        signature = attrs.evolve(signature, small=())  # Nothing on the way to a CPU asks for it.
        model, check = self.kernel.rules.model(self.kernel, signature, options), options.get("check") is not False
        fast_math, devices = bool(options.get("fast_math")), self.kernel.queue is not None
        key = model.result, check, fast_math, devices
        compiled = self.kernel.compiled
        code = compiled.used(key)
        if code is None and key not in compiled:
            code = compiled[key] = self._compiled(model, check, fast_math, devices)
        return code

    def _compiled(self, model: Op, check: bool, fast_math: bool, devices: bool) -> NativeKernel | None:
        kernel = self.kernel
        try:
            with no_faults("compiling", lambda: model, kernel.name):
                tolerant = kernel.rules.tolerant_memory
                code = code_of(model, kernel.name, check=check, tolerant=tolerant, fast_math=fast_math, devices=devices)
                return NativeKernel(code, kernel.name, model)
        except ZigguratError as error:
            if error.summary not in self._reasons:
                self._reasons.add(error.summary)
                warn_interpreted(kernel.name, error, kernel.place)
            return None

    def _remember(
        self, code: NativeKernel, signature: KernelSignature, bound: Mapping[str, Any], options: Mapping[str, Any],
        explicit: frozenset[str], result: Any,
    ) -> None:  # fmt: skip
        """Make later launches with such arguments quick."""
        arguments = self._entries(signature, bound, explicit)
        failed = public(functools.partial(self._ended, code, result))
        plan = plan_of(code, arguments, options, result, failed)
        if plan is not None:
            self._plans[:] = [plan, *(other for other in self._plans if other[0] != plan[0])][:MAX_SPECIALIZATIONS]

    def _entries(self, signature: KernelSignature, bound: Mapping[str, Any], explicit: frozenset[str]) -> list[Given]:
        """The arguments of a launch with the rules by which they select code."""
        declarations = self.kernel.models.declarations(self.kernel, bound)
        entries: list[Given] = []
        for (name, value), type_ in zip(bound.items(), signature.types, strict=True):
            parameter = self.kernel.rules.parameter(self.kernel, name)
            rules, stride = 0, (-1, -1, 0)
            is_integer = isinstance(type_, ScalarType) and type_.is_int and type_ != i1
            number = int(value) if is_integer else 1
            if isinstance(type_, PtrType):
                array = read_array(value, name)
                assert array is not None
                number, stride = array[2], self._stride(array[0], name, bound)
            if (is_integer or isinstance(type_, PtrType)) and parameter.specialize and parameter.align:
                rules |= checks.DIVISIBLE if parameter.divisor(number) != 1 else checks.NOT_DIVISIBLE
            if is_integer and parameter.compiles_in(1, i32):
                rules |= checks.NOT_ONE
            run_time_type = None if isinstance(type_, ConstantType) else type_
            entries.append(Given(name, value, run_time_type, rules, name in explicit, name in declarations, stride))
        return entries

    def _stride(self, array: Any, name: str, bound: Mapping[str, Any]) -> tuple[int, int, int]:
        """The number that is the stride of an axis of an array, for the entry of a plan."""
        if name in self._read_as_contiguous:
            return -1, -1, 0
        numbers = self._numbers(bound)
        axis, step = known_stride(array, numbers) or (NO_AXIS, 0)
        return axis, -1 if axis == NO_AXIS else numbers[step][0], step

    def _numbers(self, bound: Mapping[str, Any]) -> dict[int, list[int]]:
        """The integers of a launch, with the numbers of their parameters; -1 for one within a tuple or an array. A 1
        that is a default says nothing of strides."""
        numbers: dict[int, list[int]] = {}
        for place, (name, value) in enumerate(bound.items()):
            for leaf in leaves([value]):
                for number in _integers(leaf):
                    if number != 1 or name not in self._defaults:
                        numbers.setdefault(number, []).append(place if leaf is value else -1)
        return numbers

    def _ended(
        self, code: NativeKernel, result: Any, record: bytes, grid: bytes, values: Sequence[Any],
        keywords: Sequence[str],
    ) -> Any:  # fmt: skip
        """Raise the error of a launch by a plan, or give its warnings and its result: by its record, the grid, and the
        values of the call."""
        *numbers, notes = RECORD.unpack(record)
        strays = code.strays(notes)
        kernel = self.kernel
        count = len(values) - len(keywords)
        keyword_values = dict(zip(keywords, values[count:], strict=True))
        bound = bind(
            kernel, values[:count], {name: keyword_values[name] for name in keyword_values if name in self._names}
        )
        _, names, arguments = kernel.specialized(bound)
        sizes = launcher.GRID.unpack(grid)[:3]
        code.warn(strays, sizes, names, arguments)
        if numbers[0]:
            raise kernel.rules.explained(kernel, code.error(numbers, sizes, names, arguments))
        return result


def _integers(value: Any) -> list[int]:
    """An integer of a launch, or those above 1 of a short array that may hold strides: one of integers from 1 up."""
    if isinstance(value, int | np.integer):
        return [] if isinstance(value, bool) else [int(cast(Any, value))]
    if not is_array(value):
        return []
    array = as_array(value, "")
    is_short = array.dtype.kind in "iu" and array.size <= _MAX_STRIDES and array.flags.c_contiguous
    return [int(number) for number in array.flat if number > 1] if is_short and (array > 0).all() else []
