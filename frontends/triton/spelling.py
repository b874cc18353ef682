"""The names of Triton's language as spellings of the calls: `tl.sum(input, axis, keep_dims)` is `zg.sum(x, axis, …)`.

A spelling has the parameters of its call, under Triton's names; or a stub declares Triton's parameters, with the
annotations of `ziggurat.frontends.language`; or a function in Triton's Python is its meaning. The Python code model
holds the name as the kernel writes it, `tl.sum`; attribution binds the arguments to Triton's parameters, and gives them
to the call or the function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from ziggurat.frontends.language.languages import EXPLICIT, Adapt, Spelling
from ziggurat.frontends.language.signature import SIGNATURES, Parameter, Signature, signature_of

SPELLED: Final[dict[str, Spelling]] = {}
METHODS: Final[dict[str, Spelling]] = {}


def declare_spelling(spelling: Spelling, method: bool = False) -> Spelling:
    """Add a spelling to the tables: to that of methods as well, if its call is a method."""
    SPELLED[spelling.name] = spelling
    if method or spelling.call in EXPLICIT.methods:
        METHODS[spelling.name] = spelling
    return spelling


def _adapted(call: str, renamed: Mapping[str, str]) -> Adapt:
    """Gives the parameters of a call the arguments of Triton's that they have by name, or by `renamed`."""

    def by_name(bound: Mapping[str, Any]) -> Mapping[str, Any]:
        parameters = SIGNATURES[call].by_name
        arguments = {renamed.get(name, name): value for name, value in bound.items()}
        # Triton takes None for parameters that have a default in the call.
        return {
            name: value
            for name, value in arguments.items()
            if name in parameters and (value is not None or parameters[name].optional)
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
        renaming = ((theirs.get(parameter.name, parameter.name), parameter) for parameter in ours.parameters)
        return {new: attrs.evolve(parameter, name=new) for new, parameter in renaming}

    signature = Signature(name or call, "Triton", parameters, "", ours.results, "tl")
    return declare_spelling(Spelling(signature, call, adapt or _adapted(call, renamed)), method)


def spells(
    call: str, renamed: Mapping[str, str] = {}, *, name: str = "", adapt: Adapt | None = None
) -> Callable[[Callable[..., Any]], Spelling]:
    """Decorator of a stub: declare `name`, or its own, as a spelling of the call `zg.<call>`, which has other
    parameters.

    `renamed` gives the parameters of the call by Triton's where the names differ. Parameters of Triton's that the call
    does not have are ignored. `adapt`, if it is given, computes the arguments of the call.
    """

    def declare(stub: Callable[..., Any]) -> Spelling:
        signature = signature_of(stub, "Triton", SIGNATURES[call].results, "tl")
        signature = attrs.evolve(signature, name=name or stub.__name__)
        return declare_spelling(Spelling(signature, call, adapt or _adapted(call, renamed)))

    return declare
