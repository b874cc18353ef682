"""The names of Triton's language as spellings of the calls: `tl.sum(input, axis, keep_dims)` is `zg.sum(x, axis, …)`.

A spelling has the parameters of its call, under Triton's names; or a stub declares Triton's parameters, with the
annotations of `ziggurat.frontends.language`; or a function in Triton's Python is its meaning. The Python code model
holds the name as the kernel writes it, `tl.sum`; attribution binds the arguments to Triton's parameters, and gives them
to the call or the function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from ziggurat.codemodel import records
from ziggurat.codemodel.errors import KernelTypeError
from ziggurat.frontends.language.function import Function
from ziggurat.frontends.language.signature import CALLS, SIGNATURES, Parameter, Signature, signature_of

# The arguments of the call by its parameters, from those of the spelling by Triton's: a value or a constant each, and a
# tuple for a `*` parameter.
Adapt = Callable[[Mapping[str, Any]], Mapping[str, Any]]
# The names that state a fact about their first argument, which Triton's programs write as statements.
HINTS: Final = ("max_constancy", "max_contiguous", "multiple_of")


@records.distinct
class Spelling:
    """A name of Triton's language: its signature there, and the call that it is, or the function `body`.

    `adapt` gives the arguments of the call from those of the spelling. `method` is true of a name that is also a method
    of tensors, with the first parameter as the receiver. `per_warp` is not 0 for a constant of the launch, which is the
    number of warps of a program times this.
    """

    signature: Signature
    call: str
    adapt: Adapt
    method: bool = False
    body: Function | None = None
    per_warp: int = 0

    @property
    def name(self) -> str:
        return self.signature.name

    @property
    def __name__(self) -> str:
        return self.signature.name

    @property
    def __signature__(self) -> inspect.Signature:
        """Triton's parameters, for `inspect.signature`: libraries ask which arguments a release has."""
        plain = (inspect.Parameter(one.name, one.kind, default=one.default) for one in self.signature.parameters)
        return inspect.Signature([*plain])

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if self.call and CALLS[self.call].host is not None:
            bound = self.signature.bind(arguments, keywords)
            return CALLS[self.call](**self.adapt(bound))
        raise KernelTypeError(
            f"tl.{self.name} was called outside of a kernel", hint="did you forget to add @triton.jit to the function?"
        )

    def __repr__(self) -> str:
        return f"<tl.{self.signature}>"


SPELLED: Final[dict[str, Spelling]] = {}
METHODS: Final[dict[str, Spelling]] = {}


def declared(made: Spelling) -> Spelling:
    """Add a spelling to the tables."""
    SPELLED[made.name] = made
    if made.method:
        METHODS[made.name] = made
    return made


def _adapted(call: str, renamed: Mapping[str, str]) -> Adapt:
    """Gives the parameters of a call the arguments of Triton's that they have by name, or by `renamed`."""

    def by_name(bound: Mapping[str, Any]) -> Mapping[str, Any]:
        known = SIGNATURES[call].by_name
        given = {renamed.get(name, name): value for name, value in bound.items()}
        # Triton takes None for parameters that have a default in the call.
        return {
            name: value
            for name, value in given.items()
            if name in known and (value is not None or known[name].optional)
        }

    return by_name


def same(
    call: str, renamed: Mapping[str, str] = {}, *, name: str = "", method: bool = False, adapt: Adapt | None = None
) -> Spelling:
    """Declare a spelling, by default of the same name, of the call `zg.<call>`, with the parameters of the call.

    `renamed` gives the parameters of the call by Triton's where the names differ. `adapt` is that of `spells`.
    """
    ours = SIGNATURES[call]

    def parameters() -> Mapping[str, Parameter]:
        theirs = {own: triton for triton, own in renamed.items()}
        renaming = ((theirs.get(one.name, one.name), one) for one in ours.parameters)
        return {new: records.evolve(one, name=new) for new, one in renaming}

    signature = Signature(name or call, "Triton", parameters, "", ours.results, "tl")
    return declared(Spelling(signature, call, adapt or _adapted(call, renamed), method))


def spells(
    call: str, renamed: Mapping[str, str] = {}, *, method: bool = False, adapt: Adapt | None = None
) -> Callable[[Callable[..., Any]], Spelling]:
    """Decorator of a stub: declare its name as a spelling of the call `zg.<call>`, which has other parameters.

    `renamed` gives the parameters of the call by Triton's where the names differ. Parameters of Triton's that the call
    does not have say nothing to it. `adapt` gives the arguments of the call in place of that.
    """

    def declare(stub: Callable[..., Any]) -> Spelling:
        signature = signature_of(stub, "Triton", SIGNATURES[call].results, "tl")
        return declared(Spelling(signature, call, adapt or _adapted(call, renamed), method))

    return declare
