"""The source of a Python function as text that programs replace while they run: Triton's `fn.src`."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import textwrap
import types
from collections.abc import Callable, Sequence
from typing import Any

from ziggurat.codemodel.location import register

_DEF = re.compile(r"^def\s+\w+\s*\(", re.MULTILINE)
# Modules whose functions may be called while a kernel is compiled.
_STABLE = ("math", "copy", "ziggurat")


class JITCallable:
    """The base of the objects around the functions that kernels call. A program may replace their sources."""

    fn: Any
    _src: str | None = None

    @property
    def src(self) -> str:
        """The source of the function, from `def` on."""
        if self._src is None:
            self._src = source_of(self.fn)
        return self._src

    @src.setter
    def src(self, text: str) -> None:
        raise AttributeError("Cannot set attribute 'src' directly. Use '_unsafe_update_src()' instead.")

    def _unsafe_update_src(self, new_src: str) -> None:
        """Replace the source. The names in it are those of the module and the closure, as before."""
        self.fn, self._src = with_source(self.fn, new_src), new_src


def source_of(fn: Callable[..., Any]) -> str:
    """The source of a function, from `def` on."""
    text = textwrap.dedent(inspect.getsource(fn))
    match = _DEF.search(text)
    return text[match.start() :] if match is not None else text


def with_source(fn: Any, source: str) -> types.FunctionType:
    """A function like `fn` with another source. The names in it are those of the module and the closure, as before."""
    name = f"<{fn.__qualname__} {digest(source)[:12]}>"
    register(name, source)
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    code = _code_within(source, name, list(cells))
    closure = tuple(cells[variable] for variable in code.co_freevars)
    function = types.FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, closure)
    function.__qualname__, function.__module__ = fn.__qualname__, fn.__module__
    function.__kwdefaults__ = fn.__kwdefaults__
    # The signature may be another than that of the code, which a program has replaced.
    signature = inspect.signature(fn)
    parameters = signature.parameters.values()
    function.__annotations__ = {p.name: p.annotation for p in parameters if p.annotation is not p.empty}
    function.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
    return function


def _code_within(source: str, file: str, variables: Sequence[str]) -> types.CodeType:
    """The code of the function with this source, inside of a function that has these variables."""
    tree = ast.parse(source)
    around = ast.parse(f"def around({', '.join(variables)}): pass")
    assert isinstance(around.body[0], ast.FunctionDef) and isinstance(tree.body[0], ast.FunctionDef)
    around.body[0].body = tree.body
    code = compile(around, file, "exec")
    for name in ("around", tree.body[0].name):  # From Python 3.14 on, annotations are code of their own.
        constants = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
        code = next(constant for constant in constants if constant.co_name == name)
    return code


def digest(text: str) -> str:
    """64 hexadecimal digits for a text."""
    import hashlib  # Most programs ask for no digest.

    return hashlib.sha256(text.encode()).hexdigest()


def require_stable(fn: Any, source: str) -> None:
    """Raise `RuntimeError` if a function that runs at compile time calls one whose result may depend on the machine:
    one from a module of another library."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            target = _found(fn, node)
            module = str(getattr(target, "__module__", "")).partition(".")[0]
            if callable(target) and not isinstance(target, type) and module not in _STABLE:
                raise RuntimeError(f"Unsupported function referenced: {target}")


def _found(fn: Any, node: ast.expr) -> Any:
    """The object that a name of the module, or an attribute of a module, refers to; None for another expression."""
    if isinstance(node, ast.Name):
        return fn.__globals__.get(node.id, getattr(builtins, node.id, None))
    if not isinstance(node, ast.Attribute):
        return None
    owner = _found(fn, node.value)
    return getattr(owner, node.attr, None) if isinstance(owner, types.ModuleType) else None
