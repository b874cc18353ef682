"""Parameters as constants, and constants as parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ziggurat.codemodel.dialects import arith, tt
from ziggurat.codemodel.errors import BuildError
from ziggurat.codemodel.op import Op, Value, require_argument, require_model
from ziggurat.codemodel.traits import SymbolTable
from ziggurat.codemodel.transform import DROP, Outcome, Rewriter, transform
from ziggurat.codemodel.types import NUMPY, ScalarType
from ziggurat.transforms.simplify.demand import reachable_roots


def kernel_of(model: Op) -> tt.Func:
    """The kernel of a Triton model: a lone `tt.func`, or the function of the module that no other calls."""
    require_model(model, "kernel_of")
    roots = reachable_roots(model) if isinstance(model, SymbolTable) else [model]
    if len(roots) != 1 or not isinstance(roots[0], tt.Func):
        raise BuildError(f"the model must have one kernel, a tt.func; got {', '.join(op.NAME for op in roots)}")
    return roots[0]


def specialize(model: Op, values: Mapping[int, int | float | bool]) -> Op:
    """The model whose kernel takes no argument for the numeric parameters numbered in `values`, but has these values.

        tt.func @"k" (%0 : ptr<f32>, %1 : i32)…        tt.func @"k" (%0 : ptr<f32>)…
                                                           %1 : i32 = arith.constant @16;

    The constants have the types of the parameters. `simplify` computes what follows from them.
    """
    require_model(model, "specialize")
    require_argument(values, Mapping, "specialize: 'values' must map parameters to numbers")
    kernel = kernel_of(model)
    entries: Mapping[int, Any] = values
    numbers = {i: value.item() if isinstance(value, NUMPY.generic) else value for i, value in entries.items()}
    numeric = [p.index for p in kernel.body.parameters if isinstance(p.type, ScalarType)]
    for index in values:
        if isinstance(index, (float, NUMPY.floating)) or index not in numeric:
            hint = f"the numbers of its numeric parameters: {', '.join(map(str, numeric)) or 'none'}"
            raise BuildError(f"'{kernel.sym_name}' has no numeric parameter {index!r}", kernel.location, hint)
        require_argument(numbers[index], (int, float), f"specialize: the value of parameter {index} must be a number")
    return _with_kernel(model, kernel, numbers) if numbers else model


def unspecialize(model: Op, chosen: Callable[[arith.ConstantOp], bool]) -> Op:
    """The model whose kernel takes a further last parameter in place of the chosen constants.

        kit.unspecialize(model, lambda op: op.value == 16 and op.type == zg.i32)

    All chosen constants of the kernel have one value and one scalar type. Raises `BuildError` when they differ, or when
    there is none.
    """
    require_model(model, "unspecialize")
    kernel = kernel_of(model)
    require_argument(chosen, callable(chosen), "unspecialize: 'chosen' must be a function of an arith.constant")
    constants = [op for op in kernel.walk() if isinstance(op, arith.ConstantOp) and chosen(op)]
    kinds = {(repr(op.value), str(op.type)) for op in constants}
    type_ = constants[0].type if constants else None
    if len(kinds) != 1 or not isinstance(type_, ScalarType):
        texts = ", ".join(f"{value} : {kind}" for value, kind in sorted(kinds)) or "none"
        raise BuildError(f"the chosen constants must be one number of a scalar type; got {texts}", kernel.location)
    return _with_kernel(model, kernel, {}, constants)


def without_parameter(model: Op, number: int) -> Op:
    """The model whose kernel lacks a parameter. Raises `BuildError` when the parameter is used."""
    kernel = kernel_of(model)
    for user in kernel.body.parameters[number].uses:
        raise BuildError(f"parameter {number} must be unused; {user.NAME} uses it", user.location)
    return _with_kernel(model, kernel, {number: None})


def _with_kernel(
    model: Op,
    kernel: tt.Func,
    values: Mapping[int, int | float | bool | None],
    constants: Sequence[arith.ConstantOp] = (),
) -> Op:
    """The model whose kernel lacks the parameters numbered in `values`, which are constants or unused.

    With `constants`, which are equal, the kernel takes a further parameter in their place.
    """
    old = kernel.body.parameters
    indices = [index for index in range(len(old)) if index not in values]
    new_types = [constant.type for constant in constants[:1]]
    replaced = set[Op](constants)

    def transformer(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if op is not kernel:
            return DROP if op in replaced else None
        types = [*(old[index].type for index in indices), *new_types]
        inner = builder.inside(types, kernel.body.yield_type, isolated=True)
        for index, parameter in zip(indices, inner.parameters, strict=False):
            inner[old[index]] = parameter
        for constant in replaced:
            inner[constant.result] = inner.parameters[-1]
        inner.location = kernel.location
        for index, value in values.items():
            if value is not None:
                inner[old[index]] = inner.add(arith.ConstantOp(value, old[index].type))
        inner.rewrite_blocks(kernel.body)
        divisibility = kernel.divisibility
        if divisibility:
            divisibility = (*(divisibility[index] for index in indices), *(1 for _ in new_types))
        small = tuple(at for at, index in enumerate(indices) if index in kernel.small)
        return builder.add(kernel.evolve(body=inner.finish(), divisibility=divisibility, small=small))

    return transform(model, transformer, pass_name="specialize")
