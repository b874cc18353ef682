"""Attribution of control flow: states split, meet, and are brought to a fixpoint."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence

import attrs

from ziggurat.codemodel.dialects import core, debug, py
from ziggurat.codemodel.errors import KernelSyntaxError, KernelTypeError, KernelValueError
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.messages import call_text, say
from ziggurat.codemodel.op import Block, Body, Op, OpResult, Value
from ziggurat.codemodel.types import (
    ConstantType,
    DescriptorType,
    ScalarType,
    TensorType,
    TupleType,
    Type,
    i1,
    i64,
    shape_of,
    with_element,
)
from ziggurat.frontends.language.languages import Language
from ziggurat.frontends.language.phrases import LOOP_BOUNDS, UNLIKE_CHOICES
from ziggurat.transforms.attribution.attribute import FunctionAttributor, State, handles, is_flag, is_result
from ziggurat.transforms.attribution.attribution import Finding, Scope, packed_values
from ziggurat.transforms.attribution.expressions import truth
from ziggurat.transforms.calls import RULES, Typing
from ziggurat.transforms.calls.constant_arguments import CHOSEN_FUNCTION, describe, is_function
from ziggurat.transforms.calls.lattice import (
    ERROR,
    UNASSIGNED,
    ErrorType,
    RangeType,
    Split,
    Unusable,
    items_of,
    join,
    known_value,
    split,
)
from ziggurat.transforms.calls.promotion import NONE, constant, integer_type, is_number, promote

_MAX_VISITS = 12
_MAX_UNROLL = 4096
# Iterations of an unrolled loop and of all unrolled loops inside it.
_MAX_ITERATIONS = 1 << 15


def flag_of(condition: Value) -> Value | None:
    """The flag that a condition loads; None for another condition."""
    load = condition.op
    return load.var if isinstance(load, core.VarLoad) and is_flag(load.var) else None


def cases(state: State, flag: Value | None) -> tuple[list[State], list[State]]:
    """The states of the paths where a flag is false, and of those where it is true, which are all without a flag."""
    if flag is None:
        return [], [state]
    type_ = state[flag]
    if isinstance(type_, ConstantType):
        return ([], [state]) if type_.value else ([state], [])
    if isinstance(type_, Split) and type_.flag in state:
        parts = [cases(inner, flag) for states in cases(state, type_.flag) for inner in states]
        return [state for no, _ in parts for state in no], [state for _, yes in parts for state in yes]
    return [where(state, flag, False)], [where(state, flag, True)]


def where(state: State, flag: Value, value: bool) -> State:
    """The state where a flag has this value."""

    def narrow(type_: Type) -> Type:
        if not isinstance(type_, Split):
            return type_
        return type_.components[value] if type_.flag is flag else split(type_.flag, *map(narrow, type_.components))

    return {**{var: narrow(type_) for var, type_ in state.items()}, flag: constant(value)}


def all_types(type_: Type) -> list[Type]:
    """All types of a variable, one for each combination of values of the flags that it depends on."""
    return [part for each in type_.components for part in all_types(each)] if isinstance(type_, Split) else [type_]


def join_states(
    context: FunctionAttributor,
    states: Sequence[State],
    variables: Iterable[Value],
    place: Location | None,
    dropped: Value | None = None,
    loop: bool = False,
    at_end: bool = False,
) -> State:
    """The state where paths meet: the type of each variable is above its types on the paths.

    Where the paths differ in a flag other than `dropped`, the types depend on that flag. `at_end` says that
    the iteration of a loop ends here. Literals then take the type that the variable has on other paths to the same
    place.
    """
    variables = list(variables)
    flags = [var for var in variables if is_flag(var) and var is not dropped]
    for flag in sorted(flags, key=list(states[0]).index, reverse=True):  # The innermost first.
        first = states[0][flag]
        if isinstance(first, Unusable):
            continue
        if isinstance(first, ConstantType) and all(state[flag] == first for state in states):
            continue
        parts = [cases(state, flag) for state in states]
        no, yes = ([state for part in parts for state in part[value]] for value in (False, True))
        if not no or not yes:
            return join_states(context, [*no, *yes], variables, place, dropped, loop, at_end)
        low = join_states(context, no, variables, place, dropped, loop, at_end)
        high = join_states(context, yes, variables, place, dropped, loop, at_end=True)
        return {**{var: split(flag, low[var], high[var]) for var in variables}, flag: i1}

    def type_of(var: Value) -> Type:
        types = [type_ for state in states for type_ in all_types(state.get(var, UNASSIGNED))]
        if at_end and all(isinstance(type_, ConstantType) for type_ in types):
            others = [other.get(var) for other in context.destinations]
            for above in [
                type_ for other in others for type_ in (other.types if isinstance(other, Unusable) else [other])
            ]:
                if isinstance(above, ScalarType) and all(join(above, type_) == above for type_ in types):
                    return above
        return functools.reduce(lambda a, b: join(a, b, place, loop=loop), types)

    return {var: type_of(var) for var in variables}


def ends_iteration(op: Op) -> bool:
    """Whether nothing but the end of the iteration of a loop follows an op."""
    block = op.parent
    assert block is not None
    if block.ops[-2] is not op:
        return False
    around = op.parent_op
    return isinstance(around, py.For | py.While) or (isinstance(around, py.If) and ends_iteration(around))


def expression(context: FunctionAttributor, body: Body) -> Type:
    """Run the body of an expression; its type."""
    context.ops(body.entry.ops)
    values = body.entry.terminator.operands
    return context.scope.type_of(values[0]) if values else NONE


def static_body(context: FunctionAttributor, op: py.If | py.CondExpression) -> Body | None:
    """The body that runs, if the condition is known at compile time; otherwise the condition must be a scalar."""
    condition = context.scope.type_of(op.condition)
    if not isinstance(condition, ConstantType):
        truth(context, condition, "if", op.condition)
        return None
    index = context.finding(op).static_branch = 0 if condition.value else 1
    return op.bodies[index]


@handles(py.If)
def if_(context: FunctionAttributor, op: py.If) -> Type:
    suite = static_body(context, op)
    if suite is not None:
        context.ops(suite.entry.ops)
        return NONE
    before, destinations = dict(context.state), context.destinations
    flag = flag_of(op.condition)
    outcomes: list[State] = []
    for body, value in zip(op.bodies, (True, False), strict=True):
        context.state = dict(before)
        if flag is not None:
            context.state = where(before, flag, value)
            context.destinations = [where(before, flag, not value), *destinations]
        context.ops(body.entry.ops)
        outcomes.append(context.state)
    context.destinations = destinations
    # The types of variables depend on a flag until the `if` of it in the block that declares it.
    dropped = flag if isinstance(flag, OpResult) and flag.op.parent is op.parent else None
    at_end = context.func is not context.function.model and ends_iteration(op)
    context.state = join_states(context, outcomes, before, op.location, dropped, at_end=at_end)
    if dropped is not None:
        context.state[dropped] = UNASSIGNED
    record(context, op, before)
    return NONE


def record(context: FunctionAttributor, op: Op, before: State) -> None:
    """Note the variables whose values an op joins: those that are stored inside, and those that no longer depend on a
    flag."""
    stores = dict.fromkeys(var for var in stored_variables(context, op) if var in before)
    changed = dict.fromkeys(var for var, type_ in before.items() if context.state[var] != type_)
    context.finding(op).joins = {var: context.state[var] for var in (stores | changed)}


@handles(py.For)
def for_(context: FunctionAttributor, op: py.For) -> Type:
    iterable = expression(context, op.iterable)
    if isinstance(iterable, ErrorType):
        return context.in_error(op)
    if isinstance(iterable, RangeType):
        _, call = range_call(op.iterable, context.finding)
        if not isinstance(call, py.Invoke):
            raise KernelSyntaxError("a range is written in the 'for' itself", op.location, "for i in range(…):")
        context.finding(op).range = iterable
        if not iterable.static:
            index = index_type(iterable)
            define_index(context, op, index)
            return loop(context, op, [op.suite], index)
        bounds = (iterable.start, iterable.stop, iterable.step)
        numbers = range(*(bound.value for bound in bounds if isinstance(bound, ConstantType)))
        items: Sequence[Type] = [constant(number) for number in numbers[: _MAX_UNROLL + 1]]
    else:
        parts = items_of(iterable)
        if parts is None:
            raise KernelTypeError(
                say("'for' must run over a range or a tuple; got {}", describe(iterable)),
                context.place_of(op.iterable.entry.terminator.operands[0]),
                LOOP_BOUNDS(),
            )
        items = parts
    _require_few(items)
    unroll(context, op, items)
    return NONE


def _require_few(items: Sequence[object]) -> None:
    """Raise `KernelValueError` for more items than a loop is unrolled over."""
    if len(items) > _MAX_UNROLL:
        raise KernelValueError(
            f"an unrolled loop must have at most {_MAX_UNROLL} iterations; got more", hint="use a loop over range"
        )


def range_call(body: Body, finding: Callable[[Op], Finding]) -> tuple[list[Op], Op]:
    """The call of a range that a loop runs over, and the ops before it, by what is known of conditions."""
    *ops, call, _ = body.entry.ops
    while isinstance(call, py.CondExpression) and (index := finding(call).static_branch) is not None:
        *more, call, _ = call.bodies[index].entry.ops
        ops += more
    return ops, call


def define_index(context: FunctionAttributor, op: py.For, index: Type) -> None:
    """Give the index of a loop its type before the loop if it is read after the loop. If not, give it no type, so that
    the loop carries no value for it."""
    item = op.suite.parameters[0]
    store = next((user for user in item.uses if isinstance(user, core.VarStore)), None)
    if store is None or store.var not in context.state:
        return
    if not is_read_after(op, store.var):
        context.state[store.var] = UNASSIGNED
    elif context.state[store.var] == UNASSIGNED:
        context.state[store.var] = index


def is_read_after(op: Op, var: Value) -> bool:
    """Whether a variable may be read after an op, before it is assigned."""
    while isinstance(block := op.parent, Block):
        around = op.parent_op
        following = [*block.ops[block.ops.index(op) + 1 :]]
        if isinstance(around, py.For | py.While):
            following += [inner for body in around.bodies for inner in body.entry.ops]  # Of the next iteration.
        if (read := first_use(following, var)) is not None:
            return read
        if around is None or isinstance(around, core.Func):
            return False
        op = around
    return False


def first_use(ops: Iterable[Op], var: Value) -> bool | None:
    """True if ops may read a variable before they assign it, False if they assign it first, None if neither."""
    for op in ops:
        if isinstance(op, core.VarLoad | core.VarStore) and op.var is var:
            return isinstance(op, core.VarLoad)
        uses = [first_use(body.entry.ops, var) for body in op.bodies]
        if True in uses:
            return True
        if isinstance(op, py.If) and uses == [False, False]:
            return False
    return None


def unroll(context: FunctionAttributor, op: py.For, items: Sequence[Type]) -> None:
    around = context.scope
    iterations: list[tuple[Type, Scope]] = []
    before = list(context.state)
    destinations, context.destinations = context.destinations, [context.state]
    outermost = context.program.unrolling is None
    count = context.program.unrolling or 0
    for item in items:
        if op.flag is not None and context.state[op.flag] == constant(False):
            break
        count = context.program.unrolling = count + 1
        if count > _MAX_ITERATIONS:
            break
        context.scope = Scope(around)
        context.scope.types[op.suite.parameters[0]] = item
        context.ops(op.suite.entry.ops)
        count = context.program.unrolling
        iterations.append((item, context.scope))
        context.state = {var: context.state[var] for var in before}
    context.scope, context.destinations = around, destinations
    if outermost:
        context.program.unrolling = None
        if count > _MAX_ITERATIONS:
            raise KernelValueError(
                f"an unrolled loop and those inside it must have at most {_MAX_ITERATIONS} iterations in all; got more",
                hint="use range for one of the loops",
            )
    context.finding(op).iterations = iterations
    at_end = context.state
    if op.flag is not None:
        context.state = join_states(
            context, [state for part in cases(at_end, op.flag) for state in part], before, op.location, op.flag
        )
        context.state[op.flag] = UNASSIGNED
    context.finding(op).joins = {var: type_ for var, type_ in context.state.items() if type_ != at_end[var]}


@handles(py.While)
def while_(context: FunctionAttributor, op: py.While) -> Type:
    return loop(context, op, [op.condition, op.suite], None)


def loop(context: FunctionAttributor, op: py.For | py.While, bodies: Sequence[Body], item: Type | None) -> Type:
    """Run a loop to a fixpoint: the state at its head is above the one before it and the one after an iteration."""
    targets = [var for var in stored_variables(context, op) if var in context.state]
    entry = dict(context.state)
    head = dict(entry)
    failed: dict[Value, ErrorType] = {}
    known_errors = len(context.program.errors)
    # Types rise a few steps each, and from one variable to the next in a visit.
    endless = is_last = False
    breaks: list[State] = []
    for _ in range(_MAX_VISITS * (1 + len(targets))):
        context.program.forget_since(known_errors)
        context.state = dict(head)
        if item is not None:
            context.scope.types[bodies[0].parameters[0]] = item
        condition = NONE
        if isinstance(op, py.While):
            condition = expression(context, op.condition)
            if isinstance(condition, ConstantType):
                if not condition.value:
                    context.finding(op).joins = {}
                    context.finding(op).static_branch = 1
                    return NONE
            elif not isinstance(condition, ErrorType):
                truth(context, condition, "while", op.condition.entry.terminator.operands[0])
        around, context.destinations = context.destinations, [head, *breaks]
        context.ops(bodies[-1].entry.ops)
        context.destinations = around
        breaks, ends = cases(context.state, op.flag)
        # Types that differ at the breaks may be those of literals, which the next visit gives the type of another path.
        unlike = any(isinstance(type_, Unusable) and type_.types for state in breaks for type_ in state.values())
        # A variable in error after an iteration keeps its type at the head, so the next visit finds the error again.
        failed = {var: ERROR for var in targets if any(isinstance(end[var], ErrorType) for end in (*ends, *breaks))}
        variables = [var for var in targets if var not in failed]
        after = join_states(context, [head, *ends], variables, op.location, loop=True)
        settles = all(after[var] == head[var] for var in variables)
        if settles and (is_last or not unlike):
            endless = isinstance(op, py.While) and isinstance(condition, ConstantType)
            if isinstance(op, py.While) and endless and not breaks:
                raise KernelSyntaxError(
                    "this loop never ends: its condition is always true",
                    context.place_of(op.condition.entry.terminator.operands[0]),
                    "make the condition depend on a variable that the loop changes",
                )
            break
        is_last = settles
        head.update(after)
    else:
        raise AssertionError("the types of a loop's variables do not settle")
    context.state = head
    joins = {var: head[var] for var in targets if var is not op.flag}
    if breaks and op.flag is not None:
        context.state = join_states(context, breaks if endless else [head, *breaks], entry, op.location, op.flag)
        after = {var: split(op.flag, context.state[var], type_) for var, type_ in joins.items()}
        joins = {op.flag: i1, **after}
    context.finding(op).joins = joins
    context.state = {**context.state, **failed}
    if op.flag is not None:
        context.state[op.flag] = UNASSIGNED
    return context.in_error(op) if isinstance(condition, ErrorType) else NONE


@handles(py.CondExpression)
def conditional(context: FunctionAttributor, op: py.CondExpression) -> Type:
    body = static_body(context, op)
    if body is not None:
        return expression(context, body)
    first, second = (expression(context, body) for body in op.bodies)
    scalars = is_number(first) and is_number(second) and not shape_of(first) and not shape_of(second)
    if scalars and isinstance(first, ConstantType) != isinstance(second, ConstantType):
        return promote(first, second)
    result = join(first, second)
    if isinstance(result, Unusable):
        raise KernelTypeError(
            UNLIKE_CHOICES(first=describe(first), second=describe(second)),
            hint=CHOSEN_FUNCTION if is_function(first) or is_function(second) else None,
        )
    return result


@attrs.frozen
class ShortCircuit:
    """The operands of `and` or `or` by index: those that are tested at run time, and the last that is evaluated."""

    tested: list[int]
    last: int
    # Whether the run-time operands, and whether the last one, a constant, may be the result.
    gives_tested: bool
    gives_last: bool


def operands_of(op: Op, types: Iterable[Type], language: Language) -> ShortCircuit:
    """A constant operand decides `and` or `or`, or it is left out unless it is the last. Its types are taken from
    `types` up to the one that decides."""
    tested: list[int] = []
    last, type_, truth, is_logical = 0, NONE, None, False
    for last, type_ in enumerate(types):
        truth = known_truth(type_, language)
        if truth is None:
            is_logical = bool(tested) or type_ == i1
            tested.append(last)
        elif truth == isinstance(op, py.CondOr):
            break
    decides = truth == isinstance(op, py.CondOr)
    # Python's `n or 3` is n or 3, and Triton's is 3; `n and 3` is 0 or 3, and Triton's is n.
    is_either = bool(tested and truth and is_number(type_)) and not language.dropped_constants
    is_either &= not (is_logical and type_ == constant(True))
    return ShortCircuit(tested, last, bool(tested) and (is_either or not decides), is_either or decides or not tested)


def known_truth(type_: Type, language: Language) -> bool | None:
    """The truth of an operand of `and` or `or` that is known at compile time; None for one that is tested."""
    if isinstance(type_, ConstantType):
        return bool(type_.value)
    if not language.dropped_constants:
        return None
    return bool(type_.components) if isinstance(type_, TupleType) else isinstance(type_, DescriptorType) or None


@handles(py.CondAnd, py.CondOr)
def short_circuit(context: FunctionAttributor, op: Op) -> Type:
    types: list[Type] = []

    def types_in_order() -> Iterable[Type]:
        for body in op.bodies:
            types.append(expression(context, body))
            yield types[-1]
            if isinstance(types[-1], ErrorType):
                return

    parts = operands_of(op, types_in_order(), context.language)
    if isinstance(types[-1], ErrorType):
        return ERROR
    if len(parts.tested) > 1 or (parts.gives_tested and parts.gives_last):
        for index in parts.tested:
            # `and` and `or` of tensors are i1, element by element; a tensor or a constant cannot be chosen so.
            is_logical = isinstance(types[index], TensorType) and is_number(types[index])
            if not is_logical or parts.gives_last:
                word = "and" if isinstance(op, py.CondAnd) else "or"
                truth(context, types[index], word, op.bodies[index].entry.terminator.operands[0])
    if not parts.gives_tested:
        return types[-1]
    tested = [types[index] for index in parts.tested]
    result = tested[0] if len(tested) == 1 else logical(context, tested)
    return promote(result, types[-1]) if parts.gives_last else result


def logical(context: FunctionAttributor, parts: list[Type]) -> Type:
    """The type of `and` or `or` of run-time values: of tensors it is computed element by element."""
    bools = [with_element(type_, i1) for type_ in parts]
    typing = Typing("and_", context, "and")
    return functools.reduce(lambda a, b: RULES["and_"].type(typing, a, b) or NONE, bools)


@handles(py.Comprehension)
def comprehension(context: FunctionAttributor, op: py.Comprehension) -> Type:
    """A list comprehension, unrolled: a tuple of the elements whose condition, a constant, is true."""
    iterable = expression(context, op.iterable)
    if isinstance(iterable, ErrorType):
        return ERROR
    parts: Sequence[Type] | None = items_of(iterable)
    got = describe(iterable)
    if isinstance(iterable, RangeType):
        ends = [known_value(bound) for bound in (iterable.start, iterable.stop, iterable.step)]
        got = "a range whose bounds are not known at compile time"
        if all(is_constant for is_constant, _ in ends):
            items = range(*(value for _, value in ends))[: _MAX_UNROLL + 1]
            _require_few(items)
            parts = [constant(value) for value in items]
    if parts is None:
        raise KernelTypeError(
            say("only tuple comprehensions are supported: it must run over a tuple; got {}", got),
            context.place_of(op.iterable.entry.terminator.operands[0]),
        )
    around = context.scope
    static_items: list[tuple[int, Scope]] = []
    types: list[Type] = []
    for index, item in enumerate(parts):
        context.scope = Scope(around)
        for body in (op.condition, op.element):
            context.scope.types[body.parameters[0]] = item
        try:
            condition = expression(context, op.condition)
            if not isinstance(condition, ConstantType):
                raise KernelTypeError(
                    say("the condition of a comprehension must be known at compile time; got {}", describe(condition)),
                    context.place_of(op.condition.entry.terminator.operands[0]),
                )
            if condition.value:
                types.append(expression(context, op.element))
                static_items.append((index, context.scope))
        finally:
            context.scope = around
    context.finding(op).items = static_items
    return ERROR if any(isinstance(type_, ErrorType) for type_ in types) else packed_values(types)


@handles(debug.Statement)
def statement(context: FunctionAttributor, op: debug.Statement) -> Type:
    return NONE


@handles(py.Assert)
def assertion(context: FunctionAttributor, op: py.Assert) -> Type:
    condition = context.scope.type_of(op.condition)
    message = NONE if op.message is None else context.scope.type_of(op.message)
    if not isinstance(message, ConstantType) or not isinstance(message.value, str | None):
        raise KernelTypeError("the message of an assert must be a constant string")
    if isinstance(condition, ConstantType) and context.language.device_assertions:
        if not condition.value:
            text = "an assert that is false at compile time has no effect without debug=True; see {}"
            context.warn(say(text, call_text("static_assert")))
        return NONE
    if isinstance(condition, ConstantType):
        holds = bool(condition.value) if isinstance(condition.value, float) else condition.value
        return RULES["static_assert"].type(Typing("static_assert"), holds, message.value or "") or NONE
    if not isinstance(condition, TensorType) or not is_number(condition):  # All elements of a tensor have to hold.
        truth(context, condition, "assert", op.condition)
    return NONE


@handles(py.Error)
def error(context: FunctionAttributor, op: py.Error) -> Type:
    """An error in the source, which is reported when control reaches it."""
    error = op.error()
    error.location = None  # The reporter sets the location of the op and the calls that led there.
    raise error


@handles(core.Return)
def return_(context: FunctionAttributor, op: core.Return) -> Type:
    load = op.values[0].op if op.values else None
    if not isinstance(load, core.VarLoad) or not is_result(load.var):
        context.returned(op, context.scope.type_of(op.values[0]) if op.values else NONE)
    return NONE


@handles(core.Yield)
def yield_(context: FunctionAttributor, op: core.Yield) -> Type:
    return NONE


def index_type(range_: RangeType) -> Type:
    """The type of the index of a loop: the common type of its bounds."""
    bounds = (range_.start, range_.stop, range_.step)
    numbers = [bound.value for bound in bounds if isinstance(bound, ConstantType)]
    if len(numbers) == len(bounds):
        return integer_type(*numbers) or i64
    return promote(*bounds)


def stored_variables(context: FunctionAttributor, op: Op) -> list[Value]:
    """The variables that ops inside `op` store to, in the order of the first store."""
    variables = context.stored_inside.get(op)
    if variables is None:
        stores: dict[Value, None] = {}
        for inner in op.inner_ops():
            if isinstance(inner, core.VarStore):
                stores.setdefault(inner.var)
            elif inner.bodies:
                stores.update(dict.fromkeys(stored_variables(context, inner)))
        variables = context.stored_inside[op] = list(stores)
    return variables
