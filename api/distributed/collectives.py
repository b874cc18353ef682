"""The collectives as operators of PyTorch: when a kernel does one, and when the process group's own backend does."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, Final

import attrs

from ziggurat.codemodel import types
from ziggurat.codemodel.errors import LaunchError, shown
from ziggurat.codemodel.types import ScalarType
from ziggurat.distributed import kernels

torch: Any = importlib.import_module("torch")
dist: Any = importlib.import_module("torch.distributed")

_THREADS, _VECTOR_BYTES = 512, 16
_BLOCK_BYTES: Final = _THREADS * _VECTOR_BYTES
_FLOATS: Final = {torch.bfloat16: types.bf16, torch.float16: types.f16, torch.float32: types.f32}
# The bytes up to which kernels are used, by the number of devices; for more devices, the last ones. A one-shot
# all-reduce moves (devices - 1) times its elements to each device, and a two-shot one twice its elements at most.
_MAX_ONE_SHOT: Final = {2: 1 << 26, 4: 1 << 18, 8: 1 << 17}
_MAX_BYTES: Final = {2: 1 << 26, 4: 1 << 24, 8: 1 << 23}
_SECONDS = [600.0]


def set_timeout(seconds: float) -> None:
    """Set the time for which a kernel waits for the other devices, 600 s at first. After it, the kernel fails with an
    assertion that names its line, and the process gets `CUDA_ERROR_ASSERT`."""
    if not 0 < seconds < 1e9:
        raise LaunchError(f"the timeout of collectives must be more than 0 and less than 1e9 s; got {shown(seconds)}")
    _SECONDS[0] = float(seconds)


@attrs.frozen(eq=False)
class Workspace:
    """The symmetric memory of a process group on this device: the tables of the addresses of all devices' buffers and
    pads, and the memory itself."""

    rank: int
    world: int
    buffers: Any
    pads: Any
    memory: Any

    @classmethod
    def of(cls, group: str, device: Any) -> Workspace:
        """Make the memory. All ranks of the group must come here."""
        symmetric: Any = importlib.import_module("torch.distributed._symmetric_memory")
        pads = 2 * kernels.PROGRAMS * kernels.SLOT_BYTES
        memory = symmetric.empty(pads + 8 * kernels.COUNTERS, dtype=torch.uint8, device=device)
        handle = symmetric.rendezvous(memory, group)
        memory.zero_()
        handle.barrier()
        torch.cuda.synchronize(device)
        addresses = torch.tensor([*handle.buffer_ptrs], dtype=torch.int64, device=device)
        return cls(handle.rank, handle.world_size, addresses, addresses + pads, memory)


_workspaces: dict[tuple[str, int], Workspace | None] = {}


def _workspace(group: str, x: Any) -> Workspace | None:
    """The workspace of a group for a tensor that a kernel takes; None for one that the group's backend takes. There is
    none if the devices cannot reach each other, or if the first collective is captured by a CUDA graph."""
    if not x.is_cuda or x.dtype not in _FLOATS or not x.is_contiguous():
        return None
    if not 0 < x.numel() * x.element_size() <= max_bytes(_group(group).size()):
        return None
    key = group, x.get_device()
    if key not in _workspaces:
        if torch.cuda.is_current_stream_capturing():
            return None
        try:
            _workspaces[key] = Workspace.of(group, x.device)
        except RuntimeError:  # No symmetric memory: no NVLink, or several hosts.
            _workspaces[key] = None
    return _workspaces[key]


def _limit(limits: dict[int, int], world: int) -> int:
    return next((limit for count, limit in limits.items() if world <= count), limits[8])


def max_bytes(world: int) -> int:
    """The bytes of an argument up to which kernels do the collectives of so many devices."""
    return _limit(_MAX_BYTES, world)


@attrs.frozen
class Division:
    """How the programs of a launch divide elements: the programs, the elements of each in one round, the elements of a
    block, and the elements of a slot and of its part for one device."""

    programs: int
    chunk: int
    block: int
    size: int
    part: int

    @classmethod
    @functools.lru_cache(maxsize=1024)
    def of(cls, count: int, itemsize: int, parts: int = 1) -> Division:
        """The division of `count` elements, of which a slot takes as many for each of `parts` devices."""
        block, size = _BLOCK_BYTES // itemsize, kernels.SLOT_BYTES // itemsize
        part = size // (1 << (parts - 1).bit_length())
        programs = min(kernels.PROGRAMS, -(-count // block))
        chunk = min(part, -(-count // (programs * block)) * block)
        return cls(programs, chunk, block, size, part)


def _launch(kernel: Any, space: Workspace, division: Division, dtype: ScalarType, *arguments: Any, **more: Any) -> None:
    kernel[(division.programs,)](
        *arguments, division.chunk, space.buffers, space.pads, int(_SECONDS[0] * 1e9), RANK=space.rank,
        WORLD=space.world, BLOCK=division.block, DTYPE=dtype, SIZE=division.size, num_warps=_THREADS // 32, **more,
    )  # fmt: skip


def _all_reduce(x: Any, group: str) -> Any:
    space, size = _workspace(group, x), x.numel() * x.element_size()
    if space is None:
        out = x.clone()
        dist.all_reduce(out, group=_group(group))
        return out
    out, count, dtype = torch.empty_like(x), x.numel(), _FLOATS[x.dtype]
    if size <= _limit(_MAX_ONE_SHOT, space.world):
        division = Division.of(count, x.element_size())
        _launch(kernels.all_reduce_one_shot, space, division, dtype, x, out, count)
        return out
    vector = _VECTOR_BYTES // x.element_size()
    share = -(-count // (space.world * vector)) * vector
    division = Division.of(share, x.element_size(), space.world)
    _launch(kernels.all_reduce_two_shot, space, division, dtype, x, out, count, share, PART=division.part)
    return out


def _all_gather(x: Any, group: str) -> Any:
    space, out = _workspace(group, x), _gathered(x, group)
    if space is None:
        dist.all_gather_into_tensor(out, x.contiguous(), group=_group(group))
        return out
    division = Division.of(x.numel(), x.element_size())
    _launch(kernels.all_gather, space, division, _FLOATS[x.dtype], x, out, x.numel())
    return out


def _reduce_scatter(x: Any, group: str) -> Any:
    space, out = _workspace(group, x), _scattered(x, group)
    if space is None:
        dist.reduce_scatter_tensor(out, x.contiguous(), group=_group(group))
        return out
    division = Division.of(out.numel(), x.element_size(), space.world)
    _launch(
        kernels.reduce_scatter, space, division, _FLOATS[x.dtype], x, out, out.numel(), PART=division.part
    )  # fmt: skip
    return out


def _group(name: str) -> Any:
    return dist.distributed_c10d._resolve_process_group(name)


def _gathered(x: Any, group: str) -> Any:
    return x.new_empty((_group(group).size() * x.shape[0], *x.shape[1:]))


def _scattered(x: Any, group: str) -> Any:
    return x.new_empty((x.shape[0] // _group(group).size(), *x.shape[1:]))


def _operator(name: str, run: Callable[[Any, str], Any], fake: Callable[[Any, str], Any], adjoint: str) -> Any:
    """The operator of a collective. Its gradient is another one, of the gradients of the results."""
    op = torch.library.custom_op(f"ziggurat::{name}", run, mutates_args=(), schema="(Tensor x, str group) -> Tensor")
    op.register_fake(fake)

    def note(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.group = inputs[1]

    def backward(ctx: Any, gradient: Any) -> Any:
        return getattr(torch.ops.ziggurat, adjoint)(gradient.contiguous(), ctx.group), None

    op.register_autograd(backward, setup_context=note)
    return op


_OPERATORS: dict[Callable[[Any, str], Any], Any] = {
    _all_reduce: _operator("all_reduce", _all_reduce, lambda x, group: torch.empty_like(x), "all_reduce"),
    _all_gather: _operator("all_gather", _all_gather, _gathered, "reduce_scatter"),
    _reduce_scatter: _operator("reduce_scatter", _reduce_scatter, _scattered, "all_gather"),
}


def _call(run: Callable[[Any, str], Any], x: Any, group: Any) -> Any:
    """Call a collective: without PyTorch's dispatch, which takes longer than the launch, where it has no part in it."""
    if not isinstance(x, torch.Tensor):
        raise LaunchError(f"the argument of {run.__name__[1:]} must be a tensor of PyTorch; got {shown(x)}")
    if not dist.is_initialized():
        raise LaunchError(
            f"{run.__name__[1:]} needs a process group", hint="call torch.distributed.init_process_group first"
        )
    name = dist.group.WORLD.group_name if group is None else group if isinstance(group, str) else group.group_name
    plain = type(x) is torch.Tensor and not (x.requires_grad and torch.is_grad_enabled())
    return run(x, name) if plain and not torch.compiler.is_compiling() else _OPERATORS[run](x, name)


