"""Running passes: names, verification, snapshots."""

import pytest

from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.errors import KernelTypeError, VerifyError
from ziggurat.codemodel.op import Op, fill, same_model
from ziggurat.codemodel.passes import Snapshot, run_passes
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.transform import transform
from ziggurat.codemodel.types import i64

MODEL = parse("""tt.func @"f" (%0 : i32)void -> { %1 : i32 = arith.addi %0 %0; tt.print %1 @""; tt.return; };""")


def subtract(model: Op) -> Op:
    """Sums as differences."""
    return transform(model, lambda b, op, values: b.add(arith.SubI(*values)) if isinstance(op, arith.AddI) else None)


def nothing(model: Op) -> Op:
    return model


def breaking(model: Op) -> Op:
    """A copy whose first op has a result of a wrong type."""
    result = transform(model)
    fill(result.bodies[0].entry.ops[0].result, "type", i64)
    return result


def test_passes_run_in_order():
    assert run_passes(MODEL, []) is MODEL
    assert same_model(run_passes(MODEL, [nothing, subtract, subtract]), subtract(MODEL))


def test_a_snapshot_after_each_pass():
    selection: list[Snapshot] = []
    result = run_passes(MODEL, [nothing, ("differences", subtract)], snapshots=selection)
    assert [snapshot.name for snapshot in selection] == ["nothing", "differences"]
    assert selection[0].model is MODEL and selection[1].model is result


def test_a_pass_that_breaks_the_model_is_named():
    run_passes(MODEL, [breaking])
    with pytest.raises(VerifyError, match=r"after the pass 'breaking', the model breaks 1 invariant") as error:
        run_passes(MODEL, [subtract, breaking], verify=True)
    assert len(error.value.violations) == 1


def test_a_pass_without_a_result_is_named():
    def forgetful(model: Op) -> Op:
        return None  # pyright: ignore[reportReturnType]

    with pytest.raises(KernelTypeError, match="the pass 'forgetful' must return a model; got None"):
        run_passes(MODEL, [forgetful])


def test_a_model_that_no_pass_changed_is_not_verified():
    broken = breaking(MODEL)
    assert isinstance(broken, tt.Func)
    assert run_passes(broken, [nothing], verify=True) is broken
