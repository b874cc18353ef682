"""`ziggurat debug`: a prompt over a session."""

import subprocess
import sys
from pathlib import Path

import debugged_kernels
from debugged_kernels import line_of

KERNELS = debugged_kernels.__file__


def prompt(*arguments, commands):
    command = [sys.executable, "-m", "ziggurat", "debug", *arguments]
    ended = subprocess.run(command, input="\n".join(commands), capture_output=True, text=True)
    assert not ended.returncode and "Traceback" not in ended.stderr, ended.stderr
    return ended.stdout


def test_a_session_by_commands():
    text = prompt(
        f"{KERNELS}:steps", "f32[20], f32[20], 20, 8", "--grid", "3", "--program", "1",
        commands=(
            f"b {line_of('branch')} if i == 2", "c", "w", "v", "p at.sum()", "pid + 1", "s", "bs", "bs", "up", "p i",
            "down", "l", "b", "watch out[17]", "who out[9]", "program 0", "clear", "bogus", "back", "b x", "step", "",
        ),
    )  # fmt: skip
    for part in (
        f"breakpoint 1 at line {line_of('branch')}", "(breakpoint 1)", "at = int32[8] [ 8  9 10", "92", "steps: acc +=",
        "1: debugged_kernels.py:", "if i == 2", "watch 2: out[17]", "out[9] was", "program (0, 0, 0)",
        "'bogus' cannot be evaluated here: NameError", "back must be followed by one of", "a line must be a number",
    ):  # fmt: skip
        assert part in text, part


def test_the_launches_of_a_program(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(Path(KERNELS).parent)!r})\n"
        "import numpy as np\n"
        "from debugged_kernels import counts, steps_t\n"
        "steps_t[(2,)](out := np.zeros(16, np.float32), np.ones(16, np.float32), 16, B=8)\n"
        "counts[(1,)](total := np.zeros(1, np.int32), 5)\n"
        "print('totals', out.sum(), total)\n"
    )
    text = prompt("--triton", str(program), commands=("n", "launch", "p n", "launch"))
    assert "in steps_t (start)" in text and "in counts (start)" in text and "totals 648.0 [6]" in text
    assert "totals" not in prompt("--triton", str(program), commands=("q",))
