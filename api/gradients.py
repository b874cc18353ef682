"""Gradients of kernels: `zg.grad`."""

from __future__ import annotations

import inspect
import itertools
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ziggurat.boundary import no_faults, public
from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.errors import KernelTypeError, LaunchError
from ziggurat.codemodel.op import Op, Value, expect, require_argument
from ziggurat.codemodel.transform import Outcome, Rewriter, transform
from ziggurat.codemodel.types import (
    ConstantType,
    TupleType,
    Type,
    VarType,
    constexpr_type,
    pyobject,
)
from ziggurat.compiler import compiling
from ziggurat.frontends.language import Function
from ziggurat.kernels.arguments import KernelSignature, require_parameters, signature_of
from ziggurat.kernels.kernel import Grid, Kernel, run_time_names
from ziggurat.kernels.models import Models, Stub
from ziggurat.transforms.parameters import kernel_of
from ziggurat.tuning.tuned import Tuned, Tuning

__all__ = ["GradientKernel", "grad"]

Names = str | Iterable[str]


@public
def grad(kernel: Kernel | Tuned, wrt: Names, of: Names) -> GradientKernel:
    """The gradient of a kernel: a kernel that computes the gradients of the arrays `wrt` from those of the arrays `of`.

    Its parameters are the kernel's own in their order; each array of `of` and `wrt` is followed by its gradient, `d_`
    and the name, of the same type. A kernel that has a parameter `d_x` gets `d2_x`, or the next number that is free.
    With `d_out` given, `d_x` gets the derivative of the sum of d_out · out with respect to x:

        d_scale = zg.grad(scale, wrt="x_ptr", of="out_ptr")
        d_scale[grid](x, d_x, out, d_out, n, BLOCK=1024)

    `wrt` and `of` are names of parameters, one or several: the kernel reads the arrays of `wrt` and writes those of
    `of`. The launch is over the grid of the kernel. It adds to the gradients of `wrt`, which must be zero before, or
    stores there: `accumulates` says which. It does not write the arrays of `of`, nor read them.

    Raises `LaunchError` for names that are no parameters. A kernel without a gradient raises `KernelTypeError` when the
    model is made, at the place in the kernel.
    """
    tuned = kernel if isinstance(kernel, Tuned) else getattr(kernel, "tuned", None)
    kernel = kernel.base if isinstance(kernel, Tuned) else kernel
    if not isinstance(kernel, Kernel):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise LaunchError(f"zg.grad takes a kernel; got {kernel!r}", hint="decorate the function with @zg.kernel")
    models = _Gradient(kernel, _name_list(kernel, wrt, "wrt"), _name_list(kernel, of, "of"))
    unspecialized = frozenset(kernel.do_not_specialize)
    gradients = {models.gradient(name) for name in unspecialized.intersection((*models.wrt, *models.of))}
    return kernel.with_later_passes(GradientKernel(models, unspecialized | gradients, tuned))


def _name_list(kernel: Kernel, choice: Names, what: str) -> tuple[str, ...]:
    """The names of parameters that an argument of `grad` gives."""
    require_argument(choice, Iterable, f"'{what}' of zg.grad must name parameters", 'wrt="x_ptr", of="out_ptr"')
    names = (choice,) if isinstance(choice, str) else tuple(choice)
    if not names:
        raise LaunchError(
            f"'{what}' of zg.grad must name a parameter of '{kernel.name}'; got none", hint=kernel.written
        )
    require_parameters(kernel, names, f"'{what}' of zg.grad")
    for name in names:
        if names.count(name) > 1:
            raise LaunchError(f"'{what}' of zg.grad must name each parameter once; got '{name}' twice")
    return names


