"""`triton.ops.matmul_perf_model` of Triton 2.1 to 3.1, by which programs choose configurations of products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ziggurat.triton.arithmetic import cdiv
from ziggurat.triton.runtime.driver import driver


def early_config_prune(configs: Sequence[Any], named_args: Mapping[str, Any], **kwargs: Any) -> list[Any]:
    """The configurations whose blocks of `A` and `B`, in all stages, fit in the shared memory of a CTA."""
    properties = driver.active.utils.get_device_properties(driver.active.get_current_device())
    width = named_args["A"].element_size()

    def size(config: Any) -> int:
        block = config.kwargs
        return (block["BLOCK_M"] + block["BLOCK_N"]) * block["BLOCK_K"] * config.num_stages * width

    return [config for config in configs if size(config) <= properties["max_shared_mem"]]


def estimate_matmul_time(
    num_warps: int, num_stages: int, A: Any, B: Any, C: Any, M: int, N: int, K: int,
    BLOCK_M: int, BLOCK_N: int, BLOCK_K: int, SPLIT_K: int, debug: bool = False, **kwargs: Any,
) -> float:  # fmt: skip
    """An estimate in milliseconds: the time of the dots, or of the loads if that is longer, and of the stores.

    It ranks configurations on one device. A multiprocessor does 4096 f16 multiplications a cycle at 1.7 GHz, and
    global memory gives 3 TB/s, a quarter of what the L2 cache gives.
    """
    properties = driver.active.utils.get_device_properties(driver.active.get_current_device())
    rows, columns, width = cdiv(M, BLOCK_M), cdiv(N, BLOCK_N), A.element_size()
    programs = rows * columns * SPLIT_K
    waves = cdiv(programs, properties["multiprocessor_count"])
    dots = waves * BLOCK_M * BLOCK_N * cdiv(K, SPLIT_K) * width / 2 / 4096 / 1.7e6
    first, again = (M * K + N * K) * width, (M * K * (columns - 1) + N * K * (rows - 1)) * width
    loads = (first + again / 4) / 3e9
    stores = M * N * width * (1 if SPLIT_K == 1 else 2 * SPLIT_K) / 3e9
    return max(dots, loads) + stores


__all__ = ["early_config_prune", "estimate_matmul_time"]
