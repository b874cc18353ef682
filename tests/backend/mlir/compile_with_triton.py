"""Parse MLIR files and compile them to PTX for sm_90, in a Python that has Triton. Prints one JSON object a line.

    python compile_with_triton.py FILE.ttir …

Each line says: `file`, `version` of Triton, `parsed` and `compiled` (booleans), `ptx` (the text) and `error`. No GPU
is needed, and no cubin is made.
"""

import json
import os
import sys
import warnings

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # 3.9 warns where it is unset.

import triton
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend

TARGET = GPUTarget("cuda", 90, 32)


def check(path: str) -> dict[str, object]:
    """Parse and compile one file. Triton writes its diagnostics to stderr; its exception is in `error`."""
    results: dict[str, object] = {"file": path, "version": triton.__version__, "parsed": False, "compiled": False}
    try:
        backend = make_backend(TARGET)
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        module = ir.parse_mlir_module(path, context)
        results["parsed"] = True
        module.context = context
        options = backend.parse_options({})
        stages: dict[str, object] = {}
        try:
            backend.add_stages(stages, options)
        except TypeError:  # Triton 3.2 and later hand over the language of the source.
            from triton.backends.compiler import Language

            backend.add_stages(stages, options, Language.TRITON)
        metadata = {"target": TARGET, **options.__dict__}
        for name, stage in stages.items():
            if name == "cubin":
                break
            module = stage(module, metadata)  # type: ignore[operator]
        results["ptx"] = module
        results["compiled"] = True
    except Exception as error:
        results["error"] = f"{type(error).__name__}: {error}"
    return results


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for argument in sys.argv[1:]:
        print(json.dumps(check(argument)), flush=True)
