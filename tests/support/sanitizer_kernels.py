"""Kernels of the suite that are in no structure: block pointers, descriptors, dots, scans, locks, helper functions."""

from __future__ import annotations

from collections.abc import Iterator

from sanitizer_suite import HEAD, Case

_SQUARE = "    r = tl.arange(0, B)[:, None]\n    c = tl.arange(0, B)[None, :]\n"
_ROW = "    pid = tl.program_id(0)\n    lane = tl.arange(0, B)\n    at = pid * B + lane\n    ok = at < n\n"
_LOCK = "    while tl.atomic_cas(ids + 40, 40, 1) == 1:\n        pass\n"


def _faulty(name: str, body: str, check: str, argument: str, elements: range | None, **facts: bool) -> Case:
    body = "\n".join("    " + line for line in body.split("\n"))
    source = f"@triton.jit\ndef {name}{HEAD}:\n{_SQUARE if facts.get('large') else ''}{_ROW}{body}"
    return Case(name, source, check, argument, elements, **facts)


def _with_helper(name: str, helper: str, body: str, check: str, argument: str, elements: range | None) -> Case:
    case = _faulty(name, body, check, argument, elements)
    return Case(name, f"{helper}\n\n\n{case.source}", check, argument, elements)


def special_cases() -> Iterator[Case]:
    """Kernels with one fault each."""
    yield _faulty(
        "block_pointer_without_check",
        "p = tl.make_block_ptr(x, (n,), (1,), (pid * B,), (B,), (0,))\nw = tl.load(p)  # here\ntl.store(out + at, w)",
        "bounds",
        "x",
        range(40, 48),
    )
    yield _faulty(
        "advanced_block_pointer",
        "p = tl.make_block_ptr(x, (64,), (1,), (0,), (B,), (0,))\nacc = tl.zeros((B,), tl.float32)\n"
        "for i in range(0, 3):\n    acc += tl.load(p)  # here\n    p = tl.advance(p, (B,))\n"
        "tl.store(out + at, acc + lane)",
        "bounds",
        "x",
        range(40, 48),
    )
    yield _faulty(
        "descriptor_of_too_large_a_tensor",
        "d = tl.make_tensor_descriptor(x, [48], [1], [B])\nw = d.load([pid * B])  # here\ntl.store(out + at, w)",
        "bounds",
        "x",
        range(40, 48),
    )
    yield _faulty(
        "descriptor_stores_overlap",
        "d = tl.make_tensor_descriptor(out, [64], [1], [B])\nd.store([pid * 8], at * 1.0)  # here there",
        "races",
        "out",
        range(8, 24),
    )
    yield _faulty(
        "descriptor_store_outside",
        "d = tl.make_tensor_descriptor(out, [96], [1], [B])\nd.store([pid * B + 32], at * 1.0)  # here",
        "bounds",
        "out",
        range(64, 80),
    )
    yield _faulty(
        "descriptor_reduces_and_load",
        "d = tl.make_tensor_descriptor(out, [64], [1], [B])\nd.atomic_add([0], at * 1.0)  # there\n"
        "w = tl.load(out + lane)  # here\ntl.store(ids + at, w.to(tl.int32))",
        "races",
        "out",
        range(16),
    )
    yield _faulty(
        "descriptor_stores_undefined",
        "d = tl.make_tensor_descriptor(out, [64], [1], [B])\nw = tl.load(x + at, mask=ok)  # here\n"
        "d.store([pid * B], w)  # there",
        "undefined",
        "out",
        range(40, 48),
    )
    yield _faulty(
        "descriptor_at_undefined",
        "d = tl.make_tensor_descriptor(x, [40], [1], [B])\no = tl.load(ids, mask=pid < 2)  # here\n"
        "tl.store(out + at, d.load([o]))  # there",
        "undefined",
        "x",
        None,
    )
    yield _faulty(
        "descriptor_stores_infinity",
        "d = tl.make_tensor_descriptor(out, [64], [1], [B])\nd.store([pid * B], 1.0 / (at * 1.0))  # here there",
        "nan",
        "out",
        range(1),
    )
    yield _faulty(
        "rows_of_a_matrix_outside",
        "d = tl.make_tensor_descriptor(x, [18, 16], [16, 1], [B, B])\nw = d.load([pid, 0])  # here\n"
        "tl.store(out + r * B + c, w, mask=pid < 1)",
        "bounds",
        "x",
        range(256, 288),
        large=True,
    )
    yield _faulty(
        "gathered_rows_outside",
        "d = tl.make_tensor_descriptor(x, [20, 16], [16, 1], [1, B])\nw = d.gather(lane + 4, 0)  # here\n"
        "tl.store(out + r * B + c, w, mask=pid < 1)",
        "bounds",
        "x",
        range(256, 320),
        large=True,
    )
    yield _faulty(
        "scattered_rows_race",
        "d = tl.make_tensor_descriptor(out, [16, 16], [16, 1], [1, B])\n"
        "d.scatter((r * B + c + pid) * 1.0, lane, 0)  # here there",
        "races",
        "out",
        range(256),
        large=True,
    )
    yield _faulty(
        "dot_of_undefined",
        "a = tl.load(x + r * B + c, mask=c < 12)  # here\nb = tl.load(x + r * B + c)\n"
        "tl.store(out + r * B + c, tl.dot(a, b), mask=pid < 1)  # there",
        "undefined",
        "out",
        range(256),
        large=True,
    )
    yield _faulty(
        "dot_too_large",
        "a = tl.load(x + r * B + c) * 1e30\ns = tl.dot(a, a)  # here\n"
        "tl.store(out + r * B + c, s, mask=pid < 1)  # there",
        "nan",
        "out",
        range(256),
        large=True,
    )
    yield _faulty(
        "dot_reads_outside",
        "a = tl.load(x + r * B + c)\nb = tl.load(x + r * B + c + pid)  # here\n"
        "tl.store(out + r * B + c, tl.dot(a, b), mask=pid < 1)",
        "bounds",
        "x",
        range(256, 258),
        large=True,
    )
    yield _faulty(
        "parts_of_a_dot_race",
        "a = tl.load(x + r * B + c)\ntl.store(out + r * B + c, tl.dot(a, a + pid))  # here there",
        "races",
        "out",
        range(256),
        large=True,
    )
    yield _faulty(
        "transposed_race",
        "a = tl.load(x + r * B + c)\nif pid == 0:\n    tl.store(out + c * B + r, tl.trans(a) * 2.0)  # there\n"
        "if pid == 1:\n    tl.store(out + r * B + c, a)  # here",
        "races",
        "out",
        range(256),
        large=True,
    )
    yield _faulty(
        "product_of_a_scan",
        "s = tl.cumprod(at * 1e10 + 1e10)  # here\ntl.store(out + at, s)  # there",
        "nan",
        "out",
        range(48),
    )
    yield _faulty(
        "scan_of_undefined",
        "w = tl.load(x + at, mask=ok)  # here\ns = tl.cumsum(w, reverse=True)\ntl.store(out + at, s)  # there",
        "undefined",
        "out",
        range(32, 48),
    )
    yield _faulty(
        "lock_given_back_too_early",
        "while tl.atomic_cas(ids, 0, 1) == 1:\n    pass\ns = tl.load(out)  # here\ntl.atomic_xchg(ids, 0)\n"
        "tl.store(out, s + 1.0)  # there",
        "races",
        "out",
        range(1),
    )
    yield _faulty(
        "last_program_without_a_release",
        'tl.store(out + at, at * 1.0)  # there\nif tl.atomic_add(ids, 1, sem="relaxed") == 2:\n'
        "    s = tl.load(out + lane)  # here\n    tl.store(ids + 1, tl.sum(s).to(tl.int32))",
        "races",
        "out",
        range(16),
    )
    yield _faulty(
        "counts_of_undefined",
        "w = tl.load(ids + at, mask=ok)  # here\ntl.store(ids + 48 + lane, tl.histogram(w, B), mask=pid == 2)  # there",
        "undefined",
        "ids",
        range(48, 64),
    )
    yield _faulty(
        "gathered_undefined",
        "w = tl.load(x + at, mask=ok)  # here\ntl.store(out + at, tl.gather(w, 15 - lane, 0))  # there",
        "undefined",
        "out",
        range(32, 48),
    )
    yield _faulty(
        "joined_undefined",
        "w = tl.load(x + at, mask=ok)  # here\nj = tl.reshape(tl.join(at * 1.0, w), (2 * B,))\n"
        "tl.store(out + tl.arange(0, 2 * B), j, mask=pid == 2)  # there",
        "undefined",
        "out",
        range(17, 32),
    )
    yield _faulty(
        "place_of_the_largest_undefined",
        "w = tl.load(x + at, mask=ok)  # here\ntl.store(ids + pid, tl.argmax(w, 0))  # there",
        "undefined",
        "ids",
        range(2, 3),
    )
    yield _faulty(
        "sum_of_a_loop_undefined",
        "acc = tl.zeros((B,), tl.float32)\nfor i in range(0, 2):\n    acc += tl.load(x + at, mask=ok)  # here\n"
        "tl.store(out + at, acc)  # there",
        "undefined",
        "out",
        range(40, 48),
    )
    yield _faulty(
        "pointer_of_a_loop",
        "p = x + lane\nacc = tl.zeros((B,), tl.float32)\nfor i in range(0, 3):\n    acc += tl.load(p)  # here\n"
        "    p += B\n"
        "tl.store(out + at, acc + lane)",
        "bounds",
        "x",
        range(40, 48),
    )
    yield _faulty(
        "one_of_two_arrays",
        "p = out\nif pid == 2:\n    p = x\nw = tl.load(p + at + 8 - pid * 4, mask=at < 48)  # here\n"
        "tl.store(ids + at, w.to(tl.int32))",
        "bounds",
        "x",
        range(40, 48),
    )
    yield _faulty(
        "doubled_in_a_loop",
        "s = pid + 1\nfor i in range(0, 31):\n    s = s * 2  # here\ntl.store(ids + pid, s)  # there",
        "overflow",
        "ids",
        range(3),
    )
    yield _faulty(
        "row_without_elements",
        'w = tl.load(x + at, mask=at < 0, other=float("-inf"))\ne = tl.exp(w - tl.max(w))  # here\n'
        "tl.store(out + at, e / tl.sum(e))  # there",
        "nan",
        "out",
        range(48),
    )
    yield _faulty(
        "deviation_of_equal_numbers",
        "w = at * 0.0 + 3.0\nd = w - tl.sum(w) / B\nrstd = tl.rsqrt(tl.sum(d * d) / B)  # here\n"
        "tl.store(out + at, rstd + d)  # there",
        "nan",
        "out",
        range(48),
    )
    yield _faulty(
        "shifted_in_place",
        "w = tl.load(x + at, mask=ok)  # there\ntl.store(out + at, w, mask=at < n - 1)  # here",
        "races",
        "x",
        range(16, 40, 16),
        shared=True,
    )
    yield _with_helper(
        "helper_not_inlined",
        "@triton.jit(noinline=True)\ndef far_sum(p, at, n):\n    return tl.sum(tl.load(p + at))  # here",
        "tl.store(out + pid, far_sum(x, at, n))",
        "bounds",
        "x",
        range(40, 48),
    )
    yield _with_helper(
        "helper_of_a_helper",
        "@triton.jit\ndef deeper(p, at, n):\n    return tl.load(p + at, mask=at < n)  # here\n\n\n"
        "@triton.jit\ndef deep(p, at, n):\n    a = deeper(p, at, n)\n    return a, a * 2.0",
        "a, b = deep(x, at, n)\ntl.store(out + at, b)  # there",
        "undefined",
        "out",
        range(40, 48),
    )
    yield _with_helper(
        "combining_function",
        "@triton.jit\ndef larger(a, b):\n    return tl.maximum(a, b)",
        "w = tl.load(x + at, mask=ok)  # here\ntl.store(out + pid, tl.reduce(w, 0, larger))  # there",
        "undefined",
        "out",
        range(2, 3),
    )
    yield _with_helper(
        "mapped_scan",
        "@triton.jit\ndef product(a, b):\n    return a * b",
        "s = tl.associative_scan(at * 1e9 + 1e9, 0, product)  # here\ntl.store(out + at, s)  # there",
        "nan",
        "out",
        range(48),
    )


