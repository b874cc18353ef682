"""A product of matrices in Triton-C, and statement by statement in explicit calls."""

from pathlib import Path

import ziggurat as zg

SOURCE = Path(__file__).resolve().parents[1] / "examples" / "triton_c" / "matmul.tc"


@zg.kernel
def matmul(a_ptr, b_ptr, c_ptr, m, n, k, lda, ldb, ldc, TM: zg.constexpr, TN: zg.constexpr, TK: zg.constexpr):
    rm = zg.add(zg.program_id(0) * TM, zg.arange(0, TM))
    rn = zg.add(zg.program_id(1) * TN, zg.arange(0, TN))
    rk = zg.arange(0, TK)
    c = zg.zeros((TM, TN), zg.f32)
    pa = zg.add(zg.add(a_ptr, zg.mul(zg.expand(rm, 1), lda)), zg.expand(rk, 0))
    pb = zg.add(zg.add(b_ptr, zg.mul(zg.expand(rk, 1), ldb)), zg.expand(rn, 0))
    for _ in range(0, k, TK):
        c = zg.dot(zg.load(pa), zg.load(pb), c)
        pb = zg.add(pb, TK * ldb)
        pa = zg.add(pa, TK)
    pc = zg.add(zg.add(c_ptr, zg.mul(zg.expand(rm, 1), ldc)), zg.expand(rn, 0))
    zg.store(pc, zg.cast(c, zg.f16))
