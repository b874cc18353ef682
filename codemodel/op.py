"""The code model: ops hold bodies, bodies hold blocks, blocks hold ops; ops use values and have a result.

A model is a value. A `Builder` puts the parts together. Once built, a model never changes; a transform makes another
one.

* An **op** has operands, successors, attributes, bodies and one result. Its type is `void` for an op without a
  value, and a `Tuple` type for an op with several.
* A **block** has parameters and ops; the last op is a terminator.
* A **body** has blocks; the first is the entry, whose parameters are the parameters of the body.
* A **value** is the result of an op or a parameter of a block.

All of them compare by identity. `same_model(a, b)` compares two ops by structure, with everything in their bodies.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType, UnionType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self, TypeVar, dataclass_transform

from ziggurat.codemodel import fields as roles
from ziggurat.codemodel.errors import BuildError, KernelTypeError, shown
from ziggurat.codemodel.traits import Constant
from ziggurat.codemodel.types import FunctionType, Type, void

if TYPE_CHECKING:
    from ziggurat.codemodel.declare import OpSpec
    from ziggurat.codemodel.location import Location


T_ = TypeVar("T_")

# Sets a field of a part. Only the code that builds models may use it.
fill: Callable[[object, str, object], None] = object.__setattr__


class _Unchanging:
    """A part of a model: as it does not change, it is its own copy."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


class _Part(_Unchanging):
    """A part of a model whose fields cannot be set."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"cannot set '{name}' of {self!r}: models do not change; make another with a transform")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"cannot delete '{name}' of {self!r}: models do not change")


class Value(_Part):
    """The result of an op or a parameter of a block. `uses` are the ops that have it among their operands."""

    __slots__ = ("__weakref__", "type")

    type: Type

    @property
    def op(self) -> Op | None:
        """The op whose result this value is; None for a parameter of a block."""
        return None

    @property
    def block(self) -> Block | None:
        """The block that declares this value; None for the result of an op that is not placed."""
        raise NotImplementedError

    @property
    def uses(self) -> tuple[Op, ...]:
        """The ops that use this value as an operand or pass it to a successor, in the order of the model.

        Known when the body that declares the value is finished and part of an op; () before.
        """
        block = self.block
        if block is None or block.parent.parent is None:
            return ()
        return block.parent.parent.root().use_map().get(self, ())


class OpResult(Value):
    """The result of an op."""

    __slots__ = ("op",)  # pyright: ignore[reportIncompatibleMethodOverride]

    op: Op

    def __init__(self, type_: Type, op: Op) -> None:
        set_type(self, type_)
        set_op(self, op)

    @property
    def block(self) -> Block | None:
        return self.op.parent

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self.op, "result")

    def __repr__(self) -> str:
        return f"<result of {self.op.NAME} : {self.type}>"


# Parts are made for each op of a model, so these write the slots directly, which is faster than `fill`.
set_type: Callable[[Value, Type], None] = Value.__dict__["type"].__set__
set_op: Callable[[OpResult, Op], None] = OpResult.__dict__["op"].__set__


class BlockParameter(Value):
    """A value that a block receives from its predecessors, or from the op that runs its body."""

    __slots__ = ("_block", "index")

    _block: Block
    index: int

    def __init__(self, type_: Type, block: Block, index: int) -> None:
        set_type(self, type_)
        _set_block(self, block)
        _set_index(self, index)

    @property
    def block(self) -> Block:
        return self._block

    @property
    def owner(self) -> Op | None:
        """The op in whose body the block is; None where the body is no op's."""
        return self._block.parent.parent

    def __reduce__(self) -> tuple[Any, ...]:
        return _item, (self._block, "parameters", self.index)

    def __repr__(self) -> str:
        return f"<parameter {self.index} : {self.type}>"


_set_block: Callable[[BlockParameter, Block], None] = BlockParameter.__dict__["_block"].__set__
_set_index: Callable[[BlockParameter, int], None] = BlockParameter.__dict__["index"].__set__


class Successor(_Part):
    """A block to go to, and the arguments for its parameters."""

    __slots__ = ("arguments", "block")

    block: Block
    arguments: tuple[Value, ...]

    def __init__(self, block: Block, arguments: Sequence[Value] = ()) -> None:
        fill(self, "block", block)
        fill(self, "arguments", tuple(arguments))

    def __repr__(self) -> str:
        return f"<successor with {len(self.arguments)} arguments>"


