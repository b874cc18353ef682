"""The way from a Python model to the Triton model that a user sees."""

from __future__ import annotations

import pytest

import ziggurat as zg
from ziggurat.codemodel.types import PtrType, f32, i32
from ziggurat.compiler.pipeline import TIDY, triton_model
from ziggurat.transforms.attribution import attribute, constant
from ziggurat.transforms.mirror import mirror
from ziggurat.transforms.simplify.dce import remove_unused


@zg.kernel
def kernel(p, n, UNUSED: zg.constexpr):
    zg.store(zg.add(p, n + 0), zg.mul(2.0, 3.0))


TYPES = (PtrType(f32), i32, constant(7))


def test_the_steps_are_attribution_mirror_and_what_is_tidied():
    assert TIDY == (remove_unused,)
    assert zg.same_model(triton_model(kernel, TYPES), remove_unused(mirror(attribute(kernel, TYPES))))


def test_the_model_stays_as_it_was_written_but_for_what_is_unused():
    model = triton_model(kernel, TYPES)
    zg.verify(model)
    names = [op.NAME for op in model.walk()]
    assert names.count("arith.addi") == 1, "n + 0 is not folded"
    values = [op.attributes["value"] for op in model.walk() if op.NAME == "arith.constant"]
    assert 7 not in values and 0 in values


def test_a_lone_model_is_taken_as_well():
    assert zg.same_model(triton_model(kernel.model, TYPES), triton_model(kernel, TYPES))


def test_divisibility_is_handed_on():
    (func,) = triton_model(kernel, TYPES, (16, 8)).functions().values()
    assert func.attributes["divisibility"] == (16, 8)


def test_errors_of_the_kernel_are_raised_as_they_are():
    with pytest.raises(zg.KernelTypeError, match="'ptr' must be a pointer"):
        triton_model(kernel, (f32, i32, constant(7)))


def test_a_fault_names_the_kernel_and_shows_its_model(monkeypatch):
    def fails(_):
        raise IndexError("out")

    monkeypatch.setattr("ziggurat.compiler.pipeline.TIDY", (fails,))
    with pytest.raises(zg.InternalError, match="compiling 'kernel' failed with IndexError: out") as error:
        triton_model(kernel, TYPES)
    assert '@"zg.store"' in str(error.value)


def test_too_deep_a_nest_is_the_authors_to_change(monkeypatch):
    def fails(_):
        raise RecursionError

    monkeypatch.setattr("ziggurat.compiler.pipeline.TIDY", (fails,))
    with pytest.raises(zg.ResourceError, match="the code of 'kernel' is nested too deeply"):
        triton_model(kernel, TYPES)
