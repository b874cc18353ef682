"""Kernels as operators of PyTorch: each is a `torch.library.custom_op`, with a fake implementation and a gradient.

An operator is defined for the dtypes and the constants of a call, when these are new: then the kernel's model says
which arguments are written. Under `torch.compile` and `torch.export` that is done while the program is traced.
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

import numpy as np

from ziggurat.boundary import public
from ziggurat.codemodel import records
from ziggurat.codemodel.errors import LaunchError, shown
from ziggurat.codemodel.types import PtrType, f32, i1, i32
from ziggurat.frameworks.operation import (
    Backward,
    Empty,
    Operation,
    Outputs,
    Plan,
    Sizes,
    definers,
    enlisted,
    exact,
    is_array,
    listed,
    scalar_of,
    single,
)
from ziggurat.kernels.kernel import Grid, Kernel

torch: Any = importlib.import_module("torch")

NAMESPACE = "ziggurat"
# The kinds of the arguments of a call: (name, kind, details …).
Key = tuple[tuple[Any, ...], ...]


class Definer(Protocol):
    """Defines operators: `define` gives the name of the one for the kinds of a call's arguments."""

    label: str

    def define(self, key: Key) -> str: ...


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

    def __init__(
        self, kernel: Kernel, grid: Grid, outputs: Outputs = (), backward: str | Backward | None = None
    ) -> None:
        super().__init__(kernel, grid, outputs, backward)
        self._definitions: dict[Any, str] = {}
        self.label = enlisted(self)

    def results(self, named: dict[str, Any]) -> tuple[Any, ...]:
        """The outputs, for all arguments by name."""
        return call(self, named, tuple(self.rules), lambda name: name in self.constants or name not in self.parameters)

    def define(self, key: Key) -> str:
        """The name of the operator for the kinds of the arguments; defined when they are new."""
        known = self._definitions.get(exact(key))
        if known is None:
            known = self._definitions[exact(key)] = _Definition.of(self, key).register()
        return known


def call(
    definer: Definer, named: Mapping[str, Any], outputs: Sequence[str], is_constant: Callable[[str], bool]
) -> tuple[Any, ...]:
    """The outputs of an operator for all its arguments by name. `torch.compile` traces this function.

    `definer` defines the operator. `is_constant` says whether a number given for a name is compiled in.
    """
    key: list[tuple[Any, ...]] = []
    leaves: list[Any] = []
    for name, value in named.items():
        if isinstance(value, Sizes):
            key.append((name, "sizes"))
            leaves.append([*value.sizes])
        elif isinstance(value, Empty):
            key.append((name, "made", value.dtype, value.zeros, value.strides is not None))
            leaves.append([*value.shape])
            if value.strides is not None:
                leaves.append([*value.strides])
        elif isinstance(value, torch.Tensor):
            key.append((name, "tensor", value.dtype))
            leaves.append(value)
        elif is_constant(name) or value is None:
            key.append((name, "constant", value))
        else:
            number: Any = cast(Any, value).item() if isinstance(value, np.generic) else value
            key.append((name, _kind_of_number(name, number)))
            leaves.append(number)
    made = listed(getattr(getattr(torch.ops, NAMESPACE), _defined(definer.label, tuple(key)))(*leaves))
    results: list[Any] = []
    for name, value in named.items():
        result = made.pop(0) if isinstance(value, Empty) else value
        if name in outputs:
            results.append(result)
    return tuple(results)


def _kind_of_number(name: str, value: Any) -> str:
    """The kind of a number, among `_NUMBERS`; sizes that `torch.export` traces are numbers, too."""
    if isinstance(value, (bool, torch.SymBool)):
        return "bool"
    if isinstance(value, (int, torch.SymInt)):
        if not torch.compiler.is_compiling() and not -(2**63) <= value < 2**63:
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
def _defined(label: str, key: Key) -> str:
    return definers[label].define(key)


