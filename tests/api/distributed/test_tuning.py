"""Ranks that tune together: processes with a group of gloo, which launch one kernel on arrays in memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from libraries import require

require("torch.distributed")

RANK = """
import json, sys
import numpy as np
import torch.distributed as dist
import ziggurat as zg

rank, store, times = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
dist.init_process_group("gloo", rank=rank, world_size=2, store=dist.FileStore(store, 2))
runs = []


def measure(run):
    runs.append(run)
    time = times[len(runs) - 1]
    if time is None:
        raise zg.LaunchError(f"rank {rank} has no room")
    return time


settings = {} if times is None else {"measure": measure}


@zg.autotune(
    [zg.Config({"BLOCK": block}) for block in (16, 32, 64)], key=["n"], group=dist.group.WORLD, rep=2.0, **settings
)
@zg.kernel
def add_one(x, n, BLOCK: zg.constexpr):
    at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
    zg.store(zg.add(x, at), zg.add(zg.load(zg.add(x, at), zg.less(at, n)), 1.0), zg.less(at, n))


x = np.zeros(64, np.float32)
add_one[lambda meta: (zg.cdiv(64, meta["BLOCK"]),)](x, 64)
print(json.dumps([add_one.best_config.kwargs["BLOCK"], len(runs), float(x[0]), add_one.last.left_out]))
"""


def run_ranks(folder: Path, *times: Any, caches: tuple[str, str] = ("0", "1")) -> list[Any]:
    """What both ranks print, each with the times that it measures and its cache."""
    script, store = folder / "rank.py", folder / "store"
    script.write_text(RANK, encoding="utf-8")
    store.unlink(missing_ok=True)
    processes = [
        subprocess.Popen(
            [sys.executable, script, str(rank), store, json.dumps(own)],
            env={**os.environ, "ZIGGURAT_CACHE_DIR": str(folder / caches[rank])},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank, own in enumerate(times)
    ]
    return [json.loads(process.communicate(timeout=120)[0]) for process in processes]


def test_the_slowest_rank_counts_and_all_make_its_choice(tmp_path: Path) -> None:
    first, second = run_ranks(tmp_path, [1.0, 2.0, 9.0], [5.0, 3.0, 1.0])
    assert first[:2] == second[:2] == [32, 3]
    # Ranks with their records on disk do not measure; a rank without one takes the choice of the first, or all measure.
    assert [result[:2] for result in run_ranks(tmp_path, [], [])] == [[32, 0], [32, 0]]
    assert [result[:2] for result in run_ranks(tmp_path, [], [], caches=("0", "2"))] == [[32, 0], [32, 0]]
    measured = run_ranks(tmp_path, [3.0, 2.0, 1.0], [3.0, 2.0, 1.0], caches=("3", "1"))
    assert [result[:2] for result in measured] == [[64, 3], [64, 3]]


def test_what_one_rank_leaves_out_all_do(tmp_path: Path) -> None:
    first, second = run_ranks(tmp_path, [1.0, 2.0, 3.0], [None, 2.0, 3.0])
    assert first[0] == second[0] == 32
    assert "rank 1 leaves it out: rank 1 has no room" in first[3]["BLOCK=16"]
    assert second[3]["BLOCK=16"] == "rank 1 has no room"


def test_ranks_make_as_many_launches(tmp_path: Path) -> None:
    first, second = run_ranks(tmp_path, None, None)
    assert first == second and first[2] > 3 * 6
