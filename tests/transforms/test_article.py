"""The article's listings of Triton models equal ours. They are read from `../shared/seeds`, where that folder is.

The kernels are those of docs/reference/article.md. The article as stored has lost the lines that held only closing
braces and returns; the tests put them back.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import arith, core, scf, tt
from ziggurat.codemodel.transform import Rewriter

ROOT = Path(__file__).resolve().parents[2]
SEEDS = ROOT.parent / "shared" / "seeds"


@pytest.fixture(scope="module")
def article() -> str:
    found = sorted(SEEDS.glob("003_*.txt")) if SEEDS.is_dir() else []
    if not found:
        pytest.skip(f"the article is not here: there is no {SEEDS}/003_*.txt")
    return found[0].read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The Python of docs/reference/article.md as a module."""
    document = (ROOT / "docs" / "reference" / "article.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", document, re.MULTILINE | re.DOTALL)
    file = tmp_path_factory.mktemp("article") / "article_kernels.py"
    file.write_text("\n".join(blocks), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_vector_addition(article: str, kernels: Any):
    (listing,) = re.findall(r"^module \(\)void -> \{.*?tt\.store[^;]*;\n", article, re.MULTILINE | re.DOTALL)
    listing += "tt.return;\n};\nunreachable;\n};"
    pointer = zg.ptr(zg.f32)
    ours = kernels.add_kernel2.triton(pointer, pointer, pointer, zg.i32, 64)
    theirs = zg.parse(listing)
    zg.verify(theirs)
    assert zg.same_model(theirs, ours)
    assert str(theirs) == str(ours)


def test_the_loop_of_the_matrix_multiplication(article: str, kernels: Any):
    heading = "Triton code model snippet of Java Triton matrix multiply loop\n"
    _, _, listing = article.rpartition(heading)
    listing = re.sub(r"(scf\.yield[^;]*;\n)", r"\1};\n", listing)

    model = kernels.model
    assert isinstance(model, core.Module)
    *_, kernel = model.functions().values()
    ours = fragment(kernel)

    # Values that the article's text uses from before its first line become the parameters of a function.
    declared = set(re.findall(r"%\d+(?= :)", listing))
    free = dict.fromkeys(name for name in re.findall(r"%\d+(?! :)\b", listing) if name not in declared)
    parameters = ours.body.parameters
    assert len(free) == len(parameters)
    header = ", ".join(f"{name} : {parameter.type}" for name, parameter in zip(free, parameters, strict=True))
    theirs = zg.parse(f'tt.func @"fragment" ({header})void -> {{\n{listing}\ntt.return;\n}};')

    assert zg.same_model(theirs, ours)
    assert str(theirs) == str(ours)


def fragment(kernel: tt.Func) -> tt.Func:
    """The part of our matrix multiplication that the article shows, as a function of the values it uses from before.

    From the loop's bounds to the rounding of its first result.
    """
    ops = kernel.body.entry.ops
    (loop,) = (index for index, op in enumerate(ops) if isinstance(op, scf.For))
    (rounding,) = (index for index, op in enumerate(ops) if isinstance(op, arith.TruncF))
    shown = ops[loop - 3 : rounding + 1]

    inside = {op.result for op in shown}
    used = [value for op in shown for value in (*op.operands, *(v for body in op.bodies for v in body.captured()))]
    free = list(dict.fromkeys(value for value in used if value not in inside))

    builder = Rewriter.over(zg.Builder.root([value.type for value in free]))
    for value, parameter in zip(free, builder.parameters, strict=True):
        builder[value] = parameter
    builder.rewrite_ops(shown)
    builder.add(tt.Return([]))
    return tt.Func("fragment", builder.finish())


def test_the_multiplication_of_the_page_multiplies(kernels: Any):
    rng = np.random.default_rng(0)
    m, n, k = 70, 100, 64  # Whole blocks of k: what the loads' masks leave out is not defined.
    a = rng.standard_normal((m, k)).astype(np.float16)
    b = rng.standard_normal((k, n)).astype(np.float16)
    c = np.zeros((m, n), np.float16)
    blocks = (zg.cdiv(m, 32) * zg.cdiv(n, 64),)
    strides = [step // 2 for array in (a, b, c) for step in array.strides]
    kernels.matmul_kernel_fp16[blocks](a, b, c, m, n, k, *strides, 32, 64, 32, 8)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    # f16 has 11 bits; sums are in f32.
    np.testing.assert_allclose(c, expected, rtol=2**-10, atol=1e-3)
