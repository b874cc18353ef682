"""Attribution: abstract interpretation of the Python code model with types for values.

The state is what is known of each variable; it splits at an `if`, meets after it, and is brought to a fixpoint over a
loop. A path that has returned brings nothing to a meeting. Errors are collected: a value whose op was in error has
the type `ErrorType`, and what depends on it is not reported again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.errors import (
    KernelErrors,
    KernelNameError,
    KernelSyntaxError,
    KernelTypeError,
    KernelValueError,
    ZigguratError,
)
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Body, Op, OpResult, Value
from ziggurat.codemodel.types import (
    ConstantType,
    DescriptorType,
    PtrType,
    TensorType,
    TupleType,
    Type,
    constexpr_type,
    i1,
    i32,
    i64,
    pyobject,
    shape_of,
    u32,
    u64,
)
from ziggurat.frontends.language import SIGNATURES, Function
from ziggurat.frontends.language.library import COMBINE, LIBRARY
from ziggurat.frontends.language.signature import Parameter
from ziggurat.transforms.attribution.attribution import Attribution, Scope, symbol_part
from ziggurat.transforms.attribution.constants import check_kind
from ziggurat.transforms.attribution.elementwise import folded
from ziggurat.transforms.attribution.function_name import FunctionName
from ziggurat.transforms.attribution.interpreter import TypeInterpreter
from ziggurat.transforms.attribution.lattice import (
    ERROR,
    UNASSIGNED,
    ErrorType,
    RangeType,
    Unusable,
    components,
    join,
)
from ziggurat.transforms.attribution.operators import COMPARISONS, OPERATORS, operator_error
from ziggurat.transforms.attribution.promotion import (
    NONE,
    constant,
    is_number,
    promote,
    scalar_type,
)
from ziggurat.transforms.attribution.wording import describe, show

State = dict[Value, Type]

_MAX_VISITS = 12
_MAX_UNROLL = 4096


class Attributor:
    """Attributes the functions that a kernel reaches; each once for a list of argument types.

    `functions` are the Python models that calls by symbol mean, where a model does not come from a `Function` with
    callees of its own. `instances` holds the results in the order in which they were finished, so callees come before
    callers.
    """

    def __init__(self, functions: Mapping[str, Op] | None = None) -> None:
        self.functions = functions or {}
        self.instances: dict[tuple[int, tuple[Type, ...]], Attribution] = {}
        self.errors: list[ZigguratError] = []
        self._stack: list[Op] = []
        self._symbols: dict[str, tuple[int, tuple[Type, ...]]] = {}
        # By the identity of a model: the functions it calls. Holding the model keeps the identity valid.
        self._linked: dict[int, tuple[Op, Mapping[str, Function]]] = {}
        # Functions whose source is in error.
        self._broken: set[Function] = set()

    def load(self, function: Function) -> Op:
        """The Python model of a function, its callees noted."""
        model = function.model
        self._linked[id(model)] = (model, function.callees)
        return model

    def resolve(self, caller: Op, symbol: str) -> Op | None:
        """The model that a call by symbol in `caller` means. None of a function whose errors are reported already."""
        linked = self._linked.get(id(caller))
        if linked is not None and symbol in linked[1]:
            function = linked[1][symbol]
            if function not in self._broken:
                try:
                    return self.load(function)
                except ZigguratError:
                    self._broken.add(function)
                    raise
            return None
        if symbol in self.functions:
            return self.functions[symbol]
        raise KernelNameError(f"there is no function '{symbol}' in the module")

    def function(self, name: str, func: Op, types: tuple[Type, ...], caller: Location | None) -> Attribution:
        """The attribution of a function at these argument types. `name` begins its symbol in the Triton model."""
        key = (id(func), types)
        known = self.instances.get(key)
        if known is not None:
            # A loop that is visited again forgets the errors of the visit before; those of what it calls are not found
            # anew.
            self.errors.extend(error for error in known.errors if error not in self.errors)
            return known
        if any(entry is func for entry in self._stack):
            first = next(index for index, entry in enumerate(self._stack) if entry is func)
            chain = " → ".join([*(str(entry.attributes["sym_name"]) for entry in self._stack[first:]), name])
            raise KernelSyntaxError(
                f"recursion: {chain}", hint="a function of the language cannot reach itself; write a loop instead"
            )
        self._stack.append(func)
        errors_before = len(self.errors)
        try:
            made = _FunctionAttributor(self, func, types, caller).run()
        finally:
            self._stack.pop()
        made.errors = tuple(self.errors[errors_before:])
        self._linked.setdefault(id(func), (func, {}))
        made.symbol = self._name(name, key, made)
        self.instances[key] = made
        return made

    def _name(self, name: str, key: tuple[int, tuple[Type, ...]], made: Attribution) -> str:
        """The symbol of an instance: the function's name, argument types (constants by value) and result type."""
        parts = [name.rsplit(".", 1)[-1], *map(symbol_part, made.parameter_types)]
        parts.append("void" if made.result == NONE else symbol_part(made.result))
        symbol = base = "_".join(parts)
        count = 0
        while self._symbols.setdefault(symbol, key) != key:
            count += 1
            symbol = f"{base}_{count}"
        return symbol


