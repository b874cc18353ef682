"""Expressions of Triton-C as ops of the Python code model. Each gives one value and has the place of its text.

An operand that C might not evaluate (of `&&`, `||` and `?:`) is evaluated all the same, and its loads are masked: they
read where C would have evaluated them. Its integer divisions divide by 1 elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import attrs
import lark

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import core, py
from ziggurat.codemodel.errors import KernelNameError, KernelTypeError
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.types import PtrType, ScalarType, VarType, pyobject
from ziggurat.frontends.bodies import Bodies
from ziggurat.frontends.language.signature import SIGNATURES, bind, nowhere, suggest
from ziggurat.frontends.triton_c.c_library import BINARY, CONDITIONS, CONSTANTS, EFFECTS, NAMES, TO_POINTEES, call_of
from ziggurat.frontends.triton_c.declared import Specifiers, scalar_of
from ziggurat.frontends.triton_c.grammar import Node
from ziggurat.frontends.triton_c.literals import literal, static_value, unescaped
from ziggurat.frontends.triton_c.source import CSource
from ziggurat.frontends.triton_c.trees import grouped, without_groups

if TYPE_CHECKING:
    from collections.abc import Generator

    from ziggurat.frontends.triton_c.reader import CProgram

_VARIABLE = VarType(pyobject)

_REDUCTIONS: Final = {"+": "zg.sum", "max": "zg.max", "min": "zg.min"}


class Reported(Exception):
    """A use of a variable whose declaration is in error. The error is reported there."""


@attrs.define(eq=False)
class Variable:
    """A variable: its `var`, declared element type, and shape as a value (None for an array of any shape).

    Stores through a `readonly` pointer are errors; a `constant` is not assigned.
    """

    name: str
    var: Value
    type: ScalarType | PtrType
    shape: Value | None
    constant: bool = False
    readonly: bool = False


class CExpressions(Bodies):
    """Reads expressions into `builder`. `scopes` has the variables of each block around, outermost first."""

    def __init__(self, program: CProgram, builder: Builder) -> None:
        self.program = program
        self.source: CSource = program.source
        self.builder = builder
        self.scopes: list[dict[str, Variable | None]] = [{}]
        # The shape of every scalar.
        self.scalar: Value = builder.add(py.Pack(()))
        # The conditions under which C would evaluate the operand that is read, outermost first. Each is made when it
        # is first needed.
        self.conditions: list[Callable[[], Value]] = []

    # Ops.

    def add(self, op: Op, node: Node) -> Value:
        """Add an op that models `node`."""
        return self.builder.add(op, self.source.place(node))

    def constant(self, value: Any, node: Node) -> Value:
        return self.add(core.ConstantOp(value, pyobject), node)

    def invoke(self, callee: str, node: Node, *arguments: Value) -> Value:
        """A call of the language (`zg.add`) or of Triton-C (`c.load`)."""
        return self.add(py.Invoke(arguments, callee), node)

    # Conditions of evaluation.

    @contextmanager
    def under(self, condition: Value, node: Node, *, negated: bool = False) -> Generator[None]:
        """Read what C evaluates only where a condition holds, or where it does not."""
        around = self.conditions[-1] if self.conditions else None

        @cache
        def mask() -> Value:
            here = self.invoke("zg.invert", node, condition) if negated else condition
            return here if around is None else self.invoke("zg.and_", node, around(), here)

        self.conditions.append(mask)
        try:
            yield
        finally:
            self.conditions.pop()

    def mask(self) -> Value | None:
        """The condition of the operand that is read now, or None if it is always evaluated."""
        return self.conditions[-1]() if self.conditions else None

    # Expressions.

    def expression(self, node: Node) -> Value:
        """The value of an expression."""
        return _READERS[node.data](self, node)

    def truth(self, node: Node) -> Value:
        """Whether an expression is not zero."""
        return self.invoke("c.truth", node, self.expression(node))

    def find(self, name: str) -> Variable | None:
        """The variable that a name means here; None for a name that is no variable."""
        for scope in reversed(self.scopes):
            if name in scope:
                variable = scope[name]
                if variable is None:
                    raise Reported
                return variable
        return None

    def name(self, node: Node) -> Value:
        name = str(node.children[0])
        variable = self.find(name)
        if variable is not None:
            return self.add(core.VarLoad(variable.var), node)
        if name in CONSTANTS:
            return self.constant(CONSTANTS[name], node)
        if name in self.program.functions:
            self.program.reach(name)
            return self.add(core.FuncRef(name, pyobject), node)
        if name == "newaxis":
            raise self.source.syntax("newaxis must stand in a subscript", node, "write x[:, newaxis]")
        raise self.unknown(name, node)

    def unknown(self, name: str, node: Node) -> KernelNameError:
        """The error for a name that is not declared."""
        names = [variable for scope in self.scopes for variable in scope]
        hint = suggest(name, names) or suggest(name, [*self.program.functions, *NAMES])
        hint = hint or f"declare it, or define it as a macro: {name}=… from Python, or -D{name}=…"
        return self.source.at(KernelNameError(f"'{name}' is not declared", hint=hint), node)

    def number(self, node: Node) -> Value:
        value, type_ = literal(node, self.source)
        number = self.constant(value, node)
        return number if type_ is None else self.invoke("c.cast", node, number, self.constant(type_, node))

    def string(self, node: Node) -> Value:
        return self.constant("".join(unescaped(str(part)) for part in node.children), node)

    def group(self, node: Node) -> Value:
        return self.expression(node.children[1])

    def commas(self, node: Node) -> Value:
        return [self.expression(child) for child in node.children][-1]

    def static_value(self, node: Node) -> int | None:
        """The value of an expression of integer literals and constants; None for another expression."""
        return static_value(node, self.source, lambda name: self.find(name) is not None)

    # Operators.

    def unary(self, node: Node) -> Value:
        sign, operand = str(node.children[0]), node.children[1]
        if sign == "-":
            if operand.data == "number" and operand.children[0].type in ("INTEGER", "FLOAT"):
                value, type_ = literal(operand, self.source)
                if type_ is None:
                    return self.constant(-value, node)
            return self.invoke("c.neg", node, self.expression(operand))
        if sign == "+":
            return self.invoke("zg.add", node, self.expression(operand), self.constant(0, node))
        if sign == "!":
            return self.invoke("zg.invert", node, self.truth(operand))
        if sign == "~":
            return self.invoke("c.invert", node, self.expression(operand))
        if sign == "^":
            return self.invoke("zg.trans", node, self.expression(operand))
        raise self.source.syntax(
            "Triton-C has no addresses of variables", node, "pass the value, or a pointer parameter"
        )

    def chain(self, node: Node) -> Value:
        return self.binary(grouped(node))

    def binary(self, node: Node) -> Value:
        left, sign, right = node.children
        sign = str(sign)
        if sign in ("&&", "||"):
            return self.logical(node, left, right, is_and=sign == "&&")
        return self.combined(sign, self.expression(left), right, node)

    def combined(self, sign: str, left: Value, right: Node, node: Node) -> Value:
        """A binary operator on a value and an expression: `c + a @ b` is one product that is added to `c`."""
        factors = without_groups(right)
        if sign == "+" and factors.data == "chain":
            factors = grouped(factors)
        if sign == "+" and factors.data == "binary" and str(factors.children[1]) == "@":
            a, b = self.expression(factors.children[0]), self.expression(factors.children[2])
            return self.invoke("c.dot", node, a, b, left)
        return self.operator(sign, left, self.expression(right), node)

    def operator(self, sign: str, left: Value, right: Value, node: Node) -> Value:
        """A binary operator on values."""
        if sign == "@":
            return self.invoke("c.dot", node, left, right)
        mask = self.mask() if sign in ("/", "%") else None
        return self.invoke(BINARY[sign], node, left, right, *(() if mask is None else (mask,)))

    def logical(self, node: Node, left: Node, right: Node, is_and: bool) -> Value:
        number = self.static_value(left)
        if number is not None and bool(number) != is_and:
            return self.constant(not is_and, node)
        first = self.truth(left)
        with self.under(first, node, negated=not is_and):
            second = self.truth(right)
        return self.invoke("zg.and_" if is_and else "zg.or_", node, first, second)

    def choose(self, node: Node) -> Value:
        condition, then, _, otherwise = node.children
        number = self.static_value(condition)
        if number is not None:
            return self.expression(then if number else otherwise)
        test = self.truth(condition)
        for branch, other, negated in ((then, otherwise, False), (otherwise, then, True)):
            if without_groups(branch).data == "load":
                return self.loaded_or(without_groups(branch), other, test, node, negated)
        with self.under(test, node):
            first = self.expression(then)
        with self.under(test, node, negated=True):
            second = self.expression(otherwise)
        return self.invoke("c.choose", node, test, first, second)

    def loaded_or(self, load: Node, other: Node, test: Value, node: Node, negated: bool) -> Value:
        """`test ? *p : other`, or with the operands exchanged: one load with a mask."""
        with self.under(test, node, negated=negated):
            pointer = self.expression(load.children[1])
            mask = self.mask()
        with self.under(test, node, negated=not negated):
            value = self.expression(other)
        assert mask is not None
        return self.invoke("c.load", load, pointer, mask, value)

    def range(self, node: Node) -> Value:
        return self.invoke("zg.arange", node, self.expression(node.children[0]), self.expression(node.children[2]))

    def load(self, node: Node) -> Value:
        pointer = self.expression(node.children[1])
        mask = self.mask()
        return self.invoke("c.load", node, pointer, *(() if mask is None else (mask,)))

    def masked(self, node: Node) -> Value:
        mask, pointer = self.mask_and_pointer(node)
        return self.invoke("c.load", node, pointer, mask)

    def mask_and_pointer(self, node: Node) -> tuple[Value, Value]:
        """The mask and the pointer of `*?(mask) pointer`; the mask is false where C would not evaluate the operand."""
        mask = self.truth(node.children[1])
        with self.under(mask, node):
            pointer = self.expression(node.children[2])
            both = self.mask()
        assert both is not None
        return both, pointer

    # Types.

    def specifiers(self, node: Node) -> Specifiers:
        """The words before a declared name."""
        words = [str(t) for t in node.children if isinstance(t, lark.Token) and t.type == "TYPE"]
        qualifiers = {str(t) for t in node.children if isinstance(t, lark.Token) and t.type == "QUALIFIER"}
        try:
            type_ = scalar_of(words)
        except KeyError:
            problem = f"'{' '.join(words)}' is no type" if words else "the declaration has no type"
            raise self.source.syntax(problem, node, "write float, int, half, unsigned char …") from None
        attributes = [child for child in node.children if not isinstance(child, lark.Token)]
        return self.with_attributes(Specifiers(type_, frozenset(qualifiers)), attributes)

    def with_attributes(self, specifiers: Specifiers, attributes: Sequence[Node]) -> Specifiers:
        """The beginning of a declaration with the attributes and qualifiers that follow the name."""
        for attribute in attributes:
            if isinstance(attribute, lark.Token):
                specifiers = attrs.evolve(specifiers, qualifiers=specifiers.qualifiers | {str(attribute)})
                continue
            name, argument = str(attribute.children[0]), attribute.children[1]
            number = None if argument is None else self.static_value(argument)
            if number is None or number < 1:
                raise self.source.syntax(f"{name} must have a positive number", attribute, f"write {name}(16)")
            divisor = min(number & -number, 1 << 30)  # The greatest power of two that divides it.
            field = "multiple" if name == "__multipleof" else "aligned"
            specifiers = attrs.evolve(specifiers, **{field: divisor})
        return specifiers

    def pointer_to(self, specifiers: Specifiers, stars: Node, node: Node) -> ScalarType | PtrType:
        """The type of specifiers followed by stars. Raises `KernelSyntaxError` for types that do not exist."""
        count = sum(str(star) == "*" for star in stars.children)
        if count > 1:
            raise self.source.syntax("Triton-C has no pointers to pointers", node, "pass each pointer as a parameter")
        if specifiers.type is None:
            what = "a pointer must have a type" if count else "a value must have a type"
            raise self.source.syntax(f"{what}; got void", node)
        return PtrType(specifiers.type) if count else specifiers.type

    def shape(self, dims: Node, node: Node) -> Value | None:
        """The sizes between brackets as a tuple; an empty one without brackets. None for `[...]`, any shape. `node` is
        what has the sizes."""
        if not dims.children:
            return self.scalar
        sizes: list[Value] = []
        for part in dims.children:
            if part is None:
                raise self.source.syntax("an array must have sizes", node, "write float x[64], or x[...] for any shape")
            for size in part.children:
                if isinstance(size, lark.Token):
                    return None
                sizes.append(self.expression(size))
        return self.add(py.Pack(tuple(sizes)), dims)

    def cast(self, node: Node) -> Value:
        specifiers, stars, dims = node.children[1].children
        target = self.specifiers(specifiers)
        value = self.expression(node.children[3])
        type_ = self.constant(self.pointer_to(target, stars, node), node)
        value = self.invoke("c.cast", node, value, type_)
        if not dims.children:
            return value
        return self.convert(value, self.pointer_to(target, stars, node), self.shape(dims, node), "the cast value", node)

    def sizeof(self, node: Node) -> Value:
        specifiers, stars, dims = node.children[2].children
        type_ = self.pointer_to(self.specifiers(specifiers), stars, node)
        if dims.children:
            raise self.source.syntax("sizeof takes an element type; got an array", node, "write sizeof(float)")
        return self.constant(8 if isinstance(type_, PtrType) else type_.bytes, node)

    # Subscripts and calls.

    def subscript(self, node: Node) -> Value:
        items = self.component(node)
        if items is not None:
            return items
        indices: list[Node] = [
            child for child in node.children if isinstance(child, lark.Tree) and child.data == "index"
        ]
        value = self.expression(node.children[0])
        kinds = [self.index(index) for index in indices]
        axes = [kind for kind in kinds if kind != "newaxis"]
        value = self.invoke("c.ranked", node, value, self.constant(len(axes), node))
        for axis, kind in reversed([*enumerate(axes)]):
            if kind != ":":
                value = self.invoke(_REDUCTIONS[kind], node, value, self.constant(axis, node))
        result_kinds = [kind for kind in kinds if kind in (":", "newaxis")]
        new_axes = tuple(place for place, kind in enumerate(result_kinds) if kind == "newaxis")
        if not new_axes:
            return value
        axes = self.constant(new_axes[0] if len(new_axes) == 1 else new_axes, node)
        return self.invoke("zg.expand", node, value, axes)

    def component(self, node: Node) -> Value | None:
        """A result of a call that gives several: `split(x)[0]`. None for a subscript of an array."""
        if node.children[0].data != "call" or len(node.children) != 4:
            return None
        item = node.children[2].children[0]
        number = None if isinstance(item, lark.Token) else self.static_value(item)
        if number is None:
            return None
        value = self.expression(node.children[0])
        return self.add(py.Subscript(value, self.constant(number, node)), node)

    def index(self, node: Node) -> str:
        """The kind of an index: `:`, `newaxis`, or the sign of a reduction."""
        item = node.children[0]
        if isinstance(item, lark.Token):
            return str(item)
        name = str(item.children[0]) if item.data == "name" else ""
        if name == "newaxis" or (name in _REDUCTIONS and self.find(name) is None):
            return name
        raise self.source.syntax(
            "an index must be ':', newaxis, '+', max or min; got an expression",
            node,
            "write *(p + i) to read an element of memory; gather(x, i, 0) picks elements of an array",
        )

    def member(self, node: Node) -> Value:
        raise self.source.syntax("Triton-C has no structures, and no members", node, "pass members as parameters")

    def call(self, node: Node) -> Value:
        callee = node.children[0]
        arguments = [child for child in node.children[2:-1] if child is not None and not isinstance(child, lark.Token)]
        name = str(callee.children[0]) if callee.data == "name" else ""
        if not name or self.find(name) is not None:
            raise self.source.syntax("only a function can be called", node, "write the name of a function")
        if name in self.program.functions:
            return self.call_function(name, arguments, node)
        meaning = call_of(name, len(arguments))
        if meaning is None:
            letters = ", ".join("xyzuvw"[: len(arguments)]) if len(arguments) <= 6 else "…"
            hint = suggest(name, [*self.program.functions, *NAMES])
            hint = hint or f"define it: a function, or a macro with arguments, #define {name}({letters}) …"
            raise self.source.at(KernelNameError(f"there is no function '{name}'", hint=hint), callee)
        if meaning in EFFECTS and self.conditions:
            raise self.effect(f"'{name}'", node)
        values = [self.argument(argument) for argument in arguments]
        parameters = str(SIGNATURES[meaning]).removeprefix(meaning)
        try:
            bind(f"'{name}'", lambda: f"{name}{parameters}", SIGNATURES[meaning].by_name, values, {}, nowhere)
        except KernelTypeError as error:
            raise self.source.at(error, node) from None
        for place in TO_POINTEES.get(meaning, ()):
            if place < len(values):
                values[place] = self.invoke("c.pointee", arguments[place], values[0], values[place])
        place = CONDITIONS.get(meaning)
        if place is not None and place < len(values):
            values[place] = self.invoke("c.truth", arguments[place], values[place])
        return self.invoke(f"zg.{meaning}", node, *values)

    def effect(self, what: str, node: Node) -> KernelTypeError:
        """The error for an effect in an operand that C may not evaluate."""
        problem = f"{what} must not be in an operand of '?:', '&&' or '||', which is not always evaluated"
        return self.source.type_error(problem, node, "write an if, or a mask: *?(mask) p = x")

    def argument(self, node: Node) -> Value:
        """An argument of a call: an expression, a type, or a tuple in braces."""
        if node.data == "braces":
            items = [self.argument(item) for item in node.children if item is not None]
            return self.builder.add(py.Pack(tuple(items)), self.source.place(node) if items else None)
        if node.data != "type":
            return self.expression(node)
        specifiers, stars, dims = node.children
        if dims.children:
            raise self.source.syntax("a type in a call must have no sizes", node, "write the element type: float")
        return self.constant(self.pointer_to(self.specifiers(specifiers), stars, node), node)

    def call_function(self, name: str, arguments: Sequence[Node], node: Node) -> Value:
        """A call of a function of the source."""
        parameters = self.program.functions[name].parameters
        if len(arguments) != len(parameters):
            noun = "argument" if len(parameters) == 1 else "arguments"
            raise self.source.type_error(f"'{name}' takes {len(parameters)} {noun}; got {len(arguments)}", node)
        if self.program.functions[name].is_kernel:
            raise self.source.syntax(f"'{name}' is a kernel, which only a launch runs", node, "leave out __global__")
        if self.conditions and self.program.has_effects(name):
            raise self.effect(f"a call of '{name}', which uses memory,", node)
        self.program.reach(name)
        values = [self.expression(argument) for argument in arguments]
        return self.add(core.FuncCall(tuple(values), name, type=pyobject), node)

    # Assignments. Statements use them as well.

    def assign(self, node: Node) -> Value:
        target, sign, source = node.children
        sign = str(sign.children[0])[:-1]  # '' for '=', '+' for '+='.
        if self.conditions:
            raise self.effect("an assignment", node)
        if not sign:
            return self.give(target, lambda _: self.expression(source), node)
        return self.give(target, lambda current: self.combined(sign, current(), source, node), node)

    def give(self, target: Node, value: Callable[[Callable[[], Value]], Value], node: Node) -> Value:
        """Assign to a target what `value` returns for the target's old value. Returns the new value."""
        target = without_groups(target)
        if target.data == "name":
            variable = self.find(str(target.children[0]))
            if variable is None:
                raise self.unknown(str(target.children[0]), target)
            return self.store(variable, value(lambda: self.expression(target)), node)
        if target.data not in ("load", "masked"):
            hint = "assign to the variable, or to memory: *(p + i) = x" if target.data == "subscript" else None
            raise self.source.syntax("the target of an assignment must be a variable, *p or *?(mask) p", target, hint)
        self.check_writable(target.children[-1], target)
        masks: tuple[Value, ...] = ()
        if target.data == "masked":
            mask, pointer = self.mask_and_pointer(target)
            masks = (mask,)
        else:
            pointer = self.expression(target.children[1])
        result = value(lambda: self.invoke("c.load", target, pointer, *masks))
        self.invoke("c.store", node, pointer, result, *masks)
        return result

    def store(self, variable: Variable, value: Value, node: Node) -> Value:
        """Assign a value to a variable, after conversion. Returns the converted value."""
        if variable.constant:
            raise self.source.syntax(f"'{variable.name}' is const, and must not be assigned", node)
        if isinstance(variable.type, PtrType) and not variable.readonly:
            variable.readonly = self.is_readonly(node)
        stored_value = self.convert(value, variable.type, variable.shape, f"'{variable.name}'", node)
        self.add(core.VarStore(variable.var, stored_value), node)
        return stored_value

    def convert(
        self, value: Value, type_: ScalarType | PtrType, shape: Value | None, what: str, node: Node, const: bool = False
    ) -> Value:
        """A value converted to a declared type and broadcast to a shape; None keeps its shape."""
        dims = self.constant(None, node) if shape is None else shape
        return self.invoke("c.declare", node, value, dims, self.constant((type_, what, const), node))

    def check_writable(self, pointer: Node, node: Node) -> None:
        """Raise `KernelTypeError` for a store through a pointer that is declared read-only."""
        if self.is_readonly(pointer):
            problem = "nothing can be written through a pointer that is __readonly or to const"
            raise self.source.type_error(problem, node, "leave out __readonly or const in its declaration")

    def is_readonly(self, node: Node) -> bool:
        """Whether a pointer is made of one that must not be written through."""
        if isinstance(node, lark.Token) or node is None:
            return False
        if node.data == "name":
            variable = next(
                (scope[str(node.children[0])] for scope in reversed(self.scopes) if node.children[0] in scope), None
            )
            return variable is not None and variable.readonly
        if node.data in ("load", "masked", "call", "cast"):
            return False
        return any(self.is_readonly(child) for child in node.children)

    def step(self, node: Node) -> Value:
        return self.stepped(node.children[1], str(node.children[0]), node)[1]

    def step_after(self, node: Node) -> Value:
        return self.stepped(node.children[0], str(node.children[1]), node)[0]

    def stepped(self, target: Node, sign: str, node: Node) -> tuple[Value, Value]:
        """The value of a target before and after `++` or `--`."""
        if self.conditions:
            raise self.effect(f"'{sign}'", node)
        before: list[Value] = []

        def following(current: Callable[[], Value]) -> Value:
            before.append(current())
            return self.operator(sign[0], before[0], self.constant(1, node), node)

        after = self.give(target, following, node)
        return before[0], after


_READERS: Mapping[str, Callable[[CExpressions, Node], Value]] = {
    name: getattr(CExpressions, name)
    for name in (
        "name", "number", "string", "group", "commas", "unary", "chain", "binary", "choose", "range", "load", "masked",
        "cast", "sizeof", "subscript", "member", "call", "assign", "step", "step_after",
    )
}  # fmt: skip
