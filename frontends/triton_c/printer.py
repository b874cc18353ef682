"""Triton-C text of Triton models: a declaration for each value, so that reading the text gives the ops again.

An op that Triton-C cannot express is a `TargetError` that names it: tensor descriptors, ops with several results that
are no call of the language, options of single loops.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Collection, Mapping
from typing import Any

from ziggurat.codemodel.dialects import core, tt
from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.op import Op, require_model
from ziggurat.codemodel.types import TupleType
from ziggurat.frontends.triton_c import print_control, print_reductions, print_values
from ziggurat.frontends.triton_c.function_printer import Printer
from ziggurat.frontends.triton_c.names import KEYWORDS, KNOWN_NAMES
from ziggurat.frontends.triton_c.print_reductions import bare_name, extreme, special

RULES = (print_control, print_reductions, print_values)  # They fill the table of the function printer.


def to_triton_c(model: Op) -> str:
    """Triton-C text of a Triton model: `zg.to_triton_c(kernel.triton(types…))`.

    Reading the text (`zg.triton_c`) gives a model that computes the same. Raises `TargetError` for a model of another
    tier, and for an op that Triton-C cannot express, at the op's place.
    """
    require_model(model, "zg.to_triton_c")
    if isinstance(model, tt.Func):
        functions: Mapping[str, Op] = {model.sym_name: model}
    elif isinstance(model, core.Module):
        functions = model.functions()
    else:
        functions = {}
    if not functions or not all(isinstance(function, tt.Func) for function in functions.values()):
        raise TargetError(f"zg.to_triton_c takes a Triton model, a module with a tt.func; got {model.NAME}")
    return Module(functions).text()


class Module:
    """The functions of a model, by symbol; `names` has their names in C."""

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self.functions = functions
        self.names: dict[str, str] = {}
        self.used: set[str] = set()
        self.written: list[str] = []
        self.counts = collections.Counter(
            value for function in functions.values() for op in function.walk() for value in op.operands
        )
        for symbol in reversed([*functions]):  # The kernel, which comes last, keeps its name.
            self.names[symbol] = self.fresh(bare_name(symbol), KNOWN_NAMES if self.names else KEYWORDS)

    def fresh(self, name: str, avoided: Collection[str] = KNOWN_NAMES) -> str:
        """A name of C that no function has."""
        made, count = name, 0
        while made in self.used or made in avoided:
            count += 1
            made = f"{name}_{count}"
        self.used.add(made)
        return made

    def text(self) -> str:
        """The text of all functions that are called, callees first."""
        made = self._text()
        kernel = next(iter(self.names.values()))
        if kernel in KNOWN_NAMES and len(re.findall(rf"\b{kernel}\(", made)) > 1:
            # The kernel has the name of a call that it makes.
            self.names[next(iter(self.names))] = self.fresh(kernel)
            self.written.clear()
            made = self._text()
        return made

    def _text(self) -> str:
        called = {
            op.callee for function in self.functions.values() for op in function.walk() if isinstance(op, tt.Call)
        }
        for symbol, function in self.functions.items():
            is_kernel = symbol not in called
            if is_kernel or self._needs_text(function):
                self.written.append(
                    Printer(self).function(
                        function, function.body, self.names[symbol], function.divisibility, is_kernel=is_kernel
                    )
                )
        return "\n".join(self.written)

    def _needs_text(self, function: tt.Func) -> bool:
        """Whether a function that is called is written: a reduction that has a form of its own is not."""
        several = isinstance(function.body.yield_type, TupleType)
        return not several and not self._is_special(function) and not self._combines_only(function)

    def _is_special(self, function: tt.Func) -> bool:
        return special(function, self.functions) is not None or extreme(function) is not None

    def _combines_only(self, function: tt.Func) -> bool:
        """Whether a function is called by reductions only that have forms of their own."""
        users = [
            caller
            for caller in self.functions.values()
            for op in caller.walk()
            if isinstance(op, tt.Call) and op.callee == function.sym_name
        ]
        return bool(users) and all(map(self._is_special, users))
