"""The ops of the GPU model that compute, copy between memories, and exchange values in a cluster.

Layouts are ignored: a tensor is its elements, whichever thread holds them, so a conversion is the identity.
Asynchronous ops are complete at once. So waits, fences and barriers mean nothing; `transforms/gpu/hazards.py` finds
missing ones.

A cluster's CTAs run side by side, as rows of the frame that follow each other.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ziggurat.backend.reference import access, tensors
from ziggurat.backend.reference.machine import Machine, triton
from ziggurat.backend.reference.marks import marks
from ziggurat.backend.reference.roles import complete_bytes, running
from ziggurat.backend.reference.shared_memory import loaded, shared
from ziggurat.backend.reference.tensors import full
from ziggurat.backend.reference.values import Array, chosen, is_tuple, plain
from ziggurat.codemodel.declare import OPS
from ziggurat.codemodel.dialects.tt import AtomicKind, InputPrecision
from ziggurat.codemodel.errors import KernelRuntimeError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.interpret import Meaning
from ziggurat.codemodel.op import Op, Value, expect
from ziggurat.codemodel.structured import packed_values
from ziggurat.codemodel.types import DescriptorType, SharedType, TensorType, scalar_element, shape_of

Operands = tuple[Any, ...]


@triton.of(
    gpu.Barrier, gpu.FenceAsync, gpu.FenceGlobal, gpu.Keep, gpu.AsyncCommit, gpu.AsyncWait, gpu.TmaStoreWait,
    gpu.ChannelClose, gpu.AcquireTensorMaps, gpu.ClusterBarrier, gpu.ClusterArrive, gpu.ClusterWait,
)  # fmt: skip
def _nothing(machine: Machine, op: Op, operands: Operands) -> None:
    """Ops take effect one after the other here."""


@triton.of(gpu.ConvertLayout, gpu.WgmmaWait)
def _same(machine: Machine, op: Op, operands: Operands) -> Array:
    return operands[0]


@triton.of(gpu.Stage)
def _stage(machine: Machine, op: gpu.Stage, operands: Operands) -> Array:
    """The body of a loop with stages means its iterations one after the other."""
    return np.ones(1, np.bool_)


# Matrix units.


@triton.of(gpu.Wgmma, gpu.Mma, gpu.DotFma)
def _product(machine: Machine, op: gpu.MatrixProduct, operands: Operands) -> Array:
    a, b, c = (loaded(machine, value, content) for value, content in zip((op.a, op.b, op.c), operands, strict=True))
    if isinstance(op, gpu.Wgmma):
        if op.within:
            start, end = op.within
            a, b = a[..., start:end], b[..., start:end, :]
        c = c if op.accumulate else np.zeros_like(c)
    precision = InputPrecision.IEEE if isinstance(op, gpu.DotFma) else InputPrecision.TF32
    return tensors.dot(a, b, c, shared(op.b).element, scalar_element(op.c.type), precision)


@triton.of(gpu.Rescale)
def _rescale(machine: Machine, op: gpu.Rescale, operands: Operands) -> Array:
    return operands[0] * operands[1]


@triton.of(gpu.RoundTf32)
def _round(machine: Machine, op: gpu.RoundTf32, operands: Operands) -> Array:
    return tensors.tf32(operands[0])


# Copies.


@triton.of(gpu.AsyncCopy)
def _async_copy(machine: Machine, op: gpu.AsyncCopy, operands: Operands) -> None:
    ptr, buffer, *mask = operands
    type_ = TensorType(shape_of(op.ptr.type), shared(op.buffer).element)
    reading = machine.access("reads", op, type_, ptr)
    array = access.load_elements(machine, ptr, mask[0] if mask else None, 0, reading)
    buffer.store(machine.frame, np.broadcast_to(array, (len(array), *type_.shape)))


def _numbers(offsets: Sequence[int]) -> Array:
    """The number of the element at each place of a buffer."""
    numbers = np.zeros(1, np.int64)
    for basis in offsets:
        numbers = np.concatenate([numbers, numbers ^ basis])
    return numbers


@functools.cache
def by_block(type_: DescriptorType, buffer: SharedType) -> Array:
    """For each element of a buffer, the number of the element of a block that TMA copies to its place."""
    from ziggurat.transforms.layouts.tma_blocks import buffer_for

    numbers = np.empty(buffer.numel, int)
    numbers[_numbers(buffer.offsets)] = _numbers(buffer_for(type_)[0].offsets)
    return numbers


@triton.of(gpu.TmaLoad)
def _tma_load(machine: Machine, op: gpu.TmaLoad, operands: Operands) -> None:
    """CTA r of the `ctas` that load together loads the part r of the block of each, here the rows."""
    descriptor, buffer, barrier, predicate, *offsets = operands
    frame, outer = running(machine, predicate), machine.frame
    if frame is None:
        return
    type_, target = expect(op.descriptor.type, DescriptorType), shared(op.buffer)
    rows = outer.places(frame)
    machine.frame = frame
    try:
        arguments = (chosen(descriptor, rows), *(chosen(offset, rows) for offset in offsets))
        block = np.broadcast_to(
            access.load_block(machine, op, type_, arguments[0], arguments[1:], TensorType(type_.block, type_.element)),
            (len(frame), *type_.block),
        )
        if op.ctas > 1:
            _require_clusters(machine, op)
            parts = block.reshape(-1, op.ctas, op.ctas, type_.block[0] // op.ctas, *type_.block[1:])
            own = parts[:, np.arange(op.ctas), np.arange(op.ctas)].reshape(-1, 1, *type_.block)
            block = np.repeat(own, op.ctas, axis=1).reshape(-1, *type_.block)
        array = block.reshape(len(frame), -1)[:, by_block(type_, target)]
        buffer.store(frame, array.reshape(len(frame), *target.shape))
    finally:
        machine.frame = outer
    complete_bytes(machine, barrier, frame, target.bytes)


@triton.of(gpu.TmaStore)
def _tma_store(machine: Machine, op: gpu.TmaStore, operands: Operands) -> None:
    descriptor, buffer, *offsets = operands
    type_, source = expect(op.descriptor.type, DescriptorType), shared(op.buffer)
    array = buffer.load(machine.frame).reshape(len(machine.frame), -1)
    block = np.empty_like(array)
    block[:, by_block(type_, source)] = array
    block = block.reshape(len(machine.frame), *type_.block)
    block_type = TensorType(type_.block, type_.element)
    pointers, inside = access.block_of(descriptor, offsets, type_)
    if op.adds:
        kind = AtomicKind.FADD if type_.element.is_float else AtomicKind.ADD
        access.update_elements(machine, op, kind, block_type, pointers, [block], inside)
    else:
        access.store_elements(machine, pointers, block, inside, machine.access("writes", op, block_type, pointers))


@triton.of(gpu.MakeTensorMap)
def _make_map(machine: Machine, op: gpu.MakeTensorMap, operands: Operands) -> Operands:
    """A map is a descriptor: its base, sizes and strides."""
    _, _, *parts = operands
    return tuple(parts)


# Clusters.


def _require_clusters(machine: Machine, op: Op) -> None:
    """Check that the CTAs of each cluster run together."""
    keys, ctas = machine.frame.keys, machine.ctas
    if len(keys) % ctas or (keys.reshape(-1, ctas) != keys[::ctas, None] + np.arange(ctas)).any():
        raise KernelRuntimeError(f"{machine.program(0)}: {op.NAME} is not run by all CTAs of the cluster")


def _of_cluster(machine: Machine, op: Op, value: Value, content: Array) -> Array:
    """The values of the CTAs in the cluster of each CTA, along a new last axis."""
    _require_clusters(machine, op)
    shape = shape_of(value.type)
    whole = np.broadcast_to(full(value, content), (len(machine.frame), *shape)).reshape(-1, machine.ctas, *shape)
    return np.repeat(np.moveaxis(whole, 1, -1), machine.ctas, axis=0)


@triton.of(gpu.ClusterRank)
def _rank(machine: Machine, op: gpu.ClusterRank, operands: Operands) -> Array:
    return (machine.frame.keys % machine.ctas).astype(np.int32)


@triton.of(gpu.ClusterGather)
def _gather(machine: Machine, op: gpu.ClusterGather, operands: Operands) -> Any:
    parts = zip(op.values, operands, strict=True)
    return packed_values(tuple(_of_cluster(machine, op, value, content) for value, content in parts))


@triton.of(gpu.ClusterStore)
def _cluster_store(machine: Machine, op: gpu.ClusterStore, operands: Operands) -> None:
    buffer, barrier, content = operands
    buffer.store(machine.frame, _of_cluster(machine, op, op.value, content))
    complete_bytes(machine, barrier, machine.frame, shared(op.buffer).bytes)


def _plain(value: Any) -> Any:
    return tuple(map(_plain, value)) if is_tuple(value) else plain(value)


@marks.of(*(cls for cls in OPS.values() if cls.__module__.startswith(gpu.__package__ or "")))
def _unmarked(meaning: Meaning, machine: Machine, op: Op, operands: Operands) -> Any:
    """Ops of the GPU model drop marks: a Triton model is what strict mode is for."""
    return meaning(machine, op, tuple(map(_plain, operands)))