def attribute(kernel: Function | Op, types: Sequence[Type], functions: Mapping[str, Op] | None = None) -> Attribution:
    """Attribute a kernel at these argument types (a `ConstantType` for each constexpr parameter).

    `kernel` is a function, or a Python model, whose calls by symbol mean `functions`. Its attribution leads to those
    of the functions it reaches. Raises the errors of the kernel: the one there is, or
    `KernelErrors` with all of them.
    """
    attributor = Attributor(functions)
    model = attributor.load(kernel) if isinstance(kernel, Function) else kernel
    name = kernel.name if isinstance(kernel, Function) else str(model.attributes["sym_name"])
    found: Attribution | None = None
    try:
        found = attributor.function(name, model, tuple(types), None)
    except ZigguratError as error:
        attributor.errors.append(error)
    if found is not None and not attributor.errors and found.result != NONE:
        attributor.errors.append(
            KernelTypeError(
                f"the kernel '{name}' returns {describe(found.result)}: a kernel returns nothing",
                next((op.location for op in model.walk() if isinstance(op, core.Return) and op.values), model.location),
                "store results with zg.store",
            )
        )
    if attributor.errors:
        errors = sorted(attributor.errors, key=lambda error: _order(error.location))
        raise errors[0] if len(errors) == 1 else KernelErrors(errors)
    assert found is not None
    return found


def _order(place: Location | None) -> list[tuple[int, int]]:
    """The key by which errors stand in the order of the kernel's source: the calls that led there, then the place."""
    found: list[tuple[int, int]] = []
    while place is not None:
        found.insert(0, (place.line, place.column))
        place = place.caller
    return found