def all_reduce(x: Any, group: Any = None) -> Any:
    """The sum of a tensor over the ranks of a process group, on each of them; by default of all ranks.

    The result is a new tensor like `x`. bf16, f16 and f32 in GPU memory are summed by a kernel, in f32 and in the order
    of the ranks, so that all ranks get the same bits. What a kernel does not take (other dtypes, other memory, views
    with gaps, more bytes than it is faster for) the group's backend does.
    Raises `LaunchError` for an argument that is no tensor, or without a process group.
    """
    return _call(_all_reduce, x, group)


def all_gather(x: Any, group: Any = None) -> Any:
    """The tensors of all ranks, one after the other along the first axis: (ranks · n, …) of (n, …).

    Raises `LaunchError` as `all_reduce` does, and for a tensor without axes.
    """
    _with_axes("all_gather", x)
    return _call(_all_gather, x, group)


def reduce_scatter(x: Any, group: Any = None) -> Any:
    """This rank's part of the sum over all ranks, divided along the first axis: (n / ranks, …) of (n, …).

    Raises `LaunchError` as `all_reduce` does, and for a first axis that the ranks do not divide.
    """
    _with_axes("reduce_scatter", x)
    if dist.is_initialized() and x.shape[0] % (world := dist.get_world_size(None if isinstance(group, str) else group)):
        raise LaunchError(f"the first axis of reduce_scatter must be a multiple of the {world} ranks; got {x.shape[0]}")
    return _call(_reduce_scatter, x, group)


def _with_axes(name: str, x: Any) -> None:
    if isinstance(x, torch.Tensor) and not x.ndim:
        raise LaunchError(f"{name} divides the first axis of a tensor; got a tensor without axes")
