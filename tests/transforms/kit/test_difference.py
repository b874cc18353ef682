"""The difference of two models."""

import ziggurat as zg
from ziggurat.codemodel.dialects import arith
from ziggurat.transforms.kit import difference

BEFORE = zg.parse(
    """tt.func @"f" (%0 : i32)void -> {
    %1 : i32 = arith.constant @1;
    %2 : i32 = arith.muli %0 %1;
    %3 : i32 = arith.addi %2 %0;
    %4 : i32 = arith.subi %3 %2;
    %5 : i32 = arith.subi %4 %2;
    %6 : i32 = arith.subi %5 %2;
    tt.print %6 @"";
    tt.return; };"""
)


def test_equal_models_have_none():
    assert difference(BEFORE, zg.parse(str(BEFORE))) == ""


def test_numbers_that_shift_do_not_count():
    def negate(builder, op, operands):
        if not isinstance(op, arith.AddI):
            return None
        builder.add(arith.ConstantOp(7, zg.i32))
        return builder.copy(op, operands)

    lines = difference(BEFORE, zg.transform(BEFORE, negate), context=1).splitlines()
    assert lines == [
        "…",
        "     %2 : i32 = arith.muli %0 %1;",
        "+    %3 : i32 = arith.constant @7;",
        "     %4 : i32 = arith.addi %2 %0;",
    ]


def test_exchanged_operands_count():
    def exchange(builder, op, operands):
        return builder.add(arith.AddI(operands[1], operands[0])) if isinstance(op, arith.AddI) else None

    lines = difference(BEFORE, zg.transform(BEFORE, exchange), context=0).splitlines()
    assert lines == ["…", "-    %3 : i32 = arith.addi %2 %0;", "+    %3 : i32 = arith.addi %0 %2;"]
