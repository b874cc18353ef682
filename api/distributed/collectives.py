"""The collectives as operators of PyTorch: when a kernel does one, and when the process group's own backend does."""

from __future__ import annotations

import functools
import importlib
import itertools
import operator
import warnings
from collections.abc import Callable
from typing import Any, Final

import attrs

from ziggurat.codemodel import types
from ziggurat.codemodel.errors import LaunchError, ZigguratWarning, shown
from ziggurat.codemodel.types import ScalarType
from ziggurat.distributed import kernels

torch: Any = importlib.import_module("torch")
dist: Any = importlib.import_module("torch.distributed")

_THREADS, _VECTOR_BYTES = 512, 16
_BLOCK_BYTES: Final = _THREADS * _VECTOR_BYTES
ROUND_BYTES: Final = 1 << 15  # The most that a program moves in a round; of twice as much 64 MB took 4 % longer.
FLOATS: Final = {torch.bfloat16: types.bf16, torch.float16: types.f16, torch.float32: types.f32}
# The bytes up to which kernels are used, by the number of devices; for more devices, the last ones. A one-shot
# all-reduce moves (devices - 1) times its elements to each device, and a two-shot one twice its elements at most.
_MAX_ONE_SHOT: Final = {2: 1 << 26, 4: 1 << 18, 8: 1 << 17}
_MAX_BYTES: Final = {2: 1 << 26, 4: 1 << 24, 8: 1 << 23}
_SECONDS = [600.0]


def set_timeout(seconds: float) -> None:
    """Set the time for which a kernel waits for the other devices, 600 s at first. After it, the kernel fails with an
    assertion that names its line, and the process gets `CUDA_ERROR_ASSERT`."""
    if not isinstance(seconds, int | float) or not 0 < seconds < 1e9:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise LaunchError(f"the timeout of collectives must be more than 0 and less than 1e9 s; got {shown(seconds)}")
    _SECONDS[0] = float(seconds)


def timeout_ns() -> int:
    """The nanoseconds for which a kernel waits."""
    return int(_SECONDS[0] * 1e9)