class Block(_Part):
    """Parameters and ops; the last op is a terminator. Made by a `Builder`."""

    __slots__ = ("_ops", "parameters", "parent")

    parent: Body
    parameters: tuple[BlockParameter, ...]
    _ops: list[Op] | tuple[Op, ...]

    def __init__(self, parent: Body, parameter_types: Sequence[Type]) -> None:
        _set_parent(self, parent)
        parameters = [BlockParameter(type_, self, index) for index, type_ in enumerate(parameter_types)]
        _set_parameters(self, tuple(parameters))
        set_ops(self, [])

    @property
    def ops(self) -> tuple[Op, ...]:
        """The ops in order."""
        return self._ops if isinstance(self._ops, tuple) else tuple(self._ops)

    @property
    def terminator(self) -> Op:
        """The last op, which ends the block: a branch, a yield or a return."""
        return self._ops[-1]

    @property
    def index(self) -> int:
        """Position among the blocks of the body; 0 is the entry."""
        return self.parent.blocks.index(self)

    @property
    def successors(self) -> tuple[Block, ...]:
        """The blocks that may run next."""
        return tuple(successor.block for successor in self._ops[-1].successors) if self._ops else ()

    @property
    def predecessors(self) -> tuple[Block, ...]:
        """The blocks that may have run before."""
        return tuple(block for block in self.parent.blocks if self in block.successors)

    def __iter__(self) -> Iterator[Op]:
        return iter(self.ops)

    def __len__(self) -> int:
        return len(self._ops)

    def __bool__(self) -> bool:
        return True

    def __reduce__(self) -> tuple[Any, ...]:
        return _item, (self.parent, "blocks", self.index)

    def __repr__(self) -> str:
        return f"<block of {len(self._ops)} ops>"


_set_parent: Callable[[Block, Body], None] = Block.__dict__["parent"].__set__
_set_parameters: Callable[[Block, tuple[BlockParameter, ...]], None] = Block.__dict__["parameters"].__set__
set_ops: Callable[[Block, list[Op] | tuple[Op, ...]], None] = Block.__dict__["_ops"].__set__


class Body(_Part):
    """Blocks, the first of which is the entry. `yield_type` is the type of the values that the terminators hand to the
    op.

    `ancestor` is the body around the op that this body belongs to, known from the moment building starts.
    """

    __slots__ = ("ancestor", "blocks", "parent", "yield_type")

    yield_type: Type
    ancestor: Body | None
    parent: Op | None
    blocks: tuple[Block, ...]

    def __init__(self, yield_type: Type, ancestor: Body | None) -> None:
        _set_yield_type(self, yield_type)
        _set_ancestor(self, ancestor)
        set_owner(self, None)
        set_blocks(self, ())

    @property
    def entry(self) -> Block:
        return self.blocks[0]

    @property
    def parameters(self) -> tuple[BlockParameter, ...]:
        """The parameters of the entry block."""
        return self.blocks[0].parameters

    @property
    def signature(self) -> FunctionType:
        return FunctionType(self.yield_type, tuple(p.type for p in self.parameters))

    def walk(self) -> Iterator[Op]:
        """All ops inside, outer before inner, in order."""
        for block in self.blocks:
            for op in block.ops:
                yield from op.walk()

    def captured(self) -> tuple[Value, ...]:
        """The values declared outside that ops inside use, in the order of first use."""
        ops = list(self.walk())
        bodies = [self, *(body for op in ops for body in op.bodies)]
        inside: set[Value] = {op.result for op in ops}
        inside.update(parameter for body in bodies for block in body.blocks for parameter in block.parameters)
        return tuple(dict.fromkeys(value for op in ops for value in op.all_operands() if value not in inside))

    def __reduce__(self) -> tuple[Any, ...]:
        if self.parent is None:
            raise TypeError("cannot pickle a body that is part of no op")
        return _item, (self.parent, "bodies", self.parent.bodies.index(self))

    def __repr__(self) -> str:
        if not self.blocks:
            return "<body under construction>"
        return f"<body {self.signature} of {len(self.blocks)} blocks>"


_set_yield_type: Callable[[Body, Type], None] = Body.__dict__["yield_type"].__set__
_set_ancestor: Callable[[Body, Body | None], None] = Body.__dict__["ancestor"].__set__
set_owner: Callable[[Body, Op | None], None] = Body.__dict__["parent"].__set__
set_blocks: Callable[[Body, tuple[Block, ...]], None] = Body.__dict__["blocks"].__set__


class _Signature:
    """The signature of the constructor of a class of ops, for `inspect` and `help`."""

    def __get__(self, op: object, cls: type[Op]) -> inspect.Signature | None:
        return cls.SPEC.signature() if cls.NAME else None


