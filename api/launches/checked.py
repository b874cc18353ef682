"""Arguments of a compiled kernel, checked against what it was compiled for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ziggurat.backend.launch.arrays import is_array, number_type
from ziggurat.backend.launch.descriptors import TensorDescriptor
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.types import DescriptorType, PtrType, ScalarType, i1
from ziggurat.compiler.compiled import Argument, Compiled


class Checked:
    """The checks of a kernel's arguments that do not depend on where it runs; `title` names the kernel in messages."""

    def __init__(self, compiled: Compiled, title: str) -> None:
        self.compiled = compiled
        self.title = title

    def check(self, arguments: Sequence[Any]) -> list[str]:
        """The arguments' names. Raises `LaunchError` for one that is not what the kernel was compiled for."""
        expected = self.compiled.arguments
        if len(arguments) != len(expected):
            listed = ", ".join(map(str, expected))
            raise LaunchError(
                f"'{self.title}' was compiled for {len(expected)} argument(s) ({listed}), got {len(arguments)}",
                hint="values that were compiled in are not given again",
            )
        names = [argument.name or f"argument {number}" for number, argument in enumerate(expected)]
        for argument, name, given in zip(expected, names, arguments, strict=True):
            type_ = argument.type
            if type_ is None or isinstance(type_, DescriptorType):
                self.fits_descriptor(argument, name, given)
            elif isinstance(type_, PtrType):
                self.fits_pointer(argument, type_, name, given)
            else:
                assert isinstance(type_, ScalarType)
                self.fits_number(argument, type_, name, given)
        return names

    def fits_pointer(self, argument: Argument, type_: PtrType, name: str, given: Any) -> None:
        """Raise `LaunchError` unless the argument is an array of the pointer's type where the kernel runs."""
        raise NotImplementedError

    def fits_descriptor(self, argument: Argument, name: str, given: Any) -> None:
        """Raise `LaunchError` unless the argument is a descriptor of its type where the kernel runs."""
        raise NotImplementedError

    def is_array(self, given: Any) -> bool:
        """Whether an argument is an array of any library."""
        return is_array(given)

    def fits_described(self, argument: Argument, name: str, given: Any) -> None:
        """Raise `LaunchError` unless the argument is a descriptor of its type, wherever its array is."""
        expected = "a zg.TensorDescriptor" + (f" of type {argument.type}" if argument.type is not None else "")
        if not isinstance(given, TensorDescriptor):
            raise self.other(name, expected, type(given).__name__)
        if argument.type is not None and given.type != argument.type:
            raise self.other(name, expected, f"one of type {given.type}")
        if given.row_bytes % argument.divisibility:
            raise self.divided(
                argument, name, f"rows of whole {argument.divisibility} bytes", f"rows of {given.row_bytes} bytes"
            )

    def fits_number(self, argument: Argument, type_: ScalarType, name: str, given: Any) -> None:
        """Raise `LaunchError` unless the argument is a number of the type, divisible as the kernel relies on."""
        found = None if self.is_array(given) else number_type(given)
        if found is None:
            raise self.other(name, f"a number of type {type_}", type(given).__name__)
        if not type_.is_float:
            if found.is_float or (type_ == i1) != (found == i1):
                raise self.other(name, f"a number of type {type_}", repr(given))
            low, high = type_.limits
            if not low <= int(given) <= high:
                raise self.other(name, f"a number of type {type_} (from {low} to {high})", str(given))
            if int(given) % argument.divisibility:
                raise self.divided(argument, name, f"a number divisible by {argument.divisibility}", str(given))

    def other(self, name: str, expected: str, got: str) -> LaunchError:
        """The error for an argument of another type."""
        return LaunchError(f"'{name}' of '{self.title}' is compiled for {expected}; got {got}")

    def divided(self, argument: Argument, name: str, expected: str, got: str) -> LaunchError:
        """The error for an argument that is not divisible by what the kernel relies on."""
        return LaunchError(
            f"'{name}' of '{self.title}' is compiled for {expected}; got {got}",
            hint=f"compile it for {argument.type} without zg.divisible, or give it an argument that is",
        )
