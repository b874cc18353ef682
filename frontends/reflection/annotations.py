"""The types that annotations of parameters and variables name."""

import ast
import re
import sys
import types
import typing
from typing import Any

from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.codemodel.messages import dtype_text, say
from ziggurat.codemodel.types import DescriptorType, PtrType, ScalarType, Type, constexpr_type, find_scalar, pyobject
from ziggurat.frontends.language.constants import unwrapped
from ziggurat.frontends.language.phrases import NAME_TYPE
from ziggurat.frontends.language.signature import nearest
from ziggurat.frontends.reflection.names import Names

_OURS = {"zg": "ziggurat", "ziggurat": "ziggurat", "tl": "ziggurat.triton.language"}
_MENTION = re.compile(rf"\b({'|'.join(_OURS)})\.(\w+)")


def annotated_type(name: str, annotation: Any, node: ast.AST, names: Names) -> Type:
    """`constexpr` for that annotation of the parameter or variable `name`, another type that the annotation names, or
    `object`. An annotation may be a text. Raises `KernelTypeError` at `node` for a type that no argument has, for one
    inside of `Optional`, a union or `Annotated`, and for a text with a name that the language lacks."""
    hint = NAME_TYPE()
    stray: list[str] = []
    if isinstance(annotation, str):
        text = annotation.strip("'\" ")
        # Imports of an enclosing function are not among `names`, so the spelling counts as well.
        if text.rpartition(".")[2] == "constexpr":
            return constexpr_type
        # A cell without a value equals a new one.
        cells = {name: cell.cell_contents for name, cell in names.cells.items() if cell != types.CellType()}
        ours = {prefix: sys.modules.get(module) for prefix, module in _OURS.items()}
        try:
            annotation = eval(text, ours | names.globals, cells)
        except Exception:  # Python gives these errors where it evaluates annotations.
            annotation = find_scalar(text)
            for prefix, member in _MENTION.findall(text):
                if _named(getattr(ours[prefix], member, pyobject)) is not None:
                    stray.append(member)
                    near = _named(getattr(ours[prefix], nearest(member, dir(ours[prefix])) or "", None))
                    hint = say("did you mean {}?", dtype_text(near)) if isinstance(near, ScalarType) else hint
    if getattr(annotation, "__name__", "") == "constexpr":
        return constexpr_type
    dtype, origin = _named(annotation), typing.get_origin(annotation)
    if origin in (types.UnionType, typing.Annotated) or not isinstance(origin, type):  # Items of arrays are none.
        stray += [part for part in typing.get_args(annotation) if _named(part) is not None]
    if not stray and (dtype is None or names.language.launch_annotations):
        return pyobject
    if not isinstance(dtype, ScalarType | PtrType | DescriptorType):
        got = ast.unparse(getattr(node, "annotation", node)) if dtype is None else dtype
        what = f"the annotation of '{name}' must be the type of an argument; got {got}"
        raise KernelTypeError(what, names.source.span(node), hint)
    return dtype


def _named(annotation: Any) -> Type | None:
    """The type that an object is or stands for, as dtypes of NumPy and torch do."""
    plain = unwrapped(annotation)
    return plain if isinstance(plain, Type) else None if isinstance(plain, str) else find_scalar(plain)
