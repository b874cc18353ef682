"""`triton.language.extra.cuda`: the calls that only CUDA's GPUs have."""

from __future__ import annotations

from ziggurat.frontends.triton.triton_library import SPELLED
from ziggurat.triton.language.extra.cuda import libdevice as libdevice

_NAMES = (
    "experimental_device_tensormap_create1d", "experimental_device_tensormap_create2d",
    "experimental_tensormap_fenceproxy_acquire", "gdc_launch_dependents", "gdc_wait", "globaltimer", "num_threads",
    "num_warps", "smid",
)  # fmt: skip
globals().update({name: SPELLED[name] for name in _NAMES})
