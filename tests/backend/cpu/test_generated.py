"""Generated kernels: native code against the interpreter, bit for bit, and the CPU model after each pass.

`python tests/support/native_kernels.py SEED SECONDS` runs as many as there is time for.
"""

import pytest
from native_kernels import HOST, MACHINES, Kernel, check_natively, check_passes

from ziggurat.backend.cpu.compile import compile_cpu


@pytest.mark.parametrize("seed", range(24))
def test_a_generated_kernel_natively(seed):
    kernel = Kernel(seed)
    assert not check_natively(kernel, MACHINES[-1] if seed % 4 == 0 else HOST), kernel.source


@pytest.mark.parametrize("seed", range(200, 203))
def test_two_compilations_of_a_generated_kernel_give_the_same_bytes(seed):
    assert compile_cpu(Kernel(seed).model()).object == compile_cpu(Kernel(seed).model()).object


@pytest.mark.parametrize("seed", range(100, 112))
def test_the_passes_of_a_generated_kernel(seed):
    kernel = Kernel(seed)
    assert not check_passes(kernel), kernel.source