class _Gradient(Models):
    """The models of the gradient of a kernel."""

    def __init__(self, kernel: Kernel, wrt: tuple[str, ...], of: tuple[str, ...]) -> None:
        self.kernel, self.wrt, self.of = kernel, wrt, of
        self.name = f"d_{kernel.name}"
        for name in wrt:
            if name in of:
                raise LaunchError(f"'{name}' must be in 'of' or in 'wrt' of zg.grad; got it in both")
        for name in kernel.models.constexprs(kernel).intersection((*wrt, *of)):
            raise LaunchError(f"'{name}' of '{kernel.name}' must be an array; it is compiled in", hint=kernel.written)
        own = kernel.signature.parameters
        self._gradients = {name: _name_of_gradient(name, own) for name in (*wrt, *of)}
        parameters: list[inspect.Parameter] = []
        for name, parameter in own.items():
            parameters.append(parameter)
            if name in self._gradients:
                parameters.append(parameter.replace(name=self.gradient(name)))
        self.signature = inspect.Signature(parameters)

    def gradient(self, name: str) -> str:
        """The name of the gradient of an array."""
        return self._gradients[name]

    def python(self, kernel: Function) -> Op:
        """A function with the parameters whose body is an error: the gradient is made of the Triton model."""
        constexprs = self.kernel.models.constexprs(self.kernel)
        types = [constexpr_type if name in constexprs else pyobject for name in self.signature.parameters]
        inner = Builder.root(types, pyobject)
        for parameter, name in zip(inner.parameters, self.signature.parameters, strict=True):
            inner.add(core.Var(parameter, type=VarType(parameter.type), name=name))
        error = KernelTypeError(f"'{self.name}' has no Python model: it is made of the Triton model of a kernel")
        inner.add(py.Error.of(error))
        inner.add(core.Return([inner.add(core.ConstantOp(None, type=pyobject))]))
        return core.Func(self.name, inner.finish())

    def constexprs(self, kernel: Function) -> frozenset[str]:
        return self.kernel.models.constexprs(self.kernel)

    def declarations(self, kernel: Function, arguments: Mapping[str, Any]) -> Mapping[str, Type]:
        """The types that the source of the kernel declares; a gradient has that of its array."""
        own = {name: value for name, value in arguments.items() if name in self.kernel.signature.parameters}
        declarations = self.kernel.models.declarations(self.kernel, own)
        return {
            **declarations,
            **{self.gradient(name): declarations[name] for name in (*self.wrt, *self.of) if name in declarations},
        }

    def triton(self, kernel: Function, signature: KernelSignature) -> core.Module:
        parameters = self._typed_parameters(signature)
        types = {name: type_ for name, type_, _ in parameters}
        for name in (*self.of, *self.wrt):
            if types[name] != types[self.gradient(name)]:
                raise LaunchError(
                    f"'{self.gradient(name)}' of '{self.name}' must be of the type of '{name}', {types[name]}; got "
                    f"{types[self.gradient(name)]}"
                )
        from ziggurat.transforms.differentiate import differentiate

        kernel.callees = {self.kernel.name: self.kernel}  # A change of what the kernel uses is seen through this.
        model, of, wrt, names = self._forward(signature)
        divisibility = tuple(number for _, _, numbers in parameters for number in numbers)
        with compiling, no_faults("differentiating", lambda: model, self.kernel.name):
            gradient = differentiate(model, of, wrt, names)
            return _with_divisibility(gradient, divisibility)

    def accumulates(self, signature: KernelSignature) -> dict[str, bool]:
        """Whether the kernel adds to each gradient that it computes, by the gradient's name."""
        from ziggurat.transforms.differentiate import accumulates

        model, of, wrt, _ = self._forward(signature)
        with compiling, no_faults("differentiating", lambda: model, self.kernel.name):
            flags = accumulates(model, of, wrt)
        return {self.gradient(name): flags[number] for name, number in zip(self.wrt, wrt, strict=True)}

    def _typed_parameters(self, signature: KernelSignature) -> list[tuple[str, Type, tuple[int, ...]]]:
        """The name and the type of each parameter, and the divisors of its run-time arguments."""
        divisors: Iterator[int] = iter(signature.divisibility)
        typed = zip(self.signature.parameters, signature.types, strict=True)
        return [(name, type_, tuple(next(divisors, 1) for _ in run_time_names(name, type_))) for name, type_ in typed]

    def _forward(self, signature: KernelSignature) -> tuple[core.Module, list[int], list[int], list[str]]:
        """The Triton model of the kernel, the numbers of `of` and `wrt` among its parameters, and their names."""
        names_of_kernel = self.kernel.signature.parameters
        own = [parameter for parameter in self._typed_parameters(signature) if parameter[0] in names_of_kernel]
        divisibility = tuple(number for _, _, numbers in own for number in numbers)
        model = self.kernel.model_for(KernelSignature(tuple(type_ for _, type_, _ in own), divisibility))
        names = [part for name, type_, _ in own for part in run_time_names(name, type_)]
        types = {name: type_ for name, type_, _ in own}
        for name in (*self.of, *self.wrt):
            if isinstance(types[name], TupleType | ConstantType):
                raise LaunchError(f"'{name}' of '{self.kernel.name}' must be an array; got {types[name]}")
        of, wrt = ([names.index(name) for name in group] for group in (self.of, self.wrt))
        return model, of, wrt, names


