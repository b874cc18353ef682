"""A kernel as an operation: arrays and numbers go in, the arrays that it writes come out.

What the kernel writes is read from its model. An array that a caller leaves to the operation is an `Empty`, which the
library of the other arrays makes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self, cast

import attrs
import numpy as np

from ziggurat.backend.launch.arrays import no_argument, number_type
from ziggurat.codemodel.errors import LaunchError, shown
from ziggurat.codemodel.gpu.options import LAUNCH_OPTIONS
from ziggurat.codemodel.structured import packed_values
from ziggurat.codemodel.types import ConstantType, PtrType, ScalarType, find_scalar
from ziggurat.frontends.language.signature import suggest
from ziggurat.kernels.arguments import (
    check_options,
    components_of,
    constexpr_names,
    require_parameters,
    signature_of,
)
from ziggurat.kernels.kernel import Grid, Kernel
from ziggurat.transforms.kit.dataflow import addressing_parameters, read_parameters, written_parameters
from ziggurat.transforms.parameters import kernel_of
from ziggurat.tuning.tuned import Tuned


class Empty(NamedTuple):
    """An array that is still to be made: its shape, its dtype (of any library), whether it must hold zeros, and its
    strides in elements where it is not contiguous."""

    shape: Sequence[int]
    dtype: Any
    zeros: bool = False
    strides: Sequence[int] | None = None


class Strided(NamedTuple):
    """An array that the kernel addresses by these strides, in elements. Any other array must be contiguous."""

    array: Any
    strides: Sequence[int]


class ArrayAccesses(NamedTuple):
    """The names of the parameters whose arrays a kernel reads, and writes; and for each array that it accesses, the
    names of the parameters that may be its strides."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    addressing: Mapping[str, tuple[str, ...]]


class Sizes(NamedTuple):
    """The sizes of the grid of a call: three for each configuration of the kernel, in order."""

    sizes: Sequence[int]


GRID = "grid of the call"  # The name of an argument that holds `Sizes`; no parameter has it.

# The shape and the dtype of an output: those of an argument, given by its name; a shape, with the dtype of the first
# array; a pair of both; or a function of the arguments by name that gives one of these, or an array that is like it.
OutputRule = Any
Outputs = str | Sequence[str] | Mapping[str, OutputRule]

# The gradients of the inputs by name, for the arguments by name, outputs included, and the outputs' gradients by name.
Backward = Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]]


# The objects that define operators of PyTorch, by label. A function that `torch.compile` calls while it traces gets
# constants only. A label is a text, because `torch.compile` takes a number for a size that may change.
definers: dict[str, Any] = {}


def enlisted(definer: Any) -> str:
    """Keep an object that defines operators. Returns its label."""
    label = f"definer {len(definers)}"
    definers[label] = definer
    return label


