"""Pages in a headless browser: `visit` loads one, runs a script in it, and gives the script's result."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)

_HARNESS = """
<script>
window.faults = [];
window.addEventListener("error", event => faults.push(event.message));
window.addEventListener("unhandledrejection", event => faults.push(String(event.reason)));
console.error = (...parts) => faults.push(parts.join(" "));
(async () => {
    while (document.body.dataset.ready !== "yes" && !faults.length) await new Promise(go => setTimeout(go, 10));
    let result = null;
    try {
        result = faults.length ? null : await (async () => { SCRIPT })();
    } catch (error) {
        faults.push(error.stack);
    }
    const node = document.createElement("pre");
    node.id = "outcome";
    node.hidden = true;
    node.textContent = JSON.stringify({result, faults});
    document.body.append(node);
})();
</script>
"""


def visit(page: str, script: str, picture: Path | None = None, size: tuple[int, int] = (1280, 800)) -> Any:
    """What a script returns in a page, once the page says that it is ready. Fails for any error in the page's console.

    `picture` is the file for a picture of the window after the script, which then gives None.
    """
    assert BROWSER is not None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        file.write_text(page.replace("<body>", "<body>" + _HARNESS.replace("SCRIPT", script), 1), encoding="utf-8")
        output = "--dump-dom" if picture is None else f"--screenshot={picture}"
        options = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=20000")
        window = f"--window-size={size[0]},{size[1]}", f"--user-data-dir={folder}/user"
        done = subprocess.run(
            [BROWSER, *options, *window, output, file.as_uri()],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
    if picture is not None:
        return None
    match = re.search(r'<pre id="outcome"[^>]*>(.*?)</pre>', done.stdout, re.DOTALL)
    assert match is not None, done.stderr[-2000:]
    outcome = json.loads(html.unescape(match[1]))
    assert not outcome["faults"], outcome["faults"]
    return outcome["result"]
