"""Ops that the package does not declare: each tier that lacks a function for one says so, and what to do."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys

import numpy as np
import pytest

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.backend.llvm.elementwise import RULES as LLVM
from ziggurat.backend.mlir.emitter import EMITTERS as MLIR
from ziggurat.codemodel import scalars
from ziggurat.codemodel.declare import OPS
from ziggurat.codemodel.dialects import arith, math
from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.fields import operand
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.traits import Pure
from ziggurat.frontends.language.kinds import Value
from ziggurat.frontends.language.signature import CALLS, SIGNATURES, call
from ziggurat.transforms.calls import RULES, Rule


class Eval(math.FloatUnary, name="poly.eval"):
    """An elementwise op of another dialect."""


class Mine(math.FloatUnary, name="math.mine"):
    """An elementwise op under the name of a dialect of the package."""


class Count(math.BitUnary, name="poly.count"):
    """An op of integers, which the package has rules for by their base class."""


class Pick(Op, Pure, name="poly.pick"):
    """An op that is not elementwise."""

    x = operand()

    def infer_type(self):
        return self.x.type


class Send(Op, name="poly.send"):
    """An op with an effect, and no result."""

    x = operand()


class Square(math.FloatUnary, name="poly.square"):
    """An op that all tiers know."""


@scalars.MEANINGS.of(Square)
def _square(op, x):
    return x * x


@LLVM.of(Square)
def _emit_square(op, x):
    return x * x


@MLIR.of(Square)
def _write_square(e, op):
    return e.plain(op, "{r}")


@zg.kernel
def tensors(x, out):
    at = zg.arange(0, 8)
    zg.store(zg.add(out, at), zg.exp(zg.load(zg.add(x, at))))


@zg.kernel
def numbers(x, out):
    for i in range(8):
        if i > 2:
            zg.store(zg.add(out, i), zg.exp(zg.load(zg.add(x, i))))


@triton.jit
def in_triton(x, out):
    at = tl.arange(0, 8)
    tl.store(out + at, tl.exp(tl.load(x + at)))


# Other tests look at all ops, so these are registered only while a test of this file runs.
OWN = {cls.NAME: OPS.pop(cls.NAME) for cls in (Eval, Mine, Count, Pick, Send, Square)}


@pytest.fixture(autouse=True)
def own_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, cls in OWN.items():
        monkeypatch.setitem(OPS, name, cls)


KERNELS = {"tensors": tensors, "numbers": numbers, "triton": in_triton}
X = np.arange(8, dtype=np.float32)


def model_with(cls: type[Op], kernel=tensors) -> Op:
    """The model of a kernel with the op in the place of `exp`."""

    def replaced(builder, op, operands):
        if not isinstance(op, math.Exp):
            return None
        if cls is Send:
            builder.add(cls(*operands))
            return operands[0]
        if cls is Count:
            bits = builder.add(arith.FPToSI(operands[0], zg.kit.with_element(operands[0].type, zg.i32)))
            return builder.add(arith.SIToFP(builder.add(Count(bits)), operands[0].type))
        return builder.add(cls(*operands))

    return zg.transform(kernel.triton(zg.ptr(zg.f32), zg.ptr(zg.f32)), replaced)


TIERS = {
    "run": (lambda model: zg.run(model, (1,), X, X.copy()), "meaning on numbers", "codemodel.scalars.MEANINGS"),
    "gpu": (lambda model: zg.compile(model), "rule for LLVM text", "backend.llvm.elementwise.RULES"),
    "isolated": (lambda model: zg.compile(model, isolate=True), "rule for LLVM text", "backend.ptx.emitter.EMITTERS"),
    "cpu": (lambda model: zg.compile(model, target="cpu"), "rule for LLVM text", "backend.cpu.emitter.EMITTERS"),
    "mlir": (lambda model: zg.to_mlir(model), "emitter for MLIR", "backend.mlir.emitter.EMITTERS"),
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("cls", [Eval, Mine, Count, Pick, Send])
@pytest.mark.parametrize("tier", TIERS)
def test_a_tier_names_the_op_that_it_lacks_and_its_table(tier, cls, kernel):
    use, noun, table = TIERS[tier]
    model = model_with(cls, KERNELS[kernel])
    zg.verify(model)
    assert zg.same_model(zg.parse(str(model)), model) and zg.same_model(model, pickle.loads(pickle.dumps(model)))
    with pytest.raises(TargetError) as error:
        use(model)
    assert error.value.summary == f"no {noun} is registered for '{cls.NAME}'"
    assert error.value.location is not None and error.value.location.file == __file__
    assert f"@ziggurat.{table}.of({cls.__name__})" in error.value.hint
    assert "replace the op by a transform" in error.value.hint and "another tier" not in str(error.value)


@pytest.mark.parametrize("kernel", KERNELS)
def test_an_op_with_a_function_at_each_tier_runs_at_each(kernel):
    model = model_with(Square, KERNELS[kernel])
    expected = np.where(X > 2, X * X, 0) if kernel == "numbers" else X * X
    compiled = zg.compile(model)
    for run in (
        lambda out: zg.run(model, (1,), X, out),
        lambda out: zg.compile(model, target="cpu")[1](X, out),
        lambda out: compiled.simulate[1](X, out),
    ):
        out = np.zeros(8, np.float32)
        run(out)
        np.testing.assert_array_equal(out, expected)
    assert "poly.square" in zg.to_mlir(model)


def test_models_with_own_ops_and_types_in_other_processes(tmp_path, monkeypatch):
    """A pickle imports the modules of the ops and types; a worker, which cannot, is not asked."""
    (tmp_path / "own_types.py").write_text(
        "import attrs\n"
        "from ziggurat.codemodel.type_reader import read_type, register_type\n"
        "from ziggurat.codemodel.types import Type, TypeSyntax\n"
        "@attrs.frozen(str=False, cache_hash=True)\n"
        "class Poly(Type):\n"
        "    element: Type\n"
        "    def syntax(self):\n"
        "        return TypeSyntax('poly_of', (self.element.syntax(),))\n"
        "register_type('poly_of', lambda syntax: Poly(read_type(syntax.arguments[0])))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("own_types")
    data = pickle.dumps(zg.parse('tt.func @"f" (%0 : poly_of<f32>)void -> { tt.return; };'))
    program = f"import sys, pickle; sys.path.insert(0, {str(tmp_path)!r}); print(pickle.loads({data!r}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "poly_of<f32>" in done.stdout
    model = model_with(Square)
    assert zg.compile(model, isolate=True).ptx == zg.compile(model).ptx


def test_text_that_llvm_rejects_is_an_error(monkeypatch):
    monkeypatch.setitem(LLVM._registered, Square, lambda op, x: x.call("llvm.sqrt", x))
    monkeypatch.setattr(LLVM, "_cache", {})
    with pytest.raises(TargetError, match="LLVM rejects the emitted text") as error:
        zg.compile(model_with(Square))
    assert error.value.hint == "look at the functions that write LLVM text for poly.square"


def test_an_interpreter_of_python_names_the_op_that_it_lacks():
    model = zg.parse('func @"f" (%0 : f32)f32 -> { %1 : f32 = poly.square %0; return %1; };')
    with pytest.raises(TargetError, match=r"no meaning in Python is registered for 'poly\.square'"):
        zg.execute(model, np.float32(2))


def test_a_gradient_names_the_op_and_its_table():
    @call("Arithmetic")
    def evaluated(x: Value) -> Value:
        """A call of the op."""

    RULES["evaluated"] = Rule(
        lambda typing, x: typing.op_type(lambda operands: Eval(*operands), x),
        lambda emit, result, x: emit.add(Eval(x.value)),
    )
    try:

        @zg.kernel
        def kernel(x, out):
            zg.store(out, evaluated(zg.load(x)))

        gradient = zg.grad(kernel, wrt=["x"], of=["out"])
        with pytest.raises(zg.KernelTypeError, match=r"poly\.eval has no gradient: no rule is registered") as error:
            gradient[1](*(np.ones(1, np.float32) for _ in range(4)))
        assert "differentiate.adjoint.gradients.of" in error.value.hint
    finally:
        del RULES["evaluated"], CALLS["evaluated"], SIGNATURES["evaluated"]