class Operation:
    """A kernel with its grid, its outputs and its gradient, as `zg.torch_op` and `zg.jax_op` take them.

    A class derived from this one calls it with the arrays of a library.
    """

    # Marks the class for TensorFlow: its AutoGraph calls such an object as it is, and does not convert its source.
    autograph_info__: ClassVar[dict[str, Any]] = {}

    # The values of tuned parameters in each configuration, for the `Sizes` of a call.
    configurations: Sequence[Mapping[str, Any]] = ({},)

    library: ClassVar[str]

    # The code that gives an operation of the library a gradient; None where its arrays have none.
    gradient_hint: ClassVar[str | None] = None

    # Whether the operation is a gradient that `derivative` makes.
    is_derivative = False

    def __init__(
        self, kernel: Kernel, grid: Grid, outputs: Outputs = (), backward: str | Backward | None = None
    ) -> None:
        if not isinstance(kernel, Kernel | Tuned):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise LaunchError(
                f"an operation must be made of a kernel; got {kernel!r}", hint="decorate it with @zg.kernel"
            )
        self.kernel = kernel
        # The kernel under its tuning, of which the facts are asked.
        self.base = kernel = kernel.base if isinstance(kernel, Tuned) else kernel
        tuned = self.kernel if isinstance(self.kernel, Tuned) else getattr(kernel, "tuned", None)
        self._layers: list[Tuned] = [] if tuned is None else [*tuned.layers]
        if backward not in (None, "auto") and not callable(backward):
            raise LaunchError(f"backward of '{kernel.name}' must be \"auto\" or a function; got {backward!r}")
        self.grid = grid
        self.name = kernel.name
        self.backward = backward
        if backward is not None and self.gradient_hint is None:
            raise LaunchError(f"backward of '{self.name}' must be None: arrays of {self.library} have no gradients")
        self._derived: dict[Any, Self] = {}
        # The operators or the functions that a library has for the operation, by the kinds of its arguments.
        self._definitions: dict[Any, Any] = {}
        self._accesses: dict[Any, ArrayAccesses] = {}
        for layer in self._layers:
            if layer.tuning is not None:
                self.configurations = [config.kwargs for config in layer.tuning.configs]
        self.parameters = tuple(kernel.signature.parameters)
        # The names that a launch does not give: they are tuned, or computed by heuristics.
        self.computed = {name for layer in self._layers for name in layer.heuristics}
        self.chosen = {*self.configurations[0], *self.computed}
        self.defaults = {
            name: p.default
            for name, p in kernel.signature.parameters.items()
            if p.default is not p.empty and name not in self.chosen
        }
        self.rules: dict[str, OutputRule] = {
            name: outputs[name] if isinstance(outputs, Mapping) else None for name in output_names(outputs)
        }
        require_parameters(kernel, self.rules, "outputs")
        self.inputs = tuple(name for name in self.parameters if name not in self.rules)
        self.constants = constexpr_names(kernel)
        for name in self.constants.intersection(self.rules):
            raise LaunchError(
                f"'{name}' is an output of '{kernel.name}', and so must be an array; it is compiled in",
                hint="name the parameters that the kernel stores to",
            )

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """The outputs, then the new values of arrays that the kernel writes but the library does not change in place.

        One result is returned as it is, several as a tuple. Raises `LaunchError` for arguments that do not fit.
        """
        return packed_values(self.results(self.arguments(arguments, keywords)))

    def results(self, arguments: dict[str, Any]) -> tuple[Any, ...]:
        """The results for all arguments by name."""
        raise NotImplementedError

    def gradients(
        self, values: Mapping[str, Any], cotangents: Mapping[str, Any], wrt: Sequence[str], kinds: Mapping[str, Any],
        zeros: Callable[[Any], Empty],
    ) -> Mapping[str, Any]:  # fmt: skip
        """The gradients of the inputs `wrt` that are arrays of floats and that the kernel reads, for the arguments,
        outputs included, the outputs' gradients, and the arguments' kinds, by name.

        `zeros` gives the array, still to be made, that the gradient of an input is added to.
        """
        if self.backward is None:
            raise LaunchError(
                f"'{self.name}' has no gradient", hint=f"{self.gradient_hint}, or a function that gives the gradients"
            )
        accesses = self.accesses(kinds)
        wrt = [name for name in wrt if name in accesses.reads and kinds[name].pointee.is_float]
        if callable(self.backward):
            computed = self.backward(values, cotangents)
            if not isinstance(computed, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
                example = ", ".join(f'"{name}": …' for name in wrt)
                raise LaunchError(
                    f"backward of '{self.name}' must return a dict of the inputs' gradients by name; "
                    f"got {shown(computed)}",
                    hint=f"return {{{example}}}",
                )
            for name in computed:
                if name not in self.parameters:
                    hint = suggest(name, self.parameters) or self.base.written
                    raise LaunchError(f"backward of '{self.name}' gives a gradient of '{name}'", hint=hint)
            return computed
        cotangents = {name: gradient for name, gradient in cotangents.items() if name in accesses.writes}
        if not cotangents or not wrt:
            return {}
        derived = self.derivative(tuple(cotangents), tuple(wrt))
        gradient = derived.kernel.gradient
        arguments = {
            **{name: value for name, value in values.items() if name not in self.computed},
            **{gradient(name): value for name, value in cotangents.items()},
            **{gradient(name): zeros(values[name]) for name in wrt},
        }
        results = derived.results(derived.arguments((), arguments))
        return dict(zip((name for name in self.parameters if name in wrt), results, strict=True))

    def tangents(
        self, values: Mapping[str, Any], tangents: Mapping[str, Any], of: Sequence[str], kinds: Mapping[str, Any],
        ones: Callable[[Any], Any], zeros: Callable[[Any], Empty],
    ) -> dict[str, Any]:  # fmt: skip
        """The tangents of the outputs `of` that are not zero everywhere, for the arguments, outputs included, the
        inputs' tangents, and the arguments' kinds, by name.

        The gradients of inputs are linear in those of the outputs. So the tangents are the derivative by these, at any
        place: at `ones`, as a derivative at zeros would take no factor to be infinite.
        """
        derived = self.derivative(tuple(of), tuple(tangents))
        gradient = derived.kernel.gradient
        kinds = {**kinds, **{gradient(name): kinds[name] for name in (*of, *tangents)}}
        arguments = {
            **{name: value for name, value in values.items() if name not in self.computed},
            **{gradient(name): ones(values[name]) for name in of},
            **{gradient(name): values[name] for name in tangents},
        }
        directions = {gradient(name): tangent for name, tangent in tangents.items()}
        results = derived.gradients(arguments, directions, [gradient(name) for name in of], kinds, zeros)
        return {name: results[gradient(name)] for name in of if gradient(name) in results}

    def derivative(self, of: tuple[str, ...], wrt: tuple[str, ...]) -> Any:
        """The operation that computes the gradients of `wrt` from those of `of`, which has a gradient of its own."""
        operation = self._derived.get((of, wrt))
        if operation is None:
            from ziggurat.gradients import grad

            kernel = grad(self.kernel, wrt=wrt, of=of)
            operation = type(self)(kernel, self.grid, [kernel.gradient(name) for name in wrt], "auto")
            operation.is_derivative = True
            self._derived[of, wrt] = operation
        return operation

    def arguments(self, positional: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name in the order of the parameters, with defaults, and an `Empty` for each output that
        the caller leaves out; options of the launch follow.

        Positional arguments are those of all parameters but the outputs; or of all parameters. `torch.compile` traces
        this function, so it does not ask for the kernel's model, as the binding of a launch does.
        """
        names = self.positional(len(positional), keywords)
        if len(positional) > len(names):
            raise LaunchError(
                f"'{self.name}' takes {len(names)} arguments; got {len(positional)}", hint=self.base.written
            )
        arguments: dict[str, Any] = dict(zip(names, positional, strict=False))
        for name in keywords:
            if name in arguments:
                raise LaunchError(f"'{self.name}' got '{name}' twice", hint=self.base.written)
            if name not in LAUNCH_OPTIONS:
                require_parameters(self.base, [name])
            arguments[name] = keywords[name]
        for name in self.parameters:
            if name not in arguments and name in self.defaults:
                arguments[name] = self.defaults[name]
        missing = [name for name in self.inputs if name not in arguments and name not in self.chosen]
        if missing:
            parameters = [name for name in self.inputs if name not in self.chosen]
            raise LaunchError(f"'{self.name}' needs '{missing[0]}'", hint=f"{self.name}({', '.join(parameters)})")
        for name in self.constants:
            if name in arguments:
                arguments[name] = frozen(name, arguments[name])
        for name in self.rules:
            if name not in arguments:
                arguments[name] = self._output(name, arguments)
        if self.computed:
            # The accesses of the kernel may depend on these values. A launch computes them for its configuration.
            settings = dict(self.configurations[0])
            for layer in self._layers:
                settings |= layer.computed((), arguments, settings)
            for name in self.computed:
                value = settings[name]
                # torch.compile takes a condition on a size that may change for a constant where the program branches.
                arguments[name] = (True if value else False) if isinstance(value, bool) else frozen(name, value)  # noqa: SIM210
        return {
            **{name: arguments[name] for name in self.parameters if name in arguments},
            **{name: arguments[name] for name in arguments if name not in self.parameters},
        }

    def positional(self, count: int, keywords: Iterable[str]) -> tuple[str, ...]:
        """The names of the parameters for positional arguments in a call that has keywords as well."""
        return self.inputs if count <= len([n for n in self.inputs if n not in keywords]) else self.parameters

    def _output(self, name: str, arguments: Mapping[str, Any]) -> Empty:
        what = f"the output '{name}' of '{self.name}'"
        rule = self.rules[name]
        if callable(rule):
            rule = self._computed(what, rule, arguments)
        if isinstance(rule, str):
            if not is_array(arguments.get(rule)):
                raise LaunchError(f"{what} must be like an argument that is an array; got '{rule}'")
            rule = arguments[rule]
        first = next((value for value in arguments.values() if is_array(value)), None)
        if rule is None:
            rule = first
        if rule is None:
            raise LaunchError(
                f"{what} must have a shape and a dtype, as no argument is an array",
                hint=f'outputs={{"{name}": lambda args: ((args["n"],), zg.f32)}}',
            )
        like: Any = rule
        if is_array(like):
            return Empty(sizes_in(like.shape, what), like.dtype)
        pair = components_of(like)
        if pair is not None and len(pair) == 2 and not is_integer(pair[0]):
            return Empty(sizes_in(pair[0], what), pair[1])
        return Empty(sizes_in(like, what), getattr(first, "dtype", None))

    def _computed(self, what: str, rule: Callable[[Any], OutputRule], arguments: Mapping[str, Any]) -> OutputRule:
        """The rule of an output that a function gives for the arguments by name."""
        try:
            return of_one_parameter(rule, arguments, f"the function of {what}")
        except KeyError as error:
            if error.args[0] in arguments:
                raise
            raise LaunchError(
                f"the function of {what} asks for {error.args[0]!r}, which is no input", hint=self.base.written
            ) from None

    def accesses(self, kinds: Mapping[str, Any]) -> ArrayAccesses:
        """The accesses of the kernel's model, for types and constants by name."""
        key = exact(tuple(kinds.items()))
        if key not in self._accesses:
            # The accesses of the kernel do not depend on what is tuned.
            values = {**self.defaults, **self.configurations[0], **kinds}
            declarations = self.base.models.declarations(self.base, values)
            values |= {name: declarations[name] for name in declarations if isinstance(values[name], ScalarType)}
            signature = signature_of(self.base, (), {name: values[name] for name in self.parameters})
            kernel = kernel_of(self.base.model_for(signature))
            typed = zip(self.parameters, signature.types, strict=True)
            names = [name for name, type_ in typed if not isinstance(type_, ConstantType)]
            # Only its name tells that a constexpr is a stride.
            constants = [name for name in self.constants if "stride" in name.lower()]
            self._accesses[key] = ArrayAccesses(
                reads=tuple([names[number] for number in read_parameters(kernel)]),
                writes=tuple([names[number] for number in written_parameters(kernel)]),
                addressing={
                    names[array]: (*[names[number] for number in numbers], *constants)
                    for array, numbers in addressing_parameters(kernel).items()
                },
            )
        return self._accesses[key]

    def check_launch(self, arguments: Mapping[str, Any]) -> None:
        """Raise `LaunchError` for options and a grid that a launch with these arguments by name cannot have."""
        bound = {name: value for name, value in arguments.items() if name in self.parameters}
        more = {name: value for name, value in arguments.items() if name not in bound and name != GRID}
        check_options(self.base, more)
        if GRID not in arguments:
            self.base.sizes(self.grid, {**self.configurations[0], **bound})

    def launch(self, arguments: Mapping[str, Any]) -> None:
        """Run the kernel on arrays and numbers by name, over the operation's grid or over the call's `Sizes`."""
        sizes = arguments.get(GRID)
        grid = self.grid if sizes is None else functools.partial(self._sizes_of_choice, sizes)
        bound = {name: value for name, value in arguments.items() if name != GRID and name not in self.computed}
        self.kernel[grid](**bound)

    def _sizes_of_choice(self, sizes: Sequence[int], meta: Mapping[str, Any]) -> tuple[int, ...]:
        """The sizes of the grid of the configuration that a launch has."""
        index = next(
            index
            for index, values in enumerate(self.configurations)
            if all(meta[name] == value for name, value in values.items() if name in self.parameters)
        )
        return tuple(sizes[3 * index : 3 * index + 3])


def as_list(value: Any) -> list[Any]:
    """The components of a tuple or a list; another value alone."""
    components = components_of(value)
    return [value] if components is None else [*components]


def is_array(value: Any) -> bool:
    """Whether an argument has a shape and a dtype, as the arrays of all libraries and an `Empty` do, and is no number
    of NumPy."""
    # torch.compile traces no hasattr of a size that is unknown.
    if isinstance(value, (int, float, str, type, np.generic)):
        return False
    return hasattr(value, "shape") and hasattr(value, "dtype")


def must_be_copied(name: str, shape: Sequence[int], strides: Sequence[Any], numbers: Iterable[Any]) -> bool:
    """Whether an array that is not contiguous must be made contiguous for a kernel, which gets an address alone.

    It stays as it is if its strides are among `numbers`, on which the kernel's addresses of the array depend: all
    strides that a contiguous array would not have, except for a 1, which kernels mostly leave out. Raises `LaunchError`
    if only some of them are, as the kernel would read the array wrong in either way.
    """
    numbers = [number for number in numbers if is_integer(number) and not isinstance(number, bool)]
    different: list[Any] = []
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != step:
            different.append(stride)
        step = step * size
    if all(stride in numbers for stride in [s for s in different if s != 1] or different):
        return False
    if any(stride in numbers for stride in different):
        raise LaunchError(
            f"'{name}' must be contiguous, or the kernel must get all its strides; got the strides {tuple(strides)} "
            f"for the shape {tuple(shape)}",
            hint=f"give a contiguous copy of {name}, and its strides",
        )
    return True


def is_operand(value: Any) -> bool:
    """Whether an argument is an array that exists, which a library that traces its programs hands over."""
    return is_array(value) and not isinstance(value, Empty)


def is_integer(value: Any) -> bool:
    """Whether a value is an integer of any library, or stands for one in a traced program."""
    # torch.compile traces no hasattr of a size that is unknown.
    return isinstance(value, int) or (hasattr(value, "__index__") and not is_array(value))


def sizes_in(shape: Any, what: str) -> tuple[int, ...]:
    """The sizes in a shape: an integer, or integers. `what` has that shape. Raises `LaunchError` for anything else."""
    if is_integer(shape):
        return (shape,)
    sizes: tuple[Any, ...] = tuple(shape) if hasattr(shape, "__iter__") and not isinstance(shape, str) else (None,)
    if not all(is_integer(size) for size in sizes):
        raise LaunchError(
            f"{what} must have a shape of integers; got {shown(shape)}",
            hint="sizes that are unknown while a program is traced cannot be used",
        )
    return sizes


def of_one_parameter(function: Callable[[Any], Any], argument: Any, what: str) -> Any:
    """The result of a function for its one argument. Raises `LaunchError` for a function that does not take one."""
    try:
        return function(argument)
    except TypeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None:  # It was raised inside the function.
            raise
        raise LaunchError(f"{what} must take one argument; got: {error}") from None


def output_names(outputs: Any) -> tuple[str, ...]:
    """The names of the outputs, each once. Raises `LaunchError` for anything else."""
    several = isinstance(outputs, (tuple, list, Mapping))
    names: tuple[Any, ...] = tuple(cast("Iterable[Any]", outputs)) if several else (outputs,)
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise LaunchError(
            f"outputs must be names of parameters, each once; got {shown(outputs)}",
            hint='outputs="y", outputs=("y", "z"), or outputs={"y": "x"}',
        )
    return names


def frozen(name: str, value: Any) -> Any:
    """The value of what is compiled in, with tuples in place of lists. Raises `LaunchError` for one that cannot be."""
    if isinstance(value, (list, tuple)):
        return tuple([frozen(name, item) for item in as_list(value)])
    if is_array(value) or type(value) in (dict, set, bytearray):
        raise LaunchError(
            f"'{name}' is compiled in: it must be a number, a string, a dtype, None or a tuple of these; got "
            f"{type(value).__name__}"
        )
    return value


def exact(key: Any) -> Any:
    """A key of a dictionary that tells 1, 1.0 and True apart: these are equal, and kernels depend on their types."""
    return key, repr(key)


def scalar_of(dtype: Any) -> ScalarType:
    """The dtype of an array, in any library's form. Raises `LaunchError` for one that kernels lack."""
    scalar = find_scalar(getattr(dtype, "as_numpy_dtype", dtype))  # TensorFlow's dtypes have that.
    if scalar is None:
        raise LaunchError(
            f"the dtype of an array must be one of the language's; got {dtype!r}", hint="zg.f32, zg.f16 …"
        )
    return scalar


def kind_of(operation: Operation, name: str, value: Any) -> Any:
    """The type, or the constant, that a kernel is compiled for when it gets `value` as the argument `name`.

    Two values of one kind lead to the same accesses of memory. Raises `LaunchError` for what no kernel takes.
    """
    if value is None or name in operation.constants or name not in operation.parameters:
        return value
    if is_array(value):
        return PtrType(scalar_of(value.dtype))
    scalar = number_type(value, f"'{name}' of '{operation.name}': ")
    if scalar is None:
        raise no_argument(name, operation.name, value)
    return scalar


@attrs.frozen
class CallPlan:
    """The results of a call: the outputs that it makes, and the arguments that it writes in place. And the arrays that
    the kernel accesses, each with the arguments that may be its strides."""

    outputs: tuple[str, ...]
    mutated: tuple[str, ...]
    addressing: Mapping[str, tuple[str, ...]]

    @staticmethod
    def of(operation: Operation, arguments: Mapping[str, Any], kinds: Mapping[str, Any]) -> CallPlan:
        """The plan for a call. Raises `LaunchError` for an output that is no array, and for one that the kernel does
        not write."""
        for name in operation.rules:
            if not isinstance(kinds[name], PtrType):
                raise LaunchError(
                    f"'{name}' is an output of '{operation.name}', and so must be an array; got {kinds[name]}"
                )
        _, accesses, addressing = operation.accesses(kinds)
        outputs = tuple(name for name in operation.parameters if isinstance(arguments.get(name), Empty))
        for name in operation.parameters:
            # A gradient that is zero everywhere is not stored, and is made as zeros.
            if name not in accesses and (name in outputs or name in operation.rules) and not operation.is_derivative:
                raise LaunchError(
                    f"'{name}' is an output of '{operation.name}', which does not store to it",
                    hint=f"it stores to {', '.join(accesses) or 'nothing'}",
                )
        mutated = tuple(name for name in accesses if name not in outputs)
        if operation.backward is not None and mutated:
            raise LaunchError(
                f"'{operation.name}' writes its argument '{mutated[0]}' in place, and so cannot have a gradient",
                hint="name it among the outputs, and do not pass it",
            )
        return CallPlan(outputs, mutated, addressing)

    def ordered(self, operation: Operation, results: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs, then the other arrays that are written, of results for `outputs` and `mutated`."""
        by_name = dict(zip((*self.outputs, *self.mutated), results, strict=True))
        names = [name for name in operation.parameters if name in operation.rules and name in by_name]
        return tuple(by_name[name] for name in (*names, *(name for name in by_name if name not in names)))


@attrs.frozen(eq=False)
class OperationCall:
    """A call of an operation of a library that does not change arrays in place. `names` are the names of the arguments
    that are arrays, in order; `rest` has the other arguments by name."""

    operation: Operation
    rest: Mapping[str, Any]
    names: tuple[str, ...]
    plan: CallPlan
    kinds: Mapping[str, Any]

    @classmethod
    def of(cls, operation: Operation, arguments: Mapping[str, Any], arrays: Mapping[str, Any]) -> Self:
        """The call for all arguments by name, and those among them that are arrays."""
        rest = {name: value for name, value in arguments.items() if name not in arrays}
        kinds = {name: kind_of(operation, name, value) for name, value in {**arguments, **arrays}.items()}
        plan = CallPlan.of(operation, arguments, kinds)
        for name in plan.outputs:
            if any(size < 0 for size in arguments[name].shape):
                raise LaunchError(f"the output '{name}' of '{operation.name}' has the shape {arguments[name].shape}")
        return cls(operation=operation, rest=rest, names=tuple(arrays), plan=plan, kinds=kinds)

    def element(self, name: str) -> ScalarType:
        """The element type of an array."""
        kind = self.kinds[name]
        assert isinstance(kind, PtrType) and isinstance(kind.pointee, ScalarType)
        return kind.pointee

    def gradients_of(
        self, arrays: Sequence[Any], results: Sequence[Any], gradients: Sequence[Any]
    ) -> Mapping[str, Any]:
        """The gradients of the arrays of floats that the kernel reads, by name, for those of the outputs."""
        outputs = dict(zip(self.plan.outputs, results, strict=True))
        arguments = {**self.rest, **dict(zip(self.names, arrays, strict=True)), **outputs}
        cotangents = dict(zip(self.plan.outputs, gradients, strict=True))
        return self.operation.gradients(
            arguments, cotangents, self.names, self.kinds, lambda x: Empty(tuple(x.shape), x.dtype, zeros=True)
        )
