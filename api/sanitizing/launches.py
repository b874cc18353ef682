"""Sanitised launches of kernels: natively, by the interpreter, or on a GPU, where the arrays are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from ziggurat.backend.launch.arrays import on_gpu, read_array
from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.backend.launch.grids import padded
from ziggurat.boundary import no_faults
from ziggurat.codemodel.dialects import scf, tt
from ziggurat.codemodel.errors import ZigguratError
from ziggurat.codemodel.gpu.options import COMPILE_OPTIONS, parameter_names, sanitizers
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import ScalarType
from ziggurat.compiler.cpu_code import code_of, warn_interpreted
from ziggurat.kernels.arguments import bind, divided, require_parameters
from ziggurat.kernels.kernel import Grid, Kernel
from ziggurat.sanitizing.memory import facts_of, is_memory, memory_of, sharing
from ziggurat.sanitizing.reports import raise_reports, reports_of
from ziggurat.sanitizing.sanitized import SanitizedModel


@attrs.define
class _Code:
    """A sanitized kernel, and what is made of it at its first launch: native code, or code for GPUs by target."""

    sanitized: SanitizedModel
    native: Any = None
    compiled: dict[str, Any] = attrs.field(factory=dict[str, Any])


def launch(kernel: Kernel, grid: Grid, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """Launch a kernel with the option `sanitize`, wait for its end, and raise `SanitizerError` for what it reports."""
    own, options = divided(kernel, keywords)
    kernel.rules.check_options(kernel, options)
    checks = sanitizers("sanitize", options.pop("sanitize"))
    uninitialized = parameter_names("uninitialized", options.pop("uninitialized", None))
    require_parameters(kernel, uninitialized, "uninitialized")
    bound = bind(kernel, arguments, own, at_launch=True)
    signature, names_of_values, values = kernel.specialized(bound, _read)
    sizes = padded(kernel.sizes(grid, bound))
    result = None if any(map(_on_gpu, values)) else kernel.rules.result(kernel, signature, options, None)
    if 0 in sizes:
        return result
    model = kernel.rules.model(kernel, signature, options)
    places = [number for number, value in enumerate(values) if is_memory(value)]
    facts = [facts_of(values[number], names_of_values[number]) for number in places]
    groups = tuple(tuple(places[number] for number in group) for group in sharing(facts))
    unwritten = tuple(number for number in places if names_of_values[number].partition("[")[0] in uninitialized)
    code = _code(kernel, model, checks, names_of_values, groups, unwritten)
    sanitized = code.sanitized.sanitized
    words, size = memory_of(sanitized, facts, math.prod(sizes))
    failure: ZigguratError | None = None
    if any(map(_on_gpu, values)):
        memory = _on_device(kernel, code, sizes, values, words, size, options)
    else:
        memory = np.zeros(size, np.int64)
        memory[: len(words)] = words
        try:
            with no_faults("running", lambda: code.sanitized.model, kernel.name):
                _here(kernel, code, sizes, [*names_of_values, "the sanitizers' memory"], [*values, memory], options)
        except ZigguratError as error:  # The program that failed may have reported the cause before.
            failure = error
    raise_reports(reports_of(sanitized, memory, sizes, facts), kernel.name, kernel.models.words, failure)
    if failure is not None:
        raise kernel.rules.explained(kernel, failure) from failure.__cause__
    return result


def _on_gpu(value: Any) -> bool:
    return on_gpu(value.array if isinstance(value, TensorDescriptor) else value)


def _read(value: Any, name: str) -> tuple[Any, ScalarType, int] | None:
    """An array of a launch, its element type and its address."""
    if not on_gpu(value):
        return read_array(value, name)
    from ziggurat.backend.launch.device_arrays import view

    facts = view(value, name)
    return value, facts.element, facts.address


def _code(
    kernel: Kernel, model: Op, checks: tuple[str, ...], names: Sequence[str], groups: Sequence[Sequence[int]],
    unwritten: Sequence[int],
) -> _Code:  # fmt: skip
    """The sanitized kernel for a model, made once."""
    key = "sanitized", model.result, checks, tuple(groups), tuple(unwritten)
    code = kernel.compiled.used(key)
    if code is None:
        with no_faults("sanitizing", lambda: model, kernel.name):
            code = kernel.compiled[key] = _Code(SanitizedModel(model, checks, names, groups, unwritten))
    return code


def _here(
    kernel: Kernel, code: _Code, sizes: tuple[int, int, int], names: Sequence[str], values: Sequence[Any],
    options: Mapping[str, Any],
) -> None:  # fmt: skip
    """Run a sanitized kernel on arrays in memory."""
    from ziggurat.backend.cpu.runtime.kernels import NativeKernel
    from ziggurat.backend.reference.run import run

    model, tolerant = code.sanitized.model, kernel.rules.tolerant_memory
    if code.native is None and _may_wait(model):
        code.native = False
    if code.native is None and kernel.runs_natively(options):
        try:
            native = code_of(model, kernel.name, check=True, tolerant=tolerant, fast_math=False)
            code.native = NativeKernel(native, kernel.name, model)
        except ZigguratError as error:
            warn_interpreted(kernel.name, error, kernel.place)
            code.native = False
    if code.native and kernel.runs_natively(options):
        code.native.launch(sizes, names, values)
    else:
        run(model, None, sizes, values, names=names, tolerant=tolerant)


def _may_wait(model: Op) -> bool:
    """Whether a loop of a kernel may wait for another program. With checks in it, native code of it does not see that
    no program ends it, which the interpreter does."""
    loops = (op for op in model.walk() if isinstance(op, scf.While))
    return any(isinstance(inner, tt.Load | tt.AtomicRMW | tt.AtomicCAS) for loop in loops for inner in loop.walk())


def _on_device(
    kernel: Kernel, code: _Code, sizes: tuple[int, int, int], values: Sequence[Any],
    words: np.ndarray[Any, np.dtype[np.int64]], size: int, options: Mapping[str, Any],
) -> np.ndarray[Any, np.dtype[np.int64]]:  # fmt: skip
    """Run a sanitized kernel on a GPU; the words of its memory before the tables after that."""
    from ziggurat import compiler
    from ziggurat.backend.cuda.device_memory import first_elements, zeros_after
    from ziggurat.backend.devices import driver
    from ziggurat.backend.launch.device_arrays import device_of, view

    first = next(value for value in values if _on_gpu(value))
    number = first.device if isinstance(first, TensorDescriptor) else device_of(view(first, "array"))
    with driver.on_device(number):
        target = driver.current_device().target
        compiled = code.compiled.get(target)
        if compiled is None:
            own = {name: value for name, value in options.items() if name in COMPILE_OPTIONS}
            settings = kernel.settings(kernel.rules.compile_options({**own, "target": target}))
            compiled = code.compiled[target] = compiler.compile_model(code.sanitized.model, settings, name=kernel.name)
        memory = zeros_after(words, size, number)
        compiled[sizes](*values, memory, check=True)
        return first_elements(memory, len(words))
