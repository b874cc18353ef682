"""The extension by which VS Code finds the adapter: a manifest, and a file that runs it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from ziggurat import __version__
from ziggurat.codemodel.errors import LaunchError

_FOLDER = "~/.vscode/extensions"
_ATTRIBUTES: dict[str, Any] = {
    "program": {"type": "string", "description": "program.py, or FILE.py:KERNEL with arguments that are drawn"},
    "cwd": {"type": "string", "description": "The folder in which the program runs: by default its own"},
    "args": {"type": "array", "description": "The arguments of the program"},
    "arguments": {"type": "string", "description": "The arguments of the kernel: f32[4, 100], 100, 128"},
    "grid": {"type": "array", "description": "The programs along each axis"},
    "at": {"type": "array", "description": "The program in which to begin"},
    "stopOnEntry": {"type": "boolean", "description": "Stop at the first statement"},
}


def write_extension(folder: str | os.PathLike[str] = _FOLDER) -> Path:
    """Write the extension into a folder of extensions, for the Python that runs now; its own folder.

    Raises `LaunchError` where it cannot be written.
    """
    own = Path(folder).expanduser() / f"ziggurat.kernels-{__version__}"
    launch = {"type": "ziggurat", "request": "launch", "name": "Kernels of this program", "program": "${file}"}
    debugger = {
        "type": "ziggurat", "label": "Kernels (ziggurat)", "languages": ["python"], "runtime": sys.executable,
        "program": "./adapter.py", "initialConfigurations": [launch],
        "configurationAttributes": {"launch": {"required": ["program"], "properties": _ATTRIBUTES}},
    }  # fmt: skip
    manifest = {
        "name": "kernels", "publisher": "ziggurat", "version": __version__, "engines": {"vscode": "^1.60.0"},
        "displayName": "Stopping in kernels",
        "contributes": {"breakpoints": [{"language": "python"}], "debuggers": [debugger]},
    }  # fmt: skip
    try:
        own.mkdir(parents=True, exist_ok=True)
        (own / "package.json").write_text(json.dumps(manifest, indent=2), encoding="utf-8")
        (own / "adapter.py").write_text("from ziggurat.debugging.adapter import serve\n\nserve()\n", encoding="utf-8")
    except OSError as error:
        raise LaunchError(f"the extension cannot be written: {error}") from None
    return own
