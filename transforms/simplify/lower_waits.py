"""Waits as loops, for tiers in which the threads of a program need not be told apart.

%4 : i1 = tt.wait %2 %3 @uge;            scf.while
                                             ()void -> {
                             becomes             %5 : u32 = arith.constant @0;
                                                 %6 : u32 = tt.atomic_rmw %2 %5 @or @sem=acquire @scope=sys;
                                                 %7 : i1 = arith.cmpi %6 %3 @uge;
                                                 …
                                                 scf.condition %8; }
"""

from __future__ import annotations

from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import i1, void


def lower_waits(module: Op) -> Op:
    """The model with a loop of ordered loads in place of each `tt.wait`."""
    if not module.holds(tt.Wait):
        return module
    return transform(module, _lowered, pass_name="waits")


def _lowered(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
    if not isinstance(op, tt.Wait):
        return None
    pointer, value = operands[:2]
    start = builder.add(tt.GlobalTimer()) if op.timeout is not None else None
    initial = [builder.add(arith.ConstantOp(False, i1))]
    before = builder.nested([i1], void)
    zero = before.add(arith.ConstantOp(0, value.type))
    number = before.add(tt.AtomicRMW(pointer, zero, kind=tt.AtomicKind.OR, sem=op.sem, scope=op.scope))
    holds = before.add(arith.CmpI(number, value, op.predicate))
    goes_on = before.add(arith.XOrI(holds, before.add(arith.ConstantOp(True, i1))))
    if start is not None:
        elapsed = before.add(arith.SubI(before.add(tt.GlobalTimer()), start))
        early = before.add(arith.CmpI(elapsed, operands[2], arith.IntPredicate.SLT))
        goes_on = before.add(arith.AndI(goes_on, early))
    before.add(scf.Condition(goes_on, [holds]))
    after = builder.nested([i1], i1)
    after.add(scf.Yield([after.parameters[0]]))
    return builder.add(scf.While(initial, before.finish(), after.finish()))
