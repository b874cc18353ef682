"""The tuning farm on a Ray cluster of this machine. CI does not install Ray: `pip install '.[farm]'` does."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from libraries import require

import ziggurat as zg
from ziggurat.tuning.farm import Farm

ray: Any = require("ray")
cluster_utils: Any = require("ray.cluster_utils")
N = 1000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster of two machines, which are processes here."""
    os.environ["RAY_AUTH_MODE"] = "disabled"
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def tuned(measure: Callable[[Callable[[], None]], float] | None, *blocks: int) -> Any:
    @zg.autotune(
        [zg.Config({"BLOCK": block}) for block in blocks], key=["n"], measure=measure, warmup=1.0, rep=2.0, quiet=True
    )
    @zg.kernel
    def scale(x_ptr, out_ptr, n, BLOCK: zg.constexpr):
        at = zg.add(zg.program_id(0) * BLOCK, zg.arange(0, BLOCK))
        mask = zg.less(at, n)
        zg.store(zg.add(out_ptr, at), zg.mul(zg.load(zg.add(x_ptr, at), mask), 2.0), mask)

    return scale


def grid(meta: dict[str, Any]) -> tuple[int]:
    return (zg.cdiv(N, meta["BLOCK"]),)


def run_farm(kernel: Any, **settings: Any) -> Any:
    x, out = np.arange(N, dtype=np.float32), np.zeros(N, np.float32)
    with Farm(**settings) as farm:
        farm.add(kernel, grid, x, out, N)
        (record,) = farm.run()
    return record


def test_a_launch_takes_the_choice_of_the_farm(cluster: Any) -> None:
    kernel = tuned(None, 16, 64, 1024)
    record = run_farm(kernel)
    assert set(record.times) == {"BLOCK=16", "BLOCK=64", "BLOCK=1024"} and record.config in record.times
    x, out = np.arange(N, dtype=np.float32), np.zeros(N, np.float32)
    kernel[grid](x, out, N)
    assert kernel.last == record and (out == 2 * x).all()


def test_lost_workers_are_survived(cluster: Any, tmp_path: Path) -> None:
    """One worker ends in its first measurement, one configuration ends or holds up each of its workers."""
    folder = str(tmp_path)

    def measure(run: Callable[[], None]) -> float:
        run()
        first = os.path.join(folder, "first")
        if not os.path.exists(first):
            open(first, "w").close()
            os._exit(1)
        return 1.0

    record = run_farm(tuned(measure, 16, 64), losses=3)
    assert set(record.times) == {"BLOCK=16", "BLOCK=64"} and not record.left_out

    def end(run: Callable[[], None]) -> float:
        os._exit(1)

    with pytest.raises(zg.LaunchError, match="no configuration of 'scale' could be measured"):
        run_farm(tuned(end, 16, 32), losses=2)

    def sleep(run: Callable[[], None]) -> float:
        mark = os.path.join(folder, "slow")
        if not os.path.exists(mark):
            open(mark, "w").close()
            time.sleep(1000)
        return 1.0

    assert set(run_farm(tuned(sleep, 16, 64, 128), timeout=5.0).times) == {"BLOCK=16", "BLOCK=64", "BLOCK=128"}


def test_a_machine_that_is_lost_and_one_that_joins(cluster: Any) -> None:
    second = cluster.add_node(num_cpus=1)

    def measure(run: Callable[[], None]) -> float:
        time.sleep(2.0)
        return 1.0

    blocks = [2**k for k in range(4, 12)]
    records: list[Any] = []
    thread = threading.Thread(target=lambda: records.append(run_farm(tuned(measure, *blocks))))
    thread.start()
    time.sleep(5.0)
    cluster.remove_node(second)
    cluster.add_node(num_cpus=1)
    thread.join()
    assert set(records[0].times) == {f"BLOCK={block}" for block in blocks}


def test_errors_name_their_causes(cluster: Any) -> None:
    with Farm() as farm:
        with pytest.raises(zg.LaunchError, match=r"a farm tunes kernels under zg\.autotune; got"):
            farm.add(tuned(None, 16).kernel, grid)
        farm.add(tuned(lambda run: 1 / 0, 16, 32), grid, np.zeros(N, np.float32), np.zeros(N, np.float32), N)  # pyright: ignore
        with pytest.raises(zg.LaunchError, match="a worker failed: ZeroDivisionError"):
            farm.run()
