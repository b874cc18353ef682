"""Rules applied until none applies: which are tried on which ops, in which order, and how long."""

import pytest

import ziggurat as zg
from ziggurat import kit
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.op import constant_of
from ziggurat.codemodel.traits import Commutative

MODEL = zg.parse("""
tt.func @"f" (%0 : i32, %1 : i32, %2 : ptr<i32>)i32 -> {
    %3 : i32 = arith.constant @8;
    %4 : i32 = arith.addi %0 %1;
    %5 : i32 = arith.muli %3 %4;
    %6 : i32 = scf.for %0 %1 %3 %5 (%7 : i32, %8 : i32)i32 -> {
        %9 : i32 = arith.muli %8 %3;
        tt.store %2 %9;
        scf.yield %9;
    };
    tt.return %6;
};
""")


def names(model):
    return [op.NAME for op in zg.simplify(model).walk()]


def halved(builder, x, n):
    """x · 2n is (x + x) · n."""
    number = constant_of(n)
    if number % 2:
        return x if number == 1 else None
    half = builder.add(arith.ConstantOp(number // 2, n.type))
    return builder.add(arith.MulI(half, builder.add(arith.AddI(x, x))))


def test_rules_apply_to_what_they_have_added_in_all_bodies():
    rules = kit.Rules("halve")
    rules.add(kit.op_(arith.MulI, kit.capture("x"), kit.constant("n")), halved)
    new = rules(MODEL)
    zg.verify(new)
    assert "arith.muli" not in names(new) and names(new).count("arith.addi") == 1 + 3 + 3
    assert rules(new) is new and repr(rules) == "<1 rules 'halve'>"
    assert any(op.location is None or op.location.made_in == "halve" for op in new.walk() if isinstance(op, arith.AddI))
    assert zg.kit.run_passes(MODEL, [rules, zg.simplify], verify=True).NAME == "tt.func"


def test_the_first_rule_that_applies_is_applied():
    """Whether it is of a class, a trait or a pattern, with a constant or without."""
    for order in ("abcd", "dcba", "bdac"):
        calls = []
        rules = kit.Rules()

        def note(name, calls=calls):
            def rule(builder, op=None, operands=None, **captures):
                calls.append(name)

            return rule

        for name in order:
            if name == "a":
                rules.of(arith.MulI)(note(name))
            elif name == "b":
                rules.of(Commutative, tt.Load)(note(name))
            elif name == "c":
                rules.add(kit.op_(arith.MulI, kit.constant(value=8), kit.anything()), note(name))
                rules.add(kit.op_(arith.MulI, kit.constant(value=9), kit.anything()), note("never"))
                rules.add(
                    kit.op_(arith.MulI, kit.op_(arith.SubI, *[kit.anything()] * 2), kit.anything()), note("never")
                )
            else:
                rules.add(
                    kit.op_(arith.MulI, kit.capture("x", kit.op_(arith.AddI, *[kit.anything()] * 2)), kit.anything()),
                    note(name),
                )
        assert rules(MODEL) is MODEL
        sequence = "".join(calls)
        first = [c for c in order if c in "b"] + [*order] + [c for c in order if c in "abc"]
        assert sequence == "".join(first)


def test_rules_look_through_uses_and_around_loops_to_a_fixpoint():
    """An op that lost its second use, which is seen when all ops are asked about again."""
    rules = kit.Rules("single")

    @rules.of(arith.SubI)
    def cancel(builder, op, operands):
        return operands[0] if constant_of(operands[1]) == 0 else None

    @rules.of(arith.XOrI)
    def once(builder, op, operands):
        return builder.add(arith.OrI(*operands)) if len(op.result.uses) == 1 else None

    model = zg.parse("""
    tt.func @"f" (%0 : i32, %1 : i32)i32 -> {
        %2 : i32 = arith.xori %0 %1;
        %3 : i32 = arith.constant @0;
        %4 : i32 = arith.subi %2 %3;
        %5 : i32 = arith.addi %4 %1;
        tt.return %5; };""")
    assert names(rules(model)) == ["tt.func", "arith.ori", "arith.addi", "tt.return"]


def test_few_rules_are_tried_and_few_ops_are_asked_about_again():
    count, calls = 1000, []
    lines = ["%2 : i32 = arith.constant @0;", "%3 : i32 = arith.addi %0 %2;"]
    lines += [f"%{n} : i32 = arith.{'addi' if n % 10 else 'subi'} %{n - 1} %1;" for n in range(4, count)]
    model = zg.parse(f'tt.func @"f" (%0 : i32, %1 : i32)i32 -> {{ {" ".join(lines)} tt.return %{count - 1}; }};')
    rules = kit.Rules()
    for number in range(1000):
        pattern = kit.op_(arith.AddI, kit.capture("x"), kit.constant(value=number))
        rules.add(pattern, lambda builder, x, n=number: calls.append(n) or (x if n == 0 else None))
    new = rules(model)
    assert calls == [0, 0]  # By the look whether anything is to be done, and by the round that does it.
    assert len([*new.walk()]) == len([*model.walk()]) - 1


def test_endless_rules_are_an_error():
    rules = kit.Rules("swap")

    @rules.of(arith.AddI)
    def swapped(builder, op, operands):
        return builder.add(arith.AddI(*operands[::-1]))

    with pytest.raises(zg.BuildError, match=r"applied \d+ times, and apply still: 'swapped' to arith\.addi"):
        rules(MODEL)
    with pytest.raises(zg.BuildError, match="applied 7 times"):
        kit.fixpoint(MODEL, lambda op, operands: [swapped] if isinstance(op, arith.AddI) else [], limit=7)
    for wrong, message in (
        (lambda: rules.of(), "one class of ops or more"),
        (lambda: rules.of(int), "a class of ops, or a trait"),
        (lambda: rules.of(arith.AddI)(3), "a rule must be a function"),
        (lambda: rules.add(kit.capture("x"), swapped), "must be of an op"),
        (lambda: rules.add(kit.op_(arith.AddI), 3), "must be a function"),
        (lambda: kit.Rules(limit=0)(MODEL), "must be a number of applications"),
    ):
        with pytest.raises(zg.KernelTypeError, match=message):
            wrong()


def test_what_rules_add_is_asked_about_in_the_same_round():
    """A chain of a thousand applications makes one new model, and the users of its value are asked once, at the end."""
    rules, operand_ops = kit.Rules("count"), []

    @rules.of(arith.SubI)
    def down(builder, op, operands):
        number = constant_of(operands[1])
        return (
            builder.add(arith.SubI(operands[0], builder.add(arith.ConstantOp(number - 1, op.result.type))))
            if number
            else operands[0]
        )

    @rules.of(arith.AddI)
    def final(builder, op, operands):
        operand_ops.append(type(operands[0].op))

    model = zg.parse("""
    tt.func @"f" (%0 : i32)i32 -> {
        %1 : i32 = arith.constant @1000;
        %2 : i32 = arith.subi %0 %1;
        %3 : i32 = arith.addi %2 %2;
        tt.return %3; };""")
    new = rules(model)
    zg.verify(new)
    assert [op.NAME for op in zg.kit.run_passes(new, [zg.simplify]).walk()] == ["tt.func", "arith.addi", "tt.return"]
    assert operand_ops == [type(None)] * 2  # In the round, and when all ops are asked about once more.


def test_an_added_op_is_removed_where_its_uses_are_known():
    """A rule that removes unused ops sees those that another rule has added in the next round."""
    rules = kit.Rules("unused")

    @rules.of(arith.MulI)
    def summed(builder, op, operands):
        return builder.add(arith.AddI(operands[0], builder.add(arith.SubI(*operands))))

    @rules.of(arith.SubI)
    def unused(builder, op, operands):
        return kit.DROP if not op.result.uses else None

    model = zg.parse("""
    tt.func @"f" (%0 : i32)i32 -> {
        %1 : i32 = arith.muli %0 %0;
        %2 : i32 = arith.subi %0 %0;
        tt.return %1; };""")
    assert [op.NAME for op in rules(model).walk()] == ["tt.func", "arith.subi", "arith.addi", "tt.return"]


def test_a_rule_must_not_use_the_result_that_it_replaces():
    rules = kit.Rules("around")

    @rules.of(arith.MulI)
    def wrapped(builder, op, operands):
        return builder.add(arith.AddI(*operands))

    @rules.of(arith.AddI)
    def twice(builder, op, operands):
        return builder.add(arith.SubI(op.result, op.result))

    with pytest.raises(zg.BuildError, match=r"a rule for arith\.addi uses the result that it replaces"):
        rules(zg.parse('tt.func @"f" (%0 : i32)i32 -> { %1 : i32 = arith.muli %0 %0; tt.return %1; };'))
