"""Attribution: abstract interpretation of the Python code model with types for values.

The state maps each variable to its type. It splits at an `if`, is joined after it, and is iterated to a fixpoint over a
loop. `early_exits` has put flags in the place of early exits: a function returns at its end only. Errors are collected:
a value whose op was in error has the type `ErrorType`, and ops that depend on it are not reported again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.errors import (
    KernelErrors,
    KernelSyntaxError,
    KernelTypeError,
    StaticAssertionError,
    ZigguratError,
    warn,
)
from ziggurat.codemodel.gpu.options import USUAL_WARPS
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.messages import Words, call_text, in_words, say
from ziggurat.codemodel.op import Op, OpResult, Value
from ziggurat.codemodel.structured import packed
from ziggurat.codemodel.types import Type, constexpr_type, i1
from ziggurat.frontends.language import Function
from ziggurat.frontends.language.languages import EXPLICIT, Language
from ziggurat.frontends.language.phrases import STORE_RESULTS
from ziggurat.frontends.library import COMBINE
from ziggurat.transforms.attribution.attribution import Attribution, Finding
from ziggurat.transforms.calls.constant_arguments import FunctionName, describe, symbol_part
from ziggurat.transforms.calls.foreign_floats import check_supported
from ziggurat.transforms.calls.lattice import ERROR, Unusable, join
from ziggurat.transforms.calls.promotion import NONE
from ziggurat.transforms.calls.rule import CallContext, Typing
from ziggurat.transforms.early_exits import early_exits
from ziggurat.transforms.statements import with_statements
from ziggurat.transforms.unsupported import checked, kernel_model

State = dict[Value, Type]
Handler = Callable[[Any, Any], Type]

# Handlers by op class. A handler gives the type of the result.
HANDLERS = OpTable[Handler]("type rule")
handles = HANDLERS.of


class FunctionAttributor(CallContext):
    """The attribution of one function at one list of argument types: the context that its handlers work in."""

    def __init__(
        self,
        program: Attributor,
        function: FunctionName,
        types: tuple[Type, ...],
        caller: Location | None,
        words: Words | None = None,
    ) -> None:
        super().__init__(program.language if function.function is None else function.function.language)
        self.program = program
        self.function = function
        self.func = func = early_exits(with_statements(function.model) if program.stops else function.model)
        self.caller = caller
        self.words = words or self.language.words
        self.attribution = Attribution(func, types, self.language)
        self.attribution.stops = program.stops
        self.attribution.noinline = function.function is not None and function.function.noinline
        self.scope = self.attribution.scope
        self.state: State = {}
        self.returns: list[tuple[Type, Op]] = []
        # States whose types literals take at the end of an iteration: those on other paths to the same place.
        self.destinations: list[State] = []
        self.op: Op = func
        # The names of variables, for messages.
        self.names: dict[Value, str] = {}
        # The variables that are stored to inside an op; see `stored_variables`.
        self.stored_inside: dict[Op, list[Value]] = {}

    def run(self) -> Attribution:
        body = self.func.bodies[0]
        self.scope.types.update(zip(body.parameters, self.attribution.parameter_types, strict=True))
        self.ops(body.entry.ops)
        result: Type | None = None
        for type_, op in self.returns:
            union = type_ if result is None else self.joined(result, type_)
            if isinstance(union, Unusable):
                assert result is not None
                self.report_returns(result, type_, op)
                union = ERROR
            result = union
        self.attribution.result = NONE if result is None else result
        return self.attribution

    def report_returns(self, result: Type, type_: Type, op: Op) -> None:
        """Note that a `return` gives a value of another type than those before it."""
        first, second = describe(result), describe(type_)
        hint = "return values of one type on every path"
        if not self.language.is_triton:
            name = self.func.attributes["sym_name"]
            summary = say("'{}' returns {} on one path and {} here", name, first, second)
            self.report(op, KernelTypeError(summary, hint=hint))
            return
        summary = say("Return type mismatch: Inconsistent return types: {} and {}", first, second)
        error = KernelTypeError(summary, hint=hint)
        error.add(say("{} is returned here", first), self.returns[0][1].location)
        error.add(say("{} is returned here", second), op.location)
        self.report(self.func, error)  # Triton's place is the function.

    def joined(self, first: Type, second: Type) -> Type:
        """The type of what two returns give. A path may end without a value; the call gives any value there."""
        if NONE in (first, second):
            return second if first == NONE else first
        return join(first, second)

    def report(self, op: Op, error: ZigguratError) -> None:
        """Note an error at an op, once."""
        if isinstance(error, KernelErrors):
            for part in error.errors:
                self.report(op, part)
            return
        if error.location is None:
            error.location = self.place(op)
        error.say_in(self.words)
        self.program.note(error)

    def warn(self, message: str) -> None:
        """Issue a warning at the current op, once."""
        message = in_words(message, self.words)
        warned = (message, self.place())
        if warned not in self.program.warned:
            self.program.warned.add(warned)
            warn(message, self.op.location)

    def place(self, op: Op | None = None) -> Location | None:
        """The location of an op, by default the current one, with the calls that led there."""
        location = self.op.location if op is None else op.location
        return location.called_from(self.caller) if location is not None and self.caller is not None else location

    def place_of(self, value: Value) -> Location | None:
        """The location of a value's op, with the calls that led there; for a parameter that of the current op."""
        return self.place(value.op if isinstance(value, OpResult) and value.op.location is not None else None)

    def ops(self, ops: Sequence[Op]) -> None:
        """Run ops in the current state."""
        types = self.scope.types
        for op in ops:
            handler = HANDLERS.get(type(op))
            if handler is None:
                raise KernelSyntaxError(f"the op {op.NAME} is not of the Python model", op.location)
            self.op = op
            self.scope.findings.pop(op, None)  # Those of an earlier visit.
            try:
                if any(types.get(operand) is ERROR for operand in op.operands):
                    outcome = self.in_error(op)
                else:
                    outcome = handler(self, op)
            except ZigguratError as error:
                error.say_in(self.words)
                if self.language.is_triton and _has_cause(op, error):
                    kind = TypeError if isinstance(error, KernelTypeError) else ValueError
                    error.__cause__ = error.__cause__ or kind(error.summary)  # Programs read the words there.
                self.report(op, error)
                outcome = self.in_error(op)
            types[op.result] = outcome

    def finding(self, op: Op) -> Finding:
        """The record of facts about an op in the current scope, which callers fill in."""
        return self.scope.findings.setdefault(op, Finding())

    def in_error(self, op: Op) -> Type:
        """Record the effects of an op that is in error or depends on one: they are unknown."""
        if isinstance(op, core.Var):
            self.names[op.result] = op.name
            self.state[op.result] = ERROR
            return op.result.type
        # The ops that stand after an `if` in the source may be in it now, and have errors of their own.
        after = [itertools.dropwhile(lambda inner: not _follows(inner, op), body.entry.ops) for body in op.bodies]
        for inner in op.walk():
            if isinstance(inner, core.Return) or (isinstance(inner, core.VarStore) and is_result(inner.var)):
                self.returned(inner, ERROR)
            elif isinstance(inner, core.VarStore):
                self.state[inner.var] = i1 if is_flag(inner.var) else ERROR
        self.ops(list(itertools.chain(*after)))
        return ERROR

    def combine(self, call: Typing, function: FunctionName | str, types: Sequence[Type]) -> None:
        if isinstance(function, FunctionName):
            symbol = function.symbol
            instance = self._argument(call, function, (*types, *types), "two for each tensor")
        else:
            symbol = COMBINE[function].name
            instance = self.library_function(str(call), COMBINE[function], (*types, *types))
        expected = packed(types)
        if join(instance.result, expected) not in (expected, ERROR):
            gives = "nothing" if instance.result == NONE else describe(instance.result)
            raise KernelTypeError(
                say("{}: '{}' must give {}, as the elements; got {}", call, symbol, describe(expected), gives)
            )
        self.finding(self.op).callee = instance

    def apply(self, call: Typing, function: FunctionName, types: Sequence[Type]) -> Type:
        instance = self.finding(self.op).callee = self._argument(call, function, tuple(types), "one for each element")
        return instance.result

    def _argument(self, call: Typing, function: FunctionName, types: tuple[Type, ...], each: str) -> Attribution:
        """The attribution, for parameters of these types, of a function that is an argument of a call."""
        parameters = function.model.bodies[0].parameters
        if len(parameters) != len(types):
            text = "{}: '{}' must have {} parameters, {}; got {}"
            raise KernelTypeError(say(text, call, function.symbol, len(types), each, len(parameters)))
        if any(parameter.type == constexpr_type for parameter in parameters):
            text = "{}: the parameters of '{}' must be run-time values; got a {}"
            raise KernelTypeError(say(text, call, function.symbol, call_text("constexpr")))
        return self.program.function(function, types, self.place())

    def library_function(self, what: str, function: Function, types: tuple[Type, ...]) -> Attribution:
        """The attribution of a function of the library. An error in it is one of the call `what`, not of our source."""
        known_errors = len(self.program.errors)
        name = FunctionName(function.name, function.model, function)
        instance = self.program.function(name, types, self.place(), self.words)
        if instance.errors:
            self.program.forget_since(known_errors)
            first = instance.errors[0]
            is_named = first.summary.startswith(what)
            raise type(first)(first.summary if is_named else say("{}: {}", what, first.summary), hint=first.hint)
        return instance

    def returned(self, op: Op, type_: Type) -> None:
        """Note what a `return` gives, in the place of what it gave at an earlier visit."""
        if not any(other is op for _, other in self.returns):
            self.returns.append((type_, op))
        else:
            self.returns = [(type_ if other is op else old, other) for old, other in self.returns]


