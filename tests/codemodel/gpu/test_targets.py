"""The names of architectures, and the target for a device."""

import pytest

from ziggurat.codemodel.gpu.targets import TARGETS, target_for


def test_what_is_known_of_a_target():
    hopper = TARGETS["sm_90a"]
    assert (hopper.name, hopper.capability, hopper.is_specific) == ("sm_90a", 90, True)
    assert not TARGETS["sm_90"].is_specific and TARGETS["sm_100"].capability == 100
    assert all(name == target.name for name, target in TARGETS.items())
    assert TARGETS["sm_86"].max_shared < TARGETS["sm_80"].max_shared < hopper.max_shared == 227 * 1024


@pytest.mark.parametrize(
    ("capability", "kilobytes", "warps", "ctas", "ptx"),
    [
        (80, 164, 64, 32, "8.7"), (86, 100, 48, 16, "8.7"), (87, 164, 48, 16, "8.7"), (89, 100, 48, 24, "8.7"),
        (90, 228, 64, 32, "8.7"), (100, 228, 64, 32, "8.7"), (103, 228, 64, 32, "8.8"), (110, 228, 48, 24, "9.0"),
        (120, 100, 48, 24, "8.7"), (121, 100, 48, 24, "8.8"),
    ],
)  # fmt: skip
def test_an_sm_has_what_nvidias_table_of_compute_capabilities_lists(capability, kilobytes, warps, ctas, ptx):
    targets = [target for target in TARGETS.values() if target.capability == capability]
    assert [target.is_specific for target in targets] == ([False, True] if capability >= 90 else [False])
    for target in targets:
        assert (target.shared_of_sm, target.max_warps, target.max_ctas) == (1024 * kilobytes, warps, ctas)
        assert target.ptx == ptx


@pytest.mark.parametrize(
    ("capability", "target"),
    [
        ((8, 0), "sm_80"), ((8, 9), "sm_89"), ((9, 0), "sm_90a"), ((10, 0), "sm_100a"), ((10, 3), "sm_103a"),
        ((12, 0), "sm_120a"),
        ((8, 8), "sm_87"),  # Not known: the latest before it.
        ((10, 1), "sm_100"), ((10, 9), "sm_103"), ((13, 0), "sm_121"),
        ((7, 5), "sm_75"),  # Too old: compiling says so.
    ],
)  # fmt: skip
def test_the_target_of_a_device(capability, target):
    assert target_for(*capability) == target
    assert (target in TARGETS) == (capability >= (8, 0))
