"""Checking and printing, while the kernel is compiled (`static_…`) and while it runs (`device_…`)."""

from __future__ import annotations

from ziggurat.frontends.language import host
from ziggurat.frontends.language.kinds import ConstAny, ConstBool, ConstStr, Value
from ziggurat.frontends.language.signature import call

__all__ = ["debug_barrier", "device_assert", "device_print", "static_assert", "static_print"]


@call("Debugging", host=host.static_assert)
def static_assert(cond: ConstAny, msg: ConstStr = "") -> None:
    """Stop compiling, with a message, unless the condition holds.

    - `cond`: known at compile time.
    - `msg`: the message.

    Result: none.
    Errors: a condition that is false, or not known.
    """


@call("Debugging", host=host.static_print)
def static_print(*values: Value) -> None:
    """Print while the kernel is compiled.

    - `values`: constants; of other values, the type is printed.

    Result: none.
    """


@call("Debugging", host=host.device_print)
def device_print(prefix: ConstStr, *args: Value, hex: ConstBool = False) -> None:
    """Print while the kernel runs, each element with its program.

    - `prefix`: goes before each line.
    - `args`: scalars or tensors.
    - `hex`: print the bits.

    Result: none.
    """


@call("Debugging", host=host.device_assert)
def device_assert(cond: Value, msg: ConstStr = "") -> None:
    """Stop the program, with a message, where the condition is false; `assert cond, msg` is the same.

    - `cond`: i1, a scalar or a tensor.
    - `msg`: the message.

    Result: none.
    """


@call("Debugging", host=host.debug_barrier)
def debug_barrier() -> None:
    """All threads of the program wait for each other here.

    The compiler inserts barriers where they are needed, except between accesses of global memory: a program is sure to
    read its own stores only after this call, and must call it before it stores over an element that another position of
    a tensor has loaded, as in `first = zg.load(x); zg.store(zg.add(x, at), first)`.

    Result: none.
    """