@dataclass_transform(
    eq_default=False,
    frozen_default=True,
    field_specifiers=(
        roles.operand,
        roles.operands,
        roles.attribute,
        roles.successor,
        roles.body,
        roles.bodies,
        roles.result_type,
    ),
)
class Op(_Part):
    """Base of all ops. `class Name(Op, name="dialect.name")` declares one: see `declare.py`,
    docs/guides/adding-a-call.md.

    Declared fields are read by name (`op.mask`). The generic view is `operands`, `successors`, `attributes`,
    `bodies` and `result`.
    """

    NAME: ClassVar[str] = ""
    SPEC: ClassVar[OpSpec]
    FIELDS: ClassVar[tuple[roles.Field, ...]] = ()
    RESULT: ClassVar[Type] = void  # The type of the result of an op that overrides neither it nor `infer_type`.

    operands: tuple[Value, ...]
    successors: tuple[Successor, ...]
    bodies: tuple[Body, ...]
    result: OpResult
    location: Location | None
    parent: Block | None

    def __init_subclass__(cls, name: str = "") -> None:
        from ziggurat.codemodel.declare import declare

        declare(cls, name)

    if not TYPE_CHECKING:  # A type checker makes the constructor of each class from its fields.
        __signature__ = _Signature()

        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            self.SPEC.construct(self, arguments, keywords)

    def infer_type(self) -> Type:
        """The result type that follows from operands and attributes. Raises `BuildError` when they do not fit.

        Ops whose result type is a declared field (`result_type()`) do not have this.
        """
        return self.RESULT

    def derive_type(self) -> Type:
        """The declared result type, adapted to operands whose types a transform has changed."""
        result: Type = self.__dict__[self.SPEC.result_type or "result"]
        return result

    def entry_types(self, operands: Sequence[Value]) -> Sequence[Type] | None:
        """The types that each body's parameters have with these operands; None when they do not depend on them."""
        return None

    def check(self) -> None:
        """Raise `BuildError` when the parts of the op do not fit together."""

    def check_bodies(self) -> None:
        """Raise `BuildError` when the ops in the bodies do not fit the op. Only the verifier asks, of whole models."""

    def evolve(self, **changes: Any) -> Self:
        """A new op with the fields of this one but for `changes`, by name. It has no place."""
        fields = self.__dict__
        return type(self)(**{field.name: fields[field.name] for field in self.FIELDS} | changes)

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The attributes by name, in the order of their declaration."""
        fields = self.__dict__
        return {field.name: fields[field.name] for field in self.SPEC.attributes}

    def all_operands(self) -> tuple[Value, ...]:
        """The operands, then the arguments of the successors."""
        if not self.successors:
            return self.operands
        return (*self.operands, *(value for successor in self.successors for value in successor.arguments))

    def walk(self) -> Iterator[Op]:
        """This op and all ops inside it, outer before inner, in order. A root remembers them: every pass asks."""
        if self.parent is not None:
            return self._walk()
        ops: tuple[Op, ...] | None = self.__dict__.get("_ops")
        if ops is None:
            ops = self.__dict__["_ops"] = tuple(self._walk())
        return iter(ops)

    def later(self) -> list[Op]:
        """The ops after this one in its block."""
        assert self.parent is not None
        ops = list(self.parent.ops)
        return ops[ops.index(self) + 1 :]

    def holds(self, kinds: type[Any] | UnionType | tuple[type[Any], ...]) -> bool:
        """Whether this op, or one inside it, is of one of these classes."""
        return any(isinstance(op, kinds) for op in self.walk())

    @property
    def jumps(self) -> bool:
        """Whether control goes from block to block in one of the op's bodies."""
        return any(len(body.blocks) > 1 for body in self.bodies)

    def _walk(self) -> Iterator[Op]:
        # No recursion: an op at depth n would pass through n generators.
        yield self
        around = [self.inner_ops()] if self.bodies else []
        while around:
            for op in around[-1]:
                yield op
                if op.bodies:
                    around.append(op.inner_ops())
                    break
            else:
                around.pop()

    def inner_ops(self) -> Iterator[Op]:
        """The ops of the blocks of the bodies, in order, without those inside these."""
        return (op for body in self.bodies for block in body.blocks for op in block.ops)

    def path(self) -> Iterator[Op]:
        """This op and the ops around it, inner before outer."""
        here: Op | None = self
        while here is not None:
            yield here
            here = here.parent_op

    def root(self) -> Op:
        """The outermost op of the model this op stands in."""
        op = self
        while (parent := op.parent_op) is not None:
            op = parent
        return op

    @property
    def parent_op(self) -> Op | None:
        """The op in whose body this op stands."""
        return self.parent.parent.parent if self.parent is not None else None

    def use_map(self) -> Mapping[Value, tuple[Op, ...]]:
        """Every value used inside this op with its users. Computed once for a root."""
        cached: Mapping[Value, tuple[Op, ...]] | None = self.__dict__.get("_use_map")
        if cached is not None:
            return cached
        lists: dict[Value, list[Op]] = {}
        for op in self.walk():
            operands = op.all_operands()
            for value in operands if len(operands) < 2 else dict.fromkeys(operands):
                lists.setdefault(value, []).append(op)
        uses = MappingProxyType({value: tuple(users) for value, users in lists.items()})
        if self.parent is None:
            self.__dict__["_use_map"] = uses
        return uses

    def captured_values(self) -> tuple[Value, ...]:
        """The values declared outside this op that ops in its bodies use."""
        return tuple(dict.fromkeys(value for body in self.bodies for value in body.captured()))

    def used_values(self) -> tuple[Value, ...]:
        """The values declared outside this op that it uses, or that ops in its bodies use."""
        return (*self.all_operands(), *self.captured_values()) if self.bodies else self.all_operands()

    @functools.cached_property
    def structure(self) -> tuple[Any, ...]:
        """A hashable key, equal for equal models: the text, and the values and blocks from outside that it names."""
        from ziggurat.codemodel.text.writer import structure

        return structure(self)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.parent is not None:
            return _nth_op, (self.root(), next(n for n, op in enumerate(self.root().walk()) if op is self))
        if self.operands or self.successors:
            raise TypeError(f"cannot pickle {self!r}: it is part of no model")
        from ziggurat.codemodel.type_reader import modules_of

        text = str(self)
        modules = modules_of(text) | {type(op).__module__ for op in self.walk() if is_foreign(type(op))}
        return _read, (text, [op.location for op in self.walk()], sorted(modules))

    def to_dot(self, kind: str = "values") -> str:
        """A picture of the model rooted here as text for Graphviz (`dot -Tsvg model.dot`).

        `kind` is "values", its ops with the values between them; "blocks", the control flow between the blocks of each
        body; or "dominators", the tree of the blocks that dominate others.
        """
        from ziggurat.codemodel.text.dot import to_dot

        return to_dot(self, kind)

    def __str__(self) -> str:
        from ziggurat.codemodel.text.writer import to_text

        return to_text(self)

    def __repr__(self) -> str:
        from ziggurat.codemodel.text.writer import summary

        return f"<{summary(self)}>"

    def _repr_html_(self) -> str:
        from ziggurat.codemodel.text.html import to_html

        return to_html(self)


