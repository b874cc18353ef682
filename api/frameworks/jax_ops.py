"""Kernels as operations of JAX: foreign functions of XLA on the CPU and on CUDA, under `jax.jit` and `jax.grad`.

JAX's arrays do not change: an array that the kernel writes in place is copied (by XLA, where it must be), and the copy
is a further result.
"""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from ziggurat.boundary import public
from ziggurat.codemodel.errors import LaunchError
from ziggurat.frameworks.operation import Backward, Operation, OperationCall, Outputs, exact, is_operand, scalar_of
from ziggurat.frameworks.xla import handler
from ziggurat.kernels.kernel import Grid, Kernel

if TYPE_CHECKING:
    from ziggurat.backend.cuda.device_memory import DeviceArray

jax: Any = importlib.import_module("jax")

_numbers = itertools.count()


@public
def jax_op(
    kernel: Kernel,
    grid: Grid,
    outputs: Outputs = (),
    backward: str | Backward | None = None,
) -> JaxOperation:
    """A kernel as an operation of JAX, which works under `jax.jit` and `jax.grad`, on the CPU and on NVIDIA's GPUs.

        softmax = zg.jax_op(softmax_kernel, grid=lambda meta: (meta["rows"],), outputs={"out": "x"}, backward="auto")
        y = jax.jit(lambda x: softmax(x, *x.shape, BLOCK=1024))(x)

    `outputs` and `backward` are those of `zg.torch_op`. The results are the outputs, then the new values of arrays that
    the kernel writes in place; one result is not in a tuple. Numbers must be Python's: they are known when a program is
    traced. Raises `LaunchError` for arguments that do not fit, and for a gradient of an operation that writes its
    inputs.
    """
    return JaxOperation(kernel, grid, outputs, backward)


class JaxOperation(Operation):
    """The operation that `jax_op` makes."""

    library = "jax"
    gradient_hint = 'zg.jax_op(…, backward="auto")'

    def results(self, arguments: dict[str, Any]) -> tuple[Any, ...]:
        """The outputs, then the new values of the arrays that the kernel writes, for all arguments by name."""
        arrays = {name: jax.numpy.asarray(value) for name, value in arguments.items() if is_operand(value)}
        for name, value in arrays.items():
            if isinstance(value, jax.core.Tracer) and value.ndim == 0 and value.weak_type:
                raise LaunchError(
                    f"'{name}' of '{self.name}' must be a Python number; got a number that JAX traces",
                    hint=f'jax.jit(…, static_argnames="{name}"), or a number made of shapes',
                )
        call = _Call.of(self, arguments, arrays)
        self.check_launch(arguments)  # XLA reports errors of the launch itself as its own.
        run = call.run
        if self.backward is not None:
            run = jax.custom_vjp(run)
            run.defvjp(functools.partial(_forward, run), call.backward)
        return call.plan.ordered(self, run(*arrays.values()))

    def target(self, key: Any, make: Callable[[], Callable[[bool], Any]]) -> str:
        """The name of the foreign function for the kinds of the arguments; registered when they are new."""
        name: str | None = self._definitions.get(exact(key))
        if name is None:
            name = self._definitions[exact(key)] = f"ziggurat_{self.name}_{next(_numbers)}"
            handler = make()
            for platform in ("cpu", "CUDA"):
                capsule = jax.ffi.pycapsule(_keep(handler(platform == "CUDA")))
                jax.ffi.register_ffi_target(name, capsule, platform=platform)
        return name


def _forward(run: Callable[..., Any], *arrays: Any) -> tuple[Any, Any]:
    """The results, and what the backward pass needs. These results have a gradient, too: that of `run`."""
    results = run(*arrays)
    return results, (arrays, results)


# XLA calls the handlers as long as the process lives.
_handlers: list[Any] = []


def _keep(handler: Any) -> Any:
    _handlers.append(handler)
    return handler


@attrs.frozen(eq=False)
class _Call(OperationCall):
    """A call of an operation of JAX."""

    operation: JaxOperation

    def run(self, *arrays: Any) -> tuple[Any, ...]:
        """The results for the arrays."""
        inputs = dict(zip(self.names, arrays, strict=True))
        outputs = {name: self.rest[name] for name in self.plan.outputs}
        types = [jax.ShapeDtypeStruct(tuple(e.shape), scalar_of(e.dtype).dtype) for e in outputs.values()]
        types += [jax.ShapeDtypeStruct(inputs[name].shape, inputs[name].dtype) for name in self.plan.mutated]
        aliases = {self.names.index(name): len(outputs) + index for index, name in enumerate(self.plan.mutated)}
        rest = {name: value for name, value in self.rest.items() if name not in outputs}
        elements = [self.element(name) for name in (*self.names, *outputs, *self.plan.mutated)]
        key = (tuple(rest.items()), tuple(elements), self.names, tuple((n, e.zeros) for n, e in outputs.items()))
        target = self.operation.target(
            key, lambda: lambda on_gpu: handler(self._launcher(rest, on_gpu), elements, on_gpu)
        )
        # `jax.jacrev` batches the backward pass: its kernel is launched once for each item.
        batched = "sequential" if self.operation.is_derivative else None
        call = jax.ffi.ffi_call(target, types, input_output_aliases=aliases, has_side_effect=False, vmap_method=batched)
        return tuple(call(*arrays))

    def _launcher(self, rest: Mapping[str, Any], on_gpu: bool) -> Callable[[list[Any], int | None], None]:
        operation, names, plan = self.operation, self.names, self.plan
        zeros = [name for name in plan.outputs if self.rest[name].zeros]

        def launch(buffers: list[Any], stream: int | None) -> None:
            arguments = dict(zip((*names, *plan.outputs, *plan.mutated), buffers, strict=True))
            for name in zeros:
                _clear(arguments[name], stream)
            operation.launch({**rest, **arguments, **({"stream": stream} if on_gpu else {})})

        return launch

    def backward(self, saved: Any, gradients: Sequence[Any]) -> tuple[Any, ...]:
        """The gradient of each array."""
        arrays, results = saved
        cotangents = self.gradients_of(arrays, results, gradients)
        return tuple(
            cotangents[n] if n in cotangents else no_gradient(x) for n, x in zip(self.names, arrays, strict=True)
        )


def no_gradient(array: Any) -> Any:
    """The gradient of an array that has none: zeros of the type that JAX wants."""
    if jax.numpy.issubdtype(array.dtype, jax.numpy.floating):
        return jax.numpy.zeros_like(array)
    return np.zeros(array.shape, jax.dtypes.float0)


def _clear(buffer: np.ndarray[Any, Any] | DeviceArray, stream: int | None) -> None:
    """Fill a buffer with zeros."""
    if isinstance(buffer, np.ndarray):
        buffer[...] = 0
        return
    from ziggurat.backend.devices.driver import check, cuda

    if buffer.nbytes:
        check(cuda().cuMemsetD8Async(buffer.pointer, 0, buffer.nbytes, stream), "clearing an array")
