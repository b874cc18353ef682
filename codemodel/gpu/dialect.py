"""The GPU dialect: the ops of a Triton model after placement, when every tensor has a layout.

Tensors carry the layout in their type (`layout.py`), and the ops of arith, math, scf and tt work on them unchanged.
This dialect adds the machine: conversions between layouts, buffers in shared memory, asynchronous copies,
barriers, and the matrix units. Names of instructions are those of the PTX manual.
"""

from __future__ import annotations

from collections.abc import Sequence

from ziggurat.codemodel.dialects.core import Unreachable
from ziggurat.codemodel.dialects.scf import Yield, packed
from ziggurat.codemodel.fields import attribute, bodies, body, operand, operands, result_type
from ziggurat.codemodel.gpu.asynchronous import Asynchronous
from ziggurat.codemodel.gpu.dialect_copies import *
from ziggurat.codemodel.gpu.dialect_copies import MbarrierWait
from ziggurat.codemodel.gpu.dialect_matrix import *
from ziggurat.codemodel.gpu.dialect_shared import *
from ziggurat.codemodel.gpu.dialect_shared import buffer_of, laid_out, require_mbarriers
from ziggurat.codemodel.gpu.options import MAX_WARPS
from ziggurat.codemodel.gpu.scope import Scoped, WarpScope, check_roles, scopes_of_roles
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.codemodel.op import Body, Op, Value, require
from ziggurat.codemodel.traits import Isolated, MemoryRead, MemoryWrite, Pure, SymbolTable
from ziggurat.codemodel.types import ScalarType, TensorType, Type, element_of, i32, shape_of


class Module(Scoped, Isolated, SymbolTable, name="gpu.module"):
    """A kernel for a target such as "sm_90a", with `num_warps` warps a CTA and `shared` bytes of shared memory.

    If `scratch` is not 0, the last parameter of the kernel is a pointer to so many bytes of global memory for each
    program of the grid, which a launch provides. They are aligned to 128 bytes.
    """

    target: str = attribute(str)
    num_warps: int = attribute(int)
    body: Body = body(ends=Unreachable)
    shared: int = attribute(int, default=0)
    scratch: int = attribute(int, default=0)

    @property
    def scopes(self) -> tuple[WarpScope, ...]:
        return (WarpScope(0, self.num_warps),)

    def check(self) -> None:
        require(self.target in TARGETS, f"the target must be one of {', '.join(TARGETS)}; got '{self.target}'")
        require(0 < self.num_warps <= MAX_WARPS, f"a CTA has 1 to {MAX_WARPS} warps; got {self.num_warps}")

    def check_bodies(self) -> None:
        super().check_bodies()
        totals = [sum(op.warps) for op in self.walk() if isinstance(op, WarpSpecialize)]
        good = totals in ([], [self.num_warps])
        require(good, f"a kernel is split into roles once, with {self.num_warps} warps together; got {totals}")


# Layouts.


class ConvertLayout(Op, Pure, name="gpu.convert_layout"):
    """The same tensor held by other threads."""

    value: Value = operand()
    type: Type = result_type(follows="value")

    def check(self) -> None:
        source, target = laid_out(self, self.value.type), laid_out(self, self.type)
        require(source.without_layout() == target.without_layout(), f"gpu.convert_layout of {source} to {target}")


# Barriers.


class Barrier(Op, name="gpu.barrier"):
    """bar.sync: a barrier of all threads of the scope, after which they see each other's writes to shared memory."""


class FenceAsync(Op, name="gpu.fence_async"):
    """fence.proxy.async: TMA and the matrix units see this thread's earlier writes to shared memory."""


class FenceGlobal(Op, name="gpu.fence_global"):
    """fence.proxy.async.global: accesses of global memory by this thread, and those that it has learned of by an
    acquire, come before those of TMA after the fence."""


# Clusters of CTAs: a program whose function has `num_ctas` (docs/design/010-clusters.md).


class ClusterRank(Op, Pure, name="gpu.cluster_rank"):
    """The number of this CTA in its cluster: PTX's `%cluster_ctarank`, an i32."""

    RESULT = i32


class ClusterGather(Op, name="gpu.cluster_gather"):
    """The values that the CTAs of the cluster have, each along a new last axis: that of rank r is at r, in all of them.
    The result is packed."""

    values: Sequence[Value] = operands()
    ctas: int = attribute(int, unnamed=True)

    def infer_type(self) -> Type:
        require(bool(self.values), f"{self.NAME} takes at least one value")
        return packed([self._gathered(value.type) for value in self.values])

    def _gathered(self, type_: Type) -> Type:
        element = element_of(type_)
        require(isinstance(element, ScalarType), f"{self.NAME} takes numbers; got {type_}")
        assert isinstance(element, ScalarType)
        return TensorType((*shape_of(type_), self.ctas), element)


class ClusterStore(Asynchronous, name="gpu.cluster_store"):
    """st.async: begin to write a value to its place along the last axis of a buffer, in every CTA of the cluster.

    All CTAs must have started. The mbarrier of each CTA counts the bytes that its buffer gets.
    """

    WRITES, WAIT, MBARRIER = ("buffer",), MbarrierWait, "barrier"

    buffer: Value = operand()
    barrier: Value = operand()
    value: Value = operand()

    @property
    def crosses_ctas(self) -> bool:
        return True

    def check(self) -> None:
        require_mbarriers(self, self.barrier)
        target, value = buffer_of(self, self.buffer), self.value.type
        good = target.shape[:-1] == shape_of(value) and target.element == element_of(value)
        require(good, f"{self.NAME} of {value} to {target}")


class ClusterBarrier(Op, MemoryRead, MemoryWrite, name="gpu.cluster_barrier"):
    """barrier.cluster: a barrier of all threads of the cluster, after which they see each other's writes."""


class ClusterArrive(Op, name="gpu.cluster_arrive"):
    """barrier.cluster.arrive: this CTA has started, and initialised its mbarriers; other CTAs may arrive at these."""


class ClusterWait(Op, name="gpu.cluster_wait"):
    """barrier.cluster.wait: wait until all CTAs of the cluster have arrived at `gpu.cluster_arrive`."""


# Roles.


class WarpSpecialize(Scoped, name="gpu.warp_specialize"):
    """Run the bodies side by side, each on its own warps, which follow each other.

    Role i has `warps[i]` warps, which are whole warp groups, with `registers[i]` registers a thread, and the named
    barrier `barriers[i]`. A role whose barrier is 0 has none: only its first warp runs the body, and the others give
    back their registers. A kernel has at most one such op, before its return.
    """

    roles: Sequence[Body] = bodies(ends=Yield)
    warps: Sequence[int] = attribute([int])
    registers: Sequence[int] = attribute([int])
    barriers: Sequence[int] = attribute([int])

    @property
    def scopes(self) -> tuple[WarpScope, ...]:
        return scopes_of_roles(self.warps, self.registers, self.barriers)

    def check(self) -> None:
        check_roles(self.warps, self.registers, self.barriers, len(self.roles))

    def check_bodies(self) -> None:
        super().check_bodies()
        for role, barrier in zip(self.roles, self.barriers, strict=True):
            has_barrier = any(isinstance(inner, Barrier) for op in role.entry.ops for inner in op.walk())
            require(barrier > 0 or not has_barrier, "a role with barrier 0 has one running warp, and no barrier")
