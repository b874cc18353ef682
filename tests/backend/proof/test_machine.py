"""Runs on unknown inputs: control flow, memory, and each kind of op, by proofs of models that are equal or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import ziggurat as zg
from ziggurat.backend.proof.prove import Prover
from ziggurat.codemodel.op import Op
from ziggurat.transforms.simplify.lower_structured import lower_structured

FLOATS, WHOLE = zg.ptr(zg.f32), zg.ptr(zg.i32)


@zg.kernel
def early(x, out, n):
    i = zg.program_id(0)
    if i >= n:
        return
    value = zg.load(x + i)
    if value > 0:
        zg.store(out + i, value)
        return
    zg.store(out + i, 0 - value)


@zg.kernel
def collatz(x, out, n):
    value = zg.load(x + zg.program_id(0))
    steps = 0
    while value > 1:
        value = zg.where(value % 2 == 0, value // 2, value * 3 + 1)
        steps += 1
    zg.store(out + zg.program_id(0), steps)


@zg.kernel
def in_place(x, out, n):
    # Each element is read after its neighbour was written.
    for i in range(0, n):
        zg.store(x + i + 1, zg.load(x + i) + zg.load(x + i + 1))
    zg.store(out, zg.load(x + n))


@zg.kernel
def counted(x, out, n):
    at = zg.arange(0, 16)
    values = zg.load(x + at)
    zg.atomic_add(out + at, values)
    zg.store(out + at, zg.atomic_max(out + at, values))


@zg.kernel
def rearranged(x, out, n):
    at = zg.arange(0, 16)
    values = zg.load(x + at)
    left, right = zg.split(zg.reshape(values, (8, 2)))
    pairs = zg.reshape(zg.join(right, left), (16,))
    order = zg.load(out + at) & 15
    zg.store(out + at, zg.gather(pairs, order, axis=0) + zg.cumsum(values, axis=0))
    zg.store(out + 16 + zg.arange(0, 4), zg.histogram(values & 3, 4))


@zg.kernel
def sorted_out(x, out, n):
    at = zg.arange(0, 16)
    values = zg.load(x + at)
    highest, place = zg.max(values, axis=0), zg.argmax(values, axis=0)
    zg.device_assert(n > 0, "n")
    zg.store(out, highest + place)


@zg.kernel
def product(x, out, n):
    rows, columns = zg.expand(zg.arange(0, 16), 1), zg.expand(zg.arange(0, 16), 0)
    at = rows * 16 + columns
    a = zg.load(x + at)
    zg.store(out + at, zg.dot(a, zg.trans(a), zg.zeros((16, 16), zg.f32)))


KERNELS: dict[str, tuple[Any, Any]] = {
    "returns in branches": (early, FLOATS), "a while loop": (collatz, WHOLE), "atomics": (counted, WHOLE),
    "a store before a load": (in_place, WHOLE), "other elements": (rearranged, WHOLE), "an argmax": (sorted_out, WHOLE),
    "a product": (product, FLOATS),
}  # fmt: skip


def model_of(name: str) -> Op:
    kernel, pointer = KERNELS[name]
    return kernel.triton(pointer, pointer, zg.i32)


def proved(a: Op, b: Op) -> Any:
    """The proof without samples."""
    return Prover(bound=2).prove(a, b)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("change", [zg.simplify, lower_structured], ids=["simplify", "blocks"])
def test_a_model_is_what_it_is_after_a_pass(name: str, change: Callable[[Any], Op]) -> None:
    model = zg.simplify(model_of(name))
    proof = proved(model_of(name), change(model))
    assert proof, proof


EDITS = [
    ("returns in branches", "@sge", "@sgt"), ("returns in branches", "@ogt", "@oge"),
    ("a while loop", "arith.constant @0", "arith.constant @1"), ("atomics", "@add", "@or"),
    ("a store before a load", "arith.addi %8", "arith.subi %8"), ("an argmax", "@sgt", "@sge"),
    ("other elements", "arith.constant @15", "arith.constant @7"),
    ("a product", "arith.constant @0.0", "arith.constant @1.0"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new"), EDITS, ids=[f"{name}: {new}" for name, _, new in EDITS])
def test_another_model_is_not(name: str, old: str, new: str) -> None:
    text = str(zg.simplify(model_of(name)))
    if old not in text:
        pytest.fail(f"{old} is not in\n{text}")
    assert not proved(zg.parse(text), zg.parse(text.replace(old, new, 1)))


def test_arrays_that_may_be_one_are_taken_to_be_two() -> None:
    def swapped(first: bool) -> Op:
        def traced(x: Any, y: Any) -> None:
            if first:
                zg.store(x, 1)
                zg.store(y, 2)
            else:
                zg.store(y, 2)
                zg.store(x, 1)

        return zg.trace(traced, WHOLE, WHOLE)

    proof = proved(swapped(True), swapped(False))
    assert proof and proof.assumptions == ("the arrays of two arguments do not overlap",)


def test_a_division_that_was_not_there_is_found() -> None:
    def divided(always: bool) -> Op:
        @zg.kernel
        def run(x, out, n):
            if always:
                value = zg.load(x) // n
                if n != 0:
                    zg.store(out, value)
            elif n != 0:
                zg.store(out, zg.load(x) // n)

        return run.triton(WHOLE, WHOLE, zg.i32)

    assert proved(divided(True), divided(False))
    assert not proved(divided(False), divided(True))
