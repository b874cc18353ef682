"""Write a module of Triton functions as MLIR."""

from __future__ import annotations

import re

# The emitters register themselves when these are imported.
from ziggurat.backend.mlir import arithmetic, control, memory, tensors  # noqa: F401  # pyright: ignore[reportUnusedImport]
from ziggurat.backend.mlir.emitter import (
    DIVISIBILITY,
    EMITTERS,
    SYMBOL,
    Attributes,
    MlirEmitter,
    dictionary,
    leaves,
    location,
    mlir_type,
    mlir_types,
    own_type,
    quoted,
    result_list,
    symbol,
)
from ziggurat.backend.mlir.releases import release_of
from ziggurat.backend.mlir.tensors import power_of_two
from ziggurat.codemodel.dialects import core, tt
from ziggurat.codemodel.dispatch import demand
from ziggurat.codemodel.errors import TargetError
from ziggurat.codemodel.op import Op, expect, require_model
from ziggurat.codemodel.structured import leaves_structure
from ziggurat.codemodel.types import DescriptorType, PtrType, ScalarType, Type, i1, void
from ziggurat.transforms.simplify.inline import inline
from ziggurat.transforms.simplify.lower_structured import lower_structured
from ziggurat.transforms.simplify.lower_waits import lower_waits


def to_mlir(op: Op, *, release: str | None = None, locations: bool = False) -> str:
    """The text of a Triton model (a `module`, or one `tt.func`) in MLIR, in the syntax of a release of Triton.

    `release` is "3.4" … "3.9"; without it, the text is that of the Triton that is installed, or else of the newest.

    A function without a result that no other calls is a kernel: it is `public`, under a name that PTX allows. Other
    functions are `private`. With `locations`, each op has its source location.

    `from_mlir` gives the model back. Raises `TargetError` for a model of another tier, for a release that is not known,
    and for the few constructs that Triton's MLIR lacks.
    """
    require_model(op, "to_mlir")
    op = lower_waits(op)
    demand(op, {"backend.mlir.emitter.EMITTERS": EMITTERS})
    if op.holds(tt.DescriptorFact):
        op = inline(op)  # Functions that are called take no sizes beside a descriptor.
    functions = _functions(lower_structured(op, leaves_structure))
    callees = {inner.callee for function in functions for inner in function.walk() if isinstance(inner, tt.Call)}
    kernels = {f.sym_name for f in functions if f.body.yield_type == void and f.sym_name not in callees}
    e = MlirEmitter(_symbols(functions, kernels), locations, release_of(release))
    e.line("module {")
    with e.nested():
        for function in functions:
            _function(e, function, function.sym_name in kernels, location(function.location) if locations else "")
    e.line("}")
    return str(e)


def _functions(op: Op) -> list[tt.Func]:
    ops = op.body.entry.ops if isinstance(op, core.Module) else (op,)
    order: list[tt.Func] = []
    for inner in ops:
        if isinstance(inner, tt.Func):
            order.append(inner)
        elif not isinstance(inner, core.Unreachable):
            raise TargetError(f"the model must be a Triton model; '{inner.NAME}' is no function of one", inner.location)
    return order


def _symbols(functions: list[tt.Func], kernels: set[str]) -> dict[str, str]:
    """The reference to each function. Triton passes a kernel's name on to PTX, which allows letters, digits and `_`."""
    names = {f.sym_name for f in functions}
    symbols: dict[str, str] = {}
    for function in functions:
        name = function.sym_name
        if name in kernels:
            plain = re.sub(r"\W+", "_", name, flags=re.ASCII)
            plain = plain if plain == name else plain.strip("_")
            if not plain or plain[0].isdigit():
                plain = f"kernel_{plain}".rstrip("_")
            stem, count = plain, 1
            while plain != name and plain in names:
                count += 1
                plain = f"{stem}_{count}"
            names.add(plain)
            name = plain
        symbols[function.sym_name] = symbol(name)
    return symbols


def _function(e: MlirEmitter, function: tt.Func, kernel: bool, place: str) -> None:
    e.restart()
    name = e.symbols[function.sym_name]
    divisibility = function.divisibility or tuple(1 for _ in function.body.parameters)
    e.parameters(function.body.entry)
    parameters: list[str] = []
    for parameter, divisor in zip(function.body.parameters, divisibility, strict=True):
        for text, type_ in zip(e.values[parameter], leaves(parameter.type), strict=True):
            type_text = _divisibility(type_, divisor) | own_type(type_)
            parameters.append(f"{text}: {mlir_type(type_)}{dictionary(type_text)}")
        if kernel and any(isinstance(user, tt.DescriptorFact) for user in parameter.uses):
            parameters += e.tell(parameter, len(expect(parameter.type, DescriptorType).block))
    results = mlir_types(function.body.yield_type)
    arrow = f" -> {result_list(results)}" if results else ""
    visibility = "public" if kernel else "private"
    attributes: Attributes = {"noinline": "true" if function.noinline else "false"}
    if name != symbol(function.sym_name):
        attributes[SYMBOL] = quoted(function.sym_name)
    attributes |= own_type(function.body.yield_type)
    e.opening(f"tt.func {visibility} {name}({', '.join(parameters)}){arrow} attributes{dictionary(attributes)}")
    e.fresh("^bb")  # The label of the entry block, which is not written.
    with e.nested():
        e.blocks(function.body)
    e.closing("}")
    e.lines[-1].place = place


def _divisibility(type_: Type, divisor: int) -> Attributes:
    """The attributes for a parameter's divisor. Triton's is a power of two; for a pointer, of its address in bytes."""
    takes = isinstance(type_, PtrType) or (isinstance(type_, ScalarType) and type_.is_int and type_ != i1)
    power = power_of_two(divisor) if takes and divisor > 0 else 1
    attributes: Attributes = {"tt.divisibility": f"{power} : i32"} if power > 1 else {}
    return attributes if power == divisor else {**attributes, DIVISIBILITY: f"{divisor} : i32"}
