"""The verifier: it checks the invariants of well-formed models.

The invariants:

1.  Parents and parts agree: a block knows its body, a body its op and the body around it, an op its block, a value
    its op or block; every op has one place.
2.  A block ends in a terminator and has no other; every block of a body can be reached from its entry.
3.  An operand is declared in the model, is not of type `void`, and dominates its user: it comes earlier in the
    block, in a dominating block, or in a body around.
4.  An isolated op uses nothing that is declared outside of it.
5.  A successor is a block of the same body, not the entry, and gets one argument of the right type for each parameter.
6.  An op has the operands, successors, bodies and attributes that its declaration asks for.
7.  The type of an op's result is the one that its type rule infers (or the declared field), and its `check()` and
    `check_bodies()` pass.
8.  A body ends in the terminator that its op declares (`body(ends=…)`), with values of the body's yield type. A
    `return` leaves its own kind of function, with the values of that function's yield type, and only through ifs,
    loops and their like. A `raise` ends any body.
9.  A tensor has at most 2^20 elements. Ops of the Python code model (`PythonTier`) stand in no `tt.func`.
10. A symbol is a printable name, unique in its module. A call names a function of the module, of its own kind, and
    has the arguments and the result of that function; where one of two types is `object` or `constexpr`, any other
    fits it. No call of a `tt.func` leads back to the function that it stands in.

`violations` gives them as data; `verify` raises them with the model printed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from ziggurat.codemodel import traits
from ziggurat.codemodel.declare import convert_attribute
from ziggurat.codemodel.dialects import core, scf, tt
from ziggurat.codemodel.dominance import Dominance
from ziggurat.codemodel.errors import BuildError, VerifyError, pass_on_signals
from ziggurat.codemodel.graphs import by_key, reached
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Block, Body, Op, Value, require, require_model
from ziggurat.codemodel.structured import Structured
from ziggurat.codemodel.types import Type, admits, constexpr_type, pyobject, size_error, void

# The index of the suite among the bodies of a `for` or a `while`. The body after it, of `else`, is not in the loop.
_SUITE = 1


@attrs.frozen(eq=False)
class Violation:
    """One broken invariant, of one op."""

    op: Op
    message: str

    @property
    def location(self) -> Location | None:
        """The place in the source that the op came from."""
        return self.op.location

    def __str__(self) -> str:
        place = f" ({self.location})" if self.location is not None else ""
        return f"{self.op.NAME}: {self.message.removeprefix(f'{self.op.NAME}: ')}{place}"


def verify(op: Op) -> None:
    """Raise `VerifyError` with all violations, and the model with each marked under its op, unless the model is
    well-formed.

    `op` is the root of a model, or an isolated op in one.
    """
    problems = violations(op)
    if not problems:
        return
    from ziggurat.codemodel.text.writer import to_text

    remarks = by_key((id(violation.op), f"^ {violation.message}") for violation in problems)
    lines = [f"the model breaks {len(problems)} invariant{'s' if len(problems) > 1 else ''}:"]
    lines += [f"  {violation}" for violation in problems]
    lines += ["", to_text(op, remark=lambda inner: remarks.get(id(inner), ()))]
    raise VerifyError("\n".join(lines), problems)


def violations(op: Op) -> list[Violation]:
    """All broken invariants of the model rooted at `op`, in the order of the model."""
    require_model(op, "verify")
    return _Verifier(op).run()


class _Verifier:
    def __init__(self, root: Op) -> None:
        self.root = root
        self.found: list[Violation] = []
        self.dominance = Dominance()
        self.declared: set[Value] = set()
        self.computed: set[Value] = set()  # The results of the ops before the one that is looked at.
        self.misplaced: set[int] = set()
        self.function: Op | None = None  # The function that is being walked; functions do not nest.

    def run(self) -> list[Violation]:
        self._ownership(self.root)
        for op in self.root.walk():
            self._counts(op)
            self._types(op)
            if id(op) not in self.misplaced:
                self._operands(op)
                self._successors(op)
            for index, body in enumerate(op.bodies):
                self._blocks(op, body)
                self._ends(op, body, index)
            if isinstance(op, core.Module):
                self._symbols(op)
            self.computed.add(op.result)
        if not self.found:
            return []
        order = {id(op): index for index, op in enumerate(self.root.walk())}
        return sorted(self.found, key=lambda violation: order[id(violation.op)])

    def report(self, op: Op, message: str) -> None:
        self.found.append(Violation(op, message))

    # 1: parents and parts.

    def _ownership(self, root: Op) -> None:
        visited: set[int] = set()
        for op in root.walk():
            if id(op) in visited:
                self.report(op, "the op has several places in the model")
            visited.add(id(op))
            if op.result.op is not op:
                self.report(op, "its result belongs to another op")
                self.misplaced.add(id(op))
            for body in op.bodies:
                self._ownership_of(op, body)

    def _ownership_of(self, op: Op, body: Body) -> None:
        if body.parent is not op:
            self.report(op, "one of its bodies belongs to another op")
        around = op.parent.parent if op.parent is not None else None
        if op is not self.root and body.ancestor is not None and body.ancestor is not around:
            self.report(op, "one of its bodies was built at another place")
        if not body.blocks:
            self.report(op, "one of its bodies has no blocks")
        for block in body.blocks:
            if block.parent is not body:
                self.report(op, "a block of its body belongs to another body")
            self.declared.update(block.parameters)
            if any(p.block is not block or p.index != index for index, p in enumerate(block.parameters)):
                self.report(op, "a parameter of its body belongs to another block")
            for inner in block.ops:
                if inner.parent is not block:
                    self.report(op, f"{inner.NAME} in its body has another block as its parent")
                    self.misplaced.add(id(inner))
                elif inner.result.op is inner:
                    self.declared.add(inner.result)

    # 2: blocks.

    def _blocks(self, op: Op, body: Body) -> None:
        tree = self.dominance.tree(body) if len(body.blocks) > 1 else None
        for index, block in enumerate(body.blocks):
            if not block.ops or not isinstance(block.ops[-1], traits.Terminator):
                self.report(block.ops[-1] if block.ops else op, f"block {index} does not end in a terminator")
            for inner in block.ops[:-1]:
                if isinstance(inner, traits.Terminator):
                    self.report(inner, "a terminator stands in the middle of a block")
            if tree is not None and not tree.reachable(block):
                self.report(block.ops[0] if block.ops else op, f"block {index} cannot be reached from the entry")

    # 3 and 4: operands.

    def _operands(self, op: Op) -> None:
        for index, value in enumerate(op.all_operands()):
            if value.type is void:
                self.report(op, f"operand {index} has no value: it is of type void")
            message = self._visibility(op, value)
            if message is not None:
                self.report(op, f"operand {index} {message}")

    def _visibility(self, op: Op, value: Value) -> str | None:
        """The reason why `op` cannot use `value`, or None."""
        if value not in self.declared:
            inside = self.root.parent is None
            return "is not declared in the model" if inside else f"is declared outside of the isolated {self.root.NAME}"
        home = value.block
        if home is op.parent and (value.op is None or value in self.computed):
            return None
        for here in op.path():
            if isinstance(here, traits.Isolated) and here is not op and not _within(home, here):
                return f"is declared outside of the isolated {here.NAME}"
            if home is not None and here.parent is not None and here.parent.parent is home.parent:
                # An unreachable block is reported as such; dominance is undefined in it.
                reachable = len(home.parent.blocks) == 1 or self.dominance.tree(home.parent).reachable(here.parent)
                return "does not dominate its use" if reachable and not self.dominance.dominates(value, op) else None
        return "does not dominate its use"

    # 5: successors.

    def _successors(self, op: Op) -> None:
        if op.successors and not isinstance(op, traits.BlockTerminator):
            self.report(op, "only a terminator has successors")
        for successor in op.successors:
            target = successor.block
            body = op.parent.parent if op.parent is not None else None
            if body is None or target not in body.blocks:
                self.report(op, "a successor is not a block of the same body")
                continue
            if target is body.entry:
                self.report(op, "the entry block is a successor")
            types = [value.type for value in successor.arguments]
            expected = [parameter.type for parameter in target.parameters]
            if types != expected:
                self.report(op, f"block {target.index} takes {_listed(expected)}; it is given {_listed(types)}")

    # 6 and 7: the declaration of the op.

    def _counts(self, op: Op) -> None:
        spec = op.SPEC
        for message in spec.count_errors(len(op.operands), len(op.successors), len(op.bodies)):
            self.report(op, message)
        for field in spec.attributes:
            try:
                convert_attribute(op.__dict__[field.name], field.kind, f"attribute '{field.name}'")
            except BuildError as error:
                self.report(op, error.summary)

    def _types(self, op: Op) -> None:
        messages: dict[str, None] = {}
        for rule in _TYPE_RULES:
            try:
                rule(op)
            except Exception as error:  # A rule may rely on what a broken model lacks.
                pass_on_signals(error)
                messages[_reason(error)] = None
        for type_ in (
            op.result.type,
            *(p.type for body in op.bodies for block in body.blocks for p in block.parameters),
        ):
            if (error := size_error(type_)) is not None:
                messages[error] = None
        if isinstance(op, traits.PythonTier) and isinstance(self.function, tt.Func):
            messages[f"{op.NAME} belongs to the Python code model; it cannot stand in a tt.func"] = None
        if isinstance(op, traits.Symbol):
            self.function = op
            name = op.attributes["sym_name"]
            if not name.strip() or not name.isprintable():
                messages[f"a symbol must be a printable name; got {name!r}"] = None
        for message in messages:
            self.report(op, message)

    # 8: leaving bodies.

    def _ends(self, op: Op, body: Body, index: int) -> None:
        end = op.SPEC.ends(index)
        for block in body.blocks:
            last = block.ops[-1] if block.ops else None
            if not isinstance(last, traits.BodyTerminator) or isinstance(last, core.Unreachable | traits.Raises):
                continue
            if isinstance(last, traits.Returns) and (
                end is None or isinstance(last, end) or isinstance(op, traits.MayReturn)
            ):
                self._returns(last)
            elif isinstance(last, traits.LeavesIteration):
                self._leaves_iteration(last)
            elif end is not None and not isinstance(last, end):
                self.report(last, f"{last.NAME} cannot end a body of {op.NAME}; that ends in {end.NAME}")
            else:
                self._handed(last, last.handed, body.yield_type, f"the body of {op.NAME}")

    def _returns(self, last: Op) -> None:
        _, *around = last.path()
        for here in around:
            end = here.SPEC.ends(0)
            if isinstance(here, traits.Symbol | traits.Routine):
                if end is not None and not isinstance(last, end):
                    self.report(last, f"{last.NAME} cannot leave a {here.NAME}; that ends in {end.NAME}")
                else:
                    self._handed(last, last.operands, here.bodies[0].yield_type, here.NAME)
                return
            if end is not None and not isinstance(here, traits.MayReturn):
                self.report(last, f"{last.NAME} cannot leave a function through {here.NAME}")
                return
        self.report(last, f"{last.NAME} stands in no function")

    def _leaves_iteration(self, last: Op) -> None:
        inner, here = last, last.parent_op
        while isinstance(here, traits.MayReturn) and not isinstance(here, Structured):
            if isinstance(here, traits.Loop):
                place = here.bodies.index(inner.parent.parent) if inner.parent is not None else 0
                if place == _SUITE:
                    return
                if place < _SUITE:
                    break
            inner, here = here, here.parent_op
        self.report(last, f"{last.NAME} stands in no suite of a 'for' or a 'while'")

    def _handed(self, last: Op, values: Sequence[Value], expected: Type, what: str) -> None:
        type_ = scf.packed([value.type for value in values])
        # In the Python model any value may be an object, and a missing value means None.
        if type_ != expected and not (expected == pyobject and len(values) <= 1):
            self.report(last, f"{what} yields {expected}; {last.NAME} gives {type_}")

    # 9: symbols.

    def _symbols(self, module: core.Module) -> None:
        functions: dict[str, Op] = {}
        for block in module.body.blocks:
            for op in block.ops:
                if isinstance(op, traits.Symbol):
                    name = op.attributes["sym_name"]
                    if name in functions:
                        self.report(op, f"the symbol '{name}' is declared twice")
                    functions.setdefault(name, op)
        for op in module.body.walk():
            if isinstance(op, traits.SymbolUser):
                self._callee(op, functions.get(op.attributes["callee"]))
        calls = [(name, op) for name, inner in functions.items() for op in inner.walk() if isinstance(op, tt.Call)]
        after = by_key((name, op.callee) for name, op in calls)
        for name, op in calls:
            if name in reached([op.callee], lambda callee: after.get(callee, ())):
                self.report(op, f"recursion: '{name}' calls '{op.callee}', which leads back to it")

    def _callee(self, op: Op, callee: Op | None) -> None:
        if callee is None:
            self.report(op, f"the module has no function '{op.attributes['callee']}'")
        if callee is None or not isinstance(op, core.FuncCall | tt.Call):
            return
        kind = core.Func if isinstance(op, core.FuncCall) else tt.Func
        if not isinstance(callee, kind):
            self.report(op, f"{op.NAME} calls a {kind.NAME}; '{op.callee}' is a {callee.NAME}")
            return
        body = callee.bodies[0]
        types = [value.type for value in op.arguments]
        expected = [parameter.type for parameter in body.parameters] if body.blocks else []
        if len(types) != len(expected) or not all(map(_same, types, expected)):
            self.report(op, f"'{op.callee}' takes {_listed(expected)}; it is given {_listed(types)}")
        if not _same(op.result.type, body.yield_type):
            self.report(op, f"'{op.callee}' gives {body.yield_type}, not {op.result.type}")


def _check_result(op: Op) -> None:
    field = op.SPEC.result_type
    type_: Type = op.infer_type() if field is None else op.__dict__[field]
    require(admits(type_, op.result.type), f"the result is of type {op.result.type}; it should be {type_}")


_TYPE_RULES: tuple[Callable[[Op], None], ...] = (
    _check_result,
    lambda op: op.SPEC.check(op),
    lambda op: op.check_bodies(),
)


def _within(block: Block | None, op: Op) -> bool:
    """True when the block is in a body of the op, at any depth."""
    owner = block.parent.parent if block is not None else None
    return owner is not None and any(around is op for around in owner.path())


def _same(a: Type, b: Type) -> bool:
    loose = (pyobject, constexpr_type)
    return a == b or a in loose or b in loose


def _listed(types: Sequence[Type]) -> str:
    return f"({', '.join(map(str, types))})"


def _reason(error: Exception) -> str:
    """The message of a type rule. On an op that is broken in other ways, a rule may raise another error."""
    if isinstance(error, BuildError):
        return error.summary
    return f"its type rule fails with {type(error).__name__}: {error}"