_RIGHT = {
    "lock": "while tl.atomic_cas(ids, 0, 1) == 1:\n    pass\ns = tl.load(out)\ntl.store(out, s + 1.0)\n"
    "tl.atomic_xchg(ids, 0)",
    "last_program": "tl.store(out + at, at * 1.0)\nif tl.atomic_add(ids, 1) == 2:\n"
    "    s = tl.load(out + lane) + tl.load(out + B + lane)\n"
    "    tl.store(ids + 1, tl.sum(s).to(tl.int32))",
    "semaphore": "tl.store(out + at, at * 1.0)\ntl.atomic_add(ids, 1)\nif pid == 2:\n"
    "    while tl.atomic_add(ids, 0) < 3:\n        pass\n"
    "    tl.store(ids + 1, tl.sum(tl.load(out + lane)).to(tl.int32))",
    "softmax": 'w = tl.load(x + at, mask=ok, other=float("-inf"))\ne = tl.exp(w - tl.max(w))\n'
    'tl.store(out + at, e / tl.sum(e), mask=ok)',
    "online_softmax": 'm = -float("inf")\nl = 0.0\nfor i in range(0, 3):\n    k = i * B + lane\n'
    '    w = tl.load(x + k, mask=k < n, other=float("-inf"))\n    top = tl.maximum(m, tl.max(w))\n'
    "    l = l * tl.exp(m - top) + tl.sum(tl.exp(w - top))\n    m = top\ntl.store(out + pid, m + tl.log(l))",
    "normalised": "w = tl.load(x + at, mask=ok, other=0.0)\ncount = tl.sum(ok.to(tl.int32))\n"
    "d = tl.where(ok, w - tl.sum(w) / count, 0.0)\n"
    "tl.store(out + at, d * tl.rsqrt(tl.sum(d * d) / count + 1e-5), mask=ok)",
    "counted": "w = tl.load(ids + at, mask=ok, other=0)\nh = tl.histogram(w % B, B)\n"
    "tl.atomic_add(out + lane, h.to(tl.float32))",
    "sorted": 'w = tl.load(x + at, mask=ok, other=float("inf"))\ntl.store(out + at, tl.sort(w), mask=ok)',
    "random": "tl.store(out + at, tl.rand(17, at), mask=ok)",
    "hashed": "h = at.to(tl.uint32) * 2654435761\nh = (h ^ (h >> 15)) * 2246822519\n"
    "tl.store(ids + at, (h & 1023).to(tl.int32), mask=ok)",
    "padded_block_pointer": 'p = tl.make_block_ptr(x, (n,), (1,), (pid * B,), (B,), (0,))\n'
    'w = tl.load(p, boundary_check=(0,), padding_option="zero")\n'
    "tl.store(out + at, w)",
    "descriptor": "d = tl.make_tensor_descriptor(x, [40], [1], [B])\n"
    "e = tl.make_tensor_descriptor(out, [40], [1], [B])\n"
    "e.store([pid * B], d.load([pid * B]) + 1.0)",
    "in_place": "w = tl.load(out + at)\ntl.store(out + at, w + 1.0)\ntl.store(out + at, w + 2.0)",
    "same_value": "tl.store(out + lane, 1.0)\ntl.store(out + B + lane // 2, 2.0)",
    "scanned": "w = tl.load(x + at, mask=ok, other=0.0)\ntl.store(out + at, tl.cumsum(w), mask=ok)",
    "largest": 'w = tl.load(x + at, mask=ok, other=float("-inf"))\ntl.store(ids + pid, tl.argmax(w, 0))\n'
    'tl.atomic_max(out, tl.max(w))',
    "shared": "w = tl.load(x + at + 1, mask=at < n - 1)\ntl.store(out + at, w * 2.0, mask=at < n - 1)",
    "far": "o = at.to(tl.int64) * 3000000000\nw = tl.load(x + o % 40)\ntl.store(out + at, w)",
    "odd_and_even": "if pid % 2 == 0:\n    tl.store(out + 2 * lane, 1.0 * lane + pid * 0)\nelse:\n"
    "    tl.store(out + 2 * lane + 1, 1.0 * lane)",
}  # fmt: skip
_RIGHT_SQUARE = {
    "matmul": "a = tl.load(x + r * B + c, mask=(r < 12) & (c < 12), other=0.0)\ns = tl.dot(a, tl.trans(a))\n"
    "tl.store(out + r * B + c, s, mask=(pid < 1) & (r < 12))",
}  # fmt: skip


def right_cases() -> Iterator[Case]:
    """Kernels without a fault."""
    for name, body in _RIGHT.items():
        yield _faulty(f"right_{name}", body, "", "", None, shared=name == "shared")
    for name, body in _RIGHT_SQUARE.items():
        yield _faulty(f"right_{name}", body, "", "", None, large=True)
