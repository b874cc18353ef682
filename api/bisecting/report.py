"""A program that shows a fault again, for a report."""

from __future__ import annotations

import base64
import sys
import zlib
from typing import Any, cast

import attrs
import numpy as np

from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.bisecting.steps import Array, Launch, memory_of
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.passes import Pass

_SCRIPT = '''"""{step!r} of ziggurat {version} changes what this model computes. The exit status is 1 while it does."""

import base64
import sys
import zlib

import ml_dtypes  # noqa: F401
import numpy as np

import ziggurat as zg
{own_pass}

def array(dtype, shape, text, start=0, strides=None):
    return np.ndarray(shape, dtype, bytearray(zlib.decompress(base64.b64decode(text))), start, strides)


MODEL = r"""
{model}"""


arguments = [
    {arguments},
]

outcome = zg.bisect(zg.parse(MODEL), {grid}, *arguments, step={which}{options})
print(outcome)
sys.exit(outcome.fault is not None)
'''


def script(step: str, model: Op, launch: Launch, options: CompileOptions, own: Pass | None) -> str:
    """The text of a program that bisects a model on the arguments of a launch. `own` is the step, where it is a pass of
    the kernel's own: the program imports it, or says that it has to be written there."""
    from ziggurat import __version__

    usual = CompileOptions.of({})
    settings = {
        field.name: getattr(options, field.name)
        for field in attrs.fields(CompileOptions)
        if getattr(options, field.name) != getattr(usual, field.name)
    }
    settings |= {"tolerant": True} if launch.tolerant else {}
    words = "".join(f", {name}={value!r}" for name, value in settings.items())
    name, line = ("", "") if own is None else _imported(step, own)
    arguments = ",\n    ".join(map(_argument, launch.fresh()))
    return _SCRIPT.format(
        step=step, which=f"({step!r}, {name})" if name else repr(step), own_pass=line, version=__version__, model=model,
        arguments=arguments, grid=launch.grid, options=words,
    )  # fmt: skip


def _imported(step: str, own: Pass) -> tuple[str, str]:
    """The name of a pass in a program, and the lines that define it there."""
    module, name = str(getattr(own, "__module__", "")), str(getattr(own, "__qualname__", ""))
    if module != "__main__" and getattr(sys.modules.get(module), name, None) is own:
        return name, f"from {module} import {name}\n"
    message = f"write the pass {step!r} here: it is no function that another program can import"
    return "own_pass", f"\n\ndef own_pass(model):\n    raise SystemExit({message!r})\n"


def _argument(value: Any) -> str:
    """An argument as an expression."""
    if isinstance(value, TensorDescriptor):
        return f"zg.TensorDescriptor({_argument(value.host)}, {list(value.block)})"
    if isinstance(value, np.ndarray):
        return _array(cast("Array", value))
    return repr(value.item() if hasattr(value, "item") else value)


def _array(value: Array) -> str:
    memory, start = memory_of(value)
    text = base64.b64encode(zlib.compress(memory.tobytes())).decode()
    strides = "" if value.flags.c_contiguous else f", {start}, {value.strides}"
    return f"array({value.dtype.name!r}, {value.shape}, {text!r}{strides})"
