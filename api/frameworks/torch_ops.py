"""Kernels as operators of PyTorch, of a `torch.library.Library`: with a fake implementation and with derivatives.

An operator is defined for the dtypes and the constants of a call, when these are new: then the kernel's model says
which arguments are written. Under `torch.compile` and `torch.export` that is done while the program is traced.
"""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

import attrs
import numpy as np

from ziggurat.boundary import public
from ziggurat.codemodel.errors import LaunchError, shown
from ziggurat.codemodel.structured import packed_values
from ziggurat.codemodel.types import PtrType, ScalarType, f32, i1, i32
from ziggurat.frameworks.operation import (
    Backward,
    CallPlan,
    Empty,
    Operation,
    Outputs,
    Sizes,
    Strided,
    as_list,
    definers,
    enlisted,
    exact,
    is_array,
    must_be_copied,
    scalar_of,
)
from ziggurat.kernels.kernel import Grid, Kernel

torch: Any = importlib.import_module("torch")
forward_ad: Any = importlib.import_module("torch.autograd.forward_ad")
_functorch: Any = importlib.import_module("torch._functorch.utils")

_unpack_dual: Any = torch._VF._unpack_dual

NAMESPACE = "ziggurat"
# The sets of keys, below those of autograd, of calls that no mode, wrapper or view has a part in.
_IN_MEMORY = {torch._C.DispatchKeySet(key).raw_repr() for key in (torch._C.DispatchKey.CPU, torch._C.DispatchKey.CUDA)}
_library = torch.library.Library(NAMESPACE, "FRAGMENT")
# The kinds of the arguments of a call: (name, kind, details …).
Key = tuple[tuple[Any, ...], ...]


class Definer(Protocol):
    """Defines operators: `define` gives the one for the kinds of a call's arguments."""

    label: str

    def define(self, key: Key) -> Definition: ...


_numbers = itertools.count()
# The schema's type, and the kernel's, of the numbers that a kernel takes.
_NUMBERS = {"bool": ("bool", i1), "int": ("SymInt", i32), "float": ("float", f32)}


@public
def torch_op(
    kernel: Kernel,
    grid: Grid,
    outputs: Outputs = (),
    backward: str | Backward | None = None,
) -> TorchOperation:
    """A kernel as an operator of PyTorch, which works under autograd, `torch.compile`, `torch.export` and on streams.

        softmax = zg.torch_op(softmax_kernel, grid=lambda meta: (meta["rows"],), outputs={"out": "x"}, backward="auto")
        y = softmax(x, rows, columns, BLOCK=1024)

    `outputs` names the parameters that the operator makes and returns: the result is one tensor, or a tuple. They are
    like the first tensor; or, in a mapping, like another argument ("x"), of a shape, of a (shape, dtype), or what a
    function of the arguments by name gives. A tensor given for an output, by name, is written and returned.
    All other parameters are the operator's, in their order. Which tensors the kernel writes is read from its model.

    `backward` is "auto", for the gradient that `zg.grad` derives, or a function of the arguments and of the outputs'
    gradients, both by name, that gives the inputs' gradients by name. Raises `LaunchError` for arguments that do not
    fit, and for a gradient of an operator that writes its inputs.
    """
    return TorchOperation(kernel, grid, outputs, backward)


