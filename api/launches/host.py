"""Models on this machine: Triton, GPU and CPU models by the interpreter, Python models as Python runs them."""

from __future__ import annotations

from typing import Any

from ziggurat.backend.launch.grids import sizes_of
from ziggurat.boundary import no_faults, public
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.execute import execute as execute_model
from ziggurat.codemodel.gpu.options import boolean
from ziggurat.codemodel.op import Op, require_argument, require_model
from ziggurat.codemodel.subnormals import keep_subnormals
from ziggurat.codemodel.verify import verify
from ziggurat.frontends.language import CALLS, Function
from ziggurat.transforms.attribution import link


@public
def run(model: Op, grid: int | tuple[int, ...], *arguments: Any, strict: bool = False) -> None:
    """Run a Triton, GPU or CPU model once for each program of a grid, on NumPy arrays and numbers.

    `zg.run(model, (16,), x, y, n)` does for a traced, parsed or transformed model what `kernel[grid](arguments…)` does
    for a kernel. `model` is a `module` with one function that no other calls, or a lone `tt.func`. There is one
    argument for each of its parameters: for a pointer an array (NumPy's, or one with the array or the DLPack protocol)
    of that element type, which is read and written in place; for a descriptor a `zg.TensorDescriptor`; otherwise a
    number. With `strict`, a use of an undefined element is an error.

    A model of `compiled.passes` takes the arguments of the Triton model; layouts, waits and barriers have no effect.

    Raises `VerifyError` for a model that breaks invariants, `LaunchError` when the grid or the arguments do not fit,
    and `KernelRuntimeError` when a program fails.
    """
    from ziggurat.backend.launch.arrays import as_array, is_array
    from ziggurat.backend.reference.run import run as run_on_arrays

    require_model(model, "zg.run")
    verify(model)
    strict = boolean("strict", strict)
    if callable(grid):
        raise LaunchError(
            "the grid of zg.run must be one to three sizes; got a function", hint="call the function first"
        )
    values = [
        as_array(argument, f"arg{index}") if is_array(argument) else argument
        for index, argument in enumerate(arguments)
    ]
    sizes = sizes_of(grid, "zg.run")
    with no_faults("running", lambda: model, str(model.attributes.get("sym_name", model.NAME))):
        run_on_arrays(model, None, sizes, values, strict=strict)


@public
@keep_subnormals()
def execute(function: Function | Op, *arguments: Any, symbol: str | None = None) -> Any:
    """The result of a function's Python code model on plain Python values.

    `function` is a function of the language, or a Python model: a `func`, or a module and the `symbol` of one of its
    functions. Calls of the language have their meaning for Python numbers (`zg.cdiv`, `zg.minimum` …), so that a
    source can be compared with its model. Raises `KernelRuntimeError` where Python raises.
    """
    hint = "decorate a function with @zg.function" if callable(function) else None
    require_argument(
        function, (Function, Op), "zg.execute: 'function' must be a function of the language or a model", hint
    )
    host = {f"zg.{name}": call for name, call in CALLS.items()}
    if isinstance(function, Function):
        module = link(function)
        return execute_model(module, arguments, symbol=str(function.model.attributes["sym_name"]), host=host)
    return execute_model(function, arguments, symbol=symbol, host=host)
