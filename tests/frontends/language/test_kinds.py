"""The names of annotations: those that calls use are declared, and those declared are used."""

from __future__ import annotations

from ziggurat.frontends.language import SIGNATURES, kinds

DECLARED = {name for name in vars(kinds) if name.startswith(("Const", "Value", "Shape"))}


def test_the_kinds_of_parameters_are_those_declared():
    kinds_of_parameters = {parameter.takes for signature in SIGNATURES.values() for parameter in signature.parameters}
    # `ConstCompareKind` stands beside the enum that it takes. Calls of Triton's Python alone have `ConstTruth`.
    assert kinds_of_parameters == DECLARED - {"ConstTruth"} | {"ConstCompareKind"}


def test_a_constant_is_told_by_its_name():
    for signature in SIGNATURES.values():
        for parameter in signature.parameters:
            assert parameter.constexpr == parameter.takes.startswith("Const")