class _FunctionAttributor:
    def __init__(self, program: Attributor, func: Op, types: tuple[Type, ...], caller: Location | None) -> None:
        self.program = program
        self.func = func
        self.caller = caller
        self.found = Attribution(func, types)
        self.scope = self.found.scope
        self.rules = TypeInterpreter(self)
        self.state: State = {}
        self.returns: list[tuple[Type, Op]] = []
        self.op: Op = func
        # The types of variables at their last assignment, to keep a variable's shape.
        self.names: dict[Value, str] = {}

    def run(self) -> Attribution:
        body = self.func.bodies[0]
        self.scope.types.update(zip(body.parameters, self.found.parameter_types, strict=True))
        self.found.always_returns = not self.ops(body.entry.ops)
        result: Type | None = None
        for type_, op in self.returns:
            joined = type_ if result is None else join(result, type_)
            if isinstance(joined, Unusable):
                assert result is not None
                first, second = ("nothing" if one == NONE else describe(one) for one in (result, type_))
                self.report(
                    op,
                    KernelTypeError(
                        f"'{self.func.attributes['sym_name']}' returns {first} on one path and {second} here",
                        hint="return values of one type on every path",
                    ),
                )
                joined = ERROR
            result = joined
        self.found.result = NONE if result is None else result
        return self.found

    # Errors.

    def report(self, op: Op, error: ZigguratError) -> None:
        """Note an error at an op, once."""
        if isinstance(error, KernelErrors):
            for one in error.errors:
                self.report(op, one)
            return
        if error.location is None:
            location = op.location
            error.location = location.called_from(self.caller) if location is not None and self.caller else location
        known = self.program.errors
        if not any(e.summary == error.summary and e.location == error.location for e in known):
            known.append(error)

    def combine(self, function: FunctionName | str, types: Sequence[Type], what: str) -> None:
        """Attribute the function that a reduction applies: a `FunctionName`, or a reduction's name; see `Combiner`."""
        if isinstance(function, FunctionName):
            symbol, model = function.symbol, function.model
            expected = len(model.bodies[0].parameters)
            if expected != 2 * len(types):
                raise KernelTypeError(
                    f"{what} combines with '{symbol}' of {expected} parameters: it takes two of each element, "
                    f"{2 * len(types)} in all"
                )
            if any(parameter.type == constexpr_type for parameter in model.bodies[0].parameters):
                raise KernelTypeError(
                    f"{what} combines with '{symbol}', which has a zg.constexpr parameter: elements are run-time values"
                )
            instance = self.program.function(symbol, model, (*types, *types), self.place())
        else:
            symbol, model = COMBINE[function].name, self.program.load(COMBINE[function])
            instance = self.library_function(what, symbol, model, (*types, *types))
        wanted: Type = types[0] if len(types) == 1 else TupleType(tuple(types))
        if join(instance.result, wanted) not in (wanted, ERROR):
            gives = "nothing" if instance.result == NONE else describe(instance.result)
            raise KernelTypeError(f"{what}: '{symbol}' gives {gives}, the elements are {describe(wanted)}")
        self.scope.callees[self.op.result] = instance

    def place(self) -> Location | None:
        """Where the current op stands, with the calls that led there."""
        location = self.op.location
        return location.called_from(self.caller) if location is not None and self.caller is not None else location

    def place_of(self, value: Value) -> Location | None:
        """Where a value is made, with the calls that led there; of a parameter, where the current op stands."""
        location = value.op.location if isinstance(value, OpResult) else None
        if location is None:
            return self.place()
        return location.called_from(self.caller) if self.caller is not None else location

    # Ops.

    def ops(self, ops: Sequence[Op]) -> bool:
        """Run ops in the current state. False when control does not go on after them."""
        types = self.scope.types
        for op in ops:
            handler = _HANDLERS.get(type(op))
            if handler is None:
                raise KernelSyntaxError(f"the op {op.NAME} is not of the Python model", op.location)
            self.op = op
            try:
                if any(types.get(operand) is ERROR for operand in op.operands):
                    outcome = self.in_error(op)
                else:
                    outcome = handler(self, op)
            except ZigguratError as error:
                self.report(op, error)
                outcome = self.in_error(op)
            if outcome is None:
                return False
            types[op.result] = outcome
        return True

    def in_error(self, op: Op) -> Type | None:
        """What follows from an op that is in error, or that depends on one: what it would have done is not known."""
        if isinstance(op, core.Return):
            self.returned(op, ERROR)
            return None
        if isinstance(op, core.Var):
            self.names[op.result] = op.name
            self.state[op.result] = ERROR
            return op.result.type
        for inner in op.walk():
            if isinstance(inner, core.VarStore):
                self.state[inner.var] = ERROR
            elif isinstance(inner, core.Return):
                self.returned(inner, ERROR)
        return ERROR

    def constant(self, op: Op) -> Type:
        value = op.attributes["value"]
        return constant(value)

    def function_ref(self, op: Op) -> Type:
        symbol = op.attributes["callee"]
        model = self.resolve(symbol)
        return ERROR if model is None else ConstantType(FunctionName(symbol, model), pyobject)

    def resolve(self, symbol: str) -> Op | None:
        """The model of a function that is used here; errors in its source are reported as called from here."""
        try:
            return self.program.resolve(self.func, symbol)
        except ZigguratError as error:
            for one in error.errors if isinstance(error, KernelErrors) else (error,):
                if one.location is not None:
                    one.location = one.location.called_from(self.place())
                self.report(self.op, one)
            return None

    # Variables.

    def var(self, op: Op) -> Type:
        assert isinstance(op, core.Var)
        self.names[op.result] = op.name
        self.state[op.result] = UNASSIGNED if op.initial is None else self.scope.type_of(op.initial)
        return op.result.type

    def var_load(self, op: Op) -> Type:
        var = op.operands[0]
        type_ = self.state.get(var, UNASSIGNED)
        if isinstance(type_, Unusable):
            raise self.unusable(var, type_)
        return type_

    def unusable(self, var: Value, type_: Unusable) -> ZigguratError:
        """The error of reading a variable that has no one value."""
        name = self.names.get(var, "?")
        if not type_.types and not type_.partly:
            return KernelNameError(
                f"'{name}' is used before it is assigned",
                hint=f"assign '{name}' first; an 'if' that is decided at compile time and not taken assigns nothing",
            )
        if not type_.types:
            return KernelNameError(
                f"'{name}' is not defined on every path to here",
                hint=f"assign '{name}' before the loop or the if, so that it has a value whichever way is taken",
            )
        first, second = (describe(one) for one in type_.types)
        if type_.loop:
            hint = "a variable carried around a loop keeps its type; cast it, or give it its final type before the loop"
            before, after = type_.types
            if (
                isinstance(before, ConstantType)
                and is_number(before)
                and isinstance(after, TensorType)
                and is_number(after)
            ):
                made = f"zg.full({show(after.shape)}, {show(before.value)}, {show(after.element)})"
                hint = f"give it its final type before the loop: {name} = {made}"
            return KernelTypeError(
                f"'{name}' changes its type in the loop: {first} before it, {second} after an iteration", hint=hint
            )
        return KernelTypeError(
            f"'{name}' differs between the branches: {first} on one path, {second} on the other",
            hint="assign values of one type on both paths, or use two names",
        )

    def var_store(self, op: Op) -> Type:
        var, value = op.operands
        new = self.scope.type_of(value)
        old = self.state.get(var, UNASSIGNED)
        if not isinstance(old, Unusable | ErrorType) and not isinstance(old, ConstantType):
            before, after = shape_of(old), shape_of(new)
            if before != after and isinstance(old, TensorType) and isinstance(new, TensorType):
                self.state[var] = ERROR
                raise KernelTypeError(
                    f"'{self.names.get(var, '?')}' has the type {old}; it cannot be assigned {new}",
                    hint="a variable keeps its shape; use another name for a tensor of another shape",
                )
        self.state[var] = new
        return NONE

    # Expressions.

    def operator(self, op: Op) -> Type:
        types = [self.scope.type_of(operand) for operand in op.operands]
        for type_ in types:
            if isinstance(type_, TensorType):
                raise operator_error(op, type_)
        if isinstance(op, py.Is | py.IsNot):
            same = types[0] == types[1] if all(isinstance(t, ConstantType) for t in types) else False
            return constant(same == isinstance(op, py.Is))
        if isinstance(op, py.In | py.NotIn):
            item, items = types
            if not isinstance(item, ConstantType) or not isinstance(items, ConstantType):
                raise KernelTypeError("'in' is for constants in a kernel")
            try:
                return constant((item.value in items.value) == isinstance(op, py.In))
            except TypeError:
                raise KernelTypeError(f"'in' does not work on {describe(item)} and {describe(items)}") from None
        if isinstance(op, py.Not):
            if isinstance(types[0], ConstantType):
                return constant(not types[0].value)
            self.truth(types[0], "not", op.operands[0])
            return i1
        if isinstance(op, py.Pos):
            return types[0]
        comparison = COMPARISONS.get(type(op))
        if comparison is not None:
            return self.rules._comparison(comparison, *types)  # pyright: ignore[reportPrivateUsage]
        name = OPERATORS[type(op)]
        values = [type_.value for type_ in types if isinstance(type_, ConstantType)]
        if len(values) == len(types):
            return folded(name, *values)
        if name == "pow":
            raise KernelTypeError(
                "'**' is for constants in a kernel",
                hint="zg.mul for small powers, zg.exp2(zg.mul(b, zg.log2(a))) otherwise",
            )
        return getattr(self.rules, name)(*types)

    def truth(self, type_: Type, what: str, value: Value) -> None:
        """Check that a value can be a condition. An error is at the place of the value."""
        if isinstance(type_, TensorType):
            raise KernelTypeError(
                f"the condition of '{what}' is a tensor, {type_}",
                self.place_of(value),
                "a condition is a scalar; use zg.where to choose element by element, or reduce it first (zg.max)",
            )
        if not is_number(type_):
            hint = "pointers are never null here; compare integers" if isinstance(type_, PtrType) else None
            raise KernelTypeError(
                f"the condition of '{what}' is a number, got {describe(type_)}", self.place_of(value), hint
            )

    def pack(self, op: Op) -> Type:
        types = [self.scope.type_of(operand) for operand in op.operands]
        values = [t.value for t in types if isinstance(t, ConstantType)]
        return constant(tuple(values)) if len(values) == len(types) else TupleType(tuple(types))

    def unpack(self, op: Op) -> Type:
        assert isinstance(op, py.Unpack)
        type_ = self.scope.type_of(op.value)
        parts = components(type_)
        if (parts is None or len(parts) != op.count) and op.index > 0:
            return ERROR  # It is reported at the first name.
        if parts is None:
            raise KernelTypeError(
                f"{describe(type_)} is not a tuple; it cannot be unpacked into {op.count} names",
                self.place_of(op.value),
            )
        if len(parts) != op.count:
            raise KernelTypeError(
                f"a tuple of {len(parts)} cannot be unpacked into {op.count} names", self.place_of(op.value)
            )
        return parts[op.index]

    def subscript(self, op: Op) -> Type:
        value, index = (self.scope.type_of(operand) for operand in op.operands)
        parts = components(value)
        if parts is None:
            hint = "zg.expand adds an axis, zg.gather picks elements" if isinstance(value, TensorType) else None
            raise KernelTypeError(f"{describe(value)} cannot be indexed in a kernel", hint=hint)
        if not isinstance(index, ConstantType) or not isinstance(index.value, int):
            raise KernelTypeError(f"a tuple is indexed by a constant integer, got {describe(index)}")
        if not -len(parts) <= index.value < len(parts):
            raise KernelValueError(f"index {index.value} is outside a tuple of {len(parts)}")
        return parts[index.value]

    def property(self, op: Op) -> Type:
        return self.rules.property(self.scope.type_of(op.operands[0]), op.attributes["name"])

    # Calls.

    def invoke(self, op: Op) -> Type:
        assert isinstance(op, py.Invoke)
        space, _, name = op.callee.rpartition(".")
        if space == "zg":
            return self.language_call(op, name)
        types = [self.scope.type_of(operand) for operand in op.operands]
        if space == "builtins":
            return self.builtin(op, name, types)
        return self.method(op, name, types)

    def builtin(self, op: Op, name: str, types: list[Type]) -> Type:
        for type_ in types:
            if isinstance(type_, TensorType) and name in ("min", "max", "abs"):
                call = {"min": "zg.minimum", "max": "zg.maximum", "abs": "zg.abs"}[name]
                raise KernelTypeError(f"{name}() takes scalars, got {type_}", hint=f"use {call}")
        if name in ("min", "max"):
            if len(types) < 2:
                raise KernelTypeError(f"{name}() takes two scalars or more", hint=f"zg.{name} reduces a tensor")
            rule = self.rules.minimum if name == "min" else self.rules.maximum
            result = types[0]
            for type_ in types[1:]:
                result = rule(result, type_)
            return result
        if name == "abs":
            return self.rules.abs(*types)
        if name == "print":
            raise KernelTypeError("print() is not for kernels", hint="zg.device_print or zg.static_print")
        return getattr(self.rules, f"builtin_{name}")(*types)

    def method(self, op: py.Invoke, name: str, types: list[Type]) -> Type:
        receiver = types[0]
        if isinstance(receiver, DescriptorType) and name in ("load", "store"):
            return self.language_call(op, f"{name}_tensor_descriptor")
        if name in SIGNATURES:
            raise KernelTypeError(f"{describe(receiver)} has no method '{name}'", hint=f"call zg.{name}(…) instead")
        raise KernelTypeError(f"{describe(receiver)} has no method '{name}'")

    def language_call(self, op: py.Invoke, name: str) -> Type:
        signature = SIGNATURES[name]
        positional = len(op.arguments) - len(op.keywords)
        keywords = dict(zip(op.keywords, op.arguments[positional:], strict=True))
        bound = signature.bind(op.arguments[:positional], keywords)
        arguments: list[Any] = []
        for parameter in signature.parameters:
            given = bound[parameter.name]
            if parameter.variadic:
                types = [self.scope.type_of(value) for value in given]
                if parameter.constexpr:
                    bound[parameter.name] = tuple(self.known(name, parameter, type_) for type_ in types)
                    arguments.append(bound[parameter.name])
                else:
                    arguments.append(types)
            elif isinstance(given, Value):
                type_ = self.scope.type_of(given)
                if parameter.constexpr:
                    bound[parameter.name] = self.known(name, parameter, type_)
                    arguments.append(bound[parameter.name])
                elif type_ == NONE:
                    if not parameter.optional:
                        raise KernelTypeError(
                            f"zg.{name}: '{parameter.name}' is a value; got None", hint=f"zg.{signature}"
                        )
                    arguments.append(None)
                    bound[parameter.name] = None
                else:
                    arguments.append(type_)
            elif parameter.constexpr or given is None:
                arguments.append(given)
            else:
                arguments.append(constant(given))
        self.scope.bound[op.result] = bound
        rule = getattr(self.rules, name, None)
        if rule is not None:
            for argument in arguments:
                if isinstance(argument, ErrorType):
                    return ERROR
            return rule(*arguments)
        return self.library_call(op, name, arguments)

    def known(self, call: str, parameter: Parameter, type_: Type) -> Any:
        """The value of an argument that must be a constant."""
        if isinstance(type_, ConstantType):
            check_kind(call, parameter, type_.value)
            return type_.value
        raise KernelTypeError(
            f"zg.{call}: '{parameter.name}' must be known at compile time; got {describe(type_)}, a run-time value",
            hint="pass a literal, or make it a zg.constexpr parameter",
        )

    def library_call(self, op: Op, name: str, arguments: list[Any]) -> Type:
        """A call that is itself written in the language."""
        func = self.program.load(LIBRARY[name])
        parameters = func.bodies[0].parameters
        types: list[Type] = []
        for parameter, argument in zip(parameters, arguments, strict=True):
            type_ = argument if isinstance(argument, Type) and parameter.type != constexpr_type else constant(argument)
            types.append(type_)
        getattr(self.rules, f"check_{name}")(*arguments)
        constants = [type_ for type_ in types if isinstance(type_, ConstantType)]
        if name == "cdiv" and len(constants) == len(types):
            return self.rules.cdiv_constants(*constants)
        instance = self.library_function(f"zg.{name}", name, func, tuple(types))
        self.scope.callees[op.result] = instance
        return instance.result

    def library_function(self, what: str, name: str, func: Op, types: tuple[Type, ...]) -> Attribution:
        """The attribution of a function of the library. An error in it is one of the call `what`, not of our source."""
        known_errors = len(self.program.errors)
        instance = self.program.function(name, func, types, self.place())
        if instance.errors:
            del self.program.errors[known_errors:]
            first = instance.errors[0]
            raise type(first)(f"{what}: {first.summary}", hint=first.hint)
        return instance

    def function_call(self, op: Op) -> Type:
        symbol = op.attributes["callee"]
        types = tuple(self.scope.type_of(operand) for operand in op.operands)
        func = self.resolve(symbol)
        if func is None:
            return ERROR
        for parameter, type_ in zip(func.bodies[0].parameters, types, strict=True):
            if parameter.type == constexpr_type and not isinstance(type_, ConstantType):
                raise KernelTypeError(
                    f"'{symbol}': a zg.constexpr parameter takes a value known at compile time, got {type_}"
                )
        instance = self.program.function(symbol, func, types, self.place())
        self.scope.callees[op.result] = instance
        return instance.result

    # Control flow.

    def suite(self, body: Body) -> bool:
        return self.ops(body.entry.ops)

    def expression(self, body: Body) -> Type:
        """Run the body of an expression; its type."""
        self.ops(body.entry.ops)
        values = body.entry.terminator.operands
        return self.scope.type_of(values[0]) if values else NONE

    def if_(self, op: Op) -> Type:
        assert isinstance(op, py.If)
        condition = self.scope.type_of(op.condition)
        self.scope.taken.pop(op.result, None)
        if isinstance(condition, ConstantType):
            chosen = 0 if condition.value else 1
            self.scope.taken[op.result] = chosen
            return NONE if self.suite(op.bodies[chosen]) else _GONE
        self.truth(condition, "if", op.condition)
        before = dict(self.state)
        outcomes: list[State] = []
        for body in op.bodies:
            self.state = dict(before)
            if self.suite(body):
                outcomes.append(self.state)
        if not outcomes:
            self.state = before
            self.scope.joins[op.result] = {}
            return _GONE
        after = outcomes[0]
        for other in outcomes[1:]:
            after = {var: join(after.get(var, UNASSIGNED), other.get(var, UNASSIGNED), op.location) for var in before}
        self.state = {var: after[var] for var in before}
        self.scope.joins[op.result] = {var: self.state[var] for var in stored_variables(op) if var in before}
        return NONE

    def for_(self, op: Op) -> Type | None:
        assert isinstance(op, py.For)
        iterable = self.expression(op.iterable)
        if isinstance(iterable, ErrorType):
            return self.in_error(op)
        if isinstance(iterable, RangeType):
            if not isinstance(op.iterable.entry.ops[-2], py.Invoke):
                raise KernelSyntaxError("a range is written in the 'for' itself", op.location, "for i in range(…):")
            self.scope.ranges[op.result] = iterable
            if not iterable.static:
                return self.loop(op, [op.suite], index_type(iterable))
            bounds = (iterable.start, iterable.stop, iterable.step)
            numbers = range(*(bound.value for bound in bounds if isinstance(bound, ConstantType)))
            items: Sequence[Type] = [constant(number) for number in numbers[: _MAX_UNROLL + 1]]
        else:
            parts = components(iterable)
            if parts is None:
                raise KernelTypeError(
                    f"'for' runs over a range or a tuple, got {describe(iterable)}",
                    hint="range(…), zg.range(…) or zg.static_range(…)",
                )
            items = parts
        if len(items) > _MAX_UNROLL:
            raise KernelValueError(f"a loop of more than {_MAX_UNROLL} iterations is not unrolled", hint="use range")
        self.unroll(op, items)
        return NONE

    def unroll(self, op: py.For, items: Sequence[Type]) -> None:
        around = self.scope
        made: list[tuple[Type, Scope]] = []
        for item in items:
            self.scope = Scope(around)
            self.scope.types[op.suite.parameters[0]] = item
            self.suite(op.suite)
            made.append((item, self.scope))
        self.scope = around
        around.unrolled[op.result] = made

    def while_(self, op: Op) -> Type:
        assert isinstance(op, py.While)
        return self.loop(op, [op.condition, op.suite], None)

    def loop(self, op: Op, bodies: Sequence[Body], item: Type | None) -> Type:
        """Run a loop to a fixpoint: the state at its head is above the one before it and the one after an iteration."""
        stored = [var for var in stored_variables(op) if var in self.state]
        entry = dict(self.state)
        head = dict(entry)
        failed: dict[Value, ErrorType] = {}
        known_errors = len(self.program.errors)
        # Types rise a few steps each, and from one variable to the next in a visit.
        for _ in range(_MAX_VISITS * (1 + len(stored))):
            del self.program.errors[known_errors:]
            self.state = dict(head)
            if item is not None:
                self.scope.types[bodies[0].parameters[0]] = item
            condition = NONE
            if isinstance(op, py.While):
                condition = self.expression(op.condition)
                if isinstance(condition, ConstantType):
                    if not condition.value:
                        self.scope.joins[op.result] = {}
                        self.scope.taken[op.result] = 1
                        return NONE
                elif not isinstance(condition, ErrorType):
                    self.truth(condition, "while", op.condition.entry.terminator.operands[0])
            self.scope.taken.pop(op.result, None)
            self.suite(bodies[-1])
            # What is in error after an iteration keeps its type at the head: the next visit finds the error again.
            failed = {var: ERROR for var in stored if isinstance(self.state[var], ErrorType)}
            after = {
                var: head[var] if var in failed else join(head[var], self.state[var], op.location, loop=True)
                for var in stored
            }
            if all(after[var] == head[var] for var in stored):
                if isinstance(op, py.While) and isinstance(condition, ConstantType):
                    raise KernelSyntaxError(
                        "this loop never ends: its condition is always true",
                        self.place_of(op.condition.entry.terminator.operands[0]),
                        "let the condition depend on a variable that the loop changes",
                    )
                break
            head.update(after)
        else:
            raise AssertionError("the types of a loop's variables do not settle")
        self.scope.joins[op.result] = {var: head[var] for var in stored}
        self.state = {**head, **failed}
        return self.in_error(op) or ERROR if isinstance(condition, ErrorType) else NONE

    def conditional(self, op: Op) -> Type:
        assert isinstance(op, py.CondExpression)
        condition = self.scope.type_of(op.condition)
        self.scope.taken.pop(op.result, None)
        if isinstance(condition, ConstantType):
            chosen = 0 if condition.value else 1
            self.scope.taken[op.result] = chosen
            return self.expression(op.bodies[chosen])
        self.truth(condition, "if", op.condition)
        first, second = (self.expression(body) for body in op.bodies)
        scalars = is_number(first) and is_number(second) and not shape_of(first) and not shape_of(second)
        if scalars and isinstance(first, ConstantType) != isinstance(second, ConstantType):
            return promote(first, second)
        joined = join(first, second)
        if isinstance(joined, Unusable):
            raise KernelTypeError(f"the two values of 'if … else' differ: {describe(first)} and {describe(second)}")
        return joined

    def short_circuit(self, op: Op) -> Type:
        is_and = isinstance(op, py.CondAnd)
        result: Type = constant(is_and)
        runtime = False
        for index, body in enumerate(op.bodies):
            type_ = self.expression(body)
            if isinstance(type_, ErrorType):
                return ERROR
            if isinstance(type_, ConstantType):
                if bool(type_.value) != is_and:
                    # What comes before may run; what comes after does not.
                    self.scope.taken[op.result] = index
                    return i1 if runtime else type_
                result = type_
                continue
            self.truth(type_, "and" if is_and else "or", body.entry.terminator.operands[0])
            runtime = True
        return i1 if runtime else result

    def assertion(self, op: Op) -> Type:
        assert isinstance(op, py.Assert)
        condition = self.scope.type_of(op.condition)
        message = NONE if op.message is None else self.scope.type_of(op.message)
        if not isinstance(message, ConstantType):
            raise KernelTypeError("the message of an assert is a constant string")
        if isinstance(condition, ConstantType):
            return self.rules.static_assert(condition.value, message.value or "")
        return self.rules.device_assert(condition, message.value or "")

    def return_(self, op: Op) -> None:
        values = op.operands
        self.returned(op, self.scope.type_of(values[0]) if values else NONE)

    def returned(self, op: Op, type_: Type) -> None:
        """Note what a `return` gives, in the place of what it gave at an earlier visit."""
        if not any(known is op for _, known in self.returns):
            self.returns.append((type_, op))
        else:
            self.returns = [(type_ if known is op else old, known) for old, known in self.returns]

    def yield_(self, op: Op) -> Type:
        return NONE


