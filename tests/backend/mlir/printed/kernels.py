"""Kernels of ours in Triton's Python. The texts beside this file are what Triton 3.6 printed for them.

python kernels.py        # in a Python that has Triton: writes the texts
"""

import triton
import triton.language as tl


@triton.jit
def centred(x_ptr, out_ptr, places_ptr, rows, columns, BLOCK: tl.constexpr):
    """Rows minus their mean, and where each is largest."""
    at = tl.arange(0, BLOCK)
    inside = at < columns
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0, eviction_policy="evict_first")
        centre = tl.sum(x) / columns
        tl.store(out_ptr + row * columns + at, x - centre, mask=inside, cache_modifier=".cs")
        tl.store(places_ptr + row, tl.argmax(tl.where(inside, x, float("-inf")), 0))


@triton.jit
def steps(n_ptr, count_ptr, sums_ptr, BLOCK: tl.constexpr):
    """How often a number is halved, or tripled and raised, until it is 1; and running sums."""
    n = tl.load(n_ptr + tl.program_id(0))
    count = 0
    while n != 1:
        n = tl.where(n % 2 == 0, n // 2, 3 * n + 1)
        count += 1
    tl.atomic_max(count_ptr, count, sem="relaxed")
    at = tl.arange(0, BLOCK)
    tl.store(sums_ptr + at, tl.cumsum(tl.load(sums_ptr + at), 0, reverse=True))


@triton.jit
def scaled_product(a_desc, b_ptr, c_ptr, K, BLOCK: tl.constexpr):
    """A product of a block that a descriptor moves, in the order of columns, with what tanh leaves of it."""
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, K, BLOCK):
        a = a_desc.load([tl.program_id(0) * BLOCK, k])
        b = tl.load(b_ptr + (k + at)[:, None] * BLOCK + at[None, :])
        total = tl.dot(a, b, total)
    total = tl.extra.cuda.libdevice.tanh(total)
    tl.device_assert(total <= 1.0, "tanh is at most 1")
    tl.store(c_ptr + at[:, None] + at[None, :] * BLOCK, total.to(tl.float16))


@triton.jit
def unsigned(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Unsigned division, shifts and comparisons; halves of a tensor; a return in the middle."""
    if tl.program_id(0) >= n:
        return
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at).to(tl.uint32, bitcast=True)
    even, odd = tl.split(tl.reshape((x // 3) ^ (x >> 4), (BLOCK // 2, 2)))
    half = tl.arange(0, BLOCK // 2)
    tl.store(out_ptr + half, tl.where(even < odd, even, tl.umulhi(even, odd)).to(tl.float32))


REQUESTS = {
    "centred": (
        {"x_ptr": "*fp32", "out_ptr": "*fp32", "places_ptr": "*i32", "rows": "i32", "columns": "i32"},
        ["x_ptr", "out_ptr"], {"BLOCK": 64},
    ),
    "steps": ({"n_ptr": "*i32", "count_ptr": "*i32", "sums_ptr": "*i64"}, [], {"BLOCK": 32}),
    "scaled_product": (
        {"a_desc": "tensordesc<fp16[32,32]>", "b_ptr": "*fp16", "c_ptr": "*fp16", "K": "i32"}, ["b_ptr", "c_ptr"],
        {"BLOCK": 32},
    ),
    "unsigned": ({"x_ptr": "*i32", "out_ptr": "*fp32", "n": "i32"}, [], {"BLOCK": 64}),
}  # fmt: skip


def write():
    """Write the texts, with the names of files as they are from here."""
    import os
    import sys

    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    sys.path.insert(0, "..")
    from print_with_triton import printed

    for name, (signature, divisible, constexprs) in REQUESTS.items():
        request = {
            "file": "kernels.py", "kernel": name, "signature": signature, "divisible": divisible,
            "constexprs": constexprs, "options": {"debug": name == "scaled_product"},
        }  # fmt: skip
        folder = os.path.dirname(os.path.dirname(triton.__file__))
        with open(f"{name}.ttir", "w", encoding="utf-8") as file:
            file.write(printed(request).replace(f"{folder}/", "").replace(f"{os.getcwd()}/", ""))


if __name__ == "__main__":
    write()
