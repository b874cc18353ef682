"""Run a kernel of the Triton model on NumPy arrays: the reference that compiled kernels are compared with."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from ziggurat.backend.launch.arrays import whole
from ziggurat.backend.launch.grids import MAX_SIZE, padded, sizes_of
from ziggurat.backend.launch.races import MAX_PROGRAMS, Races
from ziggurat.backend.reference import access, buffers, control, gpu_ops, reductions, roles, shared_memory, tensors
from ziggurat.backend.reference.argument_memory import ArrayArgument, Conflict, Memory, WaitsForLater
from ziggurat.backend.reference.kernel_arguments import values_of_parameters
from ziggurat.backend.reference.machine import Machine, triton
from ziggurat.backend.reference.turns import run_in_turns
from ziggurat.backend.reference.values import Array
from ziggurat.codemodel import scalars
from ziggurat.codemodel.dialects import arith, core, cpu, tt
from ziggurat.codemodel.dialects import math as math_ops
from ziggurat.codemodel.dispatch import demand
from ziggurat.codemodel.errors import KernelRuntimeError, LaunchError, MemoryAccessError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.printed import show
from ziggurat.codemodel.subnormals import keep_subnormals
from ziggurat.codemodel.types import SharedType, TensorType, TupleType, Type, void
from ziggurat.transforms.analysis.queries import is_persistent
from ziggurat.transforms.simplify import inline

See = Callable[[Memory, Value, Any], None]  # What watches a run: the value of a model, and its content.

MEANINGS = (access, buffers, control, gpu_ops, reductions, roles, shared_memory, tensors)  # They fill the table.

BATCH_ELEMENTS = 1 << 18  # Elements of the largest tensor in a batch: temporaries of 1 to 2 MB stay in the cache.
LOOP_LIMIT = 1 << 20
PERSISTENT_CTAS = 2  # The CTAs of a persistent kernel, each of which then runs several programs.
_MAX_COPIED = 1 << 28  # Bytes of the arrays with which a program is run once more.

# glibc maps each large block anew, and the first touch of every page of a temporary is a fault. Freeing a mapped block
# raises the size from which blocks are mapped to its own (mallopt(3), M_MMAP_THRESHOLD): once, to 16 MiB.
np.empty(1 << 24, np.uint8)


@attrs.frozen(eq=False)
class Launch:
    """A kernel with the values of its parameters, ready to run: `machine` makes a machine for it.

    `programs` is their number, and `is_single` says that they must run one at a time.
    """

    functions: Mapping[str, Op]
    kernel: Op
    values: list[Any]
    memory: Memory
    programs: int
    is_single: bool
    machine: functools.partial[Machine]

    def looking_for_overflows(self) -> Launch:
        """The launch with machines that look for overflows."""
        return attrs.evolve(self, machine=functools.partial(self.machine, overflows=True))

    @classmethod
    def of(
        cls, module: Op, symbol: str | None, grid: tuple[int, ...], arguments: Sequence[object], *,
        names: Sequence[str] | None, strict: bool, tolerant: bool, limit: int, persistent_ctas: int,
        kind: Callable[..., Machine] = Machine, until: float = math.inf, undefined: bool = False,
        of_memory: Callable[[Sequence[ArrayArgument], tuple[int, int, int], bool], Memory] = Memory,
    ) -> Launch:  # fmt: skip
        """The launch of a kernel of a model; see `run` for the parameters and errors. `kind` makes the machines, and
        `of_memory` the memory."""
        functions_, kernel = kernel_of(inline(module) if strict else module, symbol)
        x, y, z = padded(sizes_of(grid, str(kernel.attributes["sym_name"])))
        if x * y * z > MAX_SIZE:
            raise LaunchError(f"a grid must have at most {MAX_SIZE} programs; {grid} has {x * y * z}")
        arrays, values = values_of_parameters(kernel, arguments, names, whole if tolerant else _itself, (x, y, z))
        if isinstance(kernel, tt.Func) and is_persistent(kernel):
            x, y, z = min(persistent_ctas, x * y * z), 1, 1
        memory = of_memory(arrays, (x, y, z), tolerant)
        if strict:
            memory.leave_out_read(kernel)
        if strict and 1 < x * y * z <= MAX_PROGRAMS:
            memory.races = Races((x, y, z), lambda op: op.location, KernelRuntimeError)
        machine = functools.partial(
            kind, functions_, memory, strict=strict, limit=limit, until=until, undefined=undefined
        )
        if strict and not isinstance(module, cpu.Module):
            machine = functools.partial(machine, nonnegative=_taken_as_nonnegative(functions_.values()))
        is_single = isinstance(module, cpu.Module)
        if isinstance(module, cpu.Module):
            machine = functools.partial(machine, scratch=module.scratch)
        if isinstance(kernel, tt.Func) and kernel.num_ctas > 1:
            machine = functools.partial(machine, ctas=kernel.num_ctas)
        if isinstance(module, gpu.Module):
            machine = functools.partial(machine, shared_bytes=module.shared)
            # Roles wait for each other: a batch would wait for the slowest of its programs.
            is_single = module.holds(gpu.WarpSpecialize)
        return cls(functions_, kernel, values, memory, x * y * z, is_single, machine)


@keep_subnormals()
def run(
    module: Op,
    symbol: str | None,
    grid: tuple[int, ...],
    arguments: Sequence[object],
    *,
    names: Sequence[str] | None = None,
    strict: bool = False,
    tolerant: bool = False,
    batch: int | None = None,
    loop_limit: int = LOOP_LIMIT,
    persistent_ctas: int = PERSISTENT_CTAS,
    detached: bool = False,
    seconds: float = math.inf,
) -> None:
    """Run the kernel `symbol` of a module, or a lone `tt.func`, once for each program of a grid of 1 to 3 axes.

    The model is a Triton model, or any model on the way from one to a GPU or a CPU: programs of a CPU model, and of a
    GPU model with warp roles, run one at a time.

    There is one argument for each parameter: a NumPy array of the pointer's type, with any strides, a
    `TensorDescriptor` of one, or a number. The arrays are changed in place. The result is that of running the programs
    one after the other, the first axis of the grid counting fastest; up to `batch` programs run together where no two
    of them touch the same memory. `names` are the parameters' in messages. A loop that does not count may have
    `loop_limit` iterations. A kernel whose CTAs run several programs each has at most `persistent_ctas` CTAs.

    In `strict` mode a program must not depend on undefined elements (`marks`), its accesses of one element must have a
    barrier between them where a GPU needs one (`memory`), and its hints and assumptions must hold,
    and what code for GPUs takes for granted of indices (`axis_info`). If `tolerant`, a
    program reaches the whole memory that an array is a view of; outside of that it reads 0 and writes nothing, with a
    `ZigguratWarning`. A division by zero then gives a warning as well. If `detached`, it changes copies of the arrays,
    which stay as they are.

    Raises `LaunchError` when grid or arguments do not fit, `MemoryAccessError` for an access outside of the arrays,
    `KernelRuntimeError` for any other failure of a program; these with the location of the op. The programs before the
    failing one have done their work, those after it nothing. Raises `TimeoutError` after so many `seconds`.
    """
    launch = Launch.of(
        module, symbol, grid, arguments, names=names, strict=strict, tolerant=tolerant, limit=loop_limit,
        persistent_ctas=persistent_ctas, until=time.monotonic() + seconds,
    )  # fmt: skip
    if detached:
        launch.memory.detach()
    run_all(launch, 0, launch.programs, batch, in_turns=True)


def _taken_as_nonnegative(functions: Iterable[Op]) -> set[Value]:
    """The numbers that code for GPUs takes not to be negative, though these ops may give negative ones."""
    from ziggurat.transforms.analysis.axis_info import analyse

    facts = [fact for func in functions if isinstance(func, tt.Func) for fact in analyse(func).items()]
    classes = (arith.AddI, arith.MulI, arith.ShlI, arith.DivSI, arith.Cast, math_ops.AbsI)
    return {v for (v, _), i in facts if i.nonnegative and isinstance(v.op, classes)}


class _Watched(Machine):
    """A machine that shows the values of the program that it runs: `see(memory, value, content)`."""

    def __init__(self, see: See, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.see = see

    def bind(self, value: Value, content: Any) -> None:
        super().bind(value, content)
        if len(self.frame) <= self.ctas:  # Otherwise elements of a tensor, which a reduction combines.
            self.see(self.memory, value, content)


@keep_subnormals()
def watch(
    module: Op, grid: tuple[int, ...], arguments: Sequence[object], program: int,
    see: See, *, names: Sequence[str] | None = None, tolerant: bool = False,
    seconds: float = math.inf, undefined: bool = False,
) -> None:  # fmt: skip
    """Run one program of a launch alone, on copies of its arrays; `see` gets each value that it has.

    With `undefined`, for a Triton model, undefined elements of values are marked.

    The content of a number has the shape (CTAs of the program,), and that of a tensor the same axis before its own; an
    axis has size 1 where the value is the same along it. The memory says what pointers point to. Raises what `run`
    raises, and `TimeoutError` after so many seconds.
    """
    launch = Launch.of(
        module, None, grid, arguments, names=names, strict=False, tolerant=tolerant, limit=LOOP_LIMIT,
        persistent_ctas=math.prod(grid), kind=functools.partial(_Watched, see), until=time.monotonic() + seconds,
        undefined=undefined,
    )  # fmt: skip
    launch.memory.detach()
    run_some(launch.machine(), launch, program, program + 1)


@keep_subnormals()
def explained(
    failure: KernelRuntimeError, program: int, module: Op, grid: tuple[int, int, int], arguments: Sequence[object],
    names: Sequence[str],
) -> KernelRuntimeError:  # fmt: skip
    """The error of a compiled program's access, with the overflow that has led to it if there is one.

    The program runs once more, on copies of its arrays. The error stays as it is where they are very large, or where
    the program does not fail again at that place within a second.
    """
    try:
        launch = Launch.of(
            module, None, grid, arguments, names=names, strict=False, tolerant=False, limit=LOOP_LIMIT,
            persistent_ctas=PERSISTENT_CTAS,
        )  # fmt: skip
        if sum(region.high - region.low for region in launch.memory.regions) <= _MAX_COPIED:
            launch.memory.detach()
            machine = launch.machine(overflows=True, until=time.monotonic() + 1)
            run_some(machine, launch, program, program + 1)
    except MemoryAccessError as error:
        # The places as they are shown: passes leave their names in locations.
        return error if error.shown_places()[:1] == failure.shown_places() else failure
    except Exception:  # Whatever stops the program now, the error is the one that it had.
        pass
    return failure


@keep_subnormals()
def run_all(
    launch: Launch, start: int, total: int, batch: int | None = None, show: Callable[[str], None] = show,
    after: Callable[[], None] | None = None, in_turns: bool = False,
) -> None:  # fmt: skip
    """Run the programs `start` … `total` - 1 in batches; from the first batch whose programs depend on each other, one
    by one. `show` gets the texts that they print, and `after` is called after each batch.

    A program that fails is run once more, in its order and with a machine that looks for overflows: so the first
    failing program is named, and those before it have done their work. From the first program on that waits for a later
    one, they take turns if `in_turns`; otherwise it fails.
    """
    if batch is None:
        ops = (op for function in launch.functions.values() for op in function.walk())
        batch = BATCH_ELEMENTS // max(_numel(op.result.type) for op in ops)
    machine, batch = launch.machine(), 1 if launch.is_single else max(1, batch)
    while start < total:
        stop = min(start + batch, total)
        memory = machine.memory
        memory.record()
        machine.can_turn = in_turns and stop < total
        try:
            run_some(machine, launch, start, stop)
        except Conflict as conflict:
            memory.take_back()
            machine.printed.clear()
            batch = batch if conflict.again else 1
        except WaitsForLater:
            memory.take_back()
            run_in_turns(launch, start, total, show)
            return
        except KernelRuntimeError:
            if machine.overflows:
                flush(machine, show)
                raise
            memory.take_back()
            machine, batch = launch.machine(overflows=True), 1
        else:
            flush(machine, show)
            if after is not None:
                after()
            start = stop


def run_some(machine: Machine, launch: Launch, start: int, stop: int) -> None:
    """Run the programs `start` … `stop` - 1 of a launch together."""
    machine.begin(start, stop)
    with np.errstate(all="ignore"):
        machine.call(launch.kernel.bodies[0], launch.values)


def flush(machine: Machine, show: Callable[[str], None]) -> None:
    """Show what programs print in the order of the programs."""
    for _, text in sorted(machine.printed, key=lambda item: item[0]):
        show(text)
    machine.printed.clear()


def kernel_of(model: Op, symbol: str | None = None) -> tuple[Mapping[str, Op], Op]:
    """The functions of a model by name, and the one to run. Raises `LaunchError` for a model of another tier."""
    if isinstance(model, core.Module | cpu.Module | gpu.Module):
        functions_ = model.functions()
    else:
        functions_ = {str(model.attributes.get("sym_name", model.NAME)): model}
    demand(model, {"codemodel.scalars.MEANINGS": scalars.MEANINGS, "backend.reference.machine.triton": triton})
    for op in (op for function in functions_.values() for op in function.walk()):
        if type(op) not in triton and not isinstance(op, tt.Func):
            raise LaunchError(
                f"the model must be a Triton model, or one that its passes give; '{op.NAME}' is an op of another tier",
                op.location,
                hint="run the Triton model that it was made from, or for a Python model kernel.triton(types…)",
            )
    callees = {op.callee for function in functions_.values() for op in function.walk() if isinstance(op, tt.Call)}
    kernels = [name for name in functions_ if name not in callees] if symbol is None else [symbol]
    if len(kernels) > 1:  # A function whose calls were unused is left, and is no kernel if it has a result.
        kernels = [name for name in kernels if functions_[name].bodies[0].yield_type == void] or kernels
    if len(kernels) != 1:
        raise LaunchError(f"the model must have one function that no other calls; got {', '.join(kernels) or 'none'}")
    if kernels[0] not in functions_:
        raise LaunchError(f"the module has no function '{symbol}'; it has {', '.join(functions_) or 'none'}")
    return functions_, functions_[kernels[0]]


def _itself(array: Array) -> Array:
    return array


def _numel(type_: Type) -> int:
    if isinstance(type_, TupleType):
        return max(map(_numel, type_.components), default=1)
    if isinstance(type_, SharedType):
        return type_.numel * type_.count
    return type_.numel if isinstance(type_, TensorType) else 1
