"""The choice of the unit for a dot, and the ops that the dot becomes."""

from __future__ import annotations

import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.codemodel.layout import blocked
from ziggurat.codemodel.op import Op
from ziggurat.transforms.gpu.dots import Fma, MmaSync, Wgmma, anchors, mma_of, place_dots
from ziggurat.transforms.layouts.accesses import Accesses
from ziggurat.transforms.layouts.swizzle import moves


def model(element: str, shape: tuple[int, int, int], target: str, num_warps: int, sum_: str = "f32") -> gpu.Module:
    """A dot of two tensors, all three in coalesced layouts."""
    m, n, k = shape

    def tensor(rows: int, columns: int, kind: str) -> str:
        return f'tensor<x{rows}, x{columns}, {kind}, "{blocked((rows, columns), (1, 0), 2, num_warps)}">'

    a, b, c = tensor(m, k, element), tensor(k, n, element), tensor(m, n, sum_)
    model = zg.parse(f"""gpu.module @target="{target}" @num_warps={num_warps} ()void -> {{
        tt.func @"f" (%a : {a}, %b : {b}, %c : {c}, %p : tensor<x{m}, x{n}, ptr<{sum_}>, "{
        blocked((m, n), (1, 0), 2, num_warps)
    }">)void -> {{
            %d : {c} = tt.dot %a %b %c;
            tt.store %p %d;
            tt.return;
        }};
        unreachable;
    }};""")
    zg.verify(model)
    assert isinstance(model, gpu.Module)
    return model


def the_dot(make: Op) -> tt.Dot:
    (dot,) = [op for op in make.walk() if isinstance(op, tt.Dot)]
    return dot


def names(make: Op) -> list[str]:
    return [op.NAME for op in make.bodies[0].entry.ops[0].bodies[0].entry.ops]


CASES = [
    ("f16", (64, 32, 32), "sm_90a", 4, "wgmma"),
    ("bf16", (128, 64, 32), "sm_90a", 8, "wgmma"),
    ("f16", (64, 32, 32), "sm_90a", 1, "mma"),  # Less than a warpgroup.
    ("f16", (32, 32, 32), "sm_90a", 4, "mma"),  # Too few rows.
    ("f16", (64, 32, 32), "sm_90", 4, "mma"),  # wgmma is of sm_90a alone.
    ("f16", (64, 32, 32), "sm_100a", 4, "mma"),
    ("f16", (64, 32, 32), "sm_80", 4, "mma"),
    ("f64", (16, 16, 16), "sm_80", 1, "mma"),
    ("f16", (8, 8, 8), "sm_90a", 4, "fma"),
    ("f32", (4, 4, 4), "sm_80", 1, "fma"),
]


@pytest.mark.parametrize(("element", "shape", "target", "num_warps", "kind"), CASES)
def test_before_and_after(element, shape, target, num_warps, kind):
    sum_ = "f64" if element == "f64" else "f32"
    before = model(element, shape, target, num_warps, sum_)
    mma = mma_of(the_dot(before), target, num_warps, rows_first=False)
    assert type(mma) is {"wgmma": Wgmma, "mma": MmaSync, "fma": Fma}[kind] and mma.layout.covers(shape[0] * shape[1])
    assert anchors(before, target, num_warps)(the_dot(before), Accesses(before, {}, num_warps)) == mma.layout
    after = place_dots(before)
    zg.verify(after)
    actual = names(after)
    assert names(before) == ["tt.dot", "tt.store", "tt.return"] and actual[-2:] == ["tt.store", "tt.return"]
    if kind == "wgmma":
        assert actual.count("gpu.local_alloc") == actual.count("gpu.local_store") == 2 and "tt.dot" not in actual
        assert actual.index("gpu.fence_async") < actual.index("gpu.wgmma") < actual.index("gpu.wgmma_wait")
    elif kind == "fma":
        assert "gpu.dot_fma" in actual and "tt.dot" not in actual
    elif element == "f64":
        assert the_dot(after).a.type != the_dot(before).a.type, "its operands are fragments"
    else:
        assert actual.count("gpu.local_store") == 2 and "gpu.mma" in actual and "tt.dot" not in actual


@pytest.mark.parametrize("target", TARGETS)
def test_factors_of_8_bits(target):
    """The matrix units multiply 8-bit floats since sm_89; on older targets they are multiplied as f16."""
    result = model("f8e4m3", (64, 32, 64), target, 4)
    mma = mma_of(the_dot(result), target, 4, rows_first=False)
    assert str(mma.elements[0]) == ("f16" if target in ("sm_80", "sm_86", "sm_87") else "f8e4m3")
    zg.verify(place_dots(result))


def test_threads_write_operands_without_conflicts_also_along_k() -> None:
    """Threads read lines of operands that no matrix unit multiplies. Lanes along k write to other banks."""
    buffers = [
        op.type for op in place_dots(model("f32", (64, 64, 4), "sm_80", 4)).walk() if isinstance(op, gpu.LocalAlloc)
    ]
    for buffer, order in zip(buffers, ((1, 0), (0, 1)), strict=True):
        writes = moves(blocked(buffer.shape, order, 1, 4), buffer.offsets, 4, matrices=False)
        assert writes.bytes == 4 and writes.wavefronts == writes.least
