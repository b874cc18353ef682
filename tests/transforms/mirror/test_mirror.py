"""The module that is built: which functions, in which order, under which names, with which parameters."""

from __future__ import annotations

import attrs
import pytest

import ziggurat as zg
from ziggurat.codemodel.dialects import core, py, tt
from ziggurat.codemodel.errors import BuildError, InternalError
from ziggurat.codemodel.types import PtrType, f32, i32
from ziggurat.transforms.attribution import attribute, constant
from ziggurat.transforms.attribution.attribute import HANDLERS as ATTRIBUTED
from ziggurat.transforms.calls import RULES
from ziggurat.transforms.mirror import mirror
from ziggurat.transforms.mirror.mirror import HANDLERS, ModuleMirror

P = PtrType(f32)


@zg.function
def leaf(x, by: zg.constexpr):
    return x * by


@zg.function
def middle(x):
    return leaf(x, 2) + leaf(x, 3) + leaf(x, 2)


@zg.kernel
def kernel(p, n, UNUSED: zg.constexpr):
    zg.store(p, middle(n) + leaf(n, 2))


def names(model):
    return [func.attributes["sym_name"] for func in model.functions().values()]


def test_callees_come_before_their_callers_and_each_once():
    model = mirror(attribute(kernel, (PtrType(i32), i32, constant(7))))
    zg.verify(model)
    assert names(model) == ["leaf_i32_2_i32", "leaf_i32_3_i32", "middle_i32_i32", "kernel_ptr<i32>_i32_7_void"]
    assert zg.same_model(zg.parse(str(model)), model)


def test_constants_are_no_parameters():
    model = mirror(attribute(kernel, (PtrType(i32), constant(5), constant(7))))
    *_, func = model.functions().values()
    assert [parameter.type for parameter in func.bodies[0].parameters] == [PtrType(i32)]
    first = func.bodies[0].entry.ops[0]
    assert first.NAME == "arith.constant" and first.attributes["value"] == 5


def test_divisibility_is_that_of_the_kernel():
    attribution = attribute(kernel, (PtrType(i32), i32, constant(7)))
    *others, func = mirror(attribution, (16, 1)).functions().values()
    assert func.attributes["divisibility"] == (16, 1)
    assert all(not other.attributes.get("divisibility") for other in others)
    *_, plain = mirror(attribution, (1, 1)).functions().values()
    assert not plain.attributes.get("divisibility")


def test_a_function_has_one_return_as_its_last_op():
    model = mirror(attribute(kernel, (PtrType(i32), i32, constant(7))))
    for func in model.functions().values():
        returns = [op for op in func.walk() if isinstance(op, tt.Return)]
        assert returns == [func.bodies[0].entry.ops[-1]]


def test_each_op_has_the_place_of_the_call_it_was_built_for():
    model = mirror(attribute(kernel, (PtrType(i32), i32, constant(7))))
    store = next(op for op in model.walk() if isinstance(op, tt.Store))
    assert store.location is not None and store.location.file == __file__
    source = open(__file__).read().splitlines()[store.location.line - 1]
    assert source[store.location.column :].startswith("zg.store")


def test_helpers_get_numbers_where_another_has_their_name():
    module = ModuleMirror(["taken"], checks_overflow=False)

    def build(builder, parameters):
        return [parameters[0]]

    def helper(symbol, source):
        return module.helper(symbol, source, [i32], i32, build)

    assert helper("h", "a") == "h" == helper("h", "a")
    assert helper("h", "b") == "h_1" == helper("h", "b") and helper("h", "c") == "h_2"
    assert helper("taken", "a") == "taken_1", "the kernel's own functions keep their names"
    module.builder.add(core.Unreachable())
    model = core.Module(module.builder.finish())
    zg.verify(model)
    assert names(model) == ["h", "h_1", "h_2", "taken_1"]


def test_a_failure_to_build_is_a_fault_that_shows_the_model(monkeypatch):
    def fails(*_):
        raise BuildError("no such operand")

    attribution = attribute(kernel, (P, f32, constant(7)))
    monkeypatch.setitem(RULES, "mul", attrs.evolve(RULES["mul"], build=fails))
    with pytest.raises(InternalError, match="building 'leaf_f32_2_f32': no such operand") as error_info:
        mirror(attribution)
    assert '@"leaf"' in str(error_info.value)


def test_what_is_attributed_is_mirrored():
    """All ops but those that the mirror builds with what they end, and errors, which are reported.

    The driver of attribution begins a function itself.
    """
    ops = [op for dialect in (core, py) for op in vars(dialect).values() if getattr(op, "SPEC", None) is not None]
    apart = {core.Return.NAME, core.Yield.NAME, py.Error.NAME}
    assert {*HANDLERS.missing(ops)} - {*ATTRIBUTED.missing(ops)} == apart
    assert {*ATTRIBUTED.missing(ops)} - {*HANDLERS.missing(ops)} == {core.Func.NAME}
