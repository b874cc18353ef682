"""Tables of calls, a file for each group of the language: the type of the result and the ops, or the error.

A row is `expression -> type: op; op` or `expression -> error: message`. Operands are written as their types: `i32[16]`
is a tensor of 16 integers, and `ptr<f32>` a pointer. They are `%0`, `%1` … of the ops; the results of the ops are
numbered on from there. Calls of `tl` stand in Triton's Python. The calls of Triton-C, `c.load(…)`, stand in Python
models that a program builds. `--bless` renews the rows, without `-n`, because the rows of a group share a file; a new
row is written as its expression and ` -> `.
"""

from __future__ import annotations

import ast
import itertools
import linecache
import re
from pathlib import Path
from typing import Any

import pytest

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core, py, tt
from ziggurat.codemodel.errors import ZigguratError
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.text.parser import parse_values
from ziggurat.codemodel.types import ConstantType, TensorType, TupleType, Type, pyobject
from ziggurat.frontends.language import SIGNATURES
from ziggurat.frontends.triton_c.c_calls import C_SIGNATURES
from ziggurat.transforms.attribution.attribute import Attributor
from ziggurat.transforms.calls.c import C_CALLS
from ziggurat.transforms.calls.constant_arguments import FunctionName
from ziggurat.transforms.calls.promotion import NONE
from ziggurat.transforms.calls.rule import TABLES
from ziggurat.transforms.mirror import mirror
from ziggurat.transforms.unsupported import kernel_model

HERE = Path(__file__).parent
FILES = {file.stem: file.read_text(encoding="utf-8").splitlines() for file in sorted(HERE.glob("*.txt"))}
ROWS = [(group, row) for group, rows in FILES.items() for row in rows]
_TYPE = re.compile(r"(?<![\w.'\"])((?:ptr|descriptor)<[^>]*>|(?:bf|f|i|u|f8e)\d+(?:m\d)?)(\[[\d, ]*\])?(?![\w'\"])")
_numbers = itertools.count()


@zg.function
def larger(a, b):
    return zg.maximum(a, b)


@zg.function
def both(a, b, c, d):
    return zg.add(a, c), zg.add(b, d)


@zg.function
def number_and_block(a):
    return a, zg.arange(0, 4)


NAMES = {
    "zg": zg,
    "tl": tl,
    "K": zg.CompareKind,
    "BYTES": zg.ptr(zg.i8),
    "FLOATS": zg.ptr(zg.f32),
    "larger": larger,
    "both": both,
    "number_and_block": number_and_block,
}


def outcome(expression: str) -> str:
    """The type and the ops of a call on operands of these types, or its error."""
    types: list[Type] = []

    def operand(match: re.Match[str]) -> str:
        element, shape = match.groups()
        (type_,) = parse_values(element, "type")
        types.append(type_ if shape is None else TensorType(tuple(map(int, re.findall(r"\d+", shape))), type_))
        return f"a{len(types) - 1}"

    body = _TYPE.sub(operand, expression)
    try:
        name = c_call(body, len(types)) if body.startswith("c.") else function(body, len(types))
        attributor = Attributor()
        attribution = attributor.function(name, tuple(types), None)
        if attributor.errors:
            raise next(iter(attributor.errors.values()))
        module = mirror(attribution)
        zg.verify(module)
    except ZigguratError as error:
        return f"error: {error.summary}" + (f" (hint: {error.hint})" if error.hint else "")
    func = next(op for op in module.walk() if isinstance(op, tt.Func) and op.attributes["sym_name"].startswith("call_"))
    return f"{shown(attribution.result)}: {'; '.join(_ops(str(func)))}".strip()


def function(body: str, count: int) -> FunctionName:
    """A function of the language that returns the value of an expression of its parameters a0, a1 …"""
    parameters = ", ".join(f"a{index}" for index in range(count))
    text = f"def call({parameters}):\n    return {body}\n"
    file = f"<call {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    space: dict[str, Any] = dict(NAMES)
    exec(compile(text, file, "exec"), space)
    call = (triton.jit if "tl." in body else zg.function)(space["call"])
    return FunctionName("call", kernel_model(call), call)


def c_call(body: str, count: int) -> FunctionName:
    """A Python model that returns the value of a call of Triton-C on its parameters a0, a1 …, and on constants."""
    TABLES.setdefault("c", C_CALLS)
    builder = Builder.root([pyobject] * count, pyobject)

    def value(node: ast.expr) -> Value:
        if isinstance(node, ast.Name) and re.fullmatch(r"a\d+", node.id):
            return builder.parameters[int(node.id[1:])]
        if isinstance(node, ast.Call):
            values = [value(part) for part in (*node.args, *(keyword.value for keyword in node.keywords))]
            keywords = tuple(str(keyword.arg) for keyword in node.keywords)
            return builder.add(py.Invoke(values, ast.unparse(node.func), keywords=keywords))
        return builder.add(core.ConstantOp(eval(ast.unparse(node), NAMES), type=pyobject))

    builder.add(core.Return([value(ast.parse(body, mode="eval").body)]))
    model: Op = core.Func("call", builder.finish())
    return FunctionName("call", model)


def shown(type_: Type) -> str:
    """A type as rows write it."""
    if isinstance(type_, TensorType):
        return f"{type_.element}[{', '.join(map(str, type_.shape))}]"
    if isinstance(type_, TupleType):
        return f"({', '.join(map(shown, type_.components))})"
    if type_ == NONE:
        return "nothing"
    if isinstance(type_, ConstantType):
        return f"constant {shown(type_.value) if isinstance(type_.value, Type) else repr(type_.value)}"
    return str(type_)


def _ops(func: str) -> list[str]:
    """The ops of a function's text without their results and bodies, and without a return of the last result."""
    lines = [line.strip() for line in func.splitlines() if re.match(r"    [%a-z]", line)]
    last, _, _ = lines[-2].partition(" : ") if len(lines) > 1 else ("", "", "")
    if lines[-1] in (f"tt.return {last};", "tt.return;"):
        del lines[-1]
    return [re.sub(r"^%\w+ : .*? = ", "", line.partition(" (%")[0].removesuffix(";")) for line in lines]


@pytest.mark.parametrize(("group", "row"), ROWS, ids=[row.partition(" -> ")[0] for _, row in ROWS])
def test_a_call(group: str, row: str, request: pytest.FixtureRequest) -> None:
    expression = row.partition(" -> ")[0]
    actual = f"{expression} -> {outcome(expression)}"
    if request.config.getoption("--bless") and row != actual:
        rows = FILES[group]
        rows[rows.index(row)] = actual
        (HERE / f"{group}.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    else:
        assert actual == row


def test_each_call_has_rows() -> None:
    calls = {match[1] for _, row in ROWS if (match := re.match(r"(zg\.\w+|c\.\w+)\(", row))}
    names = {f"zg.{name}" for name in SIGNATURES} | {f"c.{name}" for name in C_SIGNATURES}
    assert names - calls == LOOPS


LOOPS = {"zg.range", "zg.static_range"}  # These are no expressions.
