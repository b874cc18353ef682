"""Kernels as operations of TensorFlow, eager and in a `tf.function`, with gradients.

Kernels run on NumPy arrays, which share the memory of the tensors by DLPack. Tensors of a dtype that TensorFlow's
DLPack lacks (bfloat16) are copied. Tensors do not change: an array that the kernel writes in place is copied, and the
copy is a further result. An operation with gradients has no such arrays.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import attrs
import numpy as np

from ziggurat.codemodel.structured import packed_values
from ziggurat.frameworks.operation import Operation, OperationCall, as_list, is_operand, scalar_of

tf: Any = importlib.import_module("tensorflow")


class TensorflowOperation(Operation):
    """A kernel as an operation of TensorFlow. A call gives the outputs, then the new values of arrays that are written
    in place."""

    library = "tensorflow"
    gradient_hint = 'TensorflowOperation(…, backward="auto")'

    def results(self, arguments: dict[str, Any]) -> tuple[Any, ...]:
        tensors = {name: tf.convert_to_tensor(value) for name, value in arguments.items() if is_operand(value)}
        call = _Call.of(self, arguments, tensors)
        return call.plan.ordered(self, as_list(tf.custom_gradient(call.with_gradient)(*tensors.values())))


@attrs.frozen(eq=False)
class _Call(OperationCall):
    """A call of an operation of TensorFlow."""

    def run(self, *tensors: Any) -> list[Any]:
        """The results for the tensors: computed now in eager mode, otherwise by a `numpy_function` in the traced
        graph."""
        if all(hasattr(tensor, "__dlpack__") for tensor in tensors) and tf.executing_eagerly():
            return [_tensor(array) for array in self.computed(*map(_array, tensors))]
        outputs = [self.rest[name] for name in self.plan.outputs]
        inputs = dict(zip(self.names, tensors, strict=True))
        mutated = [inputs[name] for name in self.plan.mutated]
        dtypes = [tf.as_dtype(scalar_of(item.dtype).dtype) for item in outputs] + [item.dtype for item in mutated]
        results = tf.numpy_function(self.computed, tensors, dtypes)
        for result, like in zip(results, [*outputs, *mutated], strict=True):
            result.set_shape(like.shape)
        return list(results)

    def computed(self, *arrays: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        """The results for NumPy arrays: the outputs, then copies of the arrays that the kernel writes in place."""
        arguments = {**self.rest, **dict(zip(self.names, arrays, strict=True))}
        for name in self.plan.outputs:
            output = self.rest[name]
            arguments[name] = _empty(tuple(output.shape), scalar_of(output.dtype).dtype)
            if output.zeros:
                arguments[name][...] = 0
        for name in self.plan.mutated:
            arguments[name] = np.array(arguments[name])
        self.operation.launch(arguments)
        return [arguments[name] for name in (*self.plan.outputs, *self.plan.mutated)]

    def with_gradient(self, *tensors: Any) -> tuple[Any, Any]:
        """The results, and the function from the gradients of the results to those of the tensors, None for a tensor
        that has none."""
        results = self.run(*tensors)

        def backward(*gradients: Any) -> list[Any]:
            outputs = as_list(tf.custom_gradient(with_results)(*tensors))
            cotangents = self.gradients_of(tensors, outputs, gradients)
            return [cotangents.get(name) for name in self.names]

        def with_results(*_: Any) -> tuple[Any, Any]:
            # The results that the gradient is computed from have a gradient as well.
            return packed_values(results), backward

        return packed_values(results), backward


def _array(tensor: Any) -> np.ndarray[Any, Any]:
    try:
        return np.from_dlpack(tensor)
    except (BufferError, RuntimeError, TypeError):
        return tensor.numpy()


# The alignment of TensorFlow's tensors, in bytes. TensorFlow aborts the process on memory with a smaller alignment.
_ALIGNMENT = 64


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def _tensor(array: np.ndarray[Any, Any]) -> Any:
    if array.dtype.isbuiltin == 1 and array.ctypes.data % _ALIGNMENT == 0:
        return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    return tf.convert_to_tensor(array)
