"""The functions of the language's library as Triton models, for models that were not made by a kernel's source."""

from __future__ import annotations

from collections.abc import Sequence

from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.op import expect
from ziggurat.codemodel.types import Type
from ziggurat.frontends.language import Function
from ziggurat.frontends.library import LIBRARY
from ziggurat.transforms.attribution.attribute import Attributor
from ziggurat.transforms.calls.constant_arguments import FunctionName
from ziggurat.transforms.mirror.mirror import mirror
from ziggurat.transforms.simplify.dce import remove_unused


def library_model(name: str, types: Sequence[Type]) -> core.Module | None:
    """The model of a call of the library, or of a function of libdevice, for arguments of these types; None if there is
    no such call.

    Its last function is the call; those before it are what it calls.
    """
    from ziggurat.frontends.library.libdevice import FUNCTIONS

    function = LIBRARY.get(name) or FUNCTIONS.get(name)
    return None if function is None else function_model(function, types)


def function_model(function: Function, types: Sequence[Type]) -> core.Module:
    """The model of a function of the language for arguments of these types, which may be constants. Its last function
    is this one; those before it are what it calls."""
    instance = Attributor().function(FunctionName(function.name, function.model, function), tuple(types), None)
    if instance.errors:
        raise instance.errors[0]
    return expect(remove_unused(mirror(instance)), core.Module)
