"""The collectives as operators of PyTorch: when a kernel does one, and when the process group's own backend does."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs

from ziggurat.codemodel import types
from ziggurat.codemodel.errors import LaunchError, ZigguratWarning, shown
from ziggurat.codemodel.recent import Recent
from ziggurat.distributed import kernels

torch: Any = importlib.import_module("torch")
dist: Any = importlib.import_module("torch.distributed")

_VECTOR_BYTES = 16
_BLOCK_BYTES: Final = 512 * _VECTOR_BYTES  # A vector for each thread.
ROUND_BYTES: Final = 1 << 15  # The most that a program moves in a round; of twice as much 64 MB took 4 % longer.
FLOATS: Final = {torch.bfloat16: types.bf16, torch.float16: types.f16, torch.float32: types.f32}
# The bytes up to which kernels are used, by the number of devices; for more devices, the last ones. A one-shot
# all-reduce moves (devices - 1) times its elements to each device, and a two-shot one twice its elements at most.
_MAX_ONE_SHOT: Final = {2: 1 << 26, 4: 1 << 18, 8: 1 << 17}
_MAX_BYTES: Final = {2: 1 << 26, 4: 1 << 24, 8: 1 << 23}
_TENSORS: Final = torch.Tensor, torch.nn.Parameter
_SECONDS = [600.0]


def set_timeout(seconds: float) -> None:
    """Set the time for which a kernel waits for the other devices, 600 s at first. After it, the kernel fails with an
    assertion that names its line, and the process gets `CUDA_ERROR_ASSERT`."""
    if not isinstance(seconds, int | float) or not 0 < seconds < 1e9:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise LaunchError(f"the timeout of collectives must be more than 0 and less than 1e9 s; got {shown(seconds)}")
    _SECONDS[0] = float(seconds)
    _prepared.clear()


@attrs.frozen(eq=False)
class Workspace:
    """The symmetric memory of a process group on this device; `table` has the addresses of all devices' ones. It begins
    with the counters of `kernels.begin`; `rows` is the rest. `streams` has the streams of the last launches, without
    and with a CUDA graph that captures them."""

    rank: int
    world: int
    memory: Any
    table: Any
    streams: dict[bool, Any] = attrs.field(factory=dict[bool, Any])
    address: list[int] = attrs.field(factory=lambda: [-1])  # Of the stream of the last launch.

    @classmethod
    def of(cls, group: Any, device: Any, size: int) -> Workspace:
        """Make memory of so many bytes after the counters, which is zero. All ranks of the group come here."""
        symmetric: Any = importlib.import_module("torch.distributed._symmetric_memory")
        memory = symmetric.empty(8 * kernels.COUNTERS + size, dtype=torch.uint8, device=device)
        handle = symmetric.rendezvous(memory, group.group_name)
        memory.zero_()
        handle.barrier()
        torch.cuda.synchronize(device)
        table = torch.tensor([*handle.buffer_ptrs], dtype=torch.int64, device=device)
        return cls(handle.rank, handle.world_size, memory, table)

    @property
    def rows(self) -> Any:
        """The bytes after the counters."""
        return self.memory[8 * kernels.COUNTERS :]

    def team(self, dtype: Any, size: int = 0, part: int = 0, block: int = 0) -> kernels.Team:
        """The constants of a kernel for tensors of a dtype of PyTorch."""
        return kernels.Team(self.rank, self.world, FLOATS[dtype], size, part, block)

    def follow(self) -> None:
        """Let the launches to come on the current stream run after those on the stream before: they share the slots."""
        if torch._C._cuda_getCurrentRawStream(self.memory.get_device()) == self.address[0]:
            return
        stream = torch.cuda.current_stream(self.memory.device)
        is_captured = torch.cuda.is_current_stream_capturing()
        for previous in self.streams.values():
            with torch.cuda.stream(previous):
                is_alike = torch.cuda.is_current_stream_capturing() == is_captured
            if is_alike:  # No stream waits for one that is in a graph, unless it is in the same.
                stream.wait_stream(previous)
        self.streams[is_captured], self.address[0] = stream, stream.cuda_stream


# By purpose, group and device: the bytes, and the workspace.
_workspaces: dict[tuple[str, Any, int], tuple[int, Workspace | None]] = {}
_outgrown: list[Workspace] = []  # Captured CUDA graphs have their addresses.


def workspace(purpose: str, group: Any, x: Any, size: int) -> Workspace | None:
    """The workspace of a group for a purpose on the device of a tensor, of at least so many bytes.

    There is none if the devices cannot reach each other, or if it has to be made while a CUDA graph is captured.
    """
    key = purpose, group, x.get_device()
    room, space = _workspaces.get(key, (-1, None))
    if size <= room:
        return space
    if torch.cuda.is_current_stream_capturing():
        return None
    _forget_groups()
    if space is not None:
        _outgrown.append(space)
    try:
        space = Workspace.of(group, x.device, size)
    except torch.OutOfMemoryError:
        raise  # The other ranks would wait for this one.
    except RuntimeError as error:  # No symmetric memory: no NVLink, or several hosts.
        name = group.group_name
        text = f"collectives of {name} are those of its backend, as there is no symmetric memory: {error}"
        warnings.warn(text, ZigguratWarning, stacklevel=2)
        space = None
    _workspaces[key] = size, space
    return space


def _forget_groups() -> None:
    """Drop what is of groups that were destroyed: another group may get the name of one."""
    groups = dist.distributed_c10d._world.pg_map
    for key in [key for key in _workspaces if key[1] not in groups]:
        del _workspaces[key]
    for key in [key for key in _prepared if key[1] not in groups]:
        _prepared.pop(key, None)


def reachable(x: Any, size: int, group: Any) -> bool:
    """Whether a kernel may take a tensor, of which it moves so many bytes."""
    return x.is_cuda and x.dtype in FLOATS and x.is_contiguous() and 0 < size <= _limit(_MAX_BYTES, group.size())


def slots_of(group: Any, x: Any) -> Workspace | None:
    """The workspace for a tensor that a kernel takes; None for one that the group's backend takes."""
    is_taken = reachable(x, x.numel() * x.element_size(), group)
    return workspace("collectives", group, x, 2 * kernels.PROGRAMS * kernels.SLOT_BYTES) if is_taken else None


