"""A scripted editor, over pipes."""

import json
import subprocess
import sys
from pathlib import Path

import debugged_kernels
import pytest
from debugged_kernels import line_of

KERNELS = debugged_kernels.__file__


class Editor:
    """The other side of the protocol."""

    def __init__(self, command=(sys.executable, "-m", "ziggurat", "debug", "--dap")):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.count = 0
        self.messages = []

    def ask(self, command, **arguments):
        """The body of the response; an error is its message."""
        self.count += 1
        text = json.dumps({"seq": self.count, "type": "request", "command": command, "arguments": arguments}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(text) + text)
        self.process.stdin.flush()
        answer = self.until(lambda m: m["type"] == "response" and m["request_seq"] == self.count)
        assert answer["command"] == command
        return answer["body"] if answer["success"] else answer["message"]

    def until(self, accepts):
        while True:
            for number, message in enumerate(self.messages):
                if accepts(message):
                    return self.messages.pop(number)
            length = 0
            while line := self.process.stdout.readline().strip():
                length = int(line.partition(b":")[2])
            if not length:
                raise AssertionError(self.process.stderr.read().decode())
            self.messages.append(json.loads(self.process.stdout.read(length)))

    def event(self, name):
        return self.until(lambda m: m["type"] == "event" and m["event"] == name)["body"]

    def start(self, breakpoints, **launch):
        assert self.ask("initialize", adapterID="ziggurat")["supportsStepBack"]
        self.event("initialized")
        assert self.ask("launch", **launch) == {}
        entries = self.ask("setBreakpoints", source={"path": KERNELS}, breakpoints=breakpoints)["breakpoints"]
        assert [entry["verified"] for entry in entries] == [False] * len(breakpoints)
        self.ask("setExceptionBreakpoints", filters=[])
        self.ask("setDataBreakpoints", breakpoints=[])
        self.ask("configurationDone")

    def frames(self, thread):
        return [(f["name"], f["line"]) for f in self.ask("stackTrace", threadId=thread)["stackFrames"]]

    def variables(self, reference):
        return {v["name"]: v for v in self.ask("variables", variablesReference=reference)["variables"]}


@pytest.fixture
def editor():
    editor = Editor()
    yield editor
    editor.process.kill()
    editor.process.wait()


def test_an_editor_stops_in_a_kernel_and_steps_forward_and_back(editor):
    launch = {"program": f"{KERNELS}:steps", "arguments": "f32[20], f32[20], 20, 8", "grid": [3], "at": [1]}
    wrong = {"line": 1}
    editor.start([{"line": line_of("branch"), "condition": "i == 2"}, wrong], **launch)
    stop = editor.event("stopped")
    assert (stop["reason"], stop["threadId"]) == ("breakpoint", 2)
    changed = [editor.event("breakpoint")["breakpoint"] for _ in range(2)]
    assert [entry["verified"] for entry in changed] == [True, False] and "no statement" in changed[1]["message"]
    threads = editor.ask("threads")["threads"]
    assert [thread["name"] for thread in threads] == [f"program ({n}, 0, 0)" for n in range(3)]
    assert editor.frames(2) == [("steps", line_of("branch"))] and editor.frames(1) == []
    scopes = {s["name"]: s["variablesReference"] for s in editor.ask("scopes", frameId=0)["scopes"]}
    variables = editor.variables(scopes["Variables"])
    assert variables["i"]["value"] == "2" and variables["B"]["value"] == "8"
    elements = editor.variables(variables["at"]["variablesReference"])
    assert [v["value"] for v in elements.values()] == [str(n) for n in range(8, 16)]
    assert editor.ask("evaluate", expression="at.max() + i", frameId=0)["result"] == "17"
    assert "NameError" in editor.ask("evaluate", expression="none", frameId=0)
    assert "program (1, 0, 0)" in editor.ask("evaluate", expression="who out[9]", context="repl")["result"]

    editor.ask("stepBack", threadId=2)
    assert editor.event("stopped")["reason"] == "step" and editor.frames(2) == [("steps", line_of("call"))]
    editor.ask("stepIn", threadId=2)
    editor.event("stopped")
    assert editor.frames(2) == [("scaled", line_of("scale")), ("steps", line_of("call"))]
    editor.ask("stepOut", threadId=2)
    editor.event("stopped")
    assert editor.frames(2) == [("steps", line_of("branch"))]
    editor.ask("next", threadId=2)
    editor.event("stopped")
    assert editor.frames(2) == [("steps", line_of("then"))]
    editor.ask("reverseContinue", threadId=2)
    assert editor.event("stopped")["reason"] == "breakpoint"

    arrays = editor.variables(scopes["Arrays of the launch"])
    info = editor.ask("dataBreakpointInfo", variablesReference=arrays["out"]["variablesReference"], name="[17]")
    assert info["dataId"] == "out[17]"
    assert editor.ask("setDataBreakpoints", breakpoints=[info])["breakpoints"] == [{"verified": True}]
    editor.ask("setBreakpoints", source={"path": KERNELS}, breakpoints=[])
    editor.ask("continue", threadId=2)
    assert editor.event("stopped")["reason"] == "data breakpoint"
    assert "out[17]" in editor.until(lambda m: m.get("event") == "output")["body"]["output"]
    editor.ask("continue", threadId=3)
    editor.event("terminated")
    assert "no kernel" in editor.ask("stackTrace", threadId=1)
    editor.ask("disconnect")
    assert editor.process.wait(20) == 0


