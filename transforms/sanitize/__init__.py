"""Sanitising: checks of races, bounds, overflow, undefined values and NaN in kernels: docs/design/019-sanitising.md."""

from __future__ import annotations

from ziggurat.transforms.sanitize.records import CHECKS, Array, Check, Sanitized
from ziggurat.transforms.sanitize.sanitize import sanitize

__all__ = ["CHECKS", "Array", "Check", "Sanitized", "sanitize"]
