"""The type rules of the calls as methods, for tests of rules outside of any kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ziggurat.codemodel.types import Type
from ziggurat.frontends.language.languages import EXPLICIT, Language
from ziggurat.transforms.calls import RULES, Typing
from ziggurat.transforms.calls.builtins import BUILTINS
from ziggurat.transforms.calls.rule import CallContext


class Types(CallContext):
    """The type rules as methods: `types.add(a, b)`, `types.builtin_len(x)`.

    `combinations` has the function, the types and the call of each reduction.
    """

    def __init__(self, language: Language = EXPLICIT) -> None:
        super().__init__(language)
        self.combinations: list[tuple[Any, list[Type], str]] = []

    def combine(self, call: Typing, function: Any, types: Sequence[Type]) -> None:
        self.combinations.append((function, list(types), str(call)))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = name.removeprefix("builtin_")
        rule = (RULES if call == name else BUILTINS)[call]
        return lambda *arguments, **keywords: rule.type(Typing(call, self), *arguments, **keywords)
