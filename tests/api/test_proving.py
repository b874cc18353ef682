"""`zg.prove`: what it answers, its counterexamples, the command line, and `verify="prove"`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.cli import main
from ziggurat.codemodel.op import Op
from ziggurat.transforms.cpu import cpu_passes
from ziggurat.transforms.gpu import gpu_passes

F = zg.ptr(zg.f32)


@zg.kernel
def scaled(x, out, n, factor: zg.constexpr, BLOCK: zg.constexpr):
    at = zg.add(zg.mul(zg.program_id(0), BLOCK), zg.arange(0, BLOCK))
    inside = zg.less(at, n)
    zg.store(zg.add(out, at), zg.mul(zg.load(zg.add(x, at), inside), factor), inside)


@zg.kernel
def summed(x, out, n, BLOCK: zg.constexpr):
    total = zg.zeros((BLOCK,), zg.f32)
    for start in range(0, n, BLOCK):
        at = zg.add(start, zg.arange(0, BLOCK))
        total = zg.add(total, zg.load(zg.add(x, at), zg.less(at, n), other=0.0))
    zg.store(out, zg.sum(total, axis=0))


def model(**edits: str) -> Any:
    """The model of `scaled`, with words of its text replaced."""
    text = str(scaled.triton(F, F, zg.i32, 2.0, 64))
    for old, new in edits.items():
        assert old in text
        text = text.replace(old, new)
    return zg.parse(text)


def test_a_model_is_what_it_is_after_simplification() -> None:
    proof = zg.prove(model(), zg.simplify(model()))
    assert proof and proof.verdict == "proved" and proof.counterexample is None
    assert str(proof) == "proved\nassumed: the arrays of two arguments do not overlap"


@pytest.mark.parametrize(
    "edits", [{"slt": "sle"}, {"mulf": "addf"}, {"@64": "@63"}, {"@2.0": "@3.0"}], ids=lambda edits: "-".join(edits)
)
def test_a_counterexample_shows_the_difference(edits: dict[str, str]) -> None:
    first, second = model(), model(**edits)
    proof = zg.prove(first, second)
    assert not proof and proof.verdict == "refuted"
    example = proof.counterexample
    assert example is not None
    results: list[Any] = []
    for each in (first, second):
        arguments = [value.copy() if isinstance(value, np.ndarray) else value for value in example.arguments]
        zg.run(each, example.grid, *arguments)
        results.append(arguments[example.argument][example.place])
    assert results[0] != results[1] and tuple(results) == example.values


def test_the_solver_finds_what_samples_do_not() -> None:
    @zg.kernel
    def apart(x, out, n):
        zg.store(out, zg.where(zg.equal(n, 123456), 1.0, zg.load(x)))

    @zg.kernel
    def alike(x, out, n):
        zg.store(out, zg.load(x))

    proof = zg.prove(apart.triton(F, F, zg.i32), alike.triton(F, F, zg.i32))
    assert proof.verdict == "refuted" and proof.counterexample is not None
    assert proof.counterexample.arguments[2] == 123456


# Models of few ops: the answer, the types, and what both store.
INTEGERS, LONG = zg.ptr(zg.i32), zg.ptr(zg.i64)
PAIRS: dict[str, tuple[str, tuple[Any, ...], Callable[..., Any], Callable[..., Any]]] = {
    "a comparison reversed": (
        "proved", (F, zg.ptr(zg.i1)), lambda x, y: zg.store(y, zg.load(x) < zg.load(x + 1)),
        lambda x, y: zg.store(y, zg.load(x + 1) > zg.load(x)),
    ),
    "a quotient and a remainder": (
        "proved", (LONG, zg.i64, zg.i64), lambda x, a, b: zg.store(x, a // (b | 1) * (b | 1) + a % (b | 1)),
        lambda x, a, b: zg.store(x, a),
    ),
    "a remainder of less": (
        "proved", (INTEGERS, zg.i32), lambda x, a: zg.store(x, (a & 7) % 9), lambda x, a: zg.store(x, a & 7)
    ),
    "a zero added": (
        "refuted", (F,), lambda x: zg.store(x, zg.load(x) + 0.0), lambda x: zg.store(x, zg.load(x))
    ),
    "a number less itself": (
        "refuted", (F,), lambda x: zg.store(x, zg.load(x) - zg.load(x)), lambda x: zg.store(x, zg.load(x) * 0.0)
    ),
    "a product of more bits": (
        "refuted", (LONG, zg.i32, zg.i32), lambda x, a, b: zg.store(x, zg.cast(a * b, zg.i64)),
        lambda x, a, b: zg.store(x, zg.cast(a, zg.i64) * zg.cast(b, zg.i64)),
    ),
    "a print of another number": (
        "refuted", (zg.i32, zg.i32), lambda a, b: zg.device_print("a", a), lambda a, b: zg.device_print("a", b)
    ),
    "an address that wraps around": (
        "unknown", (INTEGERS, zg.i32, zg.i32), lambda x, a, b: zg.store(x + (a + b), 1),
        lambda x, a, b: zg.store(x + a + b, 1)
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", PAIRS)
def test_models_of_few_ops(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    verdict, types, first, second = PAIRS[what]
    proof = zg.prove(zg.trace(first, *types), zg.trace(second, *types))
    assert proof.verdict == verdict, proof
    assert verdict != "unknown" or "argument 1 is" in proof.reasons[0]
    assert capsys.readouterr().out == ""


def test_rules_of_floats_by_many_bits() -> None:
    """f32 → bf16 → f32 → bf16 is f32 → bf16."""
    first, second = (zg.trace(lambda x, times=times: zg.store(x, _narrowed(zg.load(x), times)), F) for times in (1, 2))
    assert zg.prove(first, second, exact_floats=True)


def _narrowed(value: Any, times: int) -> Any:
    for _ in range(times):
        value = zg.cast(zg.cast(value, zg.bf16), zg.f32)
    return value


def test_loops_of_unknown_length_are_bounded_and_it_says_so() -> None:
    loop = summed.triton(F, F, zg.i32, 16)
    proof = zg.prove(loop, zg.simplify(loop), bounds=3)
    assert proof and "loops of unknown length have at most 3 iterations" in proof.assumptions
    assert not zg.prove(loop, zg.parse(str(loop).replace("arith.addf", "arith.subf", 1)))


def test_floats_are_computed_where_that_is_asked_for() -> None:
    def doubled(call: str) -> Any:
        @zg.kernel
        def double(x, out):
            value = zg.load(x)
            zg.store(out, zg.add(value, value) if call == "add" else zg.mul(value, 2.0))

        pointer = zg.ptr(zg.f16)
        return double.triton(pointer, pointer)

    proof = zg.prove(doubled("add"), doubled("mul"))
    assert proof.verdict == "unknown" and "with exact_floats=True floats are computed" in proof.reasons
    assert "they compute the same real numbers, and may round them in other places" in proof.reasons
    assert zg.prove(doubled("add"), doubled("mul"), exact_floats=True)


def test_wrong_arguments_are_errors() -> None:
    other = summed.triton(F, F, zg.i32, 16)
    with pytest.raises(zg.LaunchError, match="prove takes two models; got int"):
        zg.prove(model(), 3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(zg.LaunchError, match="bounds must be a number of iterations"):
        zg.prove(model(), model(), bounds=0)
    with pytest.raises(zg.LaunchError, match="the kernels must have the same parameters"):
        zg.prove(scaled.triton(F, F, zg.i64, 2.0, 64), other)


def test_assert_same_proves() -> None:
    x, out = np.ones(64, np.float32), np.zeros(64, np.float32)
    zg.testing.assert_same(model(), zg.simplify(model()), [x, out, 64], prove=True)
    with pytest.raises(AssertionError, match=r"(?s)not proved equal: refuted.*argument 2: 1"):
        # With 64 elements the models are alike.
        zg.testing.assert_same(model(), model(slt="sle"), [x, out, 64], prove=True)


def test_each_pass_of_a_compilation_is_proved() -> None:
    for target in ("sm_90a", "cpu"):
        zg.compile(model(), target=target, verify="prove")
    with pytest.raises(zg.LaunchError, match="verify must be True or False"):
        zg.compile(model(), target="sm_90a", verify="proof")


def test_a_pass_that_changes_a_kernel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(op: Op, options: Any) -> Op:
        return zg.parse(str(op).replace("arith.mulf", "arith.addf"))

    monkeypatch.setattr(gpu_passes, "PHASES", gpu_passes.replaced("contract", ("contract", wrong)))
    with pytest.raises(zg.InternalError, match=r"the pass 'contract' changes what 'the model' does: with the grid"):
        zg.compile(model(), target="sm_90a", verify="prove")
    steps = tuple(
        (name, lambda op, _: wrong(op, None)) if name == "hoist" else (name, step) for name, step in cpu_passes.LOWER
    )
    monkeypatch.setattr(cpu_passes, "LOWER", steps)
    with pytest.raises(zg.InternalError, match=r"the pass 'hoist' changes what 'the model' does: with the grid"):
        zg.compile(model(), target="cpu", verify="prove")


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / name for name in ("a.txt", "b.txt", "c.txt")]
    for file, text in zip(files, (model(), zg.simplify(model()), model(slt="sle")), strict=True):
        file.write_text(str(text))
    assert main(["prove", str(files[0]), str(files[1])]) == 0
    assert capsys.readouterr().out.startswith("proved\n")
    assert main(["prove", str(files[0]), str(files[2])]) == 1
    assert "refuted" in capsys.readouterr().err


@zg.kernel
def counted(x, out, n, BLOCK: zg.constexpr):
    at = zg.arange(0, BLOCK)
    value = zg.load(x + at)
    zg.store(out + at, zg.where(value < n, value * 3, value))


def test_a_load_without_its_mask_is_outside_of_short_arrays() -> None:
    """The elements that only one model loads are not used: where they lie outside, that model fails."""
    right = scaled.triton(F, F, zg.i32, 2.0, 64)
    text = str(right)
    load = next(line for line in text.splitlines() if "tt.load" in line)
    without = zg.parse(text.replace(load, load.rpartition(" ")[0] + ";"))
    proof = zg.prove(right, without)
    assert proof.verdict == "refuted" and proof.counterexample is not None
    assert proof.counterexample.error


def test_signs_of_large_integers_are_found() -> None:
    whole = zg.ptr(zg.i32)
    right = counted.triton(whole, whole, zg.i32, 16)
    assert zg.prove(right, zg.parse(str(right).replace("@slt", "@ult"))).verdict == "refuted"