class TorchOperation(Operation):
    """The operator that `torch_op` makes."""

    library = "torch"
    gradient_hint = 'zg.torch_op(…, backward="auto")'

    def __init__(
        self, kernel: Kernel, grid: Grid, outputs: Outputs = (), backward: str | Backward | None = None
    ) -> None:
        super().__init__(kernel, grid, outputs, backward)
        # The names of a call's arguments and whether they are compiled in, by the form of the call.
        self._forms: dict[Any, tuple[tuple[str, ...], tuple[bool, ...]]] = {}
        # The operator and the places of its leaves, by the form of the call and the kinds of its arguments.
        self._routes: dict[Any, tuple[Definition, list[int]]] = {}
        self.label = enlisted(self)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if torch.compiler.is_compiling():
            return super().__call__(*arguments, **keywords)
        form = len(arguments), *keywords
        if form not in self._forms:
            names = (*self.positional(len(arguments), keywords)[: len(arguments)], *keywords)
            self._forms[form] = names, tuple(map(self._is_constant, names))
        names, constants = self._forms[form]
        values = (*arguments, *keywords.values())
        kinds = form, *map(_kind_of_argument, values, constants)
        if kinds in self._routes:
            definition, places = self._routes[kinds]
            return definition.op(*[values[n] if n >= 0 else [*values[~n].shape] for n in places])
        bound = self.arguments(arguments, keywords)
        results = packed_values(self.results(bound))
        if None not in kinds and not self.computed:
            self._remember(kinds, names, bound)
        return results

    def _is_constant(self, name: str) -> bool:
        return name in self.constants or name not in self.parameters

    def _remember(self, kinds: Any, names: tuple[str, ...], arguments: Mapping[str, Any]) -> None:
        """Make later calls with such arguments quick, unless a function gives an output or the caller does.

        The place of a leaf is the number n of the argument, or ~n for the shape of that argument.
        """
        key, _ = _separated(arguments, self._is_constant)
        first = next((name for name in names if isinstance(arguments[name], torch.Tensor)), None)
        places: list[int] = []
        for name, kind, *_ in key:
            is_made = kind == "output"
            source = first if is_made and self.rules.get(name) is None else self.rules.get(name, name)
            if kind != "constant":
                if not isinstance(source, str) or source not in names or is_made != (name in self.rules):
                    return
                places.append(~names.index(source) if is_made else names.index(source))
        self._routes[kinds] = self.define(key), places

    def results(self, arguments: dict[str, Any]) -> tuple[Any, ...]:
        """The outputs, for all arguments by name."""
        return call(self, arguments, tuple(self.rules), self._is_constant)

    def define(self, key: Key) -> Definition:
        """The operator for the kinds of the arguments; defined when they are new."""
        definition: Definition | None = self._definitions.get(exact(key))
        if definition is None:
            definition = self._definitions[exact(key)] = Definition.of(self, key)
        return definition


def call(
    definer: Definer, arguments: dict[str, Any], outputs: Sequence[str], is_constant: Callable[[str], bool]
) -> tuple[Any, ...]:
    """The outputs of an operator for all its arguments by name. `torch.compile` traces this function.

    `definer` defines the operator. `is_constant` says whether a number given for a name is compiled in.
    """
    if not all(value.is_contiguous() for value in arguments.values() if isinstance(value, torch.Tensor)):
        _addressed(definer, arguments, is_constant)
    key, leaves = _separated(arguments, is_constant)
    tensors = as_list(getattr(getattr(torch.ops, NAMESPACE), _about(definer.label, key, "name"))(*leaves))
    results: list[Any] = []
    for name, value in arguments.items():
        result = tensors.pop(0) if isinstance(value, Empty) else value.array if isinstance(value, Strided) else value
        if name in outputs:
            results.append(result)
    return tuple(results)


def _addressed(definer: Definer, arguments: dict[str, Any], is_constant: Callable[[str], bool]) -> None:
    """Find the tensors that the kernel addresses by their strides, as these are arguments; any other is copied."""
    key, _ = _separated(arguments, is_constant)
    for name, numbers in _about(definer.label, key, "addressing"):
        x = arguments[name]
        if not isinstance(x, torch.Tensor) or x.is_contiguous():
            continue
        if not must_be_copied(name, x.shape, x.stride(), [arguments[n] for n in numbers if n in arguments]):
            arguments[name] = Strided(x, [*x.stride()])


def _separated(arguments: Mapping[str, Any], is_constant: Callable[[str], bool]) -> tuple[Key, list[Any]]:
    """The kinds of arguments, and the leaves for the operator."""
    key: list[tuple[Any, ...]] = []
    leaves: list[Any] = []
    for name, value in arguments.items():
        if isinstance(value, Sizes):
            key.append((name, "sizes"))
            leaves.append([*value.sizes])
        elif isinstance(value, Empty):
            key.append((name, "output", value.dtype, value.zeros, value.strides is not None))
            leaves.append([*value.shape])
            if value.strides is not None:
                leaves.append([*value.strides])
        elif isinstance(value, Strided):
            key.append((name, "tensor", value.array.dtype, True))
            leaves += [value.array, [*value.strides]]
        elif isinstance(value, torch.Tensor):
            key.append((name, "tensor", value.dtype, False))
            leaves.append(value)
        elif is_constant(name) or value is None:
            key.append((name, "constant", value))
        else:
            number: Any = cast(Any, value).item() if isinstance(value, np.generic) else value
            key.append((name, _kind_of_number(name, number)))
            leaves.append(number)
    return tuple(key), leaves


