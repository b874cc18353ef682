"""Compile variants with one of the two compilers, in a process of its own.

    python one_compiler.py ours|theirs OUTPUT FOLDER …

The variants come from stdin, a JSON object a line. A line of the output is written before and after each, so that the
parent knows which variant a process died of. Seconds are those of the process on a CPU, to the end of PTX: NVIDIA's
assembler, which Triton runs in a process of its own, is not in them.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs
import count
import stand_in
import variants

LIMIT = 120  # Seconds of the process on a CPU for a variant.


def compiled_by_triton(source: Any, options: dict[str, Any]) -> tuple[str, int]:
    from triton.backends.nvidia.compiler import CUDABackend
    from triton.compiler import compile

    CUDABackend.make_cubin = lambda *_: b""  # One assembler, that of `count`, assembles both.
    kernel = compile(source, target=stand_in.gpu_target(), options=options)
    return kernel.asm["ptx"], kernel.metadata.shared


def kernel_of(source: Any, options: dict[str, Any], numbers: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """Our kernel as a launch compiles it: with tensor maps, unlike that of `triton.compile`, and with the integers of
    the launch that are known to be small."""
    from ziggurat.codemodel.types import SMALL, ConstantType
    from ziggurat.triton.compiler.compiled_kernel import CompiledKernel
    from ziggurat.triton.runtime import triton_options

    settings = triton_options.compile_options({"target": "sm_90a", **options})
    signature, parameters = source.compiled_signature(), source.fn.params
    run_time = [p for p, t in zip(parameters, signature.types, strict=True) if not isinstance(t, ConstantType)]
    small = [
        at for at, p in enumerate(run_time)
        if type(n := numbers.get(p.name)) is int and 0 <= n < SMALL and not p.do_not_specialize
    ]  # fmt: skip
    return CompiledKernel(source.fn, attrs.evolve(signature, small=tuple(small)), settings, options)


def compiled_by_us(source: Any, options: dict[str, Any], numbers: Mapping[str, Any]) -> tuple[str, int]:
    kernel = kernel_of(source, options, numbers)
    kernel.demand()
    return kernel.asm["ptx"], kernel.binary.shared


def explained(source: Any, options: dict[str, Any], numbers: Mapping[str, Any]) -> str:
    return kernel_of(source, options, numbers).stages.explain()


def options_of(variant: variants.Variant, side: str) -> dict[str, Any]:
    options = {name: value for name, value in variant["options"].items() if value is not None}
    return options if side == "theirs" else {k: v for k, v in options.items() if k != "enable_fp_fusion" or not v}


def set_up(side: str, folders: list[str]) -> None:
    sys.path[:0] = folders
    if side != "theirs":
        import ziggurat.triton

        ziggurat.triton.install()
    stand_in.set_up()
    from triton import knobs

    knobs.runtime.jit_cache_hook = None


def out_of_time(*_: Any) -> None:
    raise TimeoutError(f"not compiled in {LIMIT} s")


def build(side: str, name: str, variant: variants.Variant) -> dict[str, Any]:
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            source = variants.source_of(variant)
            start = time.process_time()
            options = options_of(variant, side)
            ptx, shared = (
                compiled_by_us(source, options, variants.numbers_of(variant))
                if side == "ours"
                else compiled_by_triton(source, options)
            )
            seconds = time.process_time() - start
        words = sorted({str(warning.message) for warning in caught if "Ziggurat" in warning.category.__name__})
        counts = count.counts(ptx, shared, round(seconds, 3), words, ours=side == "ours")
        return {"name": name, **attrs.asdict(counts), "main": attrs.asdict(counts.main_loop)}
    except Exception as error:
        return {"name": name, "error": f"{type(error).__name__}: {error}"[:2000]}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def main() -> None:
    side, output, *folders = sys.argv[1:]
    set_up(side, folders)
    signal.signal(signal.SIGPROF, out_of_time)
    own = os.path.join(os.path.dirname(__file__), "warm_up.py")
    first = {
        "module": "warm_up", "kernel": "add", "file": own, "signature": {"x": "*fp32", "n": "i32", "B": "constexpr"},
        "constants": {"B": 128}, "divisible": ["x"], "options": {},
    }  # fmt: skip
    build(side, "warm-up", first)
    with open(output, "a", encoding="utf-8") as file:
        for line in sys.stdin:
            entry = json.loads(line)
            print(json.dumps({"name": entry["name"], "started": True}), file=file, flush=True)
            print(json.dumps(build(side, entry["name"], entry["variant"])), file=file, flush=True)


if __name__ == "__main__":
    main()
