"""A program that shows a fault again, for a report."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import attrs
import numpy as np

from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.bisecting.steps import Launch
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.op import Op

_SCRIPT = '''"""{step!r} of ziggurat {version} changes what this model computes. The exit status is 1 while it does."""

import base64
import sys
import zlib

import ml_dtypes  # noqa: F401
import numpy as np

import ziggurat as zg


def array(dtype, shape, text):
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype).reshape(shape).copy()


MODEL = r"""
{model}"""


arguments = [
    {arguments},
]

outcome = zg.bisect(zg.parse(MODEL), {grid}, *arguments, step={step!r}{options})
print(outcome)
sys.exit(outcome.fault is not None)
'''


def script(step: str, model: Op, launch: Launch, options: CompileOptions) -> str:
    """The text of a program that bisects a model on the arguments of a launch."""
    from ziggurat import __version__

    usual = CompileOptions.of({})
    settings = {
        field.name: getattr(options, field.name)
        for field in attrs.fields(CompileOptions)
        if getattr(options, field.name) != getattr(usual, field.name)
    }
    words = "".join(f", {name}={value!r}" for name, value in settings.items())
    arguments = ",\n    ".join(map(_argument, launch.fresh()))
    return _SCRIPT.format(
        step=step, version=__version__, model=model, arguments=arguments, grid=launch.grid, options=words
    )


def _argument(value: Any) -> str:
    """An argument as an expression."""
    if isinstance(value, TensorDescriptor):
        return f"zg.TensorDescriptor({_argument(value.host)}, {list(value.block)})"
    if isinstance(value, np.ndarray):
        return _array(value)
    return repr(value.item() if hasattr(value, "item") else value)


def _array(value: Any) -> str:
    text = base64.b64encode(zlib.compress(np.ascontiguousarray(value).tobytes())).decode()
    return f"array({value.dtype.name!r}, {value.shape}, {text!r})"
