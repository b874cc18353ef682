"""Emission of clusters: the rank of a CTA, stores to the shared memory of other CTAs, and the cluster's barrier.

An address in the shared memory of this CTA is that of the same place in another one by `mapa`.
"""

from __future__ import annotations

from ziggurat.backend.ptx.emitter import EFFECT, Emitted, PtxEmitter, emits
from ziggurat.backend.ptx.packed_words import SHARED, to_words
from ziggurat.backend.ptx.tensors import special_register
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.types import TensorType
from ziggurat.transforms.analysis.queries import layout_of, shared_of


@emits(gpu.ClusterRank)
def _rank(emitter: PtxEmitter, op: gpu.ClusterRank) -> Emitted:
    return special_register(emitter, "cluster.ctarank")


@emits(gpu.ClusterStore)
def _store(emitter: PtxEmitter, op: gpu.ClusterStore) -> Emitted:
    """Each of the first threads writes a scalar to one CTA; the owner of a tensor's element writes it to all CTAs."""
    shared, value = shared_of(op.buffer), op.value
    ctas, size = shared.shape[-1], shared.element.bytes
    start, mbarrier = (
        emitter.emit(f"ptrtoint {SHARED} {emitter.scalar(buffer)} to i32") for buffer in (op.buffer, op.barrier)
    )
    rank = special_register(emitter, "cluster.ctarank")
    own = emitter.emit(f"add i32 {start}, {emitter.emit(f'mul i32 {rank}, {size}')}")
    name = f"st.async.shared::cluster.mbarrier::complete_tx::bytes.b{8 * size}"
    lines = [
        "{", ".reg .b32 far, bar;", "mapa.shared::cluster.u32 far, $0, $2;", "mapa.shared::cluster.u32 bar, $1, $2;",
        f"@mask {name} [far], $3, [bar];", "}",
    ]  # fmt: skip

    def write(address: str, cta: str, element: str, mask: str | None) -> None:
        (word,) = to_words(emitter, [element], shared.element, size)
        arguments = ("i32", address), ("i32", mbarrier), ("i32", cta), (f"i{8 * size}", word)
        emitter.asm((), " ".join(lines), *arguments, effect=EFFECT, mask=mask)

    if not isinstance(value.type, TensorType):
        thread = emitter.thread()
        write(own, thread, emitter.scalar(value), emitter.emit(f"icmp ult i32 {thread}, {ctas}"))
        return
    layout, owner = layout_of(value.type), emitter.owner(value.type)
    for register in layout.unique_registers:
        place = emitter.emit(f"mul i32 {emitter.element(layout, register)}, {ctas * size}")
        address = emitter.emit(f"add i32 {own}, {place}")
        for cta in range(ctas):
            write(address, str(cta), emitter.at(value, register), owner)


@emits(gpu.ClusterBarrier)
def _barrier(emitter: PtxEmitter, op: gpu.ClusterBarrier) -> Emitted:
    emitter.asm((), "barrier.cluster.arrive.release.aligned;", effect=EFFECT)
    emitter.asm((), "barrier.cluster.wait.acquire.aligned;", effect=EFFECT)


@emits(gpu.ClusterArrive)
def _arrive(emitter: PtxEmitter, op: gpu.ClusterArrive) -> Emitted:
    # The thread that has initialised mbarriers makes them visible to other CTAs; nothing else is released.
    emitter.asm((), "fence.mbarrier_init.release.cluster;", effect=EFFECT)
    emitter.asm((), "barrier.cluster.arrive.relaxed.aligned;", effect=EFFECT)


@emits(gpu.ClusterWait)
def _wait(emitter: PtxEmitter, op: gpu.ClusterWait) -> Emitted:
    emitter.asm((), "barrier.cluster.wait.acquire.aligned;", effect=EFFECT)