# The types of constants whose texts tell them apart.
_EXACT = (int, bool, float, str, type(None), ScalarType, torch.dtype)


def _kind_of_argument(value: Any, is_constant: bool) -> Any:
    """The kind of an argument, which selects the operator; None for one that needs a closer look."""
    kind = cast(Any, type(value))
    if is_constant:
        return repr(value) if kind in _EXACT else None
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        return value.dtype if value.is_contiguous() else None
    return kind if kind is float or kind is bool or (kind is int and _is_64_bit(value)) else None


def _is_64_bit(value: Any) -> bool:
    return -(2**63) <= value < 2**63


def _kind_of_number(name: str, value: Any) -> str:
    """The kind of a number, among `_NUMBERS`; sizes that `torch.export` traces are numbers, too."""
    if isinstance(value, (bool, torch.SymBool)):
        return "bool"
    if isinstance(value, (int, torch.SymInt)):
        if not torch.compiler.is_compiling() and not _is_64_bit(value):
            raise LaunchError(f"'{name}': an integer must fit in 64 bits; got {shown(value)}")
        return "int"
    if isinstance(value, (float, torch.SymFloat)):
        return "float"
    library = type(value).__module__.partition(".")[0]
    got = type(value).__name__ if library == "builtins" else f"{library}'s {type(value).__name__}"
    raise LaunchError(
        f"'{name}' must be a tensor of PyTorch or a number; got {got}",
        hint=f"torch.as_tensor({name})" if is_array(value) or isinstance(value, (list, tuple)) else None,
    )


@torch._dynamo.assume_constant_result
def _about(label: str, key: Key, attribute: str) -> Any:
    """An attribute of an operator, which `torch.compile` takes for a constant."""
    return getattr(definers[label].define(key), attribute)


