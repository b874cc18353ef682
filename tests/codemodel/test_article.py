"""The Triton models of the article (Sandoz 2024), in the spelling of its time, are read as ours.

The listings are read from the folder `shared` beside the repository, and stay out of it. That copy has lost the lines
that held only closing braces or an op without operands; they are put back here.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ziggurat.codemodel.dialects import arith, core, scf, tt
from ziggurat.codemodel.op import Op, same_model
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.type_reader import LEGACY_NAMES
from ziggurat.codemodel.types import PtrType, TensorType, TupleType, f16, f32, i1, i32
from ziggurat.codemodel.verify import verify

SEEDS = Path(__file__).resolve().parents[3] / "shared" / "seeds"
OLD_NAME = re.compile(r"(?<![\w.])(" + "|".join(map(re.escape, LEGACY_NAMES)) + r")(?![\w.])")


@pytest.fixture(scope="module")
def article() -> list[str]:
    actual = sorted(SEEDS.glob("003*"))
    if not actual:
        pytest.skip(f"the article is not here: there is no {SEEDS}/003*")
    return actual[0].read_text(encoding="utf-8").splitlines()


def listing(article: list[str], first: str, last: str, occurrence: int = 0) -> str:
    """The lines from one that begins with `first` to the next that begins with `last`, leading blanks aside."""
    starts = [index for index, line in enumerate(article) if line.lstrip().startswith(first)]
    start = starts[occurrence]
    end = next(index for index in range(start, len(article)) if article[index].lstrip().startswith(last))
    return "\n".join(article[start : end + 1])


def in_function(text: str, free: dict[str, str]) -> Op:
    """The ops in a function of a module, with the values that they use from before as its parameters."""
    parameters = ", ".join(f"%{number} : {type_}" for number, type_ in free.items())
    return parse(
        f"""module ()void -> {{
            tt.func @"cdiv_int_32_int" (%0 : int)int -> {{ tt.return %0; }};
            tt.func @"kernel" ({parameters})void -> {{
                {text}
                tt.return;
            }};
            unreachable;
        }};"""
    )


def ops(model: Op, cls: type[Op]) -> list[Op]:
    return [op for op in model.walk() if isinstance(op, cls)]


def check(model: Op) -> None:
    """The model is one of ours: valid, read back from its text, and free of old names."""
    verify(model)
    text = str(model)
    assert same_model(parse(text), model)
    assert OLD_NAME.search(text.replace("_", " ")) is None


def test_vector_addition(article: list[str]):
    text = listing(article, "module ()void", "tt.store %20")
    model = parse(text + "\n tt.return; }; unreachable; };")
    check(model)
    assert isinstance(model, core.Module)
    (symbol,) = model.functions()
    assert symbol == "add_kernel2_ptr<f32>_ptr<f32>_ptr<f32>_i32_64_void"
    # An op a line, and the three that were lost: the func's return, the module's end, and the module itself.
    assert sum(1 for _ in model.walk()) == text.count(";") + 4
    assert [type_.type for type_ in model.functions()[symbol].bodies[0].parameters] == [PtrType(f32)] * 3 + [i32]
    (constant,) = ops(model, arith.ConstantOp)
    assert constant.attributes["value"] == 64
    (result,) = ops(model, tt.MakeRange)
    assert dict(result.attributes) == {"start": 0, "end": 64}
    (compared,) = ops(model, arith.CmpI)
    assert compared.attributes["predicate"] is arith.IntPredicate.SLT
    assert compared.result.type == TensorType((64,), i1)
    assert [op.result.type for op in ops(model, tt.Load)] == [TensorType((64,), f32)] * 2


A, B, C = TensorType((32, 32), PtrType(f16)), TensorType((32, 64), PtrType(f16)), TensorType((32, 64), f32)
FREE = {"17": "int", "19": "int", "20": "int", "26": "int", "52": "tensor<x32, int>"}
CARRIED = {"63": str(A), "74": str(B), "75": str(C)}


def test_the_loop_of_the_matrix_multiply(article: list[str]):
    text = listing(article, '%76 : int = arith.constant @"0";', "%109 :", occurrence=1)
    model = in_function(text.replace("scf.yield %99 %102 %105;", "scf.yield %99 %102 %105; };"), FREE | CARRIED)
    check(model)
    (loop,) = ops(model, scf.For)
    assert loop.result.type == TupleType((C, A, B))
    # A mask was an i32 then; ours is an i1. A dot had no accumulator; ours gets one of zeros.
    assert [op.result.type for op in ops(model, arith.CmpI)] == [TensorType((1, 32), i1), TensorType((32, 1), i1)]
    loads = ops(model, tt.Load)
    assert [op.operands[1].type for op in loads] == [TensorType((32, 32), i1), TensorType((32, 64), i1)]
    (dot,) = ops(model, tt.Dot)
    assert dot.operands[2] in [op.result for op in ops(model, arith.ConstantOp)]
    assert dot.operands[2].type == C
    (narrowed,) = ops(model, arith.TruncF)
    assert narrowed.result.type == TensorType((32, 64), f16)
    calls = ops(model, tt.Call)
    assert [op.attributes["callee"] for op in calls] == ["cdiv_i32_32_i32"]
    assert [op.attributes["index"] for op in ops(model, core.TupleLoad)] == [0, 1, 2]


def test_the_abridged_loop_with_types_over_several_lines(article: list[str]):
    text = listing(article, '%76 : int = arith.constant @"0";', "%108 :")
    arguments = {"17": "int", **CARRIED, "99": str(C), "102": str(A), "105": str(B)}
    model = in_function(text.replace("scf.yield %99 %102 %105;", "scf.yield %99 %102 %105; };"), arguments)
    check(model)
    (loop,) = ops(model, scf.For)
    assert [p.type for p in loop.bodies[0].parameters] == [i32, C, A, B]