# Pickling: a model as its text and the locations of its ops, a part as its place in the model.


def is_foreign(cls: type) -> bool:
    """Whether a class is declared outside of the package."""
    return not cls.__module__.startswith("ziggurat.")


def _read(text: str, locations: Sequence[Location | None], modules: Sequence[str] = ()) -> Op:
    """The model of a text, after importing the modules that declare its ops and types."""
    from ziggurat.codemodel.text.parser import parse

    for module in modules:
        importlib.import_module(module)
    model = parse(text)
    for op, location in zip(model.walk(), locations, strict=True):
        op.__dict__["location"] = location
    return model


def _nth_op(root: Op, number: int) -> Op:
    return next(itertools.islice(root.walk(), number, None))


def _item(owner: object, field: str, index: int) -> Any:
    return getattr(owner, field)[index]


def same_model(a: Op, b: Op) -> bool:
    """Whether two models have the same ops in the same order, with the same attributes, types and flow of values.

    Locations do not count. The values and blocks from outside that the two name must be the same objects.
    """
    require_model(a, "same_model")
    require_model(b, "same_model")
    return a is b or a.structure == b.structure


def constant_of(value: Value) -> Any:
    """The number of a constant (of a tensor: of each element); None for any other value."""
    return value.op.attributes["value"] if isinstance(value.op, Constant) else None


def require(condition: bool, message: str, hint: str | None = None) -> None:
    """Raise `BuildError` with the message unless the condition holds. For type rules."""
    if not condition:
        raise BuildError(message, hint=hint)


def expect(thing: object, cls: type[T_], message: str | None = None) -> T_:
    """The thing, as an instance of the class. Raises `BuildError` with the message for anything else; without a message
    that is a fault of the compiler."""
    if not isinstance(thing, cls):
        assert message is not None, f"expected {cls.__name__}; got {thing!r}"
        raise BuildError(message)
    return thing


def require_argument(thing: Any, fits: type | tuple[type, ...] | bool, what: str, hint: str | None = None) -> None:
    """Raise `KernelTypeError` (a `TypeError`) for an argument of a call that is not what it must be.

    `fits` has the classes of a fitting argument, or says whether this one fits. `what` says what it must be.
    """
    if not (fits if isinstance(fits, bool) else isinstance(thing, fits)):
        raise KernelTypeError(f"{what}; got {shown(thing)}", hint=hint)


def require_model(thing: object, call: str) -> None:
    """Raise `KernelTypeError` (a `TypeError`) when `thing`, the argument of `call`, is not a model."""
    hint = "its models are kernel.model and kernel.triton(types…)" if hasattr(thing, "triton") else None
    if isinstance(thing, str):
        raise KernelTypeError(f"{call}: the model must be an Op; got a string", hint="parse its text: zg.parse(text)")
    require_argument(thing, Op, f"{call}: the model must be an Op", hint)
