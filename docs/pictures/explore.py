"""Draws docs/pictures/explore.png: the page of a softmax in a browser.

python docs/pictures/explore.py
"""

import sys
from pathlib import Path

import numpy as np

import ziggurat as zg

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "examples")]

from browser import visit  # noqa: E402
from fused_softmax import softmax_kernel  # noqa: E402

_SCRIPT = """
    const source = state.panes[0];
    pick(0, column("source").lines.findIndex(text => text.includes("zg.exp(zg.sub")));
    const line = column("gpu").lines.findIndex(text => text.includes("math.exp"));
    pick(2, line);
"""


def main() -> None:
    x = np.random.default_rng(0).standard_normal((4, 120)).astype(np.float32)
    page = zg.explore(softmax_kernel, (4,), np.zeros_like(x), x, 120, 120, 120, 128, num_warps=1)
    visit(page.html, _SCRIPT, ROOT / "docs" / "pictures" / "explore.png", (1280, 640))


if __name__ == "__main__":
    main()
