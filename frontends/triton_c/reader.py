"""From the source of a Triton-C program to the Python code models of its functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import KernelErrors, KernelNameError, KernelSyntaxError, ZigguratError
from ziggurat.codemodel.types import PtrType, ScalarType, pyobject
from ziggurat.frontends.triton_c.c_library import EFFECTS, call_of
from ziggurat.frontends.triton_c.declared import Specifiers
from ziggurat.frontends.triton_c.expressions import CExpressions
from ziggurat.frontends.triton_c.grammar import Node, merge_tokens, parse
from ziggurat.frontends.triton_c.preprocess import preprocess
from ziggurat.frontends.triton_c.source import CSource
from ziggurat.frontends.triton_c.statements import CStatements


@attrs.define(eq=False)
class FunctionSource:
    """A function of a source. `result` is its declared type, None for `void`."""

    name: str
    header: Node
    block: Node
    parameters: Sequence[Node]
    result: ScalarType | PtrType | None
    is_kernel: bool

    def is_pointer(self, node: Node) -> bool:
        """Whether a parameter `float x[]` is a pointer: as C has it, where there are no sizes."""
        return [*node.children[3].children] == [None]

    def declaration(self, reader: CExpressions, node: Node) -> tuple[Specifiers, ScalarType | PtrType, str]:
        """The specifiers, the type and the name of a parameter."""
        specifiers, stars, name, dims, *attributes = node.children
        specified = reader.with_attributes(reader.specifiers(specifiers), attributes)
        type_ = reader.pointer_to(specified, stars, node)
        if self.is_pointer(node):
            if isinstance(type_, PtrType):
                raise reader.source.syntax("Triton-C has no pointers to pointers", node)
            type_ = PtrType(type_)
        elif dims.children and self.is_kernel:
            raise reader.source.syntax(
                "the parameter of a kernel must be a number or a pointer; got an array", node, "write float *x"
            )
        return specified, type_, str(name)


@attrs.frozen
class ParameterSource:
    """A parameter of the kernel: its declared type, and the power of two that its value is a multiple of."""

    name: str
    type: ScalarType | PtrType
    divisibility: int
    is_readonly: bool


@attrs.frozen
class KernelSource:
    """A kernel that was read: the models of its functions by name, itself last, and its declared parameters."""

    name: str
    functions: Mapping[str, core.Func]
    parameters: Sequence[ParameterSource]
    source: CSource
    included: tuple[str, ...] = ()

    @property
    def model(self) -> core.Func:
        """The Python code model of the kernel."""
        return self.functions[self.name]


class CProgram:
    """The functions of a source, while they are read. `constants` are the declarations outside of functions."""

    def __init__(self, source: CSource, tree: Node) -> None:
        self.source = source
        self.functions: dict[str, FunctionSource] = {}
        self.constants: list[Node] = []
        self._reached: dict[str, None] = {}
        bare = CExpressions(self, Builder.root((), pyobject))
        for part in tree.children:
            if part.data == "declaration":
                self._constant(bare, part)
            elif part.data == "function":
                self._function(bare, part)

    def _constant(self, bare: CExpressions, node: Node) -> None:
        if "const" not in bare.specifiers(node.children[0]).qualifiers:
            raise self.source.syntax(
                "a variable outside of functions must be const",
                node,
                "pass it to the kernel, or write const int n = 4;",
            )
        self.constants.append(node)

    def _function(self, bare: CExpressions, node: Node) -> None:
        header, block = node.children
        specifiers, stars, token, nodes = header.children
        name = str(token)
        if name in self.functions:
            raise self.source.syntax(f"the function '{name}' is defined twice", header)
        base = bare.specifiers(specifiers)
        result = None if base.type is None and not stars.children else bare.pointer_to(base, stars, header)
        is_kernel = "__global__" in base.qualifiers
        if is_kernel and result is not None:
            raise self.source.syntax(f"the kernel '{name}' must return void", header, f"__global__ void {name}(…)")
        parameters: list[Node] = [] if nodes is None else list(nodes.children)
        if [len(parameter.children) for parameter in parameters] == [1]:
            alone = bare.specifiers(parameters[0].children[0])
            parameters = parameters if alone.type is not None else []  # f(void)
        for parameter in parameters:
            if len(parameter.children) == 1:
                raise self.source.syntax("a parameter must have a name", parameter, "float *x")
        self.functions[name] = FunctionSource(name, header, block, parameters, result, is_kernel)

    def has_effects(self, name: str, visited: frozenset[str] = frozenset()) -> bool:
        """Whether running a function uses memory, or has another effect."""
        for part in self.functions[name].block.iter_subtrees():
            if part.data in ("load", "masked"):
                return True
            if part.data != "call" or part.children[0].data != "name":
                continue
            callee = str(part.children[0].children[0])
            if callee in self.functions:
                if callee not in visited and self.has_effects(callee, visited | {name}):
                    return True
            elif call_of(callee, 0) in EFFECTS:
                return True
        return False

    def reach(self, name: str) -> None:
        """Note that a function is used."""
        self._reached.setdefault(name)

    def kernel(self, name: str | None, file: str) -> FunctionSource:
        """The kernel of this name, or the only one. Raises `KernelNameError` or `KernelSyntaxError`."""
        kernels = [function for function in self.functions.values() if function.is_kernel]
        if name is not None:
            function = self.functions.get(name)
            if function is None:
                names = ", ".join(self.functions) or "none"
                raise KernelNameError(f"there is no function '{name}' in {file}", None, f"it has {names}")
        elif len(kernels) > 1:
            names_of_kernels = ", ".join(f"'{kernel.name}'" for kernel in kernels)
            raise KernelSyntaxError(
                f"{file} has several kernels: {names_of_kernels}",
                self.source.place(kernels[1].header),
                "say which by its name",
            )
        elif kernels:
            function = kernels[0]
        elif self.functions:
            # Without __global__, as the document writes its last kernel: the last function.
            function = [*self.functions.values()][-1]
        else:
            raise KernelSyntaxError(f"{file} has no function", None, "write __global__ void f(float *x) { … }")
        if function.result is not None:
            raise self.source.syntax(f"the kernel '{function.name}' must return void", function.header)
        function.is_kernel = True
        return function

    def read(self, kernel: FunctionSource) -> dict[str, core.Func]:
        """The models of a kernel and of the functions that it reaches. Raises their errors, all of them together."""
        models: dict[str, core.Func] = {}
        errors: list[ZigguratError] = []
        self._reached = {kernel.name: None}
        work = [kernel.name]
        while work:
            name = work.pop()
            function = self.functions[name]
            builder = Builder.root([pyobject] * len(function.parameters), pyobject)
            try:
                body = CStatements(self, builder, function).function_body()
            except ZigguratError as error:
                errors += error.parts
            else:
                models[name] = func = core.Func(name, body)
                func.__dict__["location"] = self.source.place(function.header)
            work += [reached for reached in self._reached if reached not in models and reached not in work]
            if errors:
                work = []
        if errors:
            raise KernelErrors.of(errors)
        return models


def read_kernel(text: str, file: str, macros: Mapping[str, str], name: str | None = None) -> KernelSource:
    """Read the kernel of a source for macros by name and replacement.

    `name` is needed where the source has several kernels. Raises `KernelSyntaxError`, `KernelNameError` and
    `KernelTypeError` at the place that is wrong, and `KernelErrors` for several.
    """
    preprocessed = preprocess(text, file, macros)
    source = CSource(merge_tokens(preprocessed.tokens))
    try:
        program = CProgram(source, parse(source.tokens))
        kernel = program.kernel(name, file)
        bare = CExpressions(program, Builder.root((), pyobject))
        parameters = [_parameter(kernel, bare, node) for node in kernel.parameters]
        names = [parameter.name for parameter in parameters]
        for node, parameter in zip(kernel.parameters, names, strict=True):
            if names.count(parameter) > 1:
                raise source.syntax(f"two parameters have the name '{parameter}'", node)
        models = program.read(kernel)
    except ZigguratError as error:
        raise source.explain(error) from None
    return KernelSource(kernel.name, models, parameters, source, preprocessed.includes)


def _parameter(kernel: FunctionSource, bare: CExpressions, node: Node) -> ParameterSource:
    declaration, type_, name = kernel.declaration(bare, node)
    is_pointer = isinstance(type_, PtrType)
    divisibility = max(declaration.aligned, declaration.multiple) if is_pointer else declaration.multiple
    if divisibility > 1 and isinstance(type_, ScalarType) and type_.kind != "int":
        raise bare.source.syntax("__multipleof must be on an integer or a pointer", node)
    return ParameterSource(name, type_, divisibility, bool(declaration.qualifiers & {"const", "__readonly"}))
