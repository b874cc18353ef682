"""Syntax trees: parentheses, and chains of binary operators."""

from __future__ import annotations

from typing import Final

import lark

from ziggurat.frontends.triton_c.grammar import LEVELS, Node

_LEVEL: Final = {sign: level for level, signs in enumerate(LEVELS) for sign in signs}


def without_groups(node: Node) -> Node:
    """An expression without parentheses around it."""
    while node.data == "group":
        node = node.children[1]
    return node


def grouped(chain: Node) -> Node:
    """A chain of operands and binary operators as a tree: a `binary` of two operands, which may be such trees."""
    items = chain.children
    if len(items) == 3:
        return lark.Tree("binary", items)
    operands: list[Node] = [items[0]]
    signs: list[Node] = []

    def reduce() -> None:
        right, left = operands.pop(), operands.pop()
        operands.append(lark.Tree("binary", [left, signs.pop(), right]))

    for sign, operand in zip(items[1::2], items[2::2], strict=True):
        while signs and _LEVEL[str(signs[-1])] >= _LEVEL[str(sign)]:
            reduce()
        signs.append(sign)
        operands.append(operand)
    while signs:
        reduce()
    return operands[0]
