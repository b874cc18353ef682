"""The meanings of the ops on Python's objects, names and modules in the interpreter of functions."""

from __future__ import annotations

import builtins
import importlib
import operator
import string
import sys
from collections.abc import Iterator
from typing import Any

from ziggurat.codemodel.dialects import py_objects as objects
from ziggurat.codemodel.dialects import py_suites as suites
from ziggurat.codemodel.execute import UNSET, python
from ziggurat.codemodel.interpret_functions import FunctionInterpreter
from ziggurat.codemodel.python_operators import BY_SIGN


@python.of(objects.StoreOuter)
def _store_outer(interpreter: FunctionInterpreter, op: objects.StoreOuter, operands: tuple[Any, ...]) -> None:
    cell = interpreter.cells.get(op.name)
    if cell is not None:
        cell.cell_contents = operands[0]
    else:
        interpreter.scope[op.name] = operands[0]


@python.of(objects.DeleteOuter)
def _delete_outer(interpreter: FunctionInterpreter, op: objects.DeleteOuter, operands: tuple[Any, ...]) -> None:
    cell = interpreter.cells.get(op.name)
    if cell is not None:
        del cell.cell_contents
    elif op.name in interpreter.scope:
        del interpreter.scope[op.name]
    else:
        raise NameError(f"name '{op.name}' is not defined")


@python.of(objects.LoadName)
def _load_name(interpreter: FunctionInterpreter, op: objects.LoadName, operands: tuple[Any, ...]) -> Any:
    members = interpreter.frame.members
    return members[op.name] if op.name in members else interpreter.outer(op.name)


@python.of(objects.StoreName)
def _store_name(interpreter: FunctionInterpreter, op: objects.StoreName, operands: tuple[Any, ...]) -> None:
    interpreter.frame.members[op.name] = operands[0]


@python.of(objects.DeleteName)
def _delete_name(interpreter: FunctionInterpreter, op: objects.DeleteName, operands: tuple[Any, ...]) -> None:
    del interpreter.frame.members[op.name]


@python.of(objects.Annotate)
def _annotate(interpreter: FunctionInterpreter, op: objects.Annotate, operands: tuple[Any, ...]) -> None:
    interpreter.frame.members.setdefault("__annotations__", {})[op.name] = operands[0]


@python.of(objects.Note)
def _note(interpreter: FunctionInterpreter, op: objects.Note, operands: tuple[Any, ...]) -> None:
    if interpreter.frame.members is not None:
        interpreter.frame.members.setdefault("__annotations__", {})[op.name] = op.text


@python.of(objects.DeleteVar)
def _delete_var(interpreter: FunctionInterpreter, op: objects.DeleteVar, operands: tuple[Any, ...]) -> None:
    if operands[0].content is UNSET:
        interpreter.unset(operands[0])
    operands[0].content = UNSET


@python.of(suites.Caught)
def _caught(interpreter: FunctionInterpreter, op: suites.Caught, operands: tuple[Any, ...]) -> None:
    operands[0].content = operands[1]


@python.of(suites.Import)
def _import(interpreter: FunctionInterpreter, op: suites.Import, operands: tuple[Any, ...]) -> Any:
    module = builtins.__import__(op.name, interpreter.scope, None, op.names or None, op.level)
    if op.whole:
        for part in op.name.split(".")[1:]:
            module = getattr(module, part)
    return module


@python.of(suites.ImportFrom)
def _import_from(interpreter: FunctionInterpreter, op: suites.ImportFrom, operands: tuple[Any, ...]) -> Any:
    module = operands[0]
    try:
        return getattr(module, op.name)
    except AttributeError:
        member = sys.modules.get(f"{module.__name__}.{op.name}")
        if member is not None:
            return member
        raise ImportError(f"cannot import name '{op.name}' from '{module.__name__}'", name=module.__name__) from None


# Objects.


@python.of(objects.InPlace)
def _inplace(interpreter: FunctionInterpreter, op: objects.InPlace, operands: tuple[Any, ...]) -> Any:
    return getattr(operator, f"i{BY_SIGN[op.operator].stem}")(*operands)


