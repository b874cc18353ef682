"""Pointers that a Triton program declares as `tl.const`: read as any other, and not written through."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl

P = zg.ptr(zg.i32)


@triton.jit
def chosen(a, b, flag):
    if flag > 0:
        return a
    return b


@triton.jit
def element(pointers, i: tl.constexpr):
    return tl.load(pointers[i])


@triton.jit
def reads(x: tl.const, y: tl.const, out, n):
    at = tl.arange(0, 8)
    tl.static_assert(x.dtype.is_const() and not out.dtype.is_const() and (x + at).dtype.is_const())
    tl.static_assert(x.type == tl.pointer_type(tl.int32, const=True) and x.type != out.type)
    p = x
    for i in range(n):
        p = p + 1
        if i == 2:
            p = y + i
    q = tl.reshape(tl.where(at < 4, p + at, chosen(x, y, n) + at), [2, 4])
    total = tl.load(q) + tl.load(tl.broadcast_to(x, [2, 4])) + element((x, y), 1)
    block = tl.load(tl.make_block_ptr(y, (8,), (1,), (0,), (8,), (0,)))
    raw = tl.load(x.to(tl.pointer_type(tl.int32), bitcast=True) + 1) + (x.to(tl.int64) & 3).to(tl.int32)
    tl.store(out + at, tl.reshape(total, [8]) + block + raw)


@pytest.mark.parametrize("n", [0, 2, 4])
def test_constant_pointers_are_read_in_every_way(launch: Any, n: int):
    x, y, out = (np.arange(16, dtype=np.int32) * scale for scale in (1, 100, 0))
    model = launch(reads, 1, [x, y, out, n])
    at = np.arange(8)
    p = y[at + n - 1] if n > 2 else x[at + n]
    q = np.where(at < 4, p, (x if n > 0 else y)[at])
    assert (out[:8] == q + x[0] + y[0] + y[:8] + x[1]).all()
    assert not any(", const>" in str(op.result.type) for op in model.walk())
    assert reads.warmup(x, y, out, n, grid=(1,)).asm["cubin"]


@triton.jit
def stores(x: tl.const):
    tl.store(x + tl.arange(0, 8), 1)


@triton.jit
def adds(x: tl.const):
    tl.atomic_add(x, 1)


@triton.jit
def swaps(x: tl.const):
    tl.atomic_cas(x, 0, 1)


@pytest.mark.parametrize("kernel", [stores, adds, swaps])
def test_a_store_through_one_is_an_error(kernel: Any):
    with pytest.raises(triton.CompilationError) as error_info:
        kernel.triton(P)
    error: Any = error_info.value
    assert error.error_message == str(error.__cause__) == "Cannot store to a constant pointer"


@triton.jit
def of_if(x: tl.const, out, n):
    if n > 0:
        to = x
    else:
        to = out
    tl.store(to, 1)


@triton.jit
def of_conditional(x: tl.const, out, n):
    to = x if n > 0 else out
    tl.store(to, 1)


@triton.jit
def of_call(x: tl.const, out, n):
    tl.store(chosen(x, out, n), 1)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (of_if, "Mismatched type for to between then block (const_pointer<int32>) and else block (pointer<int32>)"),
        (of_conditional, "Ternary expression with dynamic condition has inconsistent type"),
        (of_call, "Return type mismatch: "),
    ],
)
def test_it_is_of_another_type_than_other_pointers(kernel: Any, words: str):
    with pytest.raises(triton.CompilationError) as error_info:
        kernel.triton(P, P, zg.i32)
    error: Any = error_info.value
    assert words in error.error_message


@triton.jit
def plain(x, out):
    tl.store(out, tl.load(x))


@triton.jit
def declared(x: tl.const, out):
    tl.store(out, tl.load(x))


def test_signatures_say_so():
    source = triton.compiler.ASTSource(plain, {"x": "*kfp32", "out": "*fp32"})
    assert triton.compile(source).src.signature == {"x": "*kfp32", "out": "*fp32"}
    compilation = declared.warmup(np.zeros(1, np.float32), np.zeros(1, np.float32), grid=(1,))
    assert compilation.src.signature == {"x": "*kfp32", "out": "*fp32"}
    with pytest.raises(triton.CompilationError, match="Cannot store to a constant pointer"):
        triton.compile(triton.compiler.ASTSource(plain, {"x": "*fp32", "out": "*kfp32"}))
