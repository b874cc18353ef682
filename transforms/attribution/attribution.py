"""The findings of attribution: the types of a function's values at one list of argument types, and facts that depend on
them, such as callees and unrolled iterations."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import ZigguratError
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.text.writer import to_text
from ziggurat.codemodel.types import ConstantType, Type, VarType, void
from ziggurat.frontends.language.policy import Policy
from ziggurat.transforms.calls.lattice import RangeType, Unusable


class Scope:
    """Findings about the ops of a function, or of one iteration of an unrolled loop (`parent` is the scope around it).

    Tables about an op are keyed by its result.
    """

    __slots__ = ("arguments", "callees", "exits", "joins", "parent", "ranges", "static_branches", "types", "unrolled")

    def __init__(self, parent: Scope | None = None) -> None:
        self.parent = parent
        # The type of each value.
        self.types: dict[Value, Type] = {}
        # The arguments of a call of the language by parameter; a Value of the Python model, or a constant.
        self.arguments: dict[Value, dict[str, Any]] = {}
        # The callee of a call, or the combining function of a reduction.
        self.callees: dict[Value, Attribution] = {}
        # The body that runs, 0 or 1, of an `if` whose condition is known at compile time.
        self.static_branches: dict[Value, int] = {}
        # The types, where control flow joins, of the variables that are stored inside a loop or an `if`, in the order
        # of the first store.
        self.joins: dict[Value, dict[Value, Type]] = {}
        # For a loop that a `break` may leave: the types, after the loop, of the variables that are stored inside. The
        # scope of an iteration of an unrolled loop has an empty table here if a `break` may leave the iteration. If
        # control may reach the end of the iteration, `joins` of that scope has the types there.
        self.exits: dict[Value, dict[Value, Type]] = {}
        # The iterations of an unrolled loop: the type of the item, and a scope.
        self.unrolled: dict[Value, list[tuple[Type, Scope]]] = {}
        # The range of a loop that counts.
        self.ranges: dict[Value, RangeType] = {}

    def type_of(self, value: Value) -> Type:
        """The attributed type of a value of the Python model."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.types.get(value)
            if found is not None:
                return found
            scope = scope.parent
        raise KeyError(value)


class Attribution:
    """The findings about a function at one list of argument types. `symbol` is its name in the Triton model."""

    def __init__(self, func: Op, parameter_types: tuple[Type, ...], policy: Policy) -> None:
        self.func = func
        # The rules of the language of the function.
        self.policy = policy
        self.parameter_types = parameter_types
        self.result: Type = void
        self.symbol = ""
        # The symbols of all functions that were attributed with this one.
        self.symbols: Collection[str] = ()
        self.scope = Scope()
        # The errors of the function, and of the functions that it calls, at these types.
        self.errors: tuple[ZigguratError, ...] = ()

    def __str__(self) -> str:
        """The Python model, with the attributed type of each value under its op. Iterations of unrolled loops are left
        out."""

        def remark(op: Op) -> Iterable[str]:
            found = self.scope.types.get(op.result)
            if found is None or isinstance(found, Unusable | VarType) or op is self.func:
                return
            if isinstance(found, ConstantType) and found.value is None and not isinstance(op, core.ConstantOp):
                return  # A statement, or a call that gives nothing.
            yield f"-> {found}"

        return to_text(self.func, remark=remark)
