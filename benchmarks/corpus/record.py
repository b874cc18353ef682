"""Record the launches of a program, without a GPU and without running its kernels.

    python benchmarks/corpus record variants.jsonl program.py …

The program runs on tensors in the CPU's memory; each new launch is written down and not made, so results are whatever
the memory holds. Of an autotuner's configurations `CONFIGURATIONS` are recorded, spread over its list.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from typing import Any

import stand_in
import variants

CONFIGURATIONS = 2
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion")


def record(path: str, program: str, arguments: list[str]) -> None:
    """Run a program and add its launches to a file."""
    import ziggurat.triton

    ziggurat.triton.install()
    stand_in.set_up()
    from triton import knobs
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    lines: dict[str, str] = {}

    def hook(*, fn: Any, compile: dict[str, Any], **_: Any) -> bool:
        function = fn.jit_function
        try:
            names = function.arg_names
            constants = {
                place if isinstance(place, str) else names[place[0]]: variants.written(value)
                for place, value in compile["constants"].items()
            }
            variant = {
                "module": function.fn.__module__,
                "kernel": function.fn.__qualname__,
                "file": function.fn.__code__.co_filename,
                "signature": {name: str(type_) for name, type_ in compile["signature"].items()},
                "constants": constants,
                "divisible": [names[place[0]] for configs in compile["configs"] for place in configs],
                "options": {name: compile[name] for name in OPTIONS if compile.get(name) is not None},
            }
            line = json.dumps(variant, sort_keys=True)
        except TypeError as error:
            print(f"not recorded: {fn.name}: {error}", file=sys.stderr)
            return True
        lines[line] = ""
        return True

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **keywords: Any) -> None:
        try:
            if callable(grid):
                bound = dict(zip(kernel.arg_names, args, strict=False)) | kernel.defaults | keywords
                grid({**kernel.defaults, **bound})
            kernel.warmup(*args, grid=grid, **keywords)
        except Exception as error:
            print(f"not recorded: {kernel.name}: {type(error).__name__}: {error}"[:300], file=sys.stderr)

    def tune(tuner: Any, *args: Any, **keywords: Any) -> None:
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        configs = [*tuner.prune_configs(keywords)]
        step = max(1, (len(configs) - 1) // max(1, CONFIGURATIONS - 1))
        for config in configs[::step][:CONFIGURATIONS]:
            tuner.fn.run(*args, **{"warmup": False, **keywords, **config.all_kwargs()})

    knobs.runtime.jit_cache_hook = hook
    JITFunction.run = run  # type: ignore[method-assign]
    Autotuner.run = tune  # type: ignore[method-assign]
    sys.argv = [program, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
    try:
        runpy.run_path(program, run_name="__main__")
    finally:
        with open(path, "a", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)
        print(f"{len(lines)} launches recorded in {path}")
