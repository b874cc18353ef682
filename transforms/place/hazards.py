"""The check of a placed model: nothing that runs asynchronously is used, or overwritten, too early.

It derives the order of accesses anew from the finished model, so that it judges all passes before it.
"""

from __future__ import annotations

from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.op import Op
from ziggurat.transforms.place.barriers import missing_barriers
from ziggurat.transforms.place.in_flight import used_too_early
from ziggurat.transforms.place.mbarriers import wrong_phases
from ziggurat.transforms.place.rings import Hazard

__all__ = ["Hazard", "hazards"]


def hazards(module: Op) -> list[Hazard]:
    """The pairs of ops of a GPU model between which something is missing; none of a model that `place` has made.

    * a barrier or a fence between two accesses of shared memory (`barriers`);
    * a wait, a commit or an arrival for asynchronous ops: copies of cp.async, wgmma, loads and stores of TMA
      (`in_flight`);
    * the bytes and arrivals that an mbarrier expects (`mbarriers`).
    """
    assert isinstance(module, gpu.Module)
    return [*missing_barriers(module), *used_too_early(module), *wrong_phases(module)]
