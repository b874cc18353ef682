"""Both compilers over variants, each in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import variants

HERE = Path(__file__).resolve().parent
SIDES = ("ours", "theirs")


def results_of(
    side: str, named: dict[str, variants.Variant], folders: list[str], triton: str, output: Path
) -> dict[str, Any]:
    """The result of each variant: its counts, or the error. Results that `output` has already are taken from there. A
    process that dies is started again after the variant that it died of."""
    output.touch()
    with tempfile.TemporaryDirectory() as scratch:
        environment = {**os.environ, "TRITON_CACHE_DIR": f"{scratch}/cache", "CUDA_VISIBLE_DEVICES": ""}
        if side == "theirs":
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, (triton, os.environ.get("PYTHONPATH", ""))))
        while rest := {name: named[name] for name in named if name not in (before := _read(output))}:
            lines = "".join(json.dumps({"name": name, "variant": variant}) + "\n" for name, variant in rest.items())
            command = [sys.executable, str(HERE / "one_compiler.py"), side, str(output), *folders]
            process = subprocess.run(
                command, input=lines, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                check=False,
            )  # fmt: skip
            if len(before) == len(_read(output)):
                raise SystemExit(f"the process of {side} failed:\n{process.stderr[-3000:]}")
    return _read(output)


def _read(output: Path) -> dict[str, Any]:
    entries = map(json.loads, output.read_text("utf-8").splitlines())
    return {entry["name"]: {"error": "the process died"} if entry.get("started") else entry for entry in entries}


def both(named: dict[str, variants.Variant], folders: list[str], triton: str, kept: Path) -> dict[str, dict[str, Any]]:
    """The results of our compiler and of Triton's, one after the other. `kept` keeps them, ours for each commit."""
    kept.mkdir(parents=True, exist_ok=True)
    files = {"ours": f"ours-{commit()}.jsonl", "theirs": "theirs.jsonl"}
    return {side: results_of(side, named, folders, triton, kept / files[side]) for side in SIDES}


def commit() -> str:
    """The commit of the tree that the compiler is of, and whether the tree differs from it."""

    def git(*words: str) -> str:
        return subprocess.check_output(["git", *words], cwd=HERE.parents[1], text=True).strip()

    changed = git("status", "--porcelain", "--", "codemodel", "frontends", "transforms", "backend", "api")
    return git("rev-parse", "--short", "HEAD") + ("-changed" if changed else "")