@attrs.frozen(eq=False)
class Workspace:
    """The symmetric memory of a process group on this device. It has parts; `tables` has for each part the addresses of
    all devices' ones. The last part is the pads of `kernels.meet`."""

    rank: int
    world: int
    memory: Any
    tables: tuple[Any, ...]

    @classmethod
    def of(cls, group: str, device: Any, *parts: int) -> Workspace:
        """Make memory that is zero, of parts of so many bytes each, and the pads. All ranks of the group come here."""
        symmetric: Any = importlib.import_module("torch.distributed._symmetric_memory")
        starts = list(itertools.accumulate((-(-part // 1024) * 1024 for part in parts), initial=0))
        memory = symmetric.empty(starts[-1] + 8 * kernels.COUNTERS, dtype=torch.uint8, device=device)
        handle = symmetric.rendezvous(memory, group)
        memory.zero_()
        handle.barrier()
        torch.cuda.synchronize(device)
        addresses = torch.tensor([*handle.buffer_ptrs], dtype=torch.int64, device=device)
        return cls(handle.rank, handle.world_size, memory, tuple(addresses + start for start in starts))


_workspaces: dict[tuple[str, str, int], tuple[tuple[int, ...], Workspace | None]] = {}
_outgrown: list[Workspace] = []  # Captured CUDA graphs have their addresses.


def workspace(purpose: str, group: str, x: Any, *parts: int) -> Workspace | None:
    """The workspace of a group for a purpose on the device of a tensor, with parts of at least so many bytes.

    There is none if the devices cannot reach each other, or if it has to be made while a CUDA graph is captured.
    """
    key = purpose, group, x.get_device()
    sizes, space = _workspaces.get(key, ((), None))
    if len(sizes) == len(parts) and all(map(operator.le, parts, sizes)):
        return space
    if torch.cuda.is_current_stream_capturing():
        return None
    if space is not None:
        _outgrown.append(space)
    try:
        space = Workspace.of(group, x.device, *parts)
    except torch.OutOfMemoryError:
        raise  # The other ranks would wait for this one.
    except RuntimeError as error:  # No symmetric memory: no NVLink, or several hosts.
        text = f"collectives of {group} are those of its backend, as there is no symmetric memory: {error}"
        warnings.warn(text, ZigguratWarning, stacklevel=2)
        space = None
    _workspaces[key] = parts, space
    return space


def _workspace(group: str, x: Any) -> Workspace | None:
    """The workspace for a tensor that a kernel takes; None for one that the group's backend takes."""
    if not x.is_cuda or x.dtype not in FLOATS or not x.is_contiguous():
        return None
    if not 0 < x.numel() * x.element_size() <= max_bytes(group_of(group).size()):
        return None
    return workspace("collectives", group, x, 2 * kernels.PROGRAMS * kernels.SLOT_BYTES)


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
        chunk = min(part, ROUND_BYTES // itemsize, -(-count // (programs * block)) * block)
        return cls(programs, chunk, block, size, part)


def _launch(kernel: Any, space: Workspace, division: Division, dtype: ScalarType, *arguments: Any, **more: Any) -> None:
    kernel[(division.programs,)](
        *arguments, division.chunk, *space.tables, timeout_ns(), RANK=space.rank,
        WORLD=space.world, BLOCK=division.block, DTYPE=dtype, SIZE=division.size, num_warps=_THREADS // 32, **more,
    )  # fmt: skip


def _all_reduce(x: Any, group: str) -> Any:
    space, size = _workspace(group, x), x.numel() * x.element_size()
    if space is None:
        out = x.clone()
        dist.all_reduce(out, group=group_of(group))
        return out
    out, count, dtype = torch.empty_like(x), x.numel(), FLOATS[x.dtype]
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
        dist.all_gather_into_tensor(out, x.contiguous(), group=group_of(group))
        return out
    division = Division.of(x.numel(), x.element_size())
    _launch(kernels.all_gather, space, division, FLOATS[x.dtype], x, out, x.numel())
    return out


def _reduce_scatter(x: Any, group: str) -> Any:
    check_divided("reduce_scatter", x, group)
    space, out = _workspace(group, x), _scattered(x, group)
    if space is None:
        dist.reduce_scatter_tensor(out, x.contiguous(), group=group_of(group))
        return out
    division = Division.of(out.numel(), x.element_size(), space.world)
    _launch(
        kernels.reduce_scatter, space, division, FLOATS[x.dtype], x, out, out.numel(), PART=division.part
    )  # fmt: skip
    return out


def group_of(name: str) -> Any:
    """The process group of a name."""
    return dist.distributed_c10d._resolve_process_group(name)


def _gathered(x: Any, group: str) -> Any:
    return x.new_empty((group_of(group).size() * x.shape[0], *x.shape[1:]))


def _scattered(x: Any, group: str) -> Any:
    return x.new_empty((x.shape[0] // group_of(group).size(), *x.shape[1:]))


def operator_of(
    name: str, run: Callable[..., Any], fake: Callable[..., Any], backward: Callable[..., tuple[Any, ...]]
) -> Any:
    """The operator of a function of tensors and of a group's name. `backward` gets the gradient, the tensors and the
    name, and gives the gradients of the tensors."""
    count = run.__code__.co_argcount - 1
    tensors = ", ".join(f"Tensor {argument}" for argument in run.__code__.co_varnames[:count])
    op = torch.library.custom_op(f"ziggurat::{name}", run, mutates_args=(), schema=f"({tensors}, str group) -> Tensor")
    op.register_fake(fake)

    def note(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs[:-1])
        ctx.group = inputs[-1]

    def differentiated(ctx: Any, gradient: Any) -> Any:
        return *backward(gradient.contiguous(), *ctx.saved_tensors, ctx.group), None

    op.register_autograd(differentiated, setup_context=note)
    return op


def call(run: Callable[..., Any], op: Any, group: Any, *tensors: Any) -> Any:
    """Call a function: without PyTorch's dispatch, which takes longer than the launch, where it has no part in it."""
    for x in tensors:
        if not isinstance(x, torch.Tensor):
            raise LaunchError(f"the argument of {run.__name__[1:]} must be a tensor of PyTorch; got {shown(x)}")
    if not dist.is_initialized():
        raise LaunchError(
            f"{run.__name__[1:]} needs a process group", hint="call torch.distributed.init_process_group first"
        )
    group = dist.group.WORLD if group is None else group
    name = group if isinstance(group, str) else getattr(group, "group_name", None)
    if name is None:
        raise LaunchError(f"the group of {run.__name__[1:]} must be a process group or its name; got {shown(group)}")
    plain = all(type(x) is torch.Tensor and not (x.requires_grad and torch.is_grad_enabled()) for x in tensors)
    return run(*tensors, name) if plain and not torch.compiler.is_compiling() else op(*tensors, name)


def _like(x: Any, group: str) -> Any:
    return torch.empty_like(x)


def _adjoint(name: str) -> Callable[[Any, Any, str], tuple[Any]]:
    """The gradient of a collective: another one, of the gradients of the results."""
    return lambda dy, x, group: (getattr(torch.ops.ziggurat, name)(dy, group),)


_ALL_REDUCE: Final = operator_of("all_reduce", _all_reduce, _like, _adjoint("all_reduce"))
_ALL_GATHER: Final = operator_of("all_gather", _all_gather, _gathered, _adjoint("reduce_scatter"))
_REDUCE_SCATTER: Final = operator_of("reduce_scatter", _reduce_scatter, _scattered, _adjoint("all_gather"))


def all_reduce(x: Any, group: Any = None) -> Any:
    """The sum of a tensor over the ranks of a process group, on each of them; by default of all ranks.

    The result is a new tensor like `x`. bf16, f16 and f32 in GPU memory are summed by a kernel, in f32 and in the order
    of the ranks, so that all ranks get the same bits. What a kernel does not take (other dtypes, other memory, views
    with gaps, more bytes than it is faster for) the group's backend does.
    Raises `LaunchError` for an argument that is no tensor, or without a process group.
    """
    return call(_all_reduce, _ALL_REDUCE, group, x)


def all_gather(x: Any, group: Any = None) -> Any:
    """The tensors of all ranks, one after the other along the first axis: (ranks · n, …) of (n, …).

    Raises `LaunchError` as `all_reduce` does, and for a tensor without axes.
    """
    _with_axes("all_gather", x)
    return call(_all_gather, _ALL_GATHER, group, x)


def reduce_scatter(x: Any, group: Any = None) -> Any:
    """This rank's part of the sum over all ranks, divided along the first axis: (n / ranks, …) of (n, …).

    Raises `LaunchError` as `all_reduce` does, and for a first axis that the ranks do not divide.
    """
    _with_axes("reduce_scatter", x)
    return call(_reduce_scatter, _REDUCE_SCATTER, group, x)


def check_divided(name: str, x: Any, group: str) -> None:
    """Raise `LaunchError` unless the ranks divide the first axis."""
    if x.shape[0] % (world := group_of(group).size()):
        raise LaunchError(f"the first axis of {name} must be a multiple of the {world} ranks; got {x.shape[0]}")


def _with_axes(name: str, x: Any) -> None:
    if isinstance(x, torch.Tensor) and not x.ndim:
        raise LaunchError(f"{name} divides the first axis of a tensor; got a tensor without axes")
