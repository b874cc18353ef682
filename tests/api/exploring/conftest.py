import subprocess
import sys

import pytest


@pytest.fixture
def subprocess_main():
    """`ziggurat` in a process of its own."""

    def run(arguments):
        return subprocess.run(
            [sys.executable, "-m", "ziggurat", *arguments], capture_output=True, text=True, timeout=120, check=False
        )

    return run