# What the handler of an `if` gives when no path goes on after it.
_GONE: Any = None


def index_type(range_: RangeType) -> Type:
    """The type of the index of a loop: the common type of its bounds."""
    bounds = (range_.start, range_.stop, range_.step)
    numbers = [bound.value for bound in bounds if isinstance(bound, ConstantType)]
    if len(numbers) == len(bounds):
        low, high = min(numbers), max(numbers)
        return next((t for t in (i32, u32, i64, u64) if t.limits[0] <= low and high <= t.limits[1]), i64)
    result: Type | None = None
    for bound in bounds:
        if not isinstance(bound, ConstantType):
            result = scalar_type(bound) if result is None else promote(result, bound)
    assert result is not None
    for bound in bounds:
        result = promote(result, bound)
    return result


def stored_variables(op: Op) -> list[Value]:
    """The variables that ops inside `op` store to, in the order of the first store."""
    found: dict[Value, None] = {}
    for inner in op.walk():
        if isinstance(inner, core.VarStore):
            found.setdefault(inner.var)
    return list(found)


_Handler = Callable[[_FunctionAttributor, Any], Type | None]

_HANDLERS: dict[type[Op], _Handler] = {
    core.ConstantOp: _FunctionAttributor.constant,
    core.FuncRef: _FunctionAttributor.function_ref,
    core.FuncCall: _FunctionAttributor.function_call,
    core.Var: _FunctionAttributor.var,
    core.VarLoad: _FunctionAttributor.var_load,
    core.VarStore: _FunctionAttributor.var_store,
    core.Return: _FunctionAttributor.return_,
    core.Yield: _FunctionAttributor.yield_,
    py.Pack: _FunctionAttributor.pack,
    py.Unpack: _FunctionAttributor.unpack,
    py.Subscript: _FunctionAttributor.subscript,
    py.Attribute: _FunctionAttributor.property,
    py.Invoke: _FunctionAttributor.invoke,
    py.If: _FunctionAttributor.if_,
    py.For: _FunctionAttributor.for_,
    py.While: _FunctionAttributor.while_,
    py.CondExpression: _FunctionAttributor.conditional,
    py.CondAnd: _FunctionAttributor.short_circuit,
    py.CondOr: _FunctionAttributor.short_circuit,
    py.Assert: _FunctionAttributor.assertion,
    **dict.fromkeys(
        [*OPERATORS, *COMPARISONS, py.Is, py.IsNot, py.In, py.NotIn, py.Not, py.Pos], _FunctionAttributor.operator
    ),
}
