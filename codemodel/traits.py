"""Traits: properties of ops, each stated in a sentence. An op class has a trait by inheriting from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ziggurat.codemodel.op import Body, Op, OpResult, Value


class Pure:
    """The op has no effect but its result: it may be removed when unused, repeated, and shared with an equal one.

    Ops of the Python code model are pure on the values of kernels; on objects they may run methods (`runs_methods`).
    """


class MayTrap:
    """The op is pure, but undefined for some divisors, its second operand: it must not be run where it was not."""


class Commutative:
    """The first two operands may be exchanged."""


class MemoryRead:
    """The op reads global memory, so it must stay after earlier writes and before later ones."""


class MemoryWrite:
    """The op writes global memory, so its place among other accesses matters and it is never removed."""


class Terminator:
    """The op ends its block, and only ends blocks."""


class BodyTerminator(Terminator):
    """The op leaves its body, handing its operands to the op that owns the body."""

    operands: tuple[Value, ...]
    result: OpResult

    @property
    def handed(self) -> tuple[Value, ...]:
        """The values that the owner of the body gets."""
        return self.operands


class BlockTerminator(Terminator):
    """The op passes control to one of its successors."""


class Returns(BodyTerminator):
    """The op leaves the function it stands in, from any depth, handing the operands to the caller."""


class MayReturn:
    """A `return` in a body of the op leaves the function."""


class Raises(BodyTerminator):
    """The op leaves its body, whatever op owns it, by an exception."""


class Routine:
    """The op makes a function of its body: a `return` in it leaves that function."""


class LeavesIteration(BodyTerminator):
    """The op ends the present iteration of the innermost loop of the Python model around it, from any depth."""


class Isolated:
    """The bodies of the op use no values declared outside of it."""


class Symbol:
    """The op declares a name, in its attribute `sym_name`, that ops of the same module refer to."""


class SymbolUser:
    """The op names a function of the same module, in its attribute `callee`."""


class PythonTier:
    """The op belongs to the Python code model: it stands in a `func`, not in a `tt.func`."""


class SymbolTable:
    """The block of the op's body holds ops that declare symbols."""

    bodies: tuple[Body, ...]

    def functions(self) -> dict[str, Op]:
        """The ops of the module that declare a symbol, by name, in order."""
        return {op.attributes["sym_name"]: op for op in self.bodies[0].entry.ops if isinstance(op, Symbol)}


class Loop:
    """The op runs a body repeatedly."""


class Constant:
    """The op's result is its attribute `value`, known at compile time."""
