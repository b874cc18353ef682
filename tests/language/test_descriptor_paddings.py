"""Descriptors of unlike padding between which control flow chooses: a block has the padding of the one on the path."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.backend.simulator.simulate import simulate

pytestmark = pytest.mark.filterwarnings("error:.*is interpreted", "ignore:the block is moved through pointers")

MADE = """
def f(x, out, flag, n):
    z = {0}.make_tensor_descriptor(x, [n], [1], [8], "zero")
    p = {0}.make_tensor_descriptor(x, [n], [1], [8], padding_option="nan")
"""
STORED = """
    {0}.make_tensor_descriptor(out, [8], [1], [8]).store([0], v)
"""
# Each chooses NaN if `flag` is positive.
CHOICES = {
    "if": """
    if flag > 0:
        d = p
    else:
        d = z
    v = {0}.load_tensor_descriptor(d, [0])
""",
    "without else": """
    d = z
    if flag > 0:
        d = p
    v = d.load([0])
""",
    "in the branches": """
    if flag > 0:
        d = {0}.make_tensor_descriptor(x, [n], [1], [8], "nan")
    else:
        d = {0}.make_tensor_descriptor(x, [n], [1], [8])
    v = d.load([0])
""",
    "expression": """
    d = p if flag > 0 else z
    v = d.load([0])
""",
    "elif": """
    if flag > 5:
        d = p
    elif flag > 0:
        d = p
    else:
        d = z
    v = d.load([0])
""",
    "joined twice": """
    d = z if flag < 7 else p
    if flag > 0:
        d = p
    v = d.load([0])
""",
    "loop": """
    d = z
    for i in range(0, flag):
        d = p
    v = d.load([0])
""",
    "loop that loads": """
    d = p
    v = {0}.zeros((8,), {0}.float32)
    for i in range(0, 2 - (flag > 0)):
        v = d.load([0])
        d = z
""",
    "while": """
    d = z
    while flag > 0:
        d = p
        flag -= 1
    v = d.load([0])
""",
    "break": """
    d = p
    for i in range(0, 3):
        if flag > 0:
            break
        d = z
    v = d.load([0])
""",
    "helper": """
    v = chosen(z, p, flag).load([0])
""",
    "helper that loads": """
    v = loaded(p if flag > 0 else z)
""",
    "tuple": """
    pair = (z, p) if flag <= 0 else (p, z)
    d, other = pair
    v = d.load([0])
""",
    "unlike uses": """
    d = p if flag > 0 else z
    v = d.load([d.shape[0] - n])
    d.store([64], v)
""",
}
HELPERS = """
def chosen(z, p, flag):
    if flag > 0:
        return p
    return z
""", """
def loaded(d):
    return d.load([0])
