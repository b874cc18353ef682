"""Fusion of two kernels: a value stays in registers in place of going through memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, core, tt
from ziggurat.codemodel.dominance import Dominance
from ziggurat.codemodel.errors import BuildError
from ziggurat.codemodel.op import BlockParameter, Op, OpResult, Value, require_argument, require_model
from ziggurat.codemodel.text.writer import summary
from ziggurat.codemodel.traits import MemoryRead, MemoryWrite
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.codemodel.types import DescriptorType, PtrType
from ziggurat.transforms.kit.dataflow import derived
from ziggurat.transforms.parameters import kernel_of, without_parameter
from ziggurat.transforms.simplify import cse, dce, fold, inline, inline_call


def joined(first: Op, second: Op, same: Mapping[int, int], name: str | None = None) -> core.Module:
    """A kernel that does what `first` does and then what `second` does, in one program.

    `same` maps parameters of `second` to those of `first` that get the same argument. The parameters are those of
    `first`, then the others of `second`. Helper functions are inlined. Raises `BuildError` when the types of two
    parameters that are the same differ, or when a kernel returns early.
    """
    _require_numbers(same, "joined: 'same' must map numbers of parameters of the second kernel to those of the first")
    for model in (first, second):
        require_model(model, "joined")
    kernels = [kernel_of(inline(model)) for model in (first, second)]
    before, after = (kernel.body.parameters for kernel in kernels)
    for mine, theirs in same.items():
        if not (0 <= mine < len(after) and 0 <= theirs < len(before)) or after[mine].type != before[theirs].type:
            raise BuildError(
                f"parameter {mine} of '{kernels[1].sym_name}' cannot be parameter {theirs} of '{kernels[0].sym_name}': "
                "there must be two such parameters of one type"
            )
    own = [index for index in range(len(after)) if index not in same]
    builder = Builder.root([*(p.type for p in before), *(after[index].type for index in own)])
    parameters = builder.parameters
    inline_call(builder, kernels[0], parameters[: len(before)], location=None)
    further = dict(zip(own, parameters[len(before) :], strict=True))
    arguments = [further[index] if index in further else parameters[same[index]] for index in range(len(after))]
    inline_call(builder, kernels[1], arguments, location=None)
    builder.add(tt.Return([]))
    divisibility = _divisibility(kernels[0], kernels[1], same, own)
    function = tt.Func(
        name or f"{kernels[0].sym_name}_{kernels[1].sym_name}", builder.finish(), divisibility=divisibility
    )
    outside = Builder.root()
    outside.add(function, kernels[0].location)
    outside.add(core.Unreachable())
    return core.Module(outside.finish())


def fuse(
    producer: Op,
    consumer: Op,
    through: tuple[int, int],
    same: Mapping[int, int] | None = None,
    *,
    keep: bool = False,
    name: str | None = None,
) -> Op:
    """One kernel for two: `consumer` uses the values that `producer` stores, in place of loading them.

        kit.fuse(scale, shift, through=(1, 0), same={2: 2})

    `through` is the number of the parameter that the producer stores to, and of the one that the consumer loads from.
    `same` is that of `joined`. Each load must read exactly what a store before it has written: the same offsets under
    the same mask. That is checked, after common subexpressions are merged. Both kernels are launched on one grid, and
    other arrays must not overlap the one in between. With `keep`, the values are still stored, and the parameter stays.

    Neither kernel may store to another array that both use: a program would read what other programs have stored, or
    have not stored yet.

    The producer must not load from the array in between, and the consumer not store to it: a kernel that works in place
    cannot be fused there. Raises `BuildError`, with the place of the access, for these, and when offsets or masks do
    not match.
    """
    require_argument(
        through, _is_pair(through), "fuse: 'through' must be the numbers of two parameters, such as (1, 0)"
    )
    same = {} if same is None else same
    _require_numbers(same, "fuse: 'same' must map numbers of parameters of the consumer to those of the producer")
    for model in (producer, consumer):
        require_model(model, "fuse")
    writes, reads = through
    producer, consumer = inline(producer), inline(consumer)
    for mine, theirs in same.items():
        if (mine == reads) != (theirs == writes):
            raise BuildError(f"fuse: 'same' must agree with 'through', ({writes}, {reads}); got {{{mine}: {theirs}}}")
        if mine != reads:
            _demand_no_hand_over(producer, theirs, consumer, mine)
    _demand_one_way(producer, writes, tt.Load, "load from the parameter that it stores to")
    _demand_one_way(consumer, reads, tt.Store, "store to the parameter that it loads from")
    model = cse(fold(joined(producer, consumer, {**same, reads: writes}, name)))
    kernel = kernel_of(model)
    between = kernel.body.parameters[writes]
    accesses = _accesses(between)
    stores = [op for op in accesses if isinstance(op, tt.Store)]
    loads = [op for op in accesses if isinstance(op, tt.Load)]
    if not stores or not loads:
        raise BuildError("cannot fuse: the producer must store to the parameter, and the consumer load from it")
    dominance = Dominance()
    sources: dict[Op, tuple[tt.Load, tt.Store]] = {load: (load, _source(load, stores, dominance)) for load in loads}
    removed: set[Op] = set() if keep else {*stores}

    def fused(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if op in removed:
            return DROP
        if op not in sources:
            return None
        load, store = sources[op]
        value = builder[store.value]
        if load.other is not None and load.mask is not None:
            return builder.add(arith.Select(builder[load.mask], value, builder[load.other]))
        return value

    model = dce(transform(model, fused, pass_name="fuse"))
    return model if keep else without_parameter(model, writes)


def _require_numbers(same: Any, what: str) -> None:
    """Raise `KernelTypeError` unless an argument maps numbers to numbers."""
    require_argument(same, Mapping, what)
    for number in (*same, *same.values()):
        require_argument(number, int, what)


def _is_pair(thing: Any) -> bool:
    return isinstance(thing, tuple) and list(map(type, thing)) == [int, int]  # pyright: ignore[reportUnknownArgumentType]


def _demand_one_way(model: Op, number: int, refused: type[tt.Load | tt.Store], problem: str) -> None:
    """Raise `BuildError` at an access by which a kernel works in place."""
    kernel = kernel_of(model)
    for access in _accesses(kernel.body.parameters[number]) if number in range(len(kernel.body.parameters)) else ():
        if isinstance(access, refused):
            raise BuildError(
                f"cannot fuse: '{kernel.sym_name}' must not {problem}, number {number}",
                access.location,
                hint="give the result an array of its own, or use kit.joined, which keeps all loads and stores",
            )


def _demand_no_hand_over(producer: Op, theirs: int, consumer: Op, mine: int) -> None:
    """Raise `BuildError` when one kernel stores to a shared parameter that the other uses."""
    users: list[list[Op]] = []
    for model, number in ((producer, theirs), (consumer, mine)):
        parameters = kernel_of(model).body.parameters
        memory = number in range(len(parameters)) and isinstance(parameters[number].type, PtrType | DescriptorType)
        users.append(_memory_ops(parameters[number]) if memory else [])
    stores = [op for op in (*users[0], *users[1]) if isinstance(op, MemoryWrite)]
    if all(users) and stores:
        raise BuildError(
            f"cannot fuse: both kernels use parameter {theirs} of the producer, and one stores to it",
            stores[0].location,
            hint="launch the kernels one after the other, or give the result an array of its own",
        )


def _memory_ops(parameter: BlockParameter) -> list[Op]:
    """The ops that access memory through a parameter."""
    pointers = set(derived(parameter, lambda op: not isinstance(op, MemoryRead)))
    return [
        op
        for op in parameter.block.parent.walk()
        if op.operands and op.operands[0] in pointers and isinstance(op, MemoryRead | MemoryWrite)
    ]


def _accesses(between: BlockParameter) -> list[tt.Store | tt.Load]:
    """The stores and loads through a pointer parameter. Raises `BuildError` for any other use in memory."""
    accesses: list[tt.Store | tt.Load] = []
    for op in _memory_ops(between):
        if not isinstance(op, tt.Store | tt.Load):
            raise BuildError(f"cannot fuse through {op.NAME}: only tt.store and tt.load can be fused", op.location)
        accesses.append(op)
    return accesses


def _source(load: tt.Load, stores: list[tt.Store], dominance: Dominance) -> tt.Store:
    """The store whose value a load reads."""
    matching = [store for store in stores if store.ptr is load.ptr]
    for store in matching or stores:
        if not dominance.dominates(store.result, load):
            raise BuildError(
                f"cannot fuse: a store must come before {summary(load)} on every path; this one is in a branch",
                store.location,
                hint="store outside of branches and loops, under a mask",
            )
    if not matching:
        raise BuildError(
            f"cannot fuse: {summary(load)} reads other offsets than are stored: {_computed(load.ptr)} against "
            f"{', '.join(_computed(store.ptr) for store in stores)}",
            load.location,
            hint="compute the offsets alike in both kernels, from parameters that `same` says are equal",
        )
    if len(matching) > 1:
        raise BuildError(f"cannot fuse: {len(matching)} stores write what {summary(load)} reads", load.location)
    store = matching[0]
    if store.mask is not load.mask:
        raise BuildError(
            f"cannot fuse: {summary(load)} reads under another mask than is stored: {_computed(load.mask)} against "
            f"{_computed(store.mask)}",
            load.location,
        )
    return store


def _computed(value: Value | None) -> str:
    """The ops that compute a value, for messages."""
    if value is None:
        return "none"
    return summary(value.op) if isinstance(value, OpResult) else repr(value)


def _divisibility(first: tt.Func, second: tt.Func, same: Mapping[int, int], own: list[int]) -> tuple[int, ...]:
    """The known divisors of the parameters of two joined kernels; the larger one for a shared parameter."""
    if not first.divisibility and not second.divisibility:
        return ()
    before = list(first.divisibility or (1,) * len(first.body.parameters))
    after = second.divisibility or (1,) * len(second.body.parameters)
    for mine, theirs in same.items():
        before[theirs] = max(before[theirs], after[mine])
    return (*before, *(after[index] for index in own))
