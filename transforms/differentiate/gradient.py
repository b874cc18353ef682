"""The gradient of a kernel: the kernel that computes the gradients of arrays it reads from those of arrays it writes.

    model = kernel.triton(…)                     # out[i] = x[i] · w[i]
    differentiate(model, of=[2], wrt=[0])        # d_x[i] += d_out[i] · w[i]

The steps: helper functions are inlined and the kernel simplified; each array of `of` and `wrt` gets its gradient
(`arrays`); the values that have an adjoint are found; the new kernel computes the values of the old one, as far as the
adjoints need them, and then the adjoints, the last op first (`adjoint`, and a file of rules for each kind of op).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, core, tt
from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.codemodel.graphs import inverse, reached
from ziggurat.codemodel.op import Op, Value, expect
from ziggurat.codemodel.traits import MemoryRead, MemoryWrite, Returns
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.codemodel.types import DescriptorType, PtrType, Type, scalar_element, void
from ziggurat.transforms.differentiate import (
    control,
    elementwise,
    functions,
    memory,
    reductions,
    shapes,
    undifferentiated,
)
from ziggurat.transforms.differentiate.adjoint import PASS, GradientPlan, Reverse, no_gradient
from ziggurat.transforms.differentiate.arrays import Arrays, accesses, arrays_of, with_gradients
from ziggurat.transforms.differentiate.functions import known_function
from ziggurat.transforms.differentiate.one_to_one import plain_stores
from ziggurat.transforms.differentiate.scaling import scaled
from ziggurat.transforms.differentiate.undifferentiated import is_constant
from ziggurat.transforms.kit.dataflow import Node, flow, nodes
from ziggurat.transforms.parameters import kernel_of
from ziggurat.transforms.simplify import simplify

# Ops of the kernel that its gradient leaves out.
_DROPPED = (tt.Print, tt.Assert, tt.Barrier, tt.GridDependencyWait, tt.GridDependencyLaunch)

RULES = (control, elementwise, functions, memory, reductions, shapes, undifferentiated)  # They fill the table.


def differentiate(model: Op, of: Sequence[int], wrt: Sequence[int], names: Sequence[str] | None = None) -> core.Module:
    """The gradient of the kernel of a Triton model; `of` and `wrt` are numbers of its parameters.

    The kernel that is returned has these parameters, and after each of `of` and `wrt` the gradient of it, of the same
    type. It reads the gradients of the arrays of `of`, and adds to those of `wrt`, or stores there: see `accumulates`.
    It writes nothing else. `names` are the parameters' in messages.

    Raises `KernelTypeError` at the place in the kernel that has no gradient, and for parameters that do not fit.
    """
    forward = _Forward(model, of, wrt, names)
    simplified = expect(simplify(forward.reversed()), core.Module)
    forward.check_reads(simplified)
    return simplified


def accumulates(model: Op, of: Sequence[int], wrt: Sequence[int]) -> dict[int, bool]:
    """Whether the gradient kernel adds to the gradient of each array of `wrt`, by the array's number.

    A gradient that is added to must be zero before the launch. Any other gradient is stored to: the gradient kernel
    writes each element of it that belongs to an element which the kernel reads.
    """
    plan = _Forward(model, of, wrt, None).plan
    numbers = {number for read in plan.plain for number in plan.wrt[read].arrays}
    return {number: number not in numbers for number in wrt}


class _Forward:
    """The kernel to differentiate, and the facts about it that the reverse sweep needs."""

    def __init__(self, model: Op, of: Sequence[int], wrt: Sequence[int], names: Sequence[str] | None) -> None:
        self.model = model
        self.kernel, self.functions = _prepared(model)
        self.of, self.wrt, self.names = tuple(of), tuple(wrt), names
        parameters = self.kernel.body.parameters
        self.numbers_written = self._touched(lambda op: isinstance(op, MemoryWrite))
        self.read = self._touched(lambda op: not isinstance(op, MemoryWrite))
        for group, numbers, touched, other in (
            ("of", of, self.numbers_written, self.read),
            ("wrt", wrt, self.read, self.numbers_written),
        ):
            does, only = ("writes", "reads") if group == "of" else ("reads", "writes")
            for number in numbers:
                type_ = parameters[number].type
                self._require(_is_float_array(type_), number, f"must be an array of floats; got {type_}")
                self._require(number in touched, number, f"in '{group}' must be an array that the kernel {does}")
                self._require(number not in other, number, f"in '{group}' must not be an array that the kernel {only}")
        self.arrays = with_gradients(scaled(self.kernel, self._is_of), of, wrt)
        self.plan = _plan(self.arrays)

    def _is_of(self, op: Op) -> bool:
        return isinstance(op, MemoryWrite) and any(number in self.of for number in arrays_of(op))

    def name(self, number: int) -> str:
        """A parameter in messages."""
        return f"parameter {number}" if self.names is None else f"'{self.names[number]}'"

    def _require(self, holds: bool, number: int, what: str) -> None:
        if not holds:
            raise KernelTypeError(f"{self.name(number)} {what}", self.kernel.location)

    def _touched(self, predicate: Callable[[Op], bool]) -> set[int]:
        """The numbers of the arrays of the chosen accesses, before simplification, which removes some."""
        return {number for op in accesses(self.model) if predicate(op) for number in arrays_of(op)}

    def reversed(self) -> core.Module:
        """The module of the gradient kernel, not simplified yet."""
        kernel = self.arrays.kernel
        outside = Rewriter.over(Builder.root(), (_without_effects,), PASS)
        inner = outside.replacing(kernel.body, void)
        ops = kernel.body.entry.ops[:-1]
        inner.rewrite_ops(ops)
        Reverse(inner, self.plan).sweep(ops)
        inner.add(tt.Return(()), kernel.location)
        for function in self.functions:
            outside.add(function.evolve(body=outside.rewrite_body(function.body, isolated=True)), function.location)
        outside.add(tt.Func(kernel.sym_name, inner.finish(), divisibility=kernel.divisibility), kernel.location)
        outside.add(core.Unreachable())
        return core.Module(outside.finish())

    def check_reads(self, gradient: core.Module) -> None:
        """Raise `KernelTypeError` where the gradient kernel reads what the kernel has written before."""
        names = {*self.of, *self.wrt}
        shift = [number + sum(other < number for other in names) for number in range(len(self.kernel.body.parameters))]
        changed = {shift[number]: number for number in self.numbers_written}
        for op in accesses(kernel_of(gradient)):
            for number in arrays_of(op):
                if isinstance(op, MemoryRead) and number in changed:
                    raise KernelTypeError(
                        f"{self.name(changed[number])} must not change while the gradient needs its contents; the "
                        "kernel writes it",
                        op.location,
                        hint="write to another array",
                    )


def _is_float_array(type_: Type) -> bool:
    element = (
        type_.pointee if isinstance(type_, PtrType) else type_.element if isinstance(type_, DescriptorType) else None
    )
    return element is not None and element.is_float


def _prepared(model: Op) -> tuple[tt.Func, list[tt.Func]]:
    """The kernel of a Triton model, simplified, and the functions of the library that it calls; others are inlined."""
    kernels: dict[str, tt.Func] = {}

    def inlinable(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if isinstance(op, tt.Func):
            is_kept = known_function(op) is not None
            if is_kept:
                kernels[op.sym_name] = op
            body = builder.rewrite_body(op.body, isolated=True)
            return builder.add(op.evolve(body=body, noinline=is_kept), op.location)
        return DROP if isinstance(op, _DROPPED) else None

    kernel_of(model)
    module = simplify(transform(model, inlinable))
    kernel = kernel_of(module)
    for op in kernel.walk():
        if isinstance(op, tt.Call) and op.callee not in kernels:
            raise no_gradient(op, f"'{op.callee}' cannot be inlined")
        returns = isinstance(op, Returns) and op.parent_op is not kernel
        if returns or op.jumps:
            raise no_gradient(op, "its control flow is not structured", "use scf.if, and scf.for without an early exit")
    callees = {op.callee for op in module.walk() if isinstance(op, tt.Call)}
    # What the functions call is kept with them.
    functions = module.functions().values() if isinstance(module, core.Module) else ()
    return kernel, [op for op in functions if isinstance(op, tt.Func) and op.sym_name in callees]


def _plan(arrays: Arrays) -> GradientPlan:
    kernel = arrays.kernel
    edges = flow(kernel, lambda op: not is_constant(op) and op.result not in arrays.free)
    for op in kernel.walk():
        if isinstance(op, tt.Call):
            for argument in op.arguments:
                edges.setdefault((argument, 0), []).extend(nodes(op.result))
    redirected: dict[Node, Node | None] = {}
    for before, (after, place) in arrays.fixed.items():
        for old, new in zip(nodes(before), nodes(after), strict=True):
            redirected[old] = new if old[1] != place else None
            following = edges.pop(old, [])
            if old[1] != place:
                edges.setdefault(new, []).extend(following)
    back = inverse(edges)
    reads = [node for op in arrays.wrt for node in nodes(op.result)]
    written_nodes = [node for op in arrays.of for node in nodes(op.operands[1])]
    active = reached(reads, lambda node: edges.get(node, ()))
    carrying = active & reached(written_nodes, lambda node: back.get(node, ()))
    return GradientPlan(arrays.of, arrays.wrt, frozenset(carrying), plain_stores(arrays), redirected)


def _without_effects(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
    """The ops of the kernel as the gradient kernel repeats them: without effects, and without undefined elements.

    The adjoint of an element that a mask leaves out is zero, but zero times an undefined number need not be.
    """
    if isinstance(op, tt.Load) and op.mask is not None and op.other is None:
        zero = builder.add(arith.ConstantOp(scalar_element(op.result.type).zero, op.result.type))
        return builder.add(tt.Load(operands[0], operands[1], zero, cache=op.cache, eviction=op.eviction), op.location)
    if isinstance(op, tt.Reshape) and op.allow_reorder:
        return builder.add(tt.Reshape(operands[0], op.type), op.location)
    if isinstance(op, MemoryWrite):
        if op.result.uses:
            raise KernelTypeError(
                f"{op.NAME} has no gradient: its result depends on the order of the programs", op.location
            )
        return DROP
    return None
