"""Shared by the tests of passes: before/after in text, an interpreter of scalar programs, and random ones for it."""

from __future__ import annotations

import random
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, cf, core, scf, tt
from ziggurat.codemodel.dispatch import OpTable
from ziggurat.codemodel.interpret import Interpreter, Jump, Returned, Yielded
from ziggurat.codemodel.op import Op, Successor, Value
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import PtrType, VarType, i1, i32
from ziggurat.codemodel.verify import verify

Pass = Callable[[Op], Op]
Check = Callable[..., Op]


@pytest.fixture
def becomes() -> Check:
    """`becomes(step, before, after)`: the pass makes the second text of the first, and leaves it as it is."""

    def check(step: Pass, before: str, after: str) -> Op:
        __tracebackhide__ = True
        model = parse(textwrap.dedent(before))
        text = str(model)
        result = step(model)
        verify(result)
        assert str(result) == str(parse(textwrap.dedent(after)))
        assert str(model) == text, "the pass changed its input"
        again = step(result)
        assert str(again) == str(result), "the pass is not idempotent"
        return result

    return check


class Trap(Exception):
    """The program does what is undefined."""


scalars = OpTable("meaning in numbers")


def _wrap(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def _means(cls: type[Op], function: Callable[..., Any]) -> None:
    @scalars.of(cls)
    def meaning(machine: Machine, op: Any, operands: tuple[Any, ...]) -> Any:
        machine.tick()
        result = function(*operands)
        return _wrap(result) if op.result.type == i32 else bool(result)


def _divide(a: int, b: int) -> int:
    if b == 0 or (a == -(1 << 31) and b == -1):
        raise Trap("division")
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(a: int, b: int) -> int:
    if b == 0:
        raise Trap("remainder")
    return a - b * (abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))


for _cls, _function in {
    arith.AddI: lambda a, b: a + b,
    arith.SubI: lambda a, b: a - b,
    arith.MulI: lambda a, b: a * b,
    arith.AndI: lambda a, b: a & b,
    arith.OrI: lambda a, b: a | b,
    arith.XOrI: lambda a, b: a ^ b,
    arith.MaxSI: max,
    arith.MinSI: min,
    arith.DivSI: _divide,
    arith.RemSI: _remainder,
    arith.Select: lambda c, a, b: a if c else b,
    arith.ExtUI: int,
}.items():
    _means(_cls, _function)


@scalars.of(arith.ConstantOp)
def _constant(machine: Machine, op: arith.ConstantOp, operands: Any) -> Any:
    return op.value


