"""Walks of graphs that are given by a function from a node to the nodes after it, and tables of lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

Node = TypeVar("Node")
Key = TypeVar("Key")
Item = TypeVar("Item")


def by_key(pairs: Iterable[tuple[Key, Item]]) -> dict[Key, list[Item]]:
    """The items of each key, in their order."""
    table: dict[Key, list[Item]] = {}
    for key, item in pairs:
        table.setdefault(key, []).append(item)
    return table


def inverse(edges: Mapping[Node, Iterable[Node]]) -> dict[Node, list[Node]]:
    """The nodes that lead to each node, for those that each leads to."""
    return by_key((target, source) for source, targets in edges.items() for target in targets)


def reverse_postorder(entry: Node, successors: Callable[[Node], Sequence[Node]]) -> tuple[Node, ...]:
    """The nodes of a graph reachable from `entry`, each before the nodes it alone leads to."""
    order: list[Node] = []
    visited = {entry}
    stack = [(entry, list(successors(entry)))]
    while stack:
        node, rest = stack[-1]
        if not rest:
            order.append(node)
            stack.pop()
            continue
        following = rest.pop()  # The last successor is visited first, so that the first one comes first in the result.
        if following not in visited:
            visited.add(following)
            stack.append((following, list(successors(following))))
    return tuple(reversed(order))


def reached(start: Iterable[Node], following: Callable[[Node], Iterable[Node]]) -> set[Node]:
    """The nodes of `start`, and all that come after them."""
    result = set(start)
    work = list(result)
    while work:
        for node in following(work.pop()):
            if node not in result:
                result.add(node)
                work.append(node)
    return result
