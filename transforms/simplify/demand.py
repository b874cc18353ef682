"""The ops and carried values of a model that are needed: backwards from the ops that must stay.

Dead code elimination asks for that, and the division of a kernel among roles (`divide`), where other ops must stay.

An op must stay when it has an effect. The **memory model** says what counts as one:

* Global memory is read by `tt.load` and `tt.descriptor_load`, whose addresses are promised to be valid. So a read that
  is not volatile has no effect, and may go when its result is unused, with the error that an invalid address would have
  given.
* All writes, atomics, volatile reads, prints, assertions, assumptions and calls of functions that have effects stay, in
  their order.
* `var.store` has an effect only while the variable is loaded somewhere.
* A loop must stay when an op of its body must, or when the loop might not end or might fail: an `scf.while`, an
  `scf.for` whose step is not a constant or is zero, and any loop with more than one block.
* An op that leaves the function from within a body stays, and so does the op it stands in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ziggurat.codemodel import traits
from ziggurat.codemodel.dialects import core, scf, tt
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.op import BlockParameter, Body, Op, OpResult, Value, expect
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.types import void
from ziggurat.transforms.simplify.effects import is_nonzero, is_read, runs_methods

# Whether an op must stay for its effect, by class. An op without an entry must.
_STAYS: OpTable[Callable[[Demand, Any], bool]] = OpTable("rule for staying")


@_STAYS.of(core.Unreachable, traits.Returns, traits.LeavesIteration, traits.MemoryWrite)
def _always(demand: Demand, op: Op) -> bool:
    return True


@_STAYS.of(traits.Pure)
def _pure(demand: Demand, op: Op) -> bool:
    return runs_methods(op)


@_STAYS.of(core.Var, core.VarLoad, traits.Symbol, traits.BlockTerminator, traits.BodyTerminator)
def _when_used(demand: Demand, op: Op) -> bool:
    return False


@_STAYS.of(traits.MemoryRead)
def _read(demand: Demand, op: Op) -> bool:
    return not is_read(op)


@_STAYS.of(tt.InlineAsm)
def _assembly(demand: Demand, op: tt.InlineAsm) -> bool:
    return not op.is_pure


@_STAYS.of(core.VarStore)
def _store(demand: Demand, op: core.VarStore) -> bool:
    return demand.stores_to_kept(op)


@_STAYS.of(scf.For, scf.If)
def _structured(demand: Demand, op: Structured) -> bool:
    return not demand.structure or _may_not_end(op)


@_STAYS.of(tt.Call)
def _call(demand: Demand, op: tt.Call) -> bool:
    return not demand.structure or demand.has_effects(op.callee)


@_STAYS.of(core.TupleLoad)
def _component(demand: Demand, op: core.TupleLoad) -> bool:
    return not demand.structure and isinstance(source := op.tuple, OpResult) and value_count(source.op) > 0


def callees(op: Op) -> tuple[str, ...]:
    """The symbol that an op refers to, if any."""
    return (op.attributes["callee"],) if isinstance(op, traits.SymbolUser) else ()


def reachable_roots(module: traits.SymbolTable) -> list[Op]:
    """The functions from which the others are reached.

    A root is a `tt.func` that returns nothing, or a `func`, and that no function calls. In a module without such a
    function, a library, all functions are roots.
    """
    functions = module.functions()
    if len(functions) == 1:
        return list(functions.values())
    called_symbols = {
        callee for function in functions.values() for inner in function.walk() for callee in callees(inner)
    }
    roots = [
        function
        for name, function in functions.items()
        if name not in called_symbols and (not isinstance(function, tt.Func) or function.body.yield_type == void)
    ]
    return roots or list(functions.values())


def first_kernel(module: traits.SymbolTable) -> tt.Func:
    """The kernel of a Triton model that was checked to have one, or the first of the several that a file may have."""
    return expect(reachable_roots(module)[0], tt.Func)


class Demand:
    """The ops and the carried values of a model that are needed.

    `kept` holds the results of the ops that stay. `values` holds, for the results of the structured ops that stay, the
    indices of the carried values that are needed: by the result, or by an op inside the loop that is needed itself. A
    value that is only used to compute its own next value is not.

    With `structure` false, only single ops are removed: structured ops keep all their values and the `tuple.load`s of
    these, and modules keep all their functions.
    """

    __slots__ = ("_effective", "_functions", "_stack", "_stores", "kept", "structure", "values")

    def __init__(self, root: Op, *, structure: bool = True) -> None:
        self.structure = structure
        self.kept: set[Value] = {root.result}
        self.values: dict[Op, set[int]] = {}
        self._stack: list[Value] = []
        self._stores: dict[Value, list[Op]] = {}
        self._functions: dict[str, Op] = {}
        self._effective: dict[str, bool] = {}
        if isinstance(root, traits.SymbolTable):
            self._functions = root.functions()
            self.kept.add(root.bodies[0].entry.terminator.result)
            for function in reachable_roots(root) if structure else self._functions.values():
                self._keep(function)
        else:
            self._keep_bodies(root)
        self._settle()

    def of(self, op: Op) -> list[int]:
        """The indices of the values of a kept structured op that are needed, in order."""
        return sorted(self.values.get(op, ()))

    def stores_to_kept(self, op: core.VarStore) -> bool:
        """Whether the variable of a store is kept; otherwise the store is noted, for when it comes to be kept."""
        variable = op.var
        if variable in self.kept or not isinstance(variable, OpResult):
            return True
        self._stores.setdefault(variable, []).append(op)
        return False

    def has_effects(self, symbol: str) -> bool:
        """Whether calling a function does more than give its result. A recursive or unknown one may do anything."""
        effective = self._effective.get(symbol)
        if effective is None:
            self._effective[symbol] = True
            function = self._functions.get(symbol)
            effective = (
                function is None
                or function.jumps
                or any(self._is_effective(op) for body in function.bodies for op in body.walk())
            )
            self._effective[symbol] = effective
        return effective

    def _is_effective(self, op: Op) -> bool:
        if isinstance(op, traits.Returns | core.VarStore):
            return False
        stays = _STAYS.get(op.__class__)
        return stays is None or stays(self, op)

    def _enter(self, bodies: Iterable[Body]) -> None:
        """Keep what must stay in the bodies of an op, whether or not the op itself does."""
        rules = _STAYS
        for body in bodies:
            for block in body.blocks:
                for op in block.ops:
                    stays = rules.get(op.__class__)
                    if stays is _when_used:
                        continue
                    if stays is None or stays(self, op):
                        self._keep_with_owners(op)
                    elif isinstance(op, Structured):
                        self._enter(op.bodies)

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
        stack.extend(op.controls if isinstance(op, Structured) else op.operands)
        for successor in op.successors:
            stack.extend(successor.arguments)
        if op.bodies:
            self._keep_bodies(op)
        elif isinstance(op, core.Var):
            for store in self._stores.get(result, ()):
                self._keep_with_owners(store)
        elif self._functions:
            for callee in callees(op):
                function = self._functions.get(callee)
                if function is not None:
                    self._keep(function)

    def _keep_bodies(self, op: Op) -> None:
        structured = isinstance(op, Structured)
        stays = _STAYS.get(op.__class__) if structured else None
        if stays is None or stays(self, op):
            self._enter(op.bodies)  # The others are entered with the body they stand in.
        if structured:
            for terminator in op.terminators():
                # Its values are needed as far as those of the op are; its condition always is.
                self.kept.add(terminator.result)
                self._stack.extend(terminator.operands[: len(terminator.operands) - len(terminator.handed)])
        for body in op.bodies:
            for block in body.blocks:
                self._keep(block.terminator)
        if structured and not self.structure:
            self._need_whole(op)

    def _need(self, op: Structured, index: int) -> None:
        """Note that a carried value of a structured op is needed."""
        components = self.values.setdefault(op, set())
        if index in components:
            return
        components.add(index)
        self._keep(op)
        if op.inits:
            self._stack.append(op.inits[index])
        self._stack.extend(terminator.handed[index] for terminator in op.terminators())

    def _need_whole(self, op: Op) -> None:
        for index in range(value_count(op)):
            assert isinstance(op, Structured)
            self._need(op, index)

    def _settle(self) -> None:
        stack, live = self._stack, self.kept
        while stack:
            value = stack.pop()
            if value in live:
                # A kept op was entered when it was kept; but a use of a structured op as a whole needs all its values.
                if isinstance(value, OpResult) and value.op.bodies:
                    self._need_whole(value.op)
            elif isinstance(value, OpResult):
                op = value.op
                if isinstance(op, core.TupleLoad):
                    source = op.tuple
                    if isinstance(source, OpResult) and value_count(source.op) > 1:
                        assert isinstance(source.op, Structured)
                        live.add(value)
                        self._need(source.op, op.index)
                        continue
                if op.bodies:
                    self._need_whole(op)
                self._keep(op)
            else:
                assert isinstance(value, BlockParameter)
                live.add(value)
                body = value.block.parent
                owner = body.parent
                if value.block is body.entry and isinstance(owner, Structured) and value.index >= owner.LEADING:
                    self._need(owner, value.index - owner.LEADING)


def value_count(op: Op) -> int:
    """The number of values of a structured op; 0 for any other op."""
    return len(op.value_types) if isinstance(op, Structured) else 0


def _may_not_end(op: Op) -> bool:
    return op.jumps or (isinstance(op, scf.For) and not is_nonzero(op.step))
