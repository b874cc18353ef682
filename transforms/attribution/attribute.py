"""Attribution: abstract interpretation of the Python code model with types for values.

The state maps each variable to its type. It splits at an `if`, is joined after it, and is iterated to a fixpoint over a
loop. A path that has returned takes no part in a join. Errors are collected: a value whose op was in error has the type
`ErrorType`, and ops that depend on it are not reported again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import KernelErrors, KernelNameError, KernelSyntaxError, KernelTypeError, ZigguratError
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import Type
from ziggurat.frontends.language import Function

# Each of these modules registers its handlers.
from ziggurat.transforms.attribution import calls as calls
from ziggurat.transforms.attribution import expressions as expressions
from ziggurat.transforms.attribution import flow as flow
from ziggurat.transforms.attribution.attribution import Attribution
from ziggurat.transforms.attribution.walk import FunctionAttributor
from ziggurat.transforms.calls.constants import FunctionName, describe, symbol_part
from ziggurat.transforms.calls.promotion import NONE


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
        self.unrolling: int | None = None
        self._stack: list[Op] = []
        self._symbols: dict[str, tuple[int, tuple[Type, ...]]] = {}
        # Functions whose source is in error.
        self._broken: set[Function] = set()

    def resolve(self, caller: FunctionName, symbol: str) -> FunctionName | None:
        """The function that a call by symbol in `caller` means. None if its errors are reported already."""
        function = None if caller.function is None else caller.function.callees.get(symbol)
        if function is None:
            if symbol in self.functions:
                return FunctionName(symbol, self.functions[symbol])
            raise KernelNameError(f"there is no function '{symbol}' in the module")
        if function in self._broken:
            return None
        try:
            return FunctionName(symbol, function.model, function)
        except ZigguratError:
            self._broken.add(function)
            raise

    def function(self, function: FunctionName, types: tuple[Type, ...], caller: Location | None) -> Attribution:
        """The attribution of a function at these argument types. Its name begins the symbol in the Triton model."""
        func = function.model
        key = (id(func), types)  # The attribution holds the model, which keeps the identity valid.
        known = self.instances.get(key)
        if known is not None:
            # A loop that is visited again drops the errors of the visit before; the errors of its callees would not be
            # found again.
            self.errors.extend(error for error in known.errors if error not in self.errors)
            return known
        if any(entry is func for entry in self._stack):
            first = next(index for index, entry in enumerate(self._stack) if entry is func)
            chain = " → ".join([*(str(entry.attributes["sym_name"]) for entry in self._stack[first:]), function.symbol])
            raise KernelSyntaxError(
                f"recursion: {chain}", hint="write a loop instead: a function of the language cannot reach itself"
            )
        self._stack.append(func)
        errors_before = len(self.errors)
        try:
            made = FunctionAttributor(self, function, types, caller).run()
        finally:
            self._stack.pop()
        made.errors = tuple(self.errors[errors_before:])
        made.symbol = self._name(function.symbol, key, made)
        made.symbols = self._symbols.keys()
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
    if isinstance(kernel, Function):
        function = FunctionName(kernel.name, kernel.model, kernel)
    else:
        function = FunctionName(str(kernel.attributes["sym_name"]), kernel)
    name, model = function.symbol, function.model
    found: Attribution | None = None
    try:
        found = attributor.function(function, tuple(types), None)
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
