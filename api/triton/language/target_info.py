"""`triton.language.target_info`: the target, for choices at compile time."""

from __future__ import annotations
