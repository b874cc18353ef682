"""Kernels in Triton-C that are called with tensors of any library."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

from ziggurat.codemodel.errors import LaunchError, shown
from ziggurat.codemodel.structured import packed_values
from ziggurat.codemodel.types import find_scalar
from ziggurat.frameworks.operation import (
    GRID,
    Empty,
    Operation,
    as_list,
    enlisted,
    exact,
    frozen,
    is_array,
    is_integer,
    of_one_parameter,
    output_names,
    sizes_in,
)


def cdiv(a: int, b: int) -> int:
    """The quotient of two integers, rounded up; sizes that `torch.compile` traces are integers, too."""
    if isinstance(a, str) or isinstance(b, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise LaunchError(f"triton.cdiv: the operands must be integers; got {a!r} and {b!r}")
    return (a + b - 1) // b


def shape(tensor: Any) -> tuple[int, ...]:
    """The sizes of a tensor of any library."""
    return tuple(tensor.shape)


def empty(shape: Sequence[int], dtype: Any) -> Empty:
    """A tensor that a kernel fills: the library of the kernel's other tensors makes it. `dtype` is of any library."""
    return Empty(sizes_in(shape, "a tensor"), dtype)


def zeros(shape: Sequence[int], dtype: Any) -> Empty:
    """A tensor of zeros that a kernel adds to; see `empty`."""
    return Empty(sizes_in(shape, "a tensor"), dtype, zeros=True)


class Options:
    """The definitions that a kernel is compiled with, as a grid asks for them: `opt.d("TM")`.

    `torch.compile` traces the making of one, which it cannot for a class of attrs.
    """

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self.definitions = definitions

    def d(self, name: str) -> Any:
        """The value of a macro."""
        if name not in self.definitions:
            raise LaunchError(f"no macro is named '{name}'", hint=f"there are {', '.join(self.definitions)}")
        return self.definitions[name]

    __getitem__ = d


MACRO = "-D"  # Starts the names of macros among the arguments of an operator of PyTorch.
_Macros = tuple[tuple[str, Any], ...]


class kernel:
    """A kernel in Triton-C: `kernel(source, ["C"])`. Called with tensors, numbers and a grid, it returns the outputs.

        c = triton.empty([n], a.dtype)
        c = add(a, b, c, n, lambda opt: [triton.cdiv(n, opt.d("SIZE"))], TYPE=a.dtype, SIZE=[128, 256])

    `outputs` are the names of the parameters that are returned: one, or a tuple. Macros are keywords or a dictionary
    after the grid; a list of values is tuned, once for each new combination of sizes. Where the source has several
    kernels, `name` chooses one.
    """

    autograph_info__: ClassVar[dict[str, Any]] = {}  # See `Operation`.

    def __init__(self, source: str, outputs: str | Sequence[str] = (), *, name: str | None = None) -> None:
        self.source = source
        self.outputs = output_names(outputs)
        self.name = name
        self._kernels: dict[Any, Any] = {}
        self._operations: dict[Any, Operation] = {}
        self.label = enlisted(self)

    def __call__(self, *arguments: Any, macros: Mapping[str, Any] | None = None, **more: Any) -> Any:
        values = [*arguments]
        defined: dict[str, Any] = dict(_checked({} if macros is None else macros))
        if values and isinstance(values[-1], dict):
            defined.update(_checked(values.pop()))
        defined |= more
        grid = defined.pop("grid") if "grid" in defined else values.pop() if values else None
        key = tuple([(name, frozen(name, value)) for name, value in defined.items()])
        library = library_of(values)
        if library == "torch":
            from ziggurat.pytriton.torch_kernels import call

            return call(self, key, values, grid)
        bound: dict[str, Any] = self.arguments_by_name(self.parameters(key), values, grid)
        operation = self.operation(library, key)
        return packed_values(operation.results({**bound, GRID: tuple(sizes(grid, key))})[: len(self.outputs)])

    def arguments_by_name(self, names: Sequence[str], values: Sequence[Any], grid: Any) -> dict[str, Any]:
        """The arguments of a call by name."""
        if len(values) != len(names):
            got = "a function" if callable(grid) else shown(grid)
            raise LaunchError(
                f"the kernel takes {len(names)} arguments and a grid; got {len(values)} and {got} for the grid",
                hint=f"({', '.join(names)}, grid)",
            )
        return dict(zip(names, values, strict=True))

    def kernel_for(self, macros: _Macros) -> Any:
        """The kernel for definitions of the macros; read from the source when these are new."""
        kernel = self._kernels.get(exact(macros))
        if kernel is None:
            from ziggurat.c_kernels.kernels import kernel_and_models

            # The document's program defines macros that its source does not name: AT and BT.
            definitions = {name: _defined(value) for name, value in macros}
            kernel = self._kernels[exact(macros)] = kernel_and_models(self.source, self.name, definitions)[0]
        return kernel

    def parameters(self, macros: _Macros) -> tuple[str, ...]:
        """The names of the parameters of the C function. Raises `KernelNameError` for a macro that is not defined."""
        models = self.kernel_for(macros).models
        models.values({})
        return tuple(models.parameters)

    def define(self, key: tuple[tuple[Any, ...], ...]) -> Any:
        """The operator of PyTorch for kinds of arguments, macros among them; see `torch_ops.Definer`."""
        macros = tuple((name.removeprefix(MACRO), *value) for name, _, *value in key if name.startswith(MACRO))
        operation: Any = self.operation("torch", macros)
        return operation.define(tuple(part for part in key if not part[0].startswith(MACRO)))

    def operation(self, library: str, macros: _Macros) -> Operation:
        """The kernel as an operation of a library."""
        operation = self._operations.get((library, exact(macros)))
        if operation is None:
            operation = _class_of(library)(self.kernel_for(macros), (1,), self.outputs)
            operation.configurations = _tuned(macros)
            self._operations[library, exact(macros)] = operation
        return operation


