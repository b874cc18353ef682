"""Accurate functions of f64 as routines."""

from __future__ import annotations

from collections.abc import Callable

from ziggurat.backend.ptx.routines import Routine

ROUTINES: dict[str, Callable[[], Routine]] = {}
