"""Control flow between blocks of the Triton model, as MLIR's cf dialect names it."""

from __future__ import annotations

from ziggurat.codemodel.dialects.arith import Conditional
from ziggurat.codemodel.fields import attribute, successor
from ziggurat.codemodel.op import Op, Successor
from ziggurat.codemodel.traits import BlockTerminator


class Br(Op, BlockTerminator, name="cf.br"):
    """Go to a block."""

    target: Successor = successor()


class CondBr(Conditional, BlockTerminator, name="cf.cond_br"):
    """Go to one block where the condition holds, to the other where not."""

    then: Successor = successor()
    otherwise: Successor = successor()


class AssertOp(Conditional, name="cf.assert"):
    """Stop the program with a message unless the condition holds."""

    message: str = attribute(str, unnamed=True)
