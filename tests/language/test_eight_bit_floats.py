"""All 256 values of each 8-bit float: the model, the simplified model and the emitted code agree.

What is rounded saturates, infinities too; what selects an operand keeps them. `docs/reference/accuracy.md` says so.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.backend.ptx.assemble import optimized
from ziggurat.backend.simulator.simulate import simulate
from ziggurat.codemodel.types import f8e4m3, f8e5m2, find_scalar

SMALL = pytest.mark.parametrize("scalar", [f8e4m3, f8e5m2], ids=str)

# Each gives a tensor of the dtype of x. Those of the first group round their result.
ROUNDING = {
    "times one": "zg.mul(x, 1.0)",
    "plus nothing": "zg.add(x, -0.0)",
    "minus nothing": "zg.sub(x, 0.0)",
    "over one": "zg.div(x, 1.0)",
    "to f32 and back": "zg.cast(zg.cast(x, zg.f32), x.dtype)",
    "to f16 and back": "zg.cast(zg.cast(x, zg.f16), x.dtype)",
    "floor": "zg.floor(x)",
    "ceil": "zg.ceil(x)",
    "fused": "zg.fma(x, 1.0, -0.0)",
}
SELECTING = {
    "maximum with itself": "zg.maximum(x, x)",
    "minimum with itself": "zg.minimum(x, x)",
    "maximum with one": "zg.maximum(x, 1.0)",
    "minimum with one": "zg.minimum(x, 1.0)",
    "clamp": "zg.clamp(x, -2.0, 3.0)",
    "where": "zg.where(zg.compare(x, 0.0, zg.CompareKind.GREATER_THAN), x, zg.neg(x))",
    "neg": "zg.neg(zg.neg(x))",
    "abs": "zg.abs(x)",
    "bits": "zg.bitcast(zg.bitcast(x, zg.u8), x.dtype)",
}


def written(kernel: Any, expression: str) -> Any:
    return kernel(f"""
        def f(p, o):
            i = zg.arange(0, 256)
            x = zg.load(zg.add(p, i))
            zg.store(zg.add(o, i), {expression})
    """)


def simulated(f: Any, target: str, *arrays: Any) -> None:
    """Run the emitted text after LLVM's passes, which put in the routines that it calls."""
    compiled = f.compile(*(zg.ptr(find_scalar(array.dtype)) for array in arrays), target=target)
    text = optimized(compiled.stages["llvm"], target)
    simulate(text, num_warps=compiled.num_warps, shared=compiled.shared, arguments=arrays, promises=False)


def results(f: Any, scalar: Any, numbers: Any) -> dict[str, Any]:
    """The bits of what a kernel stores: by the interpreter, simplified, and as it is emitted for two targets."""
    model = f.triton(zg.ptr(scalar), zg.ptr(scalar))
    outputs = {name: np.zeros(256, scalar.dtype) for name in ("interpreter", "simplified", "sm_80", "sm_90a")}
    zg.run(model, 1, numbers, outputs["interpreter"])
    zg.run(zg.simplify(model), 1, numbers, outputs["simplified"])
    for target in ("sm_80", "sm_90a"):
        try:
            simulated(f, target, numbers.copy(), outputs[target])
        except zg.TargetError:  # The simulation lacks some instructions for 8-bit floats.
            del outputs[target]
    return {name: out.view(np.uint8) for name, out in outputs.items()}


@SMALL
@pytest.mark.parametrize("name", [*ROUNDING, *SELECTING])
def test_all_values(kernel: Any, scalar: Any, name: str):
    expression = (ROUNDING | SELECTING)[name]
    numbers = np.arange(256, dtype=np.uint8).view(scalar.dtype)
    outputs = results(written(kernel, expression), scalar, numbers)
    wide = numbers.astype(np.float64)
    first = outputs["interpreter"]
    if name in ROUNDING:
        with np.errstate(all="ignore"):
            exact = getattr(np, name)(wide) if name in ("floor", "ceil") else wide
            expected = np.clip(exact, -scalar.format.largest, scalar.format.largest).astype(scalar.dtype)
    elif name in ("maximum with itself", "minimum with itself", "neg", "bits"):
        expected = numbers
    else:
        expected = None
    is_nan = np.isnan(first.view(scalar.dtype).astype(np.float64))
    if expected is not None:
        assert np.array_equal(np.isnan(expected.astype(np.float64)), is_nan)
        assert np.array_equal(expected.view(np.uint8)[~is_nan], first[~is_nan])
    assert "sm_80" in outputs or name == "fused"
    for where, bits in outputs.items():
        assert np.array_equal(np.isnan(bits.view(scalar.dtype).astype(np.float64)), is_nan), where
        different = ~is_nan & (bits != first)
        assert not different.any(), (where, numbers[different], bits.view(scalar.dtype)[different])


@SMALL
def test_constants_saturate_as_casts_do(kernel: Any, scalar: Any):
    for value in ("1.0e9", "float('inf')", "-float('inf')"):
        f = kernel(f"""
            def f(o):
                zg.store(o, zg.cast({value}, zg.{scalar}))
                zg.store(zg.add(o, 1), zg.full((), {value}, zg.{scalar}))
                zg.store(zg.add(o, 2), zg.cast(zg.cast({value}, zg.f32), zg.{scalar}))
        """, float=float)  # fmt: skip
        model = f.triton(zg.ptr(scalar))
        limit = -scalar.format.largest if value[0] == "-" else scalar.format.largest
        for tier in (model, zg.simplify(model)):
            out = np.zeros(3, scalar.dtype)
            zg.run(tier, 1, out)
            assert out.astype(float).tolist() == [limit] * 3
        out = np.zeros(3, scalar.dtype)
        simulated(f, "sm_80", out)
        assert out.astype(float).tolist() == [limit] * 3


@SMALL
def test_fma_casts_its_operands_first(kernel: Any, scalar: Any):
    f = kernel("""
        def f(p, o, n):
            x = zg.load(p)
            zg.store(o, zg.fma(x, n, 0.0)); zg.store(zg.add(o, 1), zg.mul(x, n))
            zg.store(zg.add(o, 2), zg.fma(x, 1.3, 0.0)); zg.store(zg.add(o, 3), zg.mul(x, 1.3))
    """)
    for x, n in ((0.5, 1000), (3, 1)):
        out = np.zeros(4, scalar.dtype)
        f[(1,)](np.array([x], scalar.dtype), out, n)
        by_integer, product, by_literal, other = out.astype(float)
        assert by_integer == product and by_literal == other
