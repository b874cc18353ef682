"""The commands and the C of docs/guides/shipping.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from shipped import compiled_c, needs_gcc, needs_linux

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "shipping.md").read_text(encoding="utf-8")
PROGRAM = """
import numpy as np
from kernels import grid, scale
x = np.arange(1000, dtype=np.float32)
scale[grid](x, y := np.zeros_like(x), 1000, 2.0, 256)
assert (y == 2 * x).all()
"""
MAIN = """
#include <stdio.h>
#include <string.h>
%(include)s
int main(int count, char **arguments) {
  (void)arguments;
  void *stream = 0;
  static float x[1000], y[1000];
  int n = 1000;
  if (count > 1) {  /* It is compiled, and only its last line is run: there may be no GPU. */
%(whole)s
  }
  for (int i = 0; i < n; i++) x[i] = i;
  uint32_t grid[3];
  scale_grid(grid, n);
  int status = %(last)s
  return status || y[999] != 1998;
}
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE, flags=re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The guide's first kernel as kernels.py, and its commands run one after the other."""
    folder = tmp_path_factory.mktemp("guide")
    (folder / "kernels.py").write_text(blocks("python")[0])
    (folder / "program.py").write_text(PROGRAM)
    commands = blocks("sh")
    assert len(commands) == 3
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "ZIGGURAT_CACHE_DIR": str(folder / "cache")}
    run = ["bash", "-euxo", "pipefail", "-c", "\n".join(commands)]
    done = subprocess.run(run, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (folder / "output.txt").write_text(done.stdout)
    return folder


def test_the_commands_say_what_the_guide_shows(folder):
    output = (folder / "output.txt").read_text()
    example = next(text for text in blocks("text") if text.startswith("lib: "))
    without_time = re.compile(r"[\d.]+ s$", re.MULTILINE)
    assert output.startswith(without_time.sub("", example).partition("refused")[0])
    assert output.endswith("'BLOCK' must be 256; got 128\n")
    assert {"lib.h", "lib.a", "__init__.py", "manifest.json", "code"} <= {
        path.name for path in (folder / "lib").iterdir()
    }


@needs_gcc
@needs_linux
def test_the_c_of_the_guide(folder):
    (text,) = blocks("c")
    include, _, whole = text.partition("\n")
    source = MAIN % {"include": include, "whole": whole, "last": text.splitlines()[-1]}
    program = compiled_c(folder, source, f"-I{folder / 'lib'}", str(folder / "lib" / "lib.a"), "-ldl", "-lm")
    assert subprocess.run([program], timeout=60, check=False).returncode == 0
