"""Memory for the tensor maps of Triton's kernels."""

from __future__ import annotations

import contextvars

import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.backend.cuda import scratch
from ziggurat.triton.backends.compiler import GPUTarget
from ziggurat.triton.compiler import ASTSource
from ziggurat.triton.runtime import _allocation


def test_a_program_sets_the_function_that_launches_ask() -> None:
    def provide(size: int, alignment: int, stream: int | None) -> int:
        return size + alignment

    def in_context() -> None:
        triton.set_allocator(provide)
        assert _allocation._allocator.get() is provide
        assert scratch.provided(1, 0, 256) == 256 + 128

    contextvars.copy_context().run(in_context)
    assert scratch.ALLOCATOR.get() is scratch.UNSET
    assert isinstance(_allocation._allocator.get(), _allocation.NullAllocator)


@triton.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K):
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [64, 64])
    b = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [64, 64])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [64, 64])
    for tile in range(tl.program_id(0), tl.cdiv(N, 64), tl.num_programs(0)):
        acc = tl.zeros((64, 64), tl.float32)
        for k in range(0, K, 64):
            acc = tl.dot(a.load([0, k]), b.load([tile * 64, k]).T, acc)
        c.store([0, tile * 64], acc.to(tl.float16))


def test_the_metadata_tell_the_memory_of_a_program() -> None:
    types = {**dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "*fp16"), **dict.fromkeys("MNK", "i32")}
    for capability, scratch_size, alignment in ((90, 3 * 128, 128), (80, 0, 1)):
        compiled = triton.compile(ASTSource(product, types), target=GPUTarget("cuda", capability, 32))
        metadata = compiled.metadata
        assert (metadata.global_scratch_size, metadata.global_scratch_align) == (scratch_size, alignment)
        assert compiled.asm["ptx"].count("cp.async.bulk.tensor.2d.global.shared") == (capability == 90)
