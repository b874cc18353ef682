"""The meaning of the names of a function: its variables, or values from its closure, its globals and the builtins."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import operator
import types
from collections.abc import Callable
from math import inf
from typing import Any, Final, cast

from ziggurat.codemodel.errors import KernelNameError, KernelSyntaxError
from ziggurat.codemodel.messages import say
from ziggurat.frontends.language.aggregates import member
from ziggurat.frontends.language.constants import is_array, is_enum, unwrapped
from ziggurat.frontends.language.function import Function, Use, usable
from ziggurat.frontends.language.languages import EXPLICIT, Language, Spelling
from ziggurat.frontends.language.signature import Call, suggest
from ziggurat.frontends.language.spellings import of_member
from ziggurat.frontends.python.source import Source
from ziggurat.frontends.reflection.scopes import mentions

# The meaning of an expression that is known only when the kernel runs.
DYNAMIC: Final = object()
_MISSING: Final = object()
_contents = operator.attrgetter("cell_contents")

# The modules with the calls of a language, by its prefix.
_MODULES: Final = {"zg": "ziggurat", "tl": "ziggurat.triton.language"}
KINDS: Final = say(
    "from outside a kernel can use numbers, strings, None, dtypes, members of the language's enums, tuples of these, "
    "modules, calls of the language, and functions decorated with {function}"
)


class Names:
    """The names that the function `fn` can see. `locals` are its variables and parameters."""

    def __init__(self, fn: types.FunctionType, source: Source, language: Language = EXPLICIT) -> None:
        code = fn.__code__
        self.source = source
        self.language = language
        # Python 3.12 lists variables of comprehensions among the function's, so the tree decides as well.
        pairs = [pair for statement in source.node.body for pair in mentions(statement)]
        bound = {name for name, node, _ in pairs if not isinstance(getattr(node, "ctx", None), ast.Load)}
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
        self.locals = {*code.co_varnames[:count], *bound.intersection(code.co_varnames + code.co_cellvars)}
        self.cells: dict[str, Any] = dict(zip(code.co_freevars, fn.__closure__ or (), strict=True))
        self.globals = fn.__globals__
        # The uses of globals whose names the function assigns later on.
        self.early: set[ast.AST] = set()
        assigned = set(code.co_varnames[:count])
        for name, node, binds in pairs:
            if binds or isinstance(getattr(node, "ctx", None), ast.Del):
                assigned.add(name)
            elif name in bound and name not in assigned and name in self.globals:
                self.early.add(node)
        # The values from outside that were looked up, by name; see `Function.check_globals`.
        self.uses: dict[str, Use] = {}

    def static(self, node: ast.expr) -> Any:
        """The object that a name or an attribute of a module or an enum refers to; `DYNAMIC` for other expressions.

        Raises `KernelNameError` for an unknown name.
        """
        if isinstance(node, ast.Name):
            return DYNAMIC if node.id in self.locals and node not in self.early else self.outer(node)
        if isinstance(node, ast.Attribute):
            owner = self.static(node.value)
            if isinstance(owner, types.ModuleType) or is_enum(owner):
                target = getattr(owner, node.attr, _MISSING)
                if target is _MISSING:
                    raise self.unknown_member(node, owner)
                names = vars(owner)
                if names.get(node.attr) is target and not _is_ours(owner):
                    if not self.language.strict_globals:
                        self._check_global(node, target)
                    self._note(node, target, names.__getitem__, node.attr)
                return target
            if is_host_object(owner):
                try:
                    target = member(unwrapped(owner), node.attr)
                except AttributeError:
                    text = ast.unparse(node.value)
                    raise KernelNameError(f"'{text}' has no attribute '{node.attr}'", self.source.span(node)) from None
                if not self.language.strict_globals:
                    self._check_global(node, target)
                    self._note(node, target, functools.partial(_attribute, unwrapped(owner)), node.attr)
                return target
        return DYNAMIC

    def outer(self, node: ast.Name) -> Any:
        """The value of a name that is not a variable."""
        name = node.id
        cell = self.cells.get(name)
        if cell is not None:
            try:
                value = _contents(cell)
            except ValueError:
                raise KernelNameError(
                    f"'{name}' has no value yet in the function around this one",
                    self.source.span(node),
                    "assign it before the kernel is used",
                ) from None
            self._check_global(node, value)
            self._note(node, value, _contents, cell)
            return value
        if name in self.globals:
            value = self.globals[name]
            self._check_global(node, value)
            self._note(node, value, self.globals.__getitem__, name)
            return value
        value = getattr(builtins, name, _MISSING)
        if value is _MISSING:
            raise self.unknown(node)
        return value

    def _check_global(self, node: ast.expr, value: Any) -> None:
        """Raise an error for data from outside that may change: in place, which would not be seen, or in a language
        that wants it marked."""
        if not self.language.strict_globals:
            if _may_change(value):
                raise self.rejected(node, value)
            return
        if is_record(value) or not isinstance(value, _DATA) or unwrapped(value) is not value:
            return
        name = ast.unparse(node)
        raise KernelNameError(
            f"Cannot access global variable {name} from within @jit'ed function. Triton kernels can only access "
            "global variables that are instantiated as constexpr",
            self.source.span(node),
            f"write {name} = tl.constexpr({value!r:.60}) outside of the kernel; an annotation, "
            f"{name}: tl.constexpr = …, does not do that",
        )

    def _note(self, node: ast.expr, value: Any, look_up: Callable[[Any], Any], key: Any) -> None:
        """Note the use of a name from outside, if its value can become a part of the model."""
        if not usable(value):
            return
        name, plain = ast.unparse(node), unwrapped(value)
        if plain is not value:  # The value in a `tl.constexpr` may be assigned.
            look_up = functools.partial(_unwrapped_at, look_up)
        self.uses.setdefault(name, Use(name, plain, look_up, key, self.source.span(node), plain is not value))

    def unknown(self, node: ast.Name) -> KernelNameError:
        name = node.id
        hint: str | None = None
        if name in self.language.calls:
            hint = f"did you mean {self.prefix()}.{name}?"
        else:
            names = [n for n in (*self.locals, *self.cells, *self.globals) if not n.startswith("__")]
            hint = suggest(name, names) or suggest(name, self.language.calls, f"{self.prefix()}.")
            hint = hint or suggest(name, BUILTINS)
        return KernelNameError(f"name '{name}' is not defined", self.source.span(node), hint)

    def unknown_member(self, node: ast.Attribute, owner: Any) -> KernelNameError:
        prefix = ast.unparse(node.value)
        if isinstance(owner, types.ModuleType):
            what, ours = "module", _is_ours(owner)
            public = getattr(owner, "__all__", None) or [name for name in dir(owner) if not name.startswith("_")]
            hint = (of_member(node.attr, prefix) if ours else None) or suggest(node.attr, public, f"{prefix}.")
        else:
            what, public = "enum", list(getattr(owner, "__members__", ()))
            hint = suggest(node.attr, public, f"{prefix}.") or f"it has {', '.join(public)}"
        return KernelNameError(f"the {what} '{prefix}' has no '{node.attr}'", self.source.span(node), hint)

    def prefix(self) -> str:
        """The name of the language's module in this function's module."""
        for name, value in self.globals.items():
            if isinstance(value, types.ModuleType) and value.__name__ == _MODULES[self.language.prefix]:
                return name
        return self.language.prefix

    def rejected(self, node: ast.expr, value: object) -> KernelSyntaxError:
        """The error for an expression that names data that may change."""
        name, kind = ast.unparse(node), type(value).__name__
        what, hint = f"is a {kind}, which may change after the kernel is compiled", KINDS
        if is_array(value):
            what = f"is of the type {kind}, which a kernel cannot use"
            hint = say("pass it as an argument, or make it a Python number; {}", KINDS)
        return KernelSyntaxError(f"'{name}' {what}", self.source.span(node), hint)


def _attribute(owner: Any, name: str) -> Any:
    try:
        return member(owner, name)
    except AttributeError:
        raise KeyError(name) from None


def _may_change(value: Any) -> bool:
    """True of data that may change in place: a list, an array."""
    if isinstance(value, tuple):
        return any(map(_may_change, cast("tuple[Any, ...]", value)))
    return isinstance(value, list | dict | set | bytearray) or is_array(value)


def _unwrapped_at(look_up: Callable[[Any], Any], key: Any) -> Any:
    return unwrapped(look_up(key))


def _is_ours(owner: Any) -> bool:
    return owner.__name__.partition(".")[0] == "ziggurat"


# The builtins that a kernel can call, with the least and the largest number of arguments.
BUILTINS: Final[dict[str, tuple[int, float]]] = {
    "range": (1, 3),
    "min": (1, inf),
    "max": (1, inf),
    "abs": (1, 1),
    "len": (1, 1),
    "int": (1, 1),
    "float": (1, 1),
    "bool": (1, 1),
    "isinstance": (2, 2),
    "print": (0, inf),
    "breakpoint": (0, 0),
    "getattr": (2, 3),
    "hasattr": (2, 2),
    "str": (1, 1),
    "repr": (1, 1),
    "list": (0, 1),
    "tuple": (0, 1),
}

# The classes of data that a program may change while it runs.
_DATA = (bool, int, float, str, tuple, list, dict, set)


def is_record(value: Any) -> bool:
    """True of a named tuple."""
    return isinstance(value, tuple) and hasattr(cast(Any, value), "_fields")


def is_host_object(value: Any) -> bool:
    """True of an object whose attributes are read on the host: a class, a member of an enum, a named tuple."""
    value = unwrapped(value)
    if value is DYNAMIC or isinstance(value, Call | Spelling):
        return False
    return isinstance(value, type | Function) or is_record(value) or not usable(value)


def builtin_name(value: Any) -> str | None:
    """The name of a builtin, or None where the object is not one."""
    name = getattr(value, "__name__", None)
    return name if isinstance(name, str) and getattr(builtins, name, None) is value else None
