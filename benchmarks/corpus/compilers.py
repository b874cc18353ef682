"""Both compilers over variants, each in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import variants

HERE = Path(__file__).resolve().parent
SIDES = ("ours", "theirs")


def results_of(side: str, named: dict[str, variants.Variant], folders: list[str], triton: str) -> dict[str, Any]:
    """The result of each variant: its code, or the error. A process that dies is started again after the variant that
    it died of."""
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "results.jsonl"
        output.touch()
        environment = {**os.environ, "TRITON_CACHE_DIR": f"{scratch}/cache", "CUDA_VISIBLE_DEVICES": ""}
        if side == "theirs":
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, (triton, os.environ.get("PYTHONPATH", ""))))
        rest = dict(named)
        while rest:
            lines = "".join(json.dumps({"name": name, "variant": variant}) + "\n" for name, variant in rest.items())
            command = [sys.executable, str(HERE / "one_compiler.py"), side, str(output), *folders]
            process = subprocess.run(
                command, input=lines, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                check=False,
            )  # fmt: skip
            entries = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
            count, rest = len(rest), {name: rest[name] for name in rest.keys() - {entry["name"] for entry in entries}}
            if count == len(rest):
                raise SystemExit(f"the process of {side} failed:\n{process.stderr[-3000:]}")
        results: dict[str, Any] = {}
        for line in output.read_text("utf-8").splitlines():
            entry = json.loads(line)
            results[entry["name"]] = {"error": "the process died"} if entry.get("started") else entry
        return results


def both(named: dict[str, variants.Variant], folders: list[str], triton: str) -> dict[str, dict[str, Any]]:
    """The results of our compiler and of Triton's, at the same time."""
    with ThreadPoolExecutor(2) as pool:
        tasks = {side: pool.submit(results_of, side, named, folders, triton) for side in SIDES}
        return {side: task.result() for side, task in tasks.items()}