"""  # fmt: skip
LANGUAGES = {"zg": (zg.kernel, zg.function), "tl": (triton.jit, triton.jit)}
X = np.arange(1, 17, dtype=np.float32)


def expected(flag: int, n: int = 5) -> np.ndarray[Any, Any]:
    return np.where(np.arange(8) < n, X[:8], np.nan if flag > 0 else 0).astype(np.float32)


@pytest.fixture
def choosing(kernel: Any) -> Any:
    """Makes the kernel that loads a block through the descriptor of a choice."""

    def make(choice: str, prefix: str, head: str = MADE) -> Any:
        decorate, function = LANGUAGES[prefix]
        choose_helper, load_helper = (kernel(text, function) for text in HELPERS)
        text = (head + CHOICES[choice] + STORED).format(prefix)
        if prefix == "zg":
            text = text.replace("zg.float32", "zg.f32")
        return kernel(text, decorate, tl=tl, chosen=choose_helper, loaded=load_helper)

    return make


@pytest.mark.parametrize("prefix", LANGUAGES)
@pytest.mark.parametrize("choice", CHOICES)
def test_a_block_has_the_padding_of_the_path(choosing: Any, choice: str, prefix: str):
    test_kernel = choosing(choice, prefix)
    model = test_kernel.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, zg.i32)
    zg.verify(model)
    assert zg.same_model(zg.parse(str(model)), model) and "either" in str(model)
    for flag in (0, 1, 9):
        for mode in ({}, {"interpret": True}, {"strict": True}):
            out = np.full(8, -1, np.float32)
            test_kernel[(1,)](X.copy(), out, flag, 5, **mode)
            np.testing.assert_array_equal(out, expected(flag), f"{flag} {mode}")


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("choice", CHOICES)
def test_on_a_simulated_gpu(choosing: Any, choice: str, target: str):
    compiled = choosing(choice, "zg").compile(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, zg.i32, target=target)
    for flag in (0, 2):
        out = np.full(8, -1, np.float32)
        simulate(
            compiled.stages["llvm"], num_warps=compiled.num_warps, shared=compiled.shared,
            arguments=[X.copy(), out, flag, 5],
        )  # fmt: skip
        np.testing.assert_array_equal(out, expected(flag))


# The sizes of a descriptor that control flow passes have no form in MLIR.
@pytest.mark.parametrize("choice", [choice for choice in CHOICES if choice != "unlike uses"])
def test_triton_keeps_the_padding_through_mlir(choosing: Any, choice: str):
    model = choosing(choice, "tl").triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, zg.i32)
    for each in (model, zg.simplify(model)):
        text = zg.to_mlir(each)
        assert "descriptor_padding" not in text
        for flag in (0, 2):
            out = np.full(8, -1, np.float32)
            zg.run(zg.from_mlir(text), 1, X.copy(), out, flag, 5)
            np.testing.assert_array_equal(out, expected(flag))


ARGUMENTS = "def f(z, p, out, flag, n):\n"


@pytest.mark.parametrize("prefix", LANGUAGES)
@pytest.mark.parametrize("choice", ["if", "without else", "expression", "loop", "helper", "tuple"])
def test_arguments_of_unlike_padding(choosing: Any, choice: str, prefix: str):
    test_kernel = choosing(choice, prefix, ARGUMENTS)
    for flag in (0, 1):
        for mode in ({}, {"interpret": True}):
            out = np.full(8, -1, np.float32)
            zero, nan = (zg.TensorDescriptor(X[:5].copy(), (8,), padding=padding) for padding in ("zero", "nan"))
            test_kernel[(1,)](zero, nan, out, flag, 5, **mode)
            np.testing.assert_array_equal(out, expected(flag))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_arguments_that_are_also_accessed_by_tma(kernel: Any, target: str):
    """The choice goes through pointers; a block of the argument itself may still come by TMA."""
    test_kernel = kernel("""
        def f(z, p, out, flag):
            d = p if flag > 0 else z
            out.store((0, 0), zg.add(d.load((0, 0)), z.load((0, 0))))
    """)
    types = [zg.descriptor((8, 64), zg.f32, padding) for padding in ("zero", "nan", "zero")]
    compiled = test_kernel.compile(*types, zg.i32, target=target)
    assert len(compiled.parts) == len(compiled.parameters)
    x = np.ones((6, 64), np.float32)
    for flag in (0, 1):
        out = np.full((8, 64), -1, np.float32)
        descriptor = [zg.TensorDescriptor(a, (8, 64), padding=p) for a, p in ((x, "zero"), (x, "nan"), (out, "zero"))]
        test_kernel[(1,)](*descriptor, flag)
        assert (out[:6] == 2).all() and (np.isnan(out[6:]) if flag else out[6:] == 0).all()


@pytest.mark.parametrize("mode", [{}, {"interpret": True}])
def test_each_program_has_a_padding_of_its_own(kernel: Any, mode: Any):
    test_kernel = kernel("""
        def f(x, out, n):
            d = zg.make_tensor_descriptor(x, (n, n), (8, 1), (1, 8))
            if zg.program_id(0) % 2 == 1:
                d = zg.make_tensor_descriptor(x, (n, n), (8, 1), (1, 8), "nan")
            rows = d.gather(zg.arange(0, 8), 0)
            described = zg.make_tensor_descriptor(out, (32, 8), (8, 1), (8, 8))
            described.store((zg.program_id(0) * 8, 0), rows)
    """)
    x, out = np.ones((8, 8), np.float32), np.full((4, 8, 8), -1, np.float32)
    test_kernel[(4,)](x, out, 5, **mode)
    assert (out[:, :5, :5] == 1).all()
    outside = np.ones((8, 8), np.bool_)
    outside[:5, :5] = False
    assert (out[::2, outside] == 0).all() and np.isnan(out[1::2, outside]).all()


def test_blocks_of_unlike_shapes_are_not_joined(kernel: Any):
    test_kernel = kernel("""
        def f(x, out, flag):
            d = zg.make_tensor_descriptor(x, (8,), (1,), (8,))
            if flag:
                d = zg.make_tensor_descriptor(x, (8,), (1,), (4,), "nan")
            zg.store(out, zg.sum(d.load((0,))))
    """)
    with pytest.raises(zg.KernelTypeError, match=r"'d' .*descriptor<x4, f32, nan> on one and descriptor<x8, f32>"):
        test_kernel[1](X.copy(), np.zeros(1, np.float32), 1)


def test_no_argument_has_either_padding():
    with pytest.raises(zg.LaunchError, match='padding must be "zero", or "nan" for floats; got'):
        zg.TensorDescriptor(X, (8,), padding="either")
