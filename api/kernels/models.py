"""The making of a kernel's code models: by default from a Python function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ziggurat import compiler
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import LaunchError, ZigguratError
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.messages import EXPLICIT_WORDS, Words
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.types import ConstantType, Type, constexpr_type
from ziggurat.frontends.language import Function
from ziggurat.frontends.language.languages import EXPLICIT, Language
from ziggurat.frontends.reflection import reader

if TYPE_CHECKING:
    from ziggurat.kernels.arguments import KernelSignature
    from ziggurat.transforms.attribution import Attribution


class Stub:
    """Stands in the place of the Python function of a kernel that has none: a name, and the models of the kernel."""

    def __init__(self, name: str, models: Models) -> None:
        self.__name__ = self.__qualname__ = name
        self.__doc__ = None  # A kernel takes over the attributes of its function.
        self.ziggurat_models = models

    @property
    def __signature__(self) -> inspect.Signature:
        return self.ziggurat_models.signature

    def __call__(self, *arguments: Any, **keywords: Any) -> NoReturn:
        raise LaunchError(f"'{self.__name__}' is not a Python function", hint=f"launch it: {self.__name__}[grid](…)")


class Models:
    """Makes the models of a kernel. A kernel calls this object and keeps the results.

    A kernel that is no Python function is made of a `Stub` with an object of a class derived from this one, which has
    the `signature`. What is not overridden works on `kernel.model`, the Python code model. `words` are those of its
    language in messages.
    """

    words: Words = EXPLICIT_WORDS
    signature: inspect.Signature

    def python(self, kernel: Function) -> Op:
        """The Python code model, `kernel.model`. A kernel with parameters that change it has that of their defaults."""
        raise NotImplementedError

    def python_for(self, kernel: Function, types: Sequence[Type]) -> Op:
        """The Python code model that is compiled for arguments of these types, one for each parameter."""
        return kernel.model

    def module(self, kernel: Function) -> core.Module:
        """The Python code models of the kernel and of the functions it reaches, in one module, callees first."""
        return compiler.link(kernel)

    def attribution(self, kernel: Function, types: Sequence[Type]) -> Attribution:
        """The type of each value of the Python model for arguments of these types."""
        return compiler.attribute(kernel, types)

    def triton(self, kernel: Function, signature: KernelSignature) -> core.Module:
        """The Triton code model for a signature."""
        facts = signature.divisibility, signature.small
        return compiler.triton_model(kernel, signature.types, *facts, stops=signature.stops)

    def key(self, signature: KernelSignature) -> KernelSignature:
        """The signature without the options that the Triton model does not depend on, for the table of models."""
        return signature.with_options({})

    def constexprs(self, kernel: Function) -> frozenset[str]:
        """The names of the parameters that take values known at compile time."""
        parameters = kernel.model.bodies[0].parameters
        parameters_by_name = zip(kernel.signature.parameters, parameters, strict=True)
        return frozenset(name for name, parameter in parameters_by_name if parameter.type == constexpr_type)

    def declarations(self, kernel: Function, arguments: Mapping[str, Any]) -> Mapping[str, Type]:
        """The types of parameters that the source declares, for these arguments by name.

        An argument has its declared type; a number of another type is converted to it.
        """
        return {}

    def check_declared(self, kernel: Function, types: Mapping[str, Type], declarations: Mapping[str, Type]) -> None:
        """Raise `LaunchError` unless the types of the run-time arguments by name are those that the source declares."""
        for name, type_ in types.items():
            if name in declarations and not isinstance(type_, ConstantType) and type_ != declarations[name]:
                raise LaunchError(
                    f"'{name}' of '{kernel.name}' is declared as {self.words.type(declarations[name])}; got "
                    f"{self.words.type(type_)}"
                )

    def missing(self, kernel: Function, names: Sequence[str], arguments: Mapping[str, Any]) -> ZigguratError:
        """The error of a launch that lacks the arguments `names`; `arguments` has the others by name."""
        listing = ", ".join(f"'{name}'" for name in names)
        return LaunchError(f"'{kernel.name}' needs {listing}", hint=kernel.written)

    def identity(self, kernel: Function) -> str:
        """A text that is equal for equal kernels, under which the choices of tuning are kept."""
        from ziggurat.backend.cache.keys import structure
        from ziggurat.transforms.attribution.link import reached

        return " ".join(structure(function.model) for function in reached(kernel))

    def place(self, kernel: Function) -> Location | None:
        """The place of the kernel in its source."""
        return kernel.model.location

    def text(self, kernel: Function) -> str | None:
        """The source, where Python's `inspect` cannot find it."""
        return None


class PythonModels(Models):
    """The models of a Python function, whose source is read."""

    def __init__(self, fn: Callable[..., Any], language: Language = EXPLICIT) -> None:
        self._read = reader(fn, language)

    def python(self, kernel: Function) -> Op:
        return self._read(kernel)

    def declarations(self, kernel: Function, arguments: Mapping[str, Any]) -> Mapping[str, Type]:
        _ = kernel.model  # Its making reads the annotations.
        return kernel.declares

    def triton(self, kernel: Function, signature: KernelSignature) -> core.Module:
        types = dict(zip(kernel.signature.parameters, signature.types, strict=True))
        self.check_declared(kernel, types, self.declarations(kernel, {}))
        return super().triton(kernel, signature)
