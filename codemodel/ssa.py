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

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.declare import OPS
from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.dialects import py_suites as suites
from ziggurat.codemodel.dominance import Dominance
from ziggurat.codemodel.errors import BuildError
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Block, Body, Op, OpResult, Successor, Value, require_model
from ziggurat.codemodel.structured import Structured, packed
from ziggurat.codemodel.traits import BodyTerminator, Isolated, Loop, Returns, Routine
from ziggurat.codemodel.transform import rebuilt
from ziggurat.codemodel.types import Type, VarType, pyobject

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
    * one of type `Var<object>` that is given a value of a more special type;
    * one of a Python function that may have no value where it is read, so that reading it raises an exception;
    * one that a function inside of the model or a generator expression mentions, if it is stored to: they see the value
      that it has when they run;
    * all, where the names of variables are asked for, as by `locals()`.

    Raises `BuildError` for a load of a variable that has no value on any path to it.
    """
    require_model(op, "ssa")
    if op.operands or op.successors:
        raise BuildError("the root of a model has no operands")
    variables = promotable(op)
    flow = VariableFlow(op, variables)
    for variable in flow.unset(variables):
        del variables[variable]
    flow.variables = dict.fromkeys(variables)
    writer = _Writer(variables, flow, undefined)
    root = Builder.root()
    bodies = [writer.body(body, root, {}, isolated=True) for body in op.bodies]
    result = rebuilt(op, (), bodies, (), op.result.type)
    if isinstance(op, core.Func) and not op.parameters and None not in (names := py.parameter_names(op)):
        result.__dict__["parameters"] = tuple(names)  # The variables that had them are gone.
    return result


# The value that each variable holds now. A variable without an entry has no value.
_State = dict[Value, Value]
# The values that a terminator hands to the op in addition to its own, by what the variables hold there.
_Handed = Callable[[_State], list[Value]]


class _Writer:
    """Writes the new model: block by block in reverse postorder, so that dominating blocks come first."""

    def __init__(self, variables: dict[Value, core.Var], flow: VariableFlow, undefined: Undefined) -> None:
        self.variables = variables
        self.flow = flow
        self.undefined = undefined
        self.values: dict[Value, Value] = {}
        self.blocks: dict[Block, Block] = {}

    def body(
        self,
        body: Body,
        outer: Builder,
        state: _State,
        *,
        isolated: bool = False,
        gained: tuple[Value, ...] = (),
        variables: _Handed = lambda state: [],
        yield_type: Type | None = None,
    ) -> Body:
        """A body without variables. `state` is what they hold before; it takes those of `gained` as parameters."""
        types, yields = self._types(body.entry, gained), body.yield_type if yield_type is None else yield_type
        builder = Builder.root(types, yields) if isolated else outer.nested(types, yields)
        for block in body.blocks[1:]:
            self.blocks[block] = builder.new_block(self._types(block, self.flow.parameters(block)))
        ends: dict[Block | None, _State] = {}
        for block in body.blocks:
            if block is body.entry:
                start = self._enter(block, builder.block, gained, state)
            else:
                builder.move_to(self.blocks[block])
                before = ends[self.flow.dominance.tree(body).parent[block]]
                start = self._enter(block, builder.block, self.flow.parameters(block), before)
            ends[block] = self.block(block, builder, start, variables)
        return builder.finish()

    def _types(self, block: Block, gained: Sequence[Value]) -> list[Type]:
        """The types of the parameters of a block that takes variables as well."""
        return [*(parameter.type for parameter in block.parameters), *map(self.type_of, gained)]

    def _enter(self, old: Block, new: Block, gained: Sequence[Value], state: _State) -> _State:
        """Map the parameters of a block; returns what the variables hold at its start, by what they held before."""
        count = len(old.parameters)
        self.values.update(zip(old.parameters, new.parameters[:count], strict=True))
        return {**state, **dict(zip(gained, new.parameters[count:], strict=True))}

    def block(self, block: Block, builder: Builder, state: _State, variables: _Handed) -> _State:
        """Write the ops of a block; returns what the variables hold at its end."""
        *ops, terminator = block.ops
        for op in ops:
            if isinstance(op, core.Var | core.VarLoad | core.VarStore) and self._access(op, state):
                continue
            operands = [self.values[value] for value in op.operands]
            if isinstance(op, Structured):
                self._structured(op, operands, builder, state)
            else:
                bodies = [self.body(body, builder, state, isolated=isinstance(op, Isolated)) for body in op.bodies]
                self.values[op.result] = builder.add(rebuilt(op, operands, bodies, (), op.result.type))
        self._terminator(terminator, builder, state, variables)
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

    def _terminator(self, op: Op, builder: Builder, state: _State, variables: _Handed) -> None:
        operands = [self.values[value] for value in op.operands]
        if isinstance(op, BodyTerminator) and not isinstance(op, Returns | core.Unreachable):
            operands += variables(state)
        contents = self._held(builder, op.location)
        successors = [
            Successor(
                self.blocks[s.block],
                [*map(self.values.__getitem__, s.arguments), *contents(state, self.flow.parameters(s.block))],
            )
            for s in op.successors
        ]
        builder.add(rebuilt(op, operands, (), successors, op.result.type))

    def _structured(self, op: Structured, operands: list[Value], builder: Builder, state: _State) -> None:
        """Write a structured op with the variables that it must hand on."""
        variables = self.flow.handed(op)
        contents = self._held(builder, op.location)
        old = op.value_types
        type_ = packed([*old, *map(self.type_of, variables)]) if variables else None
        gained = variables if isinstance(op, Loop) else ()
        operands += contents(state, gained)

        def handed(state: _State) -> list[Value]:
            return contents(state, variables)

        bodies = [
            self.body(body, builder, state, gained=gained, variables=handed, yield_type=type_) for body in op.bodies
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
        contents: dict[Value, Value] = {}

        def held(state: _State, variables: Sequence[Value]) -> list[Value]:
            for variable in variables:
                if variable not in state and variable not in contents:
                    outer, builder.location = builder.location, place.made_by("ssa") if place is not None else None
                    contents[variable] = self.undefined(builder, self.type_of(variable))
                    builder.location = outer
            return [state.get(variable) or contents[variable] for variable in variables]

        return held

    def type_of(self, variable: Value) -> Type:
        """The type of the values of a variable."""
        type_ = self.variables[variable].type
        assert isinstance(type_, VarType)
        return type_.value


# The variables that can become values, and where their values go.

# The builtins that look at the variables of the function that calls them.
_NAMES_OF = frozenset(("locals", "vars", "dir", "eval", "exec"))


def promotable(root: Op) -> dict[Value, core.Var]:
    """The variables that can become values, in the order of their declarations."""
    variables: dict[Value, core.Var] = {}
    dropped: set[Value] = set()
    remote: set[Value] = set()  # The variables that are mentioned in code that may run at another time.
    stores: set[Value] = set()
    for op in root.walk():
        if isinstance(op, core.VarLoad | core.VarStore) and _routine(op) is not _routine(op.var.op):
            remote.add(op.var)
        if isinstance(op, core.VarStore):
            stores.add(op.var)
        if isinstance(op, py.Invoke | py.Outer) and (op.callee if isinstance(op, py.Invoke) else op.name) in _NAMES_OF:
            return {}
        if isinstance(op, core.Var):
            if op.initial is None or _fits(op.type, op.initial):
                variables[op.result] = op
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
    unsafe = {v for v in remote if v in stores or v not in variables or variables[v].initial is None}
    for value in dropped | unsafe:
        variables.pop(value, None)
    return variables


def _routine(op: Op | None) -> Op | None:
    """The innermost function or generator expression around an op: a body that may run when the op is not run."""
    for around in itertools.islice(op.path(), 1, None) if op is not None else ():
        if isinstance(around, Routine) or (isinstance(around, suites.Collect) and around.kind == "generator"):
            return around
    return None


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


# A place in a model: a variable, a block, and the number of its ops before the place.
_Place = tuple[Value, Block, int]


class VariableFlow:
    """The variables that blocks take as parameters and structured ops hand on: those that a load can see there.

    It follows each variable from its loads back to where it is set. `_live` has pairs of a variable and a block at
    whose start its value is needed, or the result of an op that sets it and after which its value is needed.
    """

    def __init__(self, root: Op, variables: Iterable[Value]) -> None:
        self.variables = dict.fromkeys(variables)
        self.dominance = Dominance()
        self._setters: dict[tuple[Value, Block], list[Op]] = {}  # The ops of a block that set a variable.
        self._set_by: dict[Op, dict[Value, None]] = {}  # The variables that an op sets.
        self._frontiers: dict[tuple[Value, Body], set[Block]] = {}
        self._live: set[tuple[Value, Block | Value]] = set()
        work: list[_Place] = []
        variable_set = frozenset(self.variables)
        for op in root.walk():
            variable = op.result if isinstance(op, core.Var) else op.operands[0] if op.operands else None
            if variable in variable_set and isinstance(op, core.VarLoad) and op.parent is not None:
                work.append((variable, op.parent, self.dominance.position(op)))
            elif variable in variable_set and isinstance(op, core.VarStore | core.Var):
                self._note(variable, op)
        while work:
            work += self._before(*work.pop())

    def unset(self, variables: Mapping[Value, core.Var]) -> set[Value]:
        """The variables of Python functions that may have no value where a load sees them."""
        objects = VarType(pyobject)
        return {v for v, op in variables.items() if op.initial is None and op.type == objects and (v, v) in self._live}

    def parameters(self, block: Block) -> tuple[Value, ...]:
        """The variables that a block takes as parameters: those whose stores meet there."""
        return tuple(v for v in self.variables if (v, block) in self._live and block in self._frontier(v, block))

    def handed(self, op: Structured) -> tuple[Value, ...]:
        """The variables that a structured op hands on, by their first stores."""
        nodes = [op.result, *(body.entry for body in op.bodies if isinstance(op, Loop))]
        values = self._set_by.get(op, {}) if op.terminators() else ()
        return tuple(v for v in values if v in self.variables and any((v, node) in self._live for node in nodes))

    def _note(self, variable: Value, setter: Op) -> None:
        """Note that an op sets a variable, and so do the ops around it in which the variable is visible."""
        for op in setter.path():
            assert op.parent is not None and variable.block is not None
            self._set_by.setdefault(op, {})[variable] = None
            setters = self._setters.setdefault((variable, op.parent), [])
            if not setters or setters[-1] is not op:
                setters.append(op)
            if op.parent.parent is variable.block.parent:
                break

    def _frontier(self, variable: Value, block: Block) -> set[Block]:
        """The blocks where stores to a variable meet, in the body of the block."""
        body = block.parent
        if (variable, body) not in self._frontiers:
            origins = [other for other in body.blocks if (variable, other) in self._setters]
            self._frontiers[variable, body] = self.dominance.tree(body).iterated_frontier(origins)
        return self._frontiers[variable, body]

    def _before(self, variable: Value, block: Block, count: int) -> Iterator[_Place]:
        """The places from which control comes to one where a variable is needed, if that was not known."""
        setters = self._setters.get((variable, block), ())
        number = bisect_left(setters, count, key=self.dominance.position)
        setter = setters[number - 1] if number else None
        node = block if setter is None else setter.result
        if (variable, node) in self._live:
            return
        self._live.add((variable, node))
        body, owner = block.parent, block.parent.parent
        if setter is not None:
            if isinstance(setter, Structured):
                yield from self._ends_before(variable, setter, None)
        elif block is not body.entry:
            above = self.dominance.tree(body).parent[block]
            meet = block in self._frontier(variable, block)
            for other in block.predecessors if meet or above is None else [above]:
                yield variable, other, len(other)
        elif isinstance(owner, Structured):
            yield from self._ends_before(variable, owner, body)
        elif owner is not None and owner.parent is not None:
            yield variable, owner.parent, self.dominance.position(owner)

    def _ends_before(self, variable: Value, op: Structured, following: Body | None) -> Iterator[_Place]:
        """The places from which control comes to a body of an op; to the place after the op, for None."""
        if following in op.following(None) and op.parent is not None:
            yield variable, op.parent, self.dominance.position(op)
        for body in op.bodies:
            if following in op.following(body):
                for terminator in op.terminators(body):
                    block = terminator.result.block
                    assert block is not None
                    yield variable, block, len(block)
