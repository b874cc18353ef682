"""`triton.cdiv` and `triton.next_power_of_2`, on the host and in kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ziggurat.frontends import language
from ziggurat.frontends.language.constants import constexpr
from ziggurat.frontends.language.signature import Call


class HostCall(Call[Any, Any]):
    """A call of the language that computes quickly on the host: functions that give a grid call it at each launch."""

    def __init__(self, call: Call[Any, Any], compute: Callable[..., Any]) -> None:
        super().__init__(call.signature, call.__wrapped__, call.host)
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        result = self._compute(*arguments, **keywords)
        return result.value if isinstance(result, constexpr) else result


def _cdiv(x: Any, y: Any) -> Any:
    """The quotient x / y rounded up, for positive integers."""
    return (x + y - 1) // y


def _next_power_of_2(n: Any) -> int:
    """The smallest power of 2 that is at least n; 0 for 0."""
    return 1 << (int(n) - 1).bit_length() if n > 0 else 0


cdiv = HostCall(language.cdiv, _cdiv)
next_power_of_2 = HostCall(language.next_power_of_2, _next_power_of_2)
