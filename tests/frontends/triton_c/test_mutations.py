"""Mutated sources: an error of ours or a model, nothing else. tests/support/triton_c_mutations.py runs many more."""

import pytest
import triton_c_mutations as mutations

import ziggurat as zg


@pytest.mark.parametrize("source", mutations.SOURCES)
def test_the_sources_are_kernels(source):
    kernel = zg.triton_c(source, **mutations.MACROS)
    zg.verify(kernel.triton())


def test_mutated_sources_give_errors_or_models():
    counts = mutations.run(250, seed=7)
    assert set(counts) <= {"model", "KernelSyntaxError", "KernelNameError", "KernelTypeError", "KernelValueError",
                          "KernelErrors"}  # fmt: skip
    assert counts["model"] and counts["KernelSyntaxError"]
