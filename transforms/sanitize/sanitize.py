"""Sanitising a kernel: a transform of the Triton model that adds checks, which report to a further parameter.

    sanitized = sanitize(kernel.triton(…), ("races", "bounds"))
    print(sanitized.model)

The calls of the kernel are inlined first. Every access of memory is followed by name of the array that it is to
(`accesses`), and values that may be undefined, overflowed, NaN or infinite have marks beside them (`marks`). Loops,
branches and blocks carry the marks of the values that they carry.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, cf, core, scf, tt
from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.codemodel.op import Block, Body, Op, Successor, Value, expect
from ziggurat.codemodel.structured import Structured, packed
from ziggurat.codemodel.traits import BlockTerminator
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.codemodel.types import (
    PtrType,
    Type,
    component_types,
    i32,
    i64,
    shape_of,
    shaped,
    void,
)
from ziggurat.frontends.library import sanitizing
from ziggurat.transforms.parameters import kernel_of
from ziggurat.transforms.sanitize import marks
from ziggurat.transforms.sanitize.access_checks import AccessChecks
from ziggurat.transforms.sanitize.accesses import (
    ATOMICS,
    DESCRIBED,
    LOADS,
    STORES,
    Accesses,
    Elements,
    accesses_of,
    is_access,
)
from ziggurat.transforms.sanitize.code import Checks, Code, Library
from ziggurat.transforms.sanitize.marks import Stream
from ziggurat.transforms.sanitize.records import CHECKS, NO_ELEMENT, Sanitized
from ziggurat.transforms.simplify.dce import remove_unused
from ziggurat.transforms.simplify.inline import inline
from ziggurat.transforms.simplify.lower_waits import lower_waits

PASS = "sanitize"
_VERBS: dict[type[Op], tuple[str, str, str]] = {
    # The access, a use in its address, and in its mask.
    tt.Load: ("reads", "reads at", "masks a load by"), tt.Store: ("writes", "writes at", "masks a store by"),
}  # fmt: skip
_ATOMIC = ("updates", "updates memory at", "masks an atomic by")


def sanitize(
    model: Op, checks: Sequence[str] = CHECKS, groups: Iterable[Sequence[int]] = (), unwritten: Collection[int] = ()
) -> Sanitized:
    """The kernel of a Triton model with checks, `checks` of `CHECKS`; see `Sanitized`.

    `groups` has the numbers of parameters whose arrays may share memory, and `unwritten` those of arrays whose elements
    are undefined until the launch writes them. The kernel's last parameter is the memory of a launch, `ptr<i64>`.
    Raises `KernelTypeError` for a kernel with a recursive function.
    """
    kernel = _inlined(model)
    names = tuple(name for name in CHECKS if name in checks)
    unwritten = unwritten if "undefined" in names else ()
    return _Sanitizing(kernel, names, accesses_of(kernel, groups, races="races" in names, unwritten=unwritten)).run()


def _inlined(model: Op) -> tt.Func:
    """The kernel of a model, with the functions that it calls in their places."""
    own = kernel_of(model)

    def inlinable(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if isinstance(op, tt.Func) and op.noinline and op is not own:
            return builder.add(
                op.evolve(body=builder.rewrite_body(op.body, isolated=True), noinline=False), op.location
            )
        return None

    kernel = kernel_of(inline(lower_waits(transform(model, inlinable))))
    for op in kernel.walk():
        if isinstance(op, tt.Call):
            hint = "write the function without recursion, and with its returns at the ends of its paths"
            raise KernelTypeError(f"a kernel that calls '{op.callee}' cannot be sanitized", op.location, hint)
    return kernel


class _Sanitizing:
    """The transformer."""

    def __init__(self, kernel: tt.Func, names: Collection[str], accesses: Accesses) -> None:
        self.kernel, self.names, self.accesses = kernel, tuple(names), accesses
        self.library = Library()
        self.checks = Checks(self.names, len(accesses.arrays))
        self.access_checks = AccessChecks(accesses, self.checks)
        self.inner = {
            op for around in kernel.walk() if isinstance(around, tt.Combining | tt.MapElementwise)
            for op in around.walk() if op is not around
        }  # fmt: skip
        ops = [op for op in kernel.walk() if op not in self.inner]
        dependent = [op.result for op in ops if self._is_source(op)]
        floats = [op.result for op in ops if "nan" in self.names and marks.becomes_infinite(op)]
        self.dependence = Stream(kernel, dependent, marks.follows)
        self.floats = Stream(kernel, floats, marks.follows_float)
        self.streams = (self.dependence, self.floats)

    def _is_source(self, op: Op) -> bool:
        """Whether an op makes elements that are undefined or overflow."""
        if "overflow" in self.names and marks.overflows(op):
            return True
        if "undefined" not in self.names:
            return False
        left_out = isinstance(op, tt.Load) and op.mask is not None and op.other is None
        return left_out or isinstance(op, tt.Poison) or (isinstance(op, tt.AtomicRMW) and op.mask is not None)

    def run(self) -> Sanitized:
        """The sanitized kernel."""
        kernel = self.kernel
        outside = Rewriter.over(Builder.root(), (self,), PASS)
        types = [p.type for p in kernel.body.parameters]
        inner = outside.inside([*types, PtrType(i64)], void, isolated=True)
        inner.location = kernel.location
        inner.mapping.values.update(zip(kernel.body.parameters, inner.parameters, strict=False))
        self.checks.memory = inner.parameters[-1]
        self.access_checks.read_facts(Code(inner, self.library), inner.parameters)
        self._rewrite_blocks(inner, kernel.body)
        plain = Rewriter.over(Builder.root())
        for function in self.library.functions.values():
            plain.add(function.evolve(body=plain.rewrite_body(function.body, isolated=True)), function.location)
        divisibility = (*kernel.divisibility, 16) if kernel.divisibility else ()
        name = f"{kernel.sym_name}_sanitized"
        plain.add(kernel.evolve(sym_name=name, body=inner.finish(), divisibility=divisibility), kernel.location)
        plain.add(core.Unreachable())
        arrays = tuple(self.accesses.arrays.values())
        orders = any(tables.time for tables in self.accesses.tables.values())
        model = expect(remove_unused(core.Module(plain.finish())), core.Module)
        return Sanitized(model, self.names, tuple(self.checks.entries), arrays, orders)

    def _rewrite_blocks(self, builder: Rewriter, body: Body) -> None:
        """The blocks of the kernel; those after the first take the marks of their parameters as well."""
        for block in body.blocks[1:]:
            extra = self._carried(block)
            new = builder.new_block([*(p.type for p in block.parameters), *(marks_type(p.type) for _, p in extra)])
            builder.mapping.blocks[block] = new
            builder.mapping.values.update(zip(block.parameters, new.parameters, strict=False))
            for (stream, parameter), mark in zip(extra, new.parameters[len(block.parameters) :], strict=True):
                stream.note(builder[parameter], mark)
        for block in body.blocks:
            if block is not body.entry:
                builder.move_to(builder.mapping.blocks[block])
            builder.rewrite_ops(block.ops)

    def _carried(self, block: Block) -> list[tuple[Stream, Value]]:
        """The parameters of a block that have marks, by stream."""
        return [(stream, p) for stream in self.streams for p in block.parameters if stream.reaches(p)]

    def __call__(self, builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if op in self.inner:
            return None
        code = Code(builder, self.library)
        if isinstance(op, Structured):
            return self._structured(code, builder, op, operands)
        if isinstance(op, BlockTerminator):
            return self._branch(code, builder, op, operands)
        if isinstance(op, scf.Condition):
            self._use(code, op, operands[0], None, "goes on by")
            return None
        if is_access(op) and op in self.accesses.parameters:
            return self._access(code, builder, op, operands)
        if isinstance(op, tt.MakeTensorDescriptor):
            for value in operands:
                self._use(code, op, value, None, "describes a tensor by")
        if isinstance(op, tt.Assert | cf.AssertOp):
            self._use(code, op, operands[0], None, "asserts")
        copy = builder.copy(op, operands)
        if isinstance(op, tt.MakeTensorDescriptor):
            self.access_checks.bases[copy] = operands[0]
        elif isinstance(op, tt.DescriptorPadding):
            self.access_checks.bases[copy] = self.access_checks.bases.get(operands[0])
        self._mark(code, op, operands, copy)
        return copy

    # Marks.

    def _mark(self, code: Code, op: Op, operands: tuple[Value, ...], result: Value) -> None:
        """Add the marks of the result of an op that does not access memory."""
        for stream in self.streams:
            if op.result.type == void or not stream.reaches(op.result):
                continue
            several = marks.moved(code, op, operands, stream)
            if several is None and stream is self.floats:
                source = self._source("nan", op, "") if marks.becomes_infinite(op) else None
                several = marks.computed(code, op, operands, result, stream, source)
            elif several is None and isinstance(op, tt.Poison):
                source = self._source("undefined", op, "the variable has no value on this path")
                several = [code.constant(source, marks_type(type_)) for type_ in component_types(result.type)]
            elif several is None:
                several = marks.dependent(code, op, operands, result, stream)
                if "overflow" in self.names and marks.overflows(op):
                    own = marks.overflowed(
                        code, op, operands, result, self._source("overflow", op, marks.overflow_reason(op))
                    )
                    several = [code.joined(several[0], own)]
            for component, mark in enumerate(several):
                stream.note(result, mark, component)

    def _source(self, kind: str, op: Op, reason: str, parameter: int | None = None) -> int:
        """A source of marks; the mark."""
        return self.checks.add(kind, op, reason, parameter) + 1

    def _use(
        self, code: Code, op: Op, value: Value, mask: Value | None, verb: str, elements: Sequence[Elements] = (),
        stream: Stream | None = None, parameter: int | None = None,
    ) -> None:  # fmt: skip
        """Report the marked elements of a value on which the program depends, where the mask holds: those stored to
        elements of arrays, or those that steer an access to the array of a parameter."""
        mark = (stream or self.dependence).of(value)
        if mark is None:
            return
        bad = code.marked(mark)
        shape = shape_of(mark.type)
        where = bad if mask is None else code.both(code.fitted(mask, shape), bad)
        lanes = [(parameter, code.constant(NO_ELEMENT, i64), where)]
        if elements:
            lanes = [(part.parameter, part.distance, code.both(bad, part.mask)) for part in elements]
        for array, element, lane in lanes:
            place = self.checks.place(code, self.checks.add("", op, verb, array))
            code.call_check(sanitizing.sanitize_report, self.checks.memory, place, lane, element, code.wide(mark))

    # Control flow.

    def _structured(self, code: Code, builder: Rewriter, op: Structured, operands: tuple[Value, ...]) -> Value | None:
        for control in operands[: op.CONTROLS]:
            self._use(code, op, control, None, "branches on" if isinstance(op, scf.If) else "counts by")
        count = len(op.value_types)
        extra = [(stream, i) for stream in self.streams for i in range(count) if self._carries(stream, op, i)]
        if not extra and not isinstance(op, scf.While):
            return None
        inits = operands[op.CONTROLS :]
        first = [self._marks_or_none(code, stream, inits[i]) for stream, i in extra] if inits else []
        types = [*op.value_types, *(marks_type(op.value_types[i]) for _, i in extra)]
        bodies: list[Body] = []
        start = len(self.checks.entries)
        for body in reversed(op.bodies):  # The condition of a loop comes last: it looks at all checks of the loop.
            leading = [p.type for p in body.parameters[: op.LEADING]]
            inner = builder.inside([*leading, *types] if inits else (), packed(types))
            inner.mapping.values.update(zip(body.parameters, inner.parameters, strict=False))
            for (stream, i), mark in zip(extra, inner.parameters[op.LEADING + count :], strict=False):
                stream.note(inner.parameters[op.LEADING + i], mark)
            *ops, end = body.entry.ops
            inner.rewrite_ops(ops)
            self._end(Code(inner, self.library), inner, end, extra, start)
            bodies.insert(0, inner.finish())
        result = builder.add(op.SPEC.copy(op, (*operands, *first), (), bodies, packed(types)))
        if not extra:
            return result
        values = [builder.add(core.TupleLoad(result, i)) for i in range(len(types))]
        for (stream, i), mark in zip(extra, values[count:], strict=True):
            stream.note(values[i], mark)
        if count == 1:
            return values[0]
        whole = builder.add(core.MakeTuple(values[:count]))
        for stream, i in extra:
            stream.note(whole, stream.of(values[i]), i)
        return whole

    def _carries(self, stream: Stream, op: Structured, i: int) -> bool:
        """Whether a value that an op carries has marks."""
        arguments = [body.parameters[op.LEADING + i] for body in op.bodies] if op.inits else []
        return (op.result, i) in stream.nodes or any(map(stream.reaches, arguments))

    def _end(self, code: Code, builder: Rewriter, end: Op, extra: Sequence[tuple[Stream, int]], start: int) -> None:
        """The terminator of a body, which hands on the marks as well. Others leave the function.

        A `while` loop ends once one of its checks, those from `start` on, has reported a read outside of an array: such
        a read gives 0, and by that number the loop might never end.
        """
        if not isinstance(end, scf.Yield | scf.Condition):
            builder.rewrite(end)
            return
        values = [builder[value] for value in end.operands]
        if isinstance(end, scf.Condition):
            self._use(code, end, values[0], None, "goes on by")
            for number, check in enumerate(self.checks.entries[start:], start):
                if check.kind == "bounds" and issubclass(check.op, LOADS + ATOMICS):
                    place = self.checks.place(code, number)
                    values[0] = code.both(
                        values[0], code.call_check(sanitizing.sanitize_none, self.checks.memory, place)
                    )
        outgoing = values[len(end.operands) - len(end.handed) :]
        marked = [self._marks_or_none(code, stream, outgoing[i]) for stream, i in extra]
        builder.add(
            scf.Condition(values[0], [*outgoing, *marked])
            if isinstance(end, scf.Condition)
            else scf.Yield([*outgoing, *marked]),
            end.location,
        )

    def _marks_or_none(self, code: Code, stream: Stream, value: Value) -> Value:
        return stream.of(value) or code.constant(0, marks_type(value.type))

    def _branch(self, code: Code, builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if operands:
            self._use(code, op, operands[0], None, "branches on")
        successors: list[Successor] = []
        for successor in op.successors:
            values = [builder[value] for value in successor.arguments]
            numbers: dict[Value, int] = {p: place for place, p in enumerate(successor.block.parameters)}
            extra = [(stream, values[numbers[p]]) for stream, p in self._carried(successor.block)]
            marked = [self._marks_or_none(code, stream, value) for stream, value in extra]
            successors.append(Successor(builder.mapping.blocks[successor.block], [*values, *marked]))
        builder.add(op.SPEC.copy(op, operands, successors, (), op.result.type))
        return DROP

    # Accesses.

    def _access(self, code: Code, builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        has_descriptor = isinstance(op, DESCRIBED)
        verbs = _VERBS.get(type(op), _ATOMIC)
        mask = None if has_descriptor else _mask_of(op, operands)
        array = next(iter(self.accesses.parameters[op]), None)
        if mask is not None:
            self._use(code, op, mask, None, verbs[2], parameter=array)
        if has_descriptor:
            verb = "reads" if isinstance(op, LOADS) else "writes" if isinstance(op, STORES) else "updates"
            for value in operands[1 if isinstance(op, LOADS) else 2 :]:
                self._use(code, op, value, None, f"{verb} at", parameter=array)
            if operands[0] not in self.access_checks.bases:
                return None  # A descriptor that control flow has chosen: its address is not known.
        else:
            verb = verbs[0]
            self._use(code, op, operands[0], mask, verbs[1], parameter=array)
        elements, allowed = self.access_checks.elements(code, op, operands, mask, verb)
        values = () if isinstance(op, LOADS) else operands[1:3] if isinstance(op, tt.AtomicCAS) else operands[1:2]
        for value in values:
            verb_of_use = "stores" if isinstance(op, STORES) else "updates memory with"
            self._use(code, op, value, None, verb_of_use, elements)
            self._use(code, op, value, None, verb_of_use, elements, self.floats)
        self.access_checks.order(code, op, elements, before=True)
        self.access_checks.unwritten(code, op, elements, verb)
        numbers = self.access_checks.races(code, op, elements, values, verb)
        result = self.access_checks.made(code, builder, op, operands, mask, allowed)
        self.access_checks.order(code, op, elements, before=False)
        if isinstance(op, tt.Store) and "races" in self.names and shape_of(op.value.type):
            self.access_checks.lanes(code, op, operands, elements, numbers)
        self._mark_access(code, op, operands, mask, result)
        return result if result is not None and op.result.type != void else DROP

    def _mark_access(
        self, code: Code, op: Op, operands: tuple[Value, ...], mask: Value | None, result: Value | None
    ) -> None:
        """The marks of what a load or an atomic gives: the elements that its mask leaves out are undefined."""
        if result is None or mask is None or op.result.type == void:
            return
        if isinstance(op, tt.Load) and op.other is not None:
            for stream in self.streams:
                mark = stream.of(operands[2])
                if mark is not None:
                    stream.note(result, code.add(arith.Select(mask, code.no_marks(mark.type), mark)))
        elif "undefined" in self.names and self.dependence.reaches(op.result):
            loads = isinstance(op, tt.Load)
            what, why = ("load", "there is no other=") if loads else ("atomic", "it has no result there")
            numbers = self.accesses.parameters[op]
            reason = f"the mask of this {what}{{}} leaves it out, and {why}"
            source = self._source("undefined", op, reason, next(iter(numbers), None))
            self.dependence.note(
                result, code.call_check(sanitizing.sanitize_marks, code.opposite(mask), code.constant(source, i32))
            )


def _mask_of(op: Op, operands: tuple[Value, ...]) -> Value | None:
    if isinstance(op, tt.Load | tt.Store | tt.AtomicRMW) and op.mask is not None:
        return operands[1 if isinstance(op, tt.Load) else 2]
    return None


def marks_type(type_: Type) -> Type:
    """The type of the marks of a value."""
    return shaped(shape_of(type_), i32)
