"""Every pass on the way to a GPU model keeps the results of a kernel: the interpreter runs the model after each pass.

`python tests/support/generated_passes.py --count 10000` runs more generated kernels than the suite does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from every_pass import difference, first_fault, results
from generated_passes import fault_of
from pass_cases import CASES

import ziggurat as zg
from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.passes import Snapshot
from ziggurat.codemodel.transform import transform
from ziggurat.transforms.gpu import gpu_passes
from ziggurat.transforms.gpu.gpu_passes import PLACE

pytestmark = pytest.mark.filterwarnings("ignore::ziggurat.ZigguratWarning")


@pytest.mark.parametrize("name", CASES)
def test_every_pass_keeps_the_results(name: str) -> None:
    passes: list[Snapshot] = []
    kernel = CASES[name]()
    assert first_fault(kernel, passes) is None
    assert [snapshot.name for snapshot in passes] == [step for step, _ in PLACE]
    before = kernel.arguments()
    hosts = [getattr(value, "host", value) for value in before]
    arrays = [value for value in hosts if isinstance(value, np.ndarray)]
    assert difference(arrays, results(kernel.model, kernel), 0), "the kernel writes nothing"


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_generated_kernels(first: int) -> None:
    complete = 0
    for seed in range(first, first + 20):
        try:
            assert fault_of(seed) is None, seed
            complete += 1
        except zg.KernelRuntimeError:
            pass  # The kernel itself fails, as by an index out of bounds.
    assert complete > 10


# Wrong passes are found, with their names.


def _broken(monkeypatch: pytest.MonkeyPatch, name: str, change: Any) -> None:
    """Let a pass change its result further."""
    run = dict(PLACE)[name]
    wrong = (name, lambda op, options: transform(run(op, options), change))
    monkeypatch.setattr(gpu_passes, "PHASES", gpu_passes.replaced(name, wrong))


def _without_mask(builder: Any, op: Any, operands: Any) -> Any:
    return builder.add(tt.Load(operands[0])) if isinstance(op, tt.Load) and op.mask is not None else None


def _swapped(builder: Any, op: Any, operands: Any) -> Any:
    return builder.add(arith.SubF(*reversed(operands))) if isinstance(op, arith.SubF) else None


def _first_slot(builder: Any, op: Any, operands: Any) -> Any:
    if not isinstance(op, gpu.LocalView):
        return None
    return builder.add(gpu.LocalView(operands[0], builder.add(arith.ConstantOp(0, operands[1].type))))


def _released_early(builder: Any, op: Any, operands: Any) -> Any:
    return builder.add(gpu.ChannelRelease(operands[0])) if isinstance(op, gpu.ChannelRelease) else None


@pytest.mark.parametrize(
    ("name", "kernel", "change"),
    [
        ("assign", "softmax by blocks, sm_90a", _without_mask),
        ("dce", "layer norm", _swapped),
        ("expand", "grouped descriptors", _first_slot),
        ("lower_channels", "attention, roles", _first_slot),
    ],
)
def test_a_wrong_pass_is_named(monkeypatch: pytest.MonkeyPatch, name: str, kernel: str, change: Any) -> None:
    _broken(monkeypatch, name, change)
    fault = first_fault(CASES[kernel]())
    assert fault is not None and fault.startswith(f"{name}: ")
