"""Draws docs/pictures/debug.svg: a session of `ziggurat debug`, forward and back.

python docs/pictures/debug.py > docs/pictures/debug.svg
"""

import html
import subprocess
import sys
import tempfile
from pathlib import Path

KERNELS = """import ziggurat as zg


@zg.kernel
def sums(out, x, n, B: zg.constexpr):
    at = zg.program_id(0) * B + zg.arange(0, B)
    acc = zg.zeros((B,), zg.f32)
    for i in range(0, 3):
        v = zg.load(x + at, zg.less(at, n))
        acc += 2.0 * v + 1.0
    zg.store(out + at, acc, zg.less(at, n))
"""
COMMANDS = (
    "break 10 if i == 2",
    "continue",
    "acc",
    "back step",
    "who out[5]",
    "clear",
    "watch out[9]",
    "continue",
    "where",
)
_PROMPT, _LINE, _WIDTH = "(ziggurat) ", 18, 1060


def session() -> list[str]:
    """The lines of the session, with the commands after their prompts."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernels.py").write_text(KERNELS)
        arguments = ["debug", "kernels.py:sums", "f32[10], f32[10], 10, 4", "--grid", "3", "--program", "1"]
        done = subprocess.run(
            [sys.executable, "-m", "ziggurat", *arguments],
            input="\n".join([*COMMANDS, "quit"]) + "\n", capture_output=True, text=True, cwd=folder, check=True,
        )  # fmt: skip
    first, *answers = done.stdout.split(_PROMPT)
    text = f'$ ziggurat debug kernels.py:sums "f32[10], f32[10], 10, 4" --grid 3 --program 1\n{first}'
    for command, answer in zip(COMMANDS, answers, strict=False):
        text += f"{_PROMPT}{command}\n{answer}"
    return text.splitlines()


def main() -> None:
    lines = session()
    height = _LINE * len(lines) + 24
    print(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}">'
    )
    print("<style>text { font: 13px ui-monospace, monospace; fill: #c9d1d9; white-space: pre; }")
    print(".command { fill: #7ee787; } .code { fill: #79c0ff; }</style>")
    print(f'<rect width="{_WIDTH}" height="{height}" rx="8" fill="#0d1117"/>')
    for number, line in enumerate(lines):
        kind = "command" if line.startswith(("$ ", _PROMPT)) else "code" if line.startswith("-> ") else ""
        place = f'x="14" y="{26 + number * _LINE}"'
        print(f"<text {place}{f' class={chr(34)}{kind}{chr(34)}' if kind else ''}>{html.escape(line)}</text>")
    print("</svg>")


if __name__ == "__main__":
    main()
