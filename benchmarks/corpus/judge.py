"""The reference interpreter over recorded variants: does every pass on the way to the GPU model keep their results?

    python benchmarks/corpus judge variants.jsonl --folder LIBRARY [--keep FILE]

A recording has no sizes. The numbers of a launch are made here: small, and divisible by 16 where the launch's were.
Accesses outside of the arrays read 0 and write nothing, before each pass and after it. Tensors of integers, which are
mostly places, count upwards or are small; floats are small multiples of 1/8, so that most sums are exact.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import time
import warnings
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import one_compiler
import variants

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "support"))

ELEMENTS = 1 << 18  # Of an array.
TRIES = 3  # Numbers that are tried until a kernel writes something.
LIMIT = 90  # Seconds of the process on a CPU for a variant.
TOLERANCE = 0.02  # Of the largest element: results of 16 bits round differently after sums in another order.
UPWARDS = re.compile(r"cu_|offset|start|indptr|cumsum|_end|seqlens")


def judge(paths: list[str], only: str, limit: int, kept: Path | None) -> None:
    """Print each variant whose results change, with the pass, and a summary. `kept` has the outcomes of other calls."""
    named = {name: variant for name, variant in variants.read(paths) if only in name}
    outcomes: dict[str, str] = {}
    if kept is not None and kept.exists():
        outcomes = dict(map(json.loads, kept.read_text("utf-8").splitlines()))
    rest = [name for name in named if name not in outcomes]
    signal.signal(signal.SIGPROF, one_compiler.out_of_time)
    for name in rest[:: max(1, -(-len(rest) // limit))]:
        start = time.process_time()
        outcomes[name] = outcome(named[name])
        print(f"{name}: {outcomes[name]} ({time.process_time() - start:.1f} s)", flush=True)
        if kept is not None:
            with kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps([name, outcomes[name]]) + "\n")
    kinds = Counter(text.split(":")[0] for name, text in outcomes.items() if name in named)
    print(", ".join(f"{kind}: {number}" for kind, number in kinds.most_common()))


def outcome(variant: variants.Variant) -> str:
    """`same`, `fault: …`, or the reason why the passes of a variant could not be compared."""
    import every_pass

    import ziggurat as zg

    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for number in range(TRIES):
                case = case_of(variant, number)
                before = [value for value in case.arguments() if isinstance(value, np.ndarray)]
                if every_pass.difference(before, every_pass.results(case.model, case), 0):
                    fault = every_pass.first_fault(case)
                    return "same" if fault is None else f"fault: {fault[:600]}"
            return "writes nothing"
    except (TimeoutError, NotImplementedError, zg.ResourceError) as error:
        return f"not run: {type(error).__name__}: {error}"[:300]
    except Exception as error:
        return f"fails itself: {type(error).__name__}: {error}"[:300]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def case_of(variant: variants.Variant, number: int) -> Any:
    """The variant's model with arguments for it."""
    import attrs
    from every_pass import Case

    from ziggurat.codemodel.dialects import tt

    source = variants.source_of(variant)
    kernel = one_compiler.kernel_of(source, one_compiler.options_of(variant, "ours"))
    signature = variant["signature"]
    types = {name: signature[name] for name in source.fn.arg_names if signature[name] != "constexpr"}
    if refused := [type_ for type_ in types.values() if not re.fullmatch(r"\*?k?[a-z]+\d+\w*", type_)]:
        raise NotImplementedError(f"an argument of the type {refused[0]}")
    axes = {op.axis for op in kernel.model.walk() if isinstance(op, tt.GetProgramId)}
    grid = tuple(2 if axis in axes else 1 for axis in range(3))

    def arguments() -> list[Any]:
        return [argument(name, type_, name in variant["divisible"], number) for name, type_ in types.items()]

    options = attrs.evolve(kernel.options, contract=False)
    return Case(kernel.model, arguments, options, grid, TOLERANCE, reorders=True, tolerant=True)


def argument(name: str, type_: str, divisible: bool, number: int) -> Any:
    """An array or a number for a parameter, the same at each call with a `number`."""
    seed = zlib.crc32(name.encode()) + number
    rng = np.random.default_rng(seed)
    if not type_.startswith("*"):
        if type_.startswith(("f", "bf")):
            return 0.5
        return (1 if type_ == "i1" else (48, 144, 208)[seed % 3]) if divisible else (7, 70, 201)[seed % 3]
    dtype = numpy_type(type_[1:].removeprefix("k"))
    if np.issubdtype(dtype, np.integer):
        array = np.arange(ELEMENTS) * 70 if UPWARDS.search(name) else rng.integers(0, 4, ELEMENTS)
        return array.astype(dtype)
    if dtype == np.bool_:
        return rng.integers(0, 2, ELEMENTS).astype(dtype)
    return (rng.integers(-4, 5, ELEMENTS) / 8).astype(dtype)


def numpy_type(text: str) -> Any:
    from ziggurat.backend.launch.arrays import elements

    names = {"fp16": "f16", "bf16": "bf16", "fp32": "f32", "fp64": "f64"}
    names |= {"fp8e4nv": "f8e4m3", "fp8e5": "f8e5m2"}
    return next(dtype for dtype, type_ in elements().items() if str(type_) == names.get(text, text))
