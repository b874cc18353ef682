"""Draws docs/pictures/sanitize.svg: the report of a launch with sanitizers.

python docs/pictures/sanitize.py > docs/pictures/sanitize.svg
"""

import html
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = """import numpy as np
import ziggurat as zg


@zg.kernel
def smooth(x, n, B: zg.constexpr):
    at = zg.program_id(0) * B + zg.arange(0, B)
    before = zg.load(x + at - 1, zg.less(at, n) & zg.greater(at, 0), 0.0)
    here = zg.load(x + at, zg.less(at, n))
    zg.store(x + at, (before + here) / 2)


smooth[(3,)](np.ones(40, np.float32), 40, 16, sanitize=True, interpret=True)
"""
_LINE, _WIDTH, _COLUMNS = 18, 940, 112


def report() -> list[str]:
    """The lines of the launch's error, with the command before."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "smooth.py").write_text(PROGRAM)
        done = subprocess.run([sys.executable, "smooth.py"], capture_output=True, text=True, cwd=folder, check=False)
    text = done.stderr.partition("SanitizerError: ")[2].replace(f"{folder}/", "")
    lines = ["$ python smooth.py", *text.rstrip().splitlines()]
    return [line if len(line) <= _COLUMNS else f"{line[: _COLUMNS - 1]}…" for line in lines]


def main() -> None:
    lines = report()
    height = _LINE * len(lines) + 24
    print(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}">'
    )
    print("<style>text { font: 13px ui-monospace, monospace; fill: #c9d1d9; white-space: pre; }")
    print(".command { fill: #79c0ff; } .caret { fill: #ff7b72; } .hint { fill: #8b949e; }</style>")
    print(f'<rect width="{_WIDTH}" height="{height}" rx="6" fill="#0d1117"/>')
    for number, line in enumerate(lines):
        content = line.strip()
        kind = "command" if line.startswith("$") else "caret" if content and not content.strip("^") else ""
        kind = "hint" if content.startswith(("hint:", "at ")) else kind
        label = f' class="{kind}"' if kind else ""
        print(f'<text x="12" y="{_LINE * (number + 1) + 8}"{label}>{html.escape(line)}</text>')
    print("</svg>")


if __name__ == "__main__":
    main()