def test_an_editor_debugs_the_launches_of_a_program(editor, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import numpy as np, sys\n"
        f"sys.path.insert(0, {str(Path(KERNELS).parent)!r})\n"
        "from debugged_kernels import steps_t\n"
        "out = np.zeros(16, np.float32)\n"
        "steps_t[(2,)](out, np.ones(16, np.float32), 16, B=8)\n"
        "print('sum', out.sum())\n"
    )
    editor.start([{"line": line_of("t then")}], program=str(program))
    assert editor.event("stopped")["threadId"] == 2 and editor.frames(2) == [("steps_t", line_of("t then"))]
    editor.ask("setBreakpoints", source={"path": KERNELS}, breakpoints=[])
    editor.ask("continue", threadId=2)
    editor.event("terminated")
    assert any(m.get("event") == "output" and "sum" in m["body"]["output"] for m in editor.messages)
    editor.ask("disconnect")
    assert editor.process.wait(20) == 0


def test_a_failing_kernel_stops_as_an_exception(editor):
    """And requests that do not fit are answered."""
    editor.start([], program=f"{KERNELS}:strays", arguments="f32[3], f32[150]", grid=[3])
    stop = editor.event("stopped")
    assert (stop["reason"], stop["threadId"]) == ("exception", 3) and "reads x[200]" in stop["text"]
    assert editor.ask("variables", variablesReference=1 << 21) == "IndexError: list index out of range"
    assert "KeyError" in editor.ask("scopes") and "there is no frame 7" in editor.ask("variables", variablesReference=8)
    editor.ask("stepBack", threadId=3)
    editor.event("stopped")
    assert editor.frames(3) == [("strays", line_of("stray"))]
    editor.ask("continue", threadId=3)
    editor.event("terminated")


@pytest.mark.parametrize("pipes", ["stdin", "stdin stdout"])
def test_it_ends_with_the_editor(editor, pipes):
    editor.start([], program=f"{KERNELS}:counts", arguments="i32[1], 7", stopOnEntry=True)
    editor.event("stopped")
    text = json.dumps({"seq": 99, "type": "request", "command": "next", "arguments": {"threadId": 1}}).encode()
    editor.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(text) + text)
    for pipe in pipes.split():
        getattr(editor.process, pipe).close()
    assert editor.process.wait(20) == 0 and not editor.process.stderr.read()


def test_what_is_no_message_ends_it(editor):
    editor.process.stdin.write(b"Content-Length: 5\r\n\r\nabcde")
    editor.process.stdin.close()
    assert editor.process.wait(20) == 0
    assert b"a message must be JSON" in editor.process.stderr.read()


def test_what_cannot_be_run_is_said(editor):
    editor.start([], program="nowhere.py:kernel")
    assert "there is no file" in editor.event("output")["output"]
    editor.event("terminated")
    assert "not supported" in editor.ask("goto")


def test_the_extension_runs_the_adapter(tmp_path):
    """As VS Code runs it: the manifest's runtime and program."""
    command = [sys.executable, "-m", "ziggurat", "debug", "--vscode", str(tmp_path)]
    folder = Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
    manifest = json.loads((folder / "package.json").read_text())
    (debugger,) = manifest["contributes"]["debuggers"]
    assert folder.name == f"{manifest['publisher']}.{manifest['name']}-{manifest['version']}"
    editor = Editor([debugger["runtime"], folder / debugger["program"]])
    assert set(debugger["configurationAttributes"]["launch"]["properties"]) > {"program", "grid", "at"}
    editor.start([], program=f"{KERNELS}:counts", arguments="i32[1], 7", stopOnEntry=True)
    assert editor.event("stopped")["reason"] == "entry"
    editor.ask("disconnect")
    assert editor.process.wait(20) == 0


def test_an_extension_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    command = [sys.executable, "-m", "ziggurat", "debug", "--vscode", str(tmp_path / "file")]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 1 and "the extension cannot be written" in ended.stderr
