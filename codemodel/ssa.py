"""From variables to values: `ssa` removes `var`, `var.load` and `var.store` from a model.

A load is replaced by the value last stored. Where several stores meet, that value is

* a parameter of the block, in a body of several blocks (Cytron et al. 1991: at the iterated dominance frontiers);
* a loop-carried value, for a store in an `scf.for` or `scf.while` to a variable from outside of it;
* a result, for a store in an `scf.if`.

Liveness prunes all three: a variable takes part only where a load can see it. The new values of a loop or an if come
after its old ones, in the order of the first `var.store` in it; block parameters are added in the order of the
declarations. Several results form a Tuple, which `tuple.load`s right after the op take apart, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.declare import OPS
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.dominance import DominatorTree
from ziggurat.codemodel.errors import BuildError
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Block, Body, Op, OpResult, Successor, Value, require_model
from ziggurat.codemodel.structured import Structured, packed
from ziggurat.codemodel.traits import BlockTerminator, BodyTerminator, Isolated, Loop, Returns
from ziggurat.codemodel.transform import rebuilt
from ziggurat.codemodel.types import Type, VarType

Undefined = Callable[[Builder, Type], Value]


def poison(builder: Builder, type_: Type) -> Value:
    """A `tt.poison` of this type: the value of a variable that has none."""
    return builder.add(OPS["tt.poison"].SPEC.make((), (), {}, (), type_))


def ssa(op: Op, undefined: Undefined = poison) -> Op:
    """The model without its variables. `undefined` makes the value of a variable that has none on one of the paths that
    meet; it stands right before the loop or if, and at the end of the predecessor for a block parameter.

    Some variables are kept, with their loads and stores:

    * one that is stored to from inside an op of another kind than `scf.for`, `scf.while` and `scf.if` (such as the
      Python dialect's `for`) and declared outside of it: such an op does not declare how it hands values on;
    * one that is used otherwise than by loading and storing;
    * one of type `Var<object>` that is given a value of a more special type.

    Raises `BuildError` for a load of a variable that has no value on any path to it.
    """
    require_model(op, "ssa")
    if op.operands or op.successors:
        raise BuildError("the root of a model has no operands")
    variables = promotable(op)
    writer = _Writer(variables, VariableLiveness(variables), undefined)
    root = Builder.root()
    bodies = [writer.body(body, root, {}, isolated=True) for body in op.bodies]
    return rebuilt(op, (), bodies, (), op.result.type)


# The value that each variable holds now. A variable without an entry has no value.
_State = dict[Value, Value]
# The values that a terminator hands to the op in addition to its own, by what the variables hold there.
_Handed = Callable[[_State], list[Value]]


class _Writer:
    """Writes the new model: block by block in reverse postorder, so that dominating blocks come first."""

    def __init__(self, variables: dict[Value, core.Var], liveness: VariableLiveness, undefined: Undefined) -> None:
        self.variables = variables
        self.liveness = liveness
        self.undefined = undefined
        self.values: dict[Value, Value] = {}
        self.blocks: dict[Block, Block] = {}
        self.live: dict[Block, frozenset[Value]] = {}  # The variables live at the start of each block.
        self.gains: dict[Block, tuple[Value, ...]] = {}  # The variables that each block takes as parameters.

    def body(
        self,
        body: Body,
        outer: Builder,
        state: _State,
        *,
        isolated: bool = False,
        at_exit: frozenset[Value] = frozenset(),
        gained: tuple[Value, ...] = (),
        handed: _Handed = lambda state: [],
        yield_type: Type | None = None,
    ) -> Body:
        """A body without variables. `state` is what they hold before; it takes those of `gained` as parameters."""
        entry, *others = body.blocks
        types, yields = self._types(entry, gained), body.yield_type if yield_type is None else yield_type
        builder = Builder.root(types, yields) if isolated else outer.nested(types, yields)
        start = self._enter(entry, builder.block, gained, state)
        tree = DominatorTree(body)
        if others:
            self.live.update(self.liveness.live_in(body, at_exit))
            self._set_block_parameters(body, tree)
        for block in others:
            self.blocks[block] = builder.new_block(self._types(block, self.gains[block]))
        ends: dict[Block, _State] = {}
        for block in body.blocks:
            above = tree.parent[block]
            if above is not None:
                builder.move_to(self.blocks[block])
                start = self._enter(block, builder.block, self.gains[block], ends[above])
            ends[block] = self.block(block, builder, start, at_exit, handed)
        return builder.finish()

    def _types(self, block: Block, gained: Sequence[Value]) -> list[Type]:
        """The types of the parameters of a block that takes variables as well."""
        return [*(parameter.type for parameter in block.parameters), *map(self.type_of, gained)]

    def _enter(self, old: Block, new: Block, gained: Sequence[Value], state: _State) -> _State:
        """Map the parameters of a block; returns what the variables hold at its start, by what they held before."""
        count = len(old.parameters)
        self.values.update(zip(old.parameters, new.parameters[:count], strict=True))
        return {**state, **dict(zip(gained, new.parameters[count:], strict=True))}

    def _set_block_parameters(self, body: Body, tree: DominatorTree) -> None:
        """Find the variables that each block of a body takes as parameters."""
        setters: dict[Value, dict[Block, None]] = {}
        for block in body.blocks:
            for op in block.ops:
                for variable in set_by(op, self.variables):
                    setters.setdefault(variable, {})[block] = None
        meet = {variable: tree.iterated_frontier(list(blocks)) for variable, blocks in setters.items()}
        for block in body.blocks:
            live = self.live[block]
            self.gains[block] = tuple(v for v in self.variables if v in meet and v in live and block in meet[v])

    def block(
        self, block: Block, builder: Builder, state: _State, at_exit: frozenset[Value], handed: _Handed
    ) -> _State:
        """Write the ops of a block; returns what the variables hold at its end."""
        *ops, terminator = block.ops
        after: dict[Value, frozenset[Value]] = {}  # The variables live after each structured op.
        if any(isinstance(op, Structured) for op in ops):
            backward = self.liveness.backward(block, self.liveness.live_out(block, self.live, at_exit))
            after = {op.result: now for op, now in backward if isinstance(op, Structured)}
        for op in ops:
            if isinstance(op, core.Var | core.VarLoad | core.VarStore) and self._access(op, state):
                continue
            operands = [self.values[value] for value in op.operands]
            if isinstance(op, Structured):
                self._structured(op, operands, builder, state, after[op.result])
            else:
                bodies = [self.body(body, builder, state, isolated=isinstance(op, Isolated)) for body in op.bodies]
                self.values[op.result] = builder.add(rebuilt(op, operands, bodies, (), op.result.type))
        self._terminator(terminator, builder, state, handed)
        return state

    def _access(self, op: core.Var | core.VarLoad | core.VarStore, state: _State) -> bool:
        """Replace an access to a variable that becomes a value; False for a variable that is kept."""
        variable = op.result if isinstance(op, core.Var) else op.var
        declaration = self.variables.get(variable)
        if declaration is None:
            return False
        if isinstance(op, core.VarStore):
            state[variable] = self.values[op.value]
        elif isinstance(op, core.VarLoad):
            value = state.get(variable)
            if value is None:
                raise BuildError(f"variable '{declaration.name}' must have a value where it is read", op.location)
            self.values[op.result] = value
        elif op.initial is not None:
            state[variable] = self.values[op.initial]
        return True

    def _terminator(self, op: Op, builder: Builder, state: _State, handed: _Handed) -> None:
        operands = [self.values[value] for value in op.operands]
        if isinstance(op, BodyTerminator) and not isinstance(op, Returns | core.Unreachable):
            operands += handed(state)
        held = self._held(builder, op.location)
        successors = [
            Successor(
                self.blocks[s.block], [*map(self.values.__getitem__, s.arguments), *held(state, self.gains[s.block])]
            )
            for s in op.successors
        ]
        builder.add(rebuilt(op, operands, (), successors, op.result.type))

    def _structured(
        self, op: Structured, operands: list[Value], builder: Builder, state: _State, after: frozenset[Value]
    ) -> None:
        """Write a structured op with the variables that it must hand on."""
        exits = self.liveness.at_exits(op, after)
        seen = exits[0].union(*exits)
        variables = tuple(variable for variable in stored_in(op, self.variables) if variable in seen)
        if not op.terminators():
            variables = ()
        held = self._held(builder, op.location)
        old = op.value_types
        type_ = packed([*old, *map(self.type_of, variables)]) if variables else None
        gained = variables if isinstance(op, Loop) else ()
        operands += held(state, gained)
        bodies = [
            self.body(
                body,
                builder,
                state,
                at_exit=live,
                gained=gained,
                handed=lambda state: held(state, variables),
                yield_type=type_,
            )
            for body, live in zip(op.bodies, exits, strict=True)
        ]
        result = builder.add(rebuilt(op, operands, bodies, (), type_ or op.result.type))
        if variables:
            self._unpack(op, result, len(old), variables, builder, state)
        else:
            self.values[op.result] = result

    def _unpack(
        self, op: Op, result: OpResult, count: int, variables: Sequence[Value], builder: Builder, state: _State
    ) -> None:
        """Take the packed result apart: `count` old values, then the variables."""
        if count == 0 and len(variables) == 1:
            state[variables[0]] = result
            return
        place = op.location.made_by("ssa") if op.location is not None else None

        def component(index: int) -> Value:
            return builder.add(core.TupleLoad(result, index), place)

        users = op.result.uses
        if count == 1:
            self.values[op.result] = component(0)
        elif all(isinstance(user, core.TupleLoad) for user in users):
            self.values[op.result] = result  # Their indices stay true, as new components stand after the old ones.
        else:
            old = tuple(component(index) for index in range(count))
            self.values[op.result] = builder.add(core.MakeTuple(old), place)
        for index, variable in enumerate(variables):
            state[variable] = component(count + index)

    def _held(self, builder: Builder, place: Location | None) -> Callable[[_State, Sequence[Value]], list[Value]]:
        """Gives the values of variables. One that a variable lacks is made at the place of the builder, once."""
        made: dict[Value, Value] = {}

        def held(state: _State, variables: Sequence[Value]) -> list[Value]:
            for variable in variables:
                if variable not in state and variable not in made:
                    outer, builder.location = builder.location, place.made_by("ssa") if place is not None else None
                    made[variable] = self.undefined(builder, self.type_of(variable))
                    builder.location = outer
            return [state.get(variable) or made[variable] for variable in variables]

        return held

    def type_of(self, variable: Value) -> Type:
        """The type of the values of a variable."""
        type_ = self.variables[variable].type
        assert isinstance(type_, VarType)
        return type_.value


# The variables that can become values, and their liveness.


def promotable(root: Op) -> dict[Value, core.Var]:
    """The variables that can become values, in the order of their declarations."""
    found: dict[Value, core.Var] = {}
    dropped: set[Value] = set()
    for op in root.walk():
        if isinstance(op, core.Var):
            if op.initial is None or _fits(op.type, op.initial):
                found[op.result] = op
            uses: Sequence[Value] = op.operands
        elif isinstance(op, core.VarLoad):
            continue
        elif isinstance(op, core.VarStore):
            if not (_fits(op.var.type, op.value) and _reachable(op.var, op)):
                dropped.add(op.var)
            uses = (op.value,)
        else:
            uses = op.all_operands()
        dropped.update(value for value in uses if isinstance(value.type, VarType))
    for value in dropped:
        found.pop(value, None)
    return found


def _fits(type_: Type, value: Value) -> bool:
    return isinstance(type_, VarType) and type_.value == value.type


def _reachable(variable: Value, store: Op) -> bool:
    """True when all ops between the store and the body of the variable can hand the value on."""
    home = variable.block
    for here in store.path():
        if home is not None and here.parent is not None and here.parent.parent is home.parent:
            return True
        if not isinstance(here.parent_op, Structured):
            break
    return False


class VariableLiveness:
    """Liveness of variables: a variable is live where a load can still see its value."""

    def __init__(self, variables: Iterable[Value]) -> None:
        self.variables = frozenset(variables)
        self._entries: dict[tuple[Body, frozenset[Value]], frozenset[Value]] = {}

    def before(self, op: Op, after: frozenset[Value]) -> frozenset[Value]:
        """The variables live before an op with all its bodies, where those of `after` are live after it."""
        if isinstance(op, core.VarLoad):
            return after | {op.var} if op.var in self.variables else after
        if isinstance(op, core.VarStore | core.Var):
            return after - {op.var if isinstance(op, core.VarStore) else op.result}
        if isinstance(op, Structured):
            return self._through(op, after)[0]
        if not op.bodies or isinstance(op, Isolated):
            return after
        # Any other body may be skipped or repeated.
        return after.union(*(self._at_entry(body, frozenset()) for body in op.bodies))

    def _through(
        self, op: Structured, after: frozenset[Value]
    ) -> tuple[frozenset[Value], dict[Body, frozenset[Value]]]:
        """The variables live before a structured op, and at the end of each body, by those live after it."""
        ends: dict[Body, frozenset[Value]] = dict.fromkeys(op.bodies, frozenset())

        def before(following: Sequence[Body | None]) -> frozenset[Value]:
            return frozenset[Value]().union(
                *(after if body is None else self._at_entry(body, ends[body]) for body in following)
            )

        changed = True
        while changed:
            found = {body: before(op.following(body)) for body in op.bodies}
            changed, ends = found != ends, found
        return before(op.following(None)), ends

    def _at_entry(self, body: Body, at_exit: frozenset[Value]) -> frozenset[Value]:
        """The variables live at the start of a body. Known ones are kept: nested loops ask for the same again."""
        found = self._entries.get((body, at_exit))
        if found is None:
            found = self._entries[body, at_exit] = self.live_in(body, at_exit)[body.entry]
        return found

    def live_in(self, body: Body, at_exit: frozenset[Value]) -> dict[Block, frozenset[Value]]:
        """The variables live at the start of each block, where those of `at_exit` are live when the body is left."""
        live: dict[Block, frozenset[Value]] = dict.fromkeys(body.blocks, frozenset())
        changed = True
        while changed:
            changed = False
            for block in reversed(body.blocks):
                *_, (_, now) = self.backward(block, self.live_out(block, live, at_exit))
                changed = changed or now != live[block]
                live[block] = now
            changed = changed and len(body.blocks) > 1
        return live

    def backward(self, block: Block, now: frozenset[Value]) -> Iterator[tuple[Op | None, frozenset[Value]]]:
        """The ops of a block, last first, each with the variables live after it; at last None, for the block's start.

        `now` are the variables live at the end of the block.
        """
        for op in reversed(block.ops):
            yield op, now
            now = self.before(op, now)
        yield None, now

    @staticmethod
    def live_out(block: Block, live: dict[Block, frozenset[Value]], at_exit: frozenset[Value]) -> frozenset[Value]:
        """The variables live at the end of a block, from those live at the start of its successors."""
        terminator = block.terminator
        if isinstance(terminator, BlockTerminator):
            return frozenset[Value]().union(*(live[target] for target in block.successors))
        return frozenset() if isinstance(terminator, Returns | core.Unreachable) else at_exit

    def at_exits(self, op: Structured, after: frozenset[Value]) -> list[frozenset[Value]]:
        """The variables live at the end of each body of an op, where those of `after` are live after the op."""
        ends = self._through(op, after)[1]
        return [ends[body] for body in op.bodies]


def set_by(op: Op, variables: Container[Value]) -> tuple[Value, ...]:
    """Those of the variables that the op changes, itself or in its bodies."""
    if isinstance(op, Structured):
        return stored_in(op, variables)
    if isinstance(op, core.VarStore):
        return (op.var,) if op.var in variables else ()
    return (op.result,) if op.result in variables else ()


def stored_in(op: Op, variables: Container[Value]) -> tuple[Value, ...]:
    """Those of the variables that are declared outside of the op and stored to inside, by their first stores."""
    own: set[Value] = set()
    found: dict[Value, None] = {}
    for inner in op.walk():
        if isinstance(inner, core.Var):
            own.add(inner.result)
        elif isinstance(inner, core.VarStore) and inner.var in variables and inner.var not in own:
            found[inner.var] = None
    return tuple(found)
