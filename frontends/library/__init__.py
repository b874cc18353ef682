"""Calls that are themselves written in the language. `LIBRARY` has them by the call's name, with the call's parameters.

A kernel that makes such a call calls the function; it is compiled for the types of the arguments, as any `@zg.function`
is. `COMBINE` has the functions by which reductions and scans combine two elements.
"""

from __future__ import annotations

from typing import Final

from ziggurat.frontends.language import CALLS, Function
from ziggurat.frontends.library import elementary, microscaling, powers, random, sorting
from ziggurat.frontends.library.combine import COMBINE

# A function that has the name of a call is the meaning of that call.
LIBRARY: Final[dict[str, Function]] = {
    member.name: member
    for module in (elementary, microscaling, powers, random, sorting)
    for member in vars(module).values()
    if isinstance(member, Function) and member.name in CALLS
}

__all__ = ["COMBINE", "LIBRARY"]
