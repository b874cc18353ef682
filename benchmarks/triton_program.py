"""A program in Triton's vocabulary that measures itself: its first results, and what launches cost.

`triton_kernels.py` runs it under ziggurat and under Triton, with empty caches. Seconds are wall time; PyTorch is
imported, and the device made ready, before they are counted.
"""

import json
import time

import torch

torch.zeros(1, device="cuda").add_(1)
torch.cuda.synchronize()
begin = time.perf_counter()

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

imported = time.perf_counter()


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + at, powers / tl.sum(powers, axis=0), mask=at < columns)


@triton.jit
def many(a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q, r, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    tl.store(a, i + j + k + m + n + o + p + q + r)


def microseconds(call, rounds=5, launches=400):
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(launches):
            call()
        times.append((time.perf_counter() - start) / launches * 1e6)
        torch.cuda.synchronize()
    return round(min(times), 2)


x = torch.rand(1 << 16, device="cuda")
out = torch.empty_like(x)
add[(64,)](x, x, out, 1 << 16, BLOCK=1024)
torch.cuda.synchronize()
first = time.perf_counter()
softmax[(64,)](x, out, 1000, BLOCK=1024)
torch.cuda.synchronize()
second = time.perf_counter()
tensors = [torch.zeros(16, dtype=torch.int32, device="cuda") for _ in range(8)]
integers = [16 * index for index in range(2, 11)]
print(
    json.dumps(
        {
            "import s": round(imported - begin, 3),
            "first result s": round(first - begin, 3),
            "softmax s": round(second - first, 3),
            "launch of 5 arguments us": microseconds(lambda: add[(64,)](x, x, out, 1 << 16, BLOCK=1024)),
            "launch of 19 arguments us": microseconds(lambda: many[(1,)](*tensors, *integers, BLOCK=16, WIDTH=8)),
        }
    )
)
