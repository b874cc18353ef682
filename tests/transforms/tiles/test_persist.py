"""CTAs that run several programs: which kernels do, and their results against the interpreter.

Inputs are small integers, whose sums are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from persistent_products import TILE, arguments, matrices, product, types

import ziggurat as zg
from ziggurat.backend.reference.run import run
from ziggurat.codemodel.dialects import core, scf, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.fragments import is_of_launch
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.analysis.queries import is_persistent
from ziggurat.transforms.gpu.hazards import hazards
from ziggurat.transforms.gpu.raise_pointers import raise_pointers
from ziggurat.transforms.tiles.persist import make_persistent
from ziggurat.transforms.tiles.prepare import prepare_for_gpu
from ziggurat.triton.runtime.triton_options import compile_options

OPTIONS: dict[str, Any] = {"target": "sm_90a", "num_warps": 8}


def models(argument: list[Any], **options: Any) -> tuple[core.Module, core.Module]:
    """The model before the pass and after it."""
    choice = CompileOptions(**{**OPTIONS, **options})
    before = raise_pointers(prepare_for_gpu(product.triton(*argument)), choice)
    after = make_persistent(before, choice)
    verify(after)
    return before, after


def func_of(module: core.Module) -> tt.Func:
    (func,) = module.functions().values()
    assert isinstance(func, tt.Func)
    return func


@pytest.mark.parametrize(
    ("also", "options"),
    [
        ("atomic", {}), ("barrier", {}), ("volatile", {}), ("print", {}),
        ("", {"persistent": False}), ("", {"launch_cooperative_grid": True}), ("", {"raise_pointers": False}),
        ("", {"num_warps": 4}), ("", {"num_stages": 2}), ("", {"launch_pdl": True}), ("", {"target": "sm_80"}),
    ],
)  # fmt: skip
def test_not_persistent(also: str, options: dict[str, Any]) -> None:
    """Programs may depend on each other, or nothing is gained."""
    before, after = models(types(also), **options)
    assert after == before


@pytest.mark.parametrize("tile", [(128, 128, 64), (128, 256, 128), (256, 256, 32)])
def test_tiles_that_gain_nothing(tile: tuple[int, int, int]) -> None:
    """Two CTAs an SM, shared memory for one stage, too many registers."""
    before, after = models(types(tile=tile))
    assert after == before


@pytest.mark.parametrize("also", ["", "residual", "two stores"])
def test_the_grid_becomes_a_loop(also: str) -> None:
    """Nothing but the loop asks for the number of the program; scalars of all programs come before it."""
    before, after = models(types(also))
    func = func_of(after)
    loop = next(op for op in func.body.entry.ops if isinstance(op, scf.For))
    assert is_persistent(func) and not is_persistent(func_of(before))
    inside = {op.NAME for op in loop.body.walk()}
    assert {"tt.dot", "tt.store"} & inside and not {"tt.get_program_id", "tt.get_num_programs"} & inside
    assert not any(isinstance(op, tt.MakeTensorDescriptor) for op in loop.body.walk())
    assert [part for part in func.parts if is_of_launch(part)] == ["grid 0", "grid 1", "grid 2"]


def test_the_options_of_triton_programs_allow_it() -> None:
    """Their launches give warps and stages, and leave roles to `specialize`."""
    choice = compile_options({"num_warps": 8})
    before = raise_pointers(prepare_for_gpu(product.triton(*types())), choice)
    assert is_persistent(func_of(make_persistent(before, choice)))


@pytest.mark.parametrize("also", ["", "residual"])
def test_the_model_before_and_after(also: str) -> None:
    """The interpreter runs both: the pass's loop by any number of programs of one axis."""
    before, after = models(types(also))
    for sizes, grid in (((300, 520, 70), (3, 3, 1)), ((260, 40, 100), (2, 1, 2)), ((9, 9, 0), (1, 1, 1))):
        results: list[np.ndarray] = []
        for model, ctas in ((before, 1), *((after, ctas) for ctas in (1, 2, 3, 7, 100))):
            arrays = matrices(*sizes)
            run(model, None, grid, arguments(*sizes, arrays), persistent_ctas=ctas)
            results.append(arrays[2])
        for result in results[1:]:
            np.testing.assert_array_equal(result, results[0])


def test_an_empty_grid_stores_nothing() -> None:
    _, after = models(types())
    arrays = matrices(64, 64, 64)
    copies = arrays[2].copy()
    run(after, None, (3, 0, 1), arguments(64, 64, 64, arrays))
    np.testing.assert_array_equal(arrays[2], copies)


@pytest.mark.parametrize(
    ("also", "sizes", "grid", "seed"),
    [
        ("", (300, 520, 200), (3, 3, 1), 0), ("residual", (200, 264, 72), (2, 2, 1), 1),
        ("two stores", (200, 264, 72), (2, 2, 1), 2),
    ],
)  # fmt: skip
def test_simulated(also: str, sizes: tuple[int, int, int], grid: tuple[int, int, int], seed: int) -> None:
    """All of the lower half: roles, a ring that goes on into the next tile, and stores that are waited for late."""
    m, n, k = sizes
    binary = product.compile(
        *types(also, sizes=zg.divisible(zg.i32, 8) if n % 8 == 0 else zg.i32), **OPTIONS, verify=True
    )
    module = binary.stages["gpu"]
    assert binary.persistent and not hazards(module)
    assert any(isinstance(op, gpu.WarpSpecialize) for op in module.walk())
    results: list[np.ndarray] = []
    for simulated in (True, False):
        arrays = matrices(m, n, k)
        if simulated:
            binary.simulate[grid](*arguments(m, n, k, arrays), seed=seed, ctas=2 + seed)
        else:
            product[grid](*arguments(m, n, k, arrays), *TILE, also, interpret=True)
        results.append(arrays[2])
    np.testing.assert_array_equal(*results)


def test_the_limit_of_a_simulation_is_that_of_a_program() -> None:
    """A CTA that runs four programs may run four times as many instructions."""
    m, n, k = 512, 256, 64
    binary, arrays = product.compile(*types(), **OPTIONS), matrices(m, n, k)
    binary.simulate[(4,)](*arguments(m, n, k, arrays), ctas=1, max_steps=2500)
    a, b, c = (array.astype(np.float32) for array in arrays)
    np.testing.assert_array_equal(a @ b, c)


def test_a_simulation_refuses_a_store_by_tma_to_no_elements() -> None:
    """No tensor map describes them: a launch takes the other kernel."""
    binary, arrays = product.compile(*types(), **OPTIONS), matrices(64, 64, 64)
    with pytest.raises(zg.LaunchError, match="nothing to store to"):
        binary.simulate[(1,)](*arguments(64, 0, 64, arrays))


def test_a_store_by_tma_is_waited_for_in_the_next_tile() -> None:
    binary = product.compile(*types(), **OPTIONS, verify=True)
    (store,) = (op for op in binary.stages["gpu"].walk() if isinstance(op, gpu.TmaStore))
    tiles = next(op for op in store.path() if isinstance(op, scf.For))
    names = [op.NAME for op in tiles.body.entry.ops if op.NAME.startswith("gpu.")]
    assert names[-6:] == [
        "gpu.tma_store_wait", "gpu.barrier", "gpu.local_store", "gpu.fence_async", "gpu.barrier", "gpu.tma_store"
    ]  # fmt: skip
    role = tiles.parent
    assert role is not None and isinstance(role.ops[role.ops.index(tiles) + 1], gpu.TmaStoreWait)
