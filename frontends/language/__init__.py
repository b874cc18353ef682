"""The language: every call once, in one table, and the functions written in it.

The names of the calls are the user's: `zg.load` is `load` here. Several of them hide builtins.
"""

# Each module lists in __all__ what users get; the tables below are for the package itself.
# ruff: noqa: F403

from __future__ import annotations

from ziggurat.frontends.language import (
    arithmetic,
    assembly,
    atomics,
    comparison,
    control,
    conversion,
    creation,
    debug,
    descriptors,
    hints,
    linear_algebra,
    math,
    memory,
    ordering,
    programs,
    random,
    reductions,
    shape,
)
from ziggurat.frontends.language.arithmetic import *
from ziggurat.frontends.language.assembly import *
from ziggurat.frontends.language.atomics import *
from ziggurat.frontends.language.comparison import *
from ziggurat.frontends.language.control import *
from ziggurat.frontends.language.conversion import *
from ziggurat.frontends.language.creation import *
from ziggurat.frontends.language.debug import *
from ziggurat.frontends.language.descriptors import *
from ziggurat.frontends.language.descriptors import METHODS as METHODS
from ziggurat.frontends.language.function import Function, constexpr
from ziggurat.frontends.language.hints import *
from ziggurat.frontends.language.linear_algebra import *
from ziggurat.frontends.language.math import *
from ziggurat.frontends.language.memory import *
from ziggurat.frontends.language.ordering import *
from ziggurat.frontends.language.programs import *
from ziggurat.frontends.language.random import *
from ziggurat.frontends.language.reductions import *
from ziggurat.frontends.language.shape import *
from ziggurat.frontends.language.signature import CALLS as CALLS
from ziggurat.frontends.language.signature import SIGNATURES as SIGNATURES
from ziggurat.frontends.language.signature import Call as Call
from ziggurat.frontends.language.signature import Parameter as Parameter
from ziggurat.frontends.language.signature import Recorder as Recorder
from ziggurat.frontends.language.signature import Signature as Signature
from ziggurat.frontends.language.signature import active_recorder as active_recorder

__all__: list[str] = ["Function", "constexpr"]
__all__ += arithmetic.__all__
__all__ += assembly.__all__
__all__ += atomics.__all__
__all__ += comparison.__all__
__all__ += control.__all__
__all__ += conversion.__all__
__all__ += creation.__all__
__all__ += debug.__all__
__all__ += descriptors.__all__
__all__ += hints.__all__
__all__ += linear_algebra.__all__
__all__ += math.__all__
__all__ += memory.__all__
__all__ += ordering.__all__
__all__ += programs.__all__
__all__ += random.__all__
__all__ += reductions.__all__
__all__ += shape.__all__
