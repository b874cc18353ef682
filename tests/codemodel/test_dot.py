"""Pictures of models: ops and values, control flow, dominators."""

import re

import pytest

import ziggurat as zg

MODEL = zg.parse("""
tt.func @"f" (%0 : i32, %1 : i1)i32 -> {
    %2 : i32 = arith.addi %0 %0;
    cf.cond_br %1 ^left ^right(%2);

  ^left:
    %3 : i32 = arith.muli %2 %0;
    cf.br ^right(%3);

  ^right(%4 : i32):
    tt.return %4;
};""")


def edges(text):
    return sorted(re.findall(r"(\w+) -> (\w+)", text))


def test_a_picture_of_values_has_the_ops_and_their_operands():
    text = MODEL.to_dot()
    assert text.startswith("digraph model {") and text.count("{") == text.count("}") == 1 + 3
    assert '[label="%2 : i32 = arith.addi %0 %0;"]' in text and "tt.func (%0 : i32, %1 : i1)" in text
    assert [("b0", "o1")] * 2 == [edge for edge in edges(text) if edge[1] == "o1"]
    assert ("o1", "o2") in edges(text) and ("o3", "o4") in edges(text) and ("b2", "o5") in edges(text)


def test_pictures_of_blocks_have_control_flow_and_dominators():
    flow, tree = MODEL.to_dot("blocks"), MODEL.to_dot("dominators")
    assert edges(flow) == [("b0", "b1"), ("b0", "b2"), ("b1", "b2")]
    assert edges(tree) == [("b0", "b1"), ("b0", "b2")]
    assert r"arith.addi %0 %0;\l" in flow
    with pytest.raises(zg.KernelValueError, match="must be one of values, blocks, dominators; got 'tree'"):
        MODEL.to_dot("tree")
