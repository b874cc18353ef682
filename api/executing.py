"""Running a Python code model as Python would run the function it models."""

from __future__ import annotations

from typing import Any

from ziggurat.boundary import public
from ziggurat.codemodel.execute import execute as execute_model
from ziggurat.codemodel.op import Op
from ziggurat.frontends.language import CALLS, Function
from ziggurat.transforms.attribution import link


@public
def execute(function: Function | Op, *arguments: Any, symbol: str | None = None) -> Any:
    """The result of a function's Python code model on plain Python values.

    `function` is a function of the language, or a Python model: a `func`, or a module and the `symbol` of one of its
    functions. Calls of the language mean what they mean for Python numbers (`zg.cdiv`, `zg.minimum` …). So a source can
    be compared with its model. Raises `KernelRuntimeError` where Python raises.
    """
    host = {f"zg.{name}": call for name, call in CALLS.items()}
    if isinstance(function, Function):
        module = link(function)
        return execute_model(module, arguments, symbol=str(function.model.attributes["sym_name"]), host=host)
    return execute_model(function, arguments, symbol=symbol, host=host)