@scalars.of(arith.CmpI)
def _compare(machine: Machine, op: arith.CmpI, operands: Any) -> bool:
    a, b = operands
    return {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[op.predicate.value[-2:]]


@scalars.of(core.MakeTuple)
def _tuple(machine: Machine, op: Op, operands: Any) -> Any:
    return operands


@scalars.of(core.TupleLoad)
def _component(machine: Machine, op: core.TupleLoad, operands: Any) -> Any:
    return operands[0][op.index]


@scalars.of(core.TupleWith)
def _with(machine: Machine, op: core.TupleWith, operands: Any) -> Any:
    return (*operands[0][: op.index], operands[1], *operands[0][op.index + 1 :])


@scalars.of(core.Var)
def _var(machine: Machine, op: Op, operands: Any) -> Any:
    return list(operands)


@scalars.of(core.VarLoad)
def _var_load(machine: Machine, op: Op, operands: Any) -> Any:
    return operands[0][0]


@scalars.of(core.VarStore)
def _var_store(machine: Machine, op: Op, operands: Any) -> None:
    operands[0][:] = [operands[1]]


@scalars.of(tt.AddPtr)
def _add_ptr(machine: Machine, op: Op, operands: Any) -> Any:
    return operands[0] + operands[1]


@scalars.of(tt.Load)
def _load(machine: Machine, op: Op, operands: Any) -> Any:
    if operands[0] not in machine.memory:
        raise Trap("load")
    return machine.memory[operands[0]]


@scalars.of(tt.Store)
def _store(machine: Machine, op: Op, operands: Any) -> None:
    if operands[0] not in machine.memory:
        raise Trap("store")
    machine.memory[operands[0]] = operands[1]


@scalars.of(tt.Print)
def _print(machine: Machine, op: tt.Print, operands: Any) -> None:
    machine.printed.append((op.prefix, operands))


@scalars.of(tt.Poison)
def _poison(machine: Machine, op: Op, operands: Any) -> Any:
    return None


@scalars.of(tt.Return)
def _return(machine: Machine, op: Op, operands: Any) -> Any:
    return Returned(operands)


@scalars.of(scf.Yield, scf.Condition)
def _yield(machine: Machine, op: Op, operands: Any) -> Any:
    return Yielded(operands)


@scalars.of(cf.Br, core.Branch)
def _br(machine: Machine, op: Any, operands: Any) -> Any:
    return _jump(machine, op, op.target)


@scalars.of(cf.CondBr, core.CondBranch)
def _cond_br(machine: Machine, op: Any, operands: Any) -> Any:
    return _jump(machine, op, op.then if operands[0] else op.otherwise)


def _jump(machine: Machine, op: Any, successor: Successor) -> Jump:
    if successor.block.index <= op.parent.index:  # Only jumps back count, as only the iterations of an scf loop do.
        machine.tick()
    return Jump(successor)


@scalars.of(core.Unreachable)
def _unreachable(machine: Machine, op: Op, operands: Any) -> Any:
    raise Trap("unreachable")


def _pack(values: tuple[Any, ...]) -> Any:
    return values[0] if len(values) == 1 else values if values else None


@scalars.of(scf.If)
def _if(machine: Machine, op: scf.If, operands: Any) -> Any:
    outcome = machine.run_body(op.then if operands[0] else op.otherwise)
    return outcome if isinstance(outcome, Returned) else _pack(outcome.values)


@scalars.of(scf.For)
def _for(machine: Machine, op: scf.For, operands: Any) -> Any:
    start, stop, step, *parameters = operands
    if step == 0:
        raise Trap("step of zero")
    for index in range(start, stop, step):
        machine.tick()
        outcome = machine.run_body(op.body, (index, *parameters))
        if isinstance(outcome, Returned):
            return outcome
        parameters = outcome.values
    return _pack(tuple(parameters))


@scalars.of(scf.While)
def _while(machine: Machine, op: scf.While, operands: Any) -> Any:
    parameters = operands
    while True:
        machine.tick()
        outcome = machine.run_body(op.before, parameters)
        if isinstance(outcome, Returned):
            return outcome
        going, *parameters = outcome.values
        if not going:
            return _pack(tuple(parameters))
        outcome = machine.run_body(op.after, parameters)
        if isinstance(outcome, Returned):
            return outcome
        parameters = outcome.values


@scalars.of(tt.Call)
def _call(machine: Machine, op: tt.Call, operands: Any) -> Any:
    return _pack(machine.call(machine.functions[op.callee].bodies[0], operands))


class Machine(Interpreter):
    """Runs modules over i32, i1, tuples, variables and one array of eight i32."""

    def __init__(self, model: Op) -> None:
        super().__init__(scalars)
        assert isinstance(model, core.Module)
        self.functions = model.functions()
        self.memory = {index: 10 * index for index in range(8)}
        self.printed: list[Any] = []
        self.ticks = 0

    def tick(self) -> None:
        self.ticks += 1
        if self.ticks > 4000:
            raise Trap("too long")


@pytest.fixture(scope="session")
def run() -> Callable[[Op, int, int], Any]:
    """`run(module, a, b)`: what the function `main` gives, leaves in memory and prints; None if that is undefined."""

    def running(model: Op, a: int, b: int) -> Any:
        machine = Machine(model)
        try:
            result = machine.call(machine.functions["main"].bodies[0], (a, b, 0))
        except Trap:
            return None
        return result, machine.memory, machine.printed

    return running


class Writer:
    """Writes a random function. Values are kept by their types; all programs end, but may trap."""

    BINARY = (
        arith.AddI, arith.SubI, arith.MulI, arith.AndI, arith.OrI, arith.XOrI, arith.MaxSI, arith.MinSI, arith.DivSI,
        arith.RemSI,
    )  # fmt: skip

    def __init__(self, rng: random.Random, callees: list[str], leaves: bool = True) -> None:
        self.rng = rng
        self.callees = callees
        self.leaves = leaves
        self.budget = rng.randint(4, 30)

    def function(self, name: str, noinline: bool) -> Op:
        start = Builder.root([i32, i32, PtrType(i32)], i32)
        a, b, p = start.parameters
        self.pointer = p
        ints: list[Value] = [a, b]
        self.suite(start, ints, [], [], 0)
        start.add(tt.Return([self.rng.choice(ints[-4:])]))
        return tt.Func(name, start.finish(), noinline=noinline)

    def int(self, b: Builder, ints: list[Value]) -> Value:
        if self.rng.random() < 0.3:
            return b.add(arith.ConstantOp(self.rng.choice([0, 0, 1, 1, 2, 3, -1, 7, -(1 << 31)]), type=i32))
        return self.rng.choice(ints)

    def condition(self, b: Builder, ints: list[Value], bools: list[Value]) -> Value:
        if bools and self.rng.random() < 0.4:
            return self.rng.choice(bools)
        if self.rng.random() < 0.15:
            return b.add(arith.ConstantOp(self.rng.random() < 0.5, type=i1))
        predicate = self.rng.choice(["eq", "ne", "slt", "sge"])
        return b.add(arith.CmpI(self.int(b, ints), self.int(b, ints), arith.IntPredicate(predicate)))

    def address(self, b: Builder, ints: list[Value]) -> Value:
        offset = self.int(b, ints)
        if self.rng.random() < 0.95:
            offset = b.add(arith.AndI(offset, b.add(arith.ConstantOp(7, type=i32))))
        return b.add(tt.AddPtr(self.pointer, offset))

    def small(self, b: Builder, ints: list[Value]) -> Value:
        return b.add(arith.AndI(self.rng.choice(ints), b.add(arith.ConstantOp(3, type=i32))))

    def suite(self, b: Builder, ints: list[Value], bools: list[Value], variables: list[Value], depth: int) -> None:
        for _ in range(self.rng.randint(1, 6)):
            if self.budget <= 0:
                return
            self.budget -= 1
            self.statement(b, ints, bools, variables, depth)

    def statement(self, b: Builder, ints: list[Value], bools: list[Value], variables: list[Value], depth: int) -> None:
        rng = self.rng
        choice = rng.random()
        if choice < 0.35:
            ints.append(b.add(rng.choice(self.BINARY)(self.int(b, ints), self.int(b, ints))))
        elif choice < 0.40:
            bools.append(self.condition(b, ints, bools))
        elif choice < 0.44:
            ints.append(b.add(arith.Select(self.condition(b, ints, bools), self.int(b, ints), self.int(b, ints))))
        elif choice < 0.50:
            ints.append(b.add(tt.Load(self.address(b, ints))))
        elif choice < 0.55:
            b.add(tt.Store(self.address(b, ints), self.int(b, ints)))
        elif choice < 0.58:
            b.add(tt.Print([self.int(b, ints)], f"{self.budget}"))
        elif choice < 0.62:
            result = b.add(core.MakeTuple([self.int(b, ints), self.int(b, ints)]))
            if rng.random() < 0.5:
                result = b.add(core.TupleWith(result, self.int(b, ints), rng.randrange(2)))
            ints.append(b.add(core.TupleLoad(result, rng.randrange(2))))
        elif choice < 0.66:
            variables.append(b.add(core.Var(self.int(b, ints), name="v", type=VarType(i32))))
        elif choice < 0.72 and variables:
            b.add(core.VarStore(rng.choice(variables), self.int(b, ints)))
        elif choice < 0.76 and variables:
            ints.append(b.add(core.VarLoad(rng.choice(variables))))
        elif choice < 0.80 and self.callees:
            arguments = [self.int(b, ints), self.int(b, ints), self.pointer]
            ints.append(b.add(tt.Call(arguments, rng.choice(self.callees), i32)))
        elif choice < 0.88 and depth < 3:
            self.branch(b, ints, bools, variables, depth)
        elif choice < 0.95 and depth < 3:
            self.loop(b, ints, bools, variables, depth)
        elif depth < 3:
            self.repeat(b, ints, bools, variables, depth)

    def results(self, b: Builder, result: Value, count: int, ints: list[Value]) -> None:
        if count == 1:
            ints.append(result)
        else:
            ints.extend(b.add(core.TupleLoad(result, i)) for i in range(count) if self.rng.random() < 0.6)

    def branch(self, b: Builder, ints: list[Value], bools: list[Value], variables: list[Value], depth: int) -> None:
        count = self.rng.randint(0, 2)
        condition = self.condition(b, ints, bools)
        bodies: list[Any] = []
        leaving = self.leaves and count == 0 and self.rng.random() < 0.2
        for side in range(2):
            inner = b.nested([], scf.packed([i32] * count))
            mine, my_bools, my_variables = list(ints), list(bools), list(variables)
            self.suite(inner, mine, my_bools, my_variables, depth + 1)
            if leaving and side == 0:
                inner.add(tt.Return([self.rng.choice(mine)]))
            else:
                inner.add(scf.Yield([self.int(inner, mine) for _ in range(count)]))
            bodies.append(inner.finish())
        self.results(b, b.add(scf.If(condition, *bodies)), count, ints)

    def loop(self, b: Builder, ints: list[Value], bools: list[Value], variables: list[Value], depth: int) -> None:
        rng = self.rng
        count = rng.randint(0, 3)
        zero, four = (b.add(arith.ConstantOp(n, type=i32)) for n in (0, 4))
        start = rng.choice([zero, four, self.small(b, ints)])
        stop = rng.choice([zero, four, self.small(b, ints)])
        step = b.add(arith.ConstantOp(rng.choice([1, 1, 2, -1, -3]), type=i32))
        if rng.random() < 0.2:
            unit = b.add(arith.ConstantOp(1, type=i32))
            step = b.add(arith.OrI(b.add(arith.SubI(self.small(b, ints), unit)), unit))
        initial = [self.int(b, ints) for _ in range(count)]
        inner = b.nested([i32] * (count + 1), scf.packed([i32] * count))
        mine, my_bools, my_variables = [*ints, *inner.parameters], list(bools), list(variables)
        self.suite(inner, mine, my_bools, my_variables, depth + 1)
        inner.add(scf.Yield(self.next(inner, mine, inner.parameters[1:])))
        self.results(b, b.add(scf.For(start, stop, step, initial, body=inner.finish())), count, ints)

    def next(self, b: Builder, ints: list[Value], parameters: Any) -> list[Value]:
        return [self.rng.choice([self.int(b, ints), c, self.rng.choice(list(parameters))]) for c in parameters]

    def repeat(self, b: Builder, ints: list[Value], bools: list[Value], variables: list[Value], depth: int) -> None:
        count = self.rng.randint(1, 3)
        initial = [self.small(b, ints), *(self.int(b, ints) for _ in range(count - 1))]
        types = [i32] * count
        before = b.nested(types, scf.packed(types))
        mine, my_bools, my_variables = [*ints, *before.parameters], list(bools), list(variables)
        self.suite(before, mine, my_bools, my_variables, depth + 1)
        zero = before.add(arith.ConstantOp(0, type=i32))
        going = before.add(arith.CmpI(before.parameters[0], zero, arith.IntPredicate.SGT))
        going = before.add(arith.AndI(going, self.condition(before, mine, my_bools)))
        calls = [before.parameters[0], *self.next(before, mine, before.parameters[1:])]
        before.add(scf.Condition(going, calls))
        first = before.finish()
        after = b.nested(types, scf.packed(types))
        mine, my_bools, my_variables = [*ints, *after.parameters], list(bools), list(variables)
        self.suite(after, mine, my_bools, my_variables, depth + 1)
        unit = after.add(arith.ConstantOp(1, type=i32))
        counted = after.add(arith.SubI(after.parameters[0], unit))
        after.add(scf.Yield([counted, *self.next(after, mine, after.parameters[1:])]))
        self.results(b, b.add(scf.While(initial, first, after.finish())), count, ints)


@pytest.fixture(scope="session")
def write() -> Callable[..., Op]:
    """`write(rng)`: a module of random functions, of which `main` takes two i32 and an array and gives an i32."""

    def writing(rng: random.Random, leaves: bool = True) -> Op:
        module = Builder.root()
        callees: list[str] = []
        for index in range(rng.randint(0, 2)):
            name = f"helper{index}"
            module.add(Writer(rng, list(callees), leaves).function(name, rng.random() < 0.2))
            callees.append(name)
        module.add(Writer(rng, callees, leaves).function("main", False))
        module.add(core.Unreachable())
        return core.Module(module.finish())

    return writing


@pytest.fixture(scope="session")
def preserves(run: Any, write: Any) -> Callable[..., None]:
    """`preserves(step, seed)`: the pass keeps what a random program does, verifies, and changes nothing more then."""

    def check(step: Pass, seed: int, *, idempotent: bool = True, leaves: bool = True) -> None:
        model = write(random.Random(seed), leaves)
        verify(model)
        text = str(model)
        result = step(model)
        verify(result)
        assert str(model) == text, "the pass changed its input"
        for a, b in ((0, 0), (1, 2), (3, -5), (-(1 << 31), 7), (6, 3)):
            expected = run(model, a, b)
            if expected is not None:
                assert run(result, a, b) == expected, f"for ({a}, {b})\n{model}\nbecame\n{result}"
        if idempotent:
            again = step(parse(str(result)))  # Without what the pass may have noted of its result.
            assert str(again) == str(result), "the pass is not idempotent"

    return check
