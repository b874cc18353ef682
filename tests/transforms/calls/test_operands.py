"""The dtypes of results in Triton's Python, compared with those that Triton 3.6's front end gave."""

import re
from pathlib import Path

import pytest
from call_types import Types

from ziggurat.codemodel.errors import ZigguratError
from ziggurat.codemodel.types import SCALARS, TensorType, Type, i1
from ziggurat.frontends.language.languages import EXPLICIT, SWITCHES, differences
from ziggurat.frontends.triton.language import TRITON
from ziggurat.transforms.calls import RULES, Typing
from ziggurat.transforms.calls.operands import operand_types
from ziggurat.transforms.calls.promotion import constant, scalar_type
from ziggurat.transforms.calls.rule import CallContext

LINES = Path(__file__).with_name("triton_types.txt").read_text("utf-8").splitlines()
DTYPES = LINES[1].removeprefix("# ").split()
CALLS = {"+": "add", "/": "div", "//": "floordiv", "%": "mod", "&": "and_", ">>": "shr", "<": "less"}


def tensor(name: str) -> Type:
    return TensorType((16,), SCALARS[name])


def result(call: str, *operands: Type, language: object = TRITON) -> str:
    try:
        types = operand_types(call, language, list(operands))
        return str(scalar_type(RULES[call].type(Typing(call, CallContext(language)), *types)))
    except ZigguratError:
        return "-"


@pytest.mark.parametrize("line", LINES[2:])
def test_dtypes_of_operators(line: str) -> None:
    form, literal, expected = (part.strip() for part in line.split("|"))
    left, sign, right = re.fullmatch(r"(.+) (\S+) (.+)", form).groups()
    for name, expected_dtype in zip(DTYPES, expected.split(), strict=True):
        if expected_dtype == "?":
            continue
        last = tensor(name)
        if literal:
            operands = (tensor(literal), last)
        else:
            operands = tuple(last if side == "a" else constant(eval(side)) for side in (left, right))
        assert result(CALLS[sign], *operands) == expected_dtype, (form, literal, name)


REDUCED = {
    ("max", "bf16"): "f32", ("max", "i8"): "i32", ("max", "u8"): "i32", ("sum", "i1"): "u32", ("sum", "i8"): "i32",
    ("sum", "bf16"): "bf16", ("cumsum", "bf16"): "f32", ("cumsum", "i1"): "u32", ("cumprod", "i8"): "i8",
    ("cumprod", "bf16"): "f32", ("xor_sum", "i8"): "i8",
}  # fmt: skip


@pytest.mark.parametrize(("name", "dtype"), REDUCED)
def test_dtypes_of_reductions(name: str, dtype: str) -> None:
    typing = Typing(name, Types(TRITON))
    rest = {"max": (0, False, True, False), "cumsum": (0, False), "cumprod": (0, False)}.get(name, (0, False))
    types = operand_types(name, TRITON, [tensor(dtype), *rest])
    assert str(scalar_type(RULES[name].type(typing, *types))) == REDUCED[name, dtype]


def test_a_dtype_that_is_asked_for_is_kept() -> None:
    typing = Typing("sum", Types(TRITON))
    for dtype in ("i1", "i8", "bf16"):
        types = operand_types("sum", TRITON, [tensor("i1"), 0, False, SCALARS[dtype]])
        assert str(scalar_type(RULES["sum"].type(typing, *types))) == dtype


def test_the_explicit_calls_keep_theirs() -> None:
    assert result("maximum", tensor("bf16"), constant(1.0), language=EXPLICIT) == "bf16"
    assert result("maximum", tensor("bf16"), constant(1.0)) == "f32"
    assert result("add", tensor("i1"), tensor("i1"), language=EXPLICIT) == "i32"
    assert result("add", tensor("i1"), tensor("i1")) == str(i1)
    assert result("exp", tensor("f16"), language=EXPLICIT) == "f16"
    assert result("exp", tensor("f16")) == "-"


def test_each_difference_is_described() -> None:
    rows = differences(EXPLICIT, TRITON)
    assert len(set(rows)) == len(SWITCHES) and differences(TRITON, EXPLICIT) == []
