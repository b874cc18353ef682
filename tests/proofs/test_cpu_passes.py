"""Each pass of the way to a CPU, on small kernels: the model after it does what the one before it does, and each access
has the addresses and the mask that it claims where its guard holds."""

from __future__ import annotations

import functools
import itertools
from random import Random

import native_models
import pytest
import z3
from planted import must_refute

import ziggurat as zg
from ziggurat.backend.proof import buffers, prove, universe
from ziggurat.backend.proof.prove import Prover
from ziggurat.backend.proof.terms import Terms
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.passes import Snapshot, run_passes
from ziggurat.transforms.cpu.cpu_passes import LOWER

VECTOR = 32


@zg.kernel
def rearranged(x, y, counts, N: zg.constexpr):
    """Shapes, reductions and tables, which lie in buffers."""
    at = zg.arange(0, N)
    table = zg.reshape(zg.load(zg.add(x, at)), (N // 16, 16))
    zg.store(zg.add(y, at), zg.reshape(zg.trans(table), (N,)))
    zg.store(zg.add(y + N, zg.arange(0, 16)), zg.sum(table, 0))
    largest = zg.max(table, 1)
    zg.store(zg.add(y + N + 16, at), zg.reshape(zg.sub(table, zg.expand(largest, 1)), (N,)))
    zg.store(zg.add(counts, zg.arange(0, 4)), zg.histogram(zg.arange(0, N), 4))


@zg.kernel
def accumulated(x, out, n, step, BLOCK: zg.constexpr):
    """Strides that are not known, a tensor that a loop carries, and a branch."""
    at = zg.add(zg.mul(zg.program_id(0), BLOCK), zg.arange(0, BLOCK))
    total = zg.zeros((BLOCK,), zg.f32)
    for i in range(0, n, BLOCK):
        index = zg.add(at, i)
        inside = zg.less(index, n)
        total = total + zg.load(zg.add(x, zg.mul(index, step)), inside, other=0.0)
        if i > step:
            total = total * 0.5
        zg.store(zg.add(out, index), total, inside)


@zg.kernel
def chosen(x, out, n, N: zg.constexpr):
    """A tensor of either branch, where one that is no longer needed was."""
    at = zg.arange(0, N)
    values = zg.load(zg.add(x, at))
    sums = zg.sum(zg.reshape(values, (N // 2, 2)), 1)
    zg.store(zg.add(out, zg.arange(0, N // 2)), sums)
    if n > 0:
        values = zg.mul(values, 2)
    else:
        values = zg.sub(values, 1)
    zg.store(zg.add(out + N, at), zg.add(values, zg.sum(values, 0)))


F32, I32 = zg.ptr(zg.f32), zg.ptr(zg.i32)
MODELS = {
    "add": lambda: native_models.add.triton(F32, F32, F32, zg.i32, 64),
    "softmax": lambda: native_models.softmax.triton(F32, F32, zg.i32, zg.i32, 64),
    "matmul": lambda: native_models.matmul.triton(F32, F32, F32, zg.i32, 32),
    "rearranged": lambda: rearranged.triton(I32, I32, I32, 64),
    "chosen": lambda: chosen.triton(I32, I32, zg.i32, 64),
    "accumulated": lambda: accumulated.triton(F32, F32, zg.i32, zg.i32, 32),
}


@functools.cache
def _models(kernel: str) -> list[tuple[str, Op]]:
    """The models after each pass, by the name of the pass."""
    model, snapshots = MODELS[kernel](), list[Snapshot]()
    run_passes(model, [(name, lambda op, step=step: step(op, VECTOR)) for name, step in LOWER], snapshots=snapshots)
    return [("", model), *((snapshot.name, snapshot.model) for snapshot in snapshots)]


@functools.cache
def _prover(kernel: str) -> Prover:
    return Prover(bound=1)


@pytest.mark.parametrize("kernel", MODELS)
def test_each_pass_is_proved(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The solver's work depends on what the process has proved before.
    monkeypatch.setattr(prove, "EFFORT", 10 * prove.EFFORT)
    models = _models(kernel)
    pairs = [(name, a, b) for (_, a), (name, b) in itertools.pairwise(models) if a is not b]
    assert {"accesses", "regions", "vectorize", "allocate"} <= {name for name, _, _ in pairs}
    proofs = {name: _prover(kernel).prove(before, after) for name, before, after in pairs}
    assert {name: str(proof) for name, proof in proofs.items() if not proof} == {}


FAULTS: dict[tuple[str, str, str], tuple[str, str]] = {
    ("add", "accesses", "a count that is too large"): ("arith.minsi", "arith.maxsi"),
    ("add", "accesses", "the base of another array"): (r"(%36 : ptr<f32> = tt.addptr) %0", r"\1 %1"),
    ("add", "accesses", "another stride"): (r"(%37 : i64 = arith.constant) @1", r"\1 @2"),
    ("add", "accesses", "an access of other pointers"): (r"cpu.load %72 %44", "cpu.load %41 %44"),
    ("accumulated", "accesses", "a guard that always holds"): (
        r"(%\d+ : access<x32, f32> = cpu.access %\d+) %\d+",
        r"%999 : i1 = arith.constant @true; \1 %999",
    ),
    ("accumulated", "accesses", "an extreme left out"): ("arith.minsi", "arith.maxsi"),
    ("softmax", "accesses", "elements that are not loaded"): (r"(cpu.load %\d+ %\d+ %\d+) %\d+", r"\1"),
    ("accumulated", "regions", "a branch that keeps the sum"): ("cpu.put %5 %74;", ""),
    ("matmul", "regions", "operands of a dot swapped"): (r"cpu.dot (%\d+) (%\d+)", r"cpu.dot \2 \1"),
    ("matmul", "vectorize", "an operand transposed"): ("cpu.dot %5 %6 %4", "cpu.dot %5 %6 %4 @transposed=true"),
    ("softmax", "vectorize", "a buffer for another one"): (r"(%40 : tensor<x64, f32> = cpu.get) %5", r"\1 %4"),
    ("softmax", "regions", "another reduction"): ("arith.maxnumf", "arith.minnumf"),
    ("rearranged", "regions", "elements counted twice"): (r"(cpu.count %\d+ %\d+;)", r"\1 \1"),
    ("rearranged", "regions", "elements in another order"): (r"cpu.get %3;", "cpu.get %3 @start=63 @strides=[-1];"),
    ("rearranged", "vectorize", "a part of a buffer not written"): (r"(cpu.put %4) %\d+;", ""),
    ("rearranged", "allocate", "buffers that overlap"): ("@offset=256", "@offset=0"),
}


@pytest.fixture
def little_effort(monkeypatch: pytest.MonkeyPatch) -> None:
    """The right models are proved without a look at many elements, and with little of the solver's work."""
    monkeypatch.setattr(universe, "MOST", 200)
    monkeypatch.setattr(universe, "MUCH", 100_000)
    monkeypatch.setattr(prove, "EFFORT", 100_000)


test_planted_faults = pytest.mark.usefixtures("little_effort")(must_refute(FAULTS, _models, _prover))


def test_facts_about_products_and_extensions_hold() -> None:
    random, domain = Random(0), Terms()
    x, y = (domain.unknown(name, zg.i32) for name in "xy")
    wide = [domain.extended_to(number, 64, signed=True) for number in (x, y)]
    offset, exact = domain.extended_to(x * y + x, 64, signed=True), wide[0] * wide[1] + wide[0]
    facts = [*buffers._extensions(domain, offset.scaled(4), exact.scaled(4))]
    assert len(facts) == 2
    facts += buffers._between((wide[0] * wide[1]).term, wide[0].term, 31)
    for _ in range(200):
        numbers = (
            random.choice((random.randint(-(1 << 31), (1 << 31) - 1), random.randint(-99, 99))),
            random.randrange(32),
        )
        values = [(name.term, z3.BitVecVal(number, 32)) for name, number in zip((x, y), numbers, strict=True)]
        assert all(z3.is_true(z3.simplify(z3.substitute(fact, *values))) for fact in facts), numbers
    wrong = buffers._between((wide[0] * wide[1]).term, wide[0].term, 3)
    assert not all(z3.is_true(z3.simplify(z3.substitute(fact, *values))) for fact in wrong)