def is_flag(var: Value) -> bool:
    """True of a variable that says which way control has taken."""
    return isinstance(var.op, py.Flag)


def is_result(var: Value) -> bool:
    """True of the variable that holds what the function returns."""
    return isinstance(var.op, py.Result)


def _follows(op: Op, other: Op) -> bool:
    """Whether an op stands after the end of another one in the source."""
    here, place = op.location, other.location
    if here is None or place is None:
        return False
    return (here.line, here.column) >= (place.end_line, place.end_column) != (0, 0)


def _has_cause(op: Op, error: ZigguratError) -> bool:
    """Whether an error of an op has a cause in Triton: the exception that a call of the language raises."""
    return isinstance(op, py.Invoke | py.Call) and not isinstance(error, StaticAssertionError)


def default_warps() -> int:
    """The number of warps of a program where a launch says none."""
    return USUAL_WARPS


class Attributor:
    """Attributes the functions that a kernel reaches; each once for a list of argument types.

    `functions` are the Python models that calls by symbol mean, where a model does not come from a `Function` with
    callees of its own. `instances` holds the results in the order in which they were finished, so callees come before
    callers. `num_warps` gives the number of warps of a program to a kernel that asks for it, and `dot_precision` the
    precision of a `tl.dot` that names none, or None for that of the language. `language` is that of models that do not
    come from a `Function`. With `stops`, functions have the marks of their statements; see `with_statements`.
    """

    def __init__(
        self,
        functions: Mapping[str, Op] | None = None,
        num_warps: Callable[[], int] = default_warps,
        dot_precision: Callable[[], str | None] = lambda: None,
        language: Language = EXPLICIT,
        stops: bool = False,
    ) -> None:
        self.stops = stops
        self.functions = functions or {}
        self.language = language
        self.num_warps, self.dot_precision = num_warps, dot_precision
        self.instances: dict[tuple[int, tuple[Type, ...]], Attribution] = {}
        self.errors: dict[tuple[str, Location | None], ZigguratError] = {}
        self.warned: set[tuple[str, Location | None]] = set()
        self.unrolling: int | None = None
        self._stack: list[Op] = []
        # The keys, as in `instances`, of the functions on the stack.
        self._running: set[tuple[int, tuple[Type, ...]]] = set()
        self._symbols: dict[str, tuple[int, tuple[Type, ...]]] = {}
        # Functions whose source is in error, and the errors.
        self.broken: dict[Function, tuple[ZigguratError, ...]] = {}

    def note(self, error: ZigguratError) -> None:
        """Note an error, once for its place."""
        self.errors.setdefault((error.summary, error.location), error)

    def forget_since(self, count: int) -> None:
        """Forget the errors after the first ones."""
        for key in list(self.errors)[count:]:
            del self.errors[key]

    def function(
        self, function: FunctionName, types: tuple[Type, ...], caller: Location | None, words: Words | None = None
    ) -> Attribution:
        """The attribution of a function at these argument types. Its name begins the symbol in the Triton model.

        Its errors are in `words`, by default in those of its language.
        """
        func = function.model
        key = (id(func), types)  # The attribution holds the model, which keeps the identity valid.
        instance = self.instances.get(key)
        if instance is not None:
            # A loop that is visited again drops the errors of the visit before; the errors of its callees would not be
            # found again.
            for error in instance.errors:
                self.note(error)
            return instance
        if key in self._running:
            first = next(index for index, entry in enumerate(self._stack) if entry is func)
            chain = " → ".join([*(str(entry.attributes["sym_name"]) for entry in self._stack[first:]), function.symbol])
            raise KernelSyntaxError(
                f"recursion: {chain}", hint="write a loop instead: a function of the language cannot reach itself"
            )
        self._stack.append(func)
        self._running.add(key)
        errors_before = len(self.errors)
        try:
            new = FunctionAttributor(self, function, types, caller, words).run()
        finally:
            self._stack.pop()
            self._running.discard(key)
        new.errors = tuple(self.errors.values())[errors_before:]
        new.symbol = self._name(function.symbol, key, new)
        new.symbols = self._symbols.keys()
        self.instances[key] = new
        return new

    def _name(self, name: str, key: tuple[int, tuple[Type, ...]], attribution: Attribution) -> str:
        """The symbol of an instance: the function's name, argument types (constants by value) and result type."""
        parts = [name.rsplit(".", 1)[-1], *map(symbol_part, attribution.parameter_types)]
        parts.append("void" if attribution.result == NONE else symbol_part(attribution.result))
        symbol = base = "_".join(parts)
        count = 0
        while self._symbols.setdefault(symbol, key) != key:
            count += 1
            symbol = f"{base}_{count}"
        return symbol


