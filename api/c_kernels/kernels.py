"""Kernels of Triton-C: `zg.triton_c(source, TYPE="float", TM=[32, 64])`.

The macros of the source are constexpr parameters of the kernel, after the parameters that the source declares.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import itertools
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ziggurat import compiler
from ziggurat.boundary import no_faults, public
from ziggurat.c_kernels.parameters import check_type, macro_text, python_name
from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import KernelNameError, KernelSyntaxError, LaunchError, ZigguratError, shown, warn
from ziggurat.codemodel.location import Location, register
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.recursion import deep_recursion
from ziggurat.codemodel.text.limits import read_regular
from ziggurat.codemodel.transform import transform
from ziggurat.codemodel.types import ConstantType, ScalarType, Type
from ziggurat.frontends.language import Function
from ziggurat.frontends.language.signature import suggest
from ziggurat.frontends.triton_c.c_words import TRITON_C, WORDS
from ziggurat.frontends.triton_c.names import Header, headers, undeclared
from ziggurat.frontends.triton_c.preprocess import Preprocessed, Token, preprocess
from ziggurat.frontends.triton_c.reader import KernelSource, read_kernel
from ziggurat.kernels.arguments import KernelSignature
from ziggurat.kernels.kernel import Kernel
from ziggurat.kernels.models import Models, Stub
from ziggurat.transforms.calls.c import C_CALLS
from ziggurat.transforms.calls.rule import TABLES

if TYPE_CHECKING:
    from ziggurat.transforms.attribution import Attribution
    from ziggurat.tuning.autotune import TunedKernel

# Models of Triton-C have calls of their own: `invoke … @"c.div"`.
TABLES["c"] = C_CALLS

_OPTIONS = ("num_warps", "num_stages")


@public
def triton_c(source: str | os.PathLike[str], name: str | None = None, /, **macros: Any) -> Kernel | TunedKernel:
    """The kernel of a Triton-C source: its text, or the path of its file.

        add = zg.triton_c(open("add.tc").read(), TYPE="float", SIZE=128)
        add[lambda meta: (zg.cdiv(n, meta["SIZE"]),)](n, a, b, c)

    `name` is the kernel's, needed where the source has several. Macros are numbers, bools, text of C, and dtypes. A
    macro without a value here gets one at the launch (`add[grid](…, SIZE=64)`), like a constexpr parameter; a value
    here is the default. The values of a list are tuned: the fastest combination is found by measuring at the first
    launch with new integers or element types (see `zg.autotune`); `num_warps` and `num_stages` may be lists too.

    Raises `KernelSyntaxError` and `KernelNameError` for what is wrong with the source as far as it is read here: the
    macros without a value may change the rest. Warns of a macro that the source does not name.
    """
    kernel, models = kernel_and_models(source, name, macros)
    models.warn_of_unused()
    return kernel


def kernel_and_models(
    source: str | os.PathLike[str], name: str | None, macros: Mapping[str, Any]
) -> tuple[Kernel | TunedKernel, TritonCModels]:
    """The kernel of a source, and its models; no warning of macros that the source does not name."""
    if not isinstance(source, str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise LaunchError(f"zg.triton_c: the source must be a text, or the path of a file; got {shown(source)}")
    lists: dict[str, list[Any]] = {key: [*value] for key, value in macros.items() if isinstance(value, list | tuple)}
    for key, values in lists.items():
        if not values:
            raise LaunchError(f"the list of '{key}' must have values", hint=f"{key}=[32, 64]")
    models = TritonCModels(source, name, {key: lists.get(key, [value])[0] for key, value in macros.items()})
    options: dict[str, list[Any]] = {
        key: lists.pop(key, [macros[key]]) for key in _OPTIONS if key in macros and key not in models.macros
    }
    if not lists and not options:
        return Kernel(Stub(models.header.name, models)), models
    from ziggurat.tuning.autotune import TunedKernel
    from ziggurat.tuning.config import Config
    from ziggurat.tuning.tuned import Tuning

    configs = [
        Config(dict(zip(lists, values, strict=False)), **dict(zip(options, values[len(lists) :], strict=True)))
        for values in itertools.product(*lists.values(), *options.values())
    ]
    tuning = Tuning(configs, key=models.tuning_key([*lists]))
    return TunedKernel(Kernel(Stub(models.header.name, models)), tuning, {}), models


class TritonCModels(Models):
    """The models of a kernel of Triton-C: one Python model for each combination of values of the macros.

    `macros` has the default of each macro by name, `Parameter.empty` where there is none, and None for a macro that
    conditions ask for and that need not be defined. The default of a macro that is tuned is its first value.
    """

    words = WORDS

    def __init__(self, source: str | os.PathLike[str], name: str | None, definitions: Mapping[str, Any]) -> None:
        if isinstance(source, os.PathLike):
            self.file = os.fspath(source)
            try:
                self.source = read_regular(Path(self.file)).decode()
            except (OSError, UnicodeDecodeError) as error:
                raise LaunchError(f"zg.triton_c cannot read the file '{self.file}': {error}") from None
        elif re.fullmatch(r"\s*[^\s(){};]+\.\w+\s*", source):
            raise LaunchError(
                f"zg.triton_c: the source must be a text of C; got {source!r}",
                hint=f"give the path of a file as a Path: zg.triton_c(pathlib.Path({source.strip()!r}))",
            )
        else:
            self.source = source
            self.file = f"<triton-c {hashlib.sha256(source.encode()).hexdigest()[:8]}>"
        register(self.file, self.source)
        for key in definitions:
            if not key.isidentifier():
                raise LaunchError(f"a macro must have a name of C; got {key!r}")
        self.name = name
        texts = {key: macro_text(key, value) for key, value in definitions.items()}
        preprocessed = self._preprocess(texts)
        self.header = self._header(preprocessed, texts)
        free = self._free(preprocessed, texts)
        options = [key for key in definitions if key in _OPTIONS and key not in preprocessed.names]
        empty: Any = inspect.Parameter.empty
        self.macros: dict[str, Any] = {key: value for key, value in definitions.items() if key not in options}
        self.macros |= dict.fromkeys((key for key in free if key not in self.macros), empty)
        self.macros |= dict.fromkeys((key for key in preprocessed.queried if key not in self.macros), None)
        self._uses = free
        self._preprocessed = preprocessed
        self._read: dict[tuple[tuple[str, str], ...], KernelSource] = {}

    def _preprocess(self, texts: Mapping[str, str]) -> Preprocessed:
        with no_faults("reading", lambda: self.source, self.file), deep_recursion():
            try:
                return preprocess(self.source, self.file, texts)
            except RecursionError:
                raise self._too_deep() from None

    def warn_of_unused(self) -> None:
        """Warn of each macro that is given and is nowhere in the source: it may be misspelt.

        This is no error, because one dictionary of macros may serve several sources, as `-D` does in C.
        """
        used_macros = [name for name in self.macros if name in self._preprocessed.names]
        has = f"its macros are {', '.join(used_macros)}" if used_macros else "it has no macros"
        for name in self.macros:
            if name not in used_macros:
                text = f"the macro '{name}' is given, and the source of '{self.header.name}' does not name it"
                warn(f"{text}: {suggest(name, used_macros) or has}", Location(self.file, 1))

    def _free(self, preprocessed: Preprocessed, texts: Mapping[str, str]) -> dict[str, Token]:
        """The names that must be macros, with their first uses.

        `undeclared` finds them in the tokens and may name too many. A source that can be read without them has none.
        """
        free = undeclared(preprocessed.tokens)
        if free and self._error_without(texts) is None:
            return {}
        return free

    def _error_without(self, texts: Mapping[str, str]) -> ZigguratError | None:
        """The error of the source with these macros only."""
        try:
            with no_faults("reading", lambda: self.source, self.file):
                read_kernel(self.source, self.file, texts, self.name)
        except ZigguratError as error:
            return error
        return None

    def _header(self, preprocessed: Preprocessed, texts: Mapping[str, str]) -> Header:
        """The header of the kernel. Where the tokens do not show it, the parser raises the error."""
        defined = headers(preprocessed.tokens)
        kernels = [header for header in defined if header.is_kernel]
        if self.name is not None:
            header = next((header for header in defined if header.name == self.name), None)
            if header is None and defined:
                names = ", ".join(header.name for header in defined)
                raise KernelNameError(f"there is no function '{self.name}' in {self.file}", None, f"it has {names}")
        else:
            header = kernels[0] if len(kernels) == 1 else None if kernels or not defined else defined[-1]
        if header is not None and len(set(header.parameters)) == len(header.parameters):
            return header
        with no_faults("reading", lambda: self.source, self.file):
            read_kernel(self.source, self.file, texts, self.name)
        raise KernelSyntaxError(
            f"{self.file} has no function that can be found", None, "write __global__ void f(…) { … }"
        )

    def _too_deep(self) -> KernelSyntaxError:
        return KernelSyntaxError(f"the source of '{self.file}' is nested too deeply to be read", Location(self.file, 1))

    @functools.cached_property
    def parameters(self) -> dict[str, str]:
        """The names of the parameters in C by their names in Python, where a keyword gets an underscore."""
        return {python_name(name): name for name in self.header.parameters}

    @property
    def signature(self) -> inspect.Signature:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The parameters of C, and the macros by keyword."""
        parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in self.parameters]
        parameters += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
            for name, default in self.macros.items()
        ]
        return inspect.Signature(parameters)

    def tuning_key(self, tuned: Sequence[str]) -> list[str]:
        """The parameters whose new values start a tuning: integers, and macros without a value that are not tuned."""
        key = [
            name for name, default in self.macros.items() if name not in tuned and default is inspect.Parameter.empty
        ]
        try:
            parameters = self.read(self.values({})).parameters
        except ZigguratError:  # The types depend on macros without values: every parameter may be an integer.
            return [*self.parameters, *key]
        return [python_name(p.name) for p in parameters if isinstance(p.type, ScalarType) and p.type.is_int] + key

    # Macros.

    def values(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The value of each macro, given by name or its default. Raises `KernelNameError` for a macro without one."""
        values = {name: arguments.get(name, default) for name, default in self.macros.items()}
        missing = [name for name, value in values.items() if value is inspect.Parameter.empty]
        if missing:
            raise self._undefined(missing, values) from None
        return values

    def missing(self, kernel: Function, names: Sequence[str], arguments: Mapping[str, Any]) -> ZigguratError:
        if not self.macros.keys() >= set(names):
            return super().missing(kernel, names, arguments)
        return self._undefined(names, {name: arguments[name] for name in self.macros}, at_launch=True)

    def _undefined(
        self, missing: Sequence[str], values: Mapping[str, Any], *, at_launch: bool = False
    ) -> ZigguratError:
        """The error for macros without values, or an error of the source that these macros do not cause."""
        rest = {name: value for name, value in values.items() if name not in missing and value is not None}
        error = self._error_without({name: macro_text(name, value) for name, value in rest.items()})
        first = None if error is None else error.parts[0]
        if first is not None:
            is_in_text = not set(missing).isdisjoint(re.findall(r"\w+", _text_at(first)))
            if not is_in_text and not isinstance(first, KernelNameError):
                first.say_in(WORDS)
                return first
            if len(missing) == 1 and (first.hint or "").startswith("did you mean"):
                return first
        name, token = missing[0], self._uses.get(missing[0])
        what = "are neither declared nor defined as macros"
        if len(missing) == 1:
            what = "is neither declared nor defined as a macro"
        hint = f"define it: {name}=… from Python, or -D{name}=… on the command line"
        if len(missing) == 1 and name in self._preprocessed.with_arguments:
            what, hint = "is a macro with arguments", f"write its arguments: {name}(…)"
        listing = ", ".join(f"'{name}'" for name in missing)
        kind, verb = (LaunchError, "needs") if at_launch else (KernelNameError, "uses")
        place = None if token is None else token.place
        fault = kind(f"'{self.header.name}' {verb} {listing}, which {what}", place, hint)
        if token is not None and token.macro is not None:
            fault.add(f"in the definition of the macro '{token.macro}'", token.defined)
        return fault

    def read(self, values: Mapping[str, Any]) -> KernelSource:
        """The kernel for values of the macros, read once for each combination."""
        texts = {name: macro_text(name, value) for name, value in values.items() if value is not None}
        key = tuple(sorted(texts.items()))
        kernel = self._read.get(key)
        if kernel is None:
            try:
                with no_faults("reading", lambda: self.source, self.header.name), deep_recursion():
                    try:
                        kernel = read_kernel(self.source, self.file, texts, self.header.name)
                    except RecursionError:
                        raise self._too_deep() from None
            except ZigguratError as error:
                raise self._reworded(error, values) from None
            if [parameter.name for parameter in kernel.parameters] != [*self.parameters.values()]:
                raise KernelSyntaxError(
                    f"the parameters of '{self.header.name}' must be the same for all values of the macros",
                    kernel.model.location,
                    "make a kernel of its own for each value",
                )
            self._read[key] = kernel
        return kernel

    def _values(self, types: Sequence[Type]) -> dict[str, Any]:
        """The values of the macros among attributed types of all parameters."""
        constants = zip(self.macros, types[len(self.parameters) :], strict=True)
        return {name: type_.value for name, type_ in constants if isinstance(type_, ConstantType)}

    def _reworded(self, error: ZigguratError, values: Mapping[str, Any]) -> ZigguratError:
        """The error in the words of C. An error at a macro whose value is numbers between commas gets a hint how to
        write a list."""
        for part in error.parts:
            for name in re.findall(r"\w+", _text_at(part)):
                value = values.get(name)
                if isinstance(value, str) and re.fullmatch(r"\s*\d+(\s*,\s*\d+)+\s*", value):
                    numbers = "".join(value.split())
                    part.hint = f"values to choose among are a list: {name}=[{numbers}], or -D{name}=[{numbers}]"
        error.say_in(WORDS)
        return error

    def source_for(self, types: Sequence[Type]) -> tuple[KernelSource, Sequence[Type]]:
        """The kernel for attributed types of all parameters, and the types of those of C."""
        count = len(self.parameters)
        reading = self.read(self._values(types))
        for parameter, type_ in zip(reading.parameters, types, strict=False):
            check_type(self.header.name, parameter.name, parameter.type, type_)
        return reading, types[:count]

    # Models.

    def python(self, kernel: Function) -> Op:
        return self.read(self.values({})).model

    def python_for(self, kernel: Function, types: Sequence[Type]) -> Op:
        return self.source_for(types)[0].model

    def module(self, kernel: Function) -> core.Module:
        reading = self.read(self.values({}))
        builder = Builder.root()
        for function in reversed([*reading.functions.values()]):
            builder.add(transform(function), function.location)
        builder.add(core.Unreachable())
        return core.Module(builder.finish())

    def attribution(self, kernel: Function, types: Sequence[Type]) -> Attribution:
        source, own = self.source_for(types)
        try:
            return compiler.attribute(source.model, own, source.functions, language=TRITON_C)
        except ZigguratError as error:
            raise self._reworded(source.source.explain(error), self._values(types)) from None

    def triton(self, kernel: Function, signature: KernelSignature) -> core.Module:
        source, own = self.source_for(signature.types)
        divisors = iter(signature.divisibility or [1] * len(own))
        divisibility: list[int] = []
        for parameter, type_ in zip(source.parameters, own, strict=True):
            if not isinstance(type_, ConstantType):
                divisibility.append(max(next(divisors), parameter.divisibility))
        try:
            facts = divisibility, signature.small
            return compiler.triton_model(
                source.model, own, *facts, source.functions, language=TRITON_C, stops=signature.stops
            )
        except ZigguratError as error:
            raise self._reworded(source.source.explain(error), self._values(signature.types)) from None

    def constexprs(self, kernel: Function) -> frozenset[str]:
        return frozenset(self.macros)

    def declarations(self, kernel: Function, arguments: Mapping[str, Any]) -> Mapping[str, Type]:
        source = self.read(self.values(arguments))
        return {python_name(parameter.name): parameter.type for parameter in source.parameters}

    def place(self, kernel: Function) -> Location | None:
        return Location(self.file, 1)

    def text(self, kernel: Function) -> str | None:
        return self.source

    def identity(self, kernel: Function) -> str:
        macros = sorted((name, repr(value)) for name, value in self.macros.items())
        return hashlib.sha256(repr((self.source, self.header.name, macros)).encode()).hexdigest()


def _text_at(error: ZigguratError) -> str:
    """The text of the source at the place of an error."""
    place = error.location
    line = None if place is None else place.source_line()
    if place is None or line is None:
        return ""
    return line.encode()[place.column : place.end_column].decode(errors="replace")
