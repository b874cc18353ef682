"""What of a model is needed: from the ops that must stay, backwards along what they use.

An op must stay when it has an effect. What counts as one is the **memory model** of the house:

* Global memory is read by `tt.load` and `tt.descriptor_load`, whose addresses are promised to be valid. So a read that
  is not volatile has no effect, and may go when its result is unused, with the error that an invalid address would have
  given.
* All writes, atomics, volatile reads, prints, assertions, assumptions and calls of functions that have effects stay, in
  their order.
* `var.store` has an effect only while the variable is loaded somewhere.
* A loop is as effective as its body, but must stay when it might not end or might fail: `scf.while`, an `scf.for` whose
  step is not a constant or is zero, and any body with more than one block.
* An op that leaves the function from within a body stays, and so does what it stands in.
"""

from __future__ import annotations

from collections.abc import Iterable

from ziggurat.codemodel.dialects import core, scf, tt
from ziggurat.codemodel.op import BlockParameter, Body, Op, OpResult, Value
from ziggurat.codemodel.traits import (
    BlockTerminator,
    BodyTerminator,
    Constant,
    MemoryRead,
    MemoryWrite,
    Pure,
    Returns,
    Symbol,
    SymbolTable,
)
from ziggurat.codemodel.types import void

# How the ops of a class come to stay: because another one needs them, because of their effect, or it depends.
_ON_USE, _VOLATILE_READ, _ASM, _EFFECT, _CALL, _WITH_OWNER, _STORE, _FOR, _IF, _COMPONENT = range(10)
_KINDS: dict[type[Op], int] = {}


def _kind_of(cls: type[Op]) -> int:
    if issubclass(cls, tt.Load):
        kind = _VOLATILE_READ
    elif issubclass(cls, core.TupleLoad):
        kind = _COMPONENT
    elif issubclass(cls, tt.InlineAsm):
        kind = _ASM
    elif issubclass(cls, core.VarStore):
        kind = _STORE
    elif issubclass(cls, scf.For):
        kind = _FOR
    elif issubclass(cls, scf.If):
        kind = _IF
    elif issubclass(cls, tt.Call):
        kind = _CALL
    elif issubclass(cls, BlockTerminator) or (
        issubclass(cls, BodyTerminator) and not issubclass(cls, Returns | core.Unreachable)
    ):
        kind = _WITH_OWNER
    elif issubclass(cls, Pure | core.Var | core.VarLoad | Symbol) or (
        issubclass(cls, MemoryRead) and not issubclass(cls, MemoryWrite)
    ):
        kind = _ON_USE
    else:
        kind = _EFFECT
    _KINDS[cls] = kind
    return kind


def callees(op: Op) -> tuple[str, ...]:
    """The symbol that an op refers to, if any."""
    return (op.callee,) if isinstance(op, tt.Call | core.FuncCall | core.FuncRef) else ()


def reachable_roots(module: SymbolTable) -> list[Op]:
    """The functions from which the others are reached.

    Those are the `tt.func`s that return nothing and the `func`s, as far as none calls them. A module without any is a
    library: then all its functions are.
    """
    functions = module.functions()
    if len(functions) == 1:
        return list(functions.values())
    called = {callee for function in functions.values() for inner in function.walk() for callee in callees(inner)}
    roots = [
        function
        for name, function in functions.items()
        if name not in called and (not isinstance(function, tt.Func) or function.body.yield_type == void)
    ]
    return roots or list(functions.values())