# The modules and the classes of the operations of each library.
_CLASSES = {
    "torch": ("torch_ops", "TorchOperation"),
    "jax": ("jax_ops", "JaxOperation"),
    "tensorflow": ("tensorflow_ops", "TensorflowOperation"),
    "cupy": ("array_ops", "CupyOperation"),
    "numpy": ("array_ops", "ArrayOperation"),
}


def _class_of(library: str) -> type[Operation]:
    module, name = _CLASSES[library]
    return getattr(importlib.import_module(f"ziggurat.frameworks.{module}"), name)


def library_of(values: Sequence[Any]) -> str:
    """The library of the arrays among some values: "torch", "jax", "tensorflow", "cupy", or "numpy" if there are none.

    Raises `LaunchError` for arrays of several libraries, NumPy's aside.
    """
    libraries: list[str] = []
    torch: Any = sys.modules.get("torch")
    for value in values:
        if torch is not None and isinstance(value, torch.Tensor):
            if "torch" not in libraries:
                libraries.append("torch")
        elif is_array(value) and not isinstance(value, Empty):
            name = _library(type(value))  # pyright: ignore[reportUnknownArgumentType]
            if name not in libraries:
                libraries.append(name)
    others = [name for name in libraries if name != "numpy"]
    if len(others) > 1:
        raise LaunchError(f"the arrays of a call must be of one library; got {' and '.join(others)}")
    return others[0] if others else "numpy"


def _library(cls: type) -> str:
    for base in cls.__mro__:
        root = base.__module__.partition(".")[0]
        root = "jax" if root == "jaxlib" else root
        if root in ("jax", "tensorflow", "cupy", "numpy"):
            return root
    raise LaunchError(f"the arrays must be of PyTorch, JAX, TensorFlow, CuPy or NumPy; got {cls.__qualname__}")


def _checked(macros: Any) -> Mapping[str, Any]:
    """Definitions of macros by name. Raises `LaunchError` for anything else."""
    entries = cast("Mapping[Any, Any]", macros)
    if not isinstance(macros, Mapping) or not all(isinstance(name, str) for name in entries):
        raise LaunchError(f"macros must be a dictionary of values by name; got {shown(macros)}")
    return entries


def _defined(value: Any) -> Any:
    """The value of a macro as `zg.triton_c` takes it."""
    if isinstance(value, tuple):
        return [_defined(item) for item in as_list(value)]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return find_scalar(getattr(value, "as_numpy_dtype", value)) or value  # TensorFlow's dtypes have that.


def _tuned(macros: _Macros) -> list[dict[str, Any]]:
    """The values of the macros with lists, in each combination."""
    choices: list[dict[str, Any]] = [{}]
    for name, values in macros:
        if isinstance(values, tuple):
            choices = [{**choice, name: value} for choice in choices for value in as_list(values)]
    return choices


def sizes(grid: Any, macros: _Macros) -> list[int]:
    """The sizes of the grid for definitions of the macros: three for each combination of the values in lists."""
    numbers: list[int] = []
    for values in _tuned(macros):
        options = Options({**dict(macros), **values})
        items = as_list(of_one_parameter(grid, options, "the function of the grid") if callable(grid) else grid)
        if not 1 <= len(items) <= 3 or not all(is_integer(size) for size in items):
            raise LaunchError(
                f"the grid must be one to three sizes, integers, or a function of the macros that gives them; "
                f"got {shown(items)}",
                hint='lambda opt: [triton.cdiv(n, opt.d("SIZE"))]',
            )
        numbers += items + [1] * (3 - len(items))
    return numbers
