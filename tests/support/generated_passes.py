"""Generated kernels as cases of `every_pass`, of two kinds: with control flow over small tensors, and with dots.

`python tests/support/generated_passes.py --first 0 --count 10000` runs as many, and prints the seeds that fail.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import linecache
import sys
import textwrap
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import MagicMock

import numpy as np
from every_pass import Case, case, first_fault

import ziggurat as zg
from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.errors import KernelRuntimeError
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import scalar_element

TESTS = Path(__file__).resolve().parents[1]
TARGETS = ("sm_80", "sm_90a", "sm_120a")
_numbers = itertools.count()


def _module(path: str) -> Any:
    """A file of tests as a module. None of its tests runs here, and a machine with a GPU may lack what they need."""
    for name in ("pytest", "hypothesis"):
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            sys.modules[name] = MagicMock()
    spec = importlib.util.spec_from_file_location(Path(path).stem, TESTS / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


small = _module("language/test_generated_kernels.py")
wide = _module("transforms/gpu/test_gpu_passes.py")


def generated(seed: int) -> Case:
    """The case of a seed."""
    random = Random(seed)
    options = {"target": random.choice(TARGETS), "num_warps": random.choice([1, 2, 4, 8])}
    return _of_small_tensors(random, options) if seed % 2 else _of_dots(random, options)


def _of_small_tensors(random: Random, options: Mapping[str, Any]) -> Case:
    cases: list[Case] = []

    def compute(body: str, inputs: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
        lines = ["    pid = zg.program_id(0)"]
        for name, array in inputs.items():
            lines.append(f"    {name} = zg.load(zg.add({name}_ptr, {_offsets(array.shape[1:])}))")
        lines += textwrap.indent(body, "    ").splitlines()
        for name, array in expected.items():
            lines.append(f"    zg.store(zg.add({name}_ptr, {_offsets(array.shape[1:])}), {name})")
        kernel = _kernel(f"def kernel({', '.join(f'{name}_ptr' for name in (*inputs, *expected))}):", lines)

        def arguments() -> list[Any]:
            return [*(array.copy() for array in inputs.values()), *map(np.zeros_like, expected.values())]

        cases.append(case(kernel, arguments, (), (3,), reorders=True, contract=False, **options))

    with np.errstate(all="ignore"):
        small.check(compute, random)
    return cases[0]


def _of_dots(random: Random, options: Mapping[str, Any]) -> Case:
    _, model = wide.generated(random)
    number = random.choice([1, 2, 5, 8, 16])

    def arguments() -> list[Any]:
        rng = np.random.default_rng(number)
        dtypes = (np.float16, np.float32, np.int32)
        return [*(rng.integers(-2, 3, 1 << 13).astype(dtype) for dtype in dtypes), number]

    precision = random.choice([tt.InputPrecision.TF32, tt.InputPrecision.IEEE])

    def with_precision(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        """Say how operands of f32 are rounded: by default, the interpreter does not, and matrix units do."""
        if not isinstance(op, tt.Dot) or scalar_element(op.a.type) != zg.f32:
            return None
        return builder.add(tt.Dot(*operands, input_precision=precision))

    model = transform(model, with_precision)
    return Case(model, arguments, CompileOptions(contract=False, **options), reorders=True)


def _offsets(shape: tuple[int, ...]) -> str:
    count = int(np.prod(shape))
    return f"zg.add(pid * {count}, zg.reshape(zg.arange(0, {count}), {shape}))" if shape else "pid"


def _kernel(head: str, lines: list[str]) -> Any:
    source, file = "\n".join([head, *lines]) + "\n", f"<generated {next(_numbers)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    space: dict[str, Any] = {"zg": zg, "K": zg.CompareKind}
    exec(compile(source, file, "exec"), space)
    return zg.kernel(space["kernel"])


def fault_of(seed: int) -> str | None:
    """The first wrong pass for the kernel of a seed; `None` if there is none. Raises `KernelRuntimeError` where the
    kernel itself fails, as by an index out of bounds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return first_fault(generated(seed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=10_000)
    options = parser.parse_args()
    start, refused, faults = time.monotonic(), 0, 0
    for seed in range(options.first, options.first + options.count):
        try:
            fault = fault_of(seed)
        except (KernelRuntimeError, zg.ResourceError):
            refused += 1
            continue
        if fault is not None:
            faults += 1
            print(f"seed {seed}: {fault.splitlines()[0][:300]}", flush=True)
    seconds = time.monotonic() - start
    print(f"{options.count} kernels in {seconds:.0f} s: {faults} faults; {refused} kernels fail themselves")


if __name__ == "__main__":
    main()
