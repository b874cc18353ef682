"""Products of matrices of 8 and 32 bits in all forms: where the neighbours in memory lie along k, and where not.

    benchmarks/on_device.sh python3 benchmarks/gpu_matrix_forms.py [--size 4096] [f8 i8 tf32]

NT means that the first matrix is row-major and the second column-major: wgmma reads that form. Each line has the
TFLOP/s of the best tile, the median with the L2 flushed before each call, and the largest error by the largest number,
against float64. For tf32, those of torch (cuBLAS) as well.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch

import ziggurat as zg
from ziggurat.backend.cuda.testing import do_bench

GROUP = 8
# The types of the inputs, the sums and the output; tiles, warps and stages.
WIDE = [(128, 128, 128, 8, 3), (128, 256, 128, 8, 3), (256, 128, 128, 8, 3)]
KINDS: dict[str, tuple[Any, Any, Any, list[tuple[int, int, int, int, int]]]] = {
    "f8": (torch.float8_e4m3fn, zg.f32, torch.float16, WIDE),
    "i8": (torch.int8, zg.i32, torch.int32, WIDE),
    "tf32": (torch.float32, zg.f32, torch.float32, [(128, 128, 32, 8, 3), (128, 256, 32, 8, 3), (256, 128, 32, 8, 3)]),
}


@zg.kernel
def matmul(
    a_ptr, b_ptr, c_ptr, m, n, k, a_row, a_column, b_row, b_column, c_row,
    M: zg.constexpr, N: zg.constexpr, K: zg.constexpr, TOTAL: zg.constexpr,
):  # fmt: skip
    """One tile by pointers; neighbouring programs share rows and columns. The sizes are multiples of the tile's."""
    across, number = zg.cdiv(n, N), zg.program_id(0)
    first = number // (GROUP * across) * GROUP
    rows = min(zg.cdiv(m, M) - first, GROUP)
    row = zg.add((first + number % (GROUP * across) % rows) * M, zg.arange(0, M))
    column, at = zg.add(number % (GROUP * across) // rows * N, zg.arange(0, N)), zg.arange(0, K)
    a = zg.add(zg.add(a_ptr, zg.mul(zg.expand(row, 1), a_row)), zg.mul(zg.expand(at, 0), a_column))
    b = zg.add(zg.add(b_ptr, zg.mul(zg.expand(at, 1), b_row)), zg.mul(zg.expand(column, 0), b_column))
    total = zg.zeros((M, N), TOTAL)
    for _ in range(0, k, K):
        total = zg.dot(zg.load(a), zg.load(b), total)
        a, b = zg.add(a, K * a_column), zg.add(b, K * b_row)
    c = zg.add(zg.add(c_ptr, zg.mul(zg.expand(row, 1), c_row)), zg.expand(column, 0))
    zg.store(c, zg.cast(total, c_ptr.dtype.element_ty))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--size", type=int, default=4096)
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    for kind in options.kinds:
        for form in ("NT", "NN", "TN", "TT"):
            print(kind, form, *measured(kind, form, options.size), flush=True)


def measured(kind: str, form: str, n: int) -> list[str]:
    """The figures of one form: of each tile, the best, and of torch."""
    element, total, out, tiles = KINDS[kind]
    whole = element == torch.int8
    made = [torch.randint(-20, 20, (n, n), device="cuda") if whole else torch.randn(n, n, device="cuda") for _ in "ab"]
    a, b = (one.to(element) for one in made)
    wanted = a.double() @ b.double()
    a, b = (one.T.contiguous().T if side == "T" else one for one, side in zip((a, b), form, strict=True))
    c = torch.empty(n, n, device="cuda", dtype=out)
    found: list[tuple[float, str]] = []
    for m_tile, n_tile, k_tile, warps, stages in tiles:
        bound = matmul[(n // m_tile * (n // n_tile),)]

        def run(
            bound: Any = bound, tile: Any = (m_tile, n_tile, k_tile), warps: int = warps, stages: int = stages
        ) -> None:
            bound(a, b, c, n, n, n, *a.stride(), *b.stride(), n, *tile, total, num_warps=warps, num_stages=stages)

        speed = 2 * n**3 / milliseconds(run) / 1e9
        error = ((c.double() - wanted).abs().max() / wanted.abs().max()).item()
        found.append((speed, f"{speed:.0f} ({m_tile}x{n_tile}x{k_tile}, error {error:.0e})"))
    figures = [max(found)[1]]
    if kind == "tf32":
        figures.append(f"torch {2 * n**3 / milliseconds(lambda: torch.mm(a, b)) / 1e9:.0f}")
    return figures


def milliseconds(run: Callable[[], Any]) -> float:
    return do_bench(run, return_mode="median")


if __name__ == "__main__":
    main()
