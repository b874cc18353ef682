"""Tables of functions by op class."""

import pytest

from ziggurat.codemodel.dialects import arith, core
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.errors import InternalError
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.traits import Pure


@pytest.fixture
def table():
    result = OpTable("symbol")

    @result.of(arith.AddI, arith.AddF)
    def plus(op):
        return "+"

    @result.of(Pure)
    def pure(op):
        return "?"

    return result


def ops(text: str):
    return parse(f'tt.func @"f" (%n : i32)void -> {{ {text} tt.return; }};').bodies[0].entry.ops


def test_an_op_finds_its_own_entry(table):
    (add, *_) = ops("%0 : i32 = arith.addi %n %n;")
    assert table[add](add) == "+"
    assert table.get(arith.AddF) is table.get(arith.AddI)


def test_a_trait_serves_the_ops_without_their_own(table):
    (mul, *_) = ops("%0 : i32 = arith.muli %n %n;")
    assert table[mul](mul) == "?"


def test_an_entry_made_later_is_found(table):
    assert table.get(arith.MulI)(None) == "?"
    table.of(arith.MulI)(lambda op: "*")
    assert table.get(arith.MulI)(None) == "*"


def test_an_op_without_an_entry(table):
    assert table.get(core.Return) is None
    assert core.Return not in table
    (last,) = ops("")
    with pytest.raises(InternalError, match=r"'tt.return' has no symbol"):
        table[last]
    assert table.missing([core.Return, core.Yield, arith.AddI]) == ["return", "yield"]


def test_two_entries_for_one_op(table):
    with pytest.raises(ValueError, match=r"'arith.addi' has a symbol already"):
        table.of(arith.AddI)(lambda op: "-")
