"""Faults planted in models and in passes: no proof may miss one.

A fault in a model replaces a part of its text after a pass. The model without the fault must be proved equal to the one
before the pass; so an answer "unknown" for the model with the fault is due to the fault.
"""

from __future__ import annotations

import functools
from importlib import import_module
from typing import Any

import pytest
import small_kernels
from planted import must_refute

import ziggurat as zg
from ziggurat.backend.proof.prove import Prover
from ziggurat.codemodel.dialects import arith
from ziggurat.codemodel.op import Op
from ziggurat.transforms.simplify import simplify

FAULTS: dict[tuple[str, str, str], tuple[str, str]] = {
    ("scaled", "lower", "the mask of a load dropped"): (r"(tt.load %\d+) %\d+ %\d+", r"\1"),
    ("scaled", "lower", "the condition of a store lost"): (r"(tt.store %\d+ %\d+) %\d+", r"\1"),
    ("scaled", "lower", "a bound off by one"): ("@slt", "@sle"),
    ("scaled", "lower", "a signed comparison as an unsigned one"): ("@slt", "@ult"),
    ("scaled", "lower", "another value where nothing is loaded"): ("@1.0", "@0.0"),
    ("scaled", "lower", "a range off by one"): ("@start=0 @end=128", "@start=1 @end=129"),
    ("scaled", "lower", "a sum instead of a product"): (r"arith.muli (%\d+ %\d+)", r"arith.addi \1"),
    ("scaled", "lower", "a lost negation"): (r"arith.negf (%\d+)", r"arith.addf \1 \1"),
    ("scaled", "lower", "another reduction, last"): ("arith.addf", "arith.maximumf"),
    ("scaled", "lower", "another axis of the grid"): ("tt.get_program_id @0", "tt.get_program_id @1"),
    ("scaled", "lower", "shared memory that is not written"): (r"gpu.local_store %\d+ %\d+;", ""),
    ("scaled", "prepare", "operands of a difference swapped"): (r"arith.subf (%\d+) (%\d+)", r"arith.subf \2 \1"),
    ("product", "dots", "operands of a dot swapped"): (r"gpu.mma (%\d+) (%\d+)", r"gpu.mma \2 \1"),
    ("product", "copies", "another array loaded"): (r"tt.splat %1;", "tt.splat %0;"),
    ("product", "expand", "the accumulator lost"): (r"(gpu.mma %\d+ %\d+) %\d+", r"\1 %13"),
    ("product", "expand", "a missing zero-fill"): (r"(gpu.async_copy %\d+ %\d+) %\d+", r"\1"),
    ("product", "expand", "the first iteration skipped"): (r"(scf.for) %\d+ (%\d+) (%\d+)", r"\1 \3 \2 \3"),
    ("product", "expand", "the smaller number for the larger"): ("arith.maxsi", "arith.minsi"),
    ("product", "expand", "a buffer for another one"): (r"gpu.local_view %25", "gpu.local_view %26"),
    ("product", "lower_channels", "a slot index off by one"): (
        r"arith.constant @2;(?=\s+%\d+ : i1 = arith.cmpi)",
        "arith.constant @1;",
    ),
    ("product", "lower_channels", "the slot of another stage, last"): (r"arith.subi (%\d+) %\d+", r"arith.addi \1 \1"),
    ("product", "allocate", "buffers that overlap"): (r"@offset=(?!0)\d+", "@offset=0"),
    ("pointers", "descriptors", "a bound off by one"): ("@ult", "@ule"),
    ("pointers", "descriptors", "the stride of another array"): (r"(arith.muli %\d+) %3;", r"\1 %7;"),
    ("pointers", "descriptors", "the mask of one axis"): (r"(arith.andi (%\d+)) %\d+", r"\1 \2"),
    ("pointers", "descriptors", "the size of another axis"): (r"tt.splat %1;", "tt.splat %2;"),
    ("roles", "specialize", "offsets of a block swapped"): (
        r"(gpu.tma_load %0 %\d+ %\d+ %\d+) (%\d+) (%\d+)",
        r"\1 \3 \2",
    ),
    ("roles", "tma", "offsets of a stored block swapped"): (r"(gpu.tma_store %\d+ %\d+) (%\d+) (%\d+)", r"\1 \3 \2"),
    ("roles", "dots", "an operand twice"): (r"gpu.wgmma (%\d+) %\d+", r"gpu.wgmma \1 \1"),
    ("roles", "expand", "a slot released before it is read"): (
        r"(%\d+ : tensor<[^>]*> = gpu.wgmma %[^;]*;)",
        r"gpu.channel_release %6; \1",
    ),
    ("roles", "lower_channels", "a wrong phase"): (r"arith.xori (%\d+) (%\d+)", r"arith.addi \1 \1"),
    ("roles", "lower_channels", "a slot that is not freed"): (r"gpu.mbarrier_arrive [^;]*;", ""),
    ("roles", "lower_channels", "bytes that do not come"): ("@bytes=16384", "@bytes=32768"),
    ("roles", "lower_channels", "a buffer for another one, last"): (r"gpu.local_view %5", "gpu.local_view %4"),
    ("roles", "allocate", "slots of two buffers at one address"): (r"@offset=(?!0)\d+", "@offset=0"),
    ("cluster", "spread", "a barrier of the cluster dropped"): ("gpu.cluster_barrier;", ""),
    ("cluster", "spread", "the rank of another CTA"): ("gpu.cluster_rank", "arith.constant @0"),
    ("cluster", "spread", "parts that overlap"): ("arith.constant @128", "arith.constant @64"),
    ("cluster", "spread", "the sum of one part"): (r"tt.store %2 %23", "tt.store %2 %18"),
    ("cluster", "clusters", "CTAs that may not have started"): ("gpu.cluster_wait;", ""),
    ("cluster", "clusters", "a start that nobody learns of"): ("gpu.cluster_arrive;", ""),
    ("cluster", "clusters", "the bytes of three CTAs"): ("@bytes=16", "@bytes=12"),
    ("cluster", "clusters", "values read before they come"): (r"gpu.mbarrier_wait [^;]*;", ""),
    ("multicast", "spread", "the rows of another CTA"): ("gpu.cluster_rank", "arith.constant @1"),
    ("multicast", "spread", "rows too far apart"): (r"arith.muli %\d+ (%\d+)", r"arith.addi \1 \1"),
    ("multicast", "expand", "slots that one CTA has freed"): (r"(gpu.channel %[^;]*) @ctas=2", r"\1"),
    ("multicast", "lower_channels", "CTAs that may not have started"): ("gpu.cluster_wait;", ""),
    ("multicast", "lower_channels", "a slot freed in one CTA"): (r"(gpu.mbarrier_arrive [^;]*) @ctas=2", r"\1"),
    ("multicast", "lower_channels", "arrivals of one CTA"): ("@arrivals=2", "@arrivals=1"),
}


