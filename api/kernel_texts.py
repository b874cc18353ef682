"""Kernels of texts: `zg.kernel(source=text)`."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

import ziggurat
from ziggurat.codemodel.errors import KernelSyntaxError, LaunchError, shown
from ziggurat.codemodel.location import Location, register
from ziggurat.frontends.triton.function_sources import digest
from ziggurat.kernels.kernel import Kernel
from ziggurat.tuning.tuned import Tuned


def kernel_of(
    source: str, name: str | None, namespace: Mapping[str, Any], decorate: Callable[[Callable[..., Any]], Kernel]
) -> Kernel | Tuned:
    """The kernel that a text of Python defines. A function without a decorator is decorated.

    Raises `KernelSyntaxError` for a text that is not Python, and `LaunchError` where it defines no such kernel, or
    several and no name is given.
    """
    if not isinstance(source, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise LaunchError(f"zg.kernel: the source must be a text; got {shown(source)}")
    file = f"<source {digest(source)[:12]}>"
    register(file, source)
    try:
        code = compile(source, file, "exec", dont_inherit=True)
    except SyntaxError as error:
        place = Location(file, error.lineno or 1, max(0, (error.offset or 1) - 1))
        raise KernelSyntaxError(f"the source is not Python: {error.msg}", place) from None
    defined: dict[str, Any] = {"zg": ziggurat, "__name__": file, **namespace}
    exec(code, defined)
    own = {key: value for key, value in defined.items() if namespace.get(key) is not value}
    kernels = {key: value for key, value in own.items() if isinstance(value, Kernel | Tuned)}
    functions = {
        key: value
        for key, value in own.items()
        if isinstance(value, types.FunctionType) and value.__code__.co_filename == file
    }
    choices = {**functions, **kernels} if name is not None else kernels or functions
    if name is None and len(choices) == 1:
        (name,) = choices
    if name is None or name not in choices:
        about = f"no kernel '{name}'" if name is not None else f"{'several' if choices else 'no'} kernels"
        hint = f"give the name of one: name={next(iter(choices))!r}" if choices else "define one with def"
        raise LaunchError(f"zg.kernel: the source defines {about}", hint=hint)
    choice = choices[name]
    return choice if isinstance(choice, Kernel | Tuned) else decorate(choice)