class Demand:
    """The ops and the loop-carried values of a model that are needed.

    `kept` holds the results of the ops that stay. `slots` holds, for the results of the `scf` ops that stay, which of
    their values are needed: by the result, or by an op inside the loop that is needed itself. A value that is only used
    to compute its own next value is not.

    With `structure` false, only single ops go: `scf` ops keep all their values, with the `tuple.load`s that take them
    apart, and modules all their functions.
    """

    __slots__ = ("_effective", "_functions", "_stack", "_stores", "kept", "slots", "structure")

    def __init__(self, root: Op, *, structure: bool = True) -> None:
        self.structure = structure
        self.kept: set[Value] = {root.result}
        self.slots: dict[Value, set[int]] = {}
        self._stack: list[Value] = []
        self._stores: dict[Value, list[Op]] = {}
        self._functions: dict[str, Op] = {}
        self._effective: dict[str, bool] = {}
        if isinstance(root, SymbolTable):
            self._functions = root.functions()
            self.kept.add(root.bodies[0].entry.terminator.result)
            for function in reachable_roots(root) if structure else self._functions.values():
                self._keep(function)
        else:
            self._keep_bodies(root)
        self._settle()

    def of(self, op: Op) -> list[int]:
        """The indices of the values of a kept `scf` op that are needed, in order."""
        return sorted(self.slots.get(op.result, ()))

    def _enter(self, bodies: Iterable[Body]) -> None:
        """Note what must stay in the bodies of an op, whether or not the op itself does."""
        for body in bodies:
            for block in body.blocks:
                for op in block.ops:
                    cls = op.__class__
                    kind = _KINDS.get(cls)
                    if kind is None:
                        kind = _kind_of(cls)
                    if kind == _ON_USE:
                        continue
                    if kind == _EFFECT:
                        self._keep_with_owners(op)
                    elif kind == _VOLATILE_READ:
                        if op.__dict__["volatile"]:
                            self._keep_with_owners(op)
                    elif kind == _STORE:
                        self._store(op)
                    elif kind in (_FOR, _IF):
                        if not self.structure or _may_not_end(op):
                            self._keep_with_owners(op)
                        else:
                            self._enter(op.bodies)
                    elif kind == _CALL:
                        if not self.structure or self._has_effects(op.__dict__["callee"]):
                            self._keep_with_owners(op)
                    elif kind == _COMPONENT:
                        if (
                            not self.structure
                            and isinstance(source := op.operands[0], OpResult)
                            and slot_count(source.op)
                        ):
                            self._keep_with_owners(op)
                    elif kind == _ASM and not op.__dict__["is_pure"]:
                        self._keep_with_owners(op)

    def _store(self, op: Op) -> None:
        variable = op.operands[0]
        if variable in self.kept or not isinstance(variable, OpResult):
            self._keep_with_owners(op)
        else:
            self._stores.setdefault(variable, []).append(op)

    def _keep_with_owners(self, op: Op) -> None:
        self._keep(op)
        owner = op.parent_op
        while owner is not None and owner.result not in self.kept:
            self._keep(owner)
            owner = owner.parent_op

    def _keep(self, op: Op) -> None:
        result = op.result
        if result in self.kept:
            return
        self.kept.add(result)
        stack = self._stack
        cls = op.__class__
        if cls is scf.For:
            stack.extend(op.operands[:3])
        elif cls is not scf.While:
            stack.extend(op.operands)
        for successor in op.successors:
            stack.extend(successor.arguments)
        if op.bodies:
            self._keep_bodies(op)
        elif cls is core.Var:
            for store in self._stores.get(result, ()):
                self._keep_with_owners(store)
        elif self._functions:
            for callee in callees(op):
                function = self._functions.get(callee)
                if function is not None:
                    self._keep(function)

    def _keep_bodies(self, op: Op) -> None:
        cls = op.__class__
        scfs = cls is scf.For or cls is scf.If or cls is scf.While
        if not scfs or cls is scf.While or not self.structure or _may_not_end(op):
            self._enter(op.bodies)  # The others are entered with the body they stand in.
        for body in op.bodies:
            for block in body.blocks:
                terminator = block.terminator
                if scfs and isinstance(terminator, scf.Yield | scf.Condition):
                    # Its values are needed as far as those of the op are.
                    self.kept.add(terminator.result)
                    if isinstance(terminator, scf.Condition):
                        self._stack.append(terminator.condition)
                else:
                    self._keep(terminator)
        if scfs and not self.structure:
            for index in range(slot_count(op)):
                self._need_slot(op, index)

    def _need_slot(self, op: Op, index: int) -> None:
        needed = self.slots.setdefault(op.result, set())
        if index in needed:
            return
        needed.add(index)
        self._keep(op)
        if isinstance(op, scf.For | scf.While):
            self._stack.append(op.initial[index])
        for body in op.bodies:
            for block in body.blocks:
                terminator = block.terminator
                if isinstance(terminator, scf.Yield | scf.Condition):
                    self._stack.append(terminator.values[index])

    def _settle(self) -> None:
        stack, kept = self._stack, self.kept
        while stack:
            value = stack.pop()
            if value in kept:
                # A kept op was entered when it was kept; but only a use of an `scf` op as a whole needs all its values.
                if isinstance(value, OpResult) and value.op.bodies:
                    self._need_whole(value.op)
            elif isinstance(value, OpResult):
                op = value.op
                if op.__class__ is core.TupleLoad:
                    source = op.operands[0]
                    if isinstance(source, OpResult) and source.op.bodies and slot_count(source.op) > 1:
                        kept.add(value)
                        self._need_slot(source.op, op.__dict__["index"])
                        continue
                if op.bodies:
                    self._need_whole(op)
                self._keep(op)
            else:
                assert isinstance(value, BlockParameter)
                kept.add(value)
                body = value.block.parent
                owner = body.parent
                if value.block is body.blocks[0]:
                    if isinstance(owner, scf.For):
                        if value.index > 0:
                            self._need_slot(owner, value.index - 1)
                    elif isinstance(owner, scf.While):
                        self._need_slot(owner, value.index)

    def _need_whole(self, op: Op) -> None:
        for index in range(slot_count(op)):
            self._need_slot(op, index)

    def _has_effects(self, symbol: str) -> bool:
        """Whether calling a function does more than give its result. A recursive or unknown one may do anything."""
        known = self._effective.get(symbol)
        if known is None:
            self._effective[symbol] = True
            function = self._functions.get(symbol)
            known = (
                function is None
                or _branches(function)
                or any(self._effective_op(op) for body in function.bodies for op in body.walk())
            )
            self._effective[symbol] = known
        return known

    def _effective_op(self, op: Op) -> bool:
        kind = _KINDS.get(op.__class__)
        if kind is None:
            kind = _kind_of(op.__class__)
        if kind == _EFFECT:
            return not isinstance(op, Returns)
        if kind == _CALL:
            return self._has_effects(op.__dict__["callee"])
        if kind == _VOLATILE_READ:
            return op.__dict__["volatile"]
        if kind == _ASM:
            return not op.__dict__["is_pure"]
        return kind in (_FOR, _IF) and _may_not_end(op)


def slot_count(op: Op) -> int:
    """How many values an `scf` op gives; 0 of any other op."""
    if isinstance(op, scf.For | scf.While):
        return len(op.initial)
    if isinstance(op, scf.If):
        for body in op.bodies:
            for block in body.blocks:
                if isinstance(block.terminator, scf.Yield):
                    return len(block.terminator.values)
        return 0 if op.result.type == void else 1
    return 0


def _branches(op: Op) -> bool:
    return any(len(body.blocks) > 1 for body in op.bodies)


def _may_not_end(op: Op) -> bool:
    if _branches(op):
        return True
    if not isinstance(op, scf.For):
        return False
    step = op.step
    if not isinstance(step, OpResult) or not isinstance(step.op, Constant):
        return True
    value = step.op.attributes["value"]
    return type(value) is not int or value == 0