def _limit(limits: dict[int, int], world: int) -> int:
    return next((limit for count, limit in limits.items() if world <= count), limits[8])


def max_bytes(world: int) -> int:
    """The bytes of an argument up to which kernels do the collectives of so many devices."""
    return _limit(_MAX_BYTES, world)


def max_one_shot(world: int) -> int:
    """The bytes of an argument up to which each device adds the elements of all."""
    return _limit(_MAX_ONE_SHOT, world)


def timeout_ns() -> int:
    """The nanoseconds for which a kernel waits."""
    return int(_SECONDS[0] * 1e9)


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
    def of(cls, count: int, itemsize: int, parts: int = 1) -> Division:
        """The division of `count` elements, of which a slot takes as many for each of `parts` devices."""
        block, size = _BLOCK_BYTES // itemsize, kernels.SLOT_BYTES // itemsize
        part = size // (1 << (parts - 1).bit_length())
        programs = min(kernels.PROGRAMS, -(-count // block))
        chunk = min(part, ROUND_BYTES // itemsize, -(-count // (programs * block)) * block)
        return cls(programs, chunk, block, size, part)


@attrs.frozen(eq=False)
class Prepared:
    """A launch of a collective for tensors of one shape: the shape of the result, and the arguments after both."""

    shape: tuple[int, ...]
    space: Workspace
    launch: Callable[..., Any]
    numbers: tuple[Any, ...]

    @classmethod
    def of(cls, space: Workspace, kernel: Any, x: Any, shape: Any, division: Division, *numbers: int) -> Prepared:
        """A launch with `numbers` before those that all kernels take."""
        team = space.team(x.dtype, division.size, division.part, division.block)
        rest = *numbers, division.chunk, space.table.data_ptr(), timeout_ns(), team
        return cls(tuple(shape), space, kernel[(division.programs,)], rest)

    def __call__(self, x: Any) -> Any:
        """Launch it, with a new tensor for the result."""
        out = x.new_empty(self.shape)
        self.space.follow()
        self.launch(x, out, *self.numbers)
        return out


# By collective, group, shape, dtype and device.
_prepared: Recent[tuple[Any, ...], Prepared] = Recent(1024)


def _run(prepare: Callable[[Any, Any], Prepared | None], backend: Callable[[Any, Any], Any], x: Any, name: str) -> Any:
    """Do a collective by the launch that `prepare` makes, or else by the group's backend."""
    group = group_of(name)
    prepared = prepare(x, group)
    if prepared is None:
        return backend(x, group)
    _prepared[prepare, group, x.shape, x.dtype, x.get_device()] = prepared
    return prepared(x)


def _prepare_all_reduce(x: Any, group: Any) -> Prepared | None:
    space = slots_of(group, x)
    if space is None:
        return None
    count, itemsize = x.numel(), x.element_size()
    if count * itemsize <= max_one_shot(space.world):
        return Prepared.of(space, kernels.all_reduce_one_shot, x, x.shape, Division.of(count, itemsize), count)
    vector = _VECTOR_BYTES // itemsize
    share = -(-count // (space.world * vector)) * vector
    division = Division.of(share, itemsize, space.world)
    return Prepared.of(space, kernels.all_reduce_two_shot, x, x.shape, division, count, share)


def _all_reduce_by_backend(x: Any, group: Any) -> Any:
    out = x.clone()
    dist.all_reduce(out, group=group)
    return out


def _prepare_all_gather(x: Any, group: Any) -> Prepared | None:
    space = slots_of(group, x)
    if space is None:
        return None
    division = Division.of(x.numel(), x.element_size())
    shape = space.world * x.shape[0], *x.shape[1:]
    return Prepared.of(space, kernels.all_gather, x, shape, division, x.numel())


def _all_gather_by_backend(x: Any, group: Any) -> Any:
    out = _gathered(x, group.group_name)
    dist.all_gather_into_tensor(out, x.contiguous(), group=group)
    return out


def _prepare_reduce_scatter(x: Any, group: Any) -> Prepared | None:
    check_divided("reduce_scatter", x, group)
    space = slots_of(group, x)
    if space is None:
        return None
    count = x.numel() // space.world
    division = Division.of(count, x.element_size(), space.world)
    shape = x.shape[0] // space.world, *x.shape[1:]
    return Prepared.of(space, kernels.reduce_scatter, x, shape, division, count)


def _reduce_scatter_by_backend(x: Any, group: Any) -> Any:
    out = _scattered(x, group.group_name)
    dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
    return out


def group_of(name: str) -> Any:
    """The process group of a name."""
    return dist.distributed_c10d._resolve_process_group(name)


def _gathered(x: Any, group: str) -> Any:
    return x.new_empty((group_of(group).size() * x.shape[0], *x.shape[1:]))


def _scattered(x: Any, group: str) -> Any:
    return x.new_empty((x.shape[0] // group_of(group).size(), *x.shape[1:]))


@attrs.frozen(eq=False)
class Operator:
    """A function of tensors and other arguments, the last of which is a group's name, and the operator of PyTorch."""

    name: str
    run: Callable[..., Any]
    op: Any

    @classmethod
    def of(
        cls, name: str, schema: str, run: Callable[..., Any], fake: Callable[..., Any],
        backward: Callable[..., tuple[Any, ...]], save: Sequence[int],
    ) -> Operator:  # fmt: skip
        """The operator of a function. `backward` gets the gradients of the results, and the arguments and results whose
        numbers are in `save`; it gives the gradients of the arguments."""
        op = torch.library.custom_op(f"ziggurat::{name}", run, mutates_args=(), schema=schema)
        op.register_fake(fake)

        def note(ctx: Any, inputs: Any, output: Any) -> None:
            values: list[Any] = [*inputs, *output] if isinstance(output, tuple) else [*inputs, output]
            values = [values[number] for number in save]
            ctx.save_for_backward(*(value if isinstance(value, torch.Tensor) else None for value in values))
            ctx.others = [None if isinstance(value, torch.Tensor) else value for value in values]

        def differentiated(ctx: Any, *gradients: Any) -> Any:
            saved = [t if t is not None else o for t, o in zip(ctx.saved_tensors, ctx.others, strict=True)]
            return backward(*(g if g is None else g.contiguous() for g in gradients), *saved)

        op.register_autograd(differentiated, setup_context=note)
        return cls(name, run, op)

    def group(self, group: Any) -> Any:
        """The process group that a caller means. Raises `LaunchError` where there is none."""
        if not dist.is_initialized():
            hint = "call torch.distributed.init_process_group first"
            raise LaunchError(f"{self.name} needs a process group", hint=hint)
        if isinstance(group, str):
            return group_of(group)
        group = dist.group.WORLD if group is None else group
        if not isinstance(group, dist.ProcessGroup):
            raise LaunchError(f"the group of {self.name} must be a process group or its name; got {shown(group)}")
        return group

    def __call__(self, group: Any, *arguments: Any) -> Any:
        """Call the function: without PyTorch's dispatch, which takes longer than the launch, where it has no part."""
        name = self.group(group).group_name
        tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
        plain = all(type(x) in _TENSORS and not (x.requires_grad and torch.is_grad_enabled()) for x in tensors)
        return (self.run if plain and not torch.compiler.is_compiling() else self.op)(*arguments, name)


def require_tensors(name: str, *values: Any) -> None:
    """Raise `LaunchError` unless all are tensors."""
    for x in values:
        if not isinstance(x, torch.Tensor):
            raise LaunchError(f"the argument of {name} must be a tensor of PyTorch; got {shown(x)}")


def _adjoint(name: str) -> Callable[[Any, str], tuple[Any, None]]:
    """The gradient of a collective: another one, of the gradients of the results."""
    return lambda dy, group: (getattr(torch.ops.ziggurat, name)(dy, group), None)


class Collective:
    """A collective of one tensor: how its launches are prepared, and its operator."""

    def __init__(
        self, name: str, prepare: Callable[[Any, Any], Prepared | None], backend: Callable[[Any, Any], Any],
        fake: Callable[..., Any], adjoint: str,
    ) -> None:  # fmt: skip
        self.prepare = prepare
        self.operator = Operator.of(
            name, "(Tensor x, str group) -> Tensor", functools.partial(_run, prepare, backend), fake,
            _adjoint(adjoint), [1],
        )  # fmt: skip

    def __call__(self, x: Any, group: Any) -> Any:
        """Do it by a launch that is prepared, or else by the operator."""
        if not torch.compiler.is_compiling() and type(x) is torch.Tensor and x.is_contiguous():
            own = dist.group.WORLD if group is None else group
            if isinstance(own, dist.ProcessGroup) and not (x.requires_grad and torch.is_grad_enabled()):
                prepared = _prepared.get((self.prepare, own, x.shape, x.dtype, x.get_device()))
                if prepared is not None:
                    return prepared(x)
        require_tensors(self.operator.name, x)
        return self.operator(group, x)


def _like(x: Any, group: str) -> Any:
    return torch.empty_like(x)


_ALL_REDUCE: Final = Collective("all_reduce", _prepare_all_reduce, _all_reduce_by_backend, _like, "all_reduce")
_ALL_GATHER: Final = Collective("all_gather", _prepare_all_gather, _all_gather_by_backend, _gathered, "reduce_scatter")
_REDUCE_SCATTER: Final = Collective(
    "reduce_scatter", _prepare_reduce_scatter, _reduce_scatter_by_backend, _scattered, "all_gather"
)


def all_reduce(x: Any, group: Any = None) -> Any:
    """The sum of a tensor over the ranks of a process group, on each of them; by default of all ranks.

    The result is a new tensor like `x`. bf16, f16 and f32 in GPU memory are summed by a kernel, in f32 and in the order
    of the ranks, so that all ranks get the same bits. What a kernel does not take (other dtypes, other memory, views
    with gaps, more bytes than it is faster for) the group's backend does.
    Raises `LaunchError` for an argument that is no tensor, or without a process group.
    """
    return _ALL_REDUCE(x, group)


def all_gather(x: Any, group: Any = None) -> Any:
    """The tensors of all ranks, one after the other along the first axis: (ranks · n, …) of (n, …).

    Raises `LaunchError` as `all_reduce` does, and for a tensor without axes.
    """
    _with_axes("all_gather", x)
    return _ALL_GATHER(x, group)


def reduce_scatter(x: Any, group: Any = None) -> Any:
    """This rank's part of the sum over all ranks, divided along the first axis: (n / ranks, …) of (n, …).

    Raises `LaunchError` as `all_reduce` does, and for a first axis that the ranks do not divide.
    """
    _with_axes("reduce_scatter", x)
    return _REDUCE_SCATTER(x, group)


def check_divided(name: str, x: Any, group: Any) -> None:
    """Raise `LaunchError` unless the ranks divide the first axis."""
    if x.shape[0] % (world := group.size()):
        raise LaunchError(f"the first axis of {name} must be a multiple of the {world} ranks; got {x.shape[0]}")


def _with_axes(name: str, x: Any) -> None:
    if isinstance(x, torch.Tensor) and not x.ndim:
        raise LaunchError(f"{name} divides the first axis of a tensor; got a tensor without axes")
