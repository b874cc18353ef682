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
