"""Control flow between blocks of the Triton model, as MLIR's cf dialect names it."""

from __future__ import annotations

from ziggurat.codemodel.fields import attribute, operand, successor
from ziggurat.codemodel.op import Op, Successor, Value, require
from ziggurat.codemodel.traits import BlockTerminator
from ziggurat.codemodel.types import i1


class Br(Op, BlockTerminator, name="cf.br"):
    """Go to a block."""

    target: Successor = successor()


class CondBr(Op, BlockTerminator, name="cf.cond_br"):
    """Go to one block where the condition holds, to the other where not."""

    condition: Value = operand()
    then: Successor = successor()
    otherwise: Successor = successor()

    def check(self) -> None:
        require(self.condition.type == i1, f"cf.cond_br takes an i1; got {self.condition.type}")


class AssertOp(Op, name="cf.assert"):
    """Stop the program with a message unless the condition holds."""

    condition: Value = operand()
    message: str = attribute(str, unnamed=True)

    def check(self) -> None:
        require(self.condition.type == i1, f"cf.assert takes an i1; got {self.condition.type}")
