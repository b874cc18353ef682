"""The moments of the distributions of random numbers."""

from __future__ import annotations

import numpy as np


def test_distributions(kernel, launch):
    draw = kernel("""
    def draw(seed, u_ptr, n_ptr, u4_ptr, n4_ptr, N: zg.constexpr):
        at = zg.add(zg.program_id(0) * N, zg.arange(0, N))
        zg.store(zg.add(u_ptr, at), zg.rand(seed, at))
        zg.store(zg.add(n_ptr, at), zg.randn(seed, at))
        a, b, c, d = zg.rand4x(seed, at)
        p, q, r, s = zg.randn4x(seed, at)
        zg.store(zg.add(u4_ptr, at), zg.where(zg.compare(a, b, K.LESS_THAN), c, d))
        zg.store(zg.add(n4_ptr, at), zg.add(zg.add(p, q), zg.add(r, s)))
    """)
    n = 1 << 15
    u, z, u4, z4 = (np.zeros(n, np.float32) for _ in range(4))
    launch(draw, (16,), [7, u, z, u4, z4], N=n // 16)
    for uniform in (u, u4):
        assert uniform.min() >= 0 and uniform.max() < 1
        counts, _ = np.histogram(uniform, 32, (0, 1))
        assert ((counts - n / 32) ** 2 / (n / 32)).sum() < 70  # chi-squared with 31 degrees of freedom
    for normal, deviation in ((z, 1), (z4, 2)):
        assert abs(normal.mean()) < 5 * deviation / n**0.5 and abs(normal.std() / deviation - 1) < 0.03
        assert abs((np.abs(normal) < deviation).mean() - 0.6827) < 0.02
    again = np.zeros(n, np.float32)
    launch(draw, (16,), [8, again, z, u4, z4], N=n // 16)
    assert (again != u).mean() > 0.99
