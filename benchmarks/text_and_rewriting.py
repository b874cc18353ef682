"""Parsing, printing, verifying and rewriting a model, against xDSL in the same process.

The model is a function of 20,000 ops of arith. The rewriting is of each addition of a constant zero, which are few, and
of each product with a constant into sums, one doubling after the other, by the greedy driver of each; ours also with
1,000 rules. Needs xDSL (`pip install xdsl`). Ours and theirs take turns; the least processor time of seven runs counts,
without garbage collection.
"""

import gc
import random
import time

from ziggurat import kit
from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import i32
from ziggurat.codemodel.verify import verify

OPS, KINDS = 20_000, (arith.AddI, arith.MulI, arith.SubI, arith.AndI, arith.OrI, arith.XOrI)


def names():
    """The op and the operands of each value: two parameters, 100 constants, and ops of recent values."""
    random.seed(0)
    for number in range(102, OPS - 1):
        right = 2 + random.randrange(100) if number % 2 else number - 1 - random.randrange(20)
        yield random.randrange(len(KINDS)), number - 1 - random.randrange(20), right


def ours():
    builder = Builder.root([i32, i32], i32)
    values = [*builder.parameters, *(builder.add(arith.ConstantOp(n, i32)) for n in range(100))]
    for kind, left, right in names():
        values.append(builder.add(KINDS[kind](values[left], values[right])))
    builder.add(tt.Return([values[-1]]))
    return tt.Func("f", builder.finish())


def rules(count):
    group = kit.Rules("zeros")
    group.add(kit.op_(arith.AddI, kit.capture("x"), kit.constant(value=0)), lambda builder, x: x)
    for number in range(1, count):
        kind = KINDS[number % len(KINDS)]
        quotient = kit.op_(arith.DivSI, kit.capture("x"), kit.anything())
        group.add(kit.op_(kind, quotient, kit.constant(value=number)), lambda builder, x: x)
    return group


def doubling():
    """x · c is (x + x) · (c // 2), and one x more for an odd c."""
    group = kit.Rules("doubling")

    @group.of(arith.MulI)
    def double(builder, op, operands):
        x, factor = operands
        if not isinstance(factor.op, arith.ConstantOp):
            return None
        if (number := factor.op.value) < 2:
            return x if number else factor
        half = builder.add(arith.ConstantOp(number // 2, i32))
        product = builder.add(arith.MulI(builder.add(arith.AddI(x, x)), half))
        return builder.add(arith.AddI(product, x)) if number % 2 else product

    return group


def seconds(call, prepare=lambda: ()):
    """The processor time of a call."""
    arguments = prepare()
    gc.collect()
    gc.disable()
    begin = time.process_time()
    call(*arguments)
    end = time.process_time()
    gc.enable()
    return end - begin


def of_xdsl():
    from xdsl.context import Context
    from xdsl.dialects import arith as theirs
    from xdsl.dialects.builtin import Builtin, ModuleOp
    from xdsl.dialects.builtin import i32 as their_i32
    from xdsl.dialects.func import Func, FuncOp, ReturnOp
    from xdsl.ir import Block, Region
    from xdsl.parser import Parser
    from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern, op_type_rewrite_pattern

    kinds = (theirs.AddiOp, theirs.MuliOp, theirs.SubiOp, theirs.AndIOp, theirs.OrIOp, theirs.XOrIOp)

    class Zeros(RewritePattern):
        @op_type_rewrite_pattern
        def match_and_rewrite(self, op: theirs.AddiOp, rewriter: PatternRewriter):
            owner = op.rhs.owner
            if isinstance(owner, theirs.ConstantOp) and owner.value.value.data == 0:
                rewriter.replace(op, [], [op.lhs])

    class Doubling(RewritePattern):
        @op_type_rewrite_pattern
        def match_and_rewrite(self, op: theirs.MuliOp, rewriter: PatternRewriter):
            x, factor = op.lhs, op.rhs.owner
            if not isinstance(factor, theirs.ConstantOp):
                return
            number = factor.value.value.data
            if number < 2:
                rewriter.replace(op, [], [x if number else op.rhs])
                return
            new = [theirs.ConstantOp.from_int_and_width(number // 2, 32), theirs.AddiOp(x, x)]
            new.append(theirs.MuliOp(new[1], new[0]))
            if number % 2:
                new.append(theirs.AddiOp(new[2], x))
            rewriter.replace(op, new)

    def module():
        block = Block(arg_types=[their_i32, their_i32])
        values = [*block.args]
        for number in range(100):
            block.add_op(op := theirs.ConstantOp.from_int_and_width(number, 32))
            values.append(op.results[0])
        for kind, left, right in names():
            block.add_op(op := kinds[kind](values[left], values[right]))
            values.append(op.results[0])
        block.add_op(ReturnOp(values[-1]))
        return ModuleOp([FuncOp("f", ([their_i32, their_i32], [their_i32]), Region(block))])

    context = Context()
    for dialect in (Builtin, theirs.Arith, Func):
        context.load_dialect(dialect)
    model = module()
    text = str(model)
    return {
        "parse": (lambda: Parser(context, text).parse_module(),),
        "print": (lambda: str(model),),
        "verify": (lambda fresh: fresh.verify(), lambda: (module(),)),
        "few": (lambda fresh: PatternRewriteWalker(Zeros()).rewrite_module(fresh), lambda: (module(),)),
        "many": (lambda fresh: PatternRewriteWalker(Doubling()).rewrite_module(fresh), lambda: (module(),)),
    }


def main():
    model = ours()
    text = str(model)
    zeros, double, many = rules(1), doubling(), rules(1000)
    many(model)
    mine = {
        "parse": (lambda: parse(text),),
        "print": (lambda: str(model),),
        "verify": (lambda fresh: verify(fresh), lambda: (ours(),)),
        "few": (lambda: zeros(model),),
        "many": (lambda: double(model),),
    }
    theirs = of_xdsl()
    for name in mine:
        runs = [(seconds(*mine[name]), seconds(*theirs[name])) for _ in range(7)]
        here, there = map(min, zip(*runs, strict=True))
        print(f"{name:8} {1e3 * here:7.1f} ms, xDSL {1e3 * there:7.1f} ms: {there / here:.1f}×")
    print(f"rewrite by 1,000 rules: {1e3 * min(seconds(lambda: many(model)) for _ in range(7)):.1f} ms")


if __name__ == "__main__":
    main()
