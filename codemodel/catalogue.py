"""The reference of the ops, written from their declarations: docs/reference/ops.md."""

from __future__ import annotations

import enum
import inspect
from typing import Any

from ziggurat.codemodel.declare import OPS
from ziggurat.codemodel.fields import REQUIRED
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.text.writer import attribute_text
from ziggurat.codemodel.types import Type

_INTRODUCTION = """# The ops

Written from the declarations in `codemodel/dialects/` (`python -m ziggurat docs ops`); a test keeps it up to date.
An entry has the name in the text, the name of the class in Python, the operands (`x?` may be absent, `x…` is any
number), the successors, the attributes, the bodies, and the traits. docs/reference/text-grammar.md says how an op is
written in a model. In Python, the dialects are imported by `from ziggurat.codemodel.dialects import arith, scf, tt`,
and the GPU dialect by `from ziggurat.codemodel.gpu import dialect as gpu`.
"""


def catalogue() -> str:
    """All declared ops by dialect, as Markdown."""
    from ziggurat.codemodel import dialects
    from ziggurat.codemodel.gpu import dialect

    modules = [f"{dialects.__name__}.{name}" for name in dialects.__all__]
    by_module: dict[str, list[type[Op]]] = {name: [] for name in [*modules, dialect.__name__]}
    for cls in sorted(OPS.values(), key=lambda cls: cls.__module__ != _main(cls.__module__)):
        module = _main(cls.__module__)
        if module in by_module:
            by_module[module].append(cls)
    parts = [_INTRODUCTION]
    for module, classes in by_module.items():
        parts.append(f"\n## {_dialect(module)}\n\n{_summary(module)}\n")
        parts += [_entry(cls) for cls in classes]
    return "\n".join(parts) + "\n"


def _main(module: str) -> str:
    """The module from which the ops of a module are taken: `tt` has those of `tt_memory` and `tt_shapes`, and so on."""
    return module.partition("_")[0]


def _dialect(module: str) -> str:
    """The name under which the module of a dialect is imported: `tt`, `gpu`."""
    *_, package, name = _main(module).split(".")
    return package if name == "dialect" else name


def _summary(module: str) -> str:
    import sys

    return inspect.cleandoc(sys.modules[module].__doc__ or "")


def _entry(cls: type[Op]) -> str:
    spec = cls.SPEC
    words = [f"**`{cls.NAME}`** (`{_dialect(cls.__module__)}.{cls.__name__}`)"]
    for field in spec.operands:
        mark = "…" if field.role == "operands" else "?" if field.optional else ""
        words.append(f"`{field.name}{mark}`")
    words += [f"^`{field.name}`" for field in spec.successors]
    for field in spec.attributes:
        default = "" if field.default is REQUIRED else f" = {attribute_text(field.default)}"
        words.append(f"@`{field.name}: {_kind(field.kind)}{default}`")
    words += [f"{{`{field.name}`}}" for field in spec.bodies]
    traits = [base.__name__ for base in cls.__mro__ if base.__module__.endswith(".traits")]
    tail = f" *{', '.join(dict.fromkeys(traits))}*" if traits else ""
    return f"- {' '.join(words)}{tail}  \n  {' '.join(inspect.cleandoc(cls.__doc__ or '').split())}"


def _kind(kind: Any) -> str:
    if isinstance(kind, list):
        inner: Any = kind[0]  # pyright: ignore[reportUnknownVariableType]
        return f"[{_kind(inner)}]"
    if kind is object:
        return "constant"
    if kind is Type:
        return "type"
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return " or ".join(str(member.value) for member in kind)
    return str(kind.__name__)