@attrs.frozen(eq=False)
class Definition:
    """An operator for one list of kinds of arguments. Its leaves are the tensors, numbers and sizes of a call."""

    operation: TorchOperation
    key: Key
    plan: CallPlan
    kinds: Mapping[str, Any]
    name: str
    names: tuple[str | None, ...]  # The name of the tensor that each leaf is; None for other leaves.

    @staticmethod
    def of(operation: TorchOperation, key: Key) -> Definition:
        kinds: dict[str, Any] = {}
        arguments: dict[str, Any] = {}
        for name, kind, *rest in key:
            if kind == "output":
                kinds[name], arguments[name] = PtrType(scalar_of(rest[0])), Empty((), rest[0])
            elif kind == "tensor":
                if name in operation.constants:
                    raise LaunchError(f"'{name}' of '{operation.name}' is compiled in: it must be no tensor")
                kinds[name], arguments[name] = PtrType(scalar_of(rest[0])), None
            elif kind != "sizes":
                kinds[name] = arguments[name] = rest[0] if kind == "constant" else _NUMBERS[kind][1]
        plan = CallPlan.of(operation, arguments, kinds)
        name = f"{operation.name.replace('.', '_').replace('<', '').replace('>', '')}_{next(_numbers)}"
        parts: list[str] = []
        names: list[str | None] = []
        for parameter, kind, *rest in key:
            if kind == "output":
                parts += ["SymInt[]"] * (1 + rest[2])
            elif kind == "tensor":
                parts += [f"Tensor(a{len(parts)}!)" if parameter in plan.mutated else "Tensor"]
                parts += ["SymInt[]"] * rest[1]
            elif kind != "constant":
                parts.append("SymInt[]" if kind == "sizes" else _NUMBERS[kind][0])
            names += [parameter] * (kind == "tensor")
            names += [None] * (len(parts) - len(names))
        definition = Definition(operation, key, plan, kinds, name, tuple(names))
        definition.register([f"{part} a{number}" for number, part in enumerate(parts)])
        return definition

    def register(self, arguments: Sequence[str]) -> None:
        """Define the operator, with the arguments of its schema."""
        results = ", ".join(["Tensor"] * len(self.plan.outputs))
        results = results if len(self.plan.outputs) == 1 else f"({results})"
        _library.define(f"{self.name}({', '.join(arguments)}) -> {results}", tags=[torch.Tag.pt2_compliant_tag])
        _library.impl(self.name, self.run, "CompositeExplicitAutograd")
        _library.impl(self.name, self.differentiable, "Autograd", with_keyset=True)
        torch.library.register_fake(f"{NAMESPACE}::{self.name}", self.fake, lib=_library)
        torch.library.register_vmap(f"{NAMESPACE}::{self.name}", self.batched, lib=_library)

    @functools.cached_property
    def op(self) -> Any:
        """The operator."""
        return getattr(getattr(torch.ops, NAMESPACE), self.name).default

    @property
    def addressing(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The arrays that the kernel accesses, each with the arguments that may be its strides."""
        return tuple(self.plan.addressing.items())

    @torch._dynamo.disable
    def run(self, *leaves: Any) -> Any:
        """Make the outputs and launch the kernel, on copies of tensors that lack the strides by which it addresses."""
        arguments = self._arguments(leaves)
        tensors = {name: _array(arguments[name]) for name in self.names if name is not None}
        device = None
        for name, x in tensors.items():
            value, device = arguments[name], x.device
            if isinstance(value, Strided):
                arguments[name] = x if [*x.stride()] == [*value.strides] else _with_strides(x, value.strides)
            elif x.layout is torch.strided and not x.is_contiguous():
                arguments[name] = x.contiguous()
        for name in self.plan.outputs:
            arguments[name] = _empty_tensor(arguments[name], device)
        self.operation.launch(arguments)
        for name in self.plan.mutated:
            if arguments[name] is not tensors[name]:
                tensors[name].copy_(arguments[name])
        return packed_values([arguments[name] for name in self.plan.outputs])

    def fake(self, *leaves: Any) -> Any:
        """The outputs, made and not filled."""
        device = next((leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor)), None)
        return packed_values(
            [_empty_tensor(x, device) for x in self._arguments(leaves).values() if isinstance(x, Empty)]
        )

    def _arguments(self, leaves: Sequence[Any]) -> dict[str, Any]:
        """The arguments of a call by name."""
        work = iter(leaves)
        arguments: dict[str, Any] = {}
        for name, kind, *rest in self.key:
            if kind == "constant":
                arguments[name] = rest[0]
            elif kind == "output":
                arguments[name] = Empty(next(work), rest[0], rest[1], next(work) if rest[2] else None)
            else:
                value = next(work)
                arguments[name] = Strided(value, next(work)) if kind == "tensor" and rest[1] else value
        return arguments

    def batched(self, info: Any, axes: Sequence[Any], *leaves: Any) -> Any:
        """The results under `torch.vmap`: those of one item after another. Only gradients are batched, for `jacrev`."""
        if not self.operation.is_derivative:
            raise LaunchError(
                f"'{self.operation.name}' cannot run under torch.vmap: a kernel's batch is an axis of its grid",
                hint="launch it over a larger grid, or call it for each item",
            )
        pairs = [*zip(leaves, axes, strict=True)]
        results = [
            as_list(self.op(*[x.select(axis, item) if isinstance(axis, int) else x for x, axis in pairs]))
            for item in range(info.batch_size)
        ]
        stacked = packed_values([torch.stack(items) for items in zip(*results, strict=True)])
        return stacked, 0 if len(self.plan.outputs) == 1 else (0,) * len(self.plan.outputs)

    def differentiable(self, keyset: Any, *leaves: Any) -> Any:
        """The results, with derivatives where the leaves have some."""
        if not (
            torch._C._are_functorch_transforms_active()
            or (torch.is_grad_enabled() and torch._C._any_requires_grad(*leaves))
            or any(isinstance(x, torch.Tensor) and _tangent(x) is not None for x in leaves)
        ):
            return self.below(keyset, leaves)
        if self.plan.mutated:
            self._check_mutated(leaves)
        with _functorch.enable_single_level_autograd_function():
            modes = torch.is_grad_enabled(), torch._C._is_fwd_grad_enabled()
            return _Differentiable.apply(self, keyset, modes, *leaves)

    def below(self, keyset: Any, leaves: Sequence[Any]) -> Any:
        """The results without derivatives."""
        if self.plan.mutated:
            tensors = [x for x, name in zip(leaves, self.names, strict=True) if name in self.plan.mutated]
            if any(x.is_neg() for x in tensors):
                raise LaunchError(
                    f"'{self.plan.mutated[0]}' of '{self.operation.name}' must be no negative view, as it is written",
                    hint="give the tensor that the view negates, or its copy by resolve_neg()",
                )
            torch.autograd.graph.increment_version(tensors)
        keyset = keyset & torch._C._after_autograd_keyset
        if keyset.raw_repr() in _IN_MEMORY:
            return self.run(*leaves)
        with torch._C._AutoDispatchBelowAutograd():
            return self.op.redispatch(keyset, *leaves)

    def _check_mutated(self, leaves: Sequence[Any]) -> None:
        """Raise `LaunchError` if an array that is written in place would lose a derivative."""
        tensors = {name: x for name, x in zip(self.names, leaves, strict=True) if name is not None}
        moves = {name for name, x in tensors.items() if _tangent(x) is not None}
        lost = moves or {name for name, x in tensors.items() if torch.is_grad_enabled() and x.requires_grad}
        floats = [name for name in self.plan.mutated if tensors[name].is_floating_point()]
        if lost and floats:
            raise LaunchError(
                f"'{self.operation.name}' writes its argument '{floats[0]}' in place, which gets no derivative from "
                f"'{min(lost)}'",
                hint="call it under torch.no_grad(), or name the array among the outputs and do not pass it",
            )

    def _restored(self, ctx: Any, saved: list[Any]) -> dict[str, Any]:
        """The arguments of a call by name, outputs included, for the tensors that it has saved."""
        leaves = [saved.pop(0) if name is not None else x for name, x in zip(self.names, ctx.others, strict=True)]
        arguments = self._arguments(leaves)
        for name in self.plan.outputs:
            arguments[name] = _like(arguments[name], saved.pop(0))
        return arguments

    def derivatives(self, ctx: Any, gradients: Sequence[Any]) -> tuple[Any, ...]:
        """The gradient of each leaf, for those of the outputs; None for a leaf that needs none."""
        arguments = self._restored(ctx, list(ctx.saved_tensors))
        automatic = self.operation.backward == "auto"
        names = [name for name, needs in zip(self.names, ctx.needs_input_grad[3:], strict=True) if name and needs]
        cotangents = {
            name: torch.zeros_like(_array(arguments[name])) if gradient is None else gradient
            for name, gradient in zip(self.plan.outputs, gradients, strict=True)
            if _array(arguments[name]).is_floating_point()
        }
        if automatic:
            cotangents = {name: _like(arguments[name], _gathered(g, arguments[name])) for name, g in cotangents.items()}
        else:
            arguments = {name: _array(value) for name, value in arguments.items()}
            cotangents = {name: gradient.contiguous() for name, gradient in cotangents.items()}
        results: Mapping[str, Any] = (
            self.operation.gradients(arguments, cotangents, names, self.kinds, _zeros) if cotangents else {}
        )
        if automatic:
            results = {name: _shared_out(gradient, arguments[name]) for name, gradient in results.items()}
        return tuple(None if name is None else results.get(name) for name in self.names)

    def tangents(self, ctx: Any, tangents: Sequence[Any]) -> Any:
        """The tangent of each output, for those of the leaves."""
        if self.operation.backward != "auto":
            raise LaunchError(
                f"'{self.operation.name}' has no forward-mode derivative",
                hint=f"{self.operation.gradient_hint} has one",
            )
        accesses = self.operation.accesses(self.kinds)
        arguments = self._restored(ctx, [_unpack_dual(x, level=0).primal for x in ctx.saved_tensors])
        directions = {
            name: _like(arguments[name], tangent)
            for name, tangent in zip(self.names, tangents, strict=True)
            if tangent is not None and name in accesses.reads
        }
        for name in directions:
            if _overlaps(arguments[name]):
                raise LaunchError(
                    f"'{name}' of '{self.operation.name}' has no forward-mode derivative, as its elements share memory",
                    hint=f"{name}.contiguous(), and its strides",
                )
        of = [name for name in self.plan.outputs if _array(arguments[name]).is_floating_point()]
        results = {name: torch.zeros_like(_array(arguments[name])) for name in of}
        of = [name for name in of if name in accesses.writes]
        if directions and of:
            results |= self.operation.tangents(arguments, directions, of, self.kinds, _ones, _zeros)
        return packed_values([results.get(name) for name in self.plan.outputs])


class _Differentiable(torch.autograd.function._SingleLevelFunction):
    """An operator with its derivatives, at one level of `torch.func`'s transforms: the dispatcher calls the operator
    once for each level, where `torch.autograd.Function` would handle all levels by itself."""

    @staticmethod
    def forward(ctx: Any, definition: Definition, keyset: Any, modes: tuple[bool, bool], *leaves: Any) -> Any:
        # A function runs without gradients, but the transforms outside of this one need them.
        with torch.set_grad_enabled(modes[0]), forward_ad._set_fwd_grad_enabled(modes[1]):
            results = definition.below(keyset, leaves)
        tensors = [x for x, name in zip(leaves, definition.names, strict=True) if name is not None]
        ctx.definition, ctx.modes = definition, modes
        ctx.others = [x if name is None else None for x, name in zip(leaves, definition.names, strict=True)]
        ctx.save_for_backward(*tensors, *as_list(results))
        ctx.save_for_forward(*tensors, *as_list(results))
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, None, None, *ctx.definition.derivatives(ctx, gradients)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        # Transforms outside of this one may need forward mode.
        with forward_ad._set_fwd_grad_enabled(ctx.modes[1]):
            return ctx.definition.tangents(ctx, tangents[3:])


def _array(value: Any) -> Any:
    """The tensor that an argument is; another argument as it is."""
    return value.array if isinstance(value, Strided) else value


def _like(argument: Any, array: Any) -> Any:
    """A tensor that the kernel addresses as an argument, or as an output that it makes."""
    return Strided(array, argument.strides) if isinstance(argument, Strided | Empty) and argument.strides else array


def _zeros(x: Any) -> Empty:
    return Empty(tuple(_array(x).shape), _array(x).dtype, True, x.strides if isinstance(x, Strided) else None)


def _ones(x: Any) -> Any:
    return _like(x, torch.ones_like(_array(x)))


def _empty_tensor(empty: Empty, device: Any) -> Any:
    dtype = _torch_dtype(empty.dtype)
    if empty.strides is None:
        array = torch.empty(empty.shape, dtype=dtype, device=device)
    else:
        array = torch.empty_strided(empty.shape, empty.strides, dtype=dtype, device=device)
    return array.zero_() if empty.zeros else array


def _tangent(x: Any) -> Any:
    """The tangent of a tensor in forward mode; the level that Python keeps is not set in compiled programs."""
    return _unpack_dual(x, level=0).tangent if x.layout is torch.strided else None


def _shared_out(gradient: Any, like: Any) -> Any:
    """The gradient of each element of an input, from the sums over the elements that share an address.

    A kernel adds the gradients of elements at one address, such as those of `expand`. Autograd takes such elements for
    separate ones and adds their gradients: so each gets its share of the sum.
    """
    return gradient / _gathered(torch.ones_like(gradient), like) if _overlaps(like) else gradient


def _gathered(values: Any, like: Any) -> Any:
    """Values of the elements of a tensor, with their sum at elements that share an address."""
    return _with_strides(values, like.strides, summed=True) if _overlaps(like) else values


def _with_strides(values: Any, strides: Sequence[int], summed: bool = False) -> Any:
    """Values as a tensor with these strides. Elements that share an address have the same value, or `summed`."""
    if 0 in values.shape:
        return values
    span = 1 + sum((size - 1) * stride for size, stride in zip(values.shape, strides, strict=True))
    index = torch.arange(span, device=values.device).as_strided(values.shape, strides).reshape(-1)
    places = values.new_zeros(span).index_put((index,), values.reshape(-1), accumulate=summed)
    return places.as_strided(values.shape, strides)


def _overlaps(x: Any) -> bool:
    """Whether elements of a tensor may share an address, by the strides of its addresses."""
    end = 0
    for stride, size in sorted(zip(x.strides, x.array.shape, strict=True)) if isinstance(x, Strided) else ():
        if size > 1 and stride <= end:
            return True
        end += (size - 1) * stride
    return False


def _torch_dtype(dtype: Any) -> Any:
    return dtype if isinstance(dtype, torch.dtype) else getattr(torch, str(scalar_of(dtype).dtype))
