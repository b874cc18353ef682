"""Control flow between blocks of the Triton model, as MLIR's cf dialect names it."""

from __future__ import annotations

from ziggurat.codemodel.declare import attribute, operand, operation, successor
from ziggurat.codemodel.op import Op, Successor, Value, require
from ziggurat.codemodel.traits import BlockTerminator
from ziggurat.codemodel.types import i1


@operation("cf.br")
class Br(Op, BlockTerminator):
    """Go to a block."""

    target: Successor = successor()


@operation("cf.cond_br")
class CondBr(Op, BlockTerminator):
    """Go to one block where the condition holds, to the other where not."""

    condition: Value = operand()
    then: Successor = successor()
    otherwise: Successor = successor()

    def check(self) -> None:
        require(self.condition.type == i1, f"cf.cond_br takes an i1; got {self.condition.type}")


@operation("cf.assert")
class AssertOp(Op):
    """Stop the program with a message unless the condition holds."""

    condition: Value = operand()
    message: str = attribute(str, unnamed=True)

    def check(self) -> None:
        require(self.condition.type == i1, f"cf.assert takes an i1; got {self.condition.type}")
