"""Arguments of the kit that are not what they must be are errors of the caller, in words."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import ziggurat as zg


@zg.kernel
def copy(x_ptr, y_ptr, n):
    zg.store(y_ptr, zg.mul(zg.load(x_ptr), n))


MODEL = copy.triton(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.f32)

FUNCTION = zg.kit.kernel_of(MODEL)
PARAMETER = FUNCTION.body.parameters[0]

MISUSES: list[tuple[Callable[[], object], str]] = [
    (lambda: zg.kit.specialize(MODEL, 5), "specialize: 'values' must map parameters to numbers; got 5"),
    (lambda: zg.kit.specialize(MODEL, {2.0: 20}), "has no numeric parameter 2.0\n"),
    (lambda: zg.kit.specialize(MODEL, {np.float32(2): 20.0}), "has no numeric parameter np.float32(2.0)\n"),
    (lambda: zg.kit.specialize(3, {}), "specialize: the model must be an Op; got 3"),
    (lambda: zg.kit.unspecialize(MODEL, 3), "unspecialize: 'chosen' must be a function of an arith.constant; got 3"),
    (lambda: zg.kit.unspecialize(None, callable), "unspecialize: the model must be an Op; got None"),
    (lambda: zg.kit.joined(MODEL, MODEL, 1), "joined: 'same' must map numbers of parameters of the second kernel"),
    (lambda: zg.kit.joined(MODEL, MODEL, {0: "a"}), "to those of the first; got 'a'"),
    (lambda: zg.kit.joined(MODEL, 3, {}), "joined: the model must be an Op; got 3"),
    (lambda: zg.kit.fuse(MODEL, MODEL, 1), "'through' must be the numbers of two parameters, such as (1, 0); got 1"),
    (lambda: zg.kit.fuse(MODEL, MODEL, (1, 0), 2), "fuse: 'same' must map numbers of parameters of the consumer"),
    (lambda: zg.kit.fuse(MODEL, MODEL, (1, 0), {2.0: 2}), "to those of the producer; got 2.0"),
    (lambda: zg.kit.fuse(3, MODEL, (1, 0)), "fuse: the model must be an Op; got 3"),
    (lambda: zg.kit.ssa(3), "ssa: the model must be an Op; got 3"),
    (lambda: zg.kit.inline(3), "inline: the model must be an Op; got 3"),
    (lambda: zg.kit.with_attributes(MODEL, {MODEL: 3}), "module has no attribute <module {…}>; it has none"),
    (lambda: zg.kit.with_attributes(3, {}), "with_attributes: the model must be an Op; got 3"),
    (lambda: zg.kit.replace_calls(copy.model, "zg.load", None), "must be a function (builder, arguments); got None"),
    (lambda: zg.kit.run_passes(MODEL, None), "the passes must be in a list; got None\n  hint: give [a, b], or"),
    (lambda: zg.kit.run_passes(MODEL, zg.simplify), "the passes must be in a list; got <function simplify"),
    (lambda: zg.kit.run_passes(MODEL, [None]), "a pass must be a function from model to model; got None"),
    (lambda: zg.kit.run_passes(None, []), "run_passes: the model must be an Op; got None"),
    (lambda: zg.kit.compose("x"), "a pass must be a function from model to model; got 'x'"),
    (lambda: zg.kit.origins(3), "'value' must be a Value; got 3"),
    (lambda: zg.kit.origins(PARAMETER, through=3), "'through' must be a function that says of an op whether it counts"),
    (lambda: zg.kit.derived(PARAMETER, through=3), "'through' must be a function that says of an op whether it counts"),
    (lambda: zg.kit.difference(MODEL, MODEL, "a"), "'context' must be a number of lines, zero or more; got 'a'"),
    (lambda: zg.kit.difference(MODEL, MODEL, context=-1), "'context' must be a number of lines, zero or more; got -1"),
    (lambda: zg.kit.difference(MODEL, "x"), "difference: the model must be an Op; got a string"),
    (lambda: zg.kit.inline_call(zg.Builder.root(), "name", ()), "'function' must be a tt.func or a func; got 'name'"),
    (lambda: zg.kit.inline_call(3, FUNCTION, ()), "inline_call: 'builder' must be a Builder; got 3"),
    (lambda: zg.kit.inline_call(zg.Builder.root(), FUNCTION, 3), "'arguments' must be a list of values; got 3"),
    (lambda: zg.kit.inline_call(zg.Builder.root(), FUNCTION, [3]), "an argument must be a Value; got 3"),
    (lambda: zg.kit.cast(zg.Builder.root(), PARAMETER, "f16"), "'element' must be a dtype such as zg.f32; got 'f16'"),
    (lambda: zg.kit.cast(zg.Builder.root(), 3, zg.f16), "cast: 'value' must be a Value; got 3\n  hint: give op.result"),
    (lambda: zg.kit.cast(3, PARAMETER, zg.f16), "cast: 'builder' must be a Builder; got 3"),
    (lambda: zg.Builder.root().add("x"), "a builder must get an op to add; got 'x'"),
    (lambda: zg.kit.op_(int), "op_: 'kind' must be a class of ops, or a trait; got <class 'int'>"),
    (lambda: zg.kit.specialize(MODEL, {2: None}), "specialize: the value of parameter 2 must be a number; got None"),
    (lambda: zg.kit.constant(3), "must be a string; got 3\n  hint: kit.constant(value=3) is a constant"),
    (lambda: zg.kit.shaped(zg.f32, (4,)), "must be a shape and an element type; got ScalarType and tuple"),
    (lambda: zg.kit.shaped((4,), "f32"), "must be a shape and an element type; got tuple and str"),
    (lambda: zg.kit.retype(3, {zg.f32: zg.bf16}), "retype: the model must be an Op; got 3"),
    (lambda: zg.kit.joined(3, MODEL, {}), "joined: the model must be an Op; got 3"),
    (lambda: zg.kit.joined(MODEL, MODEL, {"a": 0}), "to those of the first; got 'a'"),
    (lambda: zg.kit.fuse(MODEL, 3, (1, 0)), "fuse: the model must be an Op; got 3"),
    (
        lambda: zg.kit.fuse(MODEL, MODEL, (1, "a")),
        "must be the numbers of two parameters, such as (1, 0); got (1, 'a')",
    ),
    (lambda: zg.kit.fuse(MODEL, MODEL, (1, 0, 2)), "must be the numbers of two parameters, such as (1, 0); got (1, 0"),
    (lambda: zg.kit.difference("x", MODEL), "difference: the model must be an Op; got a string"),
    (lambda: zg.kit.replace_calls(3, "x", print), "replace_calls: the model must be an Op; got 3"),
    (lambda: zg.kit.kernel_of(3), "kernel_of: the model must be an Op; got 3"),
    (lambda: zg.simplify(3), "simplify: the model must be an Op; got 3"),
    (lambda: zg.kit.retype(MODEL, {zg.f32: zg.bf16}, 3), "must be the numbers of parameters, such as [0]; got 3"),
]


@pytest.mark.parametrize(("misuse", "message"), MISUSES, ids=[message for _, message in MISUSES])
def test_wrong_arguments(misuse: Callable[[], object], message: str) -> None:
    with pytest.raises((zg.KernelTypeError, zg.BuildError)) as error:
        misuse()
    assert message in str(error.value)


def test_numbers_of_numpy_are_numbers() -> None:
    result = zg.kit.specialize(MODEL, {np.int64(2): np.float32(2)})
    assert zg.same_model(result, zg.kit.specialize(MODEL, {2: 2.0}))
