"""Ops whose result does not change with a small change of the operands, and ops that have no gradient."""

from __future__ import annotations

from typing import Any, Final

from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.dialects import math as maths
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.traits import BodyTerminator
from ziggurat.transforms.differentiate.adjoint import Reverse, gradients, no_gradient

# Ops whose derivative is zero wherever it exists: adjoints end here.
CONSTANT: Final[tuple[type, ...]] = (
    arith.CmpF, arith.CmpI, arith.FPToSI, arith.FPToUI, maths.Floor, maths.Ceil, maths.Trunc, maths.RoundEven,
)  # fmt: skip
# Ops that give integers, numbers of programs, pointers, or nothing: these have no adjoint.
INTEGER: Final[tuple[type, ...]] = (
    arith.ConstantOp, arith.IntBinary, arith.ExtSI, arith.ExtUI, arith.TruncI, arith.SIToFP, arith.UIToFP,
    maths.IntUnary, tt.MulHiUI, tt.Grid, tt.SmId, tt.GlobalTimer, tt.MakeRange, tt.Histogram, tt.Poison, tt.AddPtr,
    tt.Bitcast, tt.IntToPtr, tt.PtrToInt, tt.MakeTensorDescriptor, tt.DescriptorFact, tt.DescriptorPadding,
    tt.Func, tt.Print, tt.Assert, tt.Assume, tt.Barrier, tt.GridDependencyWait, tt.GridDependencyLaunch, BodyTerminator,
)  # fmt: skip
# Ops that have no gradient: the reason, and a hint.
REASONS: Final[dict[type[Op], tuple[str, str | None]]] = {
    arith.Bitcast: ("it reads the bits of a number", "compute with floats, or take the gradient of a smooth function"),
    tt.InlineAsm: ("the compiler does not know what the instructions compute", "write the computation in the language"),
    maths.Directed: ("a rounding in one direction has none", "compute with add, mul, div, sqrt and fma"),
    tt.DescriptorGather: ("one row may be read several times", "load through pointers to the elements"),
    tt.DescriptorScatter: ("one row may be written several times", "store through pointers to the elements"),
    tt.Wait: ("what it waits for depends on other programs", None),
    tt.MapElementwise: ("a function that is mapped over elements has none here", "call the function on whole tensors"),
}


def is_constant(op: Op) -> bool:
    """Whether the result of an op has no derivative with respect to its operands."""
    return isinstance(op, CONSTANT)


@gradients.of(*CONSTANT, *INTEGER)
def _nothing(at: Reverse, op: Op, adjoint: Any) -> None:
    """The adjoint ends here."""


@gradients.of(*REASONS)
def _rejected(at: Reverse, op: Op, adjoint: Any) -> None:
    why, hint = REASONS[type(op)]
    raise no_gradient(op, why, hint)
