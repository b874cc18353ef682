"""Pictures of models in Graphviz's language: ops and values, the control flow between blocks, and dominator trees."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ziggurat.codemodel.dominance import DominatorTree
from ziggurat.codemodel.errors import KernelValueError, shown
from ziggurat.codemodel.op import Block, Body, Op
from ziggurat.codemodel.text.writer import lines_of
from ziggurat.codemodel.types import void

KINDS = ("values", "blocks", "dominators")


def to_dot(model: Op, kind: str = "values") -> str:
    """A picture of a model as text for Graphviz: `dot -Tsvg`. Raises `KernelValueError` for another kind."""
    if kind not in KINDS:
        raise KernelValueError(f"to_dot: 'kind' must be one of {', '.join(KINDS)}; got {shown(kind)}")
    lines, places = lines_of(model)
    texts = {op.result: text.strip().removesuffix(" -> {").removesuffix(" {") for text, op in lines if op is not None}
    bodies = [body for op in model.walk() for body in op.bodies]
    blocks = {block: f"b{number}" for number, block in enumerate(block for body in bodies for block in body.blocks)}
    ops = {op.result: f"o{number}" for number, op in enumerate(model.walk())}

    def label(text: str) -> str:
        return json.dumps(text, ensure_ascii=False)

    def nodes(op: Op) -> Iterator[str]:
        yield f"{ops[op.result]} [label={label(texts.get(op.result, op.NAME))}];"
        for body in op.bodies:
            for block in body.blocks:
                names = ", ".join(
                    f"{places[p][0]} : {p.type}" if p in places else str(p.type) for p in block.parameters
                )
                yield f"subgraph cluster_{blocks[block]} {{ label={label(f'{op.NAME} ({names})')};"
                yield f"{blocks[block]} [shape=point];"
                for inner in block.ops:
                    yield from nodes(inner)
                yield "}"

    def uses() -> Iterator[str]:
        for op in model.walk():
            for value in op.all_operands():
                if value.type != void:
                    source = ops[value.op.result] if value.op is not None else blocks[_home(value.block)]
                    yield f"{source} -> {ops[op.result]} [label={label(places[value][0] if value in places else '')}];"

    def of_blocks() -> Iterator[str]:
        for block, name in blocks.items():
            text = "".join(f"{texts.get(op.result, op.NAME)}\\l" for op in block.ops)
            yield f"{name} [label={label(text)}];".replace("\\\\l", "\\l")

    def dominated(body: Body) -> Iterator[str]:
        for block, above in DominatorTree(body).parent.items():
            if above is not None:
                yield f"{blocks[above]} -> {blocks[block]};"

    if kind == "values":
        statements = [*nodes(model), *uses()]
    elif kind == "blocks":
        statements = [*of_blocks(), *(f"{blocks[b]} -> {blocks[to]};" for b in blocks for to in b.successors)]
    else:
        statements = [*of_blocks(), *(line for body in bodies for line in dominated(body))]
    return "\n".join(["digraph model {", "node [shape=box, fontname=monospace];", *statements, "}", ""])


def _home(block: Block | None) -> Block:
    assert block is not None  # A value of a finished model is the result of an op, or a parameter of a block.
    return block
