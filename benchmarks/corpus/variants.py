"""A variant: a kernel of a program with the types, constants and options of a launch, as one line of JSON.

    {"module": "fla.ops.gla.chunk", "kernel": "chunk_gla_fwd_kernel_o", "file": "…", "signature": {"q": "*bf16", …,
     "BT": "constexpr"}, "constants": {"BT": 64}, "divisible": ["q", "T"], "options": {"num_warps": 4}}

Recordings are files of such lines, and so are tables of signatures that are written by hand. `signature` has Triton's
text for the type of each parameter; `divisible` lists the parameters that 16 divides. A constant that is no number and
no text is a dict: {"dtype": "float32"}, {"function": "tanh", "module": "…"}, {"tuple": […]}.

A recording also has the `launch` that a variant was compiled for: {"grid": [64, 8], "arguments": {"q": {"dtype":
"bfloat16", "elements": 65536}, "T": 1024, …}}, with the values of tensors of integers. `tuned` is the same for the
variants of one launch through an autotuner.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Variant = dict[str, Any]


def written(value: Any) -> Any:
    """A constant for JSON. Raises `TypeError` for those that have no such form."""
    value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if abs(value) < float("inf") else {"float": str(value)}
    if isinstance(value, (tuple, list)):
        return {"tuple": [written(item) for item in value]}
    if type(value).__name__ in ("dtype", "ScalarType") or hasattr(value, "primitive_bitwidth"):
        name = str(value)
        aliases = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}
        return {"dtype": aliases.get(name, name)}
    if hasattr(value, "fn"):
        return {"function": value.fn.__qualname__, "module": value.fn.__module__, "file": value.fn.__code__.co_filename}
    raise TypeError(f"a constant of type {type(value).__name__} has no form in JSON")


def constant(value: Any) -> Any:
    """The constant of its form for JSON."""
    if not isinstance(value, dict):
        return value
    if "tuple" in value:
        return tuple(map(constant, value["tuple"]))
    if "float" in value:
        return float(value["float"])
    if "dtype" in value:
        import triton.language as tl

        names = {"fp8e4nv": "float8e4nv", "fp8e5": "float8e5", "i1": "int1", "i8": "int8", "i16": "int16"}
        names |= {"i32": "int32", "i64": "int64", "f16": "float16", "f32": "float32", "f64": "float64"}
        names |= {"f8e4m3": "float8e4nv", "f8e5m2": "float8e5", "bf16": "bfloat16", "u8": "uint8"}
        return getattr(tl, names.get(value["dtype"], value["dtype"]))
    return function_of(value["module"], value["function"], value["file"])


def function_of(module: str, name: str, file: str = "") -> Any:
    """The kernel of a module without its decorators `autotune` and `heuristics`."""
    try:
        loaded = sys.modules.get(module) or importlib.import_module(module)
        function = attribute(loaded, name)
    except (ImportError, AttributeError):
        if not file:
            raise
        spec = importlib.util.spec_from_file_location(f"corpus_{hashlib.sha256(file.encode()).hexdigest()[:12]}", file)
        assert spec is not None and spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[str(spec.name)] = loaded
        spec.loader.exec_module(loaded)
        function = attribute(loaded, name)
    while type(function).__name__ != "JITFunction":
        function = function.fn
    return function


def attribute(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


def source_of(variant: Variant) -> Any:
    """Triton's, or our, `ASTSource` of a variant."""
    from triton.compiler import ASTSource

    function = function_of(variant["module"], variant["kernel"], variant.get("file", ""))
    names = function.arg_names
    constants = {(names.index(name),): constant(value) for name, value in variant["constants"].items()}
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in variant["divisible"]}
    return ASTSource(fn=function, signature=variant["signature"], constexprs=constants, attrs=attributes)


def numbers_of(variant: Variant) -> dict[str, Any]:
    """The arguments of the launch that a variant was recorded at, by name; none of one that is written by hand."""
    return variant.get("launch", {}).get("arguments", {})


def read(paths: list[str]) -> Iterator[tuple[str, Variant]]:
    """The variants of files, each once, with a name that tells it from the others."""
    digests: set[str] = set()
    for path in paths:
        for line in Path(path).read_text("utf-8").splitlines():
            if not line.strip() or line.startswith("#"):
                continue
            variant: Variant = json.loads(line)
            code = {key: value for key, value in variant.items() if key not in ("launch", "tuned")}
            identity = json.dumps(code, sort_keys=True)
            digest = hashlib.sha256(identity.encode()).hexdigest()[:8]
            if digest not in digests:
                digests.add(digest)
                yield f"{variant['module']}.{variant['kernel']}#{digest}", variant
