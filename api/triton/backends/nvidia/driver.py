"""`triton.backends.nvidia.driver`: the place of CUDA's driver."""

from __future__ import annotations

import os
import subprocess

from ziggurat.triton import knobs
from ziggurat.triton.runtime.driver import CudaDriver

__all__ = ["CudaDriver", "libcuda_dirs"]

_LIBRARY = "libcuda.so.1"


def libcuda_dirs() -> list[str]:
    """The folders with CUDA's driver. Raises `AssertionError` where there is none, as Triton does."""
    if knobs.nvidia.libcuda_path:
        return [knobs.nvidia.libcuda_path]
    lines = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout.splitlines()
    folders = [os.path.dirname(line.split()[-1]) for line in lines if _LIBRARY in line]
    searched = folders or os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    folders = [folder for folder in searched if os.path.exists(os.path.join(folder, _LIBRARY))]
    assert folders, f"{_LIBRARY} is in no folder that the loader knows; set TRITON_LIBCUDA_PATH, or LD_LIBRARY_PATH"
    return folders
