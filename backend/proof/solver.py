"""The solver. Its package has no types."""

from __future__ import annotations

from typing import Any

import z3 as _z3

z3: Any = _z3
