"""`triton.language.extra.cuda.gdc`: launches that begin before the one before them ends."""

from __future__ import annotations

from ziggurat.frontends.triton.triton_library import SPELLED

gdc_launch_dependents, gdc_wait = SPELLED["gdc_launch_dependents"], SPELLED["gdc_wait"]