def _name_of_gradient(name: str, others: Container[str]) -> str:
    """The name of the gradient of an array, which is none of the known names: `d_x`, or `d2_x`, `d3_x` …"""
    names = itertools.chain([f"d_{name}"], (f"d{number}_{name}" for number in itertools.count(2)))
    return sys.intern(
        next(candidate for candidate in names if candidate not in others)
    )  # Launches recognise names by identity.


class GradientKernel(Kernel):
    """The gradient of a kernel, as `zg.grad` makes it.

    A launch of the gradient of a tuned kernel has the configuration that was chosen for the kernel, unless the launch
    gives a value to a tuned parameter. Parameters that heuristics of the kernel compute are computed, too.
    """

    def __init__(self, models: _Gradient, do_not_specialize: Iterable[str], tuned: Tuned | None) -> None:
        super().__init__(Stub(models.name, models), do_not_specialize)
        # The tuned kernel whose gradient this is, of the first or a higher order; None for one that is not tuned.
        self.tuned = tuned

    @property
    def tuning(self) -> Tuning | None:
        """The tuning of the kernel, None for one that is not tuned."""
        return None if self.tuned is None else self.tuned.tuning

    def gradient(self, name: str) -> str:
        """The parameter for the gradient of an array of `wrt` or `of`."""
        assert isinstance(self.models, _Gradient)
        return self.models.gradient(name)

    def __getitem__(self, grid: Grid) -> Callable[..., None]:
        run, tuned = super().__getitem__(grid), self.tuned
        if tuned is None:
            return run
        names, parameters = tuned.signature.parameters, self.signature.parameters

        def launch(*arguments: Any, **keywords: Any) -> None:
            by_name = {**dict(zip(parameters, arguments, strict=False)), **keywords}
            own = {name: value for name, value in by_name.items() if name in names or name not in parameters}
            run(*arguments, **{**tuned.known_settings(own), **keywords})

        return launch

    @public
    def accumulates(self, /, *arguments: Any, **keywords: Any) -> dict[str, bool]:
        """Whether the kernel adds to each gradient that it computes, by the gradient's name.

        The arguments are those of `triton`: types, and values of constexpr parameters. A gradient that is added to must
        be zero before the launch. Any other gradient is stored to, in each element that belongs to an element which
        the kernel reads. Raises the errors of `triton`.
        """
        return expect(self.models, _Gradient).accumulates(signature_of(self, arguments, keywords))


def _with_divisibility(model: core.Module, divisibility: Sequence[int]) -> core.Module:
    """The model whose kernel has these divisors; the functions that it calls keep theirs."""
    divisors = tuple(divisibility) if any(number > 1 for number in divisibility) else ()
    kernel = kernel_of(model)

    def transformer(builder: Rewriter, op: Op, operands: tuple[Value, ...]) -> Outcome:
        if op is not kernel or kernel.divisibility == divisors:
            return None
        body = builder.rewrite_body(kernel.body, isolated=True)
        return builder.add(kernel.evolve(body=body, divisibility=divisors), op.location)

    return expect(transform(model, transformer), core.Module)
