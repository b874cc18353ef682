"""Running any Triton model, however it was made, on arrays in memory."""

from __future__ import annotations

from typing import Any

from ziggurat.backend.launch.grids import sizes_of
from ziggurat.boundary import no_faults, public
from ziggurat.codemodel.op import Op, require_model


@public
def run(model: Op, grid: int | tuple[int, ...], *arguments: Any, strict: bool = False) -> None:
    """Run a Triton model once for each program of a grid, on NumPy arrays and numbers.

    It is what `kernel[grid](arguments…)` does, for models that were traced, parsed or transformed:
    `zg.run(model, (16,), x, y, n)`. `model` is a `module` with one function that no other calls, or a lone `tt.func`.
    There is one argument for each of its parameters: for a pointer an array (NumPy's, or one with the array or the
    DLPack protocol) of that element type, which is read and written in place; for a descriptor a
    `zg.TensorDescriptor`; otherwise a number. With `strict`, what is undefined is filled with NaN or large numbers.

    Raises `LaunchError` when the grid or the arguments do not fit, `KernelRuntimeError` when a program fails.
    """
    from ziggurat.backend.launch.arrays import as_array, is_array
    from ziggurat.backend.reference.run import run as run_on_arrays

    require_model(model, "zg.run")
    values = [as_array(given, f"arg{index}") if is_array(given) else given for index, given in enumerate(arguments)]
    sizes = sizes_of(grid, "zg.run")
    with no_faults("running", lambda: model, str(model.attributes.get("sym_name", model.NAME))):
        run_on_arrays(model, None, sizes, values, strict=strict)