def attribute(
    kernel: Function | Op,
    types: Sequence[Type],
    functions: Mapping[str, Op] | None = None,
    num_warps: Callable[[], int] = default_warps,
    dot_precision: Callable[[], str | None] = lambda: None,
    language: Language = EXPLICIT,
    stops: bool = False,
) -> Attribution:
    """Attribute a kernel at these argument types (a `ConstantType` for each constexpr parameter).

    `kernel` is a function, or a Python model, whose calls by symbol mean `functions`. Its attribution leads to those
    of the functions it reaches. `num_warps`, `dot_precision`, `language` and `stops` are those of `Attributor`.
    Raises the errors of the kernel: the one there is, or `KernelErrors` with all of them.
    """
    attributor = Attributor(functions, num_warps, dot_precision, language, stops)
    if isinstance(kernel, Function):
        function = FunctionName(kernel.name, kernel_model(kernel), kernel)
    else:
        function = FunctionName(str(kernel.attributes["sym_name"]), checked(kernel, language))
    name, model = function.symbol, function.model
    attribution: Attribution | None = None
    try:
        for type_ in types:
            check_supported(type_)
        attribution = attributor.function(function, tuple(types), None)
    except ZigguratError as error:
        error.location = error.location or model.location
        attributor.note(error)
    if attribution is not None and not attributor.errors and attribution.result != NONE:
        attributor.note(
            KernelTypeError(
                say("the kernel '{}' returns {}: a kernel returns nothing", name, describe(attribution.result)),
                next((op.location for op in model.walk() if isinstance(op, core.Return) and op.values), model.location),
                STORE_RESULTS(),
            )
        )
    if attributor.errors:
        errors = sorted(attributor.errors.values(), key=lambda error: _order(error.location))
        error = KernelErrors.of(errors)
        language = kernel.language if isinstance(kernel, Function) else language
        error.say_in(language.words)
        raise language.error(error)
    assert attribution is not None
    return attribution


def _order(place: Location | None) -> list[tuple[int, int]]:
    """The key by which errors stand in the order of the kernel's source: the calls that led there, then the place."""
    keys: list[tuple[int, int]] = []
    while place is not None:
        keys.insert(0, (place.line, place.column))
        place = place.caller
    return keys