@records.distinct
class _Definition:
    """An operator for one list of kinds of arguments. Its leaves are the tensors, numbers and sizes of a call."""

    operation: TorchOperation
    key: Key
    plan: Plan

    @staticmethod
    def of(operation: TorchOperation, key: Key) -> _Definition:
        kinds: dict[str, Any] = {}
        arguments: dict[str, Any] = {}
        for name, kind, *rest in key:
            if kind == "made":
                kinds[name], arguments[name] = PtrType(scalar_of(rest[0])), Empty((), rest[0])
            elif kind == "tensor":
                if name in operation.constants:
                    raise LaunchError(f"'{name}' of '{operation.name}' is compiled in: it must be no tensor")
                kinds[name], arguments[name] = PtrType(scalar_of(rest[0])), None
            elif kind != "sizes":
                kinds[name] = arguments[name] = rest[0] if kind == "constant" else _NUMBERS[kind][1]
        plan = Plan.of(operation, arguments, kinds)
        return _Definition(operation, key, plan)

    def register(self) -> str:
        """Define the operator. Returns its name."""
        name = f"{self.operation.name.replace('.', '_').replace('<', '').replace('>', '')}_{next(_numbers)}"
        parts: list[str] = []
        for parameter, kind, *rest in self.key:
            argument = f"a{len(parts)}"
            if kind == "made":
                parts += [f"SymInt[] a{len(parts) + index}" for index in range(1 + rest[2])]
            elif kind == "tensor":
                parts.append(f"Tensor{f'({argument}!)' if parameter in self.plan.mutated else ''} {argument}")
            elif kind == "sizes":
                parts.append(f"SymInt[] {argument}")
            elif kind != "constant":
                parts.append(f"{_NUMBERS[kind][0]} {argument}")
        results = ", ".join(["Tensor"] * len(self.plan.made))
        schema = f"({', '.join(parts)}) -> {results if len(self.plan.made) == 1 else f'({results})'}"
        mutated = [part.split()[-1] for part in parts if "!" in part]
        op = torch.library.custom_op(f"{NAMESPACE}::{name}", self.run, mutates_args=mutated, schema=schema)
        op.register_fake(self.fake)
        op.register_vmap(self._no_vmap)
        if self.operation.backward is not None:
            op.register_autograd(self.derivatives, setup_context=self.keep)
        return name

    def run(self, *leaves: Any) -> Any:
        """Make the outputs and launch the kernel."""
        named = self._named(leaves)
        self.operation.launch(named)
        return self._returned(named)

    def fake(self, *leaves: Any) -> Any:
        """The outputs, made and not filled."""
        return self._returned(self._named(leaves))

    def _named(self, leaves: Sequence[Any]) -> dict[str, Any]:
        """The arguments by name, with the outputs that are made."""
        device = next((leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor)), None)
        work = iter(leaves)
        named: dict[str, Any] = {}
        for name, kind, *rest in self.key:
            if kind == "constant":
                named[name] = rest[0]
            elif kind == "made":
                shape, dtype = next(work), _torch_dtype(rest[0])
                if rest[2]:
                    made = torch.empty_strided(shape, next(work), dtype=dtype, device=device)
                else:
                    made = torch.empty(shape, dtype=dtype, device=device)
                named[name] = made.zero_() if rest[1] else made
            else:
                named[name] = next(work)
        return named

    def _returned(self, named: Mapping[str, Any]) -> Any:
        return single([named[name] for name in self.plan.made])

    def _no_vmap(self, *_: Any) -> Any:
        raise LaunchError(
            f"'{self.operation.name}' cannot run under torch.vmap: a kernel's batch is an axis of its grid",
            hint="launch it over a larger grid, or call it for each item",
        )

    def keep(self, ctx: Any, inputs: Sequence[Any], output: Any) -> None:
        """Save for the backward pass all leaves and the outputs."""
        ctx.is_tensor = [isinstance(leaf, torch.Tensor) for leaf in inputs]
        ctx.others = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in inputs]
        ctx.save_for_backward(*[leaf for leaf in inputs if isinstance(leaf, torch.Tensor)], *listed(output))

    def derivatives(self, ctx: Any, *gradients: Any) -> Any:
        """The gradient of each leaf; None for those that need none."""
        saved = list(ctx.saved_tensors)
        leaves = [saved.pop(0) if tensor else other for tensor, other in zip(ctx.is_tensor, ctx.others, strict=True)]
        names: list[str | None] = []
        named: dict[str, Any] = {}
        for name, kind, *rest in self.key:
            if kind == "constant":
                named[name] = rest[0]
            elif kind == "made":
                names += [None] * (1 + rest[2])
                named[name] = saved.pop(0)
            else:
                named[name] = leaves[len(names)]
                names.append(name if kind == "tensor" else None)
        needed = [name for name, needs in zip(names, ctx.needs_input_grad, strict=True) if name is not None and needs]
        given = {
            name: torch.zeros_like(named[name]) if gradient is None else gradient.contiguous()
            for name, gradient in zip(self.plan.made, gradients, strict=True)
        }
        found = dict(self.operation.gradients(named, given, needed, _zeros))
        if self.operation.backward == "auto":
            found = {name: _shared_out(gradient) for name, gradient in found.items()}
        return tuple(None if name is None else found.get(name) for name in names)


def _zeros(x: Any) -> Empty:
    return Empty(tuple(x.shape), x.dtype, True, tuple(x.stride()))


def _shared_out(gradient: Any) -> Any:
    """The gradient of each element of an input, from the sums over the elements that share an address.

    A kernel adds the gradients of elements at one address, along axes of stride 0 such as those of `expand`. Autograd
    takes such elements for separate ones and adds their gradients: so each gets its share of the sum.
    """
    shared = math.prod(size for size, stride in zip(gradient.shape, gradient.stride(), strict=True) if stride == 0)
    return gradient if shared in (0, 1) else gradient / shared


def _torch_dtype(dtype: Any) -> Any:
    return dtype if isinstance(dtype, torch.dtype) else getattr(torch, str(scalar_of(dtype).dtype))
