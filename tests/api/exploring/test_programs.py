"""`ziggurat explore` and `ziggurat explore --triton`."""

import re

from explored_kernels import column, content

from ziggurat.cli import main

PROGRAM = """
import sys
import numpy as np
import triton
import triton.language as tl

@triton.jit
def add_one(x, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)

x = np.zeros(100, np.float32)
for _ in range(3):
    add_one[(2,)](x, 100, B=64)
y = np.zeros(100, np.int32)
add_one[lambda meta: (triton.cdiv(100, meta["B"]),)](y, 100, B=64)
add_one[(1,)](y[:16], 16, 16)
add_one[(1,)](y[:16], 16, B=16)
print(sys.argv[1], x.sum(), y.sum())
"""


def test_a_program(tmp_path, subprocess_main):
    (tmp_path / "program.py").write_text(PROGRAM)
    folder = tmp_path / "pages"
    done = subprocess_main(["explore", "--triton", "-o", str(folder), str(tmp_path / "program.py"), "--word"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["--word", "300.0", "132"]
    assert "3 launch(es) explored" in done.stderr
    links = re.findall(r'href="(.*?)"', (folder / "index.html").read_text())
    assert links == ["00-add_one.html", "01-add_one.html", "02-add_one.html"]
    page = content((folder / links[1]).read_text())
    assert any("i32" in text for text in column(page, "triton")["lines"])
    page = content((folder / links[2]).read_text())
    assert any("tensor<x16," in text for text in column(page, "triton")["lines"])


def test_the_command(tmp_path, capsys):
    file = tmp_path / "kernels.py"
    file.write_text(
        "import ziggurat as zg\n\n@zg.kernel\ndef f(x, B: zg.constexpr):\n"
        "    at = zg.add(x, zg.arange(0, B))\n    zg.store(at, zg.add(zg.load(at), 1))\n"
    )
    output = tmp_path / "page.html"
    arguments = ["explore", f"{file}:f", "f32[64], 64", "--program", "0", "--num-warps", "1", "-o", str(output)]
    assert main(arguments) == 0
    assert capsys.readouterr().out.strip() == str(output)
    assert content(output.read_text())["programs"] == [[0, 0, 0]]
    assert main([*arguments[:3], "--program", "x"]) == 1
    assert "--program must be indices" in capsys.readouterr().err
