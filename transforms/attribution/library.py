"""What the calls that are written in the language take: checked before the function behind the call is attributed."""

from __future__ import annotations

from typing import Any

from ziggurat.codemodel.errors import KernelTypeError, KernelValueError
from ziggurat.codemodel.types import ConstantType, TensorType, Type
from ziggurat.transforms.attribution.promotion import common_shape, is_number, scalar_type
from ziggurat.transforms.attribution.shapes import checked_axis
from ziggurat.transforms.attribution.wording import describe, show


def _integers(call: str, **arguments: Type) -> None:
    for name, type_ in arguments.items():
        if not is_number(type_) or scalar_type(type_).is_float:
            raise KernelTypeError(f"zg.{call}: '{name}' is an integer or a tensor of integers, got {describe(type_)}")


class LibraryChecks:
    """One method a call, `check_` and its name."""

    def check_cdiv(self, x: Type, div: Type) -> None:
        _integers("cdiv", x=x, div=div)
        common_shape("zg.cdiv", x, div)

    def _number(self, call: str, x: Type) -> None:
        if not is_number(x):
            raise KernelTypeError(f"zg.{call} takes numbers, got {describe(x)}")

    def check_sigmoid(self, x: Type) -> None:
        self._number("sigmoid", x)

    def _bits(self, call: str, x: Type) -> None:
        if isinstance(x, ConstantType):
            raise KernelTypeError(
                f"zg.{call} takes an integer of a known width, got {describe(x)}", hint="zg.cast gives it one"
            )
        if not is_number(x) or scalar_type(x).kind != "int":
            raise KernelTypeError(f"zg.{call} takes integers, got {describe(x)}")

    def check_popc(self, x: Type) -> None:
        self._bits("popc", x)

    def check_clz(self, x: Type) -> None:
        self._bits("clz", x)

    def check_brev(self, x: Type) -> None:
        self._bits("brev", x)

    def check_atan2(self, y: Type, x: Type) -> None:
        self._number("atan2", y)
        self._number("atan2", x)
        common_shape("zg.atan2", y, x)

    def check_tan(self, x: Type) -> None:
        self._number("tan", x)

    def check_asin(self, x: Type) -> None:
        self._number("asin", x)

    def check_acos(self, x: Type) -> None:
        self._number("acos", x)

    def check_atan(self, x: Type) -> None:
        self._number("atan", x)

    def check_sinh(self, x: Type) -> None:
        self._number("sinh", x)

    def check_cosh(self, x: Type) -> None:
        self._number("cosh", x)

    def check_expm1(self, x: Type) -> None:
        self._number("expm1", x)

    def check_log1p(self, x: Type) -> None:
        self._number("log1p", x)

    def check_trunc(self, x: Type) -> None:
        self._number("trunc", x)

    def check_rint(self, x: Type) -> None:
        self._number("rint", x)

    def check_round(self, x: Type) -> None:
        self._number("round", x)

    def check_isnan(self, x: Type) -> None:
        self._number("isnan", x)

    def check_isinf(self, x: Type) -> None:
        self._number("isinf", x)

    def check_isfinite(self, x: Type) -> None:
        self._number("isfinite", x)

    def check_softmax(self, x: Type, dim: Any) -> None:
        if not isinstance(x, TensorType) or not is_number(x):
            raise KernelTypeError(f"zg.softmax takes a tensor of numbers, got {describe(x)}")
        checked_axis("softmax", dim, x.rank)

    def check_philox(self, seed: Type, c0: Type, c1: Type, c2: Type, c3: Type, rounds: Any) -> None:
        _integers("philox", seed=seed, c0=c0, c1=c1, c2=c2, c3=c3)
        if isinstance(seed, TensorType):
            raise KernelTypeError(
                f"zg.philox: 'seed' is a scalar, got {seed}", hint="the numbers differ by their counters"
            )
        common_shape("zg.philox", c0, c1, c2, c3)
        self._rounds("philox", rounds)

    def _stream(self, call: str, seed: Type, offset: Type, rounds: Any) -> None:
        _integers(call, seed=seed, offset=offset)
        if isinstance(seed, TensorType):
            raise KernelTypeError(
                f"zg.{call}: 'seed' is a scalar, got {seed}", hint="the numbers differ by their offsets"
            )
        self._rounds(call, rounds)

    def _rounds(self, call: str, rounds: Any) -> None:
        if type(rounds) is not int or not 0 <= rounds <= 100:
            raise KernelValueError(f"zg.{call}: 'n_rounds' is an integer from 0 to 100, got {show(rounds)}")

    def check_rand(self, seed: Type, offset: Type, rounds: Any) -> None:
        self._stream("rand", seed, offset, rounds)

    def check_randn(self, seed: Type, offset: Type, rounds: Any) -> None:
        self._stream("randn", seed, offset, rounds)

    def check_randint(self, seed: Type, offset: Type, rounds: Any) -> None:
        self._stream("randint", seed, offset, rounds)

    def check_rand4x(self, seed: Type, offset: Type, rounds: Any) -> None:
        self._stream("rand4x", seed, offset, rounds)

    def check_randn4x(self, seed: Type, offset: Type, rounds: Any) -> None:
        self._stream("randn4x", seed, offset, rounds)

    def check_randint4x(self, seed: Type, offset: Type, rounds: Any) -> None:
        self._stream("randint4x", seed, offset, rounds)
