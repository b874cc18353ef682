"""Global memory, addressed by pointers. Offsets count elements: `zg.load(zg.add(ptr, zg.arange(0, 64)))`."""

from __future__ import annotations

from ziggurat.frontends.language.kinds import ConstBool, ConstStr, Value
from ziggurat.frontends.language.signature import call

__all__ = ["load", "store"]


@call("Memory")
def load(
    ptr: Value,
    mask: Value = None,
    other: Value = None,
    cache_modifier: ConstStr = "",
    eviction_policy: ConstStr = "",
    volatile: ConstBool = False,
) -> Value:
    """Read memory.

    - `ptr`: a pointer or a tensor of pointers.
    - `mask`: i1, broadcast to the shape of `ptr`. Where it is false nothing is read.
    - `other`: the elements where the mask is false, broadcast, of the dtype pointed to. Without it they are not
      defined.
    - `cache_modifier`: "", ".ca", ".cg", ".cs" or ".cv", as in PTX.
    - `eviction_policy`: "", "evict_normal", "evict_first" or "evict_last".
    - `volatile`: read memory each time, never a cached value.

    Result: the shape of `ptr`, in the dtype pointed to.
    Errors: no pointer; a mask that is not i1 or does not broadcast; `other` without a mask.
    """


@call("Memory")
def store(
    ptr: Value, value: Value, mask: Value = None, cache_modifier: ConstStr = "", eviction_policy: ConstStr = ""
) -> None:
    """Write memory.

    - `ptr`: a pointer or a tensor of pointers, of the full shape: it is not broadcast.
    - `value`: broadcast to the shape of `ptr`, of the dtype pointed to (a literal takes it).
    - `mask`: i1, broadcast to the shape of `ptr`. Where it is false nothing is written.
    - `cache_modifier`: "", ".wb", ".cg", ".cs" or ".wt", as in PTX.
    - `eviction_policy`: "", "evict_normal", "evict_first" or "evict_last".

    Result: none. Of two elements that are written to one address, one remains.
    Errors: no pointer; a value or a mask that does not broadcast to `ptr`.
    """
