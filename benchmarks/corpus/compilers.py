"""Both compilers over variants, each in processes of its own."""

from __future__ import annotations

import itertools
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


def results_of(
    side: str, named: dict[str, variants.Variant], folders: list[str], triton: str, kept: Path, processes: int
) -> dict[str, Any]:
    """The result of each variant: its counts, or the error. Those that files of `kept` have are taken from there. A
    process that dies is started again after the variant that it died of."""
    with tempfile.TemporaryDirectory() as scratch:
        environment = {**os.environ, "TRITON_CACHE_DIR": f"{scratch}/cache", "CUDA_VISIBLE_DEVICES": ""}
        if side == "theirs":
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, (triton, os.environ.get("PYTHONPATH", ""))))
        stem = "theirs" if side == "theirs" else f"ours-{commit()}"

        def compile(part: int) -> None:
            own = f"{stem}-{part}"
            command = [sys.executable, str(HERE / "one_compiler.py"), side, str(kept / f"{own}.jsonl"), *folders]
            while rest := [name for name in names[part::processes] if name not in (before := _read(kept, own))]:
                lines = "".join(json.dumps({"name": name, "variant": named[name]}) + "\n" for name in rest)
                process = subprocess.run(
                    command, input=lines, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                    check=False,
                )  # fmt: skip
                if len(before) == len(_read(kept, own)):
                    raise SystemExit(f"the process of {side} failed:\n{process.stderr[-3000:]}")

        done = _read(kept, stem)
        names = [name for name in named if name not in done]
        with ThreadPoolExecutor(processes) as pool:
            [*pool.map(compile, range(processes))]
        return _read(kept, stem)


def _read(kept: Path, stem: str) -> dict[str, Any]:
    """The results in all files of a stem."""
    lines = itertools.chain(*(path.read_text("utf-8").splitlines() for path in sorted(kept.glob(f"{stem}*.jsonl"))))
    results: dict[str, Any] = {}
    for entry in map(json.loads, lines):
        if not entry.get("started"):
            results[entry["name"]] = entry
        else:
            results.setdefault(entry["name"], {"error": "the process died"})
    return results


def both(
    named: dict[str, variants.Variant], folders: list[str], triton: str, kept: Path, processes: int
) -> dict[str, dict[str, Any]]:
    """The results of our compiler and of Triton's, one after the other. `kept` keeps them, ours for each commit."""
    kept.mkdir(parents=True, exist_ok=True)
    return {side: results_of(side, named, folders, triton, kept, processes) for side in SIDES}


def commit() -> str:
    """The commit of the tree that the compiler is of, and whether the tree differs from it; "tree" without git."""

    def git(*words: str) -> str:
        return subprocess.check_output(["git", *words], cwd=HERE.parents[1], text=True).strip()

    try:
        changed = git("status", "--porcelain", "--", "codemodel", "frontends", "transforms", "backend", "api")
        return git("rev-parse", "--short", "HEAD") + ("-changed" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "tree"
