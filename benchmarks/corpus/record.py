"""Record the launches of a program, without a GPU and without running its kernels.

    python benchmarks/corpus record [--configurations N] variants.jsonl program.py …

The program runs on tensors in the CPU's memory; each new launch is written down and not made, so results are whatever
the memory holds. Of an autotuner's configurations N are recorded, spread over its list.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import runpy
import sys
from typing import Any

import stand_in
import variants

MAX_VALUES = 1 << 13  # Elements of the largest tensor of integers whose values are recorded.
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion")


def described(value: Any) -> Any:
    """An argument for JSON, without the values of floats. Raises `TypeError` for those that have no such form."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if hasattr(value, "block_shape") and hasattr(value, "base"):
        sizes = {name: [*map(int, getattr(value, name))] for name in ("shape", "strides", "block_shape")}
        return {"descriptor": described(value.base), **sizes}
    if not hasattr(value, "untyped_storage") or not hasattr(value, "storage_offset"):
        raise TypeError(f"an argument of type {type(value).__name__} has no form in JSON")
    count = value.untyped_storage().nbytes() // value.element_size() - value.storage_offset()
    entry = {"dtype": str(value.dtype).removeprefix("torch."), "elements": count}
    if not value.is_floating_point() and not value.is_complex():
        flat = value.detach().as_strided((count,), (1,))
        if count <= MAX_VALUES:
            entry["values"] = flat.tolist()
        elif count:
            entry["below"] = max(flat[:MAX_VALUES].tolist()) + 1
    return entry


def record(path: str, program: str, arguments: list[str], configurations: int) -> None:
    """Run a program and add its launches to a file."""
    import ziggurat.triton

    ziggurat.triton.install()
    stand_in.set_up()
    from triton import knobs
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    lines: set[str] = set()
    launch: dict[str, Any] = {}  # that of the kernel that is to be compiled
    numbers = itertools.count()
    file = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115 - it is open as long as the program runs

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
            line = json.dumps({**variant, **launch}, sort_keys=True)
        except TypeError as error:
            print(f"not recorded: {fn.name}: {error}", file=sys.stderr)
            return True
        if line not in lines:
            lines.add(line)
            file.write(line + "\n")
        return True

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **keywords: Any) -> None:
        try:
            bound = {**kernel.defaults, **dict(zip(kernel.arg_names, args, strict=False)), **keywords}
            if callable(grid):
                grid = grid(bound)
            launch.pop("launch", None)
            with contextlib.suppress(TypeError):
                names = [parameter.name for parameter in kernel.params if not parameter.is_constexpr]
                values = {name: described(bound[name]) for name in names}
                launch["launch"] = {"grid": [*map(int, grid)], "arguments": values}
            kernel.warmup(*args, grid=grid, **keywords)
        except Exception as error:
            print(f"not recorded: {kernel.name}: {type(error).__name__}: {error}"[:300], file=sys.stderr)

    def tune(tuner: Any, *args: Any, **keywords: Any) -> None:
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        configs = [*tuner.prune_configs(keywords)]
        step = max(1, (len(configs) - 1) // max(1, configurations - 1))
        tuner.best_config = configs[0]
        launch["tuned"] = f"{os.getpid()}-{next(numbers)}"
        for config in configs[::step][:configurations]:
            if config.pre_hook is not None:
                config.pre_hook({**tuner.nargs, **keywords, **config.all_kwargs()})
            tuner.fn.run(*args, **{"warmup": False, **keywords, **config.all_kwargs()})
        del launch["tuned"]

    knobs.runtime.jit_cache_hook = hook
    JITFunction.run = run  # type: ignore[method-assign]
    Autotuner.run = tune  # type: ignore[method-assign]
    sys.argv = [program, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
    try:
        runpy.run_path(program, run_name="__main__")
    finally:
        file.close()
        print(f"{len(lines)} launches recorded in {path}")
