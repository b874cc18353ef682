"""Launches of kernels on GPUs: the kernel, the compiler, the cache on disk and the runtime joined."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import attrs

from ziggurat.backend.cuda.launch import Launched
from ziggurat.backend.launch.grids import MAX_LAUNCHERS, MAX_SPECIALIZATIONS
from ziggurat.codemodel.errors import KernelErrors, KernelNameError, KernelTypeError, ZigguratError
from ziggurat.codemodel.gpu.options import LAUNCH_ONLY, CompileOptions
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.recent import Recent
from ziggurat.codemodel.types import ScalarType, Type
from ziggurat.kernels.arguments import (
    KernelSignature,
    constant_of,
    constexpr_names,
    defaults_of,
    is_tuple_of_arguments,
    shared_options,
)
from ziggurat.kernels.causes import name_arguments
from ziggurat.transforms.calls.lattice import type_of_tuple

if TYPE_CHECKING:
    from ziggurat.backend.cuda.binary import Binary
    from ziggurat.backend.cuda.loaded import Loaded
    from ziggurat.backend.cuda.specialize import KernelParameter, Specialization
    from ziggurat.codemodel.numbers import Number
    from ziggurat.compiler.builds import KernelBuild
    from ziggurat.kernels.kernel import Kernel


class GpuKernel(Launched):
    """A kernel for the dispatcher. For a `shape` of tuples, each component of an argument is a parameter."""

    runs_on_host = True

    def __init__(self, kernel: Kernel, shape: Sequence[Any] = ()) -> None:
        self.kernel, self.shape = kernel, shape
        self.name, self.place = kernel.name, kernel.place
        # Kernels of unlike shapes may have parameters of the same names.
        own = kernel.launchers, kernel.compiled
        self.launchers, self.compiled = (Recent(MAX_LAUNCHERS), Recent(MAX_SPECIALIZATIONS)) if shape else own
        parameters = _parameters(kernel)
        self.parameters = _components(parameters, shape) if shape else parameters

    def build(self, spec: Specialization, /) -> KernelBuild:
        """The kernel to be compiled for arguments and options of a launch."""
        return self.kernel.rules.build(self.kernel, spec, self.shape)

    def built(self, spec: Specialization, /) -> Binary:
        return self.build(spec).binary

    def check_options(self, options: dict[str, Any], /) -> None:
        self.kernel.rules.check_options(self.kernel, options)

    def launched(self, spec: Specialization, code: Loaded, /) -> Any:
        return self.kernel.rules.result(
            self.kernel, signature_of(self.kernel, spec, self.shape)[0], dict(spec.options), code
        )

    def argument(self, value: Any, /) -> Any:
        return self.kernel.rules.argument(value)

    def explained(self, error: ZigguratError, /) -> ZigguratError:
        return self.kernel.rules.explained(self.kernel, error)

    def on_host(self, grid: Any, arguments: dict[str, Any], options: dict[str, Any], /) -> Any:
        if self.shape:
            values, names = iter(arguments.values()), self.kernel.signature.parameters
            arguments = {name: _nested(part, values) for name, part in zip(names, self.shape, strict=True)}
        return self.kernel.on_host(grid, arguments, options)

    def sanitized(self, grid: Any, arguments: dict[str, Any], options: dict[str, Any], /) -> Any:
        return self.kernel.launch(grid, **arguments, **options)

    def spread(self, values: tuple[Any, ...], /) -> tuple[Any, Callable[[], Launched], list[Any]] | None:
        if self.shape:
            return None
        shape = tuple(map(_shape, values))
        key = shape, tuple(map(_classes, shape))
        return key, lambda: GpuKernel(self.kernel, shape), _flat(values, shape)


def _parameters(kernel: Kernel) -> list[KernelParameter]:
    """The parameters of a kernel with their treatment by launches."""
    from ziggurat.backend.cuda.specialize import MISSING

    constexprs = constexpr_names(kernel)
    defaults = defaults_of(kernel)
    declarations = _declarations(kernel)
    return [
        attrs.evolve(
            kernel.rules.parameter(kernel, name),
            constexpr=name in constexprs,
            default=defaults.get(name, MISSING),
            **({"declared": declarations[name]} if name in declarations else {}),
        )
        for name in kernel.signature.parameters
    ]


def _declarations(kernel: Kernel) -> Mapping[str, ScalarType]:
    """The types that the source declares for numbers; none where launches decide them, by macros."""
    try:
        declarations = kernel.models.declarations(kernel, {})
    except KernelNameError:
        return {}
    return {name: type_ for name, type_ in declarations.items() if isinstance(type_, ScalarType)}


def _shape(value: Any) -> Any:
    """The nesting of a tuple of arguments, with None for each argument. A named tuple gives one."""
    return _tuple_like(value, tuple(map(_shape, value))) if is_tuple_of_arguments(value) else None


def _tuple_like(like: Any, parts: tuple[Any, ...]) -> Any:
    """A tuple of the parts, of the class of a named tuple."""
    return type(like)(*parts) if hasattr(like, "_fields") else parts


def _classes(shape: Any) -> Any:
    """The classes of nested tuples: equal tuples may be of different ones."""
    return None if shape is None else (cast("type[Any]", type(shape)), *map(_classes, shape))


def _flat(value: Any, shape: Any) -> list[Any]:
    """The arguments that are nested as `shape` says, in order."""
    return [value] if shape is None else [leaf for v, s in zip(value, shape, strict=True) for leaf in _flat(v, s)]


def _nested(shape: Any, values: Iterator[Any], make: Callable[[Any, tuple[Any, ...]], Any] = _tuple_like) -> Any:
    """The next values, nested as `shape` says. `make` makes a tuple of its components."""
    return (
        next(values) if shape is None else make(shape, tuple(_nested(component, values, make) for component in shape))
    )


def _components(parameters: Sequence[KernelParameter], shape: Sequence[Any]) -> list[KernelParameter]:
    """A parameter for each component of tuples of this shape."""
    flat: list[KernelParameter] = []
    for parameter, part in zip(parameters, shape, strict=True):
        for number, _ in enumerate(_flat(part, part)):
            name = parameter.name if part is None else f"{parameter.name}_{number}"
            while part is not None and any(name == other.name for other in (*parameters, *flat)):
                name += "_"
            flat.append(attrs.evolve(parameter, name=name))
    return flat


def options_of(kernel: Kernel, spec: Specialization) -> CompileOptions:
    """The options of compilation of a launch. A constexpr parameter that has the name of an option is that option."""
    from ziggurat.backend.cuda.specialize import ConstantArgument

    shared = shared_options(kernel)
    options: dict[str, Any] = {name: value for name, value in spec.options if name not in LAUNCH_ONLY}
    options |= {a.name: a.value for a in spec.arguments if isinstance(a, ConstantArgument) and a.name in shared}
    return kernel.settings(kernel.rules.compile_options({"target": spec.target, **options}))


def model_of(kernel: Kernel, spec: Specialization, shape: Sequence[Any] = ()) -> Op:
    """The Triton model that is compiled for the arguments of a launch; `shape` says which parameters take tuples."""
    signature, constants = signature_of(kernel, spec, shape)
    try:
        model = kernel.model_for(signature)
    except (KernelErrors, KernelTypeError) as error:
        arguments = dict(zip(kernel.signature.parameters, signature.types, strict=True))
        name_arguments(error, kernel.models.python_for(kernel, signature.types), arguments, signature.types)
        raise
    if not constants:
        return model
    from ziggurat.transforms.parameters import specialize

    return specialize(model, constants)


def signature_of(
    kernel: Kernel, spec: Specialization, shape: Sequence[Any] = ()
) -> tuple[KernelSignature, dict[int, int]]:
    """The signature for the arguments of a launch, and the known values of run-time parameters by their numbers."""
    from ziggurat.backend.cuda.specialize import RunTime

    types: list[Type] = []
    divisibility: list[int] = []
    small: list[int] = []
    constants: dict[int, int] = {}
    for argument in spec.arguments:
        if isinstance(argument, RunTime):
            types.append(argument.type)
            small += [len(divisibility)] * argument.small
            divisibility.append(argument.divisibility)
        elif argument.type is not None:
            # A run-time parameter with a known value keeps its type: only its value is compiled in.
            constants[len(divisibility)] = int(argument.value)
            types.append(argument.type)
            divisibility.append(1)
        else:
            types.append(constant_of(kernel, argument.name, argument.value))
    if shape:
        flat = iter(types)
        types = [_nested(part, flat, type_of_tuple) for part in shape]
    return KernelSignature(tuple(types), tuple(divisibility), tuple(small)), constants


def numbers_of(values: Sequence[Any]) -> dict[str, Number]:
    """The numbers among the arguments of a launch, and the sizes and strides of descriptors, by the names of parts."""
    from ziggurat.backend.launch.descriptors import TensorDescriptor

    numbers: dict[str, Number] = {}
    for at, value in enumerate(values):
        if isinstance(value, TensorDescriptor):
            numbers |= {f"{at}.shape{axis}": size for axis, size in enumerate(value.shape)}
            numbers |= {f"{at}.stride{axis}": stride for axis, stride in enumerate(value.strides)}
        elif isinstance(value, int | float):
            numbers[str(at)] = value
    return numbers