@python.of(objects.Chain)
def _chain(interpreter: FunctionInterpreter, op: objects.Chain, operands: tuple[Any, ...]) -> Any:
    left, right = operands
    result = BY_SIGN[op.operators[0]].function(left, right)
    for name, body in zip(op.operators[1:], op.others, strict=True):
        if not result:
            return result
        left, (right, _) = right, interpreter.evaluate(body)
        result = BY_SIGN[name].function(left, right)
    return result


@python.of(objects.Literal)
def _literal(interpreter: FunctionInterpreter, op: objects.Literal, operands: tuple[Any, ...]) -> Any:
    return op.value


@python.of(objects.List, objects.Tuple, objects.Set)
def _display(interpreter: FunctionInterpreter, op: Any, operands: tuple[Any, ...]) -> Any:
    items: list[Any] = []
    for index, value in enumerate(operands):
        items += value if index in op.starred else (value,)
    return items if isinstance(op, objects.List) else tuple(items) if isinstance(op, objects.Tuple) else set(items)


@python.of(objects.Dict)
def _dict(interpreter: FunctionInterpreter, op: objects.Dict, operands: tuple[Any, ...]) -> Any:
    entries: dict[Any, Any] = {}
    rest = iter(enumerate(operands))
    for index, value in rest:
        if index in op.merged:
            entries.update(value)
        else:
            entries[value] = next(rest)[1]
    return entries


@python.of(objects.Slice)
def _slice(interpreter: FunctionInterpreter, op: objects.Slice, operands: tuple[Any, ...]) -> Any:
    return slice(*operands)


@python.of(objects.Spread)
def _spread(interpreter: FunctionInterpreter, op: objects.Spread, operands: tuple[Any, ...]) -> Any:
    cls: Any = operands[0].__class__
    if not hasattr(cls, "__iter__") and not hasattr(cls, "__getitem__"):
        raise TypeError(f"cannot unpack non-iterable {cls.__name__} object")
    iterator = iter(operands[0])
    items = list(_first(iterator, op.count if op.star < 0 else None))
    if op.star < 0:
        if len(items) > op.count:
            raise ValueError(f"too many values to unpack (expected {op.count})")
        if len(items) < op.count:
            raise ValueError(f"not enough values to unpack (expected {op.count}, got {len(items)})")
        return tuple(items)
    after = op.count - op.star - 1
    if len(items) < op.count - 1:
        raise ValueError(f"not enough values to unpack (expected at least {op.count - 1}, got {len(items)})")
    end = len(items) - after
    return (*items[: op.star], items[op.star : end], *items[end:])


def _first(iterator: Iterator[Any], count: int | None) -> Iterator[Any]:
    """The items that are left, no more than one after the first `count`."""
    for index, item in enumerate(iterator):
        yield item
        if count is not None and index == count:
            return


@python.of(objects.StoreAttribute)
def _store_attribute(interpreter: FunctionInterpreter, op: objects.StoreAttribute, operands: tuple[Any, ...]) -> None:
    setattr(operands[0], op.name, operands[1])


@python.of(objects.DeleteAttribute)
def _delete_attribute(interpreter: FunctionInterpreter, op: objects.DeleteAttribute, operands: tuple[Any, ...]) -> None:
    delattr(operands[0], op.name)


@python.of(objects.StoreItem)
def _store_item(interpreter: FunctionInterpreter, op: objects.StoreItem, operands: tuple[Any, ...]) -> None:
    operands[0][operands[1]] = operands[2]


@python.of(objects.DeleteItem)
def _delete_item(interpreter: FunctionInterpreter, op: objects.DeleteItem, operands: tuple[Any, ...]) -> None:
    del operands[0][operands[1]]


@python.of(objects.Template)
def _template(interpreter: FunctionInterpreter, op: objects.Template, operands: tuple[Any, ...]) -> Any:
    library = importlib.import_module("string.templatelib")  # Of Python 3.14.
    texts = iter(op.expressions)
    parts: list[Any] = []
    for literal, field, specification, conversion in string.Formatter().parse(op.template):
        parts.append(literal)
        if field is not None:
            text = (specification or "").format(*operands)
            parts.append(library.Interpolation(operands[int(field)], next(texts, ""), conversion or None, text))
    return library.Template(*parts)