@pytest.fixture(autouse=True)
def _little_effort(monkeypatch: pytest.MonkeyPatch) -> None:
    """The right models are proved without the solver; so no effort of it is of use for the wrong ones."""
    monkeypatch.setattr(import_module("ziggurat.backend.proof.prove"), "EFFORT", 100_000)


@functools.cache
def _models(kernel: str) -> list[tuple[str, Op]]:
    return small_kernels.compiled(kernel)


@functools.cache
def _prover(kernel: str) -> Prover:
    return Prover(contracts=True)


test_planted_faults = must_refute(FAULTS, _models, _prover, with_right=True)


def _identities(monkeypatch: pytest.MonkeyPatch, name: str, kind: type[Op], number: Any) -> None:
    monkeypatch.setitem(getattr(import_module("ziggurat.transforms.simplify.identities"), name), kind, number)


def _answer(monkeypatch: pytest.MonkeyPatch, module: str, function: str, answer: bool) -> None:
    module = f"ziggurat.transforms.simplify.{module}"
    monkeypatch.setattr(import_module(module), function, lambda *arguments: answer)


PLANTS: dict[str, Any] = {
    "x - 1 is x": lambda m: _identities(m, "_NEUTRAL", arith.SubI, 1),
    "x / 2 is x": lambda m: _identities(m, "_NEUTRAL", arith.DivSI, 2),
    "x & 1 is 1": lambda m: _identities(m, "_ABSORBING", arith.AndI, 1),
    "x + 0.0 is x": lambda m: _identities(m, "_NEUTRAL", arith.AddF, 0.0),
    "the larger number for the smaller": lambda m: _identities(m, "_LIMITS", arith.MinSI, (False, True)),
    "a hoisted division": lambda m: _answer(m, "hoist", "may_trap", False),
    "a read from before a write": lambda m: _answer(m, "cse", "may_write", False),
    "a carried value taken for unchanged": lambda m: _answer(m, "fold", "_is_unchanged", True),
    "a remainder rounded down": lambda m: m.setattr(
        import_module("ziggurat.codemodel.numbers"), "remainder", lambda a, b: a % b
    ),
}


@zg.kernel
def mixed(x, y, f, n, d):
    """Reads, writes, loops and constants, which each of the faults changes."""
    zg.store(y, zg.sub(zg.load(x), 1))
    zg.store(y + 1, zg.floordiv(zg.load(x), 2))
    zg.store(y + 2, zg.and_(zg.load(x), 1))
    zg.store(f, zg.add(zg.load(f), 0.0))
    zg.store(y + 3, zg.minimum(zg.load(x), 2147483647))
    first = zg.load(x)
    zg.store(x, n)
    zg.store(y + 4, zg.add(first, zg.load(x)))
    total, twice = 0, 1
    for i in range(0, n):
        total += zg.floordiv(d, n) + zg.load(x + 1)
        twice = twice * 2
        zg.store(y + 5, zg.floordiv(n, d))
    zg.store(y + 6, total)
    zg.store(y + 7, twice)
    zg.store(y + 8, zg.mod(zg.sub(zg.sub(n, n), 7), 4))


def _mixed() -> Op:
    integers, floats = zg.ptr(zg.i32), zg.ptr(zg.f32)
    return mixed.triton(integers, integers, floats, zg.i32, zg.i32)


@pytest.fixture(scope="module")
def prover() -> Prover:
    return Prover()


@functools.cache
def _right() -> tuple[Op, Op]:
    model = _mixed()
    return model, simplify(model)


def test_the_rules_without_faults_are_proved_right(prover: Prover) -> None:
    assert prover.prove(*_right())


@pytest.mark.parametrize("plant", PLANTS)
def test_a_fault_in_a_rule_is_not_proved_right(plant: str, monkeypatch: pytest.MonkeyPatch, prover: Prover) -> None:
    model, right = _right()
    PLANTS[plant](monkeypatch)
    wrong = simplify(model)
    assert str(wrong) != str(right), "the fault changes nothing"
    assert not prover.prove(model, wrong)
